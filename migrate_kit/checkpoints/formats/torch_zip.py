"""PyTorch's zip container: ``torch.save`` since 1.6, and TorchScript."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.formats.pickles import UnsoundPickleError, read_pickle
from migrate_kit.checkpoints.formats.torch_objects import Storage, constructors, storage_type
from migrate_kit.checkpoints.formats.zip_members import MAGIC, first_member, members, place
from migrate_kit.checkpoints.tree import contents_of
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    import torch

    from migrate_kit.checkpoints.formats.source import Source
    from migrate_kit.checkpoints.state import Contents

FORMAT = "torch zip"


def recognises(source: Source) -> bool:
    """Whether it is a zip archive; :func:`read` says which."""
    return source.head(4) == MAGIC and not first_member(source).endswith(b".npy")


def read(source: Source) -> Contents:
    """List the tensors of a state_dict, a training checkpoint, a module or TorchScript."""
    archive = _Archive(source)
    folder = archive.folder()
    if archive.text(f"{folder}byteorder", "little") != "little":
        raise MigrateError(
            "the checkpoint was written on a big-endian machine",
            str(source.path),
            "load it there and save it as safetensors",
        )
    stream = source.stream(*archive.place(f"{folder}data.pkl"), "data.pkl")
    storages: dict[str, Storage] = {}

    def persistent(pid: Any) -> Storage:
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise UnsoundPickleError("a tensor without a storage")
        key, location, numel = str(pid[2]), str(pid[3])[:50], pid[4]
        if key not in storages:
            storages[key] = archive.storage(
                f"{folder}data/{key}", Storage(key, storage_type(pid[1]), numel, location)
            )
        return storages[key]

    try:
        tree, wanted = read_pickle(stream, constructors(), persistent)
    except UnsoundPickleError as error:
        raise source.damaged(f"data.pkl: {error}") from error
    script = archive.has(f"{folder}constants.pkl") or archive.has_folder(f"{folder}code/")
    found = contents_of(tree, source, "TorchScript" if script else FORMAT, wanted)
    places = {s.location for s in storages.values()} - {"cpu"}
    if places:
        found.findings.append(moved(places))
    return found


def moved(places: set[str]) -> Finding:
    """Return what to say of tensors that were saved on another device."""
    return Finding(
        "info",
        f"its tensors were saved on {few(sorted(places))}; they are read on the CPU here",
        "",
        "with torch.load, add map_location='cpu'",
    )


class _Archive:
    """The members of a zip file, where they lie in it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._members = members(source)

    def has(self, name: str) -> bool:
        """Whether there is a member of this name."""
        return name in self._members

    def has_folder(self, prefix: str) -> bool:
        """Whether any member's name begins so."""
        return any(name.startswith(prefix) for name in self._members)

    def folder(self) -> str:
        """Return the folder that holds data.pkl, with its slash."""
        found = [n for n in self._members if n.rpartition("/")[2] == "data.pkl"]
        if len(found) == 1:
            return found[0][: -len("data.pkl")]
        raise self._no_checkpoint()

    def _no_checkpoint(self) -> MigrateError:
        names = list(self._members)
        if any(name.endswith("tensors.json") for name in names):
            what, fix = "TorchScript of torch 1.0", "load it with torch 1.x and save it again"
        elif any(name.lower().endswith((".pth", ".pt", ".bin", ".ckpt")) for name in names):
            what, fix = "a zip archive around a checkpoint", "unpack it and load what is inside"
        elif any(name.endswith((".keras", "model.weights.h5")) for name in names):
            what, fix = "a Keras archive", "unpack it and load its model.weights.h5"
        else:
            what, fix = "a zip archive, and none of PyTorch's", "unpack it and look what is inside"
        return MigrateError(f"{what}: it holds {few(names)}", str(self.source.path), fix)

    def place(self, name: str) -> tuple[int, int]:
        """Return where a member's bytes begin in the file, and how many there are."""
        info = self._members.get(name)
        if info is None:
            raise self.source.damaged(f"no {name} in the archive")
        if info.compress_type != zipfile.ZIP_STORED:
            raise MigrateError(
                f"the archive's {name} is compressed, which torch.save never does",
                str(self.source.path),
                "it was packed again: unpack it and `zip -0` it, or download the original",
            )
        return place(self.source, info)

    def text(self, name: str, default: str) -> str:
        """Return a short member as text, or the default where there is none."""
        if not self.has(name):
            return default
        offset, length = self.place(name)
        return self.source.bytes(offset, min(length, 100), name).decode("latin1").strip()

    def storage(self, name: str, storage: Storage) -> Storage:
        """Give a storage its place in the file."""
        offset, length = self.place(name)
        if not isinstance(storage.numel, int) or not 0 <= storage.nbytes <= length:
            raise UnsoundPickleError(f"{name} holds {length:,} bytes, fewer than its tensors need")

        def read_values(dtype: torch.dtype, count: int) -> torch.Tensor:
            return self.source.tensor(dtype, (count,), offset, name)

        storage.read = read_values
        return storage
