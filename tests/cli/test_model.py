"""`model fetch`, with a model that is there already."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from taskweaver_ext.cli import model
from taskweaver_ext.llm.fetch import FetchProgress, ModelDownload
from tests.support.command_line import exit_code_of


@pytest.fixture
def download(monkeypatch: pytest.MonkeyPatch) -> ModelDownload:
    """A model of five bytes in no parts."""
    small = ModelDownload(
        title="Tiny",
        file_name="tiny.gguf",
        requirements=(),
        member_pattern="x",
        size_bytes=5,
        sha256="x",
    )
    monkeypatch.setattr(model, "QWEN_CODER", small)
    return small


def test_a_model_that_is_there_is_named_with_the_setting_that_uses_it(
    tmp_path: Path, download: ModelDownload, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / download.file_name
    path.write_bytes(b"12345")

    assert exit_code_of("model", "fetch", "--folder", str(tmp_path)) == 0

    shown = capsys.readouterr()
    assert shown.out == f"{path}\n"
    assert f'"llm.api_type": "local", "llm.model": "{path}"' in shown.err
    assert "pip install" not in shown.err


def test_the_package_that_runs_it_is_named_where_it_is_missing(
    tmp_path: Path,
    download: ModelDownload,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / download.file_name).write_bytes(b"12345")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert exit_code_of("model", "fetch", "--folder", str(tmp_path)) == 0

    assert "pip install 'taskweaver_ext[local]'" in capsys.readouterr().err


def test_a_project_can_be_set_to_it_and_keeps_its_other_settings(
    tmp_path: Path, download: ModelDownload
) -> None:
    (tmp_path / download.file_name).write_bytes(b"12345")
    settings = tmp_path / "taskweaver_config.json"
    settings.write_text(
        '{"llm.api_key": "k", "llm.model": "gpt", "execution_service.kernel_mode": "local"}'
    )

    assert exit_code_of("model", "fetch", "--folder", str(tmp_path), "-p", str(tmp_path)) == 0

    assert json.loads(settings.read_text()) == {
        "llm.api_key": "k",
        "llm.api_type": "local",
        "llm.model": str(tmp_path / download.file_name),
        "execution_service.kernel_mode": "local",
    }


def test_its_size_is_said_before_a_download_begins(
    tmp_path: Path,
    download: ModelDownload,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetch(*_: object, on_progress: object, **__: object) -> Path:
        assert "5 bytes" in capsys.readouterr().err
        assert callable(on_progress)
        on_progress(FetchProgress(received_bytes=5, total_bytes=5, parts_done=1, part_count=1))
        return tmp_path / download.file_name

    monkeypatch.setattr(model, "fetch_model", fetch)

    assert exit_code_of("model", "fetch", "--yes", "--folder", str(tmp_path)) == 0
    assert "100 %" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "exit_code"), [("n\n", 1), ("\n", 1), ("", 2)])
def test_nothing_is_downloaded_without_a_yes_also_where_there_is_no_terminal(
    tmp_path: Path,
    download: ModelDownload,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    exit_code: int,
) -> None:
    downloads: list[object] = []
    monkeypatch.setattr(model, "fetch_model", lambda *given, **_: downloads.append(given))
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))

    assert exit_code_of("model", "fetch", "--folder", str(tmp_path)) == exit_code
    assert downloads == []


def test_a_yes_through_a_pipe_is_one(
    tmp_path: Path, download: ModelDownload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "fetch_model", lambda *_, **__: tmp_path / download.file_name)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    assert exit_code_of("model", "fetch", "--folder", str(tmp_path)) == 0


def test_ctrl_c_at_the_question_is_no_misuse(
    tmp_path: Path, download: ModelDownload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_question: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupt)

    assert exit_code_of("model", "fetch", "--folder", str(tmp_path)) == 130
