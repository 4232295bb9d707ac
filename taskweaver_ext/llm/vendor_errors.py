"""Say in our own words, and without the key, what a vendor's library or the network raised.

The SDKs agree on `status_code`, `body` and `response`; below them any error of
the HTTP library or the JSON decoder may come through. They are told apart by
attributes and class names, so that no SDK is imported to read an error.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.model_errors import (
    BrokenStreamError,
    ContextTooLongError,
    ModelOverloadedError,
    ModelTimeoutError,
    ModelUnreachableError,
    RequestRefusedError,
    UnknownModelError,
    WrongKeyError,
)
from taskweaver_ext.llm.secret import Secret

LONGEST_QUOTE = 400
"""How many characters of a provider's own message are worth showing."""

_CONTEXT_PHRASES = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context window",
    "context size",
    "context limit",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "request_too_large",
)
_NO_CREDIT_PHRASES = (
    "insufficient_quota",
    "credit balance",
    "billing_error",
    "exceeded your current quota",
)
_NO_CONNECTION_ERRORS = frozenset(
    {"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol", "InvalidURL"}
)
_STATUS_OF_KIND = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    "overloaded": 529,
}
"""Errors inside a stream come with a kind in place of a status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Whom the error is about."""

    model: str
    address: str
    api_key: Secret

    @property
    def place(self) -> str:
        """Return the address without user, password or query, which may hold secrets."""
        parts = urlsplit(self.address)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}".rstrip("/") if host else "the provider"


def translate(error: Exception, endpoint: Endpoint, *, has_begun: bool) -> ModelError:
    """Return the error of ours that says the same; raise it `from None`.

    Args:
        has_begun: Whether a piece of the reply had already come.
    """
    if isinstance(error, ModelError):
        return error
    status = _status(error)
    if status is not None:
        return _refusal(error, status, endpoint)
    return _network_failure(error, endpoint, has_begun=has_begun)


def provider_message(error: Exception, api_key: Secret) -> str:
    """Return what the provider itself said, on one line, shortened and without the key."""
    said = _field(error, "message")
    text = said if isinstance(said, str) and said else str(error)
    text = " ".join(api_key.mask(text).split())
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


def is_bad_request(error: Exception) -> bool:
    """Return whether the provider found fault with the request itself."""
    return _status(error) in (400, 422)


def is_context_too_long(error: Exception) -> bool:
    """Return whether the provider says that the messages are too long for the model."""
    text = _everything_said(error)
    return _status(error) == 413 or any(phrase in text for phrase in _CONTEXT_PHRASES)


def _refusal(error: Exception, status: int, endpoint: Endpoint) -> ModelError:
    said = f"(HTTP {status}: {provider_message(error, endpoint.api_key)})"
    place, model = endpoint.place, endpoint.model
    if status != 429 and is_context_too_long(error):
        return ContextTooLongError(
            f"The conversation is too long for {model} {said}. Shorten it or start a new one, "
            "or use a model with a larger context."
        )
    if any(phrase in _everything_said(error) for phrase in _NO_CREDIT_PHRASES):
        return RequestRefusedError(
            f"The account at {place} has no credit left {said}. Check its billing."
        )
    if status in (401, 403):
        return WrongKeyError(f"{place} does not accept the key {said}. Check llm.api_key.")
    if status == 404:
        return UnknownModelError(
            f"{place} does not know the model {model!r} {said}. Check llm.model and llm.api_base."
        )
    if status in (408, 409, 425, 429) or status >= 500:
        return ModelOverloadedError(
            f"{place} is overloaded or in trouble {said}. Try again later.",
            retry_after_seconds=_retry_after_seconds(error),
        )
    if status < 400:
        return RequestRefusedError(
            f"{place} sent us elsewhere {said}; keys are not carried along. "
            "Set llm.api_base to the address it names."
        )
    return RequestRefusedError(f"{place} refused the request {said}. Check the llm.* settings.")


def _network_failure(error: Exception, endpoint: Endpoint, *, has_begun: bool) -> ModelError:
    names = {type(link).__name__ for link in _chain(error)}
    reason = (
        endpoint.api_key.mask(" ".join(str(_root(error)).split())) or type(_root(error)).__name__
    )
    if names & _NO_CONNECTION_ERRORS:
        return ModelUnreachableError(
            f"Cannot connect to {endpoint.place} ({reason}). Check the network and llm.api_base."
        )
    if "ReadTimeout" in names:
        return ModelTimeoutError(f"{endpoint.place} fell silent. Ask again.")
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return BrokenStreamError(
            f"{endpoint.place} sent something that is no event of a reply. Ask again; if it goes "
            "on, check that llm.api_base speaks the protocol of llm.api_type."
        )
    if has_begun or _field(error, "message"):
        said = provider_message(error, endpoint.api_key)
        return BrokenStreamError(f"The reply from {endpoint.place} broke off ({said}). Ask again.")
    return ModelUnreachableError(
        f"{endpoint.place} hung up before it replied ({reason}). Check the network and "
        "llm.api_base."
    )


def _status(error: Exception) -> int | None:
    """Return the status the error amounts to, also for errors in the middle of a stream."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 300:
        return status
    for name in ("type", "code"):
        kind = _field(error, name)
        if isinstance(kind, str) and kind in _STATUS_OF_KIND:
            return _STATUS_OF_KIND[kind]
        if isinstance(kind, int) and 300 <= kind < 600:
            return kind
    return None


def _field(error: Exception, name: str) -> object:
    """Return a field of the error object in the body, which some SDKs have already unwrapped."""
    body = getattr(error, "body", None)
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
        body = body["error"]
    if isinstance(body, Mapping):
        return body.get(name)
    return None


def _everything_said(error: Exception) -> str:
    return f"{error} {getattr(error, 'body', None)}".lower()


def _retry_after_seconds(error: Exception) -> float | None:
    """Read when the provider wants to be asked again: seconds, milliseconds or a date."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        value = headers.get("retry-after") or ""
        if value.replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _root(error: BaseException) -> BaseException:
    return list(_chain(error))[-1]
