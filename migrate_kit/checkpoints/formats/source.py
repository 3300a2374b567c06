"""A file that is mapped and not read, and that nothing can be asked for outside of."""

from __future__ import annotations

import mmap
import os
import stat
import warnings
from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.state import Entry
from migrate_kit.errors import MigrateError
from migrate_kit.files import irregular

if TYPE_CHECKING:
    from pathlib import Path

_MOST_DIMENSIONS = 64
_LONGEST_LINE = 1 << 16

# Device and inode say which file it is; size and time whether it is as it was.
_State = tuple[int, int, int, int]


def _state_of(found: os.stat_result) -> _State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Stream:
    """A piece of a file, as pickle reads one: nothing is copied that is not asked for."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0
        self.length = len(view)

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes, fewer at the end."""
        start = self._at
        self._at = self.length if count < 0 else min(self.length, start + count)
        return bytes(self._view[start : self._at])

    def readline(self) -> bytes:
        """Return the bytes up to the next line's end, within the longest line a pickle has."""
        piece = bytes(self._view[self._at : self._at + _LONGEST_LINE])
        end = piece.find(b"\n") + 1 or len(piece)
        self._at += end
        return piece[:end]

    def tell(self) -> int:
        """Return where the next byte is."""
        return self._at


class Source:
    """One file from a stranger.

    Every read is checked against the file's size before anything is allocated.

    Parameters
    ----------
    path : Path

    Raises
    ------
    MigrateError
        If it cannot be opened or is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map: mmap.mmap | bytearray
        self._found: _State | None
        try:
            # Asked before it is opened: a pipe would wait for a writer.
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):
                raise irregular(path, mode)
            with path.open("rb") as file:
                self._found = _state_of(os.fstat(file.fileno()))
                self.size = file.seek(0, 2)
                if not self.size:
                    raise MigrateError(
                        "the file is empty", str(path), "copy or download it again: it has 0 bytes"
                    )
                # Private: a tensor may be changed, the file is not.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise MigrateError(
                f"the file cannot be read: {reason or error}", str(path), "check the path"
            ) from error

    @classmethod
    def of_bytes(cls, path: Path, data: bytes) -> Source:
        """Return a file inside another file, already in memory."""
        source = cls.__new__(cls)
        vars(source).update(path=path, size=len(data), _map=bytearray(data), _found=None)
        return source

    def check_unchanged(self) -> None:
        """Refuse to read a file that was written over since: what it listed is not there.

        One that was replaced by a rename is another file, and the one that is mapped stays.
        """
        if self._found is None:
            return
        try:
            now = _state_of(self.path.stat())
        except OSError:
            now = self._found
        cut = isinstance(self._map, mmap.mmap) and self._map.size() < self.size
        if cut or (now[:2] == self._found[:2] and now != self._found):
            raise MigrateError(
                "the file was written over after it was listed",
                str(self.path),
                "load it again; a program that writes to another name and renames does no harm",
            )

    def head(self, length: int = 512) -> bytes:
        """Return the first bytes, fewer where the file is shorter."""
        return bytes(self._map[:length])

    def tail(self, length: int) -> bytes:
        """Return the last bytes, fewer where the file is shorter."""
        return bytes(self._map[max(0, self.size - length) :])

    def find(self, what: bytes, start: int = 0, end: int | None = None) -> int:
        """Return where ``what`` first stands, or -1."""
        return self._map.find(what, start, self.size if end is None else end)

    def bytes(self, offset: int, length: int, what: str) -> bytes:
        """Return a copy of ``length`` bytes; ``what`` names them in an error."""
        return bytes(self.view(offset, length, what))

    def view(self, offset: int, length: int, what: str) -> memoryview:
        """Return ``length`` bytes without copying them; ``what`` names them in an error."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise self.damaged(
                f"{what} would be at bytes {offset:,} to {offset + length:,}, "
                f"and the file ends at {self.size:,}"
            )
        return memoryview(self._map)[offset : offset + length]

    def stream(self, offset: int = 0, length: int | None = None, what: str = "it") -> Stream:
        """Return a piece of the file to read from its start to its end."""
        return Stream(self.view(offset, self.size - offset if length is None else length, what))

    def tensor(
        self, dtype: torch.dtype, shape: tuple[int, ...], offset: int, what: str
    ) -> torch.Tensor:
        """Return the values at ``offset`` as a tensor, little endian, C order.

        The file's memory is mapped where it is aligned to the dtype, and copied where not.
        """
        self.check_unchanged()
        count = self.checked_count(shape, what)
        view = self.view(offset, count * dtype.itemsize, what)
        if count == 0:
            return torch.zeros(shape, dtype=dtype)
        if offset % min(dtype.itemsize, 8):
            return torch.frombuffer(bytearray(view), dtype=dtype).reshape(shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of read-only buffers; this one is private
            flat = torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset)
        return flat.reshape(shape)

    def entry(self, dtype: torch.dtype, shape: tuple[int, ...], offset: int, what: str) -> Entry:
        """Return the entry of the values at ``offset``; its bounds are checked now."""
        count = self.checked_count(shape, what)
        self.view(offset, count * dtype.itemsize, what)
        memory = (str(self.path), offset, shape, dtype) if count else None
        return Entry(shape, dtype, lambda: self.tensor(dtype, shape, offset, what), memory)

    def checked_count(self, shape: tuple[int, ...], what: str) -> int:
        """Return the number of values of a shape from the file."""
        if len(shape) > _MOST_DIMENSIONS or any(length < 0 for length in shape):
            raise self.damaged(f"{what} has the shape {str(shape)[:100]}")
        count = 1
        for length in shape:
            count *= length
        if max(shape, default=0) >= 1 << 62 or count >= 1 << 62:
            raise self.damaged(f"{what} has the shape {str(shape)[:100]}")
        return count

    def damaged(self, what: str) -> MigrateError:
        """Return the error of a file that contradicts itself."""
        return MigrateError(
            f"the file is damaged or incomplete: {what}",
            str(self.path),
            "copy or download it again and compare its size with the original",
        )
