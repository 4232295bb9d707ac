"""What other threads have to tell the one that owns the terminal."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from taskweaver_ext.approval import ApprovalRequest
from taskweaver_ext.events.emitter import SessionEventEmitter
from taskweaver_ext.events.extras import QuestionId
from taskweaver_ext.events.types import SessionEventHandler, TaskWeaverEvent

StopStage: TypeAlias = Literal["stopping", "killing"]

MAX_WAITING_CHARS = 4 << 20
"""A thread that has more to tell waits until a slow terminal has caught up."""
_EVENT_CHARS = 1024
"""What an event counts beside its text: showing a thousand short ones takes a while, too."""
_LOOK_AGAIN_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class Question:
    """Something only the person at the terminal can answer."""

    prompt: str
    is_secret: bool = False
    default: str = ""
    language: str = ""
    """Set when the answer is code, which may have many lines."""
    is_from_code: bool = False
    """Asked by running code: moot once the code has ended."""
    question_id: QuestionId = ""
    """Of the session's question that it is about: moot once that is answered."""
    is_optional: bool = False
    """Whether Ctrl-C means no answer, instead of stopping what asks."""
    answer: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)
    """None: it was withdrawn, or the person pressed Ctrl-C."""


@dataclass(frozen=True, slots=True)
class ConsoleLine:
    """A line of the console's own."""

    text: str
    color: str = ""
    indent: int = 0
    """Where rows begin in which a long line goes on."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Ctrl-C was pressed while something ran."""

    stage: StopStage


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    """Ctrl-Z was pressed."""

    suspend: Callable[[], None]
    """Stops us; returns when we are to go on."""


@dataclass(frozen=True, slots=True, eq=False)
class TerminalWanted:
    """The execution thread wants the terminal used for something else than drawing."""

    use: Callable[[], None]
    """Called on the thread that owns the terminal, with nothing drawn meanwhile."""


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """The execution thread is done."""


Item: TypeAlias = (
    TaskWeaverEvent
    | ApprovalRequest
    | Question
    | ConsoleLine
    | StopRequested
    | SuspendRequested
    | TerminalWanted
    | WorkEnded
)


class Inbox(SessionEventHandler):
    """A queue of what is to be shown, bounded in size.

    Threads:
        Any thread puts, the one that owns the terminal, which makes the inbox,
        receives. `_room` guards `_waiting_chars` and is never held while calling out.
    """

    def __init__(self) -> None:
        self.on_arrival: Callable[[], None] | None = None
        """Called on the thread that puts, while the owner does not wait in `receive`."""
        self._owner = threading.get_ident()
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._waiting_chars = 0
        self._is_closed = False

    def handle(self, event: TaskWeaverEvent) -> None:
        """Add an event of a session, once there is room for it."""
        may_wait = threading.get_ident() != self._owner  # the receiver would wait for itself
        with self._room:
            while may_wait and self._waiting_chars > MAX_WAITING_CHARS and not self._is_closed:
                self._room.wait(_LOOK_AGAIN_SECONDS)
            self._waiting_chars += len(event.msg) + _EVENT_CHARS
        self.put(event)

    def put(self, item: Item) -> None:
        """Add anything."""
        self._items.put(item)
        if (on_arrival := self.on_arrival) is not None:
            on_arrival()

    def receive(self, timeout: float | None) -> Item | None:
        """Wait for the next item; None when none came in time. With 0, do not wait."""
        try:
            item = self._items.get(block=timeout != 0, timeout=timeout or None)
        except queue.Empty:
            return None
        if isinstance(item, TaskWeaverEvent):
            with self._room:
                self._waiting_chars -= len(item.msg) + _EVENT_CHARS
                self._room.notify_all()
        return item

    def close(self) -> None:
        """Let the threads go on that wait for room."""
        with self._room:
            self._is_closed = True
            self._room.notify_all()


class InboxSubscription(SessionEventHandler):
    """Puts the events of a session into an inbox while a block lasts, and those between two blocks.

    What code writes after its end may come at any time.
    """

    def __init__(self, emitter: SessionEventEmitter, inbox: Inbox) -> None:
        self._emitter = emitter
        self._inbox = inbox
        self._last_seq = emitter.last_seq

    def open(self) -> AbstractContextManager[None]:
        """Subscribe for the length of a block; at its end every event so far is in the inbox."""
        return self._emitter.subscribe(self, after=self._last_seq)

    def handle(self, event: TaskWeaverEvent) -> None:
        """Pass an event on; called by one thread at a time, in order."""
        self._last_seq = max(self._last_seq, event.seq)
        self._inbox.handle(event)
