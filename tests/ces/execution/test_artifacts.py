"""Files that executions announce or display are kept in the session's folder, and nowhere else."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from taskweaver_ext.ces.execution import artifacts
from taskweaver_ext.ces.execution.artifacts import INCOMPLETE, ArtifactStore
from taskweaver_ext.ces.execution.results import ExecutionArtifact, ExecutionId


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "kept", tmp_path / "cwd")


def announced(content: bytes | str, **more: object) -> dict[str, object]:
    encoded = base64.b64encode(content).decode() if isinstance(content, bytes) else content
    return {"id": "a1", "name": "table", "original_name": "t.csv", "content": encoded, **more}


def test_a_content_that_travelled_is_kept_as_a_file(store: ArtifactStore, tmp_path: Path) -> None:
    artifact = store.accept(announced(b"a,b\n"))

    assert isinstance(artifact, ExecutionArtifact)
    assert artifact.mime_type == "text/csv"
    assert Path(artifact.file_name) == tmp_path / "kept" / "a1_t.csv"
    assert Path(artifact.file_name).read_bytes() == b"a,b\n"


def test_names_that_mean_something_to_a_path_do_not(store: ArtifactStore, tmp_path: Path) -> None:
    artifact = store.accept(announced(b"x", id="../../id", original_name="/etc/passwd"))

    assert isinstance(artifact, ExecutionArtifact)
    assert Path(artifact.file_name).parent == tmp_path / "kept"


def test_a_content_that_is_too_large_or_garbled_is_refused(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "MAX_CONTENT_BYTES", 3)

    assert store.accept(announced(b"1234")) is None
    assert store.accept(announced("no base64!")) is None
    assert store.accept(announced(b"123")) is not None


def test_a_content_that_comes_in_pieces_is_put_together(store: ArtifactStore) -> None:
    first = store.accept(announced(b"abc", offset=0, size=5))
    whole = store.accept(announced(b"de", offset=3, size=5))

    assert first == INCOMPLETE
    assert isinstance(whole, ExecutionArtifact)
    assert Path(whole.file_name).read_bytes() == b"abcde"


@pytest.mark.parametrize(
    ("offset", "size"), [(-3, 5), (2, 5), (4, 5), (3, 4), (3.0, 5), (3, "5"), (3, 1 << 40)]
)
def test_a_piece_that_is_not_the_next_is_refused(
    store: ArtifactStore, offset: object, size: object
) -> None:
    store.accept(announced(b"abc", offset=0, size=5))

    assert store.accept(announced(b"de", offset=offset, size=size)) is None


def test_few_files_are_waited_for_at_a_time(store: ArtifactStore) -> None:
    begun = [store.accept(announced(b"a", id=str(n), offset=0, size=2)) for n in range(100)]

    assert begun.count(INCOMPLETE) == 16


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

    saved = store.save_images(ExecutionId("e1"), 2, bundle, {})

    assert [(a.name, a.type, a.preview) for a in saved] == [
        ("e1-2.png", "image", "<Figure>"),
        ("e1-2.svg", "svg", "<Figure>"),
    ]
    assert Path(saved[0].file_name).read_bytes() == b"png"
