"""Attention, and the transformer's layers around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.porting.kinds.kind import Kind, Matters
from migrate_kit.porting.patches import mindspore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch


class Attention(Kind):
    """Attention of several heads."""

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        return {
            "num_heads": module.num_heads,
            "dropout": module.dropout,
            "has_bias": module.in_proj_bias is not None,
            "add_zero_attn": bool(module.add_zero_attn),
            "batch_first": bool(module.batch_first),
        }

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        return {
            "num_heads": cell.num_heads,
            "dropout": cell.dropout,
            "has_bias": cell.in_proj_bias is not None,
            "add_zero_attn": bool(cell.add_zero_attn),
            "batch_first": bool(cell.batch_first),
        }

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        new = {name: settings[name] for name in changed}
        if "num_heads" in new:
            new["head_dim"] = cell.embed_dim // new["num_heads"]
        return new

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """See :meth:`Kind.matters`."""
        if what == "has_bias" and held and not wanted:
            return "training"
        return "training" if what == "dropout" else "output"

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del wanted, held
        return "build the cell anew: it has other parameters" if what == "has_bias" else ""


class TransformerLayer(Kind):
    """An encoder's or decoder's layer: only what its children do not say themselves."""

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        activation: Any = module.activation
        name = getattr(activation, "__name__", type(activation).__name__).lower()
        return {
            "nhead": module.self_attn.num_heads,  # type: ignore[union-attr]
            "dropout": module.dropout1.p,  # type: ignore[union-attr]
            "activation": name,
            "layer_norm_eps": module.norm1.eps,  # type: ignore[union-attr]
            "batch_first": bool(module.self_attn.batch_first),  # type: ignore[union-attr]
            "norm_first": bool(module.norm_first),
        }

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        activation = cell.activation
        name = getattr(activation, "__name__", type(activation).__name__).lower()
        return {
            "nhead": cell.self_attn.num_heads,
            "dropout": 1 - cell.dropout1.dropout.init_attrs["keep_prob"],
            "activation": name,
            "layer_norm_eps": cell.norm1.epsilon,
            "batch_first": bool(cell.self_attn.batch_first),
            "norm_first": bool(cell.norm_first),
        }

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        del cell
        new = {name: settings[name] for name in changed}
        if "activation" in new:
            new["activation"] = getattr(mindspore().ops, new["activation"])
        return new

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """See :meth:`Kind.matters`."""
        del wanted, held
        return "training" if what == "dropout" else "output"

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del held
        if what == "activation" and wanted != "relu":
            return "build the cell anew: ops.gelu is torch's gelu only with approximate='none'"
        if what in ("activation", "norm_first"):
            return ""
        return "build the cell anew, or correct its children: the attention, norms and dropouts"
