"""Export a session: to a file of one of a few formats, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeAlias, get_args

from taskweaver_ext.errors import ConfigError, SessionError
from taskweaver_ext.machine.private_files import make_private_folder, open_private
from taskweaver_ext.session.export.bundle import write_bundle
from taskweaver_ext.session.export.markdown import AddPicture, data_address, markdown_pieces
from taskweaver_ext.session.export.notebook import notebook_pieces
from taskweaver_ext.session.export.source import ExportSource

ExportFormat: TypeAlias = Literal["ipynb", "md", "html", "bundle"]
SUFFIXES: dict[ExportFormat, str] = {
    "ipynb": ".ipynb",
    "md": ".md",
    "html": ".html",
    "bundle": ".zip",
}
_OTHER_SUFFIXES: dict[str, ExportFormat] = {".markdown": "md", ".htm": "html"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export has made."""

    path: Path
    notes: tuple[str, ...] = ()
    """What a person should know: files beside it, files left out."""


def format_of(path: Path) -> ExportFormat:
    """The format that a file's name asks for.

    Raises:
        ConfigError: It asks for none that there is.
    """
    known = {**_OTHER_SUFFIXES, **{suffix: name for name, suffix in SUFFIXES.items()}}
    found = known.get(path.suffix.lower())
    if found is None:
        raise ConfigError(
            f"What {path.name!r} is to be is not known. Let its name end in"
            f" {', '.join(SUFFIXES.values())}, or say which of {', '.join(get_args(ExportFormat))}."
        )
    return found


def text_pieces(
    source: ExportSource, to: ExportFormat, add_picture: AddPicture = data_address
) -> Iterator[str]:
    """Yield the text of an export, piece by piece.

    Args:
        add_picture: Of Markdown: keeps a picture; by default it becomes part of the text.

    Raises:
        ConfigError: The format is no text, or something it needs is not installed.
    """
    match to:
        case "ipynb":
            return notebook_pieces(source)
        case "md":
            return markdown_pieces(source, add_picture)
        case "html":
            return _page_pieces(source)
        case _:
            raise ConfigError("A bundle is no text: give it a file with -o.")


def export_session(
    source: ExportSource,
    path: Path,
    to: ExportFormat,
    *,
    replaces: bool = False,
    with_files: bool = False,
    with_variables: bool = False,
) -> Exported:
    """Write a session to a file, for its owner alone; until it is whole, nothing is there.

    Args:
        replaces: Whether a file that is there may be replaced.
        with_files: Of a bundle: with everything in the session's own working folder.
        with_variables: Of a bundle: with the snapshot of the variables.

    Raises:
        ConfigError: The file is there already, or something the format needs is not installed.
        SessionError: It cannot be written, or the session has nothing to export.
    """
    pictures = path.parent / f"{path.stem}_files"
    beside, notes = _PicturesBeside(pictures), tuple[str, ...]()
    try:
        _check_place(path, [path, pictures] if to == "md" else [path], replaces=replaces)
        with _appearing(path) as file:
            if to == "bundle":
                notes = write_bundle(
                    source, file, with_files=with_files, with_variables=with_variables
                )
            else:
                for piece in text_pieces(source, to, beside.add):
                    file.write(piece.encode("utf-8", "replace"))
        if beside.written:
            notes = (f"its pictures are in {pictures}; keep them beside it",)
    except BaseException as error:
        beside.discard()
        if not isinstance(error, OSError):
            raise
        raise SessionError(f"{path} cannot be written: {error}") from error
    return Exported(path=path, notes=notes)


def _check_place(path: Path, made: list[Path], *, replaces: bool) -> None:
    if path.is_dir():
        raise ConfigError(f"{path} is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise ConfigError(f"There is no folder {path.parent}. Make it first, or name another file.")
    for place in made:
        if place.exists() and not replaces:
            raise ConfigError(
                f"{place} is there already. Use --force (`replaces=True`) to replace it."
            )


class _PicturesBeside:
    """Writes pictures into a folder beside a text, once there is one."""

    def __init__(self, folder: Path) -> None:
        self.written: list[Path] = []
        self._folder = folder

    def add(self, name: str, content: bytes) -> str:
        """Write a picture, and return its address from the text."""
        make_private_folder(self._folder)
        self.written.append(self._folder / name)
        with open(open_private(self.written[-1], os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(content)
        return f"<{self._folder.name}/{name}>"

    def discard(self) -> None:
        """Remove the pictures: there is no text that shows them."""
        for path in self.written:
            path.unlink(missing_ok=True)
        if self.written:
            with contextlib.suppress(OSError):  # it holds other files
                self._folder.rmdir()


@contextlib.contextmanager
def _appearing(path: Path) -> Iterator[IO[bytes]]:
    """A file that is at `path` once the block has ended well, and nowhere if it has not."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(open_private(temporary, os.O_WRONLY | os.O_EXCL), "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _page_pieces(source: ExportSource) -> Iterator[str]:
    try:
        from taskweaver_ext.session.export.html_page import page_pieces
    except ImportError as error:
        raise ConfigError(
            f"HTML needs {error.name}, which is not installed. Install it with:"
            " pip install 'taskweaver_ext[export]'"
        ) from error
    return page_pieces(source)
