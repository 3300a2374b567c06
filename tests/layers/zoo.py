"""Networks, inputs and planted faults for the fault zoo.

A fault of an output is planted by wrapping the module's ``forward``, so that the layer's own output
is wrong; a hook would put it between two layers.
"""

from __future__ import annotations

import contextlib
import copy
import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
import torchvision
from torch import nn

Fault = Callable[[nn.Module, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Case:
    net: str
    fault: str
    first: str
    made_here: frozenset[str]
    path: str


def cases() -> list[Case]:
    """Read faults.csv: the network, the fault, and where it must be found."""
    with (Path(__file__).parent / "faults.csv").open(newline="") as f:
        return [
            Case(
                r["net"],
                r["fault"],
                r["first_layer"],
                frozenset(r["made_here"].split()),
                r["other_path"],
            )
            for r in csv.DictReader(f)
        ]


# --- networks -------------------------------------------------------------------------------------


def picture(count: int, seed: int, size: int = 224) -> torch.Tensor:
    """Smooth noise with a natural image's falling spectrum, normalised."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros(count, 3, size, size)
    for side in (4, 8, 16, 32, 64, 128, size):
        octave = torch.randn(count, 3, side, side, generator=generator)
        octave = nn.functional.interpolate(octave, (size, size), mode="bilinear")
        total += octave * (size / side) ** 0.5
    return (total - total.mean((2, 3), keepdim=True)) / total.std((2, 3), keepdim=True)


def resnet50() -> nn.Module:
    """Random weights, BatchNorm statistics measured on pictures, gamma and beta spread."""
    torch.manual_seed(4711)
    model = torchvision.models.resnet50(weights=None)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0, 0.2)
        norm.momentum = None  # a cumulative average
    model.train()
    with torch.no_grad():
        for i in range(2):
            model(picture(8, seed=50 + i))
    for norm in norms:
        norm.momentum = 0.1
    return model.eval()


def efficientnet() -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights."""
    from migrate_kit.project import open_project

    return open_project().model()


# --- another float32 path -------------------------------------------------------------------------


def other_path(name: str, model: nn.Module) -> contextlib.AbstractContextManager[object]:
    """Run in float32 another way, with the same mathematics.

    Only ``split_sums`` surely rounds otherwise. ``channels_last`` is there for its memory layout:
    with one thread, every convolution of EfficientNet-Lite0 gave the very same bits.
    """
    if name == "split_sums":
        operators = {op: _split(getattr(nn.functional, op)) for op in ("conv2d", "linear")}
        return mock.patch.multiple(nn.functional, **operators)
    if name == "native":
        return torch.backends.mkldnn.flags(enabled=False, allow_tf32=None)
    assert name == "channels_last"
    model.to(memory_format=torch.channels_last)
    return contextlib.nullcontext()


def _split(operator: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Sum every third product alone and add the sum of the others; grouped or not.

    Not two halves: kernels cut long sums so themselves, and with one thread 7 layers of ResNet-50
    gave the very same bits.
    """

    def split(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *settings: object
    ) -> torch.Tensor:
        third = (torch.arange(weight[0].numel()) % 3 == 0).view_as(weight[0])
        rest = operator(x, weight * ~third, bias, *settings)
        return rest + operator(x, weight * third, None, *settings)

    return split


# --- faults ---------------------------------------------------------------------------------------


def plant(
    net: str, fault: str, model: nn.Module, x: torch.Tensor
) -> tuple[nn.Module, torch.Tensor]:
    """Return a copy of ``model`` with the fault in it, and the input it is to be given."""
    model = copy.deepcopy(model)
    if fault == "none":
        return model, x
    return model, (_RESNET if net == "resnet50" else _EFFICIENTNET)[fault](model, x)


def _wrap(module: nn.Module, after: Callable[[torch.Tensor], torch.Tensor]) -> None:
    forward = module.forward
    module.forward = lambda *args: after(forward(*args))  # type: ignore[method-assign]


def _wrap_input(module: nn.Module, before: Callable[[torch.Tensor], torch.Tensor]) -> None:
    forward = module.forward
    module.forward = lambda x: forward(before(x))  # type: ignore[method-assign]


def hf32(t: torch.Tensor) -> torch.Tensor:
    """Round float32 to HF32's 11 stored mantissa bits, ties to even."""
    bits, drop = t.detach().contiguous().view(torch.int32), 23 - 11
    even = (bits >> drop) & 1
    return ((bits + (1 << (drop - 1)) - 1 + even) & ~((1 << drop) - 1)).view(torch.float32)


def _one_nan(y: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    y[0, 3, 5, 5] = float("nan")
    return y


def _change(value: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with torch.no_grad():
        value.copy_(function(value.clone()))


def _general(
    conv: Callable[[nn.Module], nn.Module], norm: Callable[[nn.Module], nn.Module]
) -> dict[str, Fault]:
    """The faults that any network can have, put into one convolution or BatchNorm or the input."""

    def weights(function: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
        def fault(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
            _change(conv(m).weight, function)  # type: ignore[arg-type]
            return x

        return fault

    def output(function: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
        def fault(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
            _wrap(conv(m), function)
            return x

        return fault

    def eps(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        bn = norm(m)
        bn.eps = 1e-3 if bn.eps < 1e-4 else 1e-5  # type: ignore[assignment, operator]
        return x

    def variance(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        _change(norm(m).running_var, lambda v: v * 1.05)  # type: ignore[arg-type]
        return x

    def all_hf32(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for module in m.modules():
            if isinstance(module, nn.Conv2d):
                _change(module.weight, hf32)
                _wrap_input(module, hf32)
        return x

    def dead(w: torch.Tensor) -> torch.Tensor:
        w[7] = 0
        return w

    order = torch.Generator().manual_seed(1)
    return {
        "bn_eps": eps,
        "bn_running_var": variance,
        "channels_permuted": weights(lambda w: w[torch.randperm(len(w), generator=order)]),
        "kernel_transposed": weights(lambda w: w.transpose(2, 3)),
        "sign_flip": weights(torch.neg),
        "dead_channel": weights(dead),
        "one_nan": output(_one_nan),
        "scale_1pct": output(lambda y: y * 1.01),
        "scale_0.1pct": output(lambda y: y * 1.001),
        "roll_1": output(lambda y: y.roll(1, 3)),
        "bf16_output": output(lambda y: y.bfloat16().float()),
        "hf32_all_convs": all_hf32,
        "bgr_input": lambda _, x: x.flip(1),
        "hflip_input": lambda _, x: x.flip(3),
    }


def _resnet_tf_padding(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    m.conv1.padding = (0, 0)  # type: ignore[union-attr, assignment]
    _wrap_input(m.conv1, lambda t: nn.functional.pad(t, (2, 3, 2, 3)))  # type: ignore[arg-type]
    return x


def _wrong_phase(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A stride-2 convolution that starts at pixel 1."""
    _wrap_input(m.layer3[0].conv2, lambda t: nn.functional.pad(t, (-1, 1, -1, 1)))  # type: ignore[index, union-attr]
    return x


def _no_bias(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    _change(m.fc.bias, torch.zeros_like)  # type: ignore[union-attr, arg-type]
    return x


def _other_activation(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    m.relu = nn.GELU()
    return x


def _efficientnet_padding(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    m._conv_stem.static_padding.padding = (1, 0, 1, 0)  # type: ignore[union-attr, assignment]
    return x


_RESNET: dict[str, Fault] = {
    **_general(lambda m: m.layer2[1].conv2, lambda m: m.layer2[1].bn2),  # type: ignore[index, union-attr, return-value]
    "padding_one_sided": _resnet_tf_padding,
    "stride_2_phase": _wrong_phase,
    "missing_bias": _no_bias,
    "wrong_activation": _other_activation,
}
_EFFICIENTNET: dict[str, Fault] = {
    **_general(lambda m: m._blocks[5]._depthwise_conv, lambda m: m._blocks[5]._bn1),  # type: ignore[index, union-attr, return-value]
    "padding_one_sided": _efficientnet_padding,
}
