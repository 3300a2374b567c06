"""Normalization layers and embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.porting.kinds.kind import Kind, Matters
from migrate_kit.porting.patches import rebuilt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch


class BatchNorm(Kind):
    """Batch normalization; the cell's momentum is what it keeps of the old statistics."""

    def target(self, cell: Any) -> Any:
        """See :meth:`Kind.target`: a BatchNorm3d holds a BatchNorm2d."""
        return getattr(cell, "bn2d", cell)

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        found: dict[str, Any] = {"eps": module.eps}
        if not hasattr(module, "momentum"):  # torchvision's frozen one
            return {**found, "use_batch_statistics": False}
        found["momentum"] = None if module.momentum is None else 1 - module.momentum  # type: ignore[operator]
        found["use_batch_statistics"] = True if module.running_mean is None else None
        found["affine"] = bool(module.affine)
        return found

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        return {
            "eps": cell.eps,
            "momentum": 1 - cell.momentum,
            "use_batch_statistics": cell.use_batch_statistics,
            "affine": bool(cell.gamma.requires_grad),
        }

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        del changed
        eps, share = settings["eps"], 1 - settings["momentum"]
        return {
            "eps": eps,
            "momentum": share,
            "use_batch_statistics": settings["use_batch_statistics"],
            "bn_train": rebuilt(cell.bn_train, epsilon=eps, momentum=share),
            "bn_infer": rebuilt(cell.bn_infer, epsilon=eps),
        }

    def line(self, what: str, value: Any) -> str:
        """See :meth:`Kind.line`."""
        return super().line(what, round(value, 12) if what == "momentum" and value else value)

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """See :meth:`Kind.matters`: eval mode reads no momentum."""
        if what == "use_batch_statistics" and wanted is None and not held:
            return "training"
        return "training" if what in ("momentum", "affine") else "output"

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del held
        if what == "momentum" and wanted is None:
            return "the cell has no cumulative average: give it a momentum, or average by hand"
        if what == "affine":
            return "build the cell anew: whether gamma and beta are trained is theirs to say"
        return ""


class LayerNorm(Kind):
    """Layer normalization; the cell normalizes the last axis unless told otherwise."""

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        shape: Any = module.normalized_shape
        # Of negative axes the primitive takes -1 alone; one axis of samples before is usual.
        axis = -1 if len(shape) == 1 else 1
        return {"epsilon": module.eps, "begin_norm_axis": axis, "begin_params_axis": axis}

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        found = {"epsilon": cell.epsilon}
        for name in ("begin_norm_axis", "begin_params_axis"):
            axis = getattr(cell, name)
            # The last axis by either name; which rank the input has, the call checks.
            found[name] = -1 if len(cell.normalized_shape) == 1 else axis
        return found

    def same(self, what: str, wanted: Any, held: Any) -> bool:
        """See :meth:`Kind.same`: an axis from the front is taken as counted for the input."""
        if what == "epsilon" or wanted == -1:
            return super().same(what, wanted, held)
        return bool(held > 0)

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        new = {name: settings[name] for name in changed}
        return {**new, "layer_norm": rebuilt(cell.layer_norm, **new)}


class GroupNorm(Kind):
    """Group normalization, which also stands for instance normalization."""

    foreign = ("track_running_stats",)

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        groups = getattr(module, "num_groups", None) or module.num_features
        found = {"num_groups": groups, "eps": module.eps}
        if getattr(module, "running_mean", None) is not None:
            found["track_running_stats"] = True
        return found

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        return {"num_groups": cell.num_groups, "eps": cell.eps, "track_running_stats": False}

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        del cell
        return {name: settings[name] for name in changed}

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del wanted, held
        if what != "track_running_stats":
            return ""
        return "in eval torch's layer uses its running statistics: a group norm has none"


class InstanceNorm(Kind):
    """Instance normalization by the cell of that name; here momentum means the same."""

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        return {"eps": module.eps, "momentum": module.momentum}

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        return {"eps": cell.eps, "momentum": cell.momentum}

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        del changed
        eps, momentum = settings["eps"], settings["momentum"]
        again = rebuilt(cell.instance_bn, epsilon=eps, momentum=momentum)
        return {"eps": eps, "momentum": momentum, "instance_bn": again}

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """See :meth:`Kind.matters`."""
        del wanted, held
        return "training" if what == "momentum" else "output"


class Embedding(Kind):
    """An embedding; the cell zeroes the padding's row once, and goes on training it."""

    foreign = ("max_norm", "padding_idx")

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        found = {"padding_idx": module.padding_idx, "use_one_hot": False}
        if module.max_norm is not None:
            found["max_norm"] = module.max_norm
        return found

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        return {
            "padding_idx": cell.padding_idx,
            "use_one_hot": cell.use_one_hot,
            "max_norm": None,
        }

    def same(self, what: str, wanted: Any, held: Any) -> bool:
        """See :meth:`Kind.same`: one-hot and gather fetch the same row."""
        return what == "use_one_hot" or super().same(what, wanted, held)

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """See :meth:`Kind.matters`."""
        del wanted, held
        return "output" if what == "max_norm" else "training"

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del held
        if what == "padding_idx":
            return f"the cell trains row {wanted} too: set its gradient to zero in the step"
        return "clip the rows by hand before the cell: it knows no max_norm"
