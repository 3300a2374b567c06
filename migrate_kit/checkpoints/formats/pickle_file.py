"""A bare pickle: ``pickle.dump`` of a state_dict or of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.formats.pickles import UnsoundPickleError, read_pickle
from migrate_kit.checkpoints.formats.torch_objects import constructors
from migrate_kit.checkpoints.tree import contents_of

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.source import Source
    from migrate_kit.checkpoints.state import Contents

FORMAT = "pickle"
# PROTO with its number; protocol 0 begins with an opcode that is a letter, so only a dict, a list,
# an object or a name is taken for one, and only where the end is a pickle's end.
_STARTS = tuple(bytes([0x80, n]) for n in range(2, 6))
_LETTERS = (b"(dp", b"(lp", b"(i", b"ccollections\n", b"ccopy_reg\n", b"cnumpy")


def recognises(source: Source) -> bool:
    """Whether it begins as a pickle and ends with its last opcode."""
    return source.head(16).startswith(_STARTS + _LETTERS) and b"." in source.tail(1024)


def read(source: Source) -> Contents:
    """List the tensors and arrays of a pickle."""
    return read_part(source, 0, FORMAT)


def read_part(source: Source, offset: int, name: str) -> Contents:
    """List the tensors of the pickle that begins at ``offset``."""
    try:
        tree, wanted = read_pickle(source.stream(offset), _known(source))
    except UnsoundPickleError as error:
        raise source.damaged(str(error)) from error
    return contents_of(tree, source, name, wanted)


def _known(source: Source) -> dict[str, Any]:
    def from_bytes(data: Any = b"", *_: Any) -> Any:
        # Each storage is a small torch.save of its own inside the pickle.
        from migrate_kit.checkpoints.formats.torch_legacy import storage_in

        return storage_in(source, data)

    return constructors() | {"torch.storage._load_from_bytes": from_bytes}
