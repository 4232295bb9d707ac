"""`taskweaver-ext doctor`: check this machine and say what to do about what is missing."""

from __future__ import annotations

import http.client
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import click

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.sandbox.sandbox import find_gaps_of_guard, probe
from taskweaver_ext.cli.language_table import summarise_languages
from taskweaver_ext.cli.options import project_option
from taskweaver_ext.config.folders import FILE_NAME
from taskweaver_ext.config.loading import find_execution_service, load
from taskweaver_ext.config.sandbox import PROTECTIONS
from taskweaver_ext.config.settings import EnvMode
from taskweaver_ext.errors import ConfigError, TaskWeaverError
from taskweaver_ext.llm.model_settings import ModelSettings
from taskweaver_ext.machine.child_environment import (
    child_environment,
    rules_of,
    withheld_variables,
)
from taskweaver_ext.machine.interpreters import explain_why_unusable, find_python
from taskweaver_ext.machine.owned_folders import remove_abandoned_folders
from taskweaver_ext.session.folders import session_folders, size_of

if TYPE_CHECKING:
    from taskweaver_ext.ces.kernels.container.engine import Trouble

OLDEST_PYTHON = (3, 11)
OLDEST_IPYKERNEL = (6, 29)
LITTLE_DISK_BYTES = 1 << 30
TOO_LITTLE_DISK_BYTES = 64 << 20
ENGINE_SECONDS = 3.0
MUCH_KEPT_BYTES = 1 << 30

_NOTHING = "nothing"
_MARKS = {"ok": "ok  ", "warning": "warn", "failed": "FAIL"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    status: Literal["ok", "warning", "failed"]
    """`failed`: code cannot be run; `warning`: something else will not work."""
    detail: str
    advice: str = ""


@click.command(short_help="Check this machine and say what to do about what is missing.")
@project_option
@click.option(
    "--clean",
    is_flag=True,
    help="Remove what crashed processes have left: containers and temporary folders.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def command(project: Path | None, clean: bool, as_json: bool) -> int:
    """Check this machine and say what to do about what is missing.

    With --clean nothing is checked: containers and temporary folders are removed whose
    processes are gone, never what a living process owns.

    Exit codes: 0 when code can be run here, 1 otherwise.
    """
    if clean:
        return _clean(project, as_json)
    checks: dict[str, Callable[[], Finding]] = {
        "python": _check_python,
        "temporary folder": _check_temporary_folder,
        "disk": _check_disk,
        "ipykernel": lambda: _check_ipykernel(project),
        "kernel": _check_kernel,
        "languages": lambda: Finding("ok", summarise_languages()),
        "sandbox": _check_sandbox,
        "guard": _check_guard,
        "docker": lambda: _check_docker(project),
        "isolation": lambda: _check_isolation(project),
        "variables": lambda: _check_variables(project),
        "model": lambda: _check_model(project),
        "sessions": lambda: _check_sessions(project),
    }
    findings = {}
    for name, check in checks.items():
        findings[name] = check()
        if not as_json:
            _show(name, findings[name])
    is_usable = all(finding.status != "failed" for finding in findings.values())
    if as_json:
        listed = [{"name": name, **asdict(finding)} for name, finding in findings.items()]
        click.echo(json.dumps({"can_run": is_usable, "checks": listed}, indent=2))
    return 0 if is_usable else 1


def _clean(project: Path | None, as_json: bool) -> int:
    """Remove containers and temporary folders whose processes are gone, and nothing else."""
    # The engine's machinery is not for checks.
    from taskweaver_ext.ces.kernels.container.engine import EngineError, shared_engine
    from taskweaver_ext.ces.kernels.container.leftovers import remove_leftovers

    containers, problem = [], ""
    try:
        service = find_execution_service(project)
        containers = remove_leftovers(shared_engine(service.engine_url))
    except EngineError as error:
        problem = str(error)
    folders = sorted(map(str, remove_abandoned_folders()))
    if as_json:
        done = {"containers": containers, "folders": folders, "problem": problem}
        click.echo(json.dumps(done, indent=2))
        return 0
    for kind, names in (("container", containers), ("folder", folders)):
        for name in names:
            click.echo(f"removed  {kind} {name}")
    if problem:
        click.echo(f"containers were not looked for: {problem}", err=True)
    elif not containers and not folders:
        click.echo("nothing was left behind")
    return 0


def _check_sessions(project: Path | None) -> Finding:
    """Say how much room the folders of sessions take."""
    try:
        workspace = load(project).workspace
    except ConfigError as error:
        return Finding("warning", str(error))
    folders = session_folders(workspace.workspace_path)
    size = sum(map(size_of, folders))
    kept = f"kept for {workspace.keep_days} days" if workspace.keep_days else "kept for ever"
    detail = f"{len(folders)} in {workspace.workspace_path}, {size / (1 << 20):.1f} MiB, {kept}"
    advice = "set workspace.keep_days to have old ones removed" if size >= MUCH_KEPT_BYTES else ""
    return Finding("ok", detail, advice)


def _show(name: str, finding: Finding) -> None:
    click.echo(f"{_MARKS[finding.status]}  {name}: {finding.detail}")
    if finding.advice:
        click.echo(f"      -> {finding.advice}")


def _check_python() -> Finding:
    detail = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("ok", detail)
    return Finding("failed", detail, "install Python 3.11 or newer, and this package with it")


def _check_temporary_folder() -> Finding:
    try:
        with tempfile.TemporaryDirectory(prefix="taskweaver-doctor-") as folder:
            (Path(folder) / "probe").write_text("x")
            return Finding("ok", f"{Path(folder).parent} is writable")
    except OSError as error:
        advice = "make /tmp writable, or set TMPDIR to a folder that is"
        return Finding("failed", str(error), advice)


def _check_disk() -> Finding:
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    detail = f"{free / (1 << 30):.1f} GiB free for {folder}"
    advice = "free some space: output beyond 1 MB and artifacts are kept in files"
    if free < TOO_LITTLE_DISK_BYTES:
        return Finding("failed", detail, advice)
    if free < LITTLE_DISK_BYTES:
        return Finding("warning", detail, advice)
    return Finding("ok", detail)


def _check_ipykernel(project: Path | None) -> Finding:
    environment = child_environment()
    try:
        configured = find_execution_service(project).python
        python = find_python(configured, Path.cwd(), environment)
    except TaskWeaverError as missing:
        return Finding("failed", str(missing), "set execution_service.python to one that is there")
    if (error := explain_why_unusable(python, environment)) is not None:
        what, _, advice = str(error).partition(" Install it with: ")
        return Finding("failed", what, advice or "deactivate that environment, or repair it")
    version = subprocess.run(
        [python, "-c", "import ipykernel; print(ipykernel.__version__)"],
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.strip()
    detail = f"{version} for {python}"
    if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_IPYKERNEL:
        return Finding("ok", detail)
    advice = f"{python} -m pip install --upgrade ipykernel"
    return Finding("warning", f"{detail} is old: output comes later than it could", advice)


def _check_kernel() -> Finding:
    """Start one and let it compute."""
    try:
        with tempfile.TemporaryDirectory(prefix="taskweaver-doctor-") as folder:
            started_at = time.monotonic()
            with Environment(folder) as environment:
                environment.start_session("doctor", cwd=Path.cwd())
                ready_at = time.monotonic()
                result = environment.execute_code("doctor", "print(6 * 7)", timeout=30)
                answered_at = time.monotonic()
    except (TaskWeaverError, OSError) as error:
        return Finding("failed", str(error), "see ipykernel above")
    if result.stdout != ["42\n"]:
        detail = f"it started but did not answer: {result.error or result.status.value}"
        advice = "run it again with other programs closed, and look at the load of the machine"
        return Finding("failed", detail, advice)
    seconds, milliseconds = ready_at - started_at, (answered_at - ready_at) * 1000
    detail = f"ready after {seconds:.2f} s, answered after {milliseconds:.0f} ms more"
    return Finding("ok", detail)


def _check_sandbox() -> Finding:
    """Say what this machine can enforce of a sandbox."""
    found = probe()
    held = [name for name in PROTECTIONS if name not in found.missing]
    what = f"enforces {', '.join(held)}" if held else "nothing can be enforced"
    detail = " ".join([f"{what}.", *dict.fromkeys(found.missing.values()), *found.remarks])
    if not found.missing:
        return Finding("ok", detail)
    advice = f"use containers, or set sandbox.require to {json.dumps(held)}"
    return Finding("warning", detail, advice)


def _check_guard() -> Finding:
    """Say what code that runs locally can do to this program all the same."""
    gaps = find_gaps_of_guard()
    if os.name == "posix" and os.geteuid() == 0:
        gaps += ("Without execution_service.guard (on in ask), it can read this program's memory.",)
    return Finding("ok", " ".join(gaps) or "local code can be kept from looking into this program")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ENGINE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ENGINE_SECONDS)
        self.sock.connect(self._path)


def _check_docker(project: Path | None) -> Finding:
    # The engine's library is loaded for no other command that could do without it.
    from taskweaver_ext.ces.kernels.container.image import DEFAULT_IMAGE

    try:
        service = find_execution_service(project)
    except ConfigError as error:
        return Finding("warning", str(error))
    address = service.engine_url
    parts = urlsplit(address)
    connection: http.client.HTTPConnection
    if parts.scheme == "unix":
        connection = _UnixConnection(parts.path)
    elif parts.scheme in ("tcp", "http") and parts.hostname:
        connection = http.client.HTTPConnection(
            parts.hostname, parts.port or 2375, timeout=ENGINE_SECONDS
        )
    else:
        return _no_docker(f"{address} is not an address this check can try", address)
    try:
        connection.request("GET", "/version")
        engine = json.loads(connection.getresponse().read())
        detail = f"engine {engine.get('Version')} at {address}"
        connection.request("GET", f"/images/{service.custom_image or DEFAULT_IMAGE}/json")
        if connection.getresponse().status == http.HTTPStatus.NOT_FOUND:
            how = "of kernels; build it with: taskweaver-ext image build"
            detail += f", without the image {service.custom_image or how}"
        return Finding("ok", detail)
    except PermissionError:
        return _no_docker(f"no permission to use {address}", address, "denied")
    except TimeoutError:
        return _no_docker(f"the engine at {address} does not answer", address, "silent")
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        return _no_docker(f"cannot reach the engine at {address}: {error}", address)
    finally:
        connection.close()


def _no_docker(detail: str, address: str, trouble: Trouble = "absent") -> Finding:
    from taskweaver_ext.ces.kernels.container.engine import advice_about_engine

    advice = f"{advice_about_engine(address, trouble)}; local kernels need no Docker"
    return Finding("warning", detail, advice)


def _check_isolation(project: Path | None) -> Finding:
    """Say where code of an agent runs, and what stands between it and this machine."""
    mode = find_execution_service(project).kernel_mode
    if mode is not EnvMode.Local:
        return Finding("ok", f"code of sessions runs in mode {mode.value}")
    detail = "code of sessions runs locally, with your rights"
    advice = (
        "checks and questions prevent accidents, not intent; set"
        " execution_service.kernel_mode to container to prevent both"
    )
    return Finding("ok", detail, advice)


def _check_variables(project: Path | None) -> Finding:
    """Say which variables are kept from code and programs, and why; never what they hold."""
    try:
        service = find_execution_service(project)
    except ConfigError as error:
        return Finding("warning", str(error))
    code = _describe_withheld(withheld_variables(rules_of(service)))
    programs = _describe_withheld(withheld_variables(rules_of(service, is_for_person=True)))
    detail = f"kept from code of sessions: {code}. Kept from run and exec: {programs}"
    advice = (
        'execution_service.env_allow and env_deny in taskweaver_config.json, such as ["MYAPP_*"],'
        " change that; secrets are always kept"
    )
    return Finding("ok", detail, advice if code != _NOTHING else "")


def _describe_withheld(withheld: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in withheld.items():
        by_reason.setdefault(reason, []).append(name)
    listed = (f"{', '.join(names)} ({reason})" for reason, names in sorted(by_reason.items()))
    return "; ".join(listed) or _NOTHING


def _check_model(project: Path | None) -> Finding:
    try:
        llm = load(project).llm
        settings = ModelSettings.from_mapping(llm.settings)
    except ConfigError as error:
        return Finding("warning", str(error), f"correct {FILE_NAME} or the environment")
    detail = f"{settings.api_type} {settings.model}, key {'set' if llm.has_api_key else 'not set'}"
    # An address of one's own, such as vLLM's, may need no key.
    if llm.has_api_key or settings.api_base or settings.api_type in ("ollama", "local"):
        return Finding("ok", detail)
    advice = f"set llm.api_key in {FILE_NAME}, or LLM_API_KEY; running code needs none"
    return Finding("warning", detail, advice)
