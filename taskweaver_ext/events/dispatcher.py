"""Number the events of a session, keep the last ones, and tell all handlers in one order.

Order. The dispatcher numbers events 1, 2, 3, ... under one lock. Handlers are called
without it, by one thread at a time: one that emits while no other is dispatching.
Every handler hears the events one after another, in the order of their numbers,
also when handlers emit themselves and when several threads do.

Bounds. The last 10,000 events are kept for replay, or fewer where their text is
more than 16 MiB in total. What a handler has still to hear is never forgotten:
while so much waits, `emit` waits for the thread that dispatches, at most 5 s (a
handler may itself be waiting for the thread that emits).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from taskweaver_ext.errors import SessionError
from taskweaver_ext.events.history import EventHistory
from taskweaver_ext.events.types import SessionEventHandler, TaskWeaverEvent

MAX_KEPT_EVENTS = 10_000
MAX_KEPT_BYTES = 16 * 1024 * 1024
MAX_WAIT_SECONDS = 5.0

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Subscription:
    """One handler and how far it has heard."""

    handler: SessionEventHandler
    heard: int
    """The number of the last event it was called with."""
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
        `_history` and each subscription's `heard` are the whole truth about what is to
        be done, so that dispatching can be interrupted anywhere (Ctrl-C) and taken
        up by the next caller.
    """

    def __init__(
        self, *, max_kept_events: int = MAX_KEPT_EVENTS, max_kept_bytes: int = MAX_KEPT_BYTES
    ) -> None:
        self._changed = threading.Condition()
        self._history = EventHistory(max_kept_events, max_kept_bytes)
        self._subscriptions: list[_Subscription] = []
        self._dispatcher: int | None = None
        self._called: _Subscription | None = None

    @property
    def last_seq(self) -> int:
        """The number of the newest event, 0 before the first: what to pass as `after` later."""
        with self._changed:
            return self._history.last_seq

    @property
    def is_calling_here(self) -> bool:
        """Whether this thread is inside the call of a handler."""
        return self._dispatcher == threading.get_ident()

    def emit(self, event: TaskWeaverEvent) -> None:
        """Number `event` and call the handlers, here or on the thread that already does so."""
        with self._changed:
            self._wait_for_room()
            self._history.append(event)
            self._forget_heard()
        self._dispatch()

    @contextmanager
    def subscribe(self, handler: SessionEventHandler, after: int | None = None) -> Iterator[None]:
        """Let `handler` hear events until the end of the block.

        It hears the kept events after number `after` first (None: only new ones),
        then the new ones, without gap or duplicate. If some of those asked for are
        no longer kept, a `session_events_missed` event comes first and says which.
        At the end of the block it has heard everything emitted before, unless that
        takes other handlers more than 5 s; inside another handler's call it ends at once.

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
            last_seq = self._history.last_seq
            if after is not None and not 0 <= after <= last_seq:
                raise SessionError(
                    f"There is no event {after} to go on from; the newest is {last_seq}. "
                    "Subscribe with after=0 to hear everything that is kept."
                )
            subscription = _Subscription(handler, heard=last_seq if after is None else after)
            self._subscriptions.append(subscription)
        return subscription

    def _leave(self, subscription: _Subscription) -> None:
        """Unregister, once the handler has heard what was emitted before."""
        try:
            if not self.is_calling_here and not self._wait_until_heard(subscription):
                _logger.warning(
                    "The handler %r was unregistered before it had heard everything: events "
                    "could not be delivered for %s s.",
                    subscription.handler,
                    MAX_WAIT_SECONDS,
                )
        finally:
            with self._changed:
                if subscription in self._subscriptions:
                    self._subscriptions.remove(subscription)

    def _wait_until_heard(self, subscription: _Subscription) -> bool:
        last_seq = self.last_seq
        deadline = time.monotonic() + MAX_WAIT_SECONDS

        def has_heard() -> bool:
            return subscription.heard >= last_seq and self._called is not subscription

        while True:
            self._dispatch()
            with self._changed:
                if not self._changed.wait_for(
                    lambda: has_heard() or self._dispatcher is None, deadline - time.monotonic()
                ):
                    return False
                if has_heard():
                    return True

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
            subscription = min(self._subscriptions, key=lambda one: one.heard, default=None)
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
