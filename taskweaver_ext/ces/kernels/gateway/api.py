"""A Jupyter gateway's HTTP interface: is it there, may we use it, start and end kernels."""

from __future__ import annotations

import re
import secrets
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from taskweaver_ext.ces.kernels.gateway.address import GatewayAddress, check_token, read_address
from taskweaver_ext.ces.kernels.gateway.bounded_http import (
    Answer,
    AnswerError,
    AnswerTimeoutError,
    BoundedHttp,
)
from taskweaver_ext.errors import ConfigError, KernelNotReadyError, KernelStartError

_ANSWER_SECONDS = 10.0
_LEAST_START_SECONDS = 5.0
"""For each request of a start, however long the one before has taken."""
_LOOK_SECONDS = 2.0
_MAX_WORDS = 300
_MAX_SHOWN_KERNELSPECS = 20
_MAX_NAME_CHARACTERS = 60
_DELETE_PAUSES = (0.2, 0.5, 1.0, 2.0)

_KERNEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
"""What may stand in a path as it is; gateways take UUIDs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Which gateway kernels run behind, and how they are started there."""

    url: str = field(repr=False)
    """Where it is; may say `?token=...`, as the addresses do that Jupyter prints."""
    token: str = field(default="", repr=False)
    kernel_name: str = "python3"
    """A kernelspec of the gateway; its kernels must be IPython's."""
    kernel_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the gateway itself: it passes on those that begin with KERNEL_."""
    verify_tls: bool = True
    ca_file: Path | None = None
    """Certificates to trust instead of the system's."""
    start_seconds: float = 60.0
    """How long a kernel may take, also if the first fails and is replaced."""
    reconnect_seconds: float = 30.0
    """How long a gateway may be out of reach before its kernels count as lost."""


class GatewayApi:
    """One gateway, as one user; may be used from any thread."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.address = read_address(settings.url)
        self.url = self.address.url
        self._token = check_token(settings.token or self.address.token)
        self.headers = _headers(self._token)
        self.tls = _tls_context(self.address, settings)
        self._settings = settings
        trust_env = not self.address.is_on_this_machine
        self._http = BoundedHttp(self.url, self.headers, self.tls, trust_env=trust_env)

    def check(self, seconds: float = _ANSWER_SECONDS) -> None:
        """Raise KernelStartError if the gateway cannot be used, saying why, within this time."""
        name = self._settings.kernel_name
        # Kernel Gateway does not list its kernels, so the kernelspecs are what tells.
        seconds = min(max(seconds, _LEAST_START_SECONDS), _ANSWER_SECONDS)
        known = self._ask("GET", "/api/kernelspecs", seconds).json_object().get("kernelspecs")
        if not isinstance(known, dict):
            raise KernelStartError(
                f"What answers at {self.url} is not a Jupyter gateway. Check the address"
                " (TASKWEAVER_GATEWAY_URL)."
            )
        if name not in known:
            raise KernelStartError(
                f"The gateway at {self.url} has no kernel {name!r}; it has"
                f" {_enumerated(sorted(known))}. Choose one of them, or add {name!r} there."
            )

    def start_kernel(self, seconds: float) -> str:
        """Start a kernel within this time and return its id."""
        request = {
            "name": self._settings.kernel_name,
            "env": {"KERNEL_USERNAME": "taskweaver", **self._settings.kernel_environment},
        }
        seconds = max(seconds, _LEAST_START_SECONDS)
        answer = self._ask("POST", "/api/kernels", seconds, json=request)
        kernel_id = answer.json_object().get("id")
        if kernel_id is None:
            raise KernelStartError(
                f"The gateway at {self.url} started no kernel: {_words_of(answer)}"
            )
        if not isinstance(kernel_id, str) or not _KERNEL_ID.fullmatch(kernel_id):
            raise KernelStartError(
                f"The gateway at {self.url} calls its new kernel"
                f" {_shortened(str(kernel_id), _MAX_NAME_CHARACTERS)!r}, which cannot be the"
                " id of one, so it is not used. Check what answers at that address"
                " (TASKWEAVER_GATEWAY_URL)."
            )
        return kernel_id

    def knows_kernel(self, kernel_id: str) -> bool:
        """Whether a kernel is still there; True also when the gateway cannot be asked."""
        try:
            answer = self._http.request("GET", f"/api/kernels/{kernel_id}", _LOOK_SECONDS)
        except (httpx.HTTPError, AnswerError):
            return True
        return answer.status != httpx.codes.NOT_FOUND

    def delete_kernel(self, kernel_id: str, seconds: float) -> None:
        """End a kernel, which may be gone already.

        Raises:
            httpx.HTTPError, AnswerError: It may still be there.
        """
        deadline = time.monotonic() + seconds
        for pause in (*_DELETE_PAUSES, None):
            left = deadline - time.monotonic()
            answer = self._http.request("DELETE", f"/api/kernels/{kernel_id}", left)
            if answer.status < httpx.codes.INTERNAL_SERVER_ERROR:
                return
            if pause is None or time.monotonic() + pause > deadline:
                raise AnswerError(f"it answered {answer.status}: {_words_of(answer)}")
            # Kernel Gateway cannot end a kernel that it is just starting again.
            threading.Event().wait(pause)

    def refusal(self, status: int) -> str:
        """What to say when the gateway does not let us in."""
        which = "the token" if self._token else "a request without a token"
        return (
            f"The gateway at {self.url} refused {which} ({status}). Set TASKWEAVER_GATEWAY_TOKEN"
            " to the token it was started with (Kernel Gateway and Enterprise Gateway:"
            " KG_AUTH_TOKEN or EG_AUTH_TOKEN; Jupyter Server: its own token)."
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _ask(
        self,
        method: str,
        path: str,
        seconds: float,
        json: dict[str, Any] | None = None,
    ) -> Answer:
        try:
            answer = self._http.request(method, path, seconds, json)
        except AnswerTimeoutError as error:
            raise KernelStartError(
                f"The gateway at {self.url} does not answer: {error} to {method} {path}."
                f" Look whether it is overloaded or hangs{self._hint_at_encryption()}."
            ) from error
        except AnswerError as error:
            raise KernelStartError(
                f"What answers at {self.url} is not a Jupyter gateway: to {method} {path} {error}."
                " Check the address (TASKWEAVER_GATEWAY_URL), and what stands in between, such as"
                " a proxy."
            ) from error
        except httpx.HTTPError as error:
            raise KernelStartError(self._why_out_of_reach(error)) from error
        self._refuse_failure(answer, f"{method} {path}")
        return answer

    def _refuse_failure(self, answer: Answer, request: str) -> None:
        if answer.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise KernelStartError(self.refusal(answer.status))
        if httpx.codes.is_redirect(answer.status):
            target = answer.headers.get("Location", "").partition("?")[0]
            raise KernelStartError(
                f"What answers at {self.url} sends us on to {_shortened(target, _MAX_WORDS)}."
                " If the gateway is there, set TASKWEAVER_GATEWAY_URL to that address, without its"
                " page."
            )
        if answer.status == httpx.codes.NOT_FOUND:
            raise KernelStartError(
                f"There is no gateway at {self.url}: {request} was not found there (404). Check"
                " TASKWEAVER_GATEWAY_URL: a server with a path of its own (base_url) has it in its"
                " address."
            )
        if not answer.is_success:
            is_its_fault = httpx.codes.is_server_error(answer.status)
            kind = KernelNotReadyError if is_its_fault else KernelStartError
            raise kind(
                f"The gateway at {self.url} answered {answer.status} to {request}:"
                f" {_words_of(answer)}"
            )

    def _why_out_of_reach(self, error: httpx.HTTPError) -> str:
        cause = _tls_error_in(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"The gateway at {self.url} is not trusted: {cause.verify_message}. If it is"
                " yours, name its certificate, or that of who signed it, in"
                " TASKWEAVER_GATEWAY_CA_FILE (or SSL_CERT_FILE)."
            )
        if cause is not None:
            return (
                f"What answers at {self.url} does not speak https ({cause.reason or cause})."
                " Should the address begin with http://?"
            )
        hint = "" if isinstance(error, httpx.ConnectError) else self._hint_at_encryption()
        return (
            f"The gateway at {self.url} cannot be reached:"
            f" {_shortened(str(error), _MAX_WORDS)}. Start it, or check"
            f" TASKWEAVER_GATEWAY_URL{hint}."
        )

    def _hint_at_encryption(self) -> str:
        """For a server that answers, but not as it should."""
        other = "http" if self.address.is_encrypted else "https"
        return f", and whether its address begins with {other}:// instead"


def _headers(token: str) -> dict[str, str]:
    # A Jupyter Server without tokens wants what a page sends that it has delivered itself: a
    # cookie, and its value again in a header.
    proof = secrets.token_hex(16)
    headers = {"Cookie": f"_xsrf={proof}", "X-XSRFToken": proof}
    if token:
        headers["Authorization"] = f"token {token}"
    return headers


def _words_of(answer: Answer) -> str:
    """What a server says about a failure, without the page around it."""
    words = answer.json_object().get("message")
    if not isinstance(words, str):
        is_page = "html" in answer.headers.get("Content-Type", "")
        reason = httpx.codes.get_reason_phrase(answer.status)
        words = reason if is_page else answer.body[: 4 * _MAX_WORDS].decode("utf-8", "replace")
    return _shortened(words, _MAX_WORDS)


def _shortened(text: str, most_characters: int) -> str:
    return text if len(text) <= most_characters else f"{text[: most_characters - 1]}…"


def _enumerated(names: list[str]) -> str:
    shown = [_shortened(name, _MAX_NAME_CHARACTERS) for name in names[:_MAX_SHOWN_KERNELSPECS]]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown):,} more")
    return ", ".join(shown) or "none"


def _tls_error_in(error: BaseException | None) -> ssl.SSLError | None:
    """What was wrong with the encryption, if that is why there is no connection."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _tls_context(address: GatewayAddress, settings: GatewaySettings) -> ssl.SSLContext | None:
    """How an encrypted gateway is trusted; None for one that is not encrypted."""
    if not address.is_encrypted:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise ConfigError(
            f"The certificates in {settings.ca_file} cannot be read: {error}. Name a file in PEM"
            " form (TASKWEAVER_GATEWAY_CA_FILE)."
        ) from error
    if not settings.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
