"""Which dtypes a target computes in, and what that does to a model.

Names are loaded when they are first used, as those of the package are.

Examples
--------
>>> import migrate_kit as mk
>>> mk.dtypes.of("DT_BF16").torch
'torch.bfloat16'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migrate_kit.dtypes.conversion import Converted, convert
    from migrate_kit.dtypes.kernels import TARGETS
    from migrate_kit.dtypes.mapping import DType, DtypeTable, of, table
    from migrate_kit.dtypes.support import Support, lookup

_HOMES = {
    "Converted": "migrate_kit.dtypes.conversion",
    "DType": "migrate_kit.dtypes.mapping",
    "DtypeTable": "migrate_kit.dtypes.mapping",
    "Support": "migrate_kit.dtypes.support",
    "TARGETS": "migrate_kit.dtypes.kernels",
    "convert": "migrate_kit.dtypes.conversion",
    "lookup": "migrate_kit.dtypes.support",
    "of": "migrate_kit.dtypes.mapping",
    "table": "migrate_kit.dtypes.mapping",
}

__all__ = [
    "TARGETS",
    "Converted",
    "DType",
    "DtypeTable",
    "Support",
    "convert",
    "lookup",
    "of",
    "table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'migrate_kit.dtypes' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use does not come back here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
