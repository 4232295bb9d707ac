"""Ask a model for one reply, so that it can be watched, stopped and paid for."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from taskweaver_ext.conversation import AttachmentType
from taskweaver_ext.errors import RoundCancelledError
from taskweaver_ext.events.emitter import PostEventProxy
from taskweaver_ext.llm.chat_model import (
    ChatModel,
    Finished,
    FinishReason,
    JsonSchema,
    Message,
    ModelEvent,
    PromptRead,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
)
from taskweaver_ext.llm.model_errors import ReplyCancelledError, ReplyInterruptedError
from taskweaver_ext.machine.private_files import write_private
from taskweaver_ext.roles.base.role import RoleContext
from taskweaver_ext.traces.traces import TracedPost

ReplyEnd: TypeAlias = FinishReason | Literal["broken"]

MODEL_THINKING = {"source": "model"}
"""The extra of attachments with what a model thought before it replied: for people only."""

MAX_CHARS = 400_000
"""More than any reply needs, thoughts included."""
MAX_BLANK_CHARS = 10_000
"""So much white space in a row says nothing any more."""
MAX_REPEATED_CHARS = 20_000
"""So long a stretch of the same few characters says nothing any more."""
MAX_PERIOD = 200
"""How long what is repeated may be."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model said, whole or not."""

    text: str
    end: ReplyEnd
    problem: str = ""
    """Why the reply is not whole; empty when it is."""


class ModelCaller:
    """Ask the model of one role."""

    def __init__(self, context: RoleContext, llm_alias: str, log_name: str) -> None:
        """Prepare to ask.

        Args:
            llm_alias: Which model, as in `RoleContext.find_model`.
            log_name: What the files with the messages to the model begin with.
        """
        self._context = context
        self._llm_alias = llm_alias
        self._log_name = log_name

    @property
    def model(self) -> ChatModel:
        """The model of the role.

        Raises:
            ConfigError: None is set, or its settings make no sense.
        """
        return self._context.find_model(self._llm_alias)

    def ask(
        self,
        messages: Sequence[Message],
        post: PostEventProxy,
        *,
        schema: JsonSchema | None = None,
        max_tokens: int | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> ModelReply:
        """Return the model's reply, and show in the post what it thinks meanwhile.

        Args:
            max_tokens: Room for the reply, if it is to be less than the configured one.
            on_text: Called with each piece of the reply as it arrives.

        Raises:
            RoundCancelledError: The round was stopped.
            ModelError: There was no reply, and asking again would not help.
        """
        model = self.model
        messages = [self._masked(message) for message in messages]
        self._write_prompt_log(messages, post)
        post.update_status(f"waiting for {model.name}")
        partial = _PartialReply(post, on_text)
        stream = model.stream(messages, schema=schema, max_tokens=max_tokens)
        place = TracedPost(
            session_id=self._context.session_id,
            round_id=post.round_id,
            post_id=post.post.id,
            role=post.post.send_from,
        )
        with (
            self._context.cancellation.stopping(lambda _kill: stream.cancel()),
            self._context.traces.model_call(
                place, self._llm_alias, messages, max_tokens
            ) as tell_tracer,
        ):
            try:
                with stream:
                    for event in stream:
                        partial.receive(event)
                        if partial.is_runaway:
                            break  # which stops the provider
            except ReplyCancelledError as error:
                raise RoundCancelledError("Cancelled while the model was replying.") from error
            except ReplyInterruptedError as error:
                if not partial.text:
                    raise
                _logger.warning("The model's reply is not whole: %s", error)
                partial.problem = f"The reply broke off: {error}"
            finally:
                tell_tracer(partial.finished, partial.text)
                if partial.has_begun:  # what was refused has cost nothing
                    usage = partial.finished.usage if partial.finished else None
                    self._context.usage.add(usage, messages, partial.text)
        usage_so_far = self._context.usage.describe()
        post.update_status(usage_so_far)
        _logger.info("%s replied (%s)", model.name, usage_so_far)
        return partial.reply()

    def _masked(self, message: Message) -> Message:
        """Mask what a project's files say; what persons and models say to each other stays.

        What code wrote was masked when it came.
        """
        if message.role != "system":
            return message
        return replace(message, content=self._context.masked(message.content))

    def _write_prompt_log(self, messages: Sequence[Message], post: PostEventProxy) -> None:
        name = f"{self._log_name}_prompt_log_{post.round_id}_{post.post.id}.json"
        content = [{"role": message.role, "content": message.content} for message in messages]
        try:
            text = json.dumps(content, ensure_ascii=False, indent=1)
            path = self._context.session_dir / name
            write_private(path, text)
        except OSError as error:
            _logger.warning("The messages to the model cannot be kept in a file: %s", error)


class _PartialReply:
    """The part of a reply that has arrived."""

    def __init__(self, post: PostEventProxy, on_text: Callable[[str], None] | None) -> None:
        self._post = post
        self._on_text = on_text
        self._pieces: list[str] = []
        self._joiner = SurrogateJoiner()
        self._thinking_id: str | None = None
        self._detector = RunawayDetector()
        self.finished: Finished | None = None
        self.problem = ""

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def has_begun(self) -> bool:
        return self._detector.has_begun or self.finished is not None

    @property
    def is_runaway(self) -> bool:
        return self._detector.is_runaway

    def receive(self, event: ModelEvent) -> None:
        if isinstance(event, TextDelta | ThinkingDelta):
            self._detector.feed(event.text)
        match event:
            case TextDelta():
                self._end_thinking()
                if not self._pieces:
                    self._post.update_status("reading the model's reply")
                self._add(self._joiner.feed(event.text))
            case ThinkingDelta():
                self._think(self._joiner.feed(event.text), is_end=False)
            case RetryScheduled():
                # What matters first: a status line is cut where the screen ends.
                self._post.update_status(
                    f"asking again in {event.wait_seconds:.0f} s: {event.reason}"
                )
            case PromptRead():
                percent = 100 * event.read_tokens // max(1, event.total_tokens)
                self._post.update_status(f"the model reads what it was told: {percent} %")
            case Finished():
                self._end_thinking()
                self._add(self._joiner.close())
                self.finished = event
                for notice in event.notices:
                    _logger.warning("The model's provider: %s", notice)

    def reply(self) -> ModelReply:
        if self.is_runaway:
            return ModelReply(self.text, "length", "The reply did not end. Be much shorter.")
        if self.problem or self.finished is None:
            return ModelReply(self.text, "broken", self.problem or "The reply has no end.")
        problems: dict[FinishReason, str] = {
            "length": "The reply was cut off at the limit of llm.max_tokens. Be much shorter.",
            "content_filter": "The provider withheld the rest of the reply.",
        }
        reason = self.finished.reason
        return ModelReply(self.text, reason, problems.get(reason, ""))

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            if self._on_text is not None:
                self._on_text(text)

    def _think(self, text: str, *, is_end: bool) -> None:
        attachment = self._post.update_attachment(
            text, AttachmentType.thought, MODEL_THINKING, id=self._thinking_id, is_end=is_end
        )
        self._thinking_id = attachment.id

    def _end_thinking(self) -> None:
        if self._thinking_id is not None:
            self._think(self._joiner.close(), is_end=True)
            self._thinking_id = None


class RunawayDetector:
    """Notice a reply that will never end, or that only repeats itself.

    Providers end replies at `max_tokens`; those that do not, and models on one's own
    machine, can go on for hours.
    """

    def __init__(self) -> None:
        self._chars = 0
        self._blank_chars = 0
        self._stretch: list[str] = []
        self._stretch_chars = 0
        self._is_repeating = False

    @property
    def has_begun(self) -> bool:
        """Whether anything has come."""
        return self._chars > 0

    @property
    def is_runaway(self) -> bool:
        """Whether it is time to stop."""
        return self._chars > MAX_CHARS or self._blank_chars > MAX_BLANK_CHARS or self._is_repeating

    def feed(self, text: str) -> None:
        """Take the next piece."""
        self._chars += len(text)
        blank = len(text) - len(text.rstrip())
        self._blank_chars = blank + (self._blank_chars if blank == len(text) else 0)
        self._stretch.append(text)
        self._stretch_chars += len(text)
        if self._stretch_chars >= MAX_REPEATED_CHARS:
            self._is_repeating = _repeats_itself("".join(self._stretch))
            self._stretch, self._stretch_chars = [], 0


class SurrogateJoiner:
    """Join surrogate pairs that were cut in two between pieces of a text.

    JSON can carry one half of a pair at a time, and some servers cut a reply there. A
    half without its other one cannot be stored or sent: it becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Return the next piece; the first half of a pair waits for the second."""
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _mended(text)

    def close(self) -> str:
        """Return U+FFFD for a half that still waits; the text has ended."""
        text, self._half = self._half, ""
        return _mended(text)


def _repeats_itself(stretch: str) -> bool:
    period = (stretch + stretch[:MAX_PERIOD]).find(stretch[:MAX_PERIOD], 1)
    if not 0 < period <= MAX_PERIOD:
        return False
    return stretch[period:] == stretch[:-period]


def _mended(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
