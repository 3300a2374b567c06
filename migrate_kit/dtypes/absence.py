"""What is said of a call that no table decides: what was read, and what is known nearby."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from migrate_kit.dtypes import kernels

if TYPE_CHECKING:
    from migrate_kit.dtypes.kernels import Operator

# The chip that most lists and pages speak of: where another chip has nothing, it is the evidence.
NEIGHBOUR: Final = "ascend910b"
_UNKNOWN: Final = (
    "tables read: Ascend/op-plugin op_plugin_functions.yaml, hicann aclnn pages and op_api lists,"
    " Ascend/pytorch native_api pages"
)


def said(row: Operator, target: str, note: str, source: str) -> tuple[str, str]:
    """Return the note and the source of a call that is not listed.

    Parameters
    ----------
    row : Operator
    target : str
    note, source : str
        What a page said that decides nothing.

    Examples
    --------
    >>> from migrate_kit.dtypes import kernels
    >>> note, source = said(kernels.operators()["tanh"], "ascend310p", "", "")
    >>> note
    'absent from what was read for ascend310p: no AI Core list has it, the aclnnTanh page names \
other products, the torch API pages name only A2, A3 and 950DT; op-plugin registers it, so it may \
run as a compiled operator'
    >>> source.split("; ")[0]
    'hicann/ops-math/math/tanh/docs/aclnnTanh&aclnnInplaceTanh.md'
    """
    if not row.dispatch:
        text = f"absent from every table: {row.name or 'an operator without a name'} is in no list"
        return "; ".join(n for n in (text, note) if n), _UNKNOWN
    product = kernels.products()[target]
    sources, read = [source] if source else [], []
    listed = kernels.ai_core().get((row.ge_op, product.ai_core)) if row.ge_op else None
    if listed is not None:
        read.append("its AI Core list has no such dtype")
        sources.append(listed.source)
    else:
        read.append("no AI Core list has it")
    pages = [(n, p) for n in row.aclnn if (p := kernels.aclnn(n, target)) is not None]
    for name, (status, page) in pages[:1]:
        names = "names it without dtypes" if status == "Y" else "names other products"
        read.append(f"the {name} page {names}")
        sources.append(page.source)
    if not pages:
        read.append("no aclnn page is known for it")
    if not product.api:
        read.append("the torch API pages name only A2, A3 and 950DT")
    elif not source:
        read.append("no torch API page gives its dtypes")
    text = f"absent from what was read for {target}: {', '.join(read)}"
    if note:
        text = f"{note}; {text}"
    if row.dispatch == "npu":
        text += "; op-plugin registers it, so it may run as a compiled operator"
    return text, "; ".join(dict.fromkeys([*sources, row.source]))
