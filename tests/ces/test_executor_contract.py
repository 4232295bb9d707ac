"""What every executor promises, whatever the language: one suite, run against all of them."""

from __future__ import annotations

import functools
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import (
    ExecutionEvent,
    ExecutionFinished,
    OutputProduced,
    StatusChanged,
)
from taskweaver_ext.ces.execution.executor import Executor
from taskweaver_ext.ces.execution.results import ExecutionResult, ExecutionStatus
from taskweaver_ext.ces.executors import ExecutorRegistry
from taskweaver_ext.ces.kernels.container.description import ContainerSettings
from taskweaver_ext.errors import SessionError
from tests.support.containers import container_environment
from tests.support.executions import LIMIT_SECONDS, has_ended, wait_until, with_enough_time
from tests.support.needs import require_node

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Dialect:
    """The same small programs in one language."""

    both_streams: str
    """Prints "out" and then, on standard error, "err"."""
    wait_for_gate: str
    """Prints "waiting", then waits until the file GATE exists."""
    forever: str
    """Prints "begun" and its process id, then never ends."""
    forever_with_child: str
    """Prints "begun" and the id of a child process, then waits for it without end."""
    exit_three: str
    split_character: str
    """Writes the bytes of "€" in two pieces."""
    read_line: str
    """Prints the first line of its input, or fails for want of one."""
    print_lines: str
    """Prints the numbers from 1 to COUNT."""


PYTHON = Dialect(
    both_streams="import sys; print('out'); print('err', file=sys.stderr)",
    wait_for_gate="""
import pathlib, time
print("waiting", flush=True)
while not pathlib.Path("GATE").exists():
    time.sleep(0.01)
""",
    forever="""
import os, time
print(f"begun {os.getpid()}", flush=True)
while True:
    time.sleep(0.01)
""",
    forever_with_child="""
import subprocess
child = subprocess.Popen(["sleep", "1000"])
print(f"begun {child.pid}", flush=True)
child.wait()
""",
    exit_three="import sys; sys.exit(3)",
    split_character="""
import os, time
os.write(1, b"\\xe2\\x82"); time.sleep(0.05); os.write(1, b"\\xac\\n")
""",
    read_line="print(input())",
    print_lines="print('\\n'.join(map(str, range(1, COUNT + 1))))",
)
BASH = Dialect(
    both_streams="echo out; echo err >&2",
    wait_for_gate="echo waiting; until [ -e 'GATE' ]; do sleep 0.01; done",
    forever="echo begun $$; while :; do sleep 0.01; done",
    forever_with_child="sleep 1000 & echo begun $!; wait",
    exit_three="(exit 3)",
    split_character="printf '\\xe2\\x82'; sleep 0.05; printf '\\xac\\n'",
    read_line='read line && echo "$line"',
    print_lines="seq 1 COUNT",
)
JAVASCRIPT = Dialect(
    both_streams="console.log('out'); console.error('err')",
    wait_for_gate="""
console.log("waiting");
const timer = setInterval(() => {
  if (require("fs").existsSync("GATE")) clearInterval(timer);
}, 10);
""",
    forever='console.log("begun", process.pid); setInterval(() => {}, 1000)',
    forever_with_child="""
const child = require("child_process").spawn("sleep", ["1000"]);
console.log("begun", child.pid);
""",
    exit_three="process.exit(3)",
    split_character="""
const fs = require("fs");
fs.writeSync(1, Buffer.from([0xe2, 0x82]));
setTimeout(() => fs.writeSync(1, Buffer.from([0xac, 0x0a])), 50);
""",
    read_line="""
const text = require("fs").readFileSync(0, "utf8");
if (!text) process.exit(1);
console.log(text.split("\\n")[0]);
""",
    print_lines="for (let i = 1; i <= COUNT; i++) console.log(i)",
)


@dataclass
class Subject:
    """An executor, its language, and the log it writes."""

    executor: Executor
    code: Dialect
    audit_path: Path
    folder: Path
    """What the code can see, too."""
    has_ended: Callable[[int], bool] = has_ended
    """Whether a process is gone whose number the code has printed."""


LOCAL = [
    pytest.param(("local", "python", False, PYTHON), id="kernel"),
    pytest.param(("local", "bash", False, BASH), id="shell"),
    pytest.param(("local", "python", True, PYTHON), id="python"),
    pytest.param(("local", "bash", True, BASH), id="bash"),
    pytest.param(("local", "javascript", True, JAVASCRIPT), id="javascript"),
]
CONTAINED = [
    pytest.param(("ipc", "bash", False, BASH), id="shell in a container"),
    pytest.param(("ipc", "python", True, PYTHON), id="python in a container"),
    pytest.param(("ipc", "bash", True, BASH), id="bash in a container"),
    pytest.param(("tcp", "bash", False, BASH), id="shell behind ports"),
    pytest.param(("tcp", "bash", True, BASH), id="bash behind ports"),
]


@dataclass
class Kind:
    """A kind of executor, and an environment for the session "contract" that it needs."""

    environment: Environment
    language: str
    fresh: bool
    code: Dialect
    is_contained: bool


@pytest.fixture(scope="module", params=[*LOCAL, *CONTAINED])
def kind(
    request: pytest.FixtureRequest,
    shared_environment: Environment,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kind]:
    where, language, fresh, code = request.param
    if language == "javascript":
        require_node()
    if where == "local":
        yield Kind(shared_environment, language, fresh, code, is_contained=False)
        return
    folder = tmp_path_factory.mktemp("contained")
    with container_environment(folder, ContainerSettings(transport=where)) as environment:
        environment.start_session("contract")
        assert not _has_ended_inside(environment, 1)  # the line to its programs is open from now on
        yield Kind(environment, language, fresh, code, is_contained=True)


@pytest.fixture
def subject(kind: Kind, tmp_path: Path) -> Iterator[Subject]:
    records = tmp_path / "records"
    with ExecutorRegistry(kind.environment, "contract", folder=records) as registry:
        executor = registry.get(kind.language, fresh=kind.fresh)
        subject = Subject(executor, kind.code, records / "audit.jsonl", tmp_path)
        if kind.is_contained:
            [session] = kind.environment.sessions()
            subject.folder = Path(session.cwd)
            subject.has_ended = functools.partial(_has_ended_inside, kind.environment)
        yield subject


def _has_ended_inside(environment: Environment, pid: int) -> bool:
    with environment.programs("contract") as site:
        return not site.has_file(f"/proc/{pid}")


class Ears:
    """Callbacks that keep what they hear and can act on the first of it."""

    def __init__(self, on_first: Callable[[], object] = lambda: None) -> None:
        self.pieces: list[tuple[str, str]] = []
        self.threads: set[int] = set()
        self._on_first = on_first

    def __call__(self, stream: str, text: str) -> None:
        self.threads.add(threading.get_ident())
        self.pieces.append((stream, text))
        if len(self.pieces) == 1:
            self._on_first()

    def text(self, stream: str) -> str:
        return "".join(text for name, text in self.pieces if name == stream)


def execute(subject: Subject, code: str, **options: object) -> ExecutionResult:
    options.setdefault("timeout", LIMIT_SECONDS)
    return subject.executor.execute(code, **options)  # type: ignore[arg-type]  # checked there


def test_both_streams_are_heard_and_kept_apart(subject: Subject) -> None:
    ears = Ears()

    result = execute(subject, subject.code.both_streams, on_output=ears)

    assert result.status is ExecutionStatus.SUCCESS
    assert result.error is None
    assert ("".join(result.stdout), "".join(result.stderr)) == ("out\n", "err\n")
    assert (ears.text("stdout"), ears.text("stderr")) == ("out\n", "err\n")


def test_output_arrives_while_the_code_still_runs(subject: Subject) -> None:
    gate = subject.folder / f"gate-{uuid.uuid4().hex}"
    code = subject.code.wait_for_gate.replace("GATE", str(gate))

    result = execute(subject, code, on_output=Ears(on_first=gate.touch))

    assert result.status is ExecutionStatus.SUCCESS
    assert "".join(result.stdout) == "waiting\n"


def test_callbacks_come_on_the_thread_of_whoever_called(subject: Subject) -> None:
    ears = Ears()

    execute(subject, subject.code.both_streams, on_output=ears)

    assert ears.threads == {threading.get_ident()}


def test_a_callback_that_raises_does_not_stop_the_code(subject: Subject) -> None:
    def fail(_stream: str, _text: str) -> None:
        raise RuntimeError("the display is broken")

    result = execute(subject, subject.code.both_streams, on_output=fail)

    assert result.status is ExecutionStatus.SUCCESS
    assert "".join(result.stdout) == "out\n"


def test_events_tell_the_output_and_end_with_the_end(subject: Subject) -> None:
    events: list[ExecutionEvent] = []

    result = execute(subject, subject.code.both_streams, on_event=events.append)

    said = "".join(
        event.text
        for event in events
        if isinstance(event, OutputProduced) and event.stream == "stdout"
    )
    assert said == "out\n"
    assert events[0] == StatusChanged(execution_id=result.execution_id, status="running")
    assert isinstance(events[-1], ExecutionFinished)
    assert events[-1].status is ExecutionStatus.SUCCESS
    assert {event.execution_id for event in events} == {result.execution_id}


def test_an_exit_code_other_than_zero_is_an_error(subject: Subject) -> None:
    result = execute(subject, subject.code.exit_three)

    assert result.status is ExecutionStatus.ERROR
    assert result.exit_code == 3
    assert result.error


def test_a_character_split_between_writes_survives(subject: Subject) -> None:
    ears = Ears()

    result = execute(subject, subject.code.split_character, on_output=ears)

    assert "".join(result.stdout) == "€\n"
    assert ears.text("stdout") == "€\n"


def test_input_is_what_was_given(subject: Subject) -> None:
    result = execute(subject, subject.code.read_line, stdin="naïve\nsecond\n")

    assert result.status is ExecutionStatus.SUCCESS
    assert "naïve\n" in "".join(result.stdout)


def test_input_that_was_not_given_has_its_end_at_once(subject: Subject) -> None:
    result = execute(subject, subject.code.read_line)

    assert result.status is ExecutionStatus.ERROR


def test_a_timeout_keeps_the_output_and_ends_the_code(subject: Subject) -> None:
    result = with_enough_time(
        lambda seconds: execute(subject, subject.code.forever_with_child, timeout=seconds),
        lambda result: "".join(result.stdout).split()[1:],
    )

    assert result.status is ExecutionStatus.TIMEOUT
    assert "".join(result.stdout).startswith("begun")
    child = int("".join(result.stdout).split()[1])
    wait_until(lambda: subject.has_ended(child))
    assert execute(subject, subject.code.both_streams).status is ExecutionStatus.SUCCESS


def test_an_interrupt_ends_the_code_and_its_children(subject: Subject) -> None:
    ears = Ears(on_first=subject.executor.interrupt)

    result = execute(subject, subject.code.forever_with_child, on_output=ears)

    assert result.status is ExecutionStatus.CANCELLED
    child = int("".join(result.stdout).split()[1])
    wait_until(lambda: subject.has_ended(child))
    assert execute(subject, subject.code.both_streams).status is ExecutionStatus.SUCCESS


def test_an_interrupt_may_come_from_another_thread(subject: Subject) -> None:
    def start_interrupting() -> None:
        threading.Thread(target=subject.executor.interrupt).start()

    result = execute(subject, subject.code.forever, on_output=Ears(on_first=start_interrupting))

    assert result.status is ExecutionStatus.CANCELLED


def test_an_interrupt_without_anything_to_interrupt_does_nothing(subject: Subject) -> None:
    execute(subject, subject.code.both_streams)

    subject.executor.interrupt()

    assert execute(subject, subject.code.both_streams).status is ExecutionStatus.SUCCESS


def test_a_long_output_is_trimmed_in_the_result_and_whole_in_a_file(subject: Subject) -> None:
    count = 400_000
    ears = Ears()

    result = execute(subject, subject.code.print_lines.replace("COUNT", str(count)), on_output=ears)

    whole = "".join(f"{number}\n" for number in range(1, count + 1))
    assert result.status is ExecutionStatus.SUCCESS
    assert result.full_output_paths["stdout"].read_text() == whole
    assert sum(map(len, result.stdout)) <= MEGABYTE
    assert whole.startswith(result.stdout[0])
    assert whole.endswith(result.stdout[-1])
    assert [notice.kind for notice in result.notices] == ["truncated"]
    assert ears.text("stdout") == whole


def test_an_execution_has_the_id_it_was_given(subject: Subject) -> None:
    result = execute(subject, subject.code.both_streams, execution_id="mine")

    assert result.execution_id == "mine"


def test_an_id_that_is_no_name_of_a_file_is_refused(subject: Subject) -> None:
    with pytest.raises(SessionError, match="cannot name an execution"):
        execute(subject, subject.code.both_streams, execution_id="../elsewhere")


def test_every_execution_is_in_the_audit_log(subject: Subject) -> None:
    execute(subject, subject.code.exit_three, execution_id="mine")

    entries = [json.loads(line) for line in subject.audit_path.read_text().splitlines()]
    assert [(entry["event"], entry["execution_id"]) for entry in entries] == [
        ("started", "mine"),
        ("ended", "mine"),
    ]
    assert entries[0]["code"] == subject.code.exit_three
    assert entries[0]["who"] == "contract"
    assert (entries[1]["status"], entries[1]["exit_code"]) == ("error", 3)


def test_executions_from_two_threads_all_come_to_their_end(subject: Subject) -> None:
    results: list[ExecutionResult] = []

    def run() -> None:
        results.append(execute(subject, subject.code.both_streams))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)

    assert ["".join(result.stdout) for result in results] == ["out\n", "out\n"]


def test_a_closed_executor_refuses_to_run(subject: Subject) -> None:
    subject.executor.close()

    with pytest.raises(SessionError, match="closed"):
        execute(subject, subject.code.both_streams)
