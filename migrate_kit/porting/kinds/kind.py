"""What one kind of layer holds beside its parameters, on both sides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch

# Whether a setting changes what eval mode computes, only what training does, or only the start.
Matters = Literal["output", "training", "start"]


class Kind:
    """How the settings of one kind of layer are read and written.

    Settings go by the names of the cell's constructor and hold its values.
    """

    # What torch alone has: there is no argument to write.
    foreign: Collection[str] = ()

    def target(self, cell: Any) -> Any:
        """Return the cell that holds the settings: some cells wrap another."""
        return cell

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """Return the settings that make a cell compute what the module does."""
        raise NotImplementedError

    def held(self, cell: Any) -> dict[str, Any]:
        """Return the settings that the live cell has."""
        raise NotImplementedError

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """Return what to set on the live cell, so that its next call has the changed settings."""
        raise NotImplementedError

    def same(self, what: str, wanted: Any, held: Any) -> bool:
        """Whether two values of a setting compute the same."""
        del what
        return equal(wanted, held)

    def line(self, what: str, value: Any) -> str:
        """Return the argument to write where the cell is built."""
        return f"{what}={value!r}"

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """Say what a difference changes."""
        del what, wanted, held
        return "output"

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """Say why the live cell cannot be given this value, and what to do; empty if it can."""
        del what, wanted, held
        return ""


def equal(one: Any, other: Any) -> bool:
    """Whether two settings are the same; numbers to a few roundings, as 1 - 0.9 is not 0.1.

    Examples
    --------
    >>> equal(1 - 0.9, 0.1), equal((1, 1), [1, 1]), equal(True, 1.0), equal(None, 0)
    (True, True, True, False)
    """
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def spread(value: Any, n: int) -> tuple[Any, ...]:
    """Return one value an axis; a number stands for all of them.

    Examples
    --------
    >>> spread(3, 2), spread((3, 5), 2), spread([7], 2)
    ((3, 3), (3, 5), (7, 7))
    """
    if isinstance(value, list | tuple):
        return tuple(value) if len(value) == n else (value[-1],) * n
    return (value,) * n


def short(values: tuple[Any, ...]) -> Any:
    """Return one number where all axes have the same, as one writes it.

    Examples
    --------
    >>> short((2, 2)), short((2, 3))
    (2, (2, 3))
    """
    return values[0] if len(set(values)) == 1 else values
