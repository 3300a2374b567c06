"""Load a file of weights, whatever wrote it."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints import shards
from migrate_kit.checkpoints.checkpoint import Checkpoint
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.errors import MigrateError
from migrate_kit.results import few

if TYPE_CHECKING:
    from migrate_kit.checkpoints.state import Contents

# In this order: the formats that begin with a signature first, then those that only their
# structure tells.
_FORMATS = (
    "torch_legacy",
    "npy",
    "torch_zip",
    "hdf5",
    "safetensors_file",
    "pickle_file",
    "tensor_bundle",
    "onnx_file",
    "frozen_graph",
    "caffemodel",
    "mindspore_ckpt",
    "darknet",
)
_PICKLED = ("torch_legacy", "torch_zip", "pickle_file")


def load_checkpoint(path: str | os.PathLike[str], trust: bool = False) -> Checkpoint:
    """Recognise a file of weights by its content, and list it without reading a tensor.

    Nothing in the file is run: of a pickle with a whole network in it the tensors are read, and
    the code it asks for is listed.

    Parameters
    ----------
    path : path
        A file, the index of a sharded checkpoint, or the folder of one.
    trust : bool
        Whether the code in a pickle may run as well; ``.object`` is then what was saved.

    Returns
    -------
    Checkpoint
        ``.state_dict`` (names, shapes and dtypes now, the values when asked for), ``.kind``,
        ``.format``, ``.extras`` (what else is in the file) and ``.findings``.

    Raises
    ------
    MigrateError
        If it is no file of weights, damaged, or of a format without weights; the text says what
        it is and what to do.

    Examples
    --------
    >>> import pathlib, tempfile, torch
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> torch.save({"epoch": 3, "state_dict": {"fc.bias": torch.zeros(10)}}, folder / "a.pth")
    >>> checkpoint = load_checkpoint(folder / "a.pth")
    >>> checkpoint
    Checkpoint(training checkpoint, torch zip: 1 tensor, 40 B, float32 (1); also epoch)
    >>> checkpoint.state_dict["fc.bias"].shape
    torch.Size([10])
    """
    path = _path(path)
    contents, reader = _read(path)
    checkpoint = Checkpoint(path, contents)
    if trust and reader in _PICKLED:
        from migrate_kit.checkpoints.trusted import run_pickle

        run_pickle(checkpoint)
    return checkpoint


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise MigrateError(
            f"a path is needed, and this is of type {type(path).__name__}",
            "path",
            "pass the file's name as a str or a pathlib.Path",
        )
    found = Path(path)
    try:
        return shards.in_folder(found) if found.is_dir() else found
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MigrateError(
            f"the file cannot be read: {reason or error}", few([path]), "check the path"
        ) from error


def _read(path: Path) -> tuple[Contents, str]:
    source = Source(path)
    for name in _FORMATS:
        reader: Any = import_module(f"migrate_kit.checkpoints.formats.{name}")
        if reader.recognises(source):
            return reader.read(source), name
    if shards.is_index(source.head()):
        return shards.read_index(path, lambda shard: _read(shard)[0]), "shards"
    from migrate_kit.checkpoints.formats.refusals import refusal_of

    refusal = refusal_of(source)
    if refusal is not None:
        raise refusal
    raise MigrateError(
        f"no known file of weights; it begins with {source.head(8).hex(' ')}",
        str(path),
        "say which program wrote it, and export it there as safetensors or ONNX",
    )
