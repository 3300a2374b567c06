"""A log file that is cut and searched without being held in memory."""

from __future__ import annotations

import stat
from typing import IO, TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 1 << 30
_STEP = 1 << 22


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
            raise MigrateError(
                f"the log has {seen.st_size / 1e9:.1f} GB, above the limit of 1.1 GB",
                str(path),
                "cut it first, for example: tail -c 200M name.log > end.log",
            )
        self._size = seen.st_size
        try:
            self._file: IO[bytes] = path.open("rb")
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> MigrateError:
        why = getattr(error, "strerror", None) or str(error)
        return MigrateError(f"cannot read the log: {why}", str(self._path), "name a file that is")

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
