"""What lies beside the weights in a file, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.state import StateDict
from migrate_kit.results import Finding, counted, few

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migrate_kit.checkpoints.formats.source import Source
    from migrate_kit.checkpoints.state import Contents, Entry

_INTEGERS = (torch.int32, torch.int64)
_MOST_ARGUMENTS = 16
_SHOWN = 3


def is_argument(entry: Entry) -> bool:
    """Whether a constant of a graph is an operator's shape, axes or padding and no weight.

    Examples
    --------
    >>> from migrate_kit.checkpoints.state import entry_of
    >>> is_argument(entry_of(torch.tensor([0, 3, 1, 2]))), is_argument(entry_of(torch.ones(4)))
    (True, False)
    """
    return entry.dtype in _INTEGERS and entry.nbytes <= _MOST_ARGUMENTS * entry.dtype.itemsize


def set_apart(found: Contents, key: str, entries: Mapping[str, Entry]) -> None:
    """Keep tensors that are not the network's: in the parts, and in words in the extras."""
    if entries:
        found.parts[key] = StateDict(entries)
        found.extras[key] = f"{counted(len(entries), 'tensor')}: {few(entries, _SHOWN)}"


def set_arguments_apart(found: Contents, constants: Mapping[str, Entry]) -> None:
    """Keep the weights among a graph's constants as the state_dict, and the rest in the parts."""
    found.state_dict = StateDict({n: e for n, e in constants.items() if not is_argument(e)})
    rest = {name: entry for name, entry in constants.items() if is_argument(entry)}
    if rest:
        found.parts["arguments"] = StateDict(rest)
        words = counted(len(rest), "integer constant")
        found.extras["arguments"] = f"{words} of at most {_MOST_ARGUMENTS} values: shapes, axes"


def left_out(source: Source, dtypes: Mapping[str, str]) -> Finding:
    """Return the finding of tensors, by name, whose dtype PyTorch has no tensor of."""
    kinds = ", ".join(sorted(set(dtypes.values())))
    count = counted(len(dtypes), "tensor")
    return Finding(
        "warning",
        f"{count} left out, PyTorch has no dtype for {kinds}: {few(dtypes)}",
        source.path.name,
        "convert them with the program that wrote them",
    )


def no_weights(source: Source, what: str, fix: str) -> Finding:
    """Return the finding of a file that describes a network and does not hold it."""
    return Finding("error", f"topology without weights: {what}", source.path.name, fix)
