"""What a child process may see of our environment.

Keys, tokens and passwords are refused first, whatever else allows them; then
an allow list and a few prefixes let through what programs need to run. What a
plugin needs is granted by name: `PLUGIN_<plugin>_<variable>`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_GRANTED_BY_NAME = "PLUGIN_"

_DENIED = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|CONNECTION_STR|_DSN$|_PAT$|"
    r"SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|DATABASE_URL|_AUTH$|^AUTH",
    re.IGNORECASE,
)

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

_CREDENTIALS_IN_URL = re.compile(r"//[^/@\s]+@")


def is_passed_on(name: str, value: str) -> bool:
    """Whether a child process may see this variable."""
    if name.startswith(_GRANTED_BY_NAME):
        return True
    if _DENIED.search(name) or _CREDENTIALS_IN_URL.search(value):
        return False
    return name.upper() in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)


def granted_by_name() -> dict[str, str]:
    """Our variables that plugins were given by name."""
    return {name: value for name, value in os.environ.items() if name.startswith(_GRANTED_BY_NAME)}


def child_environment(
    extra: Mapping[str, str] | None = None, *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment for a child: what it may see of ours, then the caller's own variables."""
    ours = os.environ if source is None else source
    passed = {name: value for name, value in ours.items() if is_passed_on(name, value)}
    return {**passed, **variables_for_programs(extra or {})}


def variables_for_programs(extra: Mapping[str, str]) -> dict[str, str]:
    """What is set for programs wherever they run, then the caller's own variables."""
    return {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", **extra}
