"""Mask secrets in text: whole texts, JSON values, and streams that cut a secret anywhere.

    redactor = Redactor(["sk-4f5e6d7c8b9a"], patterns=["ghp_[A-Za-z0-9]{36}"])
    redactor.redact("key: sk-4f5e6d7c8b9a")     # "key: [masked]"

    stream = redactor.stream()
    stream.feed("key: sk-4f")                   # "key: "; the rest may begin a secret
    stream.feed("5e6d7c8b9a\\n")                 # "[masked]\\n"
    stream.flush(), stream.close()              # see `RedactedStream`

Pure, and linear in the length of the text whatever the secrets are. Every character that is part
of a secret is masked, however occurrences overlap; occurrences that overlap or touch become one
mask. The mask is the same for all: it tells neither which secret stood there nor how long it was.

A secret is known in the spellings that programs print it in: as it is, in JSON, in Python's `repr`
of text and bytes, in URLs and HTML, and in Base64 (also in the middle of other encoded data, such
as the header of a basic authentication). Its longer lines are masked one by one, because programs
indent and wrap what has several. What code disguises on purpose (reversed, encrypted, one letter
a line) is not found: masking prevents accidents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from taskweaver_ext.text.secret_spellings import words_of
from taskweaver_ext.text.stream_pattern import StreamPattern
from taskweaver_ext.text.word_automaton import WordAutomaton

MASK: Final = "[masked]"

_HAS_MASK = -1
"""Where something begins whose mask was passed on already: secrets that touch it add to it."""


class Redactor:
    """Secrets and patterns, prepared once; shared by any number of texts, streams and threads."""

    def __init__(self, secrets: Iterable[str], patterns: Iterable[str] = ()) -> None:
        """Prepare to mask the secrets in all spellings, and what the patterns match.

        Args:
            secrets: Those shorter than `SHORTEST_SECRET` are ignored.
            patterns: Regular expressions without groups, alternatives and anchors: characters,
                classes and escapes such as `\\d`, each with `?`, `*`, `+`, `{n}` or `{n,m}`. A
                repetition takes what it can and gives nothing back, so that time stays linear.

        Raises:
            ValueError: A pattern cannot be used; the message says why.
        """
        words = {word for secret in secrets for word in words_of(secret) if word not in MASK}
        self._automaton = WordAutomaton(sorted(words)) if words else None
        self._patterns = tuple(StreamPattern(pattern) for pattern in patterns)

    def __bool__(self) -> bool:
        """Whether there is anything to mask."""
        return self._automaton is not None or bool(self._patterns)

    def redact(self, text: str) -> str:
        """Return the text with its secrets masked."""
        stream = self.stream()
        return stream.feed(text) + stream.close()

    def redact_json(self, value: Any) -> Any:  # noqa: ANN401  any JSON value
        """Return a copy of a JSON value whose texts and keys have their secrets masked.

        Keys that become the same are numbered, so that nothing else is lost.
        """
        if not self:
            return value
        top: list[Any] = [None]
        pending: list[tuple[Any, Any, Any]] = [(value, top, 0)]  # no recursion: depth is data
        while pending:
            source, target, place = pending.pop()
            if isinstance(source, str):
                target[place] = self.redact(source)
            elif isinstance(source, dict):
                keys = self._keys(source)
                target[place] = dict.fromkeys(keys)
                pending += zip(source.values(), [target[place]] * len(keys), keys, strict=True)
            elif isinstance(source, list | tuple):
                target[place] = [None] * len(source)
                places = range(len(source))
                pending += zip(source, [target[place]] * len(source), places, strict=True)
            else:
                target[place] = source
        return top[0]

    def stream(self) -> RedactedStream:
        """Return a new stream, for one sequence of pieces that belong together."""
        return RedactedStream(self._automaton, self._patterns)

    def _keys(self, source: dict[Any, Any]) -> list[Any]:
        taken = set(source)
        keys = []
        for key in source:
            masked = self.redact(key) if isinstance(key, str) else key
            if masked != key:
                name, number = masked, 1
                while masked in taken:
                    number += 1
                    masked = f"{name} {number}"
                taken.add(masked)
            keys.append(masked)
        return keys


class RedactedStream:
    """Pass text on piece by piece; what the pieces are makes no difference to the result.

    Only a tail that may be the beginning of a secret is held back, usually nothing. It comes out
    with the next `feed` that decides, and at the latest with `close`. Because a program may stop
    in the middle (a prompt that ends in "https://" when a secret begins so), a caller that shows
    live output calls `flush` when `is_holding` and nothing came for as long as a reader may wait,
    such as the interval in which it batches: `feed` what came, then `flush` once an interval has
    passed without anything new.

    One thread at a time.
    """

    def __init__(
        self, automaton: WordAutomaton | None, patterns: tuple[StreamPattern, ...]
    ) -> None:
        self._automaton = automaton
        self._patterns = patterns
        self._held = ""
        self._masked: list[tuple[int, int]] = []
        """What is masked of `_held`, in order."""
        self._state = 0
        self._settled = [0] * len(patterns)
        """For each pattern, the first place in `_held` where a match may still begin."""

    @property
    def is_holding(self) -> bool:
        """Whether something waits for the next piece."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """Return what is certain now that this piece has come."""
        start, text = len(self._held), self._held + text
        cut = len(text)
        if self._automaton is not None:
            found: list[tuple[int, int]] = []
            self._state = self._automaton.scan(text, start, self._state, found)
            self._add(found)
            cut -= self._automaton.depth[self._state]
        for number, pattern in enumerate(self._patterns):
            found = []
            self._settled[number] = pattern.scan(text, self._settled[number], found)
            self._add(found)
        cut = max(0, min(cut, *self._settled, len(text)))
        if cut == len(text) and not self._masked:  # which is nearly always so
            self._held = ""
            self._settled = [0] * len(self._settled)
            return text
        return self._pass_on(text, cut)

    def flush(self) -> str:
        """Return what was held back, since no more may come.

        Still held is what already is half of a secret or more: no pause in the output makes more
        than the first half of a secret visible, and if the rest comes it is masked.
        """
        text, cut = self._held, len(self._held)
        if self._automaton is not None:
            cut -= self._automaton.depth[self._automaton.mostly_there(self._state)]
        for number, pattern in enumerate(self._patterns):
            found: list[tuple[int, int]] = []
            self._settled[number] = pattern.settle(text, self._settled[number], found)
            self._add(found)
            cut = min(cut, self._settled[number])
        return self._pass_on(text, max(0, cut))

    def close(self) -> str:
        """Return all that is left; a secret that is not complete is none."""
        for number, pattern in enumerate(self._patterns):
            found: list[tuple[int, int]] = []
            pattern.finish(self._held, self._settled[number], found)
            self._add(found)
        self._state, self._settled = 0, [0] * len(self._patterns)
        rest = self._pass_on(self._held, len(self._held))
        self._masked = []
        return rest

    def _add(self, found: list[tuple[int, int]]) -> None:
        """Merge what was found into what is masked."""
        if not found:
            return
        merged: list[tuple[int, int]] = []
        # What begins before 0 was passed on before it was known to begin a secret.
        found = [(max(start, 0), end) for start, end in found]
        for start, end in sorted(self._masked + found):
            if merged and start <= merged[-1][1]:
                start, end = merged[-1][0], max(end, merged.pop()[1])
            merged.append((start, end))
        self._masked = merged

    def _pass_on(self, text: str, cut: int) -> str:
        """Return the text before `cut`, masked, with the whole of a mask there; hold the rest."""
        pieces: list[str] = []
        kept: list[tuple[int, int]] = []
        at = 0
        for start, end in self._masked:
            if start > cut:
                kept.append((start - cut, end - cut))
                continue
            if start >= 0:
                pieces += text[at:start], MASK
            at = end
            if end >= cut:
                cut = max(cut, min(end, *self._settled, end))
                kept.append((_HAS_MASK, end - cut))
        pieces.append(text[at:cut])
        self._held, self._masked = text[cut:], kept
        self._settled = [max(0, place - cut) for place in self._settled]
        return "".join(pieces)
