"""A trace on disk: safetensors files, the sketches, and ``index.json``; read lazily."""

from __future__ import annotations

import json
import math
import os
import shutil
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors import SafetensorError, safe_open

from migrate_kit.errors import MigrateError
from migrate_kit.layers.metrics import SKETCH, SKETCH_LENGTH, Stats, flat_values, sketch
from migrate_kit.layers.rows import CHANNELS
from migrate_kit.results import Finding, Result, findings_html, table_html

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

FORMAT: Final = "migrate-kit-trace"
VERSION: Final = 1
INDEX: Final = "index.json"
SKETCHES: Final = "sketches.safetensors"
# No call of a layer nests its arguments deeper; what does is not kept.
DEEPEST: Final = 16


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


class Trace(Result):
    """What one run left behind: records in execution order, and their tensors on disk.

    Attributes
    ----------
    records : list of Record
    meta : dict
        ``runner``, ``model``, ``libraries`` and what else the capture wrote about itself.
    path : Path
        The folder; removed with the trace if no ``store`` was given.
    findings : list of Finding
        Where NaN or Inf begin.
    live : object or None
        The runner and its inputs while the run's model is still in memory; it lets
        :func:`migrate_kit.compare` measure the rounding noise and replay single layers.
    """

    kind = "trace"

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
        self.findings = _nan_findings(records)
        self._by_key = {r.key: r for r in records}
        self._files = files
        self._handles: dict[str, Any] = {}
        self._key_file: dict[str, str] | None = None
        self._sketches: torch.Tensor | None = None
        if owned:
            # The maps stay readable after the files are unlinked, so the order does not matter.
            weakref.finalize(self, _remove, path, os.getpid())

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace folder; no tensor is read yet.

        Raises
        ------
        MigrateError
            If it is no trace, was written by a newer version, or is truncated.
        """
        try:
            folder = Path(path)
            there = (folder / INDEX).is_file()
        except (TypeError, OSError, ValueError) as error:
            raise MigrateError(
                f"not a path: {error}", "Trace.load(path)", "pass the folder that store= named"
            ) from error
        index = _read_index(folder, there=there)
        try:
            records = [_record_from_dict(r) for r in index["records"]]
            files = [_plain_name(f) for f in index.get("files", [])]
            if len({r.key for r in records}) < len(records):
                raise ValueError("two records of one name")
            if index.get("sketch", SKETCH) != SKETCH and any(r.sketch is not None for r in records):
                raise ValueError("its sketches are of another kind")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
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
        bad = f"; NaN or Inf from {self.findings[0].where!r} on" if self.findings else ""
        return f"Trace({self.meta.get('model', '?')}, {len(self)} tensors, {kept} kept{bad})"

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
        try:
            if dtype.startswith("complex"):
                values = torch.view_as_complex(values)
            return values.reshape(tuple(shape))
        except (RuntimeError, TypeError) as error:
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
        """Return a record's sketch in float64: as it was kept, or from the kept values; or None."""
        if record.sketch is None:
            row = self.row(record)
            return None if row is None else sketch(row).double()
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

    def _html(self) -> str:
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
        return table_html(caption, head, rows) + findings_html(self.findings)

    def _handle(self, file: str) -> Any:
        if file not in self._handles:
            try:
                self._handles[file] = safe_open(str(self.path / file), framework="pt")
            except (SafetensorError, OSError) as error:
                raise _damaged(self.path / file, str(error)) from error
        return self._handles[file]

    def open_files(self) -> None:
        """Open everything now, so that it stays readable whatever becomes of the folder."""
        self._keys()
        if any(r.sketch is not None for r in self.records):
            self._handle(SKETCHES)

    def _keys(self) -> dict[str, str]:
        if self._key_file is None:
            self._key_file = {k: f for f in self._files for k in self._handle(f).keys()}  # noqa: SIM118
        return self._key_file

    def _verify(self) -> None:
        """Open every file, so that a truncated trace is refused before anything is compared."""
        keys = self._keys()
        for record in self.records:
            if record.tensor is None:
                continue
            if record.tensor not in keys:
                raise _damaged(self.path, f"the tensor of {record.name!r} is missing")
            shape = self._handle(keys[record.tensor]).get_slice(record.tensor).get_shape()
            pairs = 2 if record.dtype.startswith("complex") else 1
            if math.prod(shape) != math.prod(record.shape) * pairs:
                raise _damaged(self.path, f"{record.name!r} is {shape}, not {record.shape}")
        wanted = [r.sketch for r in self.records if r.sketch is not None]
        if wanted:
            try:
                shape = self._handle(SKETCHES).get_slice("sketches").get_shape()
            except SafetensorError as error:
                raise _damaged(self.path / SKETCHES, str(error)) from error
            if len(shape) != 2 or shape[1] != SKETCH_LENGTH or not 0 <= max(wanted) < shape[0]:
                raise _damaged(self.path / SKETCHES, f"shape {shape}")


_SHOWN: Final = 50


def _remove(path: Path, owner: int) -> None:
    # A forked child inherits the finalizer, but the trace is its parent's.
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


def _nan_findings(records: list[Record]) -> list[Finding]:
    bad = [r for r in records if r.stats.nan or r.stats.inf]
    if not bad:
        return []
    counts = f"{bad[0].stats.nan} NaN and {bad[0].stats.inf} Inf in the first"
    fix = "look at this layer's input; fp16 overflows above 65504"
    return [Finding("warning", f"{len(bad)} tensors hold NaN or Inf ({counts})", bad[0].name, fix)]


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


def _damaged(path: Path, why: str) -> MigrateError:
    return MigrateError(
        f"the trace is damaged or truncated ({why})", str(path), "copy it again or capture it anew"
    )


def _read_index(folder: Path, *, there: bool) -> dict[str, Any]:
    file = folder / INDEX
    if not there:
        raise MigrateError(
            f"no {INDEX} here, so this is no trace",
            str(folder),
            "pass the folder that store= named",
        )
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise _damaged(file, str(error)) from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise MigrateError(
            f"{INDEX} is not a trace's", str(file), "pass a folder made by mk.capture"
        )
    version = index.get("version")
    if type(version) is not int or version < 1:
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


def _record_from_dict(d: dict[str, Any]) -> Record:
    """Check every field: an index may come from anybody."""
    stats = Stats(**d["stats"])
    record = Record(**{**d, "stats": stats, "shape": tuple(d["shape"])})
    texts = (record.name, record.channel, record.module, record.kind, record.dtype, record.scope)
    counts = (stats.numel, stats.nan, stats.inf, *record.shape)
    sound = (
        all(isinstance(t, str) for t in texts)
        and record.channel in CHANNELS
        and all(_is_count(n) for n in counts)
        and all(isinstance(v, float) for v in (stats.min, stats.max, stats.mean, stats.norm))
        and isinstance(record.tensor, str | None)
        and (record.sketch is None or _is_count(record.sketch))
        and isinstance(record.parameters, bool)
        and (record.inputs is None or _are_arguments(record.inputs))
    )
    if not sound:
        raise ValueError(f"record {d.get('name')!r} has a field of the wrong type")
    dtype_of(record.dtype)
    return record


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _are_arguments(inputs: Any) -> bool:
    """Whether it is ``[args, kwargs]`` in the encoding of ``arguments.encode_arguments``."""
    return isinstance(inputs, list) and len(inputs) == 2 and all(_is_argument(v) for v in inputs)


def _is_argument(value: Any, depth: int = 0) -> bool:
    if not isinstance(value, dict) or not value or depth > DEEPEST:
        return False
    form, content = next(iter(value.items()))
    if form == "tensor":
        shape = value.get("shape")
        named = isinstance(content, str) and isinstance(value.get("dtype"), str)
        return named and isinstance(shape, list) and all(_is_count(n) for n in shape)
    if form in ("list", "tuple"):
        return isinstance(content, list) and all(_is_argument(v, depth + 1) for v in content)
    if form == "dict":
        return isinstance(content, list) and all(
            isinstance(p, list)
            and len(p) == 2
            and isinstance(p[0], str | int)
            and _is_argument(p[1], depth + 1)
            for p in content
        )
    if form in ("dtype", "opaque"):
        return isinstance(content, str)
    return form == "value" and isinstance(content, bool | int | float | str | None)
