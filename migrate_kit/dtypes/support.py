"""Whether a target has a kernel for one operator on one set of dtypes: what public tables say.

Where tables disagree, the first of these that speaks of the operator, the dtype and the target
decides:

1. ``dtype_ops.csv``: statements about a chip or an operator that no list makes (no bfloat16 on the
   910A, no fp8 before the 950, what a public thread reports). A row without a status adds its note.
2. Views and allocations run no kernel (``aten_ops.csv``); operators that torch takes apart are as
   good as the worst of their parts.
3. ``aicore_aicpu.csv``: the lists of that chip in the operator's own source. On the AI Core:
   supported. On the AI CPU: slow, and so is a dtype that the aclnn page takes and the AI Core list
   has not: those sources send everything else to the AI CPU (realdiv.cpp, invert.cpp, sign.cpp).
   They name common types alone, so of fp8 and the like they say nothing.
4. ``aclnn_support.csv``: the page of the aclnn function. A dtype outside the list of a page that
   names the target is refused, for the function checks that list before it starts anything.
5. ``api_support.csv``: the torch API pages. They list less than there is, and two releases differ,
   so a dtype outside their lists is *not listed*.
6. ``fallback_ops.csv``: operators that nothing registers for the NPU, which run on the host CPU.

Absence is *not listed*, never a failure, and says what was read (``absence.py``). A page that says
a chip is not among its products is absence too: older chips also run compiled operators, whose
dtypes no table lists. Which name a
target has in each table, and where it has none, is in ``npu_products.csv``: there is no AI Core
list for ascend310b, and the torch API pages name only A2, A3 and 950DT. An operator that op-plugin
does not register has no aclnn or graph engine name in ``aten_ops.csv``: its kernels are not
reached.

``float64>float32`` is what a cast by dtype alone makes of float64 on an NPU: judged as float32.

Most operators are judged by the dtype that they compute in: that of the first tensor, or what the
tensors promote to. Integers that the NPU casts to float32 (cos) or int64 (sum, cumsum) before
computing are judged as those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any, Final, Literal

from migrate_kit.dtypes import absence, kernels
from migrate_kit.dtypes.chips import table_target
from migrate_kit.dtypes.kernels import TARGETS as TARGETS  # noqa: PLC0414 - a name of this module too
from migrate_kit.dtypes.kernels import Operator
from migrate_kit.dtypes.promotion import is_integral, kind_of, promote
from migrate_kit.dtypes.question import dtype_names, op_name

Status = Literal["supported", "slow", "fallback", "not listed", "refused"]
# From best to worst, for operators made of several and for copies from one dtype to another.
_ORDER: Final[tuple[Status, ...]] = ("supported", "slow", "not listed", "fallback", "refused")
# The name of a dtype that torch calls float64 and an NPU has in float32.
LOWERED: Final = "float64>float32"


@dataclass(frozen=True, slots=True)
class Support:
    """What the tables say of one operator on one set of dtypes for one target.

    Attributes
    ----------
    status : str
        ``supported``; ``slow``, on the AI CPU of the device; ``fallback``, on the host CPU;
        ``refused``; or ``not listed``, which says nothing.
    dtypes_ok : tuple of str
        What the target's fast kernels of this operator take.
    ai_cpu : tuple of str
        What runs on its AI CPU.
    note : str
    source : str
        Where it was read; where it is not listed, what was read in vain.
    kind : str
        Which table decided: ``rule``, ``view``, ``memory``, ``composite``, ``AI Core list``,
        ``aclnn page``, ``torch API page`` or ``fallback list``; empty where none did.
    """

    status: Status
    dtypes_ok: tuple[str, ...] = ()
    ai_cpu: tuple[str, ...] = ()
    note: str = ""
    source: str = ""
    kind: str = ""


_cache: dict[tuple[str, tuple[str, ...], str], Support] = {}


def lookup(op: Any, dtypes: Any, target: str) -> Support:
    """Return what the tables say of ``op`` on ``dtypes`` for ``target``.

    Parameters
    ----------
    op : str or torch operator
        ``aten.add.Tensor``, ``aten::add``, ``torch.add``, ``aclnnAdd``, a graph engine operator or
        ``torchvision.nms.default``.
    dtypes : tuple or list
        Of the tensors in order, then the one asked for with ``dtype=``; any spelling that
        :func:`migrate_kit.dtypes.of` knows, but no numbers, which are different ones for each
        framework. Empty asks about the operator alone.
    target : str
        One of :data:`TARGETS`, or a SoC name such as ``Ascend910B4``.

    Returns
    -------
    Support

    Raises
    ------
    MigrateError
        If there is no such target or dtype, or ``op`` is no name.

    Examples
    --------
    >>> lookup("aten.cumsum.default", ("int64",), "ascend910b").status
    'slow'
    >>> lookup("aten.mm.default", ("bfloat16", "bfloat16"), "ascend310p").status
    'refused'
    """
    try:
        return _cache[op, dtypes, target]
    except (KeyError, TypeError):  # TypeError: a list, which no dictionary holds
        key = op_name(op), dtype_names(dtypes), table_target(target)
    if key not in _cache:
        _cache[key] = _decide(*key)
    return _cache[key]


def _decide(op: str, dtypes: tuple[str, ...], target: str) -> Support:
    name, row = _operator(op)
    verdict, notes = _stated(name, dtypes, target, kernel=row.dispatch not in ("view", "memory"))
    there = tuple("float32" if d == LOWERED else d for d in dtypes)
    if verdict is None and there != dtypes:
        verdict = lookup(op, there, target)
        verdict = replace(verdict, source=f"{verdict.source}; {_lowers()}")
    elif verdict is None:
        verdict = _by_dispatch(name, row, dtypes, target)
        if verdict.status == "not listed" and verdict.kind != "composite":
            note, source = absence.said(row, target, verdict.note, verdict.source)
            near = _neighbour(op, dtypes, target) if row.dispatch else ""
            verdict = replace(verdict, note=note + near, source=source)
    else:
        ok = _by_tables(row, (), target).dtypes_ok
        more = dtypes if verdict.status == "supported" else ()
        verdict = replace(verdict, dtypes_ok=tuple(dict.fromkeys((*more, *ok))))
    note = "; ".join(dict.fromkeys(n for n in (verdict.note, *notes) if n))
    ok = tuple(d for d in verdict.dtypes_ok if d not in kernels.impossible(target))
    return replace(verdict, note=note, dtypes_ok=ok)


def _lowers() -> str:
    return next(rule.source for rule in kernels.rules() if LOWERED in rule.dtypes)


def _neighbour(op: str, dtypes: tuple[str, ...], target: str) -> str:
    """Return what is known of the same call on the chip that most tables speak of."""
    best = absence.NEIGHBOUR
    if target == best:
        return ""
    status = lookup(op, dtypes, best).status
    return "" if status == "not listed" else f"; on {best} it is {status}"


def _operator(op: str) -> tuple[str, Operator]:
    """Return the full name that rules are written for, and the operator's row."""
    rows = kernels.operators()
    parts = op.replace("::", ".").split(".")
    if parts[0] == "aten" and len(parts) > 1:
        return _aten(parts[1], parts[2] if len(parts) > 2 else "default")
    aten = kernels.other_names().get(op)
    if aten is not None:
        # The name that was asked for is the one whose page is read.
        row = rows[aten]
        return f"aten.{aten}.default", replace(row, aclnn=(op,)) if op in row.aclnn else row
    name = ".".join(parts[:2])
    if op.startswith("torch."):
        return op, Operator(parts[-1], "", torch_api=op)
    if len(parts) == 1:
        return op, Operator(op, "", aclnn=(op,), ge_op=op)
    return op, rows.get(name, Operator(name, ""))


def _aten(base: str, overload: str) -> tuple[str, Operator]:
    rows = kernels.operators()
    plain = base if base.startswith("__") else base.rstrip("_")
    for known in (f"{base}.{overload}", f"{plain}.{overload}", base, plain):
        if known in rows:
            return f"aten.{base}.{overload}", rows[known]
    return f"aten.{base}.{overload}", Operator(plain, "")


def _stated(
    name: str, dtypes: tuple[str, ...], target: str, *, kernel: bool
) -> tuple[Support | None, list[str]]:
    """Return what ``dtype_ops.csv`` decides, and the notes of rows that decide nothing."""
    notes: list[str] = []
    for rule in kernels.rules():
        if not (target in rule.targets or "*" in rule.targets):
            continue
        if rule.ops == ("*",) and not kernel:
            continue  # the bytes of a dtype can be kept and viewed where nothing computes in it
        hit = [d for d in dtypes if d in rule.dtypes]
        if not hit and "*" not in rule.dtypes:
            continue
        if not any(fnmatchcase(name, pattern) for pattern in rule.ops):
            continue
        if rule.status == "supported" and len(hit) < len(dtypes):
            continue  # it holds for these dtypes alone
        if rule.status:
            status: Status = rule.status  # type: ignore[assignment]  # a test reads the column
            return Support(status, (), (), rule.note, rule.source, "rule"), notes
        notes.append(rule.note)
    return None, notes


def _by_dispatch(name: str, row: Operator, dtypes: tuple[str, ...], target: str) -> Support:
    if row.dispatch in ("view", "memory"):
        return Support("supported", (), (), row.note, row.source, row.dispatch)
    if row.dispatch == "composite":
        return _parts(row, dtypes, target)
    if row.dtype_from == "each":
        each = [_by_tables(row, (d,), target) for d in dict.fromkeys(dtypes)] or [
            _by_tables(row, (), target)
        ]
        found = max(each, key=lambda s: _ORDER.index(s.status))
    else:
        found = _by_tables(row, dtypes, target)
    if found.status == "not listed":
        return _fallback(name, row.name, found)
    return found


def _parts(row: Operator, dtypes: tuple[str, ...], target: str) -> Support:
    """Return the worst of the operators that torch runs in this one's place."""
    wanted = dtypes[-1:] if row.dtype_from == "last" else dtypes
    parts = {p: lookup(f"aten.{p}", wanted, target) for p in row.via}
    worst = max(parts, key=lambda p: _ORDER.index(parts[p].status))
    note = f"runs {', '.join(row.via)}"
    if parts[worst].status != "supported" and len(parts) > 1:
        note += f"; {worst} decides"
    note = "; ".join(n for n in (row.note, note, parts[worst].note) if n)
    lists = [p.dtypes_ok for p in parts.values() if p.dtypes_ok]
    ok = tuple(d for d in parts[worst].dtypes_ok if all(d in fast for fast in lists))
    return replace(parts[worst], dtypes_ok=ok, note=note, kind="composite")


def _by_tables(row: Operator, dtypes: tuple[str, ...], target: str) -> Support:
    """Ask the lists of the chip, the aclnn page and the torch API pages, in this order."""
    given, computed = _dtypes_of(row, dtypes)
    wide = computed == "int64" != given
    asked = "without dtype= the result is int64, and so is the arithmetic" if wide else ""
    product = kernels.products()[target]
    listed = kernels.ai_core().get((row.ge_op, product.ai_core)) if row.ge_op else None
    page_status, page = _page(row, target)
    takes = (page.fast or ()) if page_status == "Y" and page is not None else ()
    fast = takes
    said: Support | None = None
    if listed is not None:
        fast = takes if listed.fast is None else listed.fast
        told = "; ".join(n for n in (asked, listed.note) if n)
        said = Support("supported", fast, listed.ai_cpu, told, listed.source, "AI Core list")
        if computed in fast or (computed is None and fast):
            return said
        if computed in listed.ai_cpu or (computed is None and listed.ai_cpu):
            return replace(said, status="slow")
        if computed is not None and kind_of(computed) == "other":
            fast, said = takes, None  # the lists leave such types out
    if page is None or not takes:
        found = _by_api(row, given, target)
        decides = said is not None and found.status == "supported"
    elif given is None or given in takes:
        told = "; ".join(n for n in (asked, page.note) if n)
        found = Support("supported", takes, (), told, page.source, "aclnn page")
        decides = said is not None
    else:
        ok = tuple(d for d in takes if d in fast) or takes
        ai_cpu = listed.ai_cpu if listed is not None else ()
        told = "; ".join(n for n in (asked, page.note) if n)
        found = Support("refused", ok, ai_cpu, told, page.source, "aclnn page")
        decides = False
    return _left_over(said, computed, found) if said is not None and decides else found


def _left_over(said: Support, computed: str | None, page: Support) -> Support:
    """Return what becomes of a dtype that a page takes and neither list of the chip has."""
    ai_cpu = (*said.ai_cpu, *(d for d in page.dtypes_ok if d not in said.dtypes_ok))
    why = "only the AI CPU has it: its AI Core list is empty"
    if said.dtypes_ok:
        why = f"the AI Core list has no {computed}, so it goes to the AI CPU"
    note = "; ".join(n for n in (said.note, why) if n)
    source = f"{said.source}; {page.source}"
    return replace(
        said, status="slow", ai_cpu=tuple(dict.fromkeys(ai_cpu)), note=note, source=source
    )


def _page(row: Operator, target: str) -> tuple[str, kernels.Dtypes | None]:
    """Return the first aclnn page that names the target; otherwise what the first one says."""
    first = ""
    for name in row.aclnn:
        found = kernels.aclnn(name, target)
        if found is not None and found[0] == "Y":
            return found
        first = first or (found[0] if found is not None else "")
    return first, None


def _dtypes_of(row: Operator, dtypes: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Return the dtype that the operator is given, and the one that it computes in."""
    if not dtypes:
        return None, None
    if row.dtype_from == "last" and len(dtypes) > 1:
        return dtypes[0], dtypes[-1]
    data = dtypes[1:] if row.dtype_from == "1+" and len(dtypes) > 1 else dtypes
    given = reduce(promote, data) if row.dtype_from in ("all", "1+") else data[0]
    which, _, wanted = row.cast.partition(":")
    return given, wanted if which == "any" or (which and is_integral(given)) else given


def _by_api(row: Operator, given: str | None, target: str) -> Support:
    kept: Support | None = None
    for said, api in kernels.api_rows(row.torch_api, target):
        ok = kernels.full(api["dtypes_listed"])
        limits = api["extra_limit"].replace("_", " ").replace(";", "; ")
        where = f"{api['source']} ({api['torch_doc_versions']})"
        status: Status = "not listed"
        if said == "N":
            text = f"the API page says that {row.torch_api} is not supported"
        elif api["cpu_fallback_noted"]:
            status, text = "fallback", "the API page says that it may run on the host CPU"
        elif ok and (given is None or given in ok):
            status, text = "supported", limits
        elif ok:
            text = f"the API page lists no {given}"
        else:
            text = "the API page gives no dtypes"
        found = Support(status, ok, (), text, where, "torch API page")
        if kept is None or (kept.status == "not listed" and status != "not listed"):
            kept = found
    return kept or Support("not listed")


def _fallback(name: str, base: str, found: Support) -> Support:
    row = kernels.fallbacks().get(base)
    if row is None:
        return found
    overload = name.removeprefix("aten.").removesuffix(".default")
    named = overload in row["overloads"].split()
    if row["coverage"] == "none" or (row["coverage"] == "partial" and named):
        note = "nothing registers it for the NPU"
        return Support("fallback", (), (), note, row["source"], "fallback list")
    return found
