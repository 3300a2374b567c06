"""The cheapest way out for one operator on one set of dtypes: read from a table."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from migrate_kit.tables import read_table

_BY_STATUS = {
    "slow": "it runs on the NPU's AI CPU: cast before this line, or do it once and not in a loop",
    "fallback": "it runs on the host CPU, with copies there and back: rewrite it, or do it once",
    "refused": "cast before this line, or move this step to the CPU",
    "not listed": "the tables do not decide: run this line alone on a device",
}


@lru_cache(maxsize=1)
def _rules() -> tuple[dict[str, str], ...]:
    return tuple(read_table("rehearsal_fixes"))


def fix_for(
    status: str, op: str, dtypes: tuple[str, ...], target: str, dtypes_ok: tuple[str, ...] = ()
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
    dtypes_ok : tuple of str
        What the target's fast kernels take, if that is known.

    Examples
    --------
    >>> fix_for("slow", "aten.add.Tensor", ("int16", "int16"), "ascend910b")
    '.to(torch.int32) at this line'
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
    if dtypes_ok and status in ("slow", "refused") and not set(dtypes) <= set(dtypes_ok):
        return f"cast before this line to one of: {', '.join(dtypes_ok)}"
    return _BY_STATUS[status]


def _in_vain(
    rule: dict[str, str], status: str, dtypes: tuple[str, ...], dtypes_ok: tuple[str, ...]
) -> bool:
    """Whether a cast would not help: nothing has the operator, or the dtype is not the reason."""
    if rule["op"] != "*":
        return False
    if status == "fallback":
        return True
    return any(fnmatchcase(d, rule["dtype"]) and d in dtypes_ok for d in dtypes)
