"""Copy a stream from one descriptor to another, and know how much has been written to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import threading

_READ_BYTES = 1 << 18


class Copying:
    """Copy a stream until it ends or its reader is gone; then both ends are closed.

    Threads:
        It is copied on a thread of its own. `_lock` guards what was read
        against being counted in the middle of a read.
    """

    def __init__(self, source: int, target: int, path: str | None = None) -> None:
        """Begin; both ends are its own from now on, also when that fails.

        Args:
            path: A name of the source, to be removed at the end.

        Raises:
            RuntimeError: There may be no more threads.
        """
        self._source = source
        self._target = target
        self._path = path
        self._lock = threading.Lock()
        self._read_bytes = 0
        self.has_ended = False
        try:
            threading.Thread(target=self._run, daemon=True).start()
        except RuntimeError:
            self._let_go()
            raise

    def written_bytes(self) -> int:
        """How many bytes have been written to the source by now."""
        with self._lock:
            if self.has_ended:
                return self._read_bytes
            waiting = fcntl.ioctl(self._source, termios.FIONREAD, bytes(4))
            return self._read_bytes + int(struct.unpack("i", waiting)[0])

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._source, select.POLLIN)
        poller.register(self._target, select.POLLRDHUP)  # it may leave before anything comes
        try:
            # Of a named pipe, the end comes only after a beginning.
            while all(descriptor == self._source for descriptor, _ in poller.poll()):
                with self._lock:
                    data = memoryview(os.read(self._source, _READ_BYTES))
                    self._read_bytes += len(data)
                if not data:
                    return
                while data:
                    data = data[os.write(self._target, data) :]
        except OSError:
            return
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            self.has_ended = True
            os.close(self._source)
        os.close(self._target)
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
