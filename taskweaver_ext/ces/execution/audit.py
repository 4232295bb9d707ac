"""The audit log: who ran what, when, and how it ended, with secrets masked.

One JSON object per line, in a file that only its owner can read. A run is
written when it starts and again when it ends, so that one that takes this
program down is there, too.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

from taskweaver_ext.ces.execution.results import ExecutionResult, Notice
from taskweaver_ext.machine.private_files import make_private_folder, open_private
from taskweaver_ext.text.redaction import Redactor

if sys.platform != "win32":
    import pwd

STARS = "****"

_MAX_CODE_CHARACTERS = 65_536
_MAX_ERROR_CHARACTERS = 2000
_MARGIN = 4096
"""Looked at besides, so that no cut goes through a secret."""

# Possessive quantifiers keep all of this linear: what a program's text is made of is not ours.
_NAME = (
    r"(?:api[_\-]?key|access[_\-]?key|private[_\-]?key|secret|token|passw(?:or)?d|passphrase"
    r"|credential|connection[_\-]?string)[A-Za-z0-9_.\-]{0,64}+"
)
_ASSIGNS = r"""["']?+\]?+\s{0,8}+(?:=>|:=|[=:])\s{0,8}+"""
_PATTERNS = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        # name = "value", ["name"]: 'value'
        (rf"""({_NAME}{_ASSIGNS}[A-Za-z]?+")[^"\n]++""", re.IGNORECASE),
        (rf"""({_NAME}{_ASSIGNS}[A-Za-z]?+')[^'\n]++""", re.IGNORECASE),
        # NAME=value, --name=value; not a call, an index or a variable, which are no values
        (rf"""({_NAME}{_ASSIGNS})[^\s"'`;,()\[\]{{}}$]{{4,}}+(?![(\[])""", re.IGNORECASE),
        # --name value
        (rf"""(--[A-Za-z\-]{{0,64}}?{_NAME}\s{{1,8}}+["']?+)[^\s"'$\-][^\s"']*+""", re.IGNORECASE),
        # Authorization: Bearer value
        (r"(\b(?:bearer|basic)\s{1,8}+)[A-Za-z0-9._~+/=\-]{8,}+", re.IGNORECASE),
        # scheme://user:password@host
        (r"(://[^\s/:@]{0,256}+:)[^\s/@]{1,256}+(?=@)", 0),
        # keys that are known by their beginning
        (
            r"(\b(?:sk-|gh[pousr]_|github_pat_|xox[abprs]-|AKIA|AIza|hf_|glpat-))"
            r"[A-Za-z0-9_\-]{12,}",
            0,
        ),
        (r"(\beyJ)[A-Za-z0-9_\-]{10,}+\.[A-Za-z0-9_\-]{10,}+\.[A-Za-z0-9_\-]*+", 0),
        (r"(-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----).*?(?=-----END |\Z)", re.DOTALL),
    )
)
"""What looks like a secret; the first group of each is what stays."""

_logger = logging.getLogger(__name__)


def mask_secrets(text: str, redactor: Redactor | None = None) -> str:
    """Mask known secrets, and replace whatever looks like a key or a password by stars."""
    if redactor is not None:
        text = redactor.redact(text)
    for pattern in _PATTERNS:
        text = pattern.sub(lambda match: match[1] + STARS, text)
    return text


class AuditLog:
    """Append runs to a file.

    Threads:
        Any thread may write. `_lock` guards the descriptor; each line is one
        write to a file opened for appending, so that processes may share it.
    """

    def __init__(
        self, path: str | Path, *, who: str = "", redactor: Redactor | None = None
    ) -> None:
        """A log at `path`, which is made when it is first written.

        Args:
            who: On whose behalf code runs, besides the system's user: a session, a role.
            redactor: Masks values that must not appear in the log.
        """
        self.path = Path(path)
        self._who = who
        self._redactor = redactor
        self._user = _user_name()
        self._lock = threading.Lock()
        self._descriptor: int | None = None

    def write_start(
        self, execution_id: str, *, executor: str, code: str, cwd: str = "", has_stdin: bool = False
    ) -> Notice | None:
        """Write that a run starts; return a notice for its result where that fails."""
        masked = mask_secrets(code[: _MAX_CODE_CHARACTERS + _MARGIN], self._redactor)
        return self._write(
            {
                "event": "started",
                "execution_id": execution_id,
                "executor": executor,
                "cwd": cwd,
                "code": masked[:_MAX_CODE_CHARACTERS],
                "code_characters": len(code),
                "code_sha256": hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest(),
                "has_stdin": has_stdin,
            }
        )

    def write_end(self, result: ExecutionResult, *, executor: str) -> Notice | None:
        """Write how a run ended, like `write_start`."""
        error = (result.error or "")[-_MAX_ERROR_CHARACTERS - _MARGIN :]
        error = mask_secrets(error, self._redactor)[-_MAX_ERROR_CHARACTERS:]
        return self._write(
            {
                "event": "ended",
                "execution_id": result.execution_id,
                "executor": executor,
                "status": result.status.value,
                "exit_code": result.exit_code,
                "error": error,
                "duration_seconds": round(result.duration_seconds, 6),
            }
        )

    def close(self) -> None:
        """Close the file; writing again opens it again."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self, entry: dict[str, Any]) -> Notice | None:
        moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        whole = {"time": moment, "user": self._user, "who": self._who, "pid": os.getpid(), **entry}
        line = json.dumps(whole, ensure_ascii=True) + "\n"
        try:
            self._append(line.encode())
        except OSError as error:
            message = f"The audit log at {self.path} cannot be written: {error}."
            _logger.warning("%s", message)
            return Notice(kind="record_failed", message=message)
        return None

    def _append(self, line: bytes) -> None:
        with self._lock:
            if self._descriptor is None:
                make_private_folder(self.path.parent)
                self._descriptor = open_private(self.path, os.O_WRONLY | os.O_APPEND)
            os.write(self._descriptor, line)


def _user_name() -> str:
    """The system's user that runs this program; empty where that has no name."""
    if sys.platform == "win32":
        return ""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
