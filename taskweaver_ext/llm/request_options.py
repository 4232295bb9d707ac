"""What an endpoint does not accept, learned from its refusals and left out from then on.

"Compatible" endpoints and new models differ in the options they take. A
refusal that names an option costs one more request, once in the life of a
model, and a notice; it never costs the reply.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

RequestBody: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Concession:
    """One thing to give up when the endpoint refuses it."""

    mentions: tuple[str, ...]
    """The refusal is about this option when its text contains one of these."""
    applies: Callable[[RequestBody], bool]
    """Whether the request carries the option at all."""
    concede: Callable[[RequestBody], RequestBody]
    """Return the request without it."""
    notice: str


def leave_out(option: str, *mentions: str) -> Concession:
    """Return the concession to send requests without the option."""
    return Concession(
        mentions=(option, *mentions),
        applies=lambda body: option in body,
        concede=lambda body: {name: value for name, value in body.items() if name != option},
        notice=f"the endpoint does not accept {option}; it was left out",
    )


class RequestOptions:
    """Apply to each request what earlier refusals have taught.

    Threads:
        Shared by all streams of a model; `_lock` guards `_conceded`.
    """

    def __init__(self, concessions: tuple[Concession, ...]) -> None:
        self._concessions = concessions
        self._lock = threading.Lock()
        self._conceded: list[Concession] = []

    def adapt(self, body: Mapping[str, Any]) -> tuple[RequestBody, tuple[str, ...]]:
        """Return the request as this endpoint accepts it, and notices of what is missing."""
        adapted = dict(body)
        notices: list[str] = []
        with self._lock:
            conceded = tuple(self._conceded)
        for concession in conceded:
            if concession.applies(adapted):
                adapted = concession.concede(adapted)
                notices.append(concession.notice)
        return adapted, tuple(notices)

    def learn(self, refusal: str, body: Mapping[str, Any]) -> bool:
        """Take note of a refusal; return whether asking again may now succeed."""
        text = refusal.lower()
        for concession in self._concessions:
            if concession.applies(dict(body)) and any(word in text for word in concession.mentions):
                with self._lock:
                    if concession not in self._conceded:
                        self._conceded.append(concession)
                return True
        return False
