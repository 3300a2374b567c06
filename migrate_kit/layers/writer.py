"""Write a trace while the network runs.

Every tensor goes into a safetensors file at the moment it exists, behind a header that is reserved
first and written last, straight from the memory it is in. The folder appears under its own name
only when it is whole.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import save_file

from migrate_kit.errors import MigrateError
from migrate_kit.layers.metrics import SKETCH, Stats
from migrate_kit.layers.store import FORMAT, INDEX, SKETCHES, VERSION, Record, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

_TENSORS: Final = "tensors-{:03d}.safetensors"
# Room for the header of one tensor file, which is written last; past about 1,500 entries the next
# file begins.
_RESERVE: Final = 1 << 18
# Room is asked for in steps, and what is left over is given back at the end.
_STEP: Final = 1 << 26

# safetensors names of the formats a tensor may have (safetensors README, "Format").
SAFETENSORS_NAMES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


class TraceWriter:
    """Write tensors into a folder as they come; nothing is at ``path`` until :meth:`finish`.

    Parameters
    ----------
    path : Path or None
        Where the trace goes. None makes a temporary folder that lives as long as the trace.

    Raises
    ------
    MigrateError
        If ``path`` is a file or a folder that holds something else than a trace, or the disk is
        full; what was at ``path`` before stays.
    """

    def __init__(self, path: Path | None) -> None:
        # Absolute, since the folder may be changed later; a link stays one, its target is replaced.
        self.path = path = None if path is None else path.resolve()
        with _disk(path or Path(tempfile.gettempdir())):
            if path is None:
                self.folder = Path(tempfile.mkdtemp(prefix="migrate-kit-trace-"))
            else:
                _refuse_to_overwrite(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                self.folder = Path(
                    tempfile.mkdtemp(prefix=f"{path.name}.partial-", dir=path.parent)
                )
        self._fd: int | None = None
        self._reserved = 0
        self._files: list[str] = []
        self._keys: set[str] = set()
        self._entries: list[str] = []
        self._entries_size = 0
        self._offset = 0
        self._sketches: list[torch.Tensor] = []

    def add_tensor(self, key: str, tensor: torch.Tensor, flat: torch.Tensor) -> str:
        """Append ``tensor``, whose row of values is ``flat``; return the key it is under.

        That is ``key``, or where it is taken (a module that calls itself) ``key~1``, ``key~2``.
        """
        key = key.encode("utf-8", "replace").decode()  # a lone surrogate has no place in a header
        wanted, number = key, 0
        while key in self._keys:
            number += 1
            key = f"{wanted}~{number}"
        self._append(key, tensor, flat)
        self._keys.add(key)
        return key

    def _append(self, key: str, tensor: torch.Tensor, flat: torch.Tensor) -> None:
        name, shape = SAFETENSORS_NAMES.get(flat.dtype), list(tensor.shape)
        if name is None:
            raise MigrateError(
                f"{flat.dtype} has no place in a safetensors file",
                key,
                "convert it in the model, or capture with tensors=False",
            )
        if tensor.is_complex():
            shape.append(2)
        elif tensor.dtype == torch.bool:
            name = "BOOL"
        size = flat.numel() * flat.element_size()
        if self._fd is None:
            self._open_next()
        # Written by hand: a third of what json.dumps of the whole entry takes, for every tensor.
        text = (
            f'{json.dumps(key)}:{{"dtype":"{name}","shape":{shape},'
            f'"data_offsets":[{self._offset},{self._offset + size}]}}'
        )
        if self._entries_size + len(text) + 2 > _RESERVE and self._entries:
            self._close_file()
            self._append(key, tensor, flat)
            return
        if size:
            try:
                self._write(flat.view(torch.uint8).numpy().data)
            except OSError as error:
                raise _explained(error, self.path or self.folder) from error
        self._entries.append(text)
        self._entries_size += len(text) + 1
        self._offset += size

    def _write(self, data: memoryview) -> None:
        assert self._fd is not None  # noqa: S101 - _append has opened it
        end = 8 + _RESERVE + self._offset + data.nbytes
        if end > self._reserved:
            # Pages of a file that has its room already are filled in a fifth less time.
            self._reserved = end + _STEP
            with contextlib.suppress(OSError):  # room for less, or a file system that has no such
                os.posix_fallocate(self._fd, end - data.nbytes, data.nbytes + _STEP)
        while data:
            data = data[os.write(self._fd, data) :]

    def add_sketch(self, sketch: torch.Tensor) -> int:
        """Keep one sketch; return its row."""
        self._sketches.append(sketch)
        return len(self._sketches) - 1

    def finish(self, records: list[Record], meta: dict[str, Any]) -> Trace:
        """Complete the files and give the folder its name."""
        try:
            self._close_file()
            with _disk(self.path or self.folder):
                if self._sketches:
                    save_file({"sketches": torch.stack(self._sketches)}, self.folder / SKETCHES)
                if self.path is not None:
                    text = json.dumps(self._index(records, meta))
                    (self.folder / INDEX).write_text(text, encoding="utf-8")
                    _swap_in(self.folder, self.path)
        except BaseException:
            self.abort()
            raise
        trace = Trace(records, meta, self.path or self.folder, self._files, owned=self.path is None)
        # Open maps outlive their names: another trace may take this one's place.
        trace.open_files()
        return trace

    def _index(self, records: list[Record], meta: dict[str, Any]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "sketch": SKETCH,
            "files": self._files,
            **meta,
            "records": [_record_to_dict(r) for r in records],
        }

    def abort(self) -> None:
        """Take away what was written."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _open_next(self) -> None:
        name = _TENSORS.format(len(self._files) + 1)
        with _disk(self.path or self.folder):
            self._fd = os.open(self.folder / name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
            os.lseek(self._fd, 8 + _RESERVE, os.SEEK_SET)
        self._files.append(name)
        self._entries, self._entries_size, self._offset, self._reserved = [], 2, 0, 0

    def _close_file(self) -> None:
        if self._fd is None:
            return
        header = f"{{{','.join(self._entries)}}}".encode()
        # One entry with a huge name may be longer than the room; only a file's sole entry can be.
        if len(header) > _RESERVE:
            raise MigrateError("a layer name is too long to store", self._entries[0][:80], "rename")
        with _disk(self.path or self.folder):
            os.ftruncate(self._fd, 8 + _RESERVE + self._offset)
            os.pwrite(self._fd, _RESERVE.to_bytes(8, "little") + header.ljust(_RESERVE, b" "), 0)
            os.close(self._fd)
        self._fd = None


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turn an operating-system error into one that says what to do."""
    try:
        yield
    except OSError as error:
        raise _explained(error, path) from error


def _explained(error: OSError, path: Path) -> MigrateError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MigrateError(
            "the disk is full",
            str(path),
            "free some space, choose another store=, or capture with tensors=False",
        )
    return MigrateError(
        f"cannot write: {error.strerror or error}",
        str(path),
        "choose a folder you may write to with store=",
    )


def _refuse_to_overwrite(path: Path) -> None:
    if path.is_dir() and ((path / INDEX).exists() or not any(path.iterdir())):
        return
    if path.exists():
        raise MigrateError(
            "store= names something that is not a trace",
            str(path),
            "choose a new folder name; a trace is only ever replaced by a trace",
        )


def _swap_in(new: Path, path: Path) -> None:
    """Give ``new`` the name ``path``; an older trace there goes only once the new one stands."""
    new.chmod(0o755)
    if not path.exists():
        new.rename(path)
        return
    old = path.with_name(f"{path.name}.partial-old-{os.getpid()}")
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _record_to_dict(record: Record) -> dict[str, Any]:
    # dataclasses.asdict copies deeply; for 200 records that is a twentieth of a forward.
    d = {name: getattr(record, name) for name in Record.__slots__}
    d["stats"] = {name: getattr(record.stats, name) for name in Stats.__slots__}
    return d
