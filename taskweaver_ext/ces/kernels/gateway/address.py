"""Where a gateway is, as people write it down, and what may be shown of that."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qs, urlsplit

from taskweaver_ext.errors import ConfigError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PAGES = ("/lab", "/tree", "/notebooks")
"""Where Jupyter sends browsers; the address that it prints ends with one of them."""

_HEADER_VALUE = re.compile(r"[\x21-\x7e]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddress:
    """The address of a gateway, without secrets: it may be shown."""

    url: str
    """Without a slash at its end; what the gateway offers begins there."""
    is_encrypted: bool
    is_on_this_machine: bool
    token: str = field(repr=False)
    """What the address itself said about being let in, as Jupyter prints it."""

    @property
    def websocket_url(self) -> str:
        """The same place for websockets."""
        return self.url.replace("http", "ws", 1)


def read_address(text: str) -> GatewayAddress:
    """Read `http://host:8888`, with a prefix if there is one, or with `?token=` as Jupyter does it.

    Raises:
        ConfigError: It is not the address of a gateway; the message shows no secrets.
    """
    text = text.strip()
    shown = _without_secrets(text)
    try:
        parts = urlsplit(text)
        has_port = parts.port != 0
    except ValueError:
        raise _no_address(shown) from None  # its words may hold a password
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise _no_address(shown)
    if "@" in parts.netloc:
        raise ConfigError(
            f"The gateway's address {shown} has a name or a password in it, which gateways do not"
            " take. Leave them out, and set TASKWEAVER_GATEWAY_TOKEN to its token."
        )
    token = _token_in(parts, shown)
    path = parts.path.rstrip("/")
    if token:
        path = path.removesuffix(next((page for page in _PAGES if path.endswith(page)), ""))
    return GatewayAddress(
        url=f"{parts.scheme}://{parts.netloc.lower()}{path.rstrip('/')}",
        is_encrypted=parts.scheme == "https",
        is_on_this_machine=parts.hostname in _LOOPBACK,
        token=token,
    )


def check_token(token: str) -> str:
    """The token, without spaces around it; raises ConfigError for one that cannot be sent."""
    token = token.strip()
    if not _HEADER_VALUE.fullmatch(token):
        raise ConfigError(
            "The gateway's token has spaces, line breaks or letters that no request can carry."
            " Check TASKWEAVER_GATEWAY_TOKEN."
        )
    return token


def _token_in(parts: SplitResult, shown: str) -> str:
    query = parse_qs(parts.query, keep_blank_values=True)
    if parts.fragment or query.keys() - {"token"}:
        raise ConfigError(
            f"The gateway's address {shown} goes on behind its path. Leave that out; only"
            " ?token=... may follow, as Jupyter prints it."
        )
    return query.get("token", [""])[0]


def _without_secrets(text: str) -> str:
    """What may be shown of an address that may be wrong in any way."""
    if "@" in text:
        scheme, found, _ = text.partition("//")
        return f"{scheme if found else ''}{found}..."
    return re.sub(r"[?#].*", "...", text, flags=re.DOTALL)


def _no_address(shown: str) -> ConfigError:
    return ConfigError(
        f"{shown!r} is not the address of a gateway: it begins with http:// or https://, as in"
        " http://127.0.0.1:8888 (TASKWEAVER_GATEWAY_URL)."
    )
