"""Pooling: a stride of one by default, and padding only in a mode of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.porting.kinds.convolution import SAME
from migrate_kit.porting.kinds.kind import Kind, short, spread
from migrate_kit.porting.patches import changed_attributes, mindspore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch


class Pool(Kind):
    """A pooling along ``n`` axes."""

    primitive = ""

    def __init__(self, n: int) -> None:
        self.n = n

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        stride = module.kernel_size if module.stride is None else module.stride
        return {
            "kernel_size": spread(module.kernel_size, self.n),
            "stride": spread(stride, self.n),
            "padding": spread(module.padding, self.n),
            "ceil_mode": bool(module.ceil_mode),
        }

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        built = getattr(cell, self.primitive).init_attrs
        mode = cell.pad_mode.lower()
        pads = built.get("pads", built.get("pad_list", built.get("pad", 0)))
        return {
            "kernel_size": self._along(cell.kernel_size),
            "stride": self._along(cell.stride),
            "padding": SAME if mode == "same" else self._along(self._before(pads)),
            "ceil_mode": bool(built.get("ceil_mode")),
        }

    def _along(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            value = value[-self.n :]
        return spread(value, self.n)

    def _before(self, pads: Any) -> Any:
        """Return one number an axis; an average pool's primitive has two, equal ones."""
        return pads[::2] if isinstance(pads, tuple) and len(pads) == 6 else pads

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`: the cell looks as if built with the settings."""
        del changed
        return changed_attributes(self._build(cell, self.held(cell)), self._build(cell, settings))

    def _build(self, cell: Any, settings: Mapping[str, Any]) -> Any:
        """Return MindSpore's own cell, as its constructor makes it with the settings."""
        arguments = {
            name: self._written(value)
            for name, value in settings.items()
            if name not in ("padding", "ceil_mode")
        }
        if settings["padding"] == SAME:
            arguments["pad_mode"] = "same"
        elif self._needs_padding(settings):
            padding = self._written(settings["padding"])
            arguments |= {"pad_mode": "pad", "padding": padding}
            arguments["ceil_mode"] = settings["ceil_mode"]
        if self.n == 1:
            arguments.pop("divisor_override", None)
        kind = next(c for c in type(cell).__mro__ if c.__module__.startswith("mindspore.nn."))
        return getattr(mindspore().nn, kind.__name__)(**arguments)

    def _needs_padding(self, settings: Mapping[str, Any]) -> bool:
        return any(settings["padding"]) or settings["ceil_mode"]

    def _written(self, value: Any) -> Any:
        return short(value) if isinstance(value, tuple) else value

    def line(self, what: str, value: Any) -> str:
        """See :meth:`Kind.line`."""
        if what == "padding" and value == SAME:
            return "pad_mode='same'"
        if what == "padding":
            return f"pad_mode='pad', padding={short(value)!r}" if any(value) else "pad_mode='valid'"
        if what == "ceil_mode" and value:
            return "pad_mode='pad', ceil_mode=True"
        return super().line(what, self._written(value))


class MaxPool(Pool):
    """A maximum pool."""

    primitive = "max_pool"

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        return {
            **super().wanted(module),
            "dilation": spread(module.dilation, self.n),
            "return_indices": bool(module.return_indices),
        }

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        built = cell.max_pool.init_attrs
        found = super().held(cell)
        odd = all(k % 2 for k in found["kernel_size"])
        if found["padding"] == SAME and odd and set(found["stride"]) == {1}:
            found["padding"] = tuple(k // 2 for k in found["kernel_size"])
        return {
            **found,
            "dilation": self._along(built.get("dilation", 1)),
            "return_indices": bool(cell.return_indices),
        }

    def _needs_padding(self, settings: Mapping[str, Any]) -> bool:
        dilated = any(d != 1 for d in settings["dilation"])
        return super()._needs_padding(settings) or dilated or settings["return_indices"]


class AvgPool(Pool):
    """An average pool."""

    primitive = "avg_pool"

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        return {
            **super().wanted(module),
            "count_include_pad": bool(module.count_include_pad),
            "divisor_override": getattr(module, "divisor_override", None),
        }

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        built = cell.avg_pool.init_attrs
        return {
            **super().held(cell),
            "count_include_pad": bool(built.get("count_include_pad", True)),
            "divisor_override": built.get("divisor_override") or None,
        }
