"""Save the variables of a kernel's user as pickles, and put them back into another kernel.

Variables that share an object are one pickle, so that they share it afterwards; all others
are a pickle each, so that one that cannot be saved or loaded costs only itself. Functions of
the session do not carry what they refer to: they look into the namespace, as before.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import enum
import functools
import io
import json
import logging
import pickle
import platform
import re
import sys
import time
import types
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

MAX_SEARCHED_OBJECTS = 1_000_000
"""Of a variable with more objects than that it is assumed that it shares some with all others."""

_PROTOCOL = 5
_LINE_BYTES = 3 << 15
_MAX_REASON_CHARACTERS = 200
_MEMOIZE = b"\x94"
_CLOUDPICKLE = "taskweaver_cloudpickle"
"""What the module is called here that was sent along; pickles refer to it by this name."""
_OF_IPYTHON = re.compile(r"_+|_i+|_i?\d+|__\w+__|In|Out|_[iod]h")
_WITHOUT_IDENTITY = (
    *(str, bytes, int, tuple, frozenset, range, slice, type, re.Pattern, enum.Enum),
    *(types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.MethodDescriptorType),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, logging.Logger),
)
"""Whether two variables hold one of these or two equal ones makes no difference to code."""


@dataclass
class Part:
    """One pickle."""

    names: list[str]
    data: bytes
    has_code: bool
    """Whether it holds functions or classes, which only the same version of Python can load."""
    pickler: Any
    """Knows every object in it, and keeps it, so that no other is taken for it."""

    def ids(self, namespace: dict[str, Any]) -> set[int] | None:
        """The objects that another variable may hold, too; None: too many to be looked for."""
        if self.data.count(_MEMOIZE) > MAX_SEARCHED_OBJECTS:
            return None
        return {
            number
            for number, (_, value) in self.pickler.memo.copy().items()
            if _has_identity(value, namespace)
        }


class _LeftOutError(Exception):
    """A variable cannot be saved; the message says why."""


class _BoundedFile:
    """Takes what a pickler writes, while there is room and time for it."""

    def __init__(self, room: int, deadline: float) -> None:
        self._buffer = io.BytesIO()
        self._room = room
        self._deadline = deadline

    def write(self, data: Any) -> int:
        """Add a piece; the pickler comes here often enough for Ctrl-C to take effect."""
        size = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        self._room -= size
        if self._room < 0:
            raise _LeftOutError("it is larger than what may be saved")
        if time.monotonic() > self._deadline:
            raise _LeftOutError("there was no time left to save it")
        return self._buffer.write(data)

    def data(self) -> bytes:
        """All that was written."""
        return self._buffer.getvalue()


class SavedNamespace:
    """The variables of one namespace as pickles, as far as they can be."""

    def __init__(self, namespace: dict[str, Any], cloudpickle: types.ModuleType) -> None:
        self.parts: list[Part] = []
        self.left_out: dict[str, str] = {}
        """Names, and why."""
        self._namespace = namespace
        self._make_pickler = _pickler_of_session(cloudpickle, namespace)

    def save(self, names: Collection[str], max_bytes: int, seconds: float) -> None:
        """Make the pickles; what does not fit into the limits is left out."""
        self._room = max_bytes
        self._deadline = time.monotonic() + seconds
        parts = [part for name in names if (part := self._try_to_pickle([name])) is not None]
        for group in _grouped(parts, self._namespace):
            if len(group) == 1:
                self.parts.append(group[0])
                continue
            self._room += sum(len(part.data) for part in group)
            together = self._try_to_pickle([name for part in group for name in part.names])
            if together is not None:
                self.parts.append(together)

    def _try_to_pickle(self, names: list[str]) -> Part | None:
        try:
            part = self._pickle(names)
        except _LeftOutError as error:
            self.left_out.update(dict.fromkeys(names, str(error)))
        except KeyboardInterrupt:
            if time.monotonic() < self._deadline:
                raise  # a person's
            self.left_out.update(dict.fromkeys(names, "there was no time left to save it"))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the variables' classes
            self.left_out.update(dict.fromkeys(names, reason_of(error)))
        else:
            self._room -= len(part.data)
            return part
        return None

    def _pickle(self, names: list[str]) -> Part:
        values = [self._namespace[name] for name in names]
        if any(value is self._namespace for value in values):
            raise _LeftOutError("it is the namespace itself")
        file = _BoundedFile(self._room, self._deadline)
        pickler = self._make_pickler(file)
        pickler.dump(values)
        return Part(names, file.data(), pickler.has_code, pickler)


def _has_identity(value: Any, namespace: dict[str, Any]) -> bool:
    """Whether code can tell one object that two variables hold from two equal ones."""
    kind = type(value)
    if kind is types.FunctionType:
        return value.__globals__ is namespace  # others are imported
    is_numpy_type = any(one.__name__ == "dtype" for one in kind.__mro__)
    return not is_numpy_type and not issubclass(kind, _WITHOUT_IDENTITY)


def _grouped(parts: list[Part], namespace: dict[str, Any]) -> Iterable[list[Part]]:
    """Put together what shares an object, directly or through others."""
    group_of = list(range(len(parts)))

    def find(number: int) -> int:
        while group_of[number] != number:
            group_of[number] = number = group_of[group_of[number]]
        return number

    first_with: dict[int, int] = {}
    for number, part in enumerate(parts):
        ids = part.ids(namespace)
        if ids is None:
            return [parts]
        for one in ids:
            group_of[find(number)] = find(first_with.setdefault(one, number))
    groups: dict[int, list[Part]] = {}
    for number, part in enumerate(parts):
        groups.setdefault(find(number), []).append(part)
    return groups.values()


def _pickler_of_session(cloudpickle: types.ModuleType, namespace: dict[str, Any]) -> Any:
    """Make the class of picklers that know functions of a session, and refuse open files."""

    class SessionPickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        def __init__(self, file: _BoundedFile) -> None:
            super().__init__(file, protocol=_PROTOCOL)
            self.has_code = False

        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if kind is types.CodeType:
                self.has_code = True
            if kind is types.FunctionType and value.__globals__ is namespace:
                return _reduced_function(value)
            if kind is types.CellType:
                return _reduced_cell(value)
            if kind is _CachedFunction and _is_of(namespace, value.__wrapped__):
                return _cached_again, (value.__wrapped__, value.cache_parameters())
            if issubclass(kind, io.IOBase) and _has_descriptor(value):
                raise _LeftOutError("an open file cannot be saved")
            return super().reducer_override(value)

    return SessionPickler


_CachedFunction = type(functools.lru_cache(int))


def _is_of(namespace: dict[str, Any], function: Any) -> bool:
    return getattr(function, "__globals__", None) is namespace


def _has_descriptor(file: io.IOBase) -> bool:
    """Whether this is a file of the system, and not one in memory, nor one that was closed."""
    try:
        is_ours = any(file is ours for ours in (sys.stdout, sys.stderr, sys.stdin))
        return file.fileno() >= 0 and not is_ours
    except (OSError, ValueError, AttributeError):
        return False


def _reduced_function(function: types.FunctionType) -> tuple[Any, ...]:
    state: dict[str, Any] = {
        name: getattr(function, name)
        for name in ("__defaults__", "__kwdefaults__", "__doc__", "__module__", "__qualname__")
    }
    state["__dict__"] = function.__dict__
    with contextlib.suppress(Exception):  # newer versions of Python evaluate them only now
        state["__annotations__"] = function.__annotations__
    arguments = (function.__code__, function.__name__, function.__closure__)
    return _make_function, arguments, state, None, None, _complete_function


def _make_function(
    code: types.CodeType, name: str, closure: tuple[Any, ...] | None
) -> types.FunctionType:
    return types.FunctionType(code, sys.modules["__main__"].__dict__, name, None, closure)


def _complete_function(function: types.FunctionType, state: dict[str, Any]) -> None:
    function.__dict__.update(state.pop("__dict__"))
    for name, value in state.items():
        setattr(function, name, value)


def _cached_again(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduced_cell(cell: Any) -> tuple[Any, ...]:
    try:
        content = (cell.cell_contents,)
    except ValueError:  # it is empty
        return _make_cell, ()
    return _make_cell, (), content, None, None, _fill_cell


def _make_cell() -> Any:
    return types.CellType()


def _fill_cell(cell: Any, content: tuple[Any]) -> None:
    (cell.cell_contents,) = content


def reason_of(error: BaseException) -> str:
    """Why something failed, in a line that is not too long."""
    first_line = (str(error).strip().splitlines() or [""])[0]
    text = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    return text if len(text) <= _MAX_REASON_CHARACTERS else text[:_MAX_REASON_CHARACTERS] + "..."


def load_cloudpickle(source: str) -> types.ModuleType:
    """Make the module whose source was sent along, once."""
    module = sys.modules.get(_CLOUDPICKLE)
    if module is None:
        module = types.ModuleType(_CLOUDPICKLE)
        sys.modules[_CLOUDPICKLE] = module
        try:
            exec(compile(source, f"<{_CLOUDPICKLE}>", "exec"), module.__dict__)
        except BaseException:
            del sys.modules[_CLOUDPICKLE]
            raise
    return module


class Variables:
    """Commands that save and restore the variables of one kernel; they answer on its stdout."""

    def __init__(self, namespace: dict[Any, Any], stdout: Any) -> None:
        self._namespace = namespace
        self._stdout = stdout
        self._received = bytearray()

    def save(
        self, known: Collection[str], cloudpickle: str, max_bytes: int, seconds: float
    ) -> None:
        """Write what was saved: a line of JSON that describes it, then lines of base64."""
        saved = SavedNamespace(self._namespace, load_cloudpickle(cloudpickle))
        names = [
            name
            for name in list(self._namespace)
            if type(name) is str and name not in known and not _OF_IPYTHON.fullmatch(name)
        ]
        with contextlib.redirect_stdout(sys.stderr):  # what classes print is not part of it
            saved.save(names, max_bytes, seconds)
        parts = [
            {"names": part.names, "size": len(part.data), "has_code": part.has_code}
            for part in saved.parts
        ]
        description = {"python": python_version(), "parts": parts, "left_out": saved.left_out}
        self._stdout.write(json.dumps(description) + "\n")
        for part in saved.parts:
            for start in range(0, len(part.data), _LINE_BYTES):
                line = base64.b64encode(part.data[start : start + _LINE_BYTES])
                self._stdout.write(line.decode("ascii") + "\n")

    def receive(self, data: str, *, is_first: bool) -> None:
        """Keep the next piece of what `restore` will load; an empty first one lets go of it."""
        if is_first:
            self._received = bytearray()
        self._received += base64.b64decode(data)

    def restore(
        self, known: Collection[str], cloudpickle: str, python: str, parts: list[dict[str, Any]]
    ) -> None:
        """Load what was received; write as JSON which variables there are now, and which not."""
        load_cloudpickle(cloudpickle)
        received, self._received = memoryview(self._received), bytearray()
        restored: list[str] = []
        left_out: dict[str, str] = {}
        waiting = list(_with_data(parts, received))
        count = len(waiting) + 1
        with contextlib.redirect_stdout(sys.stderr):
            while len(waiting) < count:  # what failed may have needed what was loaded after it
                count = len(waiting)
                waiting = [
                    (part, data)
                    for part, data in waiting
                    if not self._load(part, data, python, known, restored, left_out)
                ]
        self._stdout.write(json.dumps({"restored": restored, "left_out": left_out}))

    def _load(
        self,
        part: dict[str, Any],
        data: memoryview,
        python: str,
        known: Collection[str],
        restored: list[str],
        left_out: dict[str, str],
    ) -> bool:
        names = part["names"]
        if part["has_code"] and python != python_version():
            reason = f"functions and classes of {python} do not run on {python_version()}"
            left_out.update(dict.fromkeys(names, reason))
            return False
        try:
            values = pickle.loads(data)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the variables' classes
            left_out.update(dict.fromkeys(names, reason_of(error)))
            return False
        for name in names:
            left_out.pop(name, None)
        for name, value in zip(names, values):  # noqa: B905 - Python 3.9 knows no `strict`
            if name in known:
                left_out[name] = "the kernel itself has something of this name"
            else:
                self._namespace[name] = value
                restored.append(name)
        return True


def python_version() -> str:
    """Which bytecode runs here."""
    return f"{platform.python_implementation()} {'.'.join(map(str, sys.version_info[:2]))}"


def _with_data(
    parts: list[dict[str, Any]], data: memoryview
) -> Iterator[tuple[dict[str, Any], memoryview]]:
    start = 0
    for part in parts:
        yield part, data[start : start + part["size"]]
        start += part["size"]
