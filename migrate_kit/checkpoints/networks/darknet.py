"""Any network of YOLOv2's and YOLOv3's family, built from its Darknet ``.cfg``."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from migrate_kit.checkpoints.formats.darknet_cfg import read_cfg
from migrate_kit.checkpoints.formats.darknet_layers import HEADS, Layer, Plan
from migrate_kit.checkpoints.formats.darknet_sections import plan_network
from migrate_kit.checkpoints.networks import darknet_modules as own
from migrate_kit.checkpoints.networks.darknet_decode import decode_head
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

# What OpenCV's importer adds to a variance, and the original Darknet on a CPU to its root.
# Darknet on a GPU and AlexeyAB's add 1e-5. The .weights file does not say.
EPSILON = 1e-6


class DarknetNetwork(nn.Module):
    """A network as its ``.cfg`` describes it.

    The names of its parameters are those that marvis's pytorch-yolo2 made common:
    ``models.<layer>.conv<n>.weight``, ``models.<layer>.bn<n>.running_mean``, where layers count
    from 0 and convolutions from 1.

    Parameters
    ----------
    plan : Plan
    epsilon : float
        Added to the variance by every batch normalization.

    Attributes
    ----------
    models : ModuleList
        One module a section.
    """

    def __init__(self, plan: Plan, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.plan, self.epsilon = plan, epsilon
        self.models = nn.ModuleList(_BUILDERS[layer.kind](layer, epsilon) for layer in plan.layers)
        last = {index: at for at, layer in enumerate(plan.layers) for index in layer.inputs}
        # Which outputs nobody reads any more after each layer.
        self._done = [[i for i, at in last.items() if at == n] for n in range(len(plan.layers))]

    def forward(self, image: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Run the network.

        Parameters
        ----------
        image : Tensor
            ``(b, channels, height, width)``, RGB, 0 to 1.

        Returns
        -------
        tensor, or tuple of tensors
            What each head is given, undecoded; of a network without a head its last layer's output.
        """
        alive = {-1: image}
        found = []
        for index, (layer, module) in enumerate(zip(self.plan.layers, self.models, strict=True)):
            alive[index] = module(*(alive[i] for i in layer.inputs))
            if index in self.plan.outputs:
                found.append(alive[index])
            for done in self._done[index]:
                del alive[done]
        return tuple(found) if len(found) > 1 else found[0]

    def decode(
        self,
        raw: torch.Tensor | Sequence[torch.Tensor],
        image: tuple[int, int] | None = None,
    ) -> torch.Tensor:
        """Return all boxes: ``(b, n, 5 + classes)``, see :func:`decode_head`.

        Parameters
        ----------
        raw : tensor, or tuple of tensors
            What the network returned.
        image : (int, int), optional
            Height and width of the image, where it is not the ``.cfg``'s.
        """
        heads = [self.plan.layers[index] for index in self.plan.outputs]
        if heads[0].kind not in HEADS:
            raise MigrateError(
                "this network has no head to decode", "decode()", "use its outputs as they are"
            )
        raws = [raw] if isinstance(raw, torch.Tensor) else raw
        size = image or self.plan.image[1:]
        boxes = [
            decode_head(tensor, head.settings, head.kind, size)
            for tensor, head in zip(raws, heads, strict=True)
        ]
        return torch.cat(boxes, 1)


def build_darknet(cfg: str | os.PathLike[str], epsilon: float = EPSILON) -> DarknetNetwork:
    """Build the network of a ``.cfg``, with random weights.

    Raises
    ------
    MigrateError
        If the ``.cfg`` cannot be built; the text names section, line and key.
    """
    return DarknetNetwork(plan_network(read_cfg(cfg)), epsilon)


def _convolutional(layer: Layer, epsilon: float) -> nn.Module:
    s = layer.settings
    block = nn.Sequential()
    conv = nn.Conv2d(
        layer.shapes[0][0],
        layer.shape[0],
        layer.parts[-1].shape[2],
        s["stride"],
        s["padding"],
        s["dilation"],
        s["groups"],
        bias=not s["norm"],
    )
    block.add_module(f"conv{s['number']}", conv)
    if s["norm"]:
        block.add_module(f"bn{s['number']}", nn.BatchNorm2d(layer.shape[0], epsilon))
    if s["activation"] != "linear":
        block.add_module(f"{s['activation']}{s['number']}", own.activation(s["activation"]))
    return block


class _Connected(nn.Module):
    def __init__(self, layer: Layer, epsilon: float) -> None:
        super().__init__()
        norm, outputs = layer.settings["norm"], layer.shape[0]
        self.fc = nn.Linear(prod(layer.shapes[0]), outputs, bias=not norm)
        if norm:
            self.bn = nn.BatchNorm1d(outputs, epsilon)
        self.activation = own.activation(layer.settings["activation"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x.flatten(1))
        if hasattr(self, "bn"):
            x = self.bn(x)
        return self.activation(x)[:, :, None, None]  # type: ignore[no-any-return]


def _batchnorm(layer: Layer, epsilon: float) -> nn.Module:
    block = nn.Sequential()
    block.add_module("bn", nn.BatchNorm2d(layer.shape[0], epsilon))
    return block


def _nothing(_layer: Layer, _epsilon: float) -> nn.Module:
    return nn.Identity()


def _shortcut(layer: Layer, _epsilon: float) -> nn.Module:
    s = layer.settings
    weights = layer.parts[0].shape if layer.parts else None
    return own.Shortcut(weights, s["normalization"], s["activation"])


def _of(kind: Callable[..., nn.Module], *keys: str) -> Callable[[Layer, float], nn.Module]:
    """Return a builder that passes these settings on."""

    def build(layer: Layer, _epsilon: float) -> nn.Module:
        settings: dict[str, Any] = layer.settings
        return kind(*(settings[key] for key in keys))

    return build


_BUILDERS: dict[str, Callable[[Layer, float], nn.Module]] = {
    "activation": _of(own.activation, "activation"),
    "avgpool": _of(own.AvgPool),
    "batchnorm": _batchnorm,
    "connected": _Connected,
    "convolutional": _convolutional,
    "cost": _nothing,
    "dropout": _of(nn.Dropout, "probability"),
    "empty": _nothing,
    "maxpool": _of(own.MaxPool, "size", "stride", "padding"),
    "region": _nothing,
    "reorg": _of(own.Reorg, "stride"),
    "reorg3d": _of(own.Reorg3d, "stride"),
    "route": _of(own.Route, "groups", "group"),
    "sam": _of(own.Scaled, "activation"),
    "scale_channels": _of(own.Scaled, "activation"),
    "shortcut": _shortcut,
    "softmax": _of(own.Softmax, "groups", "temperature"),
    "upsample": _of(own.Upsample, "stride", "scale"),
    "yolo": _nothing,
}
