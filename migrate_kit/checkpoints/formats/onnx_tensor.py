"""ONNX's TensorProto: values in the file, in typed lists, or in a file beside it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Final

import torch

from migrate_kit.checkpoints.formats.repeated import Repeated, entry_of
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.formats.wire import BYTES, FIXED32, FIXED64, VARINT, Field, Wire
from migrate_kit.errors import MigrateError
from migrate_kit.results import plain
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from pathlib import Path

    from migrate_kit.checkpoints.state import Entry

# onnx.proto, TensorProto: 1 dims, 2 data_type, 6 string_data, 8 name, 9 raw_data,
# 13 external_data, 14 data_location; the rest are the typed lists and the dtypes they hold.
_VALUES: Final = {
    4: (FIXED32, ("float32", "complex64")),
    7: (VARINT, ("int64",)),
    10: (FIXED64, ("float64", "complex128")),
    11: (VARINT, ("uint32", "uint64")),
    # Any other dtype, floats of one and two bytes by their bits.
    5: (VARINT, ()),
}
_SCHEMA: Final = {1: -1, 2: VARINT, 8: BYTES, 9: BYTES, 13: BYTES, 14: VARINT} | dict.fromkeys(
    _VALUES, -1
)
_PAIR: Final = {1: BYTES, 2: BYTES}
_EXTERNAL: Final = 1


@lru_cache(maxsize=1)
def _dtypes() -> dict[int, tuple[str, torch.dtype | None]]:
    """Return ONNX's numbers, names and PyTorch's dtypes; those of less than a byte have none."""
    found: dict[int, tuple[str, torch.dtype | None]] = {8: ("STRING", None)}
    for row in read_table("dtypes"):
        if row["onnx_number"]:
            whole = int(row["bits"]) >= 8 and row["torch"]
            dtype = getattr(torch, row["torch"].removeprefix("torch."), None) if whole else None
            found[int(row["onnx_number"])] = row["onnx"], dtype
    return found


class Tensors:
    """The tensors of one ONNX file, and of the files beside it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._beside: dict[str, Source] = {}

    def read(self, message: Field, name: str = "") -> tuple[str, str, Entry | None]:
        """Return a tensor's name, ONNX's name of its dtype, and its entry if PyTorch has one.

        Parameters
        ----------
        message : Field
        name : str
            The name to use; that of the tensor by default.
        """
        wire, what = self.wire, f"{name[:80]!r}" if name else "a tensor"
        dims = Repeated(wire, VARINT, what)
        lists = {n: Repeated(wire, kind, what) for n, (kind, _) in _VALUES.items()}
        last: dict[int, Field] = {}
        pairs: list[Field] = []
        for field in wire.fields(message, what, _SCHEMA):
            if field.number == 1:
                dims.add(field)
            elif field.number in lists:
                lists[field.number].add(field)
            elif field.number == 13:
                pairs.append(field)
            else:
                last[field.number] = field
        if not name and 8 in last:
            name = wire.text(last[8], "the name of a tensor")
        number = last[2].value if 2 in last else 0
        kind, dtype = _dtypes().get(number, (f"dtype {number}", None))
        if dtype is None:
            return name, kind, None
        shape, what = dims.shape(), f"{name[:80]!r}"
        if 14 in last and last[14].value == _EXTERNAL:
            return name, kind, self._external(pairs, dtype, shape, what)
        if 9 in last:
            return name, kind, self._raw(last[9], dtype, shape, what)
        own = str(dtype).removeprefix("torch.")
        home = next((n for n, (_, names) in _VALUES.items() if own in names), 5)
        lists[home].what = what
        return name, kind, entry_of(lists[home], dtype, shape)

    def _raw(self, raw: Field, dtype: torch.dtype, shape: tuple[int, ...], what: str) -> Entry:
        source = self.wire.source
        if source.checked_count(shape, what) * dtype.itemsize != raw.value:
            raise source.damaged(f"{what} has {raw.value:,} bytes and the shape {shape}")
        return source.entry(dtype, shape, raw.start, what)

    def _external(
        self, pairs: list[Field], dtype: torch.dtype, shape: tuple[int, ...], what: str
    ) -> Entry:
        """Return a tensor in a file beside the model."""
        wire, found = self.wire, dict[str, str]()
        for pair in pairs:
            texts = {1: "", 2: ""}
            for field in wire.fields(pair, what, _PAIR):
                texts[field.number] = wire.text(field, what)
            found[texts[1]] = texts[2]
        length = wire.source.checked_count(shape, what) * dtype.itemsize
        offset, stated = found.get("offset", "0") or "0", found.get("length", "") or str(length)
        if not all(n.isascii() and n.isdigit() and len(n) < 20 for n in (offset, stated)):
            raise wire.source.damaged(f"{what} has no place in its file")
        if int(stated) != length:
            raise wire.source.damaged(f"{what} has {int(stated):,} bytes and the shape {shape}")
        source = self._file(found.get("location", ""))
        return source.entry(dtype, shape, int(offset), what)

    def _file(self, location: str) -> Source:
        if location not in self._beside:
            self._beside[location] = Source(_path_beside(self.wire.source.path, location))
        return self._beside[location]


def _path_beside(model: Path, location: str) -> Path:
    """Return the path of a file beside the model, or refuse it."""
    parts = PurePosixPath(location)
    outside = parts.is_absolute() or PureWindowsPath(location).drive or "\\" in location
    if not parts.name or outside or ".." in parts.parts or "\0" in location:
        raise MigrateError(
            f"the weights would be in {plain(location)[:100]!r}, outside the folder of the model",
            str(model),
            "do not trust this file; a sound one names a file in its own folder",
        )
    path = model.parent / location
    # Caches keep a model as links into one folder: the data may be beside the file itself.
    homes = (model.parent.resolve(), model.resolve().parent)
    real = path.resolve()
    if not any(home == real.parent or home in real.parents for home in homes):
        raise MigrateError(
            f"{plain(location)[:100]!r} is a link that leaves the folder of the model",
            str(model),
            "copy the file itself into the folder, if you know where it is from",
        )
    if not path.is_file():
        raise MigrateError(
            f"the weights are in another file, and it is not there: {plain(location)[:100]}",
            str(model),
            "copy it into the folder of the model",
        )
    return path
