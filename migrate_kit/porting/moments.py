"""What an optimizer remembers, under MindSpore's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.results import Finding, Result, counted, findings_html, plain, table_html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import torch

_SHOWN = 12


class OptimizerState(Result):
    """What :func:`migrate_kit.porting.optimizer_state.optimizer_state` made.

    Attributes
    ----------
    optimizer : str
        Whose state it is, such as ``mindspore.nn.Adam``.
    entries : dict of str to Tensor
        Its tensors by MindSpore's names. Beside the network's in one checkpoint,
        ``mindspore.load_param_into_net`` puts them into an optimizer.
    arguments : dict
        PyTorch's settings as the arguments that MindSpore's optimizer has to be made with.
    """

    kind = "optimizer_state"

    def __init__(
        self,
        optimizer: str,
        entries: Mapping[str, torch.Tensor],
        arguments: Mapping[str, Any],
        findings: Sequence[Finding] = (),
    ) -> None:
        self.optimizer, self.entries = optimizer, dict(entries)
        self.arguments, self.findings = dict(arguments), list(findings)

    def with_findings(self, more: Sequence[Finding]) -> OptimizerState:
        """Return the same state with more to say."""
        findings = [*more, *self.findings]
        return OptimizerState(self.optimizer, self.entries, self.arguments, findings)

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps: no tensor."""
        return super().to_dict() | {
            "optimizer": self.optimizer,
            "tensors": len(self.entries),
            "arguments": {name: str(value) for name, value in self.arguments.items()},
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one line a tensor: its name, dtype and shape."""
        import pandas as pd

        return pd.DataFrame(self._rows(), columns=["name", "dtype", "shape"])

    def _rows(self) -> list[tuple[str, str, tuple[int, ...]]]:
        return [
            (name, str(t.dtype).removeprefix("torch."), tuple(t.shape))
            for name, t in self.entries.items()
        ]

    def __repr__(self) -> str:
        warned = [f"{f.what}; " for f in self.findings if f.level != "info"]
        held = counted(len(self.entries), "tensor")
        return f"OptimizerState({''.join(warned[:1])}{self.optimizer}: {held})"

    def _html(self) -> str:
        arguments = [(name, str(value)) for name, value in self.arguments.items()]
        rows = [tuple(plain(str(cell)) for cell in row) for row in self._rows()[:_SHOWN]]
        some = f"the first {_SHOWN} of " if len(self.entries) > _SHOWN else ""
        return (
            table_html(self.optimizer, ("argument", "value"), arguments)
            + findings_html(self.findings)
            + table_html(
                f"{some}{counted(len(self.entries), 'tensor')}", ("name", "dtype", "shape"), rows
            )
        )
