"""PyTorch's stream of pickles: ``torch.save`` before 1.6, and what old torch still reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.formats.pickles import UnsoundPickleError, read_pickle
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.formats.torch_objects import Storage, constructors, storage_type
from migrate_kit.checkpoints.formats.torch_zip import moved
from migrate_kit.checkpoints.tree import contents_of
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    import torch

    from migrate_kit.checkpoints.state import Contents

FORMAT = "torch legacy stream"
# torch/serialization.py: the magic number as a pickle of protocol 2, LONG1 of ten bytes.
_MAGIC = 0x1950A86A20F9469CFC6C
_HEAD = b"\x80\x02\x8a\x0a" + _MAGIC.to_bytes(10, "little")
_PROTOCOL = 1001


def recognises(source: Source) -> bool:
    """Whether it begins with torch's magic number."""
    return source.head(len(_HEAD)) == _HEAD


def read(source: Source) -> Contents:
    """List the tensors; their places follow from the lengths between them."""
    stream = _Stream(source)
    tree, wanted = stream.read()
    found = contents_of(tree, source, FORMAT, wanted)
    places = {s.location for s in stream.storages.values()} - {"cpu"}
    if places:
        found.findings.append(moved(places))
    return found


class _Stream:
    """Five pickles, and then the storages one after the other."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.storages: dict[str, Storage] = {}

    def read(self) -> tuple[Any, list[str]]:
        """Return what was saved, and the names it wanted."""
        file = self.source.stream()
        try:
            read_pickle(file, {})
            protocol, _ = read_pickle(file, {})
            system, _ = read_pickle(file, {})
            if protocol != _PROTOCOL or not isinstance(system, dict):
                raise UnsoundPickleError(f"protocol {str(protocol)[:20]}")
            if system.get("little_endian") is False:
                raise MigrateError(
                    "the checkpoint was written on a big-endian machine",
                    str(self.source.path),
                    "load it there and save it as safetensors",
                )
            tree, wanted = read_pickle(file, constructors(), self._persistent)
            keys, _ = read_pickle(file, {})
            self._place(keys, file.tell())
        except UnsoundPickleError as error:
            raise self.source.damaged(str(error)) from error
        return tree, wanted

    def _persistent(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]  # a class with its source text, which is left unread
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise UnsoundPickleError("a tensor without a storage")
        key, location, numel = str(pid[2]), str(pid[3])[:50], pid[4]
        if not isinstance(numel, int) or numel < 0:
            raise UnsoundPickleError("a storage of an impossible length")
        if key not in self.storages:
            self.storages[key] = Storage(key, storage_type(pid[1]), numel, location)
        view = pid[5] if len(pid) == 6 else None
        if not isinstance(view, tuple):
            return self.storages[key]
        return self._view(self.storages[key], view)

    def _view(self, root: Storage, view: tuple[Any, ...]) -> Storage:
        # Before 0.4 a storage could be a piece of another: (key, offset, length).
        if len(view) != 3 or not all(isinstance(n, int) and n >= 0 for n in view[1:]):
            raise UnsoundPickleError("a piece of a storage without its place")
        key, offset, length = str(view[0]), view[1], view[2]
        if offset + length > root.numel:
            raise UnsoundPickleError("a piece that ends behind its storage")
        if key not in self.storages:
            piece = Storage(key, root.dtype, length, root.location)

            def read_piece(dtype: torch.dtype, count: int) -> torch.Tensor:
                if root.read is None:
                    raise UnsoundPickleError("a storage that is not in the file")
                return root.read(dtype, offset + count)[offset:]

            piece.read = read_piece
            self.storages[key] = piece
        return self.storages[key]

    def _place(self, keys: Any, offset: int) -> None:
        if not isinstance(keys, list):
            raise UnsoundPickleError("no list of the storages")
        for key in keys:
            storage = self.storages.get(str(key)[:200])
            if storage is None:
                raise UnsoundPickleError("a storage that no tensor uses")
            name = f"storage {storage.key}"
            numel = int.from_bytes(self.source.bytes(offset, 8, name), "little")
            if numel != storage.numel:
                raise UnsoundPickleError(f"{name} holds {numel:,} values, not {storage.numel:,}")
            start = offset + 8
            self.source.view(start, storage.nbytes, name)
            storage.read = _reader(self.source, start, name)
            offset = start + storage.nbytes
        missing = [s.key for s in self.storages.values() if s.read is None]
        if missing:
            raise UnsoundPickleError(f"{len(missing)} storages are not in the file")


def _reader(source: Source, start: int, name: str) -> Any:
    return lambda dtype, count: source.tensor(dtype, (count,), start, name)


def storage_in(source: Source, data: Any) -> Storage:
    """Return the storage that a plain pickle holds as a stream of its own."""
    if not isinstance(data, bytes) or not data.startswith(_HEAD):
        raise UnsoundPickleError("a storage that is no stream of torch")
    found, _ = _Stream(Source.of_bytes(source.path, data)).read()
    if not isinstance(found, Storage):
        raise UnsoundPickleError("a stream that holds no storage")
    return found
