"""Sent to a running kernel as the code of a request: bring the runtime along and install it.

This file runs on its own, in a namespace that nobody sees; the other files of
this folder come with it as text and are imported from there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

PACKAGE = "taskweaver_inside"
_FOLDERS = (PACKAGE, f"{PACKAGE}.kernel")


class SentModules(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Import modules whose source was sent: full name -> text."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Know the modules that were sent, and no others."""
        if fullname not in self._sources:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=fullname in _FOLDERS)

    def is_package(self, fullname: str) -> bool:
        """The folder that was sent, and the one in it."""
        return fullname in _FOLDERS

    def get_source(self, fullname: str) -> str:
        """The text that was sent."""
        return self._sources[fullname]

    def get_code(self, fullname: str) -> Any:
        """Compile under a name that tracebacks find the text by."""
        text, name = self._sources[fullname], f"<{fullname}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        return compile(text, name, "exec", dont_inherit=True)


def install_what_was_sent(sources: dict[str, str]) -> None:
    """Import the runtime and let it take over this kernel."""
    sys.meta_path.insert(0, SentModules(sources))
    importlib.import_module(
        f"{PACKAGE}.kernel.install_in_running_kernel"
    ).install_in_running_kernel()
