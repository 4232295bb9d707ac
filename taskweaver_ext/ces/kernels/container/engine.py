"""The Docker engine: one client for all sessions of this process, one thread for its events.

The SDK ends here: nothing else imports it, and its errors leave this module
as one of the four below.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeAlias

import docker.errors
import requests.exceptions
import urllib3.exceptions
from docker import APIClient
from docker.types import IPAMConfig, IPAMPool
from docker.types.daemon import CancellableStream

from taskweaver_ext.ces.kernels.container.engine_events import EngineEvents, OnChange

Trouble: TypeAlias = Literal["absent", "denied", "silent"]
"""No engine listens; this user may not use it; it listens and does not answer."""

LABEL = "taskweaver_ext"
"""What all labels of ours begin with, and the label of everything of ours."""

_CALL_SECONDS = 20
_STATE_SECONDS = 2
_ANSWER_SECONDS = 5
"""An engine that does not say a word within this time is not asked for more."""
_BUILD_SECONDS = 900
_WHY: Mapping[Trouble, str] = {
    "absent": "",
    "denied": ": permission denied",
    "silent": ": it does not answer",
}


class EngineError(Exception):
    """The engine did not do what it was asked; the message is for people."""


class EngineGoneError(EngineError):
    """No engine answers."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.advice = advice
        """What to do about it, without a full stop."""


class NotInEngineError(EngineError):
    """The engine has no such image or container."""


class EngineFailedError(EngineError):
    """The engine failed for a reason of its own, as under load; it may work the next time."""


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What an engine says about itself that matters to us."""

    kernel_version: str
    operating_system: str
    processors: int
    is_rootless: bool
    remaps_users: bool
    unsupported_limits: tuple[str, ...]
    """Names of limits that it cannot enforce on this machine."""
    runtimes: tuple[str, ...]
    """What it can run containers with, as far as it says."""
    default_runtime: str


class Engine:
    """Ask a Docker engine for things. Safe from any thread."""

    def __init__(self, url: str) -> None:
        """Connect; raises EngineGoneError."""
        self.url = url
        self._ping_client = _connect(url, _ANSWER_SECONDS)
        version = self._ping_client.api_version
        self._client = _connect(url, _CALL_SECONDS, version)
        self._state_client = _connect(url, _STATE_SECONDS, version)
        self._events = EngineEvents(self._open_events, self.has_ended, self.answers)
        self._traits: EngineTraits | None = None
        self._uses = itertools.count()
        self.unremoved: set[str] = set()
        """Containers that could not be removed, because the engine was gone; by name where their
        making was not answered."""

    def is_used_first(self) -> bool:
        """True for the first caller in this process."""
        return next(self._uses) == 0

    @property
    def traits(self) -> EngineTraits:
        """What it says about itself; asked once."""
        if self._traits is None:
            with self._pinged():
                self._traits = _traits(self._client.info())
        return self._traits

    @property
    def shares_this_machine(self) -> bool:
        """Whether a socket file of ours can be used in its containers: not through a VM."""
        return (
            sys.platform == "linux"
            and self.url.startswith("unix://")
            and self.traits.kernel_version == os.uname().release
            and self.traits.operating_system != "Docker Desktop"
        )

    def create(self, name: str, description: Mapping[str, Any]) -> tuple[str, list[str]]:
        """Create a container as the engine's API describes it; return its id and warnings."""
        with self._pinged():
            pass
        try:
            with _translated(self.url):
                made: dict[str, Any] = self._client.create_container_from_config(  # type: ignore[no-untyped-call]
                    description, name
                )
        except EngineGoneError:
            self.unremoved.add(name)  # it may have been made
            raise
        return str(made["Id"]), list(made.get("Warnings") or ())

    def start(self, container: str) -> None:
        """Start a container."""
        with _translated(self.url):
            self._client.start(container)

    def inspect(self, container: str) -> dict[str, Any]:
        """Everything the engine knows about a container."""
        with _translated(self.url):
            found: dict[str, Any] = self._client.inspect_container(container)
        return found

    def state(self, container: str) -> dict[str, Any]:
        """Whether a container runs or how it ended; an engine that takes long counts as gone."""
        with _translated(self.url):
            found: dict[str, Any] = self._state_client.inspect_container(container)
        return dict(found["State"])

    def has_ended(self, container: str) -> bool:
        """Whether a container has ended or is gone."""
        try:
            return self.state(container)["Status"] in ("exited", "dead")
        except NotInEngineError:
            return True

    def answers(self) -> bool:
        """Whether the engine is there."""
        try:
            with _translated(self.url):
                return bool(self._state_client.ping())
        except EngineError:
            return False

    def kill(self, container: str) -> None:
        """Kill everything in a container; a paused one too."""
        with self._pinged():
            self._client.kill(container)

    def remove(self, container: str) -> None:
        """Kill and remove a container; one that is gone or going already is no error."""
        try:
            with self._pinged():
                self._client.remove_container(container, force=True, v=True)
        except NotInEngineError:
            pass
        except EngineGoneError:
            self.unremoved.add(container)
            raise
        except EngineError as error:
            if "already in progress" not in str(error):
                raise
        self.unremoved.discard(container)

    def log_tail(self, container: str, lines: int) -> str:
        """The last lines that a container's first process wrote."""
        with _translated(self.url):
            text: bytes = self._client.logs(container, tail=lines)
        return text.decode("utf-8", "replace")

    def list_ours(self) -> list[dict[str, Any]]:
        """All containers that carry our label, running or not."""
        with self._pinged():
            found: list[dict[str, Any]] = self._client.containers(
                all=True, filters={"label": LABEL}
            )
        return found

    def networks(self, name: str) -> list[dict[str, Any]]:
        """The networks of exactly this name."""
        with _translated(self.url):
            found: list[dict[str, Any]] = self._client.networks(names=[name])
        return [network for network in found if network["Name"] == name]

    def create_network(
        self,
        name: str,
        options: Mapping[str, str],
        *,
        subnet: str | None = None,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        """Make a bridge network of ours.

        Args:
            subnet: Its addresses; by default such as are free.
            addresses: What some of them are for.
        """
        pool = IPAMPool(subnet=subnet, aux_addresses=dict(addresses or {}))
        with _translated(self.url):
            self._client.create_network(
                name,
                "bridge",
                options=dict(options),
                ipam=IPAMConfig(pool_configs=[pool]) if subnet else None,
                labels={LABEL: ""},
                check_duplicate=True,
            )

    def remove_network(self, name: str) -> None:
        """Remove a network that nothing uses."""
        with contextlib.suppress(NotInEngineError), _translated(self.url):
            self._client.remove_network(name)

    def image_labels(self, image: str) -> dict[str, str] | None:
        """The labels of an image; None when the engine does not have it."""
        try:
            return dict(self._image_settings(image).get("Labels") or {})
        except NotInEngineError:
            return None

    def image_volumes(self, image: str) -> list[str]:
        """The folders for which an image wants room outside of its own files."""
        return sorted(self._image_settings(image).get("Volumes") or {})

    def _image_settings(self, image: str) -> dict[str, Any]:
        with _translated(self.url):
            found: dict[str, Any] = self._client.inspect_image(image)  # type: ignore[no-untyped-call]
        return dict(found.get("Config") or {})

    def pull(self, image: str) -> None:
        """Get an image from its registry; raises NotInEngineError when that does not have it."""
        repository, _, tag = image.rpartition(":")
        if not repository or "/" in tag:
            repository, tag = image, "latest"
        client = _connect(self.url, _BUILD_SECONDS)
        with contextlib.closing(client), _translated(self.url):
            for step in client.pull(repository, tag, stream=True, decode=True):
                _raise_if_failed(step)

    def import_image(self, tar: IO[bytes], image: str, changes: Sequence[str]) -> None:
        """Make an image of a root file system."""
        repository, _, tag = image.partition(":")
        client: Any = _connect(self.url, _BUILD_SECONDS)  # its types know of no file objects
        with contextlib.closing(client), _translated(self.url):
            client.import_image(tar, repository, tag, changes=list(changes))

    def build(
        self,
        context: IO[bytes],
        image: str,
        *,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        has_network: bool,
        say: Callable[[str], None],
    ) -> None:
        """Build an image from a tar with a Dockerfile; raises EngineError when a step fails."""
        client = _connect(self.url, _BUILD_SECONDS)
        with contextlib.closing(client), _translated(self.url):
            steps = client.build(
                fileobj=context,
                custom_context=True,
                tag=image,
                buildargs=dict(arguments),
                labels=dict(labels),
                network_mode=None if has_network else "none",
                rm=True,
                forcerm=True,
                decode=True,
            )
            for step in steps:
                _raise_if_failed(step)
                if text := str(step.get("stream", "")).strip():
                    say(text)

    def remove_image(self, image: str) -> None:
        """Take an image's name away, and the image if that was its last."""
        with contextlib.suppress(NotInEngineError), _translated(self.url):
            self._client.remove_image(image, force=True)

    def _open_events(self) -> CancellableStream[Any]:
        """The stream of what happens to containers of ours, from now on."""
        with _translated(self.url):
            return self._client.events(decode=True, filters={"type": "container", "label": LABEL})

    def watch(self, container: str, on_change: OnChange) -> None:
        """Call back, on a thread of ours, for what happens to a container."""
        self._events.watch(container, on_change)

    def unwatch(self, container: str) -> None:
        """Stop calling back; the thread ends when nothing is left to watch."""
        self._events.unwatch(container)

    def close(self) -> None:
        """Close the clients and end the thread."""
        self._events.close()
        for client in (self._state_client, self._ping_client, self._client):
            client.close()

    @contextlib.contextmanager
    def _pinged(self) -> Iterator[None]:
        """Turn errors into ours; an engine that hangs is noticed before much is asked of it."""
        with _translated(self.url):
            self._ping_client.ping()
            yield


class _Engines:
    """The engines that this process uses, each connected once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[tuple[int, str], Engine] = {}

    def get(self, url: str) -> Engine:
        with self._lock:
            key = (os.getpid(), url)  # a forked child must not share its parent's sockets
            if key not in self._engines:
                self._engines[key] = Engine(url)
            return self._engines[key]


_engines = _Engines()


def shared_engine(url: str) -> Engine:
    """The engine at an address; raises EngineGoneError when it does not answer."""
    return _engines.get(url)


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn the SDK's errors into ours."""
    place = url.removeprefix("unix://")
    try:
        if place != url:
            _check_listening(place)
        yield
    except docker.errors.NotFound as error:
        raise NotInEngineError(str(error.explanation or error)) from error
    except docker.errors.APIError as error:
        reason = str(error.explanation or error).strip()
        is_of_its_own = error.is_server_error() or "is already in use" in reason
        raise (EngineFailedError if is_of_its_own else EngineError)(reason) from error
    except (
        docker.errors.DockerException,
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        trouble: Trouble = "absent"
        if isinstance(error, PermissionError):
            trouble = "denied"
        elif isinstance(error, requests.exceptions.Timeout):
            trouble = "silent"
        reason = f"cannot reach Docker at {place}{_WHY[trouble]}"
        raise EngineGoneError(reason, advice_about_engine(url, trouble)) from error


def advice_about_engine(url: str, trouble: Trouble) -> str:
    """What to do about an engine that cannot be used; with a command, where there is one."""
    if not url.startswith("unix://"):
        return "Start Docker there, or correct DOCKER_HOST"
    if trouble == "denied":
        return "Let this user use it (sudo usermod -aG docker $USER, then log in again)"
    action = "restart" if trouble == "silent" else "start"
    command = f" (sudo systemctl {action} docker)" if sys.platform == "linux" else ""
    return f"{action.title()} Docker{command}"


def _check_listening(path: str) -> None:
    """Raise an OSError when no engine listens; the SDK would leave a socket open in that case."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_STATE_SECONDS)
        probe.connect(path)


def _raise_if_failed(step: Mapping[str, Any]) -> None:
    if "error" in step:
        raise EngineError(str(step["error"]).strip())


def _connect(url: str, seconds: int, version: str = "auto") -> APIClient:
    with _translated(url):
        return APIClient(base_url=url, version=version, timeout=seconds)


def _traits(info: Mapping[str, Any]) -> EngineTraits:
    security = " ".join(info.get("SecurityOptions") or ())
    limits = {
        "memory": "MemoryLimit",
        "processes": "PidsLimit",
        "CPU": "CpuCfsQuota",
    }
    return EngineTraits(
        kernel_version=str(info.get("KernelVersion", "")),
        operating_system=str(info.get("OperatingSystem", "")),
        processors=int(info.get("NCPU", 1)),
        is_rootless="name=rootless" in security,
        remaps_users="name=userns" in security,
        unsupported_limits=tuple(name for name, flag in limits.items() if info.get(flag) is False),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        default_runtime=str(info.get("DefaultRuntime", "")),
    )
