"""Write a state_dict in another format, one tensor at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from migrate_kit.checkpoints.formats.safetensors_file import DTYPES
from migrate_kit.checkpoints.state import Entry, StateDict
from migrate_kit.errors import MigrateError, meant
from migrate_kit.files import replacing
from migrate_kit.results import few, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

# What the safetensors library does not read, or only of late.
_UNREADABLE = ("F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_SAFETENSORS = {
    getattr(torch, own): name
    for name, (_, own) in DTYPES.items()
    if own and name not in _UNREADABLE
}
# What torch 1.3 has a storage for.
_LEGACY = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.qint8, torch.quint8, torch.qint32,
)  # fmt: skip
FORMATS = ("safetensors", "torch", "torch-legacy", "mindspore")
SUFFIXES = {
    ".safetensors": "safetensors",
    ".pth": "torch",
    ".pt": "torch",
    ".bin": "torch",
    ".ckpt": "mindspore",
}


def write_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    out: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
) -> Path:
    """Write tensors, and nothing else, in the format that another program reads.

    Parameters
    ----------
    state_dict : mapping of str to tensor
        A :class:`StateDict` is written without all of it being in memory, except in the two
        formats of ``torch.save``.
    out : path
        It is written under another name and renamed at the end.
    format : {"safetensors", "torch", "torch-legacy", "mindspore"}, optional
        By default what the suffix says: ``.safetensors``, ``.pth``, ``.pt`` and ``.bin`` for torch,
        ``.ckpt`` for MindSpore. ``torch-legacy`` is what ``torch.save`` wrote before 1.6, and the
        only one that torch 1.3 to 1.5 reads, such as Cambricon's Catch has.

    Raises
    ------
    MigrateError
        If a tensor or its name does not exist in the format, it has no values, the suffix says no
        format, or the disk is full.

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
    path = _path(out)
    format = format or format_of(path)  # noqa: A001
    if format not in writers:
        raise MigrateError(
            f"no format {format!r}{meant(format, FORMATS)}",
            "format=",
            f"one of {', '.join(FORMATS)}",
        )
    if isinstance(state_dict, torch.nn.Module) or not isinstance(state_dict, Mapping):
        raise MigrateError(
            f"a mapping of tensors is needed, and this is of type {type(state_dict).__name__}",
            "state_dict",
            "pass model.state_dict()",
        )
    with _speaking(format):
        state = StateDict.of(state_dict)
    if not state:
        raise MigrateError("no tensor to write", "state_dict", "give it a state_dict")
    with replacing(path) as file, _speaking(format):
        writers[format](state, file)
    return path


def format_of(path: Path) -> str:
    """Return the format that a file's suffix says.

    Raises
    ------
    MigrateError
        If it says none.

    Examples
    --------
    >>> format_of(Path("net.pth"))
    'torch'
    """
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise MigrateError(
            f"the suffix {path.suffix!r} says no format: {', '.join(SUFFIXES)} do",
            str(path),
            f"give it one of these, or format= one of {', '.join(FORMATS)}",
        )
    return found


def _path(out: Any) -> Path:
    if not isinstance(out, str | os.PathLike):
        raise MigrateError(
            f"a path is needed, and this is of type {type(out).__name__}",
            "out=",
            "pass the file's name as a str or a pathlib.Path",
        )
    return Path(out)


@contextmanager
def _speaking(form: str) -> Iterator[None]:
    """Turn what torch says of a tensor or a disk into the one kind of error."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        said = plain(str(error).partition("\n")[0])[:200]
        raise MigrateError(
            f"cannot write {form}: {said or type(error).__name__}",
            "state_dict",
            "give dense tensors on a device with values, and see that the disk has room",
        ) from error


def _values(state: StateDict, name: str, form: str, *, dense: bool = True) -> torch.Tensor:
    """Return a tensor that has values, without a graph or bits beside it."""
    tensor = state[name].detach()
    if tensor.is_meta:
        raise MigrateError("a tensor without values (meta)", few([name]), "load its values first")
    if tensor.layout == torch.strided:
        return tensor.resolve_conj().resolve_neg()
    if dense:
        layout = str(tensor.layout).removeprefix("torch.")
        raise MigrateError(f"{form} has no {layout} tensors", few([name]), "give it as .to_dense()")
    return tensor


def _named(state: StateDict, form: str) -> None:
    for name in state:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise MigrateError(
                f"{form} cannot hold a name that is no Unicode text",
                ascii(name)[:80],
                "rename the tensor",
            ) from error


def _safetensors(state: StateDict, file: BinaryIO) -> None:
    _named(state, "safetensors")
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
        file.write(raw(_values(state, name, "safetensors")))


def raw(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's bytes in C order, without copying where it is contiguous."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    bytes_of: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return memoryview(bytes_of)


def _torch(state: StateDict, file: BinaryIO, *, new: bool) -> None:
    loaded: dict[object, torch.Tensor] = {}
    dtypes: dict[int, torch.dtype] = {}
    tensors = {}
    for name, entry in state.entries.items():
        if not new:
            _known(entry, name, "torch-legacy", _LEGACY)
        # What is one memory stays one: tied weights are written once.
        key = entry.memory or name
        if key not in loaded:
            loaded[key] = _own_dtype(_values(state, name, "torch-legacy", dense=not new), dtypes)
        tensors[name] = loaded[key]
    torch.save(tensors, file, _use_new_zipfile_serialization=new)


def _own_dtype(tensor: torch.Tensor, dtypes: dict[int, torch.dtype]) -> torch.Tensor:
    """Return a tensor that torch.save takes: it writes no memory under two dtypes."""
    if tensor.layout != torch.strided or not tensor.numel():
        return tensor
    place = tensor.untyped_storage().data_ptr()
    return tensor if dtypes.setdefault(place, tensor.dtype) == tensor.dtype else tensor.clone()


def _mindspore(state: StateDict, file: BinaryIO) -> None:
    _named(state, "mindspore")
    from migrate_kit.checkpoints.formats import mindspore_ckpt

    mindspore_ckpt.write(state, file)


def _known(entry: Entry, name: str, form: str, names: Collection[torch.dtype]) -> None:
    if entry.dtype not in names:
        dtype = str(entry.dtype).removeprefix("torch.")
        raise MigrateError(
            f"{form} has no {dtype}",
            f"tensor {few([name])}",
            "dequantize it first" if dtype.startswith("q") else "convert it to float32 first",
        )
