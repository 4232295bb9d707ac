"""Random programs whose prints, threads, children and C code write at once: not a byte is lost.

Every writer has letters of its own, so that what it wrote can be told from the rest however the
streams are mixed. A writer that was waited for is followed by a mark that is printed, which must
come after all that the writer wrote.
"""

from __future__ import annotations

import random
import string
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from taskweaver_ext import Environment, ExecutionResult, ExecutionStatus

ROUNDS = 200

_STREAMS = ("stdout", "stderr")
_MAX_BYTES = 5_000_000
_MAX_PROGRAM_BYTES = 12_000_000
_LETTERS = string.ascii_letters
_MARKS = string.digits

_PREAMBLE = """
import ctypes, os, subprocess, sys, threading
libc = ctypes.CDLL(None)

def pattern(letters, size):
    return (letters * (size // len(letters) + 1))[:size]

def pieces(text, size):
    return [text[start:start + size] for start in range(0, len(text), size)]

def print_it(number, text, size):
    for piece in pieces(text, size):
        print(piece, end="", file=(sys.stdout, sys.stderr)[number - 1])

def write_bytes(number, text, size):
    buffer = (sys.stdout, sys.stderr)[number - 1].buffer
    for piece in pieces(text, size):
        buffer.write(piece.encode())

def write_descriptor(number, text, size):
    for piece in pieces(text.encode(), size):
        while piece:
            piece = piece[os.write(number, piece):]

def write_in_c(number, text, size):
    sys.stdout.flush(); sys.stderr.flush()
    for piece in pieces(text.encode(), size):
        while piece:
            piece = piece[libc.write(number, piece, len(piece)):]

CHILD = '''
import contextlib, fcntl, os, sys
number, letters, total, size, pipe_bytes = sys.argv[1:]
if int(pipe_bytes):
    with contextlib.suppress(OSError):  # what is in the pipe may need more
        fcntl.fcntl(int(number), 1031, int(pipe_bytes))  # F_SETPIPE_SZ
text = (letters * (int(total) // len(letters) + 1))[:int(total)].encode()
for start in range(0, len(text), int(size)):
    piece = text[start:start + int(size)]
    while piece:
        piece = piece[os.write(int(number), piece):]
'''

def start_child(number, letters, total, size, pipe_bytes):
    arguments = map(str, (number, letters, total, size, pipe_bytes))
    return subprocess.Popen([sys.executable, "-c", CHILD, *arguments])
"""


@dataclass
class Program:
    """Code, and what it must have written."""

    lines: list[str] = field(default_factory=list)
    expected: list[tuple[str, str, int]] = field(default_factory=list)
    """By writer: its stream, its letters, how many of them it wrote."""
    marks: list[tuple[str, str, str]] = field(default_factory=list)
    """Stream, letters and mark: the mark comes after the last of the letters."""

    @property
    def code(self) -> str:
        """What is run."""
        return _PREAMBLE + "\n".join(self.lines)


def random_program(choose: random.Random, max_bytes: int = _MAX_BYTES) -> Program:
    """Make a program of a few writers, some of them at work at the same time."""
    program = Program()
    letters, marks = iter(_letter_groups(choose)), iter(_MARKS)
    left = _MAX_PROGRAM_BYTES
    waiting: list[tuple[str, str, str]] = []
    for index in range(choose.randint(2, 8)):
        size = min(left, int(max_bytes ** choose.random()))
        left -= size
        own = next(letters)
        number = choose.choice((1, 1, 1, 2))
        stream = _STREAMS[number - 1]
        piece = max(1, size // choose.choice((1, 1, 3, 50)))
        program.expected.append((stream, own, size))
        kind = choose.choice(("print_it", "write_bytes", "write_descriptor", "write_in_c", "child"))
        name = f"writer{index}"
        if kind == "child":
            pipe_bytes = choose.choice((0, 0, 4096, 1 << 20))
            arguments = f"{number}, {own!r}, {size}, {piece}, {pipe_bytes}"
            program.lines.append(f"{name} = start_child({arguments})")
            waiting.append((f"{name}.wait()", stream, own))
        elif choose.random() < 0.4:
            arguments = f"({number}, pattern({own!r}, {size}), {piece})"
            program.lines.append(
                f"{name} = threading.Thread(target={kind}, args={arguments}); {name}.start()"
            )
            waiting.append((f"{name}.join()", stream, own))
        else:
            program.lines.append(f"{kind}({number}, pattern({own!r}, {size}), {piece})")
            _add_mark(program, next(marks), stream, own)
        while waiting and choose.random() < 0.5:
            _wait(program, marks, waiting.pop(choose.randrange(len(waiting))))
    for writer in waiting:
        _wait(program, marks, writer)
    return program


def _letter_groups(choose: random.Random) -> Iterator[str]:
    letters = choose.sample(_LETTERS, len(_LETTERS))
    return ("".join(letters[start : start + 3]) for start in range(0, len(letters) - 2, 3))


def _wait(program: Program, marks: Iterator[str], writer: tuple[str, str, str]) -> None:
    wait, stream, letters = writer
    program.lines.append(wait)
    _add_mark(program, next(marks), stream, letters)


def _add_mark(program: Program, mark: str, stream: str, letters: str) -> None:
    program.lines.append(f"print({mark!r}, end='', file=sys.{stream})")
    program.marks.append((stream, letters, mark))


def faults_of(program: Program, heard: dict[str, str], result: ExecutionResult) -> list[str]:
    """Return what was lost, doubled or out of order, one sentence each."""
    found = []
    if result.status is not ExecutionStatus.SUCCESS:
        found.append(f"It ended as {result.status}: {result.error}")
    for name, texts in (("heard", heard), ("recorded", recorded(result))):
        for stream, letters, size in program.expected:
            kept = "".join(filter(set(letters).__contains__, texts[stream]))
            if kept != (letters * (size // len(letters) + 1))[:size]:
                found.append(f"{name}: {len(kept):,} of {size:,} on {stream}, or out of order.")
        for stream, letters, mark in program.marks:
            last = max(texts[stream].rfind(letter) for letter in letters)
            if texts[stream].find(mark) < last:
                found.append(f"{name}: the mark {mark} on {stream} has overtaken {letters}.")
    return found


def recorded(result: ExecutionResult) -> dict[str, str]:
    """Return the whole record of each stream."""
    paths = result.full_output_paths
    kept = {"stdout": result.stdout, "stderr": result.stderr}
    return {
        stream: paths[stream].read_text() if stream in paths else "".join(kept[stream])
        for stream in _STREAMS
    }


def run_program(environment: Environment, session: str, program: Program) -> list[str]:
    """Run a program on a session and return what is wrong with its output."""
    pieces: dict[str, list[str]] = {stream: [] for stream in _STREAMS}
    result = environment.execute_code(
        session, program.code, on_output=lambda stream, text: pieces[stream].append(text)
    )
    heard = {stream: "".join(parts) for stream, parts in pieces.items()}
    return faults_of(program, heard, result)


def main(rounds: int, seed: int) -> int:
    """Run so many programs on one local kernel; 1 if anything was lost or out of order."""
    choose = random.Random(seed)
    failures = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        Environment(Path(folder)) as environment,
    ):
        environment.start_session("s1")
        for number in range(rounds):
            program = random_program(choose)
            for fault in run_program(environment, "s1", program):
                failures += 1
                print(f"program {number}: {fault}")
    print(f"{rounds} programs, {failures} faults (seed {seed})")
    return 1 if failures else 0
