"""What a child process may see of our environment.

Keys, tokens and passwords are refused first, whatever else allows them, also
inside an address or a connection string (`credentials`). Of the rest, programs
that a person runs see everything; code that an agent can write sees what an allow
list and families of tools let through, and what the project adds. What a plugin
needs is granted by name: `PLUGIN_<plugin>_<variable>`.

Linux shows the memory in which a process was given its variables to everybody
of the same user, for as long as it lives (`ps e`, `/proc/PID/environ`). A shell
or a kernel would find there what was kept out of its own environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from taskweaver_ext.config.settings import ExecutionServiceConfig
from taskweaver_ext.machine.credentials import holds_credentials, is_secret_name, secret_values

_GRANTED_BY_NAME = "PLUGIN_"

_ALLOWED = frozenset(
    """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TERM TERM_PROGRAM TERM_PROGRAM_VERSION COLORTERM
    TMPDIR TEMP TMP TZ HOSTNAME NO_COLOR DISPLAY WAYLAND_DISPLAY
    CONDA_PREFIX CONDA_DEFAULT_ENV VIRTUAL_ENV PYTHONPATH PYTHONHASHSEED LD_LIBRARY_PATH
    DYLD_LIBRARY_PATH JAVA_HOME NODE_PATH MPLBACKEND CUDA_VISIBLE_DEVICES
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY
    APPDATA COMPUTERNAME COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA NUMBER_OF_PROCESSORS OS PATHEXT
    PROCESSOR_ARCHITECTURE PROCESSOR_IDENTIFIER PROGRAMDATA PROGRAMFILES PROGRAMFILES(X86)
    PROGRAMW6432 SESSIONNAME SYSTEMDRIVE SYSTEMROOT USERDOMAIN USERDOMAIN_ROAMINGPROFILE
    USERPROFILE USERNAME WINDIR
    """.split()
)
_ALLOWED_PREFIXES = ("LC_", "XDG_", "TASKWEAVER_", "OMP_", "MKL_", "OPENBLAS_")
_TOOLS = frozenset(
    """
    AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_CONFIG_FILE EDITOR VISUAL PAGER LESS LS_COLORS
    CC CXX LD CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS CMAKE_PREFIX_PATH PKG_CONFIG_PATH
    GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOFLAGS GOPROXY GOPRIVATE GOOS GOARCH GOTOOLCHAIN
    GEM_HOME GEM_PATH DOTNET_ROOT M2_HOME ANDROID_HOME ANT_HOME SPARK_HOME HADOOP_HOME HF_HOME
    JULIA_DEPOT_PATH R_HOME R_LIBS R_LIBS_USER PERL5LIB MANPATH INFOPATH NIX_PATH
    """.split()
)
_TOOL_PREFIXES = tuple(
    """
    PYENV_ PYTHON UV_ PIP_ PIPX_ PIPENV_ POETRY_ PDM_ HATCH_ CONDA_ MAMBA_ VIRTUAL_ENV JUPYTER_
    IPYTHON NVM_ NODE_ NPM_ PNPM_ YARN_ COREPACK_ VOLTA_ FNM_ DENO_ BUN_ RBENV_ RUBY BUNDLE_
    CARGO_ RUSTUP_ RUST_ SDKMAN_ JAVA_ MAVEN_ GRADLE_ ASDF_ MISE_ HOMEBREW_ CMAKE_ GIT_AUTHOR_
    GIT_COMMITTER_ CUDA_ NVIDIA_ TORCH_ PYTORCH_ TF_ JAX_ XLA_ NUMBA_ NUMEXPR_ POLARS_ GDAL_ PROJ_
    """.split()
)
"""Families of tools: what says where they are and how they work."""

_OURS_ALONE = frozenset({"TASKWEAVER_STARTED_AS"})
"""Said to this program, and to none that it starts."""

_GIT_COUNT = "GIT_CONFIG_COUNT"
"""How many settings git finds in `GIT_CONFIG_KEY_0`, `GIT_CONFIG_VALUE_0`, and so on."""

_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48
"""Fields of /proc/PID/stat, counted behind the name."""


Reason: TypeAlias = Literal["secret by name", "holds credentials", "denied", "not listed"]
"""Why a child process does not see a variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRules:
    """Which of our variables children see; names may be patterns, such as `MYAPP_*`."""

    allow: tuple[str, ...] = ()
    """What they see besides; never a secret."""
    deny: tuple[str, ...] = ()
    """What they do not see, whatever allows it."""
    is_for_person: bool = False
    """Whether only a person's own programs see them: then all that is no secret is allowed."""

    def why_withheld(self, name: str, value: str) -> Reason | None:
        """Why a child does not see a variable; None when it does."""
        if _matches(name, self.deny) or name in _OURS_ALONE:
            return "denied"
        if name.startswith(_GRANTED_BY_NAME):
            return None
        is_wanted = _matches(name, self.allow)
        if is_secret_name(name, ignores_harmless=is_wanted or self.is_for_person):
            return "secret by name"
        if holds_credentials(value):
            return "holds credentials"
        if is_wanted or self.is_for_person or _is_listed(name):
            return None
        return "not listed"


FOR_AGENTS = EnvironmentRules()
"""For code that an agent can write, where no project says more."""


def rules_of(service: ExecutionServiceConfig, *, is_for_person: bool = False) -> EnvironmentRules:
    """The rules that settings make."""
    return EnvironmentRules(
        allow=service.env_allow, deny=service.env_deny, is_for_person=is_for_person
    )


def is_passed_on(name: str, value: str, rules: EnvironmentRules = FOR_AGENTS) -> bool:
    """Whether a child process may see this variable."""
    return rules.why_withheld(name, value) is None


def withheld_variables(rules: EnvironmentRules) -> dict[str, Reason]:
    """Our variables that children do not see, and why; never with what they hold."""
    found = {name: rules.why_withheld(name, value) for name, value in os.environ.items()}
    return {
        name: reason
        for name, reason in sorted(found.items())
        if reason is not None and name not in _OURS_ALONE
    }


def _is_listed(name: str) -> bool:
    is_name = name.upper() in _ALLOWED or name in _TOOLS
    return is_name or name.startswith((*_ALLOWED_PREFIXES, *_TOOL_PREFIXES))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def granted_by_name() -> dict[str, str]:
    """Our variables that plugins were given by name."""
    return {name: value for name, value in os.environ.items() if name.startswith(_GRANTED_BY_NAME)}


def secret_variables() -> set[str]:
    """What is secret in our variables: to be masked wherever it appears."""
    return secret_values(os.environ)


def child_environment(
    extra: Mapping[str, str] | None = None,
    *,
    source: Mapping[str, str] | None = None,
    rules: EnvironmentRules = FOR_AGENTS,
) -> dict[str, str]:
    """The environment for a child: what it may see of ours, then the caller's own variables."""
    ours = os.environ if source is None else source
    return {**variables_passed_on(rules, ours), **variables_for_programs(extra or {})}


def variables_passed_on(
    rules: EnvironmentRules, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Our variables that a child may see, and nothing besides: for what has a terminal."""
    ours = os.environ if source is None else source
    passed_on = {name: value for name, value in ours.items() if is_passed_on(name, value, rules)}
    return _renumber_git_settings(passed_on)


def _renumber_git_settings(variables: dict[str, str]) -> dict[str, str]:
    """Close the gaps that withheld ones have left: git does not work at all with one missing."""
    count = variables.get(_GIT_COUNT, "")
    if not (count.isascii() and count.isdigit()):
        return variables
    count_now, rest = 0, dict(variables)
    for number in range(min(int(count), len(variables))):
        key, value = (rest.pop(f"GIT_CONFIG_{half}_{number}", None) for half in ("KEY", "VALUE"))
        if key is not None and value is not None:
            rest[f"GIT_CONFIG_KEY_{count_now}"] = key
            rest[f"GIT_CONFIG_VALUE_{count_now}"] = value
            count_now += 1
    return {**rest, _GIT_COUNT: str(count_now)}


def variables_for_programs(extra: Mapping[str, str]) -> dict[str, str]:
    """What is set for programs wherever they run, then the caller's own variables."""
    return {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", **extra}


def hide_what_is_not_passed_on() -> None:
    """Wipe it where the system shows it; for us every variable stays what it is.

    For a program of ours, as it starts and has one thread: it moves variables that C code could
    be reading. Where a system is not Linux, or not as expected, nothing happens.
    """
    start, shown = _shown_environment()
    for entry in shown.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name and not is_passed_on(os.fsdecode(name), os.fsdecode(value)):
            _move(name)
            ctypes.memset(start, 0, len(entry))
        start += len(entry) + 1


def _shown_environment() -> tuple[int, bytes]:
    """The memory that the system shows: where it is, and what is in it."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ENVIRONMENT_START]), int(fields[_ENVIRONMENT_END])
        shown = Path("/proc/self/environ").read_bytes()
        if start and end - start == len(shown) and ctypes.string_at(start, len(shown)) == shown:
            return start, shown
    return 0, b""


def _move(name: bytes) -> None:
    """Have C code find a variable elsewhere, with the value that it has now."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    value: bytes | None = getenv(name)
    if value is not None:
        os.putenv(name, value)
