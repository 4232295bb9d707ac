"""Number the events of a session, keep the last ones, and tell all handlers in one order.

Two ways to listen. Push: a handler is called for each event. Pull: a reader asks for what comes
after the last event it knows, at its own pace, and holds nothing back; what is no longer kept
here comes from the journal, where the session has one.

Order. The dispatcher numbers events 1, 2, 3, ... under one lock. Handlers are called
without it, by one thread at a time: one that emits while no other is dispatching.
Every handler hears the events one after another, in the order of their numbers,
also when handlers emit themselves and when several threads do.

Bounds. The last 10,000 events are kept for replay, or fewer where their text is
more than 16 MiB in total. What a handler has still to hear is never forgotten:
while so much waits, `emit` waits for the thread that dispatches, at most 5 s (a
handler may itself be waiting for the thread that emits). Readers are not waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.history import EventHistory
from taskweaver_ext.events.types import SessionEventHandler, TaskWeaverEvent

MAX_KEPT_EVENTS = 10_000
MAX_KEPT_BYTES = 16 * 1024 * 1024
MAX_WAIT_SECONDS = 5.0
MAX_READ_BYTES = 1024 * 1024

Announce: TypeAlias = Callable[[TaskWeaverEvent], Sequence[TaskWeaverEvent]]
"""Returns what is to be told before an event. Called for every event, one at a time and in their
order, with a lock held: it is quick, calls nothing of the dispatcher, and does not raise."""

_logger = logging.getLogger(__name__)


class EventJournal(Protocol):
    """Keeps the events of a session for longer than its process lives.

    The dispatcher calls `append` for one event at a time, before any listener hears of it; a
    journal that cannot write says so by itself (it may emit an event) and raises nothing. `read` is
    for any thread.
    """

    @property
    def last_seq(self) -> int:
        """The number of the newest event that was there when the journal was opened."""

    def append(self, event: TaskWeaverEvent) -> None:
        """Write down an event."""

    def read(self, after: int, max_bytes: int) -> list[TaskWeaverEvent]:
        """Return events after number `after`, oldest first, of about so much text; may be none."""


@dataclass(slots=True, eq=False)
class _Subscription:
    """One handler and how far it has heard."""

    handler: SessionEventHandler
    heard: int
    """The number of the last event it was called with."""
    is_leaving: bool = False
    """Whether the thread that leaves calls it, instead of the one that dispatches."""
    has_failed: bool = False

    def hear(self, event: TaskWeaverEvent) -> None:
        try:
            self.handler.handle(event)
        except Exception:  # whatever it is, the others still hear
            if not self.has_failed:
                _logger.exception(
                    "The handler %r failed on event %d (%s). It will hear the next events; "
                    "its further failures are not logged.",
                    self.handler,
                    event.seq,
                    event.t.value,
                )
            self.has_failed = True


class EventDispatcher:
    """Number the events of a session, keep the last ones, and tell every handler.

    Threads:
        Everything is safe from any thread. `_changed` guards all state and is never
        held while a handler runs; `_dispatcher` is the thread that calls handlers.
        A handler that leaves is called by the thread that leaves, and by no other.
        `_history` and each subscription's `heard` are the whole truth about what is to
        be done, so that dispatching can be interrupted anywhere (Ctrl-C) and taken
        up by the next caller.
    """

    def __init__(
        self,
        journal: EventJournal | None = None,
        *,
        announce: Announce = lambda _event: (),
        max_kept_events: int = MAX_KEPT_EVENTS,
        max_kept_bytes: int = MAX_KEPT_BYTES,
    ) -> None:
        self._announce = announce
        self._changed = threading.Condition()
        self._journal = journal
        self._is_writing = False
        self._said_by_journal: deque[TaskWeaverEvent] = deque()
        """Events that the journal emits while it writes another."""
        self.began_after = journal.last_seq if journal else 0
        """The number of the last event of earlier processes; those of this one come after it."""
        self._history = EventHistory(max_kept_events, max_kept_bytes, last_seq=self.began_after)
        self._subscriptions: list[_Subscription] = []
        self._dispatcher: int | None = None
        self._called: _Subscription | None = None
        self._called_by_leaving: dict[int, SessionEventHandler] = {}
        """The handlers that hear their rest, by the thread that leaves."""

    @property
    def last_seq(self) -> int:
        """The number of the newest event, 0 before the first: what to pass as `after` later."""
        with self._changed:
            return self._history.last_seq

    @property
    def is_calling_here(self) -> bool:
        """Whether this thread is inside the call of a handler."""
        me = threading.get_ident()
        return self._dispatcher == me or me in self._called_by_leaving

    def emit(self, event: TaskWeaverEvent) -> None:
        """Number `event` and call the handlers, here or on the thread that already does so."""
        with self._changed:
            if self._is_writing:  # the journal says something: after what it is writing
                self._said_by_journal.append(event)
                return
            self._wait_for_room()
            for one in (*self._announce(event), event):
                self._keep(one)
            while self._said_by_journal:
                self._keep(self._said_by_journal.popleft())
            self._forget_heard()
            self._changed.notify_all()
        self._dispatch()

    def _keep(self, event: TaskWeaverEvent) -> None:
        """Number an event and write it down, before any listener can have it."""
        event = self._history.numbered(event)
        try:
            if self._journal is not None:
                self._is_writing = True
                self._journal.append(event)
        finally:  # Ctrl-C: its number may be in the journal by now, and is not given again
            self._is_writing = False
            self._history.append(event)

    def read(self, after: int, max_bytes: int = MAX_READ_BYTES) -> list[TaskWeaverEvent]:
        """Return the next events after number `after` at once, none if there are none yet.

        At least one comes if there is any, then as many as have about `max_bytes` of text. If
        some are kept nowhere, a `session_events_missed` event comes first and says which.

        Raises:
            SessionError: there has been no event with the number `after`.
        """
        with self._changed:
            self._require_known(after)
            first_kept = self._history.first_kept_seq
            if after + 1 >= first_kept or self._journal is None:
                return self._read_kept(after, max_bytes)
        written = self._journal.read(after, max_bytes)
        # What is kept here may be missing there, where a disk was full.
        if events := [event for event in written if event.seq < first_kept]:
            return events
        with self._changed:
            return self._read_kept(after, max_bytes)

    def events(self, after: int = 0) -> Iterator[TaskWeaverEvent]:
        """Yield the events after number `after` that there are when it is called, oldest first.

        Raises:
            SessionError: there has been no event with the number `after`.
        """
        with self._changed:
            last = self._history.last_seq
        while after < last and (piece := self.read(after)):
            yield from (event for event in piece if event.seq <= last)
            after = piece[-1].seq

    def wait(self, after: int, seconds: float | None) -> bool:
        """Sleep until there is an event after number `after`; say whether there is one.

        Raises:
            SessionError: there has been no event with the number `after`.
        """
        with self._changed:
            self._require_known(after)
            return self._changed.wait_for(lambda: self._history.last_seq > after, seconds)

    def _read_kept(self, after: int, max_bytes: int) -> list[TaskWeaverEvent]:
        if after + 1 < self._history.first_kept_seq:
            missed = self._history.event_after(after)
            return [missed, *self._history.events_after(missed.seq, max_bytes)]
        return self._history.events_after(after, max_bytes)

    def _require_known(self, after: int) -> None:
        last_seq = self._history.last_seq
        if not 0 <= after <= last_seq:
            raise SessionError(
                f"There is no event {after} to go on from; the newest is {last_seq}. "
                "Go on from 0 to have everything that is kept."
            )

    @contextmanager
    def subscribe(self, handler: SessionEventHandler, after: int | None = None) -> Iterator[None]:
        """Let `handler` hear events until the end of the block.

        It hears the kept events after number `after` first (None: only new ones),
        then the new ones, without gap or duplicate. If some of those asked for are
        no longer kept, a `session_events_missed` event comes first and says which.
        At the end of the block it has heard everything emitted before, called by the thread
        that leaves, which waits for no other handler; inside a handler's call it ends at once.

        Raises:
            SessionError: there has been no event with the number `after`.
        """
        subscription = self._join(handler, after)
        try:
            self._dispatch()
            yield
        finally:
            self._leave(subscription)

    def register(self, handler: SessionEventHandler) -> None:
        """Let `handler` hear new events until `unregister`; prefer `subscribe`."""
        self._join(handler, after=None)

    def unregister(self, handler: SessionEventHandler) -> None:
        """End what `register` began.

        Raises:
            SessionError: the handler is not registered.
        """
        with self._changed:
            matches = [one for one in self._subscriptions if one.handler is handler]
        if not matches:
            raise SessionError(f"The handler {handler!r} is not registered.")
        self._leave(matches[0])

    def handle_events_ctx(
        self, handler: SessionEventHandler | None = None
    ) -> AbstractContextManager[None]:
        """Subscribe `handler` to new events for a block, if there is one."""
        return nullcontext() if handler is None else self.subscribe(handler)

    def _join(self, handler: SessionEventHandler, after: int | None) -> _Subscription:
        with self._changed:
            if after is None:
                after = self._history.last_seq
            self._require_known(after)
            subscription = _Subscription(handler, heard=after)
            self._subscriptions.append(subscription)
        return subscription

    def _leave(self, subscription: _Subscription) -> None:
        """Unregister, once the handler has heard what was emitted before."""
        try:
            if not self.is_calling_here and not self._hear_the_rest(subscription):
                _logger.warning(
                    "The handler %r was unregistered before it had heard everything: it has not "
                    "returned for %s s.",
                    subscription.handler,
                    MAX_WAIT_SECONDS,
                )
        finally:
            with self._changed:
                if subscription in self._subscriptions:
                    self._subscriptions.remove(subscription)

    def _hear_the_rest(self, subscription: _Subscription) -> bool:
        """Call a handler here, whatever others are at; False where it hangs in another thread."""
        handler, me = subscription.handler, threading.get_ident()
        with self._changed:
            last_seq = self._history.last_seq
            subscription.is_leaving = True  # from now on the dispatching thread passes it over
            if not self._changed.wait_for(lambda: not self._is_called(handler), MAX_WAIT_SECONDS):
                return False
            self._called_by_leaving[me] = handler
        try:
            while subscription.heard < last_seq:
                with self._changed:
                    event = self._history.event_after(subscription.heard)
                    subscription.heard = event.seq
                subscription.hear(event)
        finally:
            with self._changed:
                del self._called_by_leaving[me]
                self._changed.notify_all()
            self._dispatch()  # the handler may be subscribed twice, and was passed over meanwhile
        return True

    def _is_called(self, handler: SessionEventHandler) -> bool:
        """Whether a thread is inside the handler's call."""
        is_dispatched = self._called is not None and self._called.handler is handler
        return is_dispatched or self._is_called_by_leaving(handler)

    def _is_called_by_leaving(self, handler: SessionEventHandler) -> bool:
        return any(one is handler for one in self._called_by_leaving.values())

    def _dispatch(self) -> None:
        """Call handlers until all have heard everything, unless a thread is doing so already."""
        me = threading.get_ident()
        if self._dispatcher == me:
            return  # a handler emitted: the loop that called it goes on with what is new
        try:
            with self._changed:
                if self._dispatcher is not None:
                    return
                self._dispatcher = me
            while (call := self._next_call()) is not None:
                subscription, event = call
                subscription.hear(event)
        finally:
            with self._changed:
                if self._dispatcher == me:  # interrupted; what is left is for the next caller
                    self._dispatcher = self._called = None
                self._changed.notify_all()

    def _next_call(self) -> tuple[_Subscription, TaskWeaverEvent] | None:
        """Choose the next call, for the handler that is furthest behind; None ends the turn."""
        with self._changed:
            self._called = None
            staying = (
                one
                for one in self._subscriptions
                if not one.is_leaving and not self._is_called_by_leaving(one.handler)
            )
            subscription = min(staying, key=lambda one: one.heard, default=None)
            if subscription is None or subscription.heard == self._history.last_seq:
                self._dispatcher = None
                return None
            event = self._history.event_after(subscription.heard)
            subscription.heard = event.seq
            self._called = subscription
            self._changed.notify_all()
            return subscription, event

    def _wait_for_room(self) -> None:
        """While handlers have too much to hear, wait for the thread that calls them."""
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        self._forget_heard()
        own_or_no_dispatcher = (None, threading.get_ident())
        while self._history.is_over_bounds and self._dispatcher not in own_or_no_dispatcher:
            if not self._changed.wait(deadline - time.monotonic()):
                return
            self._forget_heard()

    def _forget_heard(self) -> None:
        last_seq = self._history.last_seq
        heard_by_all = min((one.heard for one in self._subscriptions), default=last_seq)
        self._history.forget(up_to_seq=heard_by_all)
