"""What two dtypes become together, by torch's rules; without torch."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_BITS: Final = {
    "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64,
    "int8": 8, "int16": 16, "int32": 32, "int64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64,
    "complex32": 32, "complex64": 64, "complex128": 128,
}  # fmt: skip
_KINDS: Final = ("bool", "uint", "int", "float", "complex")


def kind_of(name: str) -> str:
    """Return bool, uint, int, float, complex, or other for what does not take part.

    Examples
    --------
    >>> kind_of("bfloat16"), kind_of("qint8")
    ('float', 'other')
    """
    if name == "bool":
        return name
    if name not in _BITS:
        return "other"
    return name.removeprefix("b").rstrip("0123456789")


def is_integral(name: str) -> bool:
    """Whether a dtype holds whole numbers, bool among them."""
    return kind_of(name) in ("bool", "uint", "int")


@lru_cache(maxsize=1024)
def promote(a: str, b: str) -> str:
    """Return the dtype that two tensors of ``a`` and ``b`` are computed in.

    Both have at least one dimension; ``torch.promote_types`` says the same. A dtype that does not
    take part in promotion (fp8, quantized) gives the other one.

    Examples
    --------
    >>> promote("float16", "bfloat16"), promote("int64", "float16"), promote("uint8", "int8")
    ('float32', 'float16', 'int16')
    """
    kinds = kind_of(a), kind_of(b)
    if a == b or "other" in kinds:
        return b if kinds[0] == "other" else a
    low, high = sorted((a, b), key=lambda n: _KINDS.index(kind_of(n)))
    kinds = kind_of(low), kind_of(high)
    if kinds[1] == "complex" and kinds[0] in ("float", "complex"):
        return _complex(low, high)
    if kinds == ("uint", "int"):
        # torch has no rule for uint16 and wider; NumPy's is to take the next signed one.
        return "float32" if low == "uint64" else f"int{max(_BITS[high], 2 * _BITS[low])}"
    if kinds[0] != kinds[1]:
        return high
    if kinds[0] == "float" and _BITS[low] == _BITS[high]:
        return "float32"
    return max(low, high, key=_BITS.__getitem__)


def _complex(low: str, high: str) -> str:
    if kind_of(low) == "complex":
        return max(low, high, key=_BITS.__getitem__)
    if low == "bfloat16":
        return "complex64" if high == "complex32" else high
    return f"complex{max(2 * _BITS[low], _BITS[high])}"
