"""Files that executions announce or display are kept in the session's folder, and nowhere else."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from taskweaver_ext.ces.execution import artifacts
from taskweaver_ext.ces.execution.artifacts import ArtifactStore
from taskweaver_ext.ces.execution.results import ExecutionId


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "kept", tmp_path / "cwd")


def announced(content: bytes | str, **more: str) -> dict[str, str]:
    encoded = base64.b64encode(content).decode() if isinstance(content, bytes) else content
    return {"id": "a1", "name": "table", "original_name": "t.csv", "content": encoded, **more}


def test_a_content_that_travelled_is_kept_as_a_file(store: ArtifactStore, tmp_path: Path) -> None:
    artifact = store.accept(announced(b"a,b\n"))

    assert artifact is not None
    assert artifact.mime_type == "text/csv"
    assert Path(artifact.file_name) == tmp_path / "kept" / "a1_t.csv"
    assert Path(artifact.file_name).read_bytes() == b"a,b\n"


def test_names_that_mean_something_to_a_path_do_not(store: ArtifactStore, tmp_path: Path) -> None:
    artifact = store.accept(announced(b"x", id="../../id", original_name="/etc/passwd"))

    assert artifact is not None
    assert Path(artifact.file_name).parent == tmp_path / "kept"


def test_a_content_that_is_too_large_or_garbled_is_refused(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "MAX_CONTENT_BYTES", 3)

    assert store.accept(announced(b"1234")) is None
    assert store.accept(announced("no base64!")) is None
    assert store.accept(announced(b"123")) is not None


def test_nothing_is_written_through_a_link(store: ArtifactStore, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a1_t.csv").symlink_to(victim)

    with pytest.raises(OSError, match="symbolic links"):
        store.accept(announced(b"x"))
    assert victim.read_bytes() == b"precious"


def test_the_images_of_a_display_become_files(store: ArtifactStore) -> None:
    bundle = {
        "image/png": base64.b64encode(b"png").decode(),
        "image/svg+xml": "<svg/>",
        "image/jpeg": "no base64: x",
        "text/plain": "<Figure>",
    }

    saved = store.save_images(ExecutionId("e1"), 2, bundle)

    assert [(a.name, a.type, a.preview) for a in saved] == [
        ("e1-2.png", "image", "<Figure>"),
        ("e1-2.svg", "svg", "<Figure>"),
    ]
    assert Path(saved[0].file_name).read_bytes() == b"png"
