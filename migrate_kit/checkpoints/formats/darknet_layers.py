"""The layers of a Darknet network: their shapes, and the weights they have in the file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.darknet_cfg import Section
    from migrate_kit.errors import MigrateError

Shape = tuple[int, int, int]

HEADS = ("yolo", "region")


@dataclass(frozen=True)
class Part:
    """One tensor of a layer, in the order of the file."""

    name: str
    shape: tuple[int, ...]
    optional: bool = False

    @property
    def count(self) -> int:
        """How many floats it has."""
        return prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes
    ----------
    section : Section
    kind : str
        The section's type, the longer of two equal names.
    inputs : tuple of int
        The layers it reads; -1 is the image.
    shapes : tuple of (int, int, int)
        Their channels, heights and widths.
    shape : (int, int, int)
        Its own.
    parts : tuple of Part
        Its weights.
    settings : dict
    """

    section: Section
    kind: str
    inputs: tuple[int, ...]
    shapes: tuple[Shape, ...]
    shape: Shape
    parts: tuple[Part, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def work(self) -> int:
        """How many multiplications it takes, about."""
        kernels = [part.count for part in self.parts if part.name.endswith("weight")]
        return max(kernels, default=1) * self.shape[1] * self.shape[2]


@dataclass(frozen=True)
class Plan:
    """A whole network, described and not built.

    Attributes
    ----------
    image : (int, int, int)
        Channels, height and width of what it is given.
    layers : tuple of Layer
    """

    image: Shape
    layers: tuple[Layer, ...]

    def parts(self, optional: bool = True) -> list[tuple[int, Part]]:
        """Return every tensor in the order of the file, with its layer's number."""
        return [
            (index, part)
            for index, layer in enumerate(self.layers)
            for part in layer.parts
            if optional or not part.optional
        ]

    def floats(self, optional: bool = True) -> int:
        """Return how many floats the file must hold."""
        return sum(part.count for _, part in self.parts(optional))

    def first(self, count: int) -> Plan:
        """Return the network of the first layers only."""
        return replace(self, layers=self.layers[:count])

    @property
    def outputs(self) -> tuple[int, ...]:
        """The layers whose outputs are the network's: its heads, or else the last."""
        heads = [i for i, layer in enumerate(self.layers) if layer.kind in HEADS]
        return tuple(heads) or (len(self.layers) - 1,)

    @property
    def classes(self) -> int | None:
        """How many classes it tells apart, where it has a head."""
        head = self.layers[self.outputs[-1]]
        return head.settings["classes"] if head.kind in HEADS else None


class Draft:
    """The layers so far, and what the next may read of them."""

    def __init__(self, image: Shape) -> None:
        self.image = image
        self.layers: list[Layer] = []

    def shape(self, index: int) -> Shape:
        """Return the shape of a layer; -1 is the image."""
        return self.image if index < 0 else self.layers[index].shape

    @property
    def before(self) -> int:
        """The layer that the next one reads."""
        return len(self.layers) - 1

    def referred(self, section: Section, key: str) -> list[int]:
        """Return the layers that a key names; each stands before this one."""
        own = len(self.layers)
        numbers = section.integers(key)
        if not numbers:
            raise section.error(f"{key} names no layer", key)
        found = [number + own if number < 0 else number for number in numbers]
        for number, index in zip(numbers, found, strict=True):
            if not 0 <= index < own:
                raise section.error(
                    f"{key}={number} is layer {index}, and this is layer {own}", key
                )
        return found

    def error(self, section: Section, what: str, key: str = "") -> MigrateError:
        """Return an error that also names what the layer reads."""
        return section.error(
            f"{what}; the layer before gives {sizes(self.shape(self.before))}", key
        )


def sizes(*shapes: Shape) -> str:
    """Return shapes in words."""
    return ", ".join("x".join(map(str, shape)) for shape in shapes[:6]) + " (C x H x W)"
