"""The cheapest way out for one operator on one set of dtypes: read from a table."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from migrate_kit.dtypes.promotion import is_integral, kind_of
from migrate_kit.tables import read_table

_ON_CPU: Final = "run this one call on the CPU: .cpu() before it, .to(x.device) after it"
_BY_STATUS: Final = {
    "slow": "no dtype is faster: only the NPU's AI CPU has it on this chip; do it once and not in a"
    f" loop, or {_ON_CPU}",
    "fallback": "it runs on the host CPU, with copies there and back: write it with operators that"
    " the NPU has, or do it once and not in a loop",
    "refused": f"no list names a dtype that it takes here: {_ON_CPU}",
    "not listed": "the tables do not decide: run this line alone on this chip with these dtypes; an"
    " error that names a dtype support list says what it takes",
}
# What loses least comes first, for numbers with a point and for whole ones.
_CASTS: Final = {
    "float": ("float32", "bfloat16", "float16"),
    "int": ("int32", "int64", "float32", "uint8", "int8", "float16"),
    "complex": ("complex64",),
}


@lru_cache(maxsize=1)
def _rules() -> tuple[dict[str, str], ...]:
    return tuple(read_table("rehearsal_fixes"))


def fix_for(
    status: str,
    op: str,
    dtypes: tuple[str, ...],
    target: str,
    dtypes_ok: tuple[str, ...] | None = None,
) -> str:
    """Say what to change at the line of an operator; empty where nothing needs changing.

    Parameters
    ----------
    status : str
        What the support tables say of it.
    op : str
        The operator's name, e.g. ``aten.cumsum.default``.
    dtypes : tuple of str
        Of its tensors.
    target : str
    dtypes_ok : tuple of str, optional
        What the target's fast kernels take; empty where there are none, None where that is unknown.

    Examples
    --------
    >>> fix_for("slow", "aten.add.Tensor", ("int16", "int16"), "ascend910b")
    '.to(torch.int32) at this line'
    >>> fix_for("slow", "aten.x.default", ("int8",), "ascend910b", ("float16", "float32"))
    '.to(torch.float32) before this line; the fast kernels take one of: float16, float32'
    >>> fix_for("supported", "aten.add.Tensor", ("float32",), "ascend910b")
    ''
    """
    if status not in _BY_STATUS:
        return ""
    for rule in _rules():
        if (
            fnmatchcase(op, rule["op"])
            and fnmatchcase(target, rule["target"])
            and (rule["status"] == "*" or status in rule["status"].split())
            and (rule["dtype"] == "*" or any(fnmatchcase(d, rule["dtype"]) for d in dtypes))
            and not _in_vain(rule, status, dtypes, dtypes_ok)
        ):
            return rule["fix"]
    if status in ("slow", "refused") and (cast := _cast(dtypes, dtypes_ok or ())):
        return cast
    return _BY_STATUS[status]


def _cast(dtypes: tuple[str, ...], ok: tuple[str, ...]) -> str:
    """Name the cast that loses least, of those that a fast kernel takes."""
    odd = [d for d in dtypes if d not in ok]
    if not ok or not odd:
        return ""
    kind = "int" if is_integral(odd[0]) else kind_of(odd[0])
    best = next((d for d in _CASTS.get(kind, _CASTS["float"]) if d in ok), "")
    if not best:
        return ""
    return f".to(torch.{best}) before this line; the fast kernels take one of: {', '.join(ok)}"


def _in_vain(
    rule: dict[str, str], status: str, dtypes: tuple[str, ...], ok: tuple[str, ...] | None
) -> bool:
    """Whether a cast would not help: nothing takes what it gives, or the dtype is no reason."""
    # Of a refusal without dtypes nobody knows what would be taken; of a slow call it is nothing.
    if rule["to"] and (rule["to"] not in ok if ok else ok is not None and status == "slow"):
        return True
    if rule["op"] != "*":
        return False
    if status == "fallback":
        return True
    return any(fnmatchcase(d, rule["dtype"]) and d in (ok or ()) for d in dtypes)
