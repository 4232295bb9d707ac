"""Completions are offered while a person types; Tab inserts them, and typing never waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Iterable

from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    Completion,
    get_common_complete_suffix,
)
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_PAUSE_SECONDS = 0.06
"""So long after a key nothing is looked for: the next one may follow at once."""


class OfferedCompletions(Completer):
    """Has another completer look on a thread, after a pause in the typing.

    The thread is not waited for: a prompt that has been answered does not stay for it.
    """

    def __init__(self, completer: Completer) -> None:
        self._completer = completer
        self._shown_by_tab: CompletionState | None = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Offer what the other completer finds."""
        return self._completer.get_completions(document, complete_event)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Offer what the other completer finds, as soon as it is there."""
        if complete_event.text_inserted:
            await asyncio.sleep(_PAUSE_SECONDS)
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Completion]] = loop.create_future()

        def look() -> None:
            completions = list(self._completer.get_completions(document, complete_event))
            with contextlib.suppress(RuntimeError):  # the prompt is gone
                loop.call_soon_threadsafe(_settle, found, completions)

        threading.Thread(target=look, name="taskweaver-completion", daemon=True).start()
        for completion in await found:
            yield completion

    def bind_tab(self, bindings: KeyBindings) -> None:
        """Let Tab insert what all that fits begins with, and then go from one to the next."""

        @bindings.add("tab")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            state = buffer.complete_state
            is_chosen_from = state is not None and state.complete_index is not None
            if state is not None and (is_chosen_from or state is self._shown_by_tab):
                buffer.complete_next()
            else:
                event.app.create_background_task(self._insert(buffer))

    async def _insert(self, buffer: Buffer) -> None:
        document = buffer.document
        buffer.complete_state = None  # what was offered unasked, or is being looked for
        event = CompleteEvent(completion_requested=True)
        found = [one async for one in self.get_completions_async(document, event)]
        if not found or buffer.document != document:
            return
        buffer.complete_state = None
        if common := get_common_complete_suffix(document, found):
            buffer.insert_text(common)
            found = [one.new_completion_from_position(len(common)) for one in found]
        elif len(found) == 1:
            buffer.apply_completion(found[0])
        if len(found) > 1:
            self._shown_by_tab = CompletionState(buffer.document, found)
            buffer.complete_state = self._shown_by_tab
            buffer.on_completions_changed.fire()


def _settle(future: asyncio.Future[list[Completion]], found: list[Completion]) -> None:
    if not future.done():
        future.set_result(found)
