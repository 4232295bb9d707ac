"""What in variables and settings is secret: by the name of a value, and by the value itself.

The same rules say which variables a child process does not see (`child_environment`), and which
values are masked where output leaves us (`text/redaction.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, unquote_plus

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|CONNECTION_STR|_DSN$|_PAT$|"
    r"DATABASE_URL|_AUTH$|^AUTH|PASSCODE|BEARER|WEBHOOK|(?:^|_|SSH)PASS$|(?:_|BIND|USER)PWD?$|"
    r"(?:^|_)CREDS?(?:_|$)|^BUNDLE_(?!BUILD__|LOCAL__|MIRROR__)\w+__",  # of a host, with its dots
    re.IGNORECASE,
)
_HARMLESS_NAME = re.compile(
    r"TOKENS|STOP_TOKEN|TOKENI[SZ]|KEYWORD|KEYBOARD|KEYMAP|MONKEY|PUBLIC_KEY|GPG_KEY|KEY_?ID"
    r"|GIT_CONFIG_KEY_\d",
    re.IGNORECASE,
)
"""Names whose values are no secrets, though an agent's code does not see them by itself."""

_AGENT = re.compile(
    "SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|ASKPASS|VSCODE_GIT_IPC", re.IGNORECASE
)
"""Doors to keys: a child must not have them, and there is nothing to hide in them."""

_FIELD = (
    r"(?:[\w.\- ]{0,40}(?:key|token|secret|passw(?:or)?d|pwd|passphrase|credentials?|signature)"
    r"|sig|auth|authorization|pass|cookie)"
)
_IN_URL = re.compile(r"//(?P<user>[^\s/?#@:,;]{0,256})(?::(?P<password>[^\s@]{1,1024}))?@")
_IN_ORACLE_URL = re.compile(r"jdbc:oracle:\w{1,9}:[^\s/@]{1,256}/(?P<password>[^\s@]{1,1024})@")
_USER_IN_URL = re.compile(r"//[^/@\s]+@")
"""A token can stand where a user does."""
_IN_FIELD = re.compile(
    rf"(?:^|[^\w.-]){_FIELD}[\"']?\s{{0,9}}[=:]\s{{0,9}}"
    r"(?:(?:bearer|basic|token)\s{1,9})?[\"']?(?P<value>[^&;,\s\"'}]{1,4096})",
    re.IGNORECASE,
)
_BY_SHAPE = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|rk|pk)[-_][A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|A(?:KI|SI)A[0-9A-Z]{16}|AIza[\w-]{30,}"
    r"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]*"
    r"|pypi-[\w-]{16,}|dckr_pat_[\w-]{16,}|ya29\.[\w-]{20,}|\d{8,10}:AA[\w-]{30,}"
    r"|hooks\.slack\.com/services/[\w/]{10,}|discord(?:app)?\.com/api/webhooks/\d+/[\w-]{10,})"
)
_PRIVATE_KEY = "PRIVATE KEY-----"

_WORDS = frozenset(
    """
    true false none null yes no on off default enabled disabled auto
    ollama lm-studio not-needed not_needed no-key no_key unused dummy changeme placeholder local
    localhost example testing secret password postgres admin administrator username anonymous
    """.split()
)
"""Switches, and what stands where a value is asked for and none is needed."""

_SHORTEST_TOKEN = 16

SHORTEST = 6
"""Values of secret names that are shorter are switches and numbers."""


def is_secret_name(name: str, *, ignores_harmless: bool = False) -> bool:
    """Whether a variable or setting of this name is kept from others, whatever its value is.

    Args:
        ignores_harmless: Whether words that only look secret, as in `TOKENIZERS_PARALLELISM`, are
            none: where a person wants the variable to be seen.
    """
    if _AGENT.search(name):
        return True
    return bool(_SECRET_NAME.search(_HARMLESS_NAME.sub("", name) if ignores_harmless else name))


def holds_credentials(value: str) -> bool:
    """Whether a value has a password, a token or a key in it, as connection strings do."""
    if _PRIVATE_KEY in value or _USER_IN_URL.search(value):
        return True
    return next(_credentials_in(value), None) is not None


def secret_values(values: Mapping[str, object]) -> set[str]:
    """Return what is secret in variables or settings, which may hold others, by name.

    That is the value of a secret name; and of any value that holds credentials the whole, and
    each of them by itself, as it is and as it is once decoded.
    """
    found: set[str] = set()
    for name, value in _flat(values):
        has_secret_name = bool(_SECRET_NAME.search(_HARMLESS_NAME.sub("", name)))
        credentials = set(_credentials_in(value))
        if _PRIVATE_KEY in value or credentials or (has_secret_name and _may_be_secret(value)):
            found |= {value} | credentials
    found |= {unquote(value) for value in found} | {unquote_plus(value) for value in found}
    return {value for value in found if len(value) >= SHORTEST}


def _credentials_in(value: str) -> Iterator[str]:
    for match in _IN_URL.finditer(value):
        if match["password"]:
            yield match["password"]
            yield f"{match['user']}:{match['password']}"  # as it is encoded in a header
        elif len(match["user"]) >= _SHORTEST_TOKEN:
            yield match["user"]
    yield from (match["password"] for match in _IN_ORACLE_URL.finditer(value))
    yield from (match["value"] for match in _IN_FIELD.finditer(value))
    yield from (match[0] for match in _BY_SHAPE.finditer(value))


def _may_be_secret(value: str) -> bool:
    """Whether the value of a secret name is one: no switch, no number, no path of a file."""
    value = value.strip()
    is_number = value.replace(".", "", 1).isdigit() and len(value) < 2 * SHORTEST
    return not (value.lower() in _WORDS or is_number or os.path.isabs(value) and _exists(value))


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # no path can hold what this does
        return False


def _flat(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the texts of nested settings, each with the name that it or its list has."""
    pending: list[tuple[str, object]] = list(values.items())
    while pending:
        name, value = pending.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, Mapping):
            pending += ((str(key), item) for key, item in value.items())
        elif isinstance(value, list | tuple):
            pending += ((name, item) for item in value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, str(value)  # a password of digits that nobody has put into quotes
