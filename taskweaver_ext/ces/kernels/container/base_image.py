"""Make a base image from the running Python, where no registry answers.

The tar has the layout of an official Python image (`/usr/local/bin/python3`,
`/usr/local/lib/pythonX.Y`), so that one Dockerfile builds on either. It holds
the interpreter, its standard library, the wanted distributions with all they
depend on, a shell with a few tools, and the shared libraries of all these.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from packaging.requirements import Requirement

from taskweaver_ext.errors import ConfigError

_PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_LIBRARY = f"usr/local/lib/{_PYTHON}"
_LEFT_OUT_FOLDERS = frozenset(
    ("test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "site-packages")
)
_LEFT_OUT_SUFFIXES = (".a", ".o", ".opt-1.pyc", ".opt-2.pyc")
_TOOLS = """
    bash cat chmod cp cut date dd dirname df du echo env false find grep head id kill ln ls mkdir
    mv printf ps pwd readlink rm rmdir sed seq setsid sh sleep sort stat stty tail tee test timeout
    touch tr true uname wc xargs yes
    """.split()
_FOLDERS = {
    "tmp": 0o1777, "root": 0o700, "etc": 0o755, "dev": 0o755, "proc": 0o755, "sys": 0o755,
    "var": 0o755, "run": 0o755, "home": 0o755, "usr": 0o755, "usr/bin": 0o755, "usr/lib": 0o755,
    "usr/lib64": 0o755, "usr/sbin": 0o755,
}  # fmt: skip
_TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def installed_closure(names: Sequence[str]) -> list[importlib.metadata.Distribution]:
    """The installed distributions of these names and all they depend on, sorted by name.

    Raises:
        ConfigError: One of `names` is not installed here.
    """
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            if name not in names:
                continue  # optional here, so optional there
            raise ConfigError(
                f"{name} is not installed for {sys.executable}, so it cannot be put into an image"
                f" without a registry. Install it with: {sys.executable} -m pip install {name}"
            ) from error
        found[key] = distribution
        waiting += _requirements(distribution)
    return [found[key] for key in sorted(found)]


def content_hash(names: Sequence[str]) -> str:
    """A text that changes when the tar of these distributions would."""
    # Environments of one interpreter with the same packages make the same image.
    executable = os.path.realpath(sys.executable)
    parts = [sys.version, executable, Path(__file__).read_text(encoding="utf-8")]
    parts += [f"{d.metadata['Name']}=={d.version}" for d in installed_closure(names)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def write_base_tar(file: IO[bytes], names: Sequence[str]) -> None:
    """Write the root file system of a base image that has these distributions."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        _BaseTar(tar).write(names)


class _BaseTar:
    """The tar while it is written."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._names: set[str] = set()
        self._linked: list[Path] = []
        """Programs and libraries whose own libraries are needed too."""

    def write(self, names: Sequence[str]) -> None:
        for folder, mode in _FOLDERS.items():
            self._add_folder(folder, mode)
        for name in ("bin", "sbin", "lib", "lib64"):  # as distributions do it nowadays
            self._add_link(name, f"usr/{name}")
        for name, text in _TEXTS.items():
            self._add_text(name, text)
        self._add_interpreter()
        for distribution in installed_closure(names):
            self._add_distribution(distribution)
        for tool in _TOOLS:
            if path := shutil.which(tool):
                self._add_file(Path(path), f"usr/bin/{tool}")
                self._linked.append(Path(path))
        for library in _shared_libraries(self._linked):
            self._add_file(library, _place_of_library(library))

    def _add_interpreter(self) -> None:
        executable = Path(sys.executable).resolve()
        self._add_file(executable, f"usr/local/bin/{_PYTHON}")
        self._linked.append(executable)
        for name in ("python3", "python"):
            self._add_link(f"usr/local/bin/{name}", _PYTHON)
        library = Path(sysconfig.get_path("stdlib"))
        for root, folders, files in os.walk(library):
            folders[:] = [
                folder
                for folder in folders
                if folder not in _LEFT_OUT_FOLDERS and not folder.startswith("config-")
            ]
            for name in files:
                path = Path(root, name)
                if not name.endswith(_LEFT_OUT_SUFFIXES):
                    self._add_file(path, f"{_LIBRARY}/{path.relative_to(library)}")

    def _add_distribution(self, distribution: importlib.metadata.Distribution) -> None:
        for entry in distribution.files or ():
            path = Path(str(distribution.locate_file(entry)))
            is_needed = not {"test", "tests"} & set(entry.parts)
            if entry.parts[0] != ".." and is_needed and path.is_file():
                self._add_file(path, f"{_LIBRARY}/site-packages/{entry}")

    def _add_folder(self, name: str, mode: int) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(entry)

    def _add_link(self, name: str, target: str) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(entry)

    def _add_text(self, name: str, text: str) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(text)
        self._tar.addfile(entry, io.BytesIO(text.encode()))

    def _add_file(self, path: Path, name: str) -> None:
        if name in self._names:
            return
        self._names.add(name)
        if path.suffix == ".so" or ".so." in path.name:
            self._linked.append(path)
        self._tar.add(path.resolve(), name, recursive=False, filter=_as_root)


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _requirements(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def _shared_libraries(paths: Iterable[Path]) -> list[Path]:
    """All libraries that these files are linked with, but for those that packages bring along."""
    # One process for all: one for each file would take seconds.
    listing = subprocess.run(
        ["ldd", *map(str, paths)], capture_output=True, text=True, errors="replace"
    ).stdout
    found = set(re.findall(r"=> (/\S+) \(0x", listing))
    found |= set(re.findall(r"^\s*(/\S*/ld-\S+) \(0x", listing, re.MULTILINE))
    return [Path(path) for path in sorted(found) if "/site-packages/" not in path]


def _place_of_library(path: Path) -> str:
    """Where a library goes: where it is, or where the loader looks anyway."""
    if path.parts[1] in ("lib", "lib64"):
        return f"usr{path}"
    if path.parts[1:3] in (("usr", "lib"), ("usr", "lib64")):
        return str(path).lstrip("/")
    return f"usr/lib/{path.name}"
