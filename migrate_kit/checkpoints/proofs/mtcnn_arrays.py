"""MTCNN in NumPy and float64, with an original's own arrays in their own layout.

Nothing here reads the converted tensors: a kernel transposed wrongly, or flattened in the wrong
order, shows as a difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# After which convolution what pooling follows: size and stride.
_POOLS = {"pnet": {1: 2}, "rnet": {1: 3, 2: 3}, "onet": {1: 3, 2: 3, 3: 2}}
_CONVOLUTIONS = {"pnet": 3, "rnet": 3, "onet": 4}
# The outputs in the order of the networks: points, offsets, probabilities.
_OUTPUTS = {
    "pnet": ("conv4_2", "conv4_1"),
    "rnet": ("conv5_2", "conv5_1"),
    "onet": ("conv6_3", "conv6_2", "conv6_1"),
}


def run_arrays(
    form: str, arrays: Mapping[str, torch.Tensor], part: str, image: Any
) -> list[NDArray[np.float64]]:
    """Run one network.

    Parameters
    ----------
    form : str
        Whose layout the arrays have.
    arrays : mapping of str to Tensor
    part : str
        ``pnet``, ``rnet`` or ``onet``.
    image : array
        ``(b, 3, height, width)``.
    """
    held = {key: tensor.double().numpy() for key, tensor in arrays.items()}
    # Caffe's and facenet's networks see the image transposed.
    turned = form in ("Caffe", "facenet")
    x = np.asarray(image, np.float64).transpose(0, *((3, 2) if turned else (2, 3)), 1)
    for number in range(1, _CONVOLUTIONS[part] + 1):
        x = _convolution(x, _kernel(form, held, f"features.conv{number}"))
        x = _prelu(x + held[f"features.conv{number}.bias"], held[f"features.prelu{number}.weight"])
        if number in _POOLS[part]:
            x = _pool(x, _POOLS[part][number])
    if part != "pnet":
        number = _CONVOLUTIONS[part] + 1
        x = _connected(form, held, f"features.conv{number}", _flat(form, x))
        x = _prelu(x, held[f"features.prelu{number}.weight"])
    found = []
    for name in _OUTPUTS[part]:
        if part == "pnet":
            y = _convolution(x, _kernel(form, held, name)) + held[f"{name}.bias"]
        else:
            y = _connected(form, held, name, x)
        if name == _OUTPUTS[part][-1]:
            y = np.exp(y - y.max(-1, keepdims=True))
            y /= y.sum(-1, keepdims=True)
        if part == "pnet":
            y = y.transpose(0, 3, *((2, 1) if turned else (1, 2)))
        found.append(y)
    return found


def _kernel(form: str, held: Mapping[str, Array], name: str) -> Array:
    """Return a kernel as height, width, in, out, of the image that the form sees."""
    kernel = held[f"{name}.weight"]
    return kernel if form == "facenet" else kernel.transpose(2, 3, 1, 0)


def _convolution(x: Array, kernel: Array) -> Array:
    # Batch, y, x, in, height, width.
    found: Array = np.einsum(
        "byxihw,hwio->byxo", _windows(x, *kernel.shape[:2]), kernel, optimize=True
    )
    return found


def _prelu(x: Array, slope: Array) -> Array:
    return np.where(x > 0, x, x * slope.reshape(-1))


def _pool(x: Array, size: int) -> Array:
    """Pool with a stride of 2; a last window that is not whole counts."""
    height, width = x.shape[1:3]
    more = [-(length - size) % 2 for length in (height, width)]
    x = np.pad(x, ((0, 0), (0, more[0]), (0, more[1]), (0, 0)), constant_values=-np.inf)
    found: Array = _windows(x, size, size)[:, ::2, ::2].max((4, 5))
    return found


def _windows(x: Array, height: int, width: int) -> Array:
    slide: Any = sliding_window_view  # typed for one axis only
    found: Array = slide(x, (height, width), axis=(1, 2))
    return found


def _flat(form: str, x: Array) -> Array:
    """Flatten (b, height, width, channel) as the form's program does."""
    order = {
        "Caffe": (0, 3, 1, 2),  # channel, height, width of the transposed image
        "facenet": (0, 1, 2, 3),
        "TropComplique": (0, 3, 2, 1),
        "facenet-pytorch": (0, 2, 1, 3),
    }[form]
    return x.transpose(order).reshape(len(x), -1)


def _connected(form: str, held: Mapping[str, Array], name: str, x: Array) -> Array:
    weight = held[f"{name}.weight"]
    weight = weight if form == "facenet" else weight.reshape(weight.shape[-2:]).T
    return x @ weight + held[f"{name}.bias"]
