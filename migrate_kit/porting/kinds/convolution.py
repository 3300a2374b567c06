"""Convolutions: padding by mode, and a bias that is off by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.porting.kinds.kind import Kind, Matters, short, spread
from migrate_kit.porting.patches import mindspore, rebuilt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch

SAME = "same"


class WithBias(Kind):
    """What may have a bias: the cell says so in ``has_bias``."""

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        return {"has_bias": module.bias is not None}

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        return {"has_bias": bool(cell.has_bias)}

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`: a new bias holds zeros until weights are loaded."""
        if "has_bias" not in changed:
            return {}
        changes: dict[str, Any] = {"has_bias": settings["has_bias"]}
        if settings["has_bias"] and getattr(cell, "bias", None) is None:
            ms, weight = mindspore(), cell.weight
            name = weight.name.removesuffix("weight") + "bias"
            zeros = ms.ops.zeros((cell.out_channels,), weight.dtype)
            changes["bias"] = ms.Parameter(zeros, name=name)
            changes["bias_add"] = getattr(cell, "bias_add", None) or ms.ops.BiasAdd()
        return changes

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """See :meth:`Kind.matters`: a bias of zeros too many only shows once it is trained."""
        return "training" if what == "has_bias" and held and not wanted else "output"


class Dense(WithBias):
    """A dense layer, which may carry an activation."""

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        return {**super().wanted(module), "activation": None}

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        activation = getattr(cell, "activation", None)
        name = type(activation).__name__ if activation is not None else None
        return {**super().held(cell), "activation": name}

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del wanted
        if what != "activation":
            return ""
        return f"the cell applies {held} itself: leave it there only if torch's next layer is that"


class Convolution(WithBias):
    """A convolution along ``n`` axes; the cell pads before and after each."""

    transposed = False
    foreign = ("padding_mode",)

    def __init__(self, n: int) -> None:
        self.n = n
        # A 1-D layer is a 2-D one of height 1.
        self.primitive = f"conv{max(n, 2)}d"

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        found = {
            **super().wanted(module),
            "stride": spread(module.stride, self.n),
            "padding": self._torch_padding(module),
            "dilation": spread(module.dilation, self.n),
            "group": module.groups,
        }
        if module.padding_mode != "zeros":
            found["padding_mode"] = module.padding_mode
            del found["padding"]
        return found

    def _torch_padding(self, module: Any) -> tuple[int, ...]:
        padding = module.padding
        if padding == "same":  # only at stride 1, where it is a number
            return _same_at_stride_1(module.kernel_size, module.dilation)
        if padding == "valid":
            padding = 0
        return tuple(p for axis in spread(padding, self.n) for p in (axis, axis))

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        n = self.n
        stride, dilation = cell.stride[-n:], cell.dilation[-n:]
        mode = cell.pad_mode.lower()
        padding: Any
        if mode == "same":
            padding = SAME
            if not self.transposed and set(stride) == {1}:
                padding = _same_at_stride_1(cell.kernel_size[-n:], dilation)
        elif mode == "valid":
            padding = (0,) * 2 * n
        else:
            padding = spread(cell.padding, 2 * n)
            if isinstance(cell.padding, tuple):
                padding = cell.padding[-2 * n :]
        return {
            **super().held(cell),
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "group": cell.group,
            "padding_mode": "zeros",
        }

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        changes = super().attributes(cell, settings, changed)
        if not {"stride", "padding", "dilation"} & set(changed):
            return changes
        one, none = ((1,), (0, 0)) if self.n == 1 else ((), ())
        padding = settings["padding"]
        mode = "same" if padding == SAME else "pad"
        pads = 0 if padding == SAME else none + tuple(padding)
        changes |= {
            "stride": one + tuple(settings["stride"]),
            "dilation": one + tuple(settings["dilation"]),
            "pad_mode": mode,
            "padding": pads,
        }
        name = self.primitive
        changes[name] = rebuilt(
            getattr(cell, name),
            stride=changes["stride"],
            dilation=changes["dilation"],
            pad_mode=mode,
            pad=pads,
        )
        return changes

    def line(self, what: str, value: Any) -> str:
        """See :meth:`Kind.line`."""
        if what == "padding":
            return padding_line(value)
        if what in ("stride", "dilation"):
            value = short(value)
        return super().line(what, value)

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del held
        if what == "group":
            return "build the cell anew: its weight has another shape"
        if what != "padding_mode":
            return ""
        pad = {"reflect": "Reflection", "replicate": "Replication"}.get(wanted)
        if not pad:
            return f"no cell pads in mode {wanted}: concatenate the input's edges before the cell"
        return f"put nn.{pad}Pad{self.n}d before the cell and give it pad_mode='valid'"


class Transposed(Convolution):
    """A transposed convolution; here padding is what is cut off the full result.

    A third setting follows: the cell appends ``output_padding`` rows of zeros, torch computes them,
    which is to cut off less at the end.
    """

    transposed = True

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.primitive += "_transpose"

    def _torch_padding(self, module: Any) -> tuple[int, ...]:
        pads, extra = spread(module.padding, self.n), spread(module.output_padding, self.n)
        return tuple(p for a, b in zip(pads, extra, strict=True) for p in (a, a - b))

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        found = super().held(cell)
        extra = spread(getattr(cell, "output_padding", 0), self.n)[-self.n :]
        kernel = zip(cell.kernel_size[-self.n :], found["stride"], found["dilation"], strict=True)
        if cell.pad_mode.lower() == "valid" and any(d * (k - 1) + 1 < s for k, s, d in kernel):
            found["padding"] = "valid"  # it fills up with zeros where the kernel leaves gaps
        elif self.n == 3 and any(extra):
            ends = zip(found["padding"][1::2], extra, strict=True)  # computed here, as in torch
            found["padding"] = tuple(
                p
                for start, (end, more) in zip(found["padding"][::2], ends, strict=True)
                for p in (start, end - more)
            )
        elif any(extra):
            found["padding"] = (*found["padding"], "zeros", *extra)
        return found

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        changes = super().attributes(cell, settings, changed)
        if "padding" in changes and self.n != 3:
            changes |= {f"is_{m}": changes["pad_mode"] == m for m in ("valid", "same", "pad")}
        if "padding" in changes and self.n == 2:
            sides = ("top", "bottom", "left", "right")
            pads = spread(changes["padding"], 4)
            changes |= {f"padding_{s}": p for s, p in zip(sides, pads, strict=True)}
            changes["output_padding"] = 0
        if "padding" in changes and self.n == 3:
            none = (0, 0, 0)
            changes["output_padding"] = none
            name = self.primitive
            changes[name] = rebuilt(changes[name], output_padding=none)
        return changes

    def line(self, what: str, value: Any) -> str:
        """See :meth:`Kind.line`."""
        if what == "padding" and self.n == 1 and len(set(value)) > 1:
            start, end = value
            return f"nn.Conv2dTranspose with pad_mode='pad', padding=(0, 0, {start}, {end})"
        if what == "padding":
            return f"pad_mode='pad', padding={short(value)!r}"
        return super().line(what, value)

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        if what == "padding" and min(wanted) < 0:
            return "torch's output_padding exceeds its padding: append the rows after the cell"
        return super().obstacle(what, wanted, held)


def padding_line(value: Any) -> str:
    """Return the two arguments that give a convolution its padding.

    Examples
    --------
    >>> padding_line((1, 1, 1, 1)), padding_line((0, 0)), padding_line("same")
    ("pad_mode='pad', padding=1", "pad_mode='valid'", "pad_mode='same'")
    """
    if value == SAME:
        return "pad_mode='same'"
    if not any(value):
        return "pad_mode='valid'"
    return f"pad_mode='pad', padding={short(value)!r}"


def _same_at_stride_1(kernel: Any, dilation: Any) -> tuple[int, ...]:
    found: list[int] = []
    for k, d in zip(kernel, dilation, strict=True):
        total = d * (k - 1)
        found += [total // 2, total - total // 2]
    return tuple(found)
