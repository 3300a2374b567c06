"""Torch tensors to ONNX Runtime's values and back, in formats that NumPy lacks too."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

# ONNX Runtime's name of a format that it hands to NumPy not at all or as bare bytes.
_BY_BYTES = {
    "tensor(bfloat16)": torch.bfloat16,
    "tensor(float8e4m3fn)": torch.float8_e4m3fn,
    "tensor(float8e4m3fnuz)": torch.float8_e4m3fnuz,
    "tensor(float8e5m2)": torch.float8_e5m2,
    "tensor(float8e5m2fnuz)": torch.float8_e5m2fnuz,
}
_ONNX_NAMES = {
    torch.bfloat16: "BFLOAT16",
    torch.float8_e4m3fn: "FLOAT8E4M3FN",
    torch.float8_e4m3fnuz: "FLOAT8E4M3FNUZ",
    torch.float8_e5m2: "FLOAT8E5M2",
    torch.float8_e5m2fnuz: "FLOAT8E5M2FNUZ",
}


def to_ort(tensor: torch.Tensor) -> Any:
    """Return a host tensor as an ``onnxruntime.OrtValue``; any shape, the tensor's own format.

    Raises
    ------
    TypeError or RuntimeError
        If ONNX Runtime has no such format.

    Examples
    --------
    >>> import torch
    >>> to_ort(torch.ones(2, dtype=torch.bfloat16)).data_type()
    'tensor(bfloat16)'
    """
    import onnxruntime as ort
    from onnx import TensorProto

    if tensor.dtype in _ONNX_NAMES:
        bits = tensor.view(torch.int16 if tensor.itemsize == 2 else torch.uint8).numpy()
        bits = bits.view(np.uint16) if tensor.itemsize == 2 else bits
        number = TensorProto.DataType.Value(_ONNX_NAMES[tensor.dtype])
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)
    return ort.OrtValue.ortvalue_from_numpy(tensor.numpy())


def from_ort(value: Any) -> torch.Tensor | str:
    """Return an ``OrtValue`` as a tensor of its own, or the name of a type that torch lacks.

    These are sequences, maps, strings, missing optionals and 4-bit numbers.

    Examples
    --------
    >>> import torch
    >>> from_ort(to_ort(torch.tensor([1.5], dtype=torch.bfloat16)))
    tensor([1.5000], dtype=torch.bfloat16)
    """
    if value is None or not value.has_value():
        return "optional, without a value"
    kind = str(value.data_type())
    if not value.is_tensor():
        return kind
    dtype = _BY_BYTES.get(kind)
    if dtype is None:
        try:
            array = value.numpy()
            # NumPy has two names for 64 bits without a sign, torch knows one.
            return torch.from_numpy(array.view(np.uint64) if array.dtype == np.uint64 else array)
        except (TypeError, RuntimeError, ValueError):
            return kind
    if value.device_name() != "cpu":
        return kind
    size = value.tensor_size_in_bytes()
    memory = ctypes.string_at(value.data_ptr(), size) if size else b""
    flat = torch.frombuffer(bytearray(memory), dtype=dtype) if size else torch.empty(0, dtype=dtype)
    return flat.reshape(tuple(value.shape()))
