"""Displays of many megabytes arrive whole in every place, and what is too large is said."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from taskweaver_ext.ces.environment import Environment
from taskweaver_ext.ces.execution.events import DisplayProduced, DisplayUpdated, ExecutionEvent
from taskweaver_ext.ces.execution.executor import RunOptions
from taskweaver_ext.ces.execution.results import ExecutionResult
from taskweaver_ext.text.redaction import MASK, Redactor
from tests.support.executions import LIMIT_SECONDS, MemoryWatch, OpenEnvironment, run

SIZE = 13_000_000
"""More than a message may have."""
DISPLAY = "from IPython.display import display, update_display\n"


def shown(events: list[ExecutionEvent]) -> Iterator[DisplayProduced | DisplayUpdated]:
    return (e for e in events if isinstance(e, DisplayProduced | DisplayUpdated))


def test_a_large_picture_is_given_whole_and_saved(environment: Environment) -> None:
    code = f"""{DISPLAY}
import base64, hashlib, os
content = os.urandom({SIZE})
display({{"image/png": base64.b64encode(content).decode(), "text/plain": "pic"}}, raw=True)
hashlib.sha256(content).hexdigest()
"""

    heard = run(environment, code)

    event = next(shown(heard.events))
    content = base64.b64decode(event.bundle["image/png"])
    assert hashlib.sha256(content).hexdigest() == heard.result.output.strip("'")
    assert (event.bundle["text/plain"], event.files) == ("pic", {})
    assert heard.result.displays[0].bundle == event.bundle
    (artifact,) = heard.result.artifact
    assert Path(artifact.file_name).read_bytes() == content
    assert heard.result.notices == []


def test_a_large_text_is_given_whole_as_value_and_as_update(environment: Environment) -> None:
    code = f"""{DISPLAY}
class Page:
    def _repr_html_(self): return "<p>é€😀\\r\\n" * {SIZE // 16}
display("small", display_id="d1")
update_display(Page(), display_id="d1")
Page()
"""

    heard = run(environment, code)

    _, updated, value = shown(heard.events)
    page = "<p>é€😀\r\n" * (SIZE // 16)
    assert updated.bundle["text/html"] == value.bundle["text/html"] == page


def test_a_list_in_json_is_given_whole(environment: Environment) -> None:
    code = f"{DISPLAY}display({{'application/json': list(range(500_000))}}, raw=True)"

    heard = run(environment, code)

    (event,) = shown(heard.events)
    (display,) = heard.result.displays
    assert event.bundle == {"application/json": list(range(500_000))}
    with open(display.files["application/json"]) as file:  # too many values for a result
        assert json.load(file) == list(range(500_000))


def test_what_is_larger_than_a_display_may_be_is_said_once(environment: Environment) -> None:
    code = f"{DISPLAY}display({{'text/html': 'x' * 70_000_000, 'text/plain': 'p'}}, raw=True)"

    heard = run(environment, code)

    (event,) = shown(heard.events)
    (notice,) = heard.result.notices
    assert event.bundle["text/html"].endswith("more characters are left out]")
    assert "text/html of 70,000,000 bytes was cut or left out" in notice.message
    assert "Write it to a file" in notice.message


def test_parts_count_towards_what_code_may_write(tmp_path: Path) -> None:
    with Environment(tmp_path, max_output_bytes=20_000_000) as environment:
        environment.start_session("s1")
        code = f"{DISPLAY}\nwhile True: display({{'text/html': 'x' * 5_000_000}}, raw=True)"
        result = environment.execute_code("s1", code, timeout=LIMIT_SECONDS)

    assert "OUTPUT_LIMIT" in (result.error or "")


def _run_in_files(environment: Environment, code: str) -> tuple[ExecutionResult, list[str]]:
    files: list[str] = []

    def on_event(event: ExecutionEvent) -> None:
        if isinstance(event, DisplayProduced | DisplayUpdated):
            files.extend(event.files.values())

    options = RunOptions(on_event=on_event, record_on_disk=True, timeout=LIMIT_SECONDS)
    return environment.run("s1", code, options), files


def test_in_files_a_display_costs_the_client_a_few_pieces(environment: Environment) -> None:
    code = f"{DISPLAY}display({{'text/html': 'x' * 60_000_000}}, raw=True)"
    _run_in_files(environment, code)  # whatever else grows at first has grown
    memory = MemoryWatch(os.getpid())

    result, (file,) = _run_in_files(environment, code)

    assert memory.growth() < 16 << 20
    assert Path(file).stat().st_size == 60_000_000
    assert result.notices == []
    assert result.displays[0].files == {"text/html": file}


def test_files_of_displays_are_masked_where_pieces_cut_a_secret(
    open_environment: OpenEnvironment, tmp_path: Path
) -> None:
    secret = "s3cr3t-of-some-length"
    with open_environment(tmp_path, redactor=Redactor([secret])) as environment:
        environment.start_session("s1")
        code = f"""{DISPLAY}
secret = "s3cr3t-" + "of-some-length"
display({{"text/html": "x" * ((1 << 20) - 5) + secret + "y" * (1 << 20)}}, raw=True)
"""
        _, (file,) = _run_in_files(environment, code)

        expected = "x" * ((1 << 20) - 5) + MASK + "y" * (1 << 20)
        assert Path(file).read_text() == expected


def test_files_that_nothing_names_are_removed(environment: Environment) -> None:
    code = f"{DISPLAY}display({{'text/html': 'x' * {SIZE}}}, raw=True)"
    _, (file,) = _run_in_files(environment, code)

    result = environment.execute_code("s1", code, timeout=LIMIT_SECONDS)

    assert len(result.displays[0].bundle["text/html"]) == SIZE
    assert Path(file).exists()
    assert not list(Path(file).parent.glob(f"{result.execution_id}.display-*"))
