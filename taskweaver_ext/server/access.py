"""Who may talk to the server: the right name, the right origin, the right token.

A page of another site that a person has open must not act for them: it can make their browser send
requests here, also by a name of its own that it lets point to this machine (DNS rebinding). So a
request is refused whose `Host` is not one of ours, or whose `Origin` is not the page that we serve.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from taskweaver_ext.server.failures import RefusedError, answer_to

OPEN_TO_ALL = ("/api/v1/health",)
"""What needs no token: it says nothing."""
_OWN_SITES = ("same-origin", "none")

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
    " font-src 'self'; media-src 'self' data: blob:; connect-src 'self'; frame-src 'self';"
    " manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
"""Go with every answer that has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """What a request must bring."""

    token: str = field(repr=False)
    """Empty: none is needed."""
    host: str
    """The address that the server listens at."""
    port: int
    allowed_hosts: tuple[str, ...] = ()
    """Other names of this machine."""
    is_secure: bool = False
    """Whether clients come by TLS."""

    @property
    def cookie_name(self) -> str:
        """Of its own for each server of this machine: cookies know no ports."""
        return f"taskweaver_{self.port}"

    @property
    def cookie_value(self) -> str:
        """Proves that the token was known once, without being it."""
        return hmac.new(self.token.encode(), b"cookie", hashlib.sha256).hexdigest()

    def problem_with(self, headers: Headers, path: str) -> RefusedError | None:
        """Say why a request is refused; None: it is welcome."""
        host = headers.get("host", "")
        if not self._is_our_name(_name_in(host)):
            return RefusedError(
                403,
                "wrong_host",
                f"This server is not called {host[:100]!r}. Use the address that it printed, or"
                " add the name to server.allowed_hosts.",
            )
        origin = headers.get("origin")
        if origin is not None and not _is_same(origin, host):
            return RefusedError(
                403, "wrong_origin", f"A page of {origin[:100]!r} cannot use this server."
            )
        if path in OPEN_TO_ALL or not self.token or self._has_token(headers):
            return None
        return RefusedError(
            401,
            "no_token",
            "This needs the token of the server. Open the address that it printed when it started,"
            " or send the header `Authorization: Bearer TOKEN`.",
        )

    def is_token(self, text: str) -> bool:
        """Whether it is the token; takes as long for every text."""
        return hmac.compare_digest(text.encode(), self.token.encode())

    def _has_token(self, headers: Headers) -> bool:
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.is_token(value.strip())
        # A browser sends the cookie by itself, so it must also say that our page has asked.
        if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
            return False
        given = _cookie(headers.get("cookie", ""), self.cookie_name)
        return hmac.compare_digest(given.encode(), self.cookie_value.encode())

    def _is_our_name(self, name: str) -> bool:
        # No other site can own an address, only names.
        own = {"localhost", self.host.lower(), *map(str.lower, self.allowed_hosts)}
        if not is_loopback(self.host):
            own |= _names_of_this_machine()
        return name.lower() in own or _is_address(name)


class AccessGate:
    """Lets requests through that follow the rules, and gives the cookie for the token."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        problem = self._rules.problem_with(headers, scope["path"])
        if scope["type"] == "websocket":
            if problem is not None:
                await WebSocket(scope, receive, send).send_denial_response(answer_to(problem))
                return
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        response = self._answer(scope, problem)
        await (response or self._app)(scope, receive, send)

    def _answer(self, scope: Scope, problem: RefusedError | None) -> Response | None:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        is_page = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
        if is_page and "token" in query and (problem is None or problem.code == "no_token"):
            if self._rules.token and not self._rules.is_token(query["token"]):
                return answer_to(RefusedError(401, "wrong_token", "That token is not the one."))
            return self._entrance(query)
        if is_page and problem is not None:  # a person reads it
            return PlainTextResponse(f"{problem}\n", problem.status)
        return None if problem is None else answer_to(problem)

    def _entrance(self, query: Mapping[str, str]) -> Response:
        """Give the cookie, and an address without the token: it would stay in histories."""
        rest = urlencode({name: value for name, value in query.items() if name != "token"})
        response = RedirectResponse(f"/?{rest}" if rest else "/", 303)
        response.headers["cache-control"] = "no-store"
        rules = self._rules
        if rules.token:
            response.set_cookie(
                rules.cookie_name,
                rules.cookie_value,
                httponly=True,
                samesite="strict",
                secure=rules.is_secure,
                path="/",
            )
        return response


def make_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            given: Iterable[tuple[bytes, bytes]] = message.get("headers", ())  # type: ignore[assignment]  # ASGI
            names = {name.lower() for name, _ in given}
            added = [
                (name.encode(), value.encode())
                for name, value in _HEADERS.items()
                if name.encode() not in names
            ]
            message = {**message, "headers": [*given, *added]}
        await send(message)

    return send_with_headers  # type: ignore[return-value]  # a message is any mapping


def _name_in(host: str) -> str:
    """Return a host without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_same(origin: str, host: str) -> bool:
    """Whether a page from there is one that we serve."""
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.lower() == host.lower() != ""


@functools.cache
def _names_of_this_machine() -> frozenset[str]:
    """Asked for once: a name service may take seconds, for which all clients would wait."""
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found else ""
