"""TensorFlow's checkpoint of version 2: ``prefix.index`` and ``prefix.data-00000-of-00001``.

Tried on one that TensorFlow wrote, the SavedModel of spotify/basic-pitch: its kernels are those of
the ONNX file that tf2onnx made of it, where tf2onnx has not folded a batch norm into them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from migrate_kit.checkpoints.formats.beside import left_out, set_apart
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.formats.sstable import Table, is_table
from migrate_kit.checkpoints.formats.tf_tensor import NO_NUMBERS, dtype_of, shape_of
from migrate_kit.checkpoints.formats.wire import BYTES, FIXED32, VARINT, Field, Wire
from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, counted, few, plain

if TYPE_CHECKING:
    import torch

# A shard has no signature of its own: only its name, and the index beside it.
_DATA: Final = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
# tensor_bundle.proto, BundleHeaderProto and BundleEntryProto.
_HEADER: Final = {1: VARINT, 2: VARINT, 3: BYTES}
_ENTRY: Final = {1: VARINT, 2: BYTES, 3: VARINT, 4: VARINT, 5: VARINT, 6: FIXED32, 7: BYTES}
_MOST_SHARDS: Final = 100_000
# What optimizers and trainers add: Keras 2 and 3, and Saver's slots after the name of a variable.
_STATE: Final = re.compile(
    r"(.+/)?\.OPTIMIZER_SLOT/.+|optimizer/.+|(beta[12]_power|global_step)(_\d+)?"
    r"|(save_counter|global_step|step)/\.ATTRIBUTES/VARIABLE_VALUE"
)
_SLOT_OF: Final = re.compile(
    r"(.+)/(?:Adam|AdamW|Adagrad|Adadelta|Ftrl|LAMB|Momentum|RMSProp|adam_[mv])(?:_\d+)?"
)
_METRICS: Final = re.compile(r"keras_api/metrics/.+")


class _Place(NamedTuple):
    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    sliced: bool


def recognises(source: Source) -> bool:
    """Whether it is the index, or a shard with an index beside it."""
    return is_table(source) or _index_of(source) is not None


def read(source: Source) -> Contents:
    """List the variables; what optimizers and metrics keep goes to the extras.

    Raises
    ------
    MigrateError
        If it is damaged, a shard is missing, or it is of version 1.
    """
    index = _index_of(source) or source
    places, shards = _places(index)
    bundle = _Bundle(index, shards)
    entries, without, texts = {}, {}, []
    for name, place in places.items():
        dtype_name, dtype = dtype_of(place.dtype)
        if place.sliced:
            continue
        if dtype is not None:
            entries[name] = bundle.entry(name, place, dtype)
        elif dtype_name in NO_NUMBERS:
            texts.append(name)
        else:
            without[name] = dtype_name
    sliced = [name for name, place in places.items() if place.sliced]
    found = _contents(entries)
    if texts:
        found.extras["texts"] = f"{counted(len(texts), 'variable')} without numbers: {few(texts)}"
    if without:
        found.findings.append(left_out(source, without))
    if sliced:
        found.findings.append(
            Finding(
                "error",
                f"{counted(len(sliced), 'variable')} stored in slices, left out: {few(sliced)}",
                source.path.name,
                "restore it in TensorFlow and save it without a partitioner",
            )
        )
    return found


def _contents(entries: dict[str, Entry]) -> Contents:
    state = {name: entry for name, entry in entries.items() if _is_state(name, entries)}
    metrics = {name: entry for name, entry in entries.items() if _METRICS.fullmatch(name)}
    kept = {n: e for n, e in entries.items() if n not in state and n not in metrics}
    kind = "training checkpoint" if state else "weights"
    found = Contents("TensorFlow bundle", kind, StateDict(kept))
    set_apart(found, "optimizer", state)
    set_apart(found, "metrics", metrics)
    return found


def _is_state(name: str, names: dict[str, Entry]) -> bool:
    slot = _SLOT_OF.fullmatch(name)
    return bool(_STATE.fullmatch(name)) or (slot is not None and slot[1] in names)


def _index_of(source: Source) -> Source | None:
    """Return the index beside a shard."""
    match = _DATA.fullmatch(source.path.name)
    if match is None:
        return None
    path = source.path.with_name(f"{match[1]}.index")
    found = Source(path) if path.is_file() and path.stat().st_size else None
    return found if found is not None and is_table(found) else None


def _places(index: Source) -> tuple[dict[str, _Place], int]:
    """Return where each variable is, and the number of shards."""
    places: dict[str, _Place] = {}
    shards = 0
    for key, wire, message in Table(index).entries():
        if key == b"":
            shards = _header(wire, message, index)
        elif not key.startswith(b"\0"):  # the slices of a partitioned variable
            try:
                name = key.decode()
            except UnicodeDecodeError as error:
                raise index.damaged("the name of a variable is no text") from error
            places[name] = _place(wire, message, f"{name[:80]!r}")
    if not shards:
        raise index.damaged("the index has no header")
    return places, shards


def _header(wire: Wire, message: Field, index: Source) -> int:
    shards, fields = 0, list(wire.fields(message, "the header"))
    if fields and (fields[0].number, fields[0].kind) == (1, BYTES):
        raise MigrateError(
            "a TensorFlow checkpoint of version 1",
            str(index.path),
            "restore it in TensorFlow and save it with write_version=V2, or freeze the graph",
        )
    for field in fields:
        if _HEADER.get(field.number, field.kind) != field.kind:
            raise index.damaged("the header of the index is unsound")
        if field.number == 1:
            shards = field.value
        if field.number == 2 and field.value:
            raise MigrateError(
                "the checkpoint was written on a big-endian machine",
                str(index.path),
                "restore it there and save it in another format",
            )
    if not 0 < shards <= _MOST_SHARDS:
        raise index.damaged(f"the index names {shards:,} shards")
    return shards


def _place(wire: Wire, message: Field, what: str) -> _Place:
    numbers = dict.fromkeys((1, 3, 4, 5), 0)
    shape: tuple[int, ...] = ()
    sliced = False
    for field in wire.fields(message, what, _ENTRY):
        if field.number in numbers:
            numbers[field.number] = field.signed
        elif field.number == 2:
            found = shape_of(wire, field, what)
            if found is None:
                raise wire.source.damaged(f"{what} has no shape")
            shape = found
        elif field.number == 7:
            sliced = True
    return _Place(numbers[1], shape, numbers[3], numbers[4], numbers[5], sliced)


class _Bundle:
    """The shards beside an index, each mapped when a variable needs it."""

    def __init__(self, index: Source, shards: int) -> None:
        self._index, self._count = index, shards
        self._shards: dict[int, Source] = {}

    def entry(self, name: str, place: _Place, dtype: torch.dtype) -> Entry:
        what, shape = f"{name[:80]!r}", place.shape
        if self._index.checked_count(shape, what) * dtype.itemsize != place.size:
            raise self._index.damaged(f"{what} has {place.size:,} bytes and the shape {shape}")
        return self._shard(place.shard).entry(dtype, shape, place.offset, what)

    def _shard(self, number: int) -> Source:
        if not 0 <= number < self._count:
            raise self._index.damaged(f"a variable is in shard {number:,} of {self._count:,}")
        if number not in self._shards:
            stem = self._index.path.name.removesuffix(".index")
            name = f"{stem}.data-{number:05}-of-{self._count:05}"
            path = self._index.path.with_name(name)
            if not path.is_file():
                raise MigrateError(
                    f"the values are in another file, and it is not there: {plain(name)}",
                    str(self._index.path),
                    "copy all files of the checkpoint into one folder",
                )
            self._shards[number] = Source(path)
        return self._shards[number]
