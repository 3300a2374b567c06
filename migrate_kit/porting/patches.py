"""Change a setting of a live MindSpore cell, and take it back.

A cell reads some settings when it is built and keeps them in primitives; to change one is to build
the primitive again. What stood there before is kept on the cell itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migrate_kit.porting.kinds.kind import Kind

# Where a cell keeps what was replaced; a plain attribute, so that it goes where the cell goes.
_KEPT = "_migrate_kit_replaced"
_MISSING = object()


def mindspore() -> Any:
    """Return MindSpore, which is loaded wherever there is a cell to look at."""
    return sys.modules["mindspore"]


def rebuilt(primitive: Any, **changes: Any) -> Any:
    """Return a primitive built as this one was, but for the arguments given."""
    return type(primitive)(**{**primitive.init_attrs, **changes})


def changed_attributes(before: Any, after: Any) -> dict[str, Any]:
    """Return what sets one cell apart from another of its class, but for names and parameters.

    Both are built for this: only so a loss keeps the class weights that no setting speaks of.
    """
    common = vars(mindspore().nn.Cell()).keys() | {"_cell_init_args"}
    old = vars(before)
    return {
        name: value
        for name, value in vars(after).items()
        if name not in common and not (name in old and _alike(old[name], value))
    }


def _alike(one: Any, other: Any) -> bool:
    if isinstance(other, mindspore().ops.Primitive):
        return type(one) is type(other) and one.init_attrs == other.init_attrs
    return one is other or (type(one) is type(other) and bool(one == other))


def apply(cell: Any, kind: Kind, what: str, value: Any) -> None:
    """Give the cell one setting; what it had is kept for :func:`undo`."""
    kept = vars(cell).setdefault(_KEPT, {"before": {}, "values": {}})
    kept["values"][what] = value
    _write(cell, kind, {what: value}, kept["before"])


def undo(cell: Any, kind: Kind, what: str) -> None:
    """Give the cell back the setting it had; in which order settings are undone does not matter."""
    kept = vars(cell).get(_KEPT)
    if not kept or what not in kept["values"]:
        return
    del kept["values"][what]
    for name, old in reversed(kept["before"].items()):
        _set(cell, name, old)
    kept["before"].clear()
    if kept["values"]:
        _write(cell, kind, kept["values"], kept["before"])
    else:
        del vars(cell)[_KEPT]


def _write(cell: Any, kind: Kind, values: Mapping[str, Any], before: dict[str, Any]) -> None:
    changes = kind.attributes(cell, {**kind.held(cell), **values}, values.keys())
    for name, new in changes.items():
        before.setdefault(name, getattr(cell, name, _MISSING))
        _set(cell, name, new)


def _set(cell: Any, name: str, value: Any) -> None:
    if value is _MISSING or name in cell._params:  # noqa: SLF001 -- a parameter is replaced whole
        delattr(cell, name)
        cell._primitives.pop(name, None)  # noqa: SLF001 -- there is no public way to forget one
    elif vars(cell).get(name, _MISSING) is None:
        del vars(cell)[name]  # a None hides the parameter that takes its name
    if value is not _MISSING:
        setattr(cell, name, value)
