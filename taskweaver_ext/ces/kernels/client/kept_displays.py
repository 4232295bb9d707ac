"""What a result keeps of the displays of its execution: bounded, with the updates applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from taskweaver_ext.ces.execution.results import Display, MimeBundle
from taskweaver_ext.ces.inside.kernel.message_cost import MAX_COST
from taskweaver_ext.ces.kernels.client.display_parts import LargePart
from taskweaver_ext.errors import ProtocolError

VALUE_CHARACTERS = 64
"""What a value takes beside its text, in characters."""

_MAX_CHARACTERS = 24 << 20
_MAX_DISPLAYS = 10_000
_TOO_MUCH = (
    "More was displayed than a result holds; the rest was shown but is not in"
    " result.displays (images are saved as artifacts)."
)
_IN_FILES = (
    "A display is larger than a result holds: what is not in its `bundle` in result.displays is"
    " whole in the files that its `files` name."
)


class KeptDisplays:
    """Adds to the displays of one result for as long as there is room."""

    def __init__(
        self, displays: list[Display], note_cut: Callable[[str], None], *, holds_large: bool
    ) -> None:
        """Begin with a result.

        Args:
            displays: Those of the result.
            note_cut: Called with what the caller should know.
            holds_large: Whether large parts are read from their files, if there is room.
        """
        self._displays = displays
        self._note_cut = note_cut
        self._holds_large = holds_large
        self._characters = 0
        self._by_id: dict[str, list[Display]] = {}

    def add(self, display: Display, parts: Mapping[str, LargePart]) -> None:
        """Keep a display, whose bundle is without its large parts."""
        display.bundle, display.files = self._with_parts(display.bundle, parts)
        characters = characters_in([display.bundle, display.metadata])
        if self._has_room_for(characters, displays=1):
            self._displays.append(display)
            if display.display_id is not None:
                self._by_id.setdefault(display.display_id, []).append(display)

    def update(
        self,
        display_id: str,
        bundle: MimeBundle,
        metadata: dict[str, Any],
        parts: Mapping[str, LargePart],
    ) -> None:
        """Replace what the displays of this id show."""
        shown = self._by_id.get(display_id, ())
        if not shown:
            return
        bundle, files = self._with_parts(bundle, parts)
        characters = characters_in([bundle, metadata])
        for display in shown:
            before = characters_in([display.bundle, display.metadata])
            if self._has_room_for(characters - before):
                display.bundle, display.metadata, display.files = bundle, metadata, files

    def _with_parts(
        self, bundle: MimeBundle, parts: Mapping[str, LargePart]
    ) -> tuple[MimeBundle, dict[str, str]]:
        """Add the parts that there is room for to a copy of a bundle; the others are named."""
        held, files = dict(bundle), {}
        room = _MAX_CHARACTERS - self._characters - characters_in(bundle)
        for kind, part in parts.items():
            value = self._read(part, room)
            if value is None:
                files[kind] = str(part.path)
            else:
                held[kind] = value
                room -= characters_in(value)
        if files and self._holds_large:
            self._note_cut(_IN_FILES)
        return held, files

    def _read(self, part: LargePart, room: int) -> Any:  # noqa: ANN401 - whatever JSON it is
        if not self._holds_large or part.size > room:
            return None
        try:
            value = part.read(MAX_COST)
        except (OSError, ProtocolError, ValueError):
            return None
        return value if characters_in(value) <= room else None

    def _has_room_for(self, characters: int, displays: int = 0) -> bool:
        """Count what a result is to hold more of (or less, below zero), if it can."""
        has_room = (
            self._characters + characters <= _MAX_CHARACTERS
            and len(self._displays) + displays <= _MAX_DISPLAYS
        )
        if has_room:
            self._characters += characters
        else:
            self._note_cut(_TOO_MUCH)
        return has_room


def characters_in(value: object) -> int:
    """How much a display takes, at whatever depth, in characters."""
    inside = 0
    if isinstance(value, dict):
        inside = sum(map(len, value)) + sum(map(characters_in, value.values()))
    elif isinstance(value, list):
        inside = sum(map(characters_in, value))
    elif isinstance(value, str):
        inside = len(value)
    return inside + VALUE_CHARACTERS
