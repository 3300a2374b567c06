"""A log file that is cut and searched without being held in memory."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 1 << 30
_STEP = 1 << 22
# What is read of a file that says it is empty.
_UNSIZED, _PIECE = 1 << 22, 1 << 16


@contextlib.contextmanager
def piped(stream: IO[bytes] | None) -> Iterator[Path]:
    """Keep what a pipe gives in a temporary file while it is read.

    Raises
    ------
    MigrateError
        If there is no pipe, it cannot be kept, or it gives more than 1 GiB.
    """
    if stream is None:
        raise MigrateError(
            "nothing is piped in", "explain -", "migrate-kit explain - < name.log, or name the file"
        )
    with contextlib.ExitStack() as stack:
        try:
            kept = stack.enter_context(tempfile.NamedTemporaryFile(prefix="migrate-kit-"))
            size = 0
            while piece := stream.read(_STEP):
                size += len(piece)
                if size > MOST_BYTES:
                    raise _too_large("more than 1.1 GB were piped in", "explain -")
                kept.write(piece)
            kept.flush()
        except (OSError, ValueError) as error:  # ValueError: a stream that is closed
            raise MigrateError(
                f"what is piped in cannot be kept: {error}", "explain -", "name the file instead"
            ) from error
        yield Path(kept.name)


def _too_large(what: str, where: str) -> MigrateError:
    return MigrateError(what, where, "cut it first, for example: tail -c 200M name.log > end.log")


class LogFile:
    r"""A file with the few methods of ``bytes`` that reading a part of it takes.

    Raises
    ------
    MigrateError
        If it is not there, is not a regular file, may not be read, or is larger than 1 GiB.

    Examples
    --------
    >>> import contextlib, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "log")
    ...     _ = path.write_bytes(b"one\ntwo\n")
    ...     with contextlib.closing(LogFile(path)) as log:
    ...         log[4:7], log.find(b"two", 0, 8), log.count(b"\n", 0, 8)
    (b'two', 4, 2)
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            seen = path.stat()
        except (OSError, ValueError) as error:  # ValueError: a name that holds a zero byte
            raise self._unreadable(error) from error
        # A pipe or a device would never end.
        if not stat.S_ISREG(seen.st_mode):
            raise MigrateError("this is not a regular file", str(path), "name one log file")
        if seen.st_size > MOST_BYTES:
            raise _too_large(
                f"the log has {seen.st_size / 1e9:.1f} GB, above the limit of 1.1 GB", str(path)
            )
        self._size = seen.st_size
        try:
            # Some files of /proc wait for more at their end, unless they are told not to.
            self._file: IO[bytes] = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> MigrateError:
        why = getattr(error, "strerror", None) or str(error)
        fix = "name a file that is there"
        if any(c in str(self._path) for c in " :\n"):  # a message where a file's name is wanted
            fix = "a message itself is piped in: echo 'the message' | migrate-kit explain -"
            fix += " (in Python: mk.explain('the message'))"
        return MigrateError(f"cannot read the log: {why}", str(self._path)[:200], fix)

    def unsized(self) -> bytes:
        """Return the beginning of a file that says it is empty, as those of /proc do."""
        found = bytearray()
        try:
            # Some of them give one short piece and refuse to be asked for a large one.
            while len(found) < _UNSIZED and (piece := os.read(self._file.fileno(), _PIECE)):
                found += piece
        except BlockingIOError:  # a file that waits for more
            pass
        except OSError as error:
            raise self._unreadable(error) from error
        return bytes(found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, end, _ = part.indices(self._size)
        try:
            self._file.seek(start)
            return self._file.read(end - start)
        except OSError as error:
            raise self._unreadable(error) from error

    def find(self, wanted: bytes, start: int, end: int) -> int:
        """Return where ``wanted`` first stands between the two places, or -1."""
        for at in range(start, end, _STEP):
            # The next step begins inside this one by what a hit may be cut by.
            found = self[at : min(end, at + _STEP + len(wanted) - 1)].find(wanted)
            if found >= 0:
                return at + found
        return -1

    def count(self, wanted: Any, start: int, end: int) -> int:
        """Return how often a line end stands there."""
        total = 0
        for at in range(start, end, _STEP):
            total += self[at : min(end, at + _STEP)].count(wanted)
        return total
