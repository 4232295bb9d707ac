"""Secrets are masked in all that code says, wherever it runs; a bare environment masks nothing."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import InputRequested, LateOutput, OutputProduced
from taskweaver_ext.ces.execution.results import ExecutionStatus
from taskweaver_ext.text.redaction import MASK, Redactor
from tests.support.executions import LIMIT_SECONDS, OpenEnvironment, run, whole_stdout

KEY = "sk-5up3r/s3cr3t+k3y"
HALVES = f"a, b = {KEY[:7]!r}, {KEY[7:]!r}"
"""Code that has the key without its being in the code."""


@pytest.fixture(scope="module")
def environment(
    open_environment: OpenEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("masking")
    redactor = Redactor([KEY], ["ghp_[a-z]{20}"])
    with open_environment(folder, redactor=redactor) as environment:
        environment.start_session("s1")
        environment.execute_code("s1", HALVES)
        yield environment


def test_output_is_masked_however_it_is_cut(environment: Environment) -> None:
    heard = run(
        environment,
        """
import sys
print('whole', a + b)
for character in a + b + '\\n':
    sys.stdout.write(character)
    sys.stdout.flush()
print('parts', a, end='')
print(b)
print('oops', a + b, file=sys.stderr)
print('ghp_' + 'x' * 20)
""",
    )

    expected = f"whole {MASK}\n{MASK}\nparts {MASK}\n{MASK}\n"
    assert heard.text() == "".join(heard.result.stdout) == expected
    assert heard.text("stderr") == "".join(heard.result.stderr) == f"oops {MASK}\n"
    said = [event.text for event in heard.events if isinstance(event, OutputProduced)]
    assert KEY not in "".join(said)


def test_a_long_record_is_masked_on_the_disk_and_says_what_was_delivered(
    environment: Environment,
) -> None:
    heard = run(
        environment, "for i in range(60_000):\n    print(i, a + b, 'and quite a few other words')"
    )

    lines = (f"{i} {MASK} and quite a few other words\n" for i in range(60_000))
    expected = "".join(lines)
    assert heard.result.full_output_paths
    assert whole_stdout(heard.result) == expected
    assert heard.text() == expected


@pytest.mark.parametrize(
    "code",
    [
        "a + b",
        "{'key': a + b, a + b: 1}",
        "from IPython.display import display; display({'text/html': f'<b>{a + b}</b>',"
        " 'application/json': {'x': [a + b]}}, raw=True)",
        "handle = display('x', display_id='d'); handle.update(a + b)",
        "raise ValueError(a + b)",
        "import sys; sys.exit(a + b)",
        "import base64; base64.b64encode(('user:' + a + b).encode())",
        "import json; print(json.dumps(a + b))",
        "from urllib.parse import quote; quote(a + b, safe='')",
        "import subprocess; subprocess.run(['echo', a + b])",
    ],
)  # fmt: skip
def test_nothing_that_code_says_has_the_key(environment: Environment, code: str) -> None:
    heard = run(environment, code)

    told = repr(heard.events) + repr(heard.result) + repr(heard.pieces)
    assert MASK in told
    for spelling in (KEY, KEY.replace("/", "%2F").replace("+", "%2B"), "NXVwM3Ivc"):
        assert spelling not in told


def test_a_picture_is_no_text(environment: Environment) -> None:
    code = (
        "from IPython.display import display; import base64\n"
        "picture = base64.b64encode(b'PNG ' + (a + b).encode()).decode()\n"
        "display({'image/png': picture, 'text/plain': picture}, raw=True)\n"
        "import hashlib; print(hashlib.sha256(picture.encode()).hexdigest())"
    )
    result = run(environment, code).result

    [display] = result.displays
    digest = hashlib.sha256(display.bundle["image/png"].encode()).hexdigest()
    assert "".join(result.stdout).strip() == digest
    assert MASK in display.bundle["text/plain"]


def test_a_prompt_is_masked_and_what_stands_before_it_is_there(environment: Environment) -> None:
    asked: list[str] = []
    events: list[object] = []

    def answer(prompt: str, _password: bool) -> str:
        asked.append(prompt)
        return "yes"

    code = "import sys\nsys.stdout.write('type sk')\nprint('', input(f'use {a + b}? '))"
    result = environment.execute_code("s1", code, on_input=answer, on_event=events.append)

    assert asked == [f"use {MASK}? "]
    texts = [event.text if isinstance(event, OutputProduced) else "" for event in events]
    [question] = [n for n, event in enumerate(events) if isinstance(event, InputRequested)]
    assert "".join(texts[:question]) == "type sk"
    assert "".join(result.stdout) == "type sk yes\n"


def test_what_may_begin_a_secret_is_shown_after_a_while_of_quiet(environment: Environment) -> None:
    shown = threading.Event()
    seen: list[str] = []

    def see(_stream: str, text: str) -> None:
        seen.append(text)
        if "".join(seen) == "sk-":
            shown.set()

    # Nothing else is said, so that nothing else has the caller's thread look around.
    code = "import sys, time; time.sleep(0.2)\nsys.stdout.write('sk-')\ntime.sleep(600)"

    def interrupt_when_shown() -> None:
        shown.wait(LIMIT_SECONDS)
        environment.interrupt("s1")

    thread = threading.Thread(target=interrupt_when_shown)
    thread.start()
    result = environment.execute_code("s1", code, on_output=see, timeout=LIMIT_SECONDS)
    thread.join()

    assert shown.is_set()
    assert result.status is ExecutionStatus.CANCELLED


def test_late_output_is_masked(open_environment: OpenEnvironment, tmp_path: Path) -> None:
    late: queue.Queue[LateOutput] = queue.Queue()
    with open_environment(tmp_path / "late", redactor=Redactor([KEY])) as environment:
        environment.start_session("s1", on_late_output=late.put)
        environment.execute_code(
            "s1",
            f"{HALVES}\nimport threading, time\n"
            "def tell():\n"
            "    gate.wait()\n"
            "    for part in ('late ', a, b, ' sk-'):\n"
            "        print(part, end='', flush=True)\n"
            "gate = threading.Event()\nthreading.Thread(target=tell).start()",
        )
        environment.execute_code("s1", "gate.set()")
        text = ""
        while text != f"late {MASK} sk-":
            text += late.get(timeout=LIMIT_SECONDS).text
        folder = tmp_path / "late"
        recorded = [path.read_text() for path in folder.rglob("*.late.stdout")]

    assert recorded == [f"late {MASK} sk-"]


def test_plugins_log_and_make_artifacts_without_secrets(environment: Environment) -> None:
    source = """
from taskweaver.plugin import Plugin, register_plugin

@register_plugin
class Teller(Plugin):
    def __call__(self, key):
        self.ctx.log("info", key, "uses " + key)
        name, path = self.ctx.create_artifact_path(key.replace("/", "_"), "a.txt", "file", key)
        with open(path, "w") as file:
            file.write(key)
        return path
"""
    environment.load_plugin("s1", "teller", source)

    result = run(environment, "path = teller(a + b)\nlen(open(path).read())").result

    assert result.output == str(len(KEY)), result.error
    assert result.log == [("info", MASK, f"uses {MASK}")]
    assert KEY not in repr(result.artifact)


@pytest.mark.local_only
def test_a_bare_environment_masks_nothing(tmp_path: Path) -> None:
    with Environment(tmp_path) as environment:
        environment.start_session("s1")

        assert environment.execute_code("s1", f"print({KEY!r})").stdout == [f"{KEY}\n"]
