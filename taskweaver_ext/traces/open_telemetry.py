"""Spans of OpenTelemetry, named as its conventions for generative AI say.

    invoke_agent taskweaver_ext     a round in which roles answer a message
      chat MODEL                    each call of a model
      execute_tool LANGUAGE         each run of code; what a person runs has no agent above it

This needs the extra `otel`, which is the API alone: where no SDK is set up, spans cost next to
nothing and go nowhere. What was said, and code, is in spans only where `tracing.contents` allows
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.conversation import Round
from taskweaver_ext.errors import RoundCancelledError
from taskweaver_ext.llm.chat_model import Finished, Message
from taskweaver_ext.text.truncation import shorten_middle
from taskweaver_ext.traces.traces import ModelIdentity, OnReply, OnResult, TracedPost

AGENT = "taskweaver_ext"
MAX_CONTENT_CHARACTERS = 100_000
"""Of one attribute: collectors refuse spans that are too large."""


class OpenTelemetryTraces:
    """Tell the SDK of the program, if it has one, what a session does."""

    def __init__(self, identify: Callable[[str], ModelIdentity], *, has_contents: bool) -> None:
        """Begin.

        Args:
            identify: Says which model an alias means.
            has_contents: Whether prompts, replies, code and its output are part of spans.
        """
        self._identify = identify
        self._has_contents = has_contents
        self._tracer = trace.get_tracer("taskweaver_ext", version("taskweaver_ext"))

    @contextmanager
    def round(self, session_id: str, chat_round: Round) -> Iterator[None]:
        """A round in which roles answer."""
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.conversation.id": session_id,
            "taskweaver.round.id": chat_round.id,
        }
        if self._has_contents:
            question = _message("user", chat_round.user_query)
            attributes["gen_ai.input.messages"] = _json([question])
        with self._span(f"invoke_agent {AGENT}", SpanKind.INTERNAL, attributes) as span:
            try:
                yield
            finally:
                self._end_round(span, chat_round)

    def _end_round(self, span: Span, chat_round: Round) -> None:
        span.set_attribute("taskweaver.round.state", chat_round.state)
        if chat_round.state == "failed":
            span.set_status(StatusCode.ERROR, chat_round.error)
        elif self._has_contents and chat_round.state == "finished" and chat_round.post_list:
            answer = _message("assistant", chat_round.post_list[-1].message)
            span.set_attribute("gen_ai.output.messages", _json([answer]))

    @contextmanager
    def model_call(
        self,
        place: TracedPost,
        llm_alias: str,
        messages: Sequence[Message],
        max_tokens: int | None,
    ) -> Iterator[OnReply]:
        """One reply of a model."""
        model = self._identify(llm_alias)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": model.provider,
            "gen_ai.request.model": model.model,
            **_ids_of(place),
        }
        if max_tokens is not None:
            attributes["gen_ai.request.max_tokens"] = max_tokens
        if self._has_contents:
            said = [_message(message.role, message.content) for message in messages]
            attributes["gen_ai.input.messages"] = _json(said)
        with self._span(f"chat {model.model}", SpanKind.CLIENT, attributes) as span:
            yield lambda finished, text: self._end_reply(span, finished, text)

    def _end_reply(self, span: Span, finished: Finished | None, text: str) -> None:
        reason = finished.reason if finished is not None else "error"
        span.set_attribute("gen_ai.response.finish_reasons", [reason])
        if finished is not None and finished.usage is not None:
            usage = finished.usage
            span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
        if self._has_contents:
            reply = {**_message("assistant", text), "finish_reason": reason}
            span.set_attribute("gen_ai.output.messages", _json([reply]))

    @contextmanager
    def execution(self, place: TracedPost, language: str, code: str) -> Iterator[OnResult]:
        """One run of code."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": language,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": place.post_id,
            **_ids_of(place),
        }
        if self._has_contents:
            attributes["gen_ai.tool.call.arguments"] = _json({"code": _bounded(code)})
        with self._span(f"execute_tool {language}", SpanKind.INTERNAL, attributes) as span:
            yield lambda result: self._end_execution(span, result)

    def _end_execution(self, span: Span, result: ExecutionResult) -> None:
        status = result.status
        span.set_attribute("taskweaver.execution.status", status.value)
        if status not in (ExecutionStatus.SUCCESS, ExecutionStatus.CANCELLED):
            span.set_attribute("error.type", _kind_of_error(result))
            span.set_status(StatusCode.ERROR, result.error if self._has_contents else None)
        if self._has_contents:
            output = {"stdout": "".join(result.stdout), "stderr": "".join(result.stderr)}
            shown = {name: _bounded(text) for name, text in output.items()}
            span.set_attribute("gen_ai.tool.call.result", _json({**shown, "value": result.output}))

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: dict[str, AttributeValue]
    ) -> Iterator[Span]:
        """A span that is over with the block, also after Ctrl-C; a wish to stop is no error."""
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _note_error(span, error)
                raise


def _note_error(span: Span, error: BaseException) -> None:
    is_stop = isinstance(error, RoundCancelledError | KeyboardInterrupt | GeneratorExit)
    span.set_attribute("error.type", "cancelled" if is_stop else type(error).__name__)
    if not is_stop:
        span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))


def _ids_of(place: TracedPost) -> dict[str, AttributeValue]:
    return {
        "gen_ai.conversation.id": place.session_id,
        "gen_ai.agent.name": place.role,
        "taskweaver.round.id": place.round_id,
        "taskweaver.post.id": place.post_id,
    }


def _kind_of_error(result: ExecutionResult) -> str:
    """Name the exception that ended the code, or how else it ended; never what it said."""
    if result.status is not ExecutionStatus.ERROR:
        return str(result.status.value)
    name = (result.error or "").strip().rpartition("\n")[2].partition(":")[0]
    return name if name.replace(".", "").isidentifier() else "error"


def _message(role: str, content: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": _bounded(content)}]}


def _bounded(text: str) -> str:
    return shorten_middle(text, MAX_CONTENT_CHARACTERS)


def _json(value: object) -> str:
    return json.dumps(value)
