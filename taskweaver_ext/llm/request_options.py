"""Options that an endpoint refuses are left out of later requests, or replaced.

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
class OptionFallback:
    """What to send instead when the endpoint refuses an option."""

    mentions: tuple[str, ...]
    """The refusal is about this option when its text contains one of these."""
    concerns: Callable[[RequestBody], bool]
    """Whether the request carries the option at all."""
    apply: Callable[[RequestBody], RequestBody]
    """Return the request without it, or with another in its place."""
    notice: str


def without_option(option: str, *mentions: str) -> OptionFallback:
    """Return the fallback that sends requests without the option."""
    return OptionFallback(
        mentions=(option, *mentions),
        concerns=lambda body: option in body,
        apply=lambda body: {name: value for name, value in body.items() if name != option},
        notice=f"the endpoint does not accept {option}; it was left out",
    )


class RequestOptions:
    """Apply to each request what earlier refusals have taught.

    Threads:
        Shared by all streams of a model; `_lock` guards `_applied`.
    """

    def __init__(self, fallbacks: tuple[OptionFallback, ...]) -> None:
        self._fallbacks = fallbacks
        self._lock = threading.Lock()
        self._applied: list[OptionFallback] = []

    def adapt(self, body: Mapping[str, Any]) -> tuple[RequestBody, tuple[str, ...]]:
        """Return the request as this endpoint accepts it, and notices of what is missing."""
        adapted = dict(body)
        notices: list[str] = []
        with self._lock:
            applied = tuple(self._applied)
        for fallback in applied:
            if fallback.concerns(adapted):
                adapted = fallback.apply(adapted)
                notices.append(fallback.notice)
        return adapted, tuple(notices)

    def learn(self, refusal: str, body: Mapping[str, Any]) -> bool:
        """Take note of a refusal; return whether asking again may now succeed."""
        text = refusal.lower()
        for fallback in self._fallbacks:
            if fallback.concerns(dict(body)) and any(word in text for word in fallback.mentions):
                with self._lock:
                    if fallback not in self._applied:
                        self._applied.append(fallback)
                return True
        return False
