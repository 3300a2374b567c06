"""TensorFlow's dtypes, shapes and TensorProto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from migrate_kit.checkpoints.formats.repeated import Repeated, entry_of
from migrate_kit.checkpoints.formats.wire import BYTES, FIXED32, FIXED64, VARINT, Field, Wire

if TYPE_CHECKING:
    from migrate_kit.checkpoints.state import Entry

# types.proto, enum DataType: the number, its name there, PyTorch's name. Quantized integers are
# read as the integers that they are. A reference to a variable is 100 more.
_DTYPES: Final = {
    1: ("DT_FLOAT", "float32"),
    2: ("DT_DOUBLE", "float64"),
    3: ("DT_INT32", "int32"),
    4: ("DT_UINT8", "uint8"),
    5: ("DT_INT16", "int16"),
    6: ("DT_INT8", "int8"),
    7: ("DT_STRING", ""),
    8: ("DT_COMPLEX64", "complex64"),
    9: ("DT_INT64", "int64"),
    10: ("DT_BOOL", "bool"),
    11: ("DT_QINT8", "int8"),
    12: ("DT_QUINT8", "uint8"),
    13: ("DT_QINT32", "int32"),
    14: ("DT_BFLOAT16", "bfloat16"),
    15: ("DT_QINT16", "int16"),
    16: ("DT_QUINT16", "uint16"),
    17: ("DT_UINT16", "uint16"),
    18: ("DT_COMPLEX128", "complex128"),
    19: ("DT_HALF", "float16"),
    20: ("DT_RESOURCE", ""),
    21: ("DT_VARIANT", ""),
    22: ("DT_UINT32", "uint32"),
    23: ("DT_UINT64", "uint64"),
    24: ("DT_FLOAT8_E5M2", "float8_e5m2"),
    25: ("DT_FLOAT8_E4M3FN", "float8_e4m3fn"),
    26: ("DT_FLOAT8_E4M3FNUZ", "float8_e4m3fnuz"),
    27: ("DT_FLOAT8_E4M3B11FNUZ", ""),
    28: ("DT_FLOAT8_E5M2FNUZ", "float8_e5m2fnuz"),
    29: ("DT_INT4", ""),
    30: ("DT_UINT4", ""),
}
# These hold no numbers: nobody misses them among weights.
NO_NUMBERS: Final = ("DT_STRING", "DT_RESOURCE", "DT_VARIANT")
# tensor.proto: the field that holds the values of these dtypes, when tensor_content does not.
_VALUES: Final = {
    5: (FIXED32, ("float32",)),
    6: (FIXED64, ("float64",)),
    7: (VARINT, ("int32", "int16", "int8", "uint16", "uint8")),
    9: (FIXED32, ("complex64",)),
    10: (VARINT, ("int64",)),
    11: (VARINT, ("bool",)),
    12: (FIXED64, ("complex128",)),
    13: (VARINT, ("float16", "bfloat16")),
    16: (VARINT, ("uint32",)),
    17: (VARINT, ("uint64",)),
}
_FLOAT8_VALUES: Final = 18
_SCHEMA: Final = {1: VARINT, 2: BYTES, 4: BYTES, _FLOAT8_VALUES: BYTES} | dict.fromkeys(_VALUES, -1)


def dtype_of(number: int) -> tuple[str, torch.dtype | None]:
    """Return TensorFlow's name of a dtype, and PyTorch's dtype if it has one.

    Examples
    --------
    >>> dtype_of(14), dtype_of(7), dtype_of(99)
    (('DT_BFLOAT16', torch.bfloat16), ('DT_STRING', None), ('dtype 99', None))
    """
    name, ours = _DTYPES.get(number % 100 if 100 < number < 200 else number, ("", ""))
    found = getattr(torch, ours, None) if ours else None
    return name or f"dtype {number}", found if isinstance(found, torch.dtype) else None


def shape_of(wire: Wire, field: Field, what: str) -> tuple[int, ...] | None:
    """Return the lengths of a TensorShapeProto, -1 for an unknown one; None for unknown rank."""
    found = []
    for inner in wire.fields(field, what, {2: BYTES, 3: VARINT}):
        if inner.number == 3 and inner.value:
            return None
        if inner.number == 2:
            length = 0
            for number in wire.fields(inner, what, {1: VARINT}):
                length = number.signed
            found.append(length)
            if len(found) > 254:  # TensorShape::MaxDimensions
                raise wire.source.damaged(f"{what} has more than 254 dimensions")
    return tuple(found)


def tensor_of(wire: Wire, message: Field, what: str) -> tuple[str, Entry | None]:
    """Return the dtype's name and the entry of a TensorProto, or None if PyTorch has none."""
    number, raw = 0, None
    shape: tuple[int, ...] = ()
    lists: dict[int, Repeated] = {}
    for field in wire.fields(message, what, _SCHEMA):
        if field.number == 1:
            number = field.value
        elif field.number == 2:
            found = shape_of(wire, field, what)
            if found is None:
                raise wire.source.damaged(f"{what} has no shape")
            shape = found
        elif field.number in _VALUES:
            empty = Repeated(wire, _VALUES[field.number][0], what)
            lists.setdefault(field.number, empty).add(field)
        elif field.value:
            raw = field
    name, dtype = dtype_of(number)
    if dtype is None:
        return name, None
    if raw is not None:
        if wire.source.checked_count(shape, what) * dtype.itemsize != raw.value:
            raise wire.source.damaged(f"{what} has {raw.value:,} bytes and the shape {shape}")
        return name, wire.source.entry(dtype, shape, raw.start, what)
    own = str(dtype).removeprefix("torch.")
    homes = [n for n, (_, names) in _VALUES.items() if own in names]
    values = next((lists[n] for n in homes if n in lists), None)
    kind = _VALUES[homes[0]][0] if homes else VARINT
    return name, entry_of(values or Repeated(wire, kind, what), dtype, shape, fill=True)
