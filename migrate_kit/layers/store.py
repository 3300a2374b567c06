"""A trace on disk: one streamed safetensors file, the sketches, and ``index.json``.

``TraceWriter`` puts every tensor into the file at the moment it exists, behind a header that is
reserved first and written last, so memory stays bounded by one tensor. The folder appears under its
own name only when it is whole.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from migrate_kit.errors import MigrateError
from migrate_kit.layers.metrics import SKETCH_LENGTH, SKETCH_SEED, Stats, flat_values
from migrate_kit.layers.rows import CHANNELS
from migrate_kit.layers.stream import Pump
from migrate_kit.results import table_html

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

FORMAT: Final = "migrate-kit-trace"
VERSION: Final = 1
INDEX: Final = "index.json"
SKETCHES: Final = "sketches.safetensors"
TENSORS: Final = "tensors-{:03d}.safetensors"
# Room for the header of one tensor file, which is written last; past about 1,500 entries the next
# file begins.
_RESERVE: Final = 1 << 18

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


@dataclass(slots=True)
class Record:
    """One tensor of one layer in one run.

    Attributes
    ----------
    name : str
        Module path; ``#1`` for its second call, ``[0]`` or ``['key']`` inside a tuple or dict.
    channel : str
        One of :data:`migrate_kit.layers.rows.CHANNELS`.
    module, kind : str
        Module path without decoration, and the class or ONNX operator.
    shape, dtype
        As the framework reported them, e.g. ``(1, 64, 112, 112)`` and ``float32``.
    stats : Stats
    sketch : int or None
        Row in the sketches.
    tensor : str or None
        Key of the stored values; records of the same values share one.
    inputs : list or None
        What the layer was called with: ``[args, kwargs]`` in the encoding of
        :func:`migrate_kit.layers.capture.encode_arguments`; None if it was not kept.
    scope : str
        Where the layer comes from in another framework's words (ONNX scope metadata).
    """

    name: str
    channel: str
    module: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    stats: Stats
    sketch: int | None = None
    tensor: str | None = None
    inputs: list[Any] | None = None
    scope: str = ""
    parameters: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What tells this record from every other of its trace."""
        return self.channel, self.name


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
        self.path = path
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
        self._pump: Pump
        self._files: list[str] = []
        self._entries: list[str] = []
        self._entries_size = 0
        self._offset = 0
        self._sketches: list[torch.Tensor] = []

    def add_tensor(self, key: str, tensor: torch.Tensor, flat: torch.Tensor) -> None:
        """Append ``tensor``, whose row of values is ``flat``, under ``key``."""
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
        entry = {"dtype": name, "shape": shape, "data_offsets": [self._offset, self._offset + size]}
        text = f"{json.dumps(key)}:{json.dumps(entry)}"
        if self._entries_size + len(text) + 2 > _RESERVE and self._entries:
            self._close_file()
            self.add_tensor(key, tensor, flat)
            return
        if size:
            with _disk(self.path or self.folder):
                self._pump.write(flat.view(torch.uint8).numpy())
        self._entries.append(text)
        self._entries_size += len(text) + 1
        self._offset += size

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
                    text = json.dumps(self._index(records, meta), ensure_ascii=False)
                    (self.folder / INDEX).write_text(text, encoding="utf-8")
                    _swap_in(self.folder, self.path)
        except BaseException:
            self.abort()
            raise
        return Trace(records, meta, self.path or self.folder, self._files, owned=self.path is None)

    def _index(self, records: list[Record], meta: dict[str, Any]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "sketch": {"length": SKETCH_LENGTH, "seed": SKETCH_SEED, "order": "logical C"},
            "files": self._files,
            **meta,
            "records": [_record_to_dict(r) for r in records],
        }

    def abort(self) -> None:
        """Take away what was written."""
        if self._fd is not None:
            self._pump.cancel()
            os.close(self._fd)
            self._fd = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _open_next(self) -> None:
        name = TENSORS.format(len(self._files) + 1)
        with _disk(self.path or self.folder):
            self._fd = os.open(self.folder / name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644)
            os.lseek(self._fd, 8 + _RESERVE, os.SEEK_SET)
            self._pump = Pump(self._fd)
        self._files.append(name)
        self._entries, self._entries_size, self._offset = [], 2, 0

    def _close_file(self) -> None:
        if self._fd is None:
            return
        header = f"{{{','.join(self._entries)}}}".encode()
        # One entry with a huge name may be longer than the room; only a file's sole entry can be.
        if len(header) > _RESERVE:
            raise MigrateError("a layer name is too long to store", self._entries[0][:80], "rename")
        with _disk(self.path or self.folder):
            self._pump.close()
            os.pwrite(self._fd, _RESERVE.to_bytes(8, "little") + header.ljust(_RESERVE, b" "), 0)
            os.close(self._fd)
        self._fd = None


class Trace:
    """What one run left behind: records in execution order, and their tensors on disk.

    Attributes
    ----------
    records : list of Record
    meta : dict
        ``runner``, ``model``, ``libraries`` and what else the capture wrote about itself.
    path : Path
        The folder; removed with the trace if no ``store`` was given.
    live : object or None
        The runner and its inputs while the run's model is still in memory; it lets
        :func:`migrate_kit.compare` measure the rounding noise and replay single layers.
    """

    def __init__(
        self,
        records: list[Record],
        meta: dict[str, Any],
        path: Path,
        files: list[str],
        *,
        owned: bool = False,
        live: Any = None,
    ) -> None:
        self.records, self.meta, self.path, self.live = records, meta, path, live
        self._by_key = {r.key: r for r in records}
        self._files = files
        self._handles: dict[str, Any] = {}
        self._key_file: dict[str, str] | None = None
        self._sketches: torch.Tensor | None = None
        if owned:
            # The maps stay readable after the files are unlinked, so the order does not matter.
            weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace folder; no tensor is read yet.

        Raises
        ------
        MigrateError
            If it is no trace, was written by a newer version, or is truncated.
        """
        folder = Path(path)
        index = _read_index(folder)
        try:
            records = [_record_from_dict(r) for r in index["records"]]
            files = [_plain_name(f) for f in index.get("files", [])]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(folder / INDEX, f"{type(error).__name__}: {error}") from error
        meta = {
            k: v
            for k, v in index.items()
            if k not in ("format", "version", "sketch", "files", "records")
        }
        trace = cls(records, meta, folder, files)
        trace._verify()
        return trace

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        kept = sum(r.tensor is not None for r in self.records)
        return f"Trace({self.meta.get('model', '?')}, {len(self)} tensors, {kept} kept)"

    def find(self, channel: str, name: str) -> Record | None:
        """Return the record of that channel and name, or None."""
        return self._by_key.get((channel, name))

    def values(self, key: str) -> torch.Tensor:
        """Return stored values by key, memory-mapped; complex tensors as real pairs."""
        file = self._keys().get(key)
        if file is None:
            raise _damaged(self.path, f"no tensor {key!r}")
        try:
            values: torch.Tensor = self._handle(file).get_tensor(key)
        except SafetensorError as error:
            raise _damaged(self.path / file, str(error)) from error
        return values

    def view(self, key: str, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """Return stored values as a tensor of that dtype and shape; several may share one key."""
        values = self.values(key)
        if dtype.startswith("complex"):
            values = torch.view_as_complex(values)
        try:
            return values.reshape(tuple(shape))
        except RuntimeError as error:
            raise _damaged(self.path, f"{key!r} is {tuple(values.shape)}, not {shape}") from error

    def tensor(self, record: Record | str) -> torch.Tensor | None:
        """Return a record's tensor with the run's dtype and shape, or None if it was not kept.

        A ``str`` is looked up by name, in the channels' order.
        """
        if isinstance(record, str):
            found = (self.find(c, record) for c in CHANNELS)
            record_ = next((r for r in found if r is not None), None)
            if record_ is None:
                raise MigrateError(
                    f"no record {record!r}", str(self.path), "list them with trace.to_frame()"
                )
            record = record_
        if record.tensor is None:
            return None
        return self.view(record.tensor, record.dtype, record.shape)

    def row(self, record: Record) -> torch.Tensor | None:
        """Return a record's values as one flat real row, or None if they were not kept."""
        return None if record.tensor is None else flat_values(self.values(record.tensor))

    def sketch(self, record: Record) -> torch.Tensor | None:
        """Return a record's sketch, or None."""
        if record.sketch is None:
            return None
        if self._sketches is None:
            self._sketches = self._handle(SKETCHES).get_tensor("sketches")
        return self._sketches[record.sketch].double()

    def to_frame(self) -> pd.DataFrame:
        """Return one line a record: name, channel, kind, shape, dtype and statistics."""
        import pandas as pd

        return pd.DataFrame(
            {
                "layer": r.name,
                "channel": r.channel,
                "kind": r.kind,
                "shape": r.shape,
                "dtype": r.dtype,
                **asdict(r.stats),
            }
            for r in self.records
        )

    def _repr_html_(self) -> str:
        head = ("layer", "kind", "shape", "dtype", "min", "max", "mean", "norm", "NaN", "Inf")
        rows = [
            (
                r.name,
                r.kind,
                "x".join(map(str, r.shape)),
                r.dtype,
                *(f"{v:.4g}" for v in (r.stats.min, r.stats.max, r.stats.mean, r.stats.norm)),
                str(r.stats.nan),
                str(r.stats.inf),
            )
            for r in self.records[:_SHOWN]
        ]
        more = len(self) - len(rows)
        caption = repr(self) + (f"; the first {len(rows)}" if more else "")
        return table_html(caption, head, rows)

    def _handle(self, file: str) -> Any:
        if file not in self._handles:
            try:
                self._handles[file] = safe_open(str(self.path / file), framework="pt")
            except (SafetensorError, OSError) as error:
                raise _damaged(self.path / file, str(error)) from error
        return self._handles[file]

    def _keys(self) -> dict[str, str]:
        if self._key_file is None:
            self._key_file = {k: f for f in self._files for k in self._handle(f).keys()}  # noqa: SIM118
        return self._key_file

    def _verify(self) -> None:
        """Open every file, so that a truncated trace is refused before anything is compared."""
        keys = self._keys()
        for record in self.records:
            if record.tensor is not None and record.tensor not in keys:
                raise _damaged(self.path, f"the tensor of {record.name!r} is missing")
        wanted = [r.sketch for r in self.records if r.sketch is not None]
        if wanted:
            try:
                shape = self._handle(SKETCHES).get_slice("sketches").get_shape()
            except SafetensorError as error:
                raise _damaged(self.path / SKETCHES, str(error)) from error
            if len(shape) != 2 or shape[1] != SKETCH_LENGTH or not 0 <= max(wanted) < shape[0]:  # noqa: PLR2004
                raise _damaged(self.path / SKETCHES, f"shape {shape}")


_SHOWN: Final = 50


def dtype_of(name: str) -> torch.dtype:
    """Return the torch dtype that a record's ``dtype`` names.

    Raises
    ------
    ValueError
        If torch has no such dtype.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype is called {name!r}")  # noqa: TRY004 - a wrong value in a file
    return dtype


def tensor_key(channel: str, name: str) -> str:
    """Return the key that a record's own values are stored by."""
    return f"{channel}/{name}"


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turn an operating-system error into one that says what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise MigrateError(
            "the disk is full" if full else f"cannot write: {error.strerror or error}",
            str(path),
            "free some space, choose another store=, or capture with tensors=False"
            if full
            else "choose a folder you may write to with store=",
        ) from error


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


def _damaged(path: Path, why: str) -> MigrateError:
    return MigrateError(
        f"the trace is damaged or truncated ({why})", str(path), "copy it again or capture it anew"
    )


def _read_index(folder: Path) -> dict[str, Any]:
    file = folder / INDEX
    if not file.is_file():
        raise MigrateError(
            f"no {INDEX} here, so this is no trace", str(folder), "pass the folder that store= named"
        )
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(file, str(error)) from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise MigrateError(f"{INDEX} is not a trace's", str(file), "pass a folder made by mk.capture")
    version = index.get("version")
    if not isinstance(version, int) or version < 1:
        raise _damaged(file, f"version {version!r}")
    if version > VERSION:
        raise MigrateError(
            f"the trace has version {version}, this migrate-kit reads up to {VERSION}",
            str(file),
            "update migrate-kit here, or capture with the older one there",
        )
    return index


def _plain_name(name: Any) -> str:
    if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
        raise ValueError(f"file name {name!r}")
    return name


def _record_to_dict(record: Record) -> dict[str, Any]:
    # dataclasses.asdict copies deeply; for 200 records that is a twentieth of a forward.
    d = {name: getattr(record, name) for name in Record.__slots__}
    d["stats"] = {name: getattr(record.stats, name) for name in Stats.__slots__}
    return d


def _record_from_dict(d: dict[str, Any]) -> Record:
    """Check every field's type: an index may come from anybody."""
    stats = Stats(**d["stats"])
    record = Record(**{**d, "stats": stats, "shape": tuple(d["shape"])})
    texts = (record.name, record.channel, record.module, record.kind, record.dtype, record.scope)
    sound = (
        all(isinstance(t, str) for t in texts)
        and record.channel in CHANNELS
        and all(isinstance(n, int) and n >= 0 for n in record.shape)
        and isinstance(record.tensor, str | None)
        and isinstance(record.sketch, int | None)
        and isinstance(record.inputs, list | None)
        and all(isinstance(v, int | float) for v in asdict(stats).values())
    )
    if not sound:
        raise ValueError(f"record {d.get('name')!r} has a field of the wrong type")
    return record
