"""Take a value out of any framework exactly, and make one of any framework."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from migrate_kit.dtypes.mapping import DType, dtypes, of
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Framework = Literal["torch", "torch_npu", "numpy", "mindspore"]
FRAMEWORKS: tuple[Framework, ...] = ("torch", "torch_npu", "numpy", "mindspore")


@dataclass(frozen=True)
class Taken:
    """A value as NumPy holds it without loss, its dtype, and whose it was."""

    array: NDArray[Any]
    dtype: DType
    framework: Framework
    note: str = ""


def take(value: Any) -> Taken:
    """Return ``value`` in a NumPy dtype that holds it exactly.

    Raises
    ------
    MigrateError
        If it holds no numbers, integers beyond 64 bits, or quantized ones.
    """
    try:
        return _taken(value)
    except MigrateError:
        raise
    # A tensor of a stranger's class may raise anything, and so may NumPy at what holds one.
    except Exception as error:
        raise _no_numbers(value, error) from error


def _taken(value: Any) -> Taken:
    if is_tensor(value):
        return _from_torch(value)
    home = type(value).__module__.split(".")[0]
    if home == "mindspore" or hasattr(value, "asnumpy"):
        # MindSpore's Tensor is known by what it can do, for it need not be installed.
        return Taken(_widened(np.asarray(value.asnumpy())), of(value.dtype), "mindspore")
    array = np.asarray(value)
    if array.dtype.kind not in "biufc" and array.dtype.name not in _small():
        raise _no_numbers(value)
    array = _with_exact_integers(value, array)
    mine: Framework = "numpy" if home in ("numpy", "ml_dtypes") else "torch"
    if mine == "torch" and find_spec("torch") is None:
        mine = "numpy"
    return Taken(_widened(array), of(array.dtype), mine)


def is_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch or of a class derived from it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _with_exact_integers(value: Any, array: NDArray[Any]) -> NDArray[Any]:
    """Refuse a list in which NumPy has rounded integers, to put them beside floats or signs."""
    if not isinstance(value, Sequence) or array.dtype.kind not in "fc":
        return array
    if not (np.abs(array) >= 2.0**53).any():
        return array
    given = [x.item() if hasattr(x, "item") else x for x in np.asarray(value, dtype=object).flat]
    # NumPy 1 makes floats of integers on both sides of 2^63, which uint64 holds.
    if all(isinstance(x, int) and 0 <= x < 2**64 for x in given):
        return np.asarray(value, dtype=np.uint64)
    for x, made in zip(given, array.flat, strict=True):
        held = float(made.real)  # Python compares it with an integer exactly, NumPy does not
        if isinstance(x, int) and x != held:
            raise MigrateError(
                f"{x} is rounded to {held:.0f} beside the other numbers of this list",
                "convert(value)",
                "give integers alone, of one sign where they exceed 2^63, or an array",
            )
    return array


def _no_numbers(value: Any, error: Exception | None = None) -> MigrateError:
    why = f": {type(error).__name__}: {error}".split("\n")[0] if error else ""
    return MigrateError(
        f"no array of numbers up to 64 bits can be made of this {type(value).__name__}{why}"[:300],
        "convert(value)",
        "give a tensor, an array, a number or a regular list of numbers",
    )


def _from_torch(value: Any) -> Taken:
    import torch

    dtype = of(value.dtype)
    if dtype.kind == "quantized" or value.layout != torch.strided or _has_no_array(value):
        what = "meta" if value.is_meta else "nested" if value.is_nested else str(value.layout)
        raise MigrateError(
            f"a {what} tensor of {value.dtype}",
            "convert(value)",
            "dequantize() or to_dense() it first; convert the parts of a nested one",
        )
    plain = value.detach().cpu().resolve_conj().resolve_neg()
    note = ""
    if dtype.numpy != "" and not dtype.numpy.startswith("ml_dtypes"):
        array = plain.numpy()
    elif dtype.name == "complex32":
        array = plain.to(torch.complex64).numpy()
    else:
        array = plain.to(torch.float32).numpy()
        note = f"Tensor.numpy() raises TypeError for {dtype.name}; it was taken through float32"
    return Taken(array, dtype, "torch", note)


def _has_no_array(value: Any) -> bool:
    return bool(value.is_meta or value.is_nested)


@lru_cache(maxsize=1)
def _small() -> frozenset[str]:
    """Return the dtypes that NumPy knows through ml_dtypes alone."""
    return frozenset(d.name for d in dtypes().values() if d.numpy.startswith("ml_dtypes."))


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return the values in a dtype of NumPy's own and this machine's byte order."""
    if array.dtype.name in _small():
        return array.astype(np.int8 if "int" in array.dtype.name else np.float32)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def make(taken: Taken, value: Any, wanted: DType, framework: Framework) -> tuple[Any, DType, str]:
    """Return the value in ``wanted`` as ``framework`` makes it, what dtype it then has, and a note.

    Raises
    ------
    MigrateError
        If the framework has no such dtype, is not installed, or does not make it of this value.
    """
    try:
        return _made(taken, value, wanted, framework)
    except MigrateError:
        raise
    except Exception as error:  # whatever a framework says of a pair of dtypes that it cannot cast
        raise MigrateError(
            f"{framework} makes no {wanted.name} of {taken.dtype.name}: {error}"[:300],
            "convert(to=)",
            "convert to float32 first, or with framework='numpy'",
        ) from error


def _made(taken: Taken, value: Any, wanted: DType, framework: Framework) -> tuple[Any, DType, str]:
    if framework in ("torch", "torch_npu"):
        return _to_torch(taken, value, wanted, npu=framework == "torch_npu")
    name = wanted.numpy if framework == "numpy" else wanted.mindspore
    if not name:
        raise _no_dtype(wanted, framework)
    if framework == "numpy":
        return _to_numpy(taken, wanted)
    return _to_mindspore(taken, value, wanted)


def _no_dtype(wanted: DType, framework: str) -> MigrateError:
    return MigrateError(
        f"{framework} computes in no {wanted.name}", "convert(to=)", "mk.dtypes.table() lists them"
    )


def _to_torch(taken: Taken, value: Any, wanted: DType, *, npu: bool) -> tuple[Any, DType, str]:
    import torch

    if not wanted.torch or wanted.kind == "quantized" or wanted.bits < 8:
        raise _no_dtype(wanted, "torch")
    made, note = (of("float32"), "") if npu and wanted.name == "float64" else (wanted, "")
    if made is not wanted:
        note = "lowered"
    source = value.detach() if is_tensor(value) else torch.from_numpy(np.array(taken.array))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is lost is said in the findings
        return source.to(getattr(torch, made.name)), made, note


def _to_numpy(taken: Taken, wanted: DType) -> tuple[Any, DType, str]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if not wanted.numpy.startswith("ml_dtypes."):
            return taken.array.astype(wanted.numpy), wanted, ""
        array = taken.array.real if taken.array.dtype.kind == "c" else taken.array
        try:
            import ml_dtypes
        except ImportError as error:
            if wanted.name != "bfloat16":
                raise MigrateError(
                    f"NumPy has no {wanted.name}", "convert(to=)", "pip install ml_dtypes"
                ) from error
            return _bfloat16_values(array), of("float32"), "values"
        return array.astype(getattr(ml_dtypes, wanted.name)), wanted, ""


def _bfloat16_values(array: NDArray[Any]) -> NDArray[Any]:
    """Return float32 values that bfloat16 holds: the upper half of the bits, nearest even."""
    single = np.ascontiguousarray(array, dtype=np.float32).reshape(array.shape)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    out = rounded.astype(np.uint32).view(np.float32)
    return np.where(np.isnan(single), single, out)


def _to_mindspore(taken: Taken, value: Any, wanted: DType) -> tuple[Any, DType, str]:
    if hasattr(value, "asnumpy"):
        library = sys.modules.get("mindspore")
        return value.astype(getattr(library, wanted.name, wanted.name)), wanted, ""
    try:
        import mindspore
    except ImportError as error:
        raise MigrateError(
            "MindSpore is not installed", "convert(framework='mindspore')", "framework='numpy'"
        ) from error
    return mindspore.Tensor(taken.array).astype(getattr(mindspore, wanted.name)), wanted, ""
