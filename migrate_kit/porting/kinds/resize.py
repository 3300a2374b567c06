"""Resizing of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.porting.kinds.kind import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch

_NAMES = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor")


class Upsample(Kind):
    """Upsampling; the cell takes a factor only as a float whose sizes it computes first."""

    foreign = ("coordinates",)

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        factor: Any = module.scale_factor
        mode = str(module.mode)
        found: dict[str, Any] = {
            "size": module.size,
            "scale_factor": factor,
            "mode": mode,
            "align_corners": bool(module.align_corners),
            "recompute_scale_factor": True if factor is not None else None,
        }
        whole = all(f == int(f) for f in _factors(factor))
        if not whole and not module.recompute_scale_factor and not module.align_corners:
            found["coordinates"] = "the factor"
        return found

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        found = {name: getattr(cell, name) for name in _NAMES}
        found["coordinates"] = "the ratio of sizes"
        found["align_corners"] = bool(found["align_corners"])
        if found["scale_factor"] is None:
            found["recompute_scale_factor"] = None
        return found

    def same(self, what: str, wanted: Any, held: Any) -> bool:
        """See :meth:`Kind.same`: the bicubic kernel is another, whatever the settings."""
        if what == "mode" and wanted == "bicubic":
            return False
        if what == "scale_factor" and any(isinstance(f, int) for f in _factors(held)):
            return False  # a whole number is refused when the cell runs
        return super().same(what, wanted, held)

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        del cell
        new = {name: settings[name] for name in changed}
        mode = settings["mode"]
        if "align_corners" in new and mode in ("nearest", "area", "nearest-exact"):
            new["align_corners"] = None
        return new

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del held
        if what == "mode" and wanted == "bicubic":
            return "the cell's bicubic kernel is another: resize with two matrix products"
        if what == "coordinates":
            return "give torch's layer recompute_scale_factor=True: the cell samples by the sizes"
        return ""


def _factors(factor: Any) -> tuple[Any, ...]:
    if factor is None:
        return ()
    return tuple(factor) if isinstance(factor, list | tuple) else (factor,)
