"""Recurrent layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.porting.kinds.kind import Kind, Matters
from migrate_kit.porting.patches import mindspore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch


class Recurrent(Kind):
    """An LSTM, GRU or RNN."""

    foreign = ("proj_size",)

    def wanted(self, module: torch.nn.Module) -> dict[str, Any]:
        """See :meth:`Kind.wanted`."""
        found = {
            "num_layers": module.num_layers,
            "has_bias": bool(module.bias),
            "batch_first": bool(module.batch_first),
            "dropout": module.dropout,
            "bidirectional": bool(module.bidirectional),
        }
        if getattr(module, "proj_size", 0):
            found["proj_size"] = module.proj_size
        if hasattr(module, "nonlinearity"):
            found["nonlinearity"] = module.nonlinearity
        return found

    def held(self, cell: Any) -> dict[str, Any]:
        """See :meth:`Kind.held`."""
        relu = type(cell.rnn).__name__.endswith("Relu")
        return {
            "num_layers": cell.num_layers,
            "has_bias": bool(cell.has_bias),
            "batch_first": bool(cell.batch_first),
            "dropout": cell.dropout,
            "bidirectional": bool(cell.bidirectional),
            "proj_size": 0,
            "nonlinearity": "relu" if relu else "tanh",
        }

    def attributes(
        self, cell: Any, settings: Mapping[str, Any], changed: Collection[str]
    ) -> dict[str, Any]:
        """See :meth:`Kind.attributes`."""
        nn = mindspore().nn
        new: dict[str, Any] = {}
        if "batch_first" in changed:
            new["batch_first"] = settings["batch_first"]
        if "dropout" in changed:
            dropout = nn.Dropout(p=float(settings["dropout"]))
            dropout.set_train(cell.training)
            new |= {"dropout": settings["dropout"], "dropout_op": dropout}
        if "nonlinearity" in changed:
            new["rnn"] = nn.RNN(1, 1, nonlinearity=settings["nonlinearity"]).rnn
        return new

    def line(self, what: str, value: Any) -> str:
        """See :meth:`Kind.line`: the cell wants a float where torch takes 0."""
        return super().line(what, float(value) if what == "dropout" else value)

    def matters(self, what: str, wanted: Any, held: Any) -> Matters:
        """See :meth:`Kind.matters`."""
        del wanted, held
        return "training" if what == "dropout" else "output"

    def obstacle(self, what: str, wanted: Any, held: Any) -> str:
        """See :meth:`Kind.obstacle`."""
        del wanted, held
        if what in ("num_layers", "bidirectional", "has_bias"):
            return "build the cell anew: it has other parameters"
        return "no cell projects the hidden state" if what == "proj_size" else ""
