"""Sample inputs: a photograph, a stored array, or random numbers of a given shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

INTERPOLATIONS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
COLORS = ("RGB", "BGR", "L")
RANGES = ("0..1", "0..255")
FLOATS = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
# Far above any sample input, far below what takes a machine down with it.
MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class ImageInput:
    """How a photograph becomes a tensor of shape 1, channels, height, width.

    Sizes mean what torchvision's ``Resize`` and ``CenterCrop`` mean: one number resizes the
    shorter side, two are height and width.
    """

    path: Path
    resize: tuple[int, ...] = ()
    crop: tuple[int, ...] = ()
    interpolation: str = "bilinear"
    color: str = "RGB"
    range: str = "0..1"
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def tensor(self) -> torch.Tensor:
        """Read the file and return the tensor."""
        from PIL import Image

        try:
            with Image.open(self.path) as image:
                image.load()
                return image_tensor(image, self)
        except MigrateError:
            raise
        except Exception as error:
            # Pillow's decoders raise OSError, ValueError, SyntaxError, struct.error and more.
            raise MigrateError(
                f"the image cannot be read: {error}",
                f"image {self.path}",
                "open and save it anew as PNG",
            ) from error

    def __str__(self) -> str:
        steps = [self.path.name]
        if self.resize:
            steps.append(f"{self.interpolation} resize {_by(self.resize)}")
        if self.crop:
            steps.append(f"centre crop {_by(self.crop)}")
        steps.append(f"{self.color} {self.range}")
        if self.mean or self.std:
            steps.append("normalised")
        return ", ".join(steps)


@dataclass(frozen=True)
class ArrayInput:
    """An array that ``numpy.save`` wrote; its shape and dtype are used as they are."""

    path: Path

    def tensor(self) -> torch.Tensor:
        """Read the file and return the tensor."""
        import numpy as np
        import torch

        try:
            # Mapped first: a header that promises more than the file holds fails before memory
            # is taken for it. allow_pickle=False: an object array would run code.
            mapped = np.load(self.path, mmap_mode="r", allow_pickle=False)
            if not isinstance(mapped, np.ndarray):
                raise TypeError("it is an archive of several arrays")
            return torch.from_numpy(np.array(mapped, order="C"))
        except Exception as error:
            raise MigrateError(
                f"the array cannot be read: {error}",
                f"npy {self.path}",
                "write one numeric array with numpy.save",
            ) from error

    def __str__(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class RandomInput:
    """Random numbers: normal for floats, or uniform from ``low`` up to, without, ``high``."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    seed: int = 0
    low: float | None = None
    high: float | None = None

    def tensor(self) -> torch.Tensor:
        """Return the same tensor for the same seed."""
        import torch

        dtype: torch.dtype = getattr(torch, self.dtype)
        size = math.prod(self.shape) * dtype.itemsize
        if size > MOST_BYTES:
            raise MigrateError(
                f"an input of {size / 2**30:.1f} GiB",
                f"shape {list(self.shape)}",
                f"stay under {MOST_BYTES >> 30} GiB",
            )
        random = torch.Generator().manual_seed(self.seed)
        if self.dtype == "bool":
            return torch.randint(0, 2, self.shape, generator=random).bool()
        if self.dtype in INTEGERS:
            low, high = int(self.low or 0), int(self.high or 0)
            limits = torch.iinfo(dtype)
            if low < limits.min or high - 1 > limits.max:
                raise MigrateError(
                    f"{low} up to {high} does not fit {self.dtype}",
                    f"shape {list(self.shape)}, low and high",
                    f"stay within {limits.min} and {limits.max}",
                )
            return torch.randint(low, high, self.shape, generator=random, dtype=dtype)
        if self.high is None:
            # Drawn in double precision, so that two dtypes are the same numbers, rounded.
            wide = torch.complex128 if dtype.is_complex else torch.float64
            return torch.randn(self.shape, generator=random, dtype=wide).to(dtype)
        uniform = torch.rand(self.shape, generator=random, dtype=torch.float64)
        low_ = self.low or 0.0
        return (low_ + (self.high - low_) * uniform).to(dtype)

    def __str__(self) -> str:
        return f"random {self.dtype} of shape {list(self.shape)}, seed {self.seed}"


Input = ImageInput | ArrayInput | RandomInput


def image_tensor(image: Any, how: ImageInput) -> torch.Tensor:
    """Return a Pillow image as the network wants it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> how = ImageInput(Path("red.png"), resize=(8,), crop=(4,))
    >>> image_tensor(Image.new("RGB", (20, 10), "red"), how).shape
    torch.Size([1, 3, 4, 4])
    """
    import numpy as np
    import torch
    from PIL import Image

    image = image.convert("L" if how.color == "L" else "RGB")
    if how.resize:
        size = _resized(image.height, image.width, how.resize)
        image = image.resize((size[1], size[0]), Image.Resampling[how.interpolation.upper()])
    if how.crop:
        height, width = how.crop if len(how.crop) == 2 else how.crop * 2
        if height > image.height or width > image.width:
            raise MigrateError(
                f"a crop of {height} by {width} does not fit {image.height} by {image.width}",
                f"crop of {how.path.name}",
                "make resize larger or crop smaller",
            )
        top, left = round((image.height - height) / 2), round((image.width - width) / 2)
        image = image.crop((left, top, left + width, top + height))
    pixels = np.array(image, dtype=np.uint8)
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if how.color == "BGR":
        pixels = pixels[::-1]
    tensor = torch.from_numpy(np.ascontiguousarray(pixels)).to(torch.float32)
    if how.range == "0..1":
        tensor = tensor / 255
    if how.mean:
        tensor = tensor - torch.tensor(how.mean).reshape(-1, 1, 1)
    if how.std:
        tensor = tensor / torch.tensor(how.std).reshape(-1, 1, 1)
    return tensor[None]


def _resized(height: int, width: int, resize: tuple[int, ...]) -> tuple[int, int]:
    if len(resize) == 2:
        return resize[0], resize[1]
    # int(), not round(): this is how torchvision sizes the longer side.
    if height <= width:
        return resize[0], int(resize[0] * width / height)
    return int(resize[0] * height / width), resize[0]


def _by(size: tuple[int, ...]) -> str:
    return " by ".join(map(str, size))
