"""What a post shows of a reply while it is read: the code that is shown is the code that runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskweaver_ext.ces.execution.contract import ExecutionFailure
from taskweaver_ext.ces.execution.results import ExecutionId
from taskweaver_ext.conversation import AttachmentType
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.roles.base.live_fields import LiveFields
from taskweaver_ext.streaming.code_cleaning import FenceStripper
from taskweaver_ext.streaming.exec_panel import ExecPanel

THOUGHT, TYPE, CONTENT = "thought", "reply_type", "reply_content"
ATTACHMENTS = {
    THOUGHT: AttachmentType.thought,
    TYPE: AttachmentType.reply_type,
    CONTENT: AttachmentType.reply_content,
}
"""Where a post shows the fields of a reply."""
TEXT = "text"
"""What content is that is an answer in words."""

EDITED = {"edited_by": "user"}
"""The extra of code that a person has edited before it ran."""

_MESSAGE = "message"


class ShownReply:
    """The panel, the attachments and the message of a post, fed by one reading of a reply.

    Content is given as the model wrote it, in one or several parts, and waits until it is
    known what it is: code in some language, or an answer in words. Of code, a fence around
    each part is taken off, parts begin on lines of their own, and Python begins with
    the project's prefix.
    """

    def __init__(
        self, post: PostEventProxy, languages: Sequence[str], code_prefix: str = ""
    ) -> None:
        self.panel = ExecPanel(
            ExecutionId(post.post.id),
            post.emit_code_exec,
            time.monotonic,
            agent=post.post.send_from,
        )
        self.kind = ""
        """What the content is: a language, or `TEXT`; empty as long as that is not known."""
        self._live = LiveFields(post, ATTACHMENTS, _MESSAGE)
        self._languages = languages
        self._prefix = code_prefix
        self._content: list[str | None] = []  # None: a part ends here
        self._code = _CodeText(code_prefix)

    @property
    def content(self) -> str:
        """The content as the model wrote it."""
        return "".join(piece or "" for piece in self._content)

    @property
    def has_code(self) -> bool:
        """Whether there is any code of the model's own."""
        return self._code.is_code

    def add(self, field: str, text: str) -> None:
        """Show more of what the model thinks, or of the language as it calls it."""
        self._live.add(field, text)

    def restart_field(self, field: str) -> None:
        """Take back what the model thinks, or how it calls the language."""
        self._live.restart(field)

    def add_answer(self, text: str) -> None:
        """Show more of an answer that comes beside the content."""
        self._live.add(_MESSAGE, text)

    def add_content(self, text: str) -> None:
        """Take more of the content, and show it if it is known what it is."""
        self._content.append(text)
        self._show(text)

    def end_part(self) -> None:
        """Take note that what follows is another part of the content."""
        self._content.append(None)
        self._show(None)

    def choose(self, kind: str) -> None:
        """Say what the content is, and show it as that."""
        if kind != self.kind:
            self._take_back()
            self.kind = kind
            self.panel.language = kind
            self._code = _CodeText(self._prefix if kind == "python" else "")
            for is_end, pieces in itertools.groupby(self._content, lambda piece: piece is None):
                self._show(None if is_end else "".join(piece or "" for piece in pieces))

    def restart_content(self) -> None:
        """Take back the content; other content follows, or none."""
        self._content.clear()
        self._take_back()

    def forget_content(self) -> None:
        """Take back the content; what other content is, is not known either."""
        self.restart_content()
        self.kind = ""

    def restart(self) -> None:
        """Take back everything: another reply follows."""
        self.forget_content()
        for field in ATTACHMENTS:
            self._live.restart(field)

    def finish_code(
        self, fields: Mapping[str, str], failure: ExecutionFailure | None = None
    ) -> ExecutionFailure | None:
        """Complete the code and what is shown with it; return what stands against running it."""
        self._show_code(self._code.close())
        if failure is None and not self.has_code:
            failure = _failure("missing_code", "The reply contains no code.")
        self.panel.finish_generation(failure)
        self._live.restart(_MESSAGE)
        self._live.complete({**fields, TYPE: self.kind, CONTENT: self.panel.code})
        return failure

    def finish_text(self, fields: Mapping[str, str], answer: str) -> None:
        """Complete an answer in words."""
        self.break_off("The reply is an answer in words.")
        self._live.complete({**fields, _MESSAGE: answer})

    def break_off(self, reason: str) -> None:
        """Say that the code, if any is shown, will never be complete."""
        self.panel.finish_generation(_failure("stream_broken", reason), completed=False)

    def replace_code(self, code: str) -> None:
        """Show the code that a person wants to run instead."""
        self.panel.replace_code(code)
        self._live.replace(CONTENT, code, EDITED)

    def _show(self, piece: str | None) -> None:
        if self.kind == TEXT:
            self._live.add(_MESSAGE, piece or "")
        elif self.kind in self._languages:
            self._show_code(self._code.end_part() if piece is None else self._code.feed(piece))

    def _show_code(self, code: str) -> None:
        self.panel.add_code(code)
        self._live.add(CONTENT, code)

    def _take_back(self) -> None:
        self.panel.restart_code()
        self._live.restart(CONTENT)
        if self.kind == TEXT:
            self._live.restart(_MESSAGE)
        self._code = _CodeText(self._prefix if self.kind == "python" else "")


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """An answer in words; there is nothing to run."""

    text: str


@dataclass(frozen=True, slots=True)
class GeneratedCode:
    """Code that is to be checked and run: what the panel shows, and nothing else."""

    shown: ShownReply

    @property
    def language(self) -> str:
        """What it is written in."""
        return self.shown.kind

    @property
    def code(self) -> str:
        """What is shown."""
        return self.shown.panel.code

    @property
    def panel(self) -> ExecPanel:
        """Where it is shown."""
        return self.shown.panel


class _CodeText:
    """Make the code that runs of content that comes in pieces and parts."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}\n" if prefix else ""
        self._fence = FenceStripper()
        self._held = ""  # what may be the prefix, written by the model itself
        self._is_begun = not self._prefix
        self._last_character = ""
        self._is_between_parts = False
        self.is_code = False
        """Whether there is more than white space."""

    def feed(self, text: str) -> str:
        """Return what the next piece of content adds to the code."""
        return self._add(self._fence.feed(text))

    def end_part(self) -> str:
        """Return what the end of a part adds; the next one begins on a line of its own."""
        code = self._add(self._fence.close())
        self._fence = FenceStripper()
        self._is_between_parts = True
        return code

    def close(self) -> str:
        """Return what was still waiting."""
        code = self._add(self._fence.close())
        if self._is_begun or not self.is_code:
            return code
        self._is_begun = True
        return code + self._prefix + self._held

    def _add(self, code: str) -> str:
        if not code:
            return ""
        if self._is_between_parts:
            self._is_between_parts = False
            if self._last_character not in ("", "\n"):
                code = f"\n{code}"
        self._last_character = code[-1]
        self.is_code = self.is_code or not code.isspace()
        return code if self._is_begun else self._begin(code)

    def _begin(self, code: str) -> str:
        """Put the prefix before the code, unless the model has repeated it."""
        self._held += code
        if self._prefix.startswith(self._held):
            return ""
        self._is_begun = True
        return self._held if self._held.startswith(self._prefix) else self._prefix + self._held


def _failure(code: str, message: str) -> ExecutionFailure:
    return ExecutionFailure(code=code, message=message, where="code_generation")
