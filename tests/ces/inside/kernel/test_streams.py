"""Whichever way code writes to its standard streams, it is heard, in order, and so is the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import LateOutput
from taskweaver_ext.ces.execution.results import ExecutionStatus
from tests.support.executions import run

WAYS = {
    "sys.__stdout__": "print(text, file=sys.__stdout__)",
    "bytes": "sys.stdout.buffer.write(f'{text}\\n'.encode())",
    "raw bytes": "sys.stdout.buffer.raw.write(f'{text}\\n'.encode())",
    "detached bytes": "sys.stdout.detach().write(f'{text}\\n'.encode())",
    "descriptor": "os.write(1, f'{text}\\n'.encode())",
    "descriptor of the stream": "os.write(sys.stdout.fileno(), f'{text}\\n'.encode())",
    "line-buffered wrapper": "wrapper.write(f'{text}\\n')",
    "a handler of logging": "log.warning(text)",
    "a wrapper that is let go": "io.TextIOWrapper(sys.stdout.buffer).write(f'{text}\\n')",
    "redirected": "\n    with contextlib.redirect_stderr(sys.stdout): print(text, file=sys.stderr)",
    "writelines": "sys.stdout.writelines([text, '\\n'])",
    "a child": "subprocess.run(['echo', text])",
}
PREPARE = """
import contextlib, io, logging, os, subprocess, sys
wrapper = io.TextIOWrapper(sys.stdout.buffer, line_buffering=True)
log = logging.getLogger("odd ways"); log.propagate = False
log.handlers = [logging.StreamHandler(sys.stdout)]
"""


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_keeps_its_place_among_prints(
    environment: Environment, way: str
) -> None:
    environment.execute_code("s1", PREPARE)
    code = f"""
for number in range(20):
    print("printed", number)
    text = f"odd {{number}}"
    {WAYS[way]}
"""

    heard = run(environment, code)
    after = run(environment, "print('printed'); _ = sys.stdout.buffer.write(b'as bytes\\n')")

    assert heard.result.status is ExecutionStatus.SUCCESS, heard.result.error
    assert heard.text() == "".join(f"printed {n}\nodd {n}\n" for n in range(20))
    assert after.text() == "printed\nas bytes\n"


def test_the_real_standard_error_keeps_its_place(environment: Environment) -> None:
    code = """
import os, sys
for number in range(10):
    print("a", number, file=sys.stderr)
    print("b", number, file=sys.__stderr__)
    os.write(2, f"c {number}\\n".encode())
"""

    heard = run(environment, code)

    assert heard.text("stderr") == "".join(f"a {n}\nb {n}\nc {n}\n" for n in range(10))


@pytest.mark.parametrize(
    "code",
    [
        "sys.stdout.reconfigure(encoding='utf-8', errors='replace', line_buffering=True)",
        "sys.stdout.reconfigure(encoding='ascii', newline='')",
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')",
        "sys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach())",
        "sys.stdout = io.open(sys.stdout.fileno(), 'w', encoding='utf-8', closefd=False)",
        "sys.stdout = sys.__stdout__",
        "sys.stdout.buffer.close()",
        "sys.__stdout__.close()",
    ],
)
def test_a_stream_that_was_made_over_speaks_unicode_and_is_put_back(
    environment: Environment, code: str
) -> None:
    first = run(environment, f"import codecs, io, sys\n{code}\nprint('für €')")
    second = run(environment, "print('für €')")

    assert first.text() == second.text() == "für €\n", first.result.error


def test_a_stream_answers_as_a_real_one(environment: Environment) -> None:
    code = """
import sys
out = sys.stdout
(out.encoding, out.name, out.fileno(), out.isatty(), out.closed, out.writable(), out.readable(),
 out.buffer.mode, out.buffer.name, out.buffer.writable(), out.line_buffering, out.newlines)
"""

    assert environment.execute_code("s1", code).output == (
        "('utf-8',\n '<stdout>',\n 1,\n False,\n False,\n True,\n False,\n"
        " 'wb',\n '<stdout>',\n True,\n True,\n None)"
    )


def test_c_code_is_heard(environment: Environment) -> None:
    code = """
import ctypes
c = ctypes.CDLL(None)
c.printf(b"from C\\n"); c.fflush(None); c.perror(b"also")
"""

    heard = run(environment, code)

    assert heard.text() == "from C\n"
    assert heard.text("stderr").startswith("also: ")


def test_output_at_the_limit_of_recursion_is_complete(environment: Environment) -> None:
    code = """
import sys
count = 0
def descend():
    global count
    print("level", count, flush=count % 2)
    count += 1
    descend()
limit = sys.getrecursionlimit()
for depth in range(150, 170):
    sys.setrecursionlimit(depth)
    try: descend()
    except RecursionError: pass
    finally: sys.setrecursionlimit(limit)
print("counted", count)
"""

    text = run(environment, code).text()

    count = int(text.splitlines()[-1].split()[-1])
    missing = [n for n in range(count) if f"level {n}\n" not in text]
    assert count > 1000
    assert missing == []


def test_nothing_is_heard_of_an_empty_text(environment: Environment) -> None:
    heard = run(environment, "import sys; _ = sys.stdout.write(''), sys.stderr.write('')")

    assert heard.pieces == []
    assert [type(event).__name__ for event in heard.events] == [
        "StatusChanged",
        "ExecutionFinished",
    ]


def test_what_is_printed_while_the_kernel_ends_is_late_output(
    shared_environment: Environment, tmp_path: Path
) -> None:
    late: list[LateOutput] = []
    shared_environment.start_session(
        "ending", session_dir=tmp_path / "session", on_late_output=late.append
    )
    code = """
import atexit, weakref
class Thing:
    def __del__(self): print("deleted")
thing, other = Thing(), Thing()
weakref.finalize(thing, print, "finalized")
atexit.register(print, "left", end="")
"""

    shared_environment.execute_code("ending", code, exec_id="last")
    shared_environment.stop_session("ending")

    assert {event.execution_id for event in late} == {"last"}
    text = "".join(event.text for event in late)
    assert text.startswith("left")
    assert "finalized\n" in text
    assert text.count("deleted\n") == 2
