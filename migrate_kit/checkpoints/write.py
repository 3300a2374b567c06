"""Write a state_dict in another format, one tensor at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from migrate_kit.checkpoints.formats.safetensors_file import DTYPES
from migrate_kit.checkpoints.state import Entry, StateDict
from migrate_kit.errors import MigrateError, meant
from migrate_kit.files import replacing
from migrate_kit.results import few

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

# What the safetensors library does not read, or only of late.
_UNREADABLE = ("F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_SAFETENSORS = {
    getattr(torch, own): name
    for name, (_, own) in DTYPES.items()
    if own and name not in _UNREADABLE
}
FORMATS = ("safetensors", "torch", "torch-legacy", "mindspore")


def write_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    out: str | os.PathLike[str],
    format: str = "safetensors",  # noqa: A002
) -> Path:
    """Write tensors, and nothing else, in the format that another program reads.

    Parameters
    ----------
    state_dict : mapping of str to tensor
        A :class:`StateDict` is written without all of it being in memory, except in the two
        formats of ``torch.save``.
    out : path
        It is written under another name and renamed at the end.
    format : {"safetensors", "torch", "torch-legacy", "mindspore"}
        ``torch-legacy`` is what ``torch.save`` wrote before 1.6, and the only one that torch 1.3 to
        1.5 reads, such as Cambricon's Catch has.

    Raises
    ------
    MigrateError
        If a tensor's dtype does not exist in the format, or the disk is full.

    Examples
    --------
    >>> import tempfile, torch
    >>> folder = Path(tempfile.mkdtemp())
    >>> out = write_state_dict({"w": torch.arange(3.0)}, folder / "w.safetensors")
    >>> from migrate_kit.checkpoints.load import load_checkpoint
    >>> load_checkpoint(out).state_dict["w"]
    tensor([0., 1., 2.])
    """
    writers: dict[str, Callable[[StateDict, BinaryIO], None]] = {
        "safetensors": _safetensors,
        "torch": lambda state, file: _torch(state, file, new=True),
        "torch-legacy": lambda state, file: _torch(state, file, new=False),
        "mindspore": _mindspore,
    }
    if format not in writers:
        raise MigrateError(
            f"no format {format!r}{meant(format, FORMATS)}",
            "format=",
            f"one of {', '.join(FORMATS)}",
        )
    state = StateDict.of(state_dict)
    if not state:
        raise MigrateError("no tensor to write", "state_dict", "give it a state_dict")
    path = Path(out)
    with replacing(path) as file:
        writers[format](state, file)
    return path


def _safetensors(state: StateDict, file: BinaryIO) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    # The largest element first, so that every tensor is aligned to its own.
    order = sorted(state.entries, key=lambda n: -state.entries[n].dtype.itemsize)
    end = 0
    for name in order:
        entry = state.entries[name]
        _known(entry, name, "safetensors", _SAFETENSORS)
        start, end = end, end + entry.nbytes
        header[name] = {
            "dtype": _SAFETENSORS[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [start, end],
        }
    if "__metadata__" in state:
        raise MigrateError("a tensor named __metadata__", "safetensors", "rename it")
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        file.write(raw(state[name]))


def raw(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's bytes in C order, without copying where it is contiguous."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    bytes_of: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return memoryview(bytes_of)


def _torch(state: StateDict, file: BinaryIO, *, new: bool) -> None:
    loaded: dict[object, torch.Tensor] = {}
    tensors = {}
    for name, entry in state.entries.items():
        # What is one memory stays one: tied weights are written once.
        key = entry.memory or name
        tensors[name] = loaded.setdefault(key, entry.read())
    torch.save(tensors, file, _use_new_zipfile_serialization=new)


def _mindspore(state: StateDict, file: BinaryIO) -> None:
    from migrate_kit.checkpoints.formats import mindspore_ckpt

    mindspore_ckpt.write(state, file)


def _known(entry: Entry, name: str, form: str, names: Mapping[torch.dtype, str]) -> None:
    if entry.dtype not in names:
        dtype = str(entry.dtype).removeprefix("torch.")
        raise MigrateError(
            f"{form} has no {dtype}",
            f"tensor {few([name])}",
            "dequantize it first" if "int" in dtype else "convert it to float32 first",
        )
