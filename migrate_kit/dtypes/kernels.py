"""The support tables as one index: read when first asked, each cell split once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from migrate_kit.dtypes.promotion import kind_of
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable


TARGETS: Final = ("ascend910a", "ascend910b", "ascend310p", "ascend310b", "ascend950")


@dataclass(frozen=True, slots=True)
class Product:
    """What one target is called in each table; an empty name means that the table has no column."""

    target: str
    ai_core: str
    aclnn: str
    exception: str
    api: str
    note: str


@dataclass(frozen=True, slots=True)
class Operator:
    """One row of ``aten_ops.csv``: what runs on an NPU when this ATen operator is called."""

    name: str
    dispatch: str  # npu, composite, view, memory; empty where no row names the operator
    via: tuple[str, ...] = ()
    torch_api: str = ""
    aclnn: tuple[str, ...] = ()
    ge_op: str = ""
    dtype_from: str = "all"
    cast: str = ""
    note: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Dtypes:
    """A list of dtypes on one product: the fast ones, those of the AI CPU, and where it was read.

    ``fast`` is None where the list says "all that the aclnn page lists".
    """

    fast: tuple[str, ...] | None
    ai_cpu: tuple[str, ...] = ()
    note: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of ``dtype_ops.csv``: a statement that no list makes; ``status`` may be empty."""

    ops: tuple[str, ...]
    dtypes: frozenset[str]
    targets: tuple[str, ...]
    status: str
    note: str
    source: str


@lru_cache(maxsize=1)
def short_names() -> dict[str, str]:
    """Return the full dtype name for every short one that the tables use.

    Examples
    --------
    >>> short_names()["bf16"]
    'bfloat16'
    """
    names: dict[str, str] = {}
    for row in read_table("dtypes"):
        names[row["name"]] = row["name"]
        names.update(
            {a: row["name"] for a in row["aliases"].split() if a.startswith(("fp", "bf16"))}
        )
    return names


def full(text: str) -> tuple[str, ...]:
    """Return the dtypes named in a cell, by their full names and in its order."""
    names = short_names()
    return tuple(dict.fromkeys(names.get(word, word) for word in text.split()))


@lru_cache(maxsize=1)
def products() -> dict[str, Product]:
    """Return what each target is called in the tables."""
    return {
        r["target"]: Product(
            r["target"],
            r["ai_core_product"],
            r["aclnn_column"],
            r["exception_name"],
            r["api_column"],
            r["note"],
        )
        for r in read_table("npu_products")
    }


@lru_cache(maxsize=1)
def operators() -> dict[str, Operator]:
    """Return every row of ``aten_ops.csv`` by its operator."""
    return {
        r["op"]: Operator(
            r["op"],
            r["dispatch"],
            tuple(r["via"].split()),
            r["torch_api"],
            tuple(r["aclnn"].split()),
            r["ge_op"],
            r["dtype_from"],
            r["cast"],
            r["note"],
            r["source"],
        )
        for r in read_table("aten_ops")
    }


@lru_cache(maxsize=1)
def other_names() -> dict[str, str]:
    """Return the ATen operator for names of the torch API, aclnn and the graph engine."""
    found: dict[str, str] = {}
    for op in operators().values():
        for name in (op.torch_api, *op.aclnn, op.ge_op):
            if name:
                # The operator whose own name it is wins over those that share it.
                if name.lower().endswith(op.name.strip("_").lower()):
                    found[name] = op.name
                found.setdefault(name, op.name)
    return found


@lru_cache(maxsize=1)
def ai_core() -> dict[tuple[str, str], Dtypes]:
    """Return the AI Core and AI CPU dtypes by graph engine operator and product."""
    return {
        (r["ge_op"], r["product"]): Dtypes(
            None
            if r["ai_core_dtypes"].startswith("*")
            else full(r["ai_core_dtypes"].replace("(none)", "")),
            full(r["ai_cpu_dtypes"]),
            r["note"],
            r["source"],
        )
        for r in read_table("aicore_aicpu")
    }


@lru_cache(maxsize=1)
def _aclnn_rows() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in read_table("aclnn_support"):
        for name in row["aclnn_api"].split("&"):
            found.setdefault(name, row)
    return found


@lru_cache(maxsize=8192)
def aclnn(name: str, target: str) -> tuple[str, Dtypes] | None:
    """Return whether the page of an aclnn function names a target (Y, N, empty), and its dtypes."""
    row = _aclnn_rows().get(name)
    product = products()[target]
    if row is None or not product.aclnn:
        return None
    listed, note = _listed(row, product.exception), ""
    if row["a3"] != row["a2_910b"] and product.aclnn == "a2_910b":
        note = f"A3: {row['a3'] or 'not said'}"
    return row[product.aclnn], Dtypes(listed, (), note, row["source"])


def _listed(row: dict[str, str], product: str) -> tuple[str, ...]:
    """Return the dtypes of the first tensor on one product: NO, ALSO and ONLY applied."""
    listed = full(row["first_tensor_dtypes"])
    only: tuple[str, ...] | None = None
    without: set[str] = set()
    more: tuple[str, ...] = ()
    for part in row["product_exceptions"].split(";"):
        words = part.split()
        if len(words) < 3 or product not in words[0].split("/"):
            continue
        if words[1] == "ONLY" and only is None:
            # A second ONLY speaks of another argument, a later NO of a condition in the text.
            only = full(" ".join(words[2:]))
        elif words[1] == "ALSO":
            more += full(" ".join(words[2:]))
        elif words[1] == "NO":
            without.update(full(" ".join(words[2:])))
    if only is not None:
        # Exceptions name the common types alone; fp8 and the like stand in the list or nowhere.
        return only + tuple(d for d in listed if kind_of(d) == "other")
    return tuple(dict.fromkeys(d for d in listed + more if d not in without))


@lru_cache(maxsize=1)
def _api_rows() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for row in read_table("api_support"):
        found.setdefault(row["api"], []).append(row)
    return found


def api_rows(name: str, target: str) -> list[tuple[str, dict[str, str]]]:
    """Return each page of a torch API with what it says of a target: Y or N."""
    column = products()[target].api
    if not column:
        return []
    return [(row[column], row) for row in _api_rows().get(name, ()) if row[column]]


@lru_cache(maxsize=1)
def fallbacks() -> dict[str, dict[str, str]]:
    """Return the rows of ``fallback_ops.csv`` by operator."""
    return {r["aten_base"]: r for r in read_table("fallback_ops")}


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Return the rows of ``dtype_ops.csv``, those of all operators last."""
    found = [
        Rule(
            tuple(r["op"].split()),
            frozenset(r["dtypes"].split()),
            tuple(r["targets"].split()),
            r["status"],
            r["note"],
            r["source"],
        )
        for r in read_table("dtype_ops")
    ]
    return tuple(sorted(found, key=lambda r: r.ops == ("*",)))


@lru_cache(maxsize=8)
def impossible(target: str) -> frozenset[str]:
    """Return the dtypes that no operator of a target computes in.

    Examples
    --------
    >>> "bfloat16" in impossible("ascend310p"), "bfloat16" in impossible("ascend910b")
    (True, False)
    """
    return frozenset(
        d
        for rule in rules()
        if rule.ops == ("*",) and rule.status == "refused" and {target, "*"} & set(rule.targets)
        for d in rule.dtypes
    )


def kernel_counts(target: str) -> dict[str, tuple[int, int]]:
    """Return, by dtype, how many operators have a fast kernel and how many an AI CPU one.

    Where no AI Core list of the target has the dtype, the first number is that of the aclnn pages.

    Examples
    --------
    >>> kernel_counts("ascend310p").get("bfloat16", (0, 0))
    (0, 0)
    """
    product = products()[target]
    fast: dict[str, int] = {}
    slow: dict[str, int] = {}

    def add(counts: dict[str, int], names: Iterable[str]) -> None:
        for name in names:
            counts[name] = counts.get(name, 0) + 1

    for (_, chip), listed in ai_core().items():
        if product.ai_core and chip == product.ai_core:
            add(fast, listed.fast or ())
            add(slow, listed.ai_cpu)
    pages: dict[str, int] = {}
    for name, row in _aclnn_rows().items():
        page = aclnn(name, target)
        if page and page[0] == "Y" and name == row["aclnn_api"].split("&")[0]:
            add(pages, page[1].fast or ())
    fast = {n: c for n, c in pages.items() if n not in slow} | fast
    names = (fast | slow).keys() - impossible(target)
    return {n: (fast.get(n, 0), slow.get(n, 0)) for n in names}
