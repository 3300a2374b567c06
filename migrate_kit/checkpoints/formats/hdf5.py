"""HDF5, as Keras and Caffe write it: groups of datasets, named by their path.

Links out of the file, virtual datasets and datasets in other files are not followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from migrate_kit.checkpoints.formats import hdf5_reader
from migrate_kit.checkpoints.formats.beside import left_out, set_apart
from migrate_kit.checkpoints.formats.numpy_objects import entry_of_array
from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.source import Source

_MAGIC = b"\x89HDF\r\n\x1a\n"
# The signature may come after a block of the user's: 512 bytes, or twice that, and so on.
_PLACES = (0, *(512 << n for n in range(8)))
# Keras 2 and Keras 3.
_OPTIMIZER = ("optimizer_weights/", "optimizer/vars/")


def recognises(source: Source) -> bool:
    """Whether HDF5's signature is where one may be."""
    return any(source.find(_MAGIC, at, at + len(_MAGIC)) == at for at in _PLACES)


def read(source: Source) -> Contents:
    """List the datasets; contiguous ones are mapped, others are read when they are asked for."""
    listed = hdf5_reader.listing(source)
    entries: dict[str, Entry] = {}
    without: dict[str, str] = {}
    for name, described in listed["datasets"].items():
        entry = _entry(source, name, described)
        if entry is None:
            without[name] = described["dtype"]
        else:
            entries[name] = entry
    state = {name: entry for name, entry in entries.items() if name.startswith(_OPTIMIZER)}
    kept = {name: entry for name, entry in entries.items() if name not in state}
    kind = "training checkpoint" if state else "weights"
    found = Contents("HDF5", kind, StateDict(kept), listed["texts"])
    set_apart(found, "optimizer", state)
    if listed["other"]:
        what = f"left out, links or no numbers: {few(listed['other'])}"
        found.findings.append(Finding("info", what, source.path.name))
    if without:
        found.findings.append(left_out(source, without))
    return found


def _entry(source: Source, name: str, found: dict[str, Any]) -> Entry | None:
    dtype, shape = np.dtype(found["dtype"]), tuple(found["shape"])
    what = f"{name[:80]!r}"
    source.checked_count(shape, what)
    sample = entry_of_array(np.empty(0, dtype))
    if sample is None:
        return None
    if found["offset"] is not None and dtype.newbyteorder("<") == dtype:
        return source.entry(sample.dtype, shape, found["offset"], what)

    def read() -> torch.Tensor:
        data = hdf5_reader.values(source, name)
        count = source.checked_count(shape, what)
        if len(data) != count * dtype.itemsize:
            raise source.damaged(f"{what} has {len(data):,} bytes and the shape {shape}")
        if not count:
            return torch.zeros(shape, dtype=sample.dtype)
        return torch.frombuffer(data, dtype=sample.dtype).reshape(shape)

    return Entry(shape, sample.dtype, read)
