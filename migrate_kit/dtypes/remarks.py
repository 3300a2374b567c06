"""What no single operator says: how much is in no table, what the tables add, where the host waits.

An operator whose result has the size that its values give cannot return before it has run. In
op-plugin nonzero runs with EXEC_NPU_CMD_SYNC (NonzeroKernelNpuOpApi.cpp), a mask among the indices
becomes positions first (npu_expand_tensors in IndexKernelNpuOpApi.cpp and
IndexPutKernelNpuOpApi.cpp) and bincount reads its extremes (BincountKernelNpuOpApi.cpp). The others
are those that torch itself tags as such, and torchvision's nms.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from migrate_kit.results import Finding, counted, few

if TYPE_CHECKING:
    from migrate_kit.dtypes.op_rows import OpRow

# Tables whose notes on a supported operator are about its kernel, and not about how it is listed.
_TELLING: Final = ("rule", "AI Core list")
_MASKS: Final = ("bool", "uint8")
_MASKED: Final = ("aten.index.", "aten.index_put", "aten._index_put_impl_", "aten._unsafe_index")
_SHORT: Final = {"_local_scalar_dense": ".item()", "_unique2": "unique", "_unique": "unique"}
_TAGS: Final = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
# It reads only where the number of classes is not given, and then by an .item() of its own.
_NEVER: Final = ("aten.one_hot.default",)
_LINES, _NAMES = 6, 8


def remarks(rows: list[OpRow]) -> list[Finding]:
    """Say what is in no table, what the tables add, and where the host waits for the NPU."""
    found = []
    unlisted = [r for r in rows if r.status == "not listed"]
    if unlisted:
        kinds = len({(r.op, r.dtypes) for r in unlisted})
        calls = sum(r.count for r in unlisted)
        count = f"{counted(kinds, 'operator')} on {'their' if kinds > 1 else 'its'} dtypes"
        what = f"the tables do not decide {count} ({counted(calls, 'call')})"
        names = few(dict.fromkeys(r.op for r in unlisted), _NAMES)
        fix = "run them alone when a device is there; .to_csv(path), or --csv, lists every one"
        found.append(Finding("info", what, names, fix))
    notes: dict[str, OpRow] = {}
    for row in rows:
        if row.status == "supported" and row.note and row.kind in _TELLING:
            notes.setdefault(row.note, row)
    for note, row in list(notes.items())[:5]:
        found.append(Finding("info", f"{row.op} on {row.dtypes}: {note}", row.where))
    return [*found, *_waiting(rows)]


def waits_for(row: OpRow) -> str:
    """Return what the host waits for there, by the name that a user knows, or nothing.

    Parameters
    ----------
    row : OpRow

    Returns
    -------
    str
        As ``.item()``, ``nonzero`` or ``a mask as index``; empty where it does not wait.
    """
    if row.op.startswith(_MASKED):
        # The first is the tensor that is indexed.
        return "a mask as index" if set(row.dtypes.split()[1:]) & set(_MASKS) else ""
    name = row.op.split(".")[1] if row.op.count(".") else row.op
    return _SHORT.get(name, name) if _tagged(row.op) else ""


@lru_cache(maxsize=512)
def _tagged(op: str) -> bool:
    if op in _NEVER:
        return False
    if op.startswith("torchvision.nms"):
        return True
    found: Any = torch.ops
    try:
        for part in op.split("."):
            found = getattr(found, part)
    except (AttributeError, RuntimeError):
        return False
    return any(tag in getattr(found, "tags", ()) for tag in _TAGS)


def _waiting(rows: list[OpRow]) -> list[Finding]:
    kinds: dict[str, int] = {}
    lines: dict[tuple[str, str], int] = {}
    for row in rows:
        kind = waits_for(row)
        if kind:
            kinds[kind] = kinds.get(kind, 0) + row.count
            key = row.where or row.module, kind
            lines[key] = lines.get(key, 0) + row.count
    if not kinds:
        return []
    each = ", ".join(f"{n:,} {kind}" for kind, n in kinds.items())
    calls = sum(kinds.values())
    what = f"{counted(calls, 'call')} make{'s' * (calls == 1)} the host wait for the NPU: {each}"
    places = few((f"{where} {kind}" for where, kind in lines), _LINES)
    fix = "decide on the device and keep the size: torch.where, a product with the mask, topk"
    return [Finding("info", what, places, fix)]
