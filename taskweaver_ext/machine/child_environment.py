"""What a child process may see of our environment.

Keys, tokens and passwords are refused first, whatever else allows them, also
inside an address or a connection string (`credentials`); then an allow list and
a few prefixes let through what programs need to run. What a plugin needs is
granted by name: `PLUGIN_<plugin>_<variable>`.

Linux shows the memory in which a process was given its variables to everybody
of the same user, for as long as it lives (`ps e`, `/proc/PID/environ`). A shell
or a kernel would find there what was kept out of its own environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

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

_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48
"""Fields of /proc/PID/stat, counted behind the name."""


def is_passed_on(name: str, value: str) -> bool:
    """Whether a child process may see this variable."""
    if name.startswith(_GRANTED_BY_NAME):
        return True
    if is_secret_name(name) or holds_credentials(value):
        return False
    return name.upper() in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)


def granted_by_name() -> dict[str, str]:
    """Our variables that plugins were given by name."""
    return {name: value for name, value in os.environ.items() if name.startswith(_GRANTED_BY_NAME)}


def secret_variables() -> set[str]:
    """What is secret in our variables: to be masked wherever it appears."""
    return secret_values(os.environ)


def child_environment(
    extra: Mapping[str, str] | None = None, *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment for a child: what it may see of ours, then the caller's own variables."""
    ours = os.environ if source is None else source
    passed = {name: value for name, value in ours.items() if is_passed_on(name, value)}
    return {**passed, **variables_for_programs(extra or {})}


def persons_environment() -> dict[str, str]:
    """Our environment without its secrets, for programs that a person starts for themselves."""
    return {
        name: value
        for name, value in os.environ.items()
        if not is_secret_name(name) and not holds_credentials(value)
    }


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
