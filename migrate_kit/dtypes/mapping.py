"""One dtype in every framework's words, and the table of all of them."""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from migrate_kit.dtypes import kernels
from migrate_kit.dtypes.chips import table_target
from migrate_kit.dtypes.kernels import TARGETS
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, Result, number, table_html
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

Numbering = Literal["onnx", "cann", "cambricon"]
_AMBIGUOUS: Final = {
    "int": "torch.int is int32, NumPy's and Python's int is int64",
    "float": "torch.float is float32, NumPy's and Python's float is float64",
    "complex": "torch makes complex64 of a Python complex, NumPy complex128",
    "uint": "NumPy's uint is uint64, torch has none",
}
_SHORT: Final = re.compile(r"[<>=|]?[?bBhHiIlLqQpPuefdFDc][0-9]{0,2}")
_MOST_NUMBER: Final = 10**9


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype: its names, its size and its range.

    An empty name means that the framework has none. ``minimum`` to ``smallest_normal`` are those of
    each part for a complex dtype; None where they do not apply. CANN's numbers hold for ``cann``
    (``ge::DataType``) and ``acl`` (``aclDataType``) alike; Cambricon's are those of ``mlu_op.h``.
    """

    name: str
    kind: str
    bits: int
    minimum: float | None
    maximum: float | None
    eps: float | None
    mantissa_bits: int | None
    smallest_normal: float | None
    torch: str
    numpy: str
    mindspore: str
    onnx: str
    onnx_number: int | None
    cann: str
    cann_number: int | None
    acl: str
    cambricon: tuple[str, ...]
    cambricon_number: int | None
    aliases: tuple[str, ...]
    note: str
    source: str

    def __repr__(self) -> str:
        names = [n for n in (self.torch, self.cann, self.onnx and f"ONNX {self.onnx}") if n]
        names = names or [n for n in (self.mindspore, self.numpy, *self.cambricon[:1]) if n]
        return f"DType({', '.join([f'{self.name}: {self.bits} bits', *names])})"


@lru_cache(maxsize=1)
def dtypes() -> dict[str, DType]:
    """Return every dtype by its name, which is torch's where torch has one."""
    return {row["name"]: _dtype(row) for row in read_table("dtypes")}


def _dtype(row: dict[str, str]) -> DType:
    def integer(text: str) -> int | None:
        return int(text) if text else None

    def exact(text: str) -> float | None:
        if not text:
            return None
        return float(text) if row["kind"] in ("float", "complex") else int(text)

    return DType(
        name=row["name"],
        kind=row["kind"],
        bits=int(row["bits"]),
        minimum=exact(row["minimum"]),
        maximum=exact(row["maximum"]),
        eps=exact(row["eps"]),
        mantissa_bits=integer(row["mantissa_bits"]),
        smallest_normal=exact(row["smallest_normal"]),
        torch=row["torch"],
        numpy=row["numpy"],
        mindspore=row["mindspore"],
        onnx=row["onnx"],
        onnx_number=integer(row["onnx_number"]),
        cann=row["cann"],
        cann_number=integer(row["cann_number"]),
        acl=row["acl"],
        cambricon=tuple(row["cambricon"].split()),
        cambricon_number=integer(row["cambricon_number"]),
        aliases=tuple(row["aliases"].split()),
        note=row["note"],
        source=row["source"],
    )


@lru_cache(maxsize=1)
def _spellings() -> tuple[dict[str, DType], dict[str, DType]]:
    """Return the spellings as they are, and in lower case where that is still one dtype."""
    exact: dict[str, DType] = {}
    for d in dtypes().values():
        numpy = [d.numpy, f"numpy.{d.numpy}", f"np.{d.numpy}"] if d.numpy else []
        onnx = [d.onnx, f"TensorProto.{d.onnx}", f"onnx.TensorProto.{d.onnx}"] if d.onnx else []
        mindspore = [d.mindspore, d.mindspore.replace("mindspore.", "ms.")]
        names = (d.name, d.torch, d.cann, d.acl, *d.cambricon, *mindspore, *numpy, *onnx)
        for name in (*names, *d.aliases):
            if name:
                exact.setdefault(name, d)
    lower: dict[str, DType | None] = {}
    for name, d in exact.items():
        key = name.lower()
        lower[key] = d if lower.get(key, d) is d else None
    return exact, {k: d for k, d in lower.items() if d is not None}


def of(name: Any, numbers: Numbering = "onnx") -> DType:
    """Return the dtype of any spelling.

    Parameters
    ----------
    name : str, torch.dtype, numpy.dtype or type, MindSpore dtype, int or DType
        An int is an enumerator of ``numbers``.
    numbers : {"onnx", "cann", "cambricon"}
        Whose numbers: ``onnx.TensorProto``, CANN's ``DT_`` and ``ACL_``, or Cambricon's.

    Returns
    -------
    DType

    Raises
    ------
    MigrateError
        If nothing has that name, or two frameworks mean different dtypes by it.

    Examples
    --------
    >>> import numpy as np
    >>> of("DT_BF16").torch, of(np.float32).cann, of("CNNL_DTYPE_HALF").name, of(10).name
    ('torch.bfloat16', 'DT_FLOAT', 'float16', 'float16')
    >>> of(27, numbers="cann").onnx
    'BFLOAT16'
    """
    if isinstance(name, DType):
        return name
    if isinstance(name, int) and not isinstance(name, bool):
        return _numbered(name, numbers)
    # By identity: a NumPy dtype equals the Python type of its kind.
    if name is int or name is bool:
        return dtypes()["int64" if name is int else "bool"]
    text = name.__name__ if name is float or name is complex else _text(name)
    exact, lower = _spellings()
    if text in _AMBIGUOUS:
        raise MigrateError(f"{text!r} can be two dtypes", _AMBIGUOUS[text], "say which, with bits")
    found = exact.get(text) or lower.get(text.lower()) or exact.get(_numpy_name(text))
    if found is not None:
        return found
    near = difflib.get_close_matches(text.lower(), lower, 3)
    raise MigrateError(
        f"no dtype {text[:80]!r}",
        "of(name)",
        f"did you mean {', '.join(near)}" if near else "mk.dtypes.table() lists the spellings",
    )


def _numbered(value: int, numbers: Numbering) -> DType:
    columns = ("onnx", "cann", "cambricon")
    if numbers not in columns:
        raise MigrateError(f"no numbers {numbers!r}", "numbers=", f"one of {', '.join(columns)}")
    for d in dtypes().values():
        if getattr(d, f"{numbers}_number") == value:
            return d
    shown = str(value) if abs(value) < _MOST_NUMBER else "of so many digits"
    raise MigrateError(f"no dtype has number {shown}", f"numbers={numbers!r}", "see table()")


def _text(name: Any) -> str:
    if isinstance(name, str):
        return name.strip()
    import numpy as np

    if isinstance(name, np.dtype) or (isinstance(name, type) and issubclass(name, np.generic)):
        return str(np.dtype(name).name)
    try:
        return str(name).strip()  # torch.float32, MindSpore's Float32
    except Exception:  # noqa: BLE001 - whatever a stranger's class does when it is asked its name
        return type(name).__name__


def _numpy_name(text: str) -> str:
    """Return NumPy's name for its short codes, such as ``<f4``."""
    import numpy as np

    # No more than these: of other short texts NumPy makes records, warnings and syntax errors.
    if not _SHORT.fullmatch(text):
        return ""
    try:
        return str(np.dtype(text).name)
    except (TypeError, ValueError):
        return ""


class DtypeTable(Result):
    """Every dtype in every framework's words, and where it has kernels.

    ``table["bfloat16"]`` is a row; ``kernels(target)`` counts, by dtype, the operators that have a
    fast kernel there and those that only the AI CPU has.
    """

    kind = "dtypes"

    def __init__(self) -> None:
        self.rows = tuple(dtypes().values())
        self.findings: list[Finding] = []

    def __getitem__(self, name: Any) -> DType:
        return of(name)

    def __iter__(self) -> Iterator[DType]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"DtypeTable: {len(self.rows)} dtypes, {len(TARGETS)} Ascend targets"

    @staticmethod
    def kernels(target: str) -> dict[str, tuple[int, int]]:
        """Count the operators with a fast kernel, and those of the AI CPU, by dtype.

        Parameters
        ----------
        target : str
            One of ``mk.dtypes.TARGETS``, or a SoC name such as ``Ascend910B4``.

        Raises
        ------
        MigrateError
            If there is no table of it.
        """
        return kernels.kernel_counts(table_target(target))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a dtype, with one column a target for its operators."""
        import pandas as pd

        counts = {t: self.kernels(t) for t in TARGETS}
        rows = [asdict(d) | {t: _count(counts[t], d.name) for t in TARGETS} for d in self.rows]
        return pd.DataFrame(rows, columns=[*(f.name for f in fields(DType)), *TARGETS])

    def _html(self) -> str:
        counts = {t: self.kernels(t) for t in TARGETS}
        head = ["dtype", "bits", "largest", "eps", "torch", "NumPy", "MindSpore", "ONNX", "CANN"]
        head += ["Cambricon", *TARGETS]
        body = [
            [
                d.name,
                str(d.bits),
                "" if d.maximum is None else _largest(d),
                "" if d.eps is None else number(d.eps),
                d.torch.removeprefix("torch."),
                d.numpy,
                d.mindspore.removeprefix("mindspore."),
                f"{d.onnx} {d.onnx_number}" if d.onnx else "",
                f"{d.cann} {d.cann_number}" if d.cann else "",
                f"{d.cambricon[0]} {d.cambricon_number or ''}".strip() if d.cambricon else "",
                *(_count(counts[t], d.name) for t in TARGETS),
            ]
            for d in self.rows
        ]
        caption = (
            "dtypes, and how many operators of each target take them: on AI Core + on its AI CPU"
            " (by the aclnn pages where no list has the dtype)"
        )
        return table_html(caption, head, body)


def _largest(d: DType) -> str:
    assert d.maximum is not None  # noqa: S101
    # Integers in full, and 65504, which everybody knows.
    short = d.maximum == int(d.maximum) and d.maximum < 1e5
    return str(int(d.maximum)) if isinstance(d.maximum, int) or short else number(d.maximum)


def _count(counts: dict[str, tuple[int, int]], name: str) -> str:
    fast, slow = counts.get(name, (0, 0))
    return f"{fast} + {slow}" if slow else str(fast) if fast else "–"


def table() -> DtypeTable:
    """Return the table of dtypes: torch, NumPy, MindSpore, ONNX, CANN and Cambricon.

    Returns
    -------
    DtypeTable

    Examples
    --------
    >>> t = table()
    >>> t["float16"].maximum, t["bfloat16"].cann_number, t["float16"].mantissa_bits
    (65504.0, 27, 10)
    """
    return DtypeTable()
