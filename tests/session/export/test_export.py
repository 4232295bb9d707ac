"""An export is whole or not there, works while code runs, and costs no memory."""

from __future__ import annotations

import base64
import sys
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskweaver_ext.app import TaskWeaverApp
from taskweaver_ext.errors import ConfigError, SessionError
from taskweaver_ext.events.types import PostEventType, TaskWeaverEvent
from taskweaver_ext.session.export.export import ExportFormat, export_session, format_of
from taskweaver_ext.session.export.source import ExportSource
from tests.support.executions import LIMIT_SECONDS, wait_until
from tests.support.exported import exported, real_session, session_saying, source_of

FORMATS: list[ExportFormat] = ["ipynb", "md", "html"]


@pytest.mark.parametrize(("to", "breaks_at"), [("ipynb", 3), ("md", 3), ("html", 4)])
def test_what_fails_in_the_middle_leaves_what_was_there(
    tmp_path: Path, to: ExportFormat, breaks_at: int
) -> None:
    whole = session_saying("something", tmp_path)
    path = tmp_path / "exported"
    path.write_text("before")
    reads = 0

    def read() -> Iterator[TaskWeaverEvent]:
        nonlocal reads
        reads += 1
        yield from list(whole.read())[:-3]
        if reads == breaks_at:
            raise OSError(5, "Input/output error")

    broken = ExportSource(session_id="s1", folder=tmp_path, read=read)
    with pytest.raises(SessionError, match="cannot be written: .*Input/output error"):
        export_session(broken, path, to, replaces=True)

    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["exported"]


@pytest.mark.parametrize("to", FORMATS)
def test_a_session_is_exported_while_its_code_runs(tmp_path: Path, to: ExportFormat) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        submitted = session.submit_code("python", "print('begun')\nwhile True: pass")
        written = PostEventType.post_execution_output
        wait_until(lambda: any(event.t is written for event in session.emitter.events()))
        text = exported(source_of(session), to)
        submitted.cancel()
        submitted.wait(LIMIT_SECONDS)

    assert "begun" in text


@pytest.mark.parametrize("to", FORMATS)
def test_much_output_is_shortened_and_costs_no_memory(tmp_path: Path, to: ExportFormat) -> None:
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", "for i in range(300_000): print('a line with a number', i)")
        exported(source_of(session), to)  # what is imported counts only once
        tracemalloc.start()
        try:
            text = exported(source_of(session), to)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak < 32_000_000
    assert len(text) < 200_000
    assert "left out; whole output: ces/output/" in text
    assert "a line with a number 0" in text
    assert "a line with a number 299999" in text


def test_secrets_that_were_masked_stay_masked(tmp_path: Path) -> None:
    secret = "sk-very-secret-value-1234567890"
    with TaskWeaverApp(tmp_path, {"llm.api_key": secret}) as app:
        session = app.get_session()
        session.run_code("python", "key = 'sk-very-secret' + '-value-1234567890'; print(key); key")
        texts = [exported(source_of(session), to) for to in FORMATS]
        session.export(tmp_path / "b.zip", with_files=True)
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        texts += [bundle.read(name).decode() for name in bundle.namelist()]

    assert not any(secret in text for text in texts)
    assert all("masked" in text for text in texts[:3])


def test_a_page_shows_everything_that_was_shown(tmp_path: Path) -> None:
    with real_session(tmp_path) as session:
        page = exported(source_of(session), "html")

    assert "<td>Ada</td>" in page
    assert "<strong>42</strong>" in page
    assert "some <em>words</em>" in page
    assert page.count("data:image/png;base64,") == 1
    assert "ZeroDivisionError" in page
    assert "who? Ada" in page
    assert "from bash" in page


def test_large_pictures_come_from_the_files_that_hold_them(tmp_path: Path) -> None:
    source = "import os\nfrom IPython.display import Image\ndata = os.urandom(100_000)\n"
    source += "open('picture', 'wb').write(data)\nImage(data=data, format='png')"
    with TaskWeaverApp(tmp_path) as app:
        session = app.get_session()
        session.run_code("python", source)
        picture = base64.b64encode((session.cwd / "picture").read_bytes()).decode()
        texts = [exported(source_of(session), to) for to in FORMATS]
        [file] = (session.session_dir / "displays").iterdir()
        file.unlink()
        without = [exported(source_of(session), to) for to in FORMATS]

    assert all(picture in text for text in texts)
    assert all(f"displays/{file.name}" in text for text in without)


def test_html_says_what_to_install_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("taskweaver_ext.session.export")]:
        monkeypatch.delitem(sys.modules, name) if "html" in name else None
    monkeypatch.setitem(sys.modules, "nh3", None)

    with pytest.raises(ConfigError, match=r"HTML needs nh3.*taskweaver_ext\[export\]"):
        exported(session_saying("x", tmp_path), "html")


def test_a_name_says_the_format() -> None:
    names = ["a.ipynb", "b.MD", "c.html", "d.htm", "e.zip"]

    assert [format_of(Path(name)) for name in names] == ["ipynb", "md", "html", "html", "bundle"]
    with pytest.raises(ConfigError, match="Let its name end in"):
        format_of(Path("noending"))
