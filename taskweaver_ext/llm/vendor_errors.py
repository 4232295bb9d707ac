"""Say in our own words, and without the key, what a vendor's library or the network raised.

The SDKs agree on `status_code`, `body` and `response`; below them any error of
the HTTP library or the JSON decoder may come through. They are told apart by
attributes and class names, so that no SDK is imported to read an error.
"""

from __future__ import annotations

import email.utils
import html
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urljoin

from taskweaver_ext.errors import ModelError
from taskweaver_ext.llm.endpoint import Endpoint
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

LONGEST_QUOTE = 400
"""How many characters of a provider's own message are worth showing."""

LONGEST_READ = 20_000
"""How many characters of an answer are looked at."""

_PAGE = re.compile(r"\s*<(!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>([^<]+)", re.IGNORECASE)

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
_JUNK_ERRORS = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What SDKs and our readers raise for data that is no event."""
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


def translate(error: Exception, endpoint: Endpoint, *, has_begun: bool) -> ModelError:
    """Return the error of ours that says the same; raise it `from None`.

    Args:
        has_begun: Whether a piece of the reply had already come.
    """
    for link in _chain(error):  # SDKs wrap what was raised while an answer was read
        if isinstance(link, ModelError):
            return link
    status = _status(error)
    if status is not None:
        return _refusal(error, status, endpoint)
    return _network_failure(error, endpoint, has_begun=has_begun)


def provider_message(error: Exception, endpoint: Endpoint) -> str:
    """Return what the provider itself said, on one line, shortened and without secrets."""
    said = _field(error, "message")
    if isinstance(said, str) and said:
        return quoted(said, endpoint)
    body = getattr(getattr(error, "response", None), "text", "")
    return quoted(body if isinstance(body, str) and body.strip() else str(error), endpoint)


def quoted(text: str, endpoint: Endpoint) -> str:
    """Return the gist of an answer, or a page's title: on one line, shortened, without secrets."""
    text = text[:LONGEST_READ]
    if _PAGE.match(text):
        title = _TITLE.search(text)
        text = f"a web page, {html.unescape(title[1]).strip()!r}" if title else "a web page"
    text = "".join(sign if sign.isprintable() else " " for sign in endpoint.mask(text))
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


def not_a_stream(response: Any, body: str, endpoint: Endpoint) -> ModelError:  # noqa: ANN401
    """Return what to raise for an answer of status 200 that is no stream of events."""
    said = _message_in(body) or body
    return RequestRefusedError(
        f"{endpoint.place} answered with something else than a stream of events (HTTP"
        f" {response.status_code}: {quoted(said, endpoint) or 'nothing'}). Check that llm.api_base"
        " is the address of an API, and what stands in between, such as a proxy or a login page."
    )


def is_bad_request(error: Exception) -> bool:
    """Return whether the provider found fault with the request itself."""
    return _status(error) in (400, 422)


def is_context_too_long(error: Exception) -> bool:
    """Return whether the provider says that the messages are too long for the model."""
    text = _everything_said(error)
    return _status(error) == 413 or any(phrase in text for phrase in _CONTEXT_PHRASES)


def _refusal(error: Exception, status: int, endpoint: Endpoint) -> ModelError:
    said = f"(HTTP {status}: {provider_message(error, endpoint)})"
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
    if status < 400:
        return RequestRefusedError(
            f"{place} sent us elsewhere, {_destination(error, endpoint)} (HTTP {status}). Keys are"
            " not carried along: set llm.api_base to the right address, or log in to the network."
        )
    if status in (401, 403):
        return WrongKeyError(f"{place} does not accept the key {said}. Check llm.api_key.")
    if status == 404:
        return UnknownModelError(
            f"{place} does not know the model {model!r} {said}. Check llm.model and llm.api_base."
        )
    if status in (408, 409, 425, 429) or status >= 500:
        wait_seconds = _retry_after_seconds(error)
        when = "later" if not wait_seconds else f"in {math.ceil(wait_seconds)} s"
        return ModelOverloadedError(
            f"{place} is overloaded or in trouble {said}. Try again {when}.",
            retry_after_seconds=wait_seconds,
        )
    return RequestRefusedError(f"{place} refused the request {said}. Check the llm.* settings.")


def _network_failure(error: Exception, endpoint: Endpoint, *, has_begun: bool) -> ModelError:
    names = {type(link).__name__ for link in _chain(error)}
    reason = quoted(str(_root(error)), endpoint) or type(_root(error)).__name__
    if names & _NO_CONNECTION_ERRORS:
        return ModelUnreachableError(
            f"Cannot connect to {endpoint.place} ({reason}). Check the network and llm.api_base."
        )
    if "ReadTimeout" in names:
        return ModelTimeoutError(f"{endpoint.place} fell silent. Ask again.")
    if isinstance(error, _JUNK_ERRORS):
        return BrokenStreamError(
            f"{endpoint.place} sent something that is no event of a reply. Ask again; if it goes "
            "on, check that llm.api_base speaks the protocol of llm.api_type."
        )
    if has_begun or _field(error, "message"):
        said = provider_message(error, endpoint)
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
    return body if isinstance(body, str) else None  # some servers say it in one word


def _message_in(body: str) -> str:
    """Return the error message in a JSON body, where all vendors place it; empty without one."""
    try:
        error = json.loads(body).get("error")
        return str(error["message"] if isinstance(error, dict) else error or "")
    except (ValueError, AttributeError, KeyError):
        return ""


def _destination(error: Exception, endpoint: Endpoint) -> str:
    """Return the address that a redirect names, without what may be secret in it."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        location = urljoin(endpoint.address, str(headers.get("location") or ""))
        place = Endpoint.at(location, model="", api_key=endpoint.api_key).place
    except ValueError:
        return "to no address"
    return f"to {quoted(place, endpoint)}"


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
