"""Layers without parameters, whose few settings a table says where to find."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from migrate_kit.errors import MigrateError
from migrate_kit.porting.kinds.kind import Kind, Matters, short
from migrate_kit.porting.patches import changed_attributes, mindspore
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import torch


class Relation(NamedTuple):
    """How an argument of torch's becomes one of the cell's, and how the live cell shows it."""

    cell_from_torch: Callable[[Any], Any]
    cell_from_attribute: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _pad_pairs(pairs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(p for pair in reversed(pairs) for p in pair)


def _reduction(cell: Any) -> str:
    if not cell.reduce:
        return "none"
    return "mean" if cell.average else "sum"


# By the word in the column ``relation``.
RELATIONS = {
    "same": Relation(_same, _same),
    "True where tanh": Relation(lambda v: v == "tanh", lambda v: v == "tanh"),
    "same, kept as 1 - p": Relation(_same, lambda v: 1 - v),
    "same, kept as pairs": Relation(_same, _pad_pairs),
    "same, kept as flags": Relation(_same, _reduction),
    "one number": Relation(
        lambda v: short(tuple(v)) if isinstance(v, list | tuple) else v,
        lambda v: short(tuple(v)) if isinstance(v, list | tuple) else v,
    ),
    "a float": Relation(float, _same),
    "a float, kept as 1 - p": Relation(float, lambda v: 1 - v),
    "same, but on the CPU": Relation(_same, _same),
    "True": Relation(lambda _: True, _same),
}


@cache
def default_rows() -> tuple[dict[str, str], ...]:
    """Return the table of settings: what each is called on both sides, and its two defaults.

    Examples
    --------
    >>> row = next(r for r in default_rows() if r["torch_layer"] == "LeakyReLU")
    >>> row["torch_default"], row["cell_argument"], row["cell_default"]
    ('0.01', 'alpha', '0.2')
    """
    return tuple(read_table("mindspore_defaults"))


class Tabled(Kind):
    """A layer whose settings are each one attribute of the live cell."""

    def __init__(self, torch_layer: str, cell: str) -> None:
        self.cell = cell
        self.rows = {
            row["cell_argument"]: row
            for row in default_rows()
            if (row["torch_layer"], row["cell"]) == (torch_layer, cell) and row["attribute"]
        }

    def _relation(self, what: str) -> Relation:
        word = self.rows[what]["relation"]
        if word not in RELATIONS:
            raise MigrateError(
                f"no such relation: {word!r}",
                f"tables/mindspore_defaults.csv, {self.cell} {what}",
                f"choose one of: {', '.join(RELATIONS)}",
            )
        return RELATIONS[word]

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        return {
            what: self._relation(what).cell_from_torch(
                getattr(module, row["torch_argument"] or "training")
            )
            for what, row in self.rows.items()
            if not row["torch_argument"] or hasattr(module, row["torch_argument"])
        }

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        return {
            what: self._relation(what).cell_from_attribute(_read(cell, row["attribute"]))
            for what, row in self.rows.items()
        }

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`: the cell looks as if built with the settings."""
        del changed
        build = getattr(mindspore().nn, self.cell.removeprefix("nn."))
        return changed_attributes(build(**self.held(cell)), build(**settings))

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """See :meth:`Kind.matters`."""
        del wanted, held
        return cast("Matters", self.rows[what]["matters"])

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del held
        if wanted is None and what == "axis":
            return "torch chooses the axis by the input's rank: name it with dim= first"
        row = self.rows[what]
        on_cpu = mindspore().get_context("device_target") == "CPU"
        if row["relation"] == "same, but on the CPU" and on_cpu:
            return row["note"]
        return ""


def _read(cell: Any, attribute: str) -> Any:
    """Return an attribute, ``primitive:argument``, or ``cell`` for the cell itself."""
    if attribute == "cell":
        return cell
    name, colon, argument = attribute.partition(":")
    value = getattr(cell, name)
    return value.init_attrs[argument] if colon else value
