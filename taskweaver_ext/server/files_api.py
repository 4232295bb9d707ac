"""The working folder of a session: listed, downloaded, uploaded to; never beyond it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from taskweaver_ext.ces.execution.files_beneath import (
    list_files,
    open_beneath,
    opened_folder,
    path_parts,
)
from taskweaver_ext.errors import SessionError
from taskweaver_ext.server import api
from taskweaver_ext.server.failures import RefusedError
from taskweaver_ext.server.limits import refuse_large, too_large
from taskweaver_ext.server.routes import Call, Operation
from taskweaver_ext.server.safe_content import file_response
from taskweaver_ext.server.served_session import ServedSession
from taskweaver_ext.server.served_sessions import ServedSessions

_MAX_NAME_BYTES = 255
_NANOSECONDS = 1e9


class FilesApi:
    """What can be asked about the files of a session.

    Threads:
        Answers are made on threads that may wait; uploads are read on the event loop, and written
        on such threads.
    """

    def __init__(self, sessions: ServedSessions, max_upload: int) -> None:
        self._sessions = sessions
        self._max_upload = max_upload

    def operations(self) -> tuple[Operation, ...]:
        """The table of what is answered here."""
        folder = "/sessions/{session_id}/files"
        return (
            Operation(
                method="GET",
                path=folder,
                summary="List the files of the working folder; links are left out.",
                answer=self.list,
                returns=api.FileList,
                refusals=(404,),
            ),
            Operation(
                method="GET",
                path=f"{folder}/{{path:path}}",
                summary="Return a file of the working folder.",
                answer=self.download,
                query=api.FileQuery,
                media_type="*/*",
                refusals=(404,),
            ),
            Operation(
                method="PUT",
                path=f"{folder}/{{path:path}}",
                summary="Put a file into the working folder, in place of one that is there.",
                answer=self.upload,
                streams_body=True,
                returns=api.ListedFile,
                status=201,
                refusals=(404, 409),
            ),
            Operation(
                method="DELETE",
                path=f"{folder}/{{path:path}}",
                summary="Remove a file of the working folder.",
                answer=self.remove,
                status=204,
                refusals=(404,),
            ),
        )

    def list(self, call: Call) -> api.FileList:
        """List the working folder."""
        listing = list_files(self._folder(call))
        files = [
            api.ListedFile(path=path, size_bytes=size, changed_at=changed / _NANOSECONDS)
            for path, (changed, size) in sorted(listing.files.items())
        ]
        return api.FileList(files=files, is_complete=listing.is_complete)

    def download(self, call: Call) -> Response:
        """Return a file."""
        path = call.path["path"]
        try:
            descriptor = open_beneath(self._folder(call), path)
        except OSError as error:
            raise _refused(error, path) from None
        return file_response(descriptor, Path(path).name, is_download=call.query.download)

    async def upload(self, call: Call) -> api.ListedFile:
        """Write a file as it comes; it is there once it is whole."""
        assert call.request is not None
        refuse_large(call.request, self._max_upload)
        served = await run_in_threadpool(self._sessions.find, call.session_id)
        folder = await run_in_threadpool(lambda: served.cwd)
        path = call.path["path"]
        try:
            upload = await run_in_threadpool(_Upload, folder, path)
            try:
                await upload.receive(call.request.stream(), self._max_upload)
                written = await run_in_threadpool(upload.finish)
            finally:
                await run_in_threadpool(upload.discard)
        except OSError as error:
            raise _refused(error, path) from None
        except ClientDisconnect:
            raise RefusedError(400, "incomplete", "The file did not come whole.") from None
        await run_in_threadpool(_tell, served, folder / path)
        return written

    def remove(self, call: Call) -> None:
        """Remove a file."""
        path, folder = call.path["path"], self._folder(call)
        try:
            os.close(open_beneath(folder, path))  # refuses links, folders and devices
            parts = path_parts(path) or ()
            with opened_folder(folder, parts[:-1], path) as directory:
                os.unlink(parts[-1], dir_fd=directory)
        except OSError as error:
            raise _refused(error, path) from None

    def _folder(self, call: Call) -> Path:
        return self._sessions.find(call.session_id).cwd


def _tell(served: ServedSession, path: Path) -> None:
    """Have a session that runs say that it has a file, to people and to the agent."""
    with contextlib.suppress(SessionError):  # it has just been stopped
        if served.session is not None:
            served.session.add_files([path])


class _Upload:
    """A file that is being written beneath a folder, through no link.

    Belongs to one request.
    """

    def __init__(self, folder: Path, path: str) -> None:
        parts = path_parts(path)
        if parts is None or any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in parts):
            raise OSError(errno.EINVAL, "The path is not one beneath the folder", path)
        self._name = parts[-1]
        self._path = path
        self._directory = _made_folder(folder, parts[:-1], path)
        self._temporary = f".{secrets.token_hex(8)}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            _refuse_what_is_no_file(self._name, self._directory, path)
            self._file = open(  # noqa: SIM115 - `discard`
                os.open(self._temporary, flags, 0o666, dir_fd=self._directory), "wb"
            )
        except BaseException:
            os.close(self._directory)
            raise

    async def receive(self, pieces: AsyncIterator[bytes], max_bytes: int) -> None:
        """Write the pieces as they come."""
        left = max_bytes
        async for piece in pieces:
            left -= len(piece)
            if left < 0:
                raise too_large(max_bytes)
            await run_in_threadpool(self._file.write, piece)

    def finish(self) -> api.ListedFile:
        """Put the file in its place."""
        self._file.flush()
        descriptor = self._file.fileno()
        if os.getuid() == 0:  # code may run as another user
            owner = os.fstat(self._directory)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        written = os.fstat(descriptor)
        os.replace(
            self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory
        )
        self._temporary = ""
        return api.ListedFile(
            path=self._path, size_bytes=written.st_size, changed_at=written.st_mtime
        )

    def discard(self) -> None:
        """Let go of what was opened, and remove what was not finished."""
        self._file.close()
        if self._temporary:
            os.unlink(self._temporary, dir_fd=self._directory)
        os.close(self._directory)


def _refuse_what_is_no_file(name: str, directory: int, path: str) -> None:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "What is there is no regular file", path)


def _made_folder(folder: Path, parts: tuple[str, ...], path: str) -> int:
    """Open the folder that these parts lead to, made where it is missing; raises OSError."""
    for count in range(1, len(parts) + 1):
        with opened_folder(folder, parts[: count - 1], path) as above:
            try:
                os.mkdir(parts[count - 1], dir_fd=above)
            except FileExistsError:
                continue
            if os.getuid() == 0:
                owner = os.fstat(above)
                os.chown(
                    parts[count - 1],
                    owner.st_uid,
                    owner.st_gid,
                    dir_fd=above,
                    follow_symlinks=False,
                )
    with opened_folder(folder, parts, path) as directory:
        return os.dup(directory)


def _refused(error: OSError, path: str) -> RefusedError:
    if isinstance(error, FileNotFoundError):
        return RefusedError(404, "no_file", f"There is no file {path[:200]!r}.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RefusedError(503, "disk_full", "The disk of the server is full.")
    if isinstance(error, IsADirectoryError | NotADirectoryError | PermissionError):
        return RefusedError(409, "in_the_way", f"{path[:200]!r}: {error.strerror}.")
    return RefusedError(400, "bad_path", f"{path[:200]!r} cannot be used: {error.strerror}.")
