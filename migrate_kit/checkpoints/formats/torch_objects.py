"""PyTorch's tensors and storages in a pickle, as entries of a file."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.checkpoints.formats.numpy_objects import CONSTRUCTORS as NUMPY
from migrate_kit.checkpoints.formats.numpy_objects import ArrayState
from migrate_kit.checkpoints.formats.pickles import Known, Made, UnsoundPickleError, Wanted
from migrate_kit.checkpoints.state import Entry
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Callable

# torch/storage.py: the names of the typed storages.
_STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
    "UntypedStorage": torch.uint8,
    "QInt8Storage": torch.int8,
    "QUInt8Storage": torch.uint8,
    "QInt32Storage": torch.int32,
}
_QUANTIZED = {torch.int8: torch.qint8, torch.uint8: torch.quint8, torch.int32: torch.qint32}
_DTYPES = {f"torch.{n}": d for n, d in vars(torch).items() if isinstance(d, torch.dtype)}


class Storage:
    """A piece of memory of the file, found when its key is met.

    Attributes
    ----------
    dtype : torch.dtype
        Of its elements; bytes where the file does not say.
    numel : int
    location : str
        The device it was saved from.
    read : callable
        Returns it as a one-dimensional tensor of a dtype; set once its place is known.
    """

    def __init__(self, key: str, dtype: torch.dtype, numel: int, location: str) -> None:
        self.key, self.dtype, self.numel, self.location = key, dtype, numel, location
        self.read: Callable[[torch.dtype, int], torch.Tensor] | None = None

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""
        return self.numel * self.dtype.itemsize


def storage_type(what: Any) -> torch.dtype:
    """Return the dtype that a persistent id's class says.

    Raises
    ------
    UnsoundPickleError
        If it is not the class of a storage.
    """
    name = what.name if isinstance(what, Known | Wanted) else ""
    dtype = _STORAGES.get(name.rpartition(".")[2])
    if dtype is None or not name.startswith("torch."):
        raise UnsoundPickleError("a tensor of an unknown kind of storage")
    return dtype


def dtype_of(what: Any) -> torch.dtype | None:
    """Return the dtype that a global such as ``torch.float16`` names."""
    return _DTYPES.get(what.name) if isinstance(what, Known) else None


def _integers(values: Any) -> tuple[int, ...]:
    if isinstance(values, int):
        values = (values,)
    if not isinstance(values, tuple | list) or len(values) > 64:
        raise UnsoundPickleError("a tensor without a shape")
    if not all(isinstance(v, int) and 0 <= v < 1 << 62 for v in values):
        raise UnsoundPickleError("a tensor of an impossible shape")
    return tuple(int(v) for v in values)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *more: Any) -> Entry:
    found = _strided(storage, None, offset, size, stride)
    return _with_bits(found, more[2] if len(more) > 2 else None)


def _tensor_v3(storage: Any, offset: Any, size: Any, stride: Any, *more: Any) -> Entry:
    dtype = dtype_of(more[2]) if len(more) > 2 else None
    found = _strided(storage, dtype, offset, size, stride)
    return _with_bits(found, more[3] if len(more) > 3 else None)


def _with_bits(entry: Entry, metadata: Any) -> Entry:
    """Return the values that torch's bits for a conjugate and a negative ask for.

    A view of a conjugate is saved as the values it was made of, with a bit beside them.
    """
    bits = metadata if isinstance(metadata, dict) else {}
    conj = bits.get("conj") is True and entry.dtype.is_complex
    neg = bits.get("neg") is True and entry.dtype != torch.bool
    if not conj and not neg:
        return entry

    def read() -> torch.Tensor:
        values = entry.read()
        values = values.conj_physical() if conj else values
        return values.neg() if neg else values

    memory = None if entry.memory is None else (entry.memory, conj, neg)
    return Entry(entry.shape, entry.dtype, read, memory)


def _strided(storage: Any, dtype: torch.dtype | None, offset: Any, size: Any, stride: Any) -> Entry:
    if not isinstance(storage, Storage):
        raise UnsoundPickleError("a tensor without a storage")
    dtype = dtype or storage.dtype
    shape, strides, (start,) = _integers(size), _integers(stride), _integers(offset)
    if len(shape) != len(strides):
        raise UnsoundPickleError("a tensor with more strides than dimensions")
    last = start + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if 0 not in shape and (last + 1) * dtype.itemsize > storage.nbytes:
        raise UnsoundPickleError("a tensor that ends behind its storage")
    count = 1
    for length in shape:
        count *= length
    # A stride of 0 makes a tensor of any size of one value.
    if count * dtype.itemsize > max(64 * storage.nbytes, 1 << 20):
        raise UnsoundPickleError("a tensor far larger than its storage")

    def read() -> torch.Tensor:
        if storage.read is None:
            raise UnsoundPickleError("a storage that is not in the file")
        if 0 in shape:
            return torch.empty(shape, dtype=dtype)
        return storage.read(dtype, last + 1).as_strided(shape, strides, start)

    memory = (id(storage), start, shape, strides, dtype) if count else None
    return Entry(shape, dtype, read, memory)


def _quantized(
    storage: Any, offset: Any, size: Any, stride: Any, scheme: Any = (), *_: Any
) -> Entry:
    """Return a quantized tensor; its storage holds the integers."""
    integers = _strided(storage, None, offset, size, stride)
    dtype = _QUANTIZED.get(integers.dtype)
    if dtype is None or not isinstance(scheme, tuple) or len(scheme) not in (3, 4):
        raise UnsoundPickleError("a quantized tensor without a scheme")
    name, scale, zero = getattr(scheme[0], "name", ""), scheme[1], scheme[2]

    def read() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that torch will drop these dtypes one day
            return quantized(integers.read())

    def quantized(values: torch.Tensor) -> torch.Tensor:
        if name.endswith("per_tensor_affine"):
            return torch._make_per_tensor_quantized_tensor(values, float(scale), int(zero))  # noqa: SLF001
        return torch._make_per_channel_quantized_tensor(  # noqa: SLF001
            values, scale.read(), zero.read(), int(scheme[3])
        )

    one = name == "torch.per_tensor_affine" and isinstance(scale, float) and isinstance(zero, int)
    each = name == "torch.per_channel_affine" and len(scheme) == 4
    axis = scheme[3] if each else 0
    each = each and isinstance(axis, int) and 0 <= axis < len(integers.shape)
    each = each and all(
        isinstance(e, Entry) and e.shape == integers.shape[axis : axis + 1] for e in scheme[1:3]
    )
    if not one and not each:
        raise UnsoundPickleError(f"the quantization scheme {name[:50]!r}")
    return Entry(integers.shape, dtype, read, integers.memory)


def _sparse(layout: Any = None, data: Any = None) -> Entry:
    if layout != "torch.sparse_coo" or not isinstance(data, tuple) or len(data) not in (3, 4):
        raise UnsoundPickleError("a sparse tensor of another layout than torch.sparse_coo")
    indices, values, size = data[:3]
    if not isinstance(indices, Entry) or not isinstance(values, Entry):
        raise UnsoundPickleError("a sparse tensor without its parts")

    def read() -> torch.Tensor:
        try:
            return torch.sparse_coo_tensor(
                indices.read(), values.read(), shape, check_invariants=True
            )
        except RuntimeError as error:
            raise MigrateError(
                f"a sparse tensor contradicts itself: {str(error)[:200]}",
                "the checkpoint",
                "copy or download it again",
            ) from error

    shape = _integers(size)
    return Entry(shape, values.dtype, read)


def _meta(dtype: Any = None, size: Any = (), *_: Any) -> Entry:
    shape, found = _integers(size), dtype_of(dtype)
    if found is None:
        raise UnsoundPickleError("a meta tensor without a dtype")
    return Entry(shape, found, lambda: torch.empty(shape, dtype=found, device="meta"))


def _first(value: Any = None, *_: Any) -> Any:
    return value


def _from_type(function: Any = None, kind: Any = None, args: Any = (), state: Any = None) -> Any:
    # A subclass of Tensor: what it holds is what its function makes.
    if not isinstance(function, Known) or not isinstance(args, tuple):
        return Made(getattr(kind, "name", "a subclass of Tensor"), (function, args), state)
    return function.call(*args)


def _from_array(array: Any = None, *_: Any) -> Any:
    found = array.entry() if isinstance(array, ArrayState) else None
    if found is None:
        raise UnsoundPickleError("a tensor that is made of no array")
    return found


@lru_cache(maxsize=1)
def constructors() -> dict[str, Callable[..., Any]]:
    """Return the constructors of torch and NumPy that are carried out, by dotted name."""
    utils: dict[str, Callable[..., Any]] = {
        "_rebuild_tensor": _tensor,
        "_rebuild_tensor_v2": _tensor,
        "_rebuild_tensor_v3": _tensor_v3,
        "_rebuild_qtensor": _quantized,
        "_rebuild_sparse_tensor": _sparse,
        "_rebuild_meta_tensor_no_storage": _meta,
        "_rebuild_parameter": _first,
        "_rebuild_parameter_with_state": _first,
        "_rebuild_device_tensor_from_numpy": _from_array,
        "_rebuild_device_tensor_from_cpu_tensor": _first,
    }
    found: dict[str, Callable[..., Any]] = {f"torch._utils.{k}": v for k, v in utils.items()}
    found["torch._tensor._rebuild_from_type"] = _from_type
    found["torch._tensor._rebuild_from_type_v2"] = _from_type
    found["torch.Size"] = _first
    found["torch.device"] = _first
    found["torch.nn.parameter.Parameter"] = _first
    found["torch.serialization._get_layout"] = _first
    found["torch.jit._pickle.restore_type_tag"] = _first
    for name in ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist"):
        found[f"torch.jit._pickle.{name}"] = _first
    # A class stands for itself as long as nobody calls it.
    for name in _STORAGES:
        found[f"torch.{name}"] = found[f"torch.storage.{name}"] = _refused
    for name in ("per_tensor_affine", "per_channel_affine"):
        found[f"torch.{name}"] = _refused
    for name in _DTYPES:
        found[name] = _refused
    return found | NUMPY


def _refused(*_: Any) -> Any:
    raise UnsoundPickleError("it calls a class that needs none of its arguments")
