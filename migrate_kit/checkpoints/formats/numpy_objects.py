"""NumPy's arrays, scalars and dtypes in a pickle, made without NumPy's own constructors."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from migrate_kit.checkpoints.formats.pickles import Known, UnsoundPickleError, Wanted
from migrate_kit.checkpoints.state import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

# One number or byte string an item. Structured dtypes and dates are nothing to load.
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c(8|16)|[SUaV]\d{1,9}|O8?)")


class DtypeState:
    """A dtype while its pickle is read: the byte order comes after the name."""

    def __init__(self, text: Any = "", *_: Any) -> None:
        if not isinstance(text, str) or not _DTYPE.fullmatch(text):
            raise UnsoundPickleError(f"the NumPy dtype {str(text)[:50]!r}")
        self.text, self.order = text, "|"

    def set_state(self, state: Any) -> None:
        """Take (version, byte order, ...)."""
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.order = state[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's own dtype."""
        found = np.dtype(self.text)
        return found.newbyteorder(">") if self.order == ">" else found


class ArrayState:
    """An array while its pickle is read; the values come last.

    Attributes
    ----------
    array : ndarray or None
        None for an array of objects.
    objects : list
        The members of an array of objects.
    """

    def __init__(self, array: np.ndarray[Any, Any] | None = None) -> None:
        self.array = array
        self.objects: list[Any] = []

    def set_state(self, state: Any) -> None:
        """Take (version, shape, dtype, Fortran order, values)."""
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise UnsoundPickleError("an array without its five parts")
        shape, dtype, fortran, values = state[-4:]
        if not isinstance(dtype, DtypeState):
            raise UnsoundPickleError("an array without a dtype")
        if isinstance(values, list):
            self.objects = values
            return
        self.array = _array(values, dtype, shape, "F" if fortran else "C")

    def entry(self) -> Entry | None:
        """Return it as a tensor, or None if PyTorch has no such dtype."""
        return None if self.array is None else entry_of_array(self.array)


def entry_of_array(array: np.ndarray[Any, Any]) -> Entry | None:
    """Return an array as an entry, or None if PyTorch has no such dtype."""
    native = array.dtype.newbyteorder("=")
    try:
        dtype = torch.from_numpy(np.empty(0, native)).dtype
    except TypeError:
        return None
    return Entry(
        tuple(array.shape), dtype, lambda: torch.from_numpy(array.astype(native, order="C"))
    )


def _raw(values: Any) -> bytes:
    # Python 2's str comes as text, one character a byte.
    if isinstance(values, str):
        values = values.encode("latin1")
    if not isinstance(values, bytes):
        raise UnsoundPickleError("an array whose values are no bytes")
    return values


def _array(values: Any, dtype: DtypeState, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    raw, kind = _raw(values), dtype.dtype
    lengths = shape if isinstance(shape, tuple) else (shape,)
    if kind.hasobject or not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in lengths):
        raise UnsoundPickleError("an array of an impossible shape")
    if len(lengths) > 32 or math.prod(lengths) * kind.itemsize != len(raw) or not kind.itemsize:
        raise UnsoundPickleError("an array whose values do not fill its shape")
    found: np.ndarray[Any, Any] = np.frombuffer(raw, kind)
    return found.reshape(lengths, order="F" if order == "F" else "C")


def _scalar(dtype: Any = None, values: Any = b"") -> Any:
    if not isinstance(dtype, DtypeState):
        raise UnsoundPickleError("a NumPy number without a dtype")
    return _array(values, dtype, (), "C").item()


def _from_buffer(values: Any, dtype: Any, shape: Any, order: Any = "C", *_: Any) -> ArrayState:
    if not isinstance(dtype, DtypeState):
        raise UnsoundPickleError("an array without a dtype")
    return ArrayState(_array(values, dtype, shape, order))


def _reconstruct(kind: Any = None, *_: Any) -> ArrayState:
    if not isinstance(kind, Wanted | Known) or not kind.name.startswith("numpy"):
        raise UnsoundPickleError("an array of another class")
    return ArrayState()


def _constructors() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {
        "numpy.dtype": DtypeState,
        "numpy.ndarray": lambda *_: ArrayState(),
    }
    # NumPy 2 writes numpy._core; the type of each dtype is a global of numpy.dtypes.
    for home in ("numpy.core", "numpy._core"):
        found |= {
            f"{home}.multiarray._reconstruct": _reconstruct,
            f"{home}.multiarray.scalar": _scalar,
            f"{home}.numeric._frombuffer": _from_buffer,
        }
    for name in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"):
        found[f"numpy.{name}"] = lambda value=0, *_: value
    return found


CONSTRUCTORS = _constructors()
