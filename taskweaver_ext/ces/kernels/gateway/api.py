"""A Jupyter gateway's HTTP interface: is it there, may we use it, start and end kernels."""

from __future__ import annotations

import secrets
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from taskweaver_ext.ces.kernels.gateway.address import GatewayAddress, check_token, read_address
from taskweaver_ext.errors import ConfigError, KernelNotReadyError, KernelStartError

_ANSWER_SECONDS = 10.0
_LOOK_SECONDS = 2.0
_MAX_WORDS = 300
_DELETE_PAUSES = (0.2, 0.5, 1.0, 2.0)


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
        self._http = httpx.Client(
            base_url=self.url,
            headers=self.headers,
            timeout=_ANSWER_SECONDS,
            verify=self.tls or False,  # False: nothing is encrypted, and no redirect followed
            trust_env=not self.address.is_on_this_machine,
        )

    def check(self) -> None:
        """Raise KernelStartError if the gateway cannot be used, saying why."""
        name = self._settings.kernel_name
        # Kernel Gateway does not list its kernels, so the kernelspecs are what tells.
        answer = self._ask("GET", "/api/kernelspecs")
        try:
            known = sorted(answer.json()["kernelspecs"])
        except (ValueError, KeyError, TypeError) as error:
            raise KernelStartError(
                f"What answers at {self.url} is not a Jupyter gateway. Check the address"
                " (TASKWEAVER_GATEWAY_URL)."
            ) from error
        if name not in known:
            raise KernelStartError(
                f"The gateway at {self.url} has no kernel {name!r}; it has"
                f" {', '.join(known) or 'none'}. Choose one of them, or add {name!r} there."
            )

    def start_kernel(self) -> str:
        """Start a kernel and return its id."""
        request = {
            "name": self._settings.kernel_name,
            "env": {"KERNEL_USERNAME": "taskweaver", **self._settings.kernel_environment},
        }
        answer = self._ask(
            "POST", "/api/kernels", json=request, timeout=self._settings.start_seconds
        )
        try:
            kernel_id: str = answer.json()["id"]
        except (ValueError, KeyError, TypeError) as error:
            raise KernelStartError(
                f"The gateway at {self.url} started no kernel: {_words_of(answer)}"
            ) from error
        return kernel_id

    def knows_kernel(self, kernel_id: str) -> bool:
        """Whether a kernel is still there; True also when the gateway cannot be asked."""
        try:
            answer = self._http.get(f"/api/kernels/{kernel_id}", timeout=_LOOK_SECONDS)
        except httpx.HTTPError:
            return True
        return answer.status_code != httpx.codes.NOT_FOUND

    def delete_kernel(self, kernel_id: str) -> None:
        """End a kernel, which may be gone already; raises httpx.HTTPError when that fails."""
        path = f"/api/kernels/{kernel_id}"
        for pause in _DELETE_PAUSES:
            if self._http.delete(path).status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                return
            # Kernel Gateway cannot end a kernel that it is just starting again.
            threading.Event().wait(pause)
        self._http.delete(path).raise_for_status()

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
        json: dict[str, Any] | None = None,
        timeout: float = _ANSWER_SECONDS,
    ) -> httpx.Response:
        try:
            answer = self._http.request(method, path, json=json, timeout=timeout)
        except httpx.TimeoutException as error:
            raise KernelStartError(
                f"The gateway at {self.url} does not answer: {type(error).__name__} at {path}."
                f" Look whether it is overloaded or hangs{self._hint_at_encryption()}."
            ) from error
        except httpx.HTTPError as error:
            raise KernelStartError(self._why_out_of_reach(error)) from error
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise KernelStartError(self.refusal(answer.status_code))
        if answer.is_redirect:
            target = answer.headers.get("Location", "").partition("?")[0]
            raise KernelStartError(
                f"What answers at {self.url} sends us on to {target}. If the gateway is there,"
                " set TASKWEAVER_GATEWAY_URL to that address, without its page."
            )
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise KernelStartError(
                f"There is no gateway at {self.url}: {path} was not found there (404). Check"
                " TASKWEAVER_GATEWAY_URL: a server with a path of its own (base_url) has it in its"
                " address."
            )
        if answer.is_error:
            kind = KernelNotReadyError if answer.is_server_error else KernelStartError
            raise kind(
                f"The gateway at {self.url} answered {answer.status_code} to {method} {path}:"
                f" {_words_of(answer)}"
            )
        return answer

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
            f"The gateway at {self.url} cannot be reached: {error}. Start it, or check"
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


def _words_of(answer: httpx.Response) -> str:
    """What a server says about a failure, without the page around it."""
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        is_page = "html" in answer.headers.get("Content-Type", "")
        return answer.reason_phrase if is_page else answer.text[:_MAX_WORDS]


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
