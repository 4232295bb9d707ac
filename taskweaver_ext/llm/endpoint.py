"""Where a provider listens: an address to show, and beside it key and password, which are not."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from taskweaver_ext.errors import ConfigError
from taskweaver_ext.llm.secret import Secret

_REQUEST_PATHS = ("/chat/completions", "/completions", "/responses", "/messages")
"""What the SDKs append themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model, the address of its provider, and what lets us in."""

    model: str
    address: str
    """Without user and password, so that no library logs them."""
    api_key: Secret
    user: str = ""
    password: Secret = Secret()

    @classmethod
    def at(cls, api_base: str, *, model: str, api_key: Secret) -> Endpoint:
        """Take an address apart; user and password may stand in front of the host."""
        parts = urlsplit(api_base)
        credentials, _, host = parts.netloc.rpartition("@")
        user, _, password = credentials.partition(":")
        return cls(
            model=model,
            address=parts._replace(netloc=host).geturl(),
            api_key=api_key,
            user=unquote(user),
            password=Secret(unquote(password)),
        )

    @property
    def place(self) -> str:
        """Return the address without a query, which may hold secrets."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/") or "the provider"

    def mask(self, text: str) -> str:
        """Return the text without key and password, also as they are spelled in a header."""
        pair = f"{self.user}:{self.password.reveal()}"
        header = Secret(base64.b64encode(pair.encode()).decode() if self.password else "")
        return header.mask(self.password.mask(self.api_key.mask(text)))


def check_address(api_base: str) -> SplitResult:
    """Return the parts of `llm.api_base`.

    Raises:
        ConfigError: It cannot be an address of an API; the message does not quote it, since it
            may hold a password.
    """
    try:
        parts = urlsplit(api_base)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        raise ConfigError(f"llm.api_base is no address: {_first_words(error)}.") from None
    if not is_whole:
        raise ConfigError("llm.api_base must be an address that begins with http:// or https://.")
    if not api_base.isprintable() or " " in api_base:
        raise ConfigError("llm.api_base holds a space or a line break. Copy it again.")
    if parts.query or parts.fragment:
        raise ConfigError(
            "llm.api_base must end before the question mark or #: nothing could be added to it."
            " A version goes into llm.api_version, a key into llm.api_key."
        )
    for path in _REQUEST_PATHS:
        if parts.path.endswith(path):
            raise ConfigError(f"llm.api_base must end before {path}, which is added to it.")
    return parts


def _first_words(error: ValueError) -> str:
    """Say what is wrong without the value, which libraries quote at the end."""
    words = str(error).partition(":")[0].partition("'")[0].strip()
    return words or "its host is neither a name nor a number"
