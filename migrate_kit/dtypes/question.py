"""What a lookup is asked about: an operator and dtypes, in whatever words."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from migrate_kit.dtypes.kernels import rules
from migrate_kit.dtypes.mapping import of
from migrate_kit.errors import MigrateError


def op_name(op: Any) -> str:
    """Return the name of an operator that is named or given.

    Raises
    ------
    MigrateError
        If it is neither.
    """
    if isinstance(op, str):
        return op
    if type(op).__module__ == "torch._ops":
        return str(op)  # aten.add.Tensor
    raise MigrateError(
        f"expected the name of an operator, found {type(op).__name__}",
        "lookup(op=)",
        "such as 'aten.add.Tensor'",
    )


def dtype_names(given: Any) -> tuple[str, ...]:
    """Return torch's names of dtypes, without ``torch.``.

    Raises
    ------
    MigrateError
        If one of them is none, or a number.

    Examples
    --------
    >>> dtype_names(("DT_BF16", "half"))
    ('bfloat16', 'float16')
    """
    # One dtype in place of a tuple of one is what is meant, and not its letters.
    return tuple(map(_name, given if isinstance(given, list | tuple) else (given,)))


def _name(dtype: Any) -> str:
    if isinstance(dtype, int):  # an enumerator is another dtype for each framework
        raise MigrateError(
            f"{type(dtype).__name__} is no dtype's name", "lookup(dtypes=)", "such as 'float32'"
        )
    try:
        return of(dtype).name
    except MigrateError as error:
        # torch has bit patterns and odd widths; the tables speak of them, no other framework does.
        known = isinstance(dtype, str) or type(dtype).__module__ == "torch"
        if known and (plain := str(dtype).removeprefix("torch.")) in _unnamed():
            return plain
        raise MigrateError(error.what, "lookup(dtypes=)", error.fix) from error


@lru_cache(maxsize=1)
def _unnamed() -> frozenset[str]:
    """Return every dtype that a row of ``dtype_ops.csv`` names."""
    return frozenset(d for rule in rules() for d in rule.dtypes if d != "*")
