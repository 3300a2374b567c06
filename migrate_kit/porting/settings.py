"""Compare the settings of a torch layer with those of a live MindSpore cell, and correct them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError
from migrate_kit.porting import patches
from migrate_kit.porting.kinds.attention import Attention, TransformerLayer
from migrate_kit.porting.kinds.convolution import Convolution, Dense, Transposed
from migrate_kit.porting.kinds.normalization import (
    BatchNorm,
    Embedding,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
)
from migrate_kit.porting.kinds.pooling import AvgPool, MaxPool
from migrate_kit.porting.kinds.recurrent import Recurrent
from migrate_kit.porting.kinds.resize import Upsample
from migrate_kit.porting.kinds.tabled import Tabled, default_rows
from migrate_kit.porting.rules import class_names

if TYPE_CHECKING:
    import torch

    from migrate_kit.porting.kinds.kind import Kind, Matters


@dataclass(frozen=True)
class Difference:
    """One setting that differs between a torch layer and a cell.

    Attributes
    ----------
    what : str
        The argument of the cell's constructor.
    torch_value
        What makes the cell compute what torch does, in the cell's terms.
    cell_value
        What the live cell has.
    line : str
        The argument as it should be written, e.g. ``pad_mode='pad', padding=1``; empty where the
        cell has no such argument.
    matters : str
        ``output``: eval mode computes something else; ``training``: only training does.
    obstacle : str
        Why the live cell cannot be corrected, and what to do; empty where it can.
    """

    what: str
    torch_value: Any
    cell_value: Any
    line: str
    matters: Matters
    obstacle: str
    kind: Kind

    @property
    def can_apply(self) -> bool:
        """Whether :meth:`apply` can correct the live cell."""
        return not self.obstacle

    def apply(self, cell: Any) -> None:
        """Correct the live cell: its next call has torch's value.

        A network that was already compiled (GRAPH_MODE, ``jit``) keeps what it was compiled with.
        """
        if self.obstacle:
            raise MigrateError(
                f"{self.what} of the live cell cannot be changed",
                type(cell).__name__,
                self.obstacle,
            )
        try:
            patches.apply(self.kind.target(cell), self.kind, self.what, self.torch_value)
        except (TypeError, ValueError) as error:
            self.undo(cell)
            raise MigrateError(
                f"MindSpore refuses {self.line}: {error}",
                type(cell).__name__,
                "write this layer by hand from ops",
            ) from error

    def undo(self, cell: Any) -> None:
        """Give the cell back what it had; the order of undoing does not matter."""
        patches.undo(self.kind.target(cell), self.kind, self.what)


@cache
def kinds() -> dict[tuple[str, str], Kind]:
    """Return how to read each pair of a torch layer and a cell.

    Examples
    --------
    >>> ("Conv2d", "nn.Conv2d") in kinds(), ("Conv2d", "nn.Dense") in kinds()
    (True, False)
    """
    found: dict[tuple[str, str], Kind] = {
        ("Linear", "nn.Dense"): Dense(),
        ("Embedding", "nn.Embedding"): Embedding(),
        ("LayerNorm", "nn.LayerNorm"): LayerNorm(),
        ("GroupNorm", "nn.GroupNorm"): GroupNorm(),
        ("FrozenBatchNorm2d", "nn.BatchNorm2d"): BatchNorm(),
        ("Upsample", "nn.Upsample"): Upsample(),
        ("MultiheadAttention", "nn.MultiheadAttention"): Attention(),
        ("TransformerEncoderLayer", "nn.TransformerEncoderLayer"): TransformerLayer(),
        ("TransformerDecoderLayer", "nn.TransformerDecoderLayer"): TransformerLayer(),
        **{(name, f"nn.{name}"): Recurrent() for name in ("LSTM", "GRU", "RNN")},
    }
    for n in (1, 2, 3):
        found |= {
            (f"Conv{n}d", f"nn.Conv{n}d"): Convolution(n),
            (f"ConvTranspose{n}d", f"nn.Conv{n}dTranspose"): Transposed(n),
            (f"MaxPool{n}d", f"nn.MaxPool{n}d"): MaxPool(n),
            (f"AvgPool{n}d", f"nn.AvgPool{n}d"): AvgPool(n),
            (f"BatchNorm{n}d", f"nn.BatchNorm{n}d"): BatchNorm(),
            ("SyncBatchNorm", f"nn.BatchNorm{n}d"): BatchNorm(),
            (f"InstanceNorm{n}d", "nn.GroupNorm"): GroupNorm(),
            (f"InstanceNorm{n}d", f"nn.InstanceNorm{n}d"): InstanceNorm(),
        }
    for row in default_rows():
        pair = row["torch_layer"], row["cell"]
        if row["attribute"] and pair not in found:
            found[pair] = Tabled(*pair)
    return found


def kind_of(module: torch.nn.Module, cell: Any) -> Kind | None:
    """Return how to compare a module and a cell; None where they are no pair that is known."""
    known = kinds()
    cells = class_names(cell)
    for torch_layer in class_names(module):
        for name in cells:
            if (torch_layer, name) in known:
                return known[torch_layer, name]
    return None


def settings(module: torch.nn.Module, cell: Any, rank: int | None = None) -> list[Difference]:
    """Return the settings in which one torch layer and one MindSpore cell differ.

    Parameters
    ----------
    module : torch.nn.Module
        One layer.
    cell
        The Cell in its place; its live attributes are read. A pair that is not known has none.
    rank : int, optional
        Of the input, so that axis 1 and axis -1 of a matrix are known to be one.

    Examples
    --------
    >>> import torch
    >>> from migrate_kit.layers.runners import mindspore_import
    >>> nn = mindspore_import.load().nn
    >>> pool = nn.MaxPool2d(3, 2)
    >>> (found,) = settings(torch.nn.MaxPool2d(3, 2, padding=1), pool)
    >>> found.line
    "pad_mode='pad', padding=1"
    >>> found.apply(pool)
    >>> settings(torch.nn.MaxPool2d(3, 2, padding=1), pool)
    []
    """
    kind = kind_of(module, cell)
    if kind is None:
        return []
    held = kind.held(kind.target(cell))
    found = []
    for what, wanted in kind.wanted(module).items():
        has = held[what]
        if kind.same(what, wanted, has):
            continue
        if rank and what == "axis" and wanted is not None and wanted % rank == has % rank:
            continue
        found.append(
            Difference(
                what,
                wanted,
                has,
                "" if what in kind.foreign else kind.line(what, wanted),
                kind.matters(what, wanted, has),
                kind.obstacle(what, wanted, has),
                kind,
            )
        )
    return found
