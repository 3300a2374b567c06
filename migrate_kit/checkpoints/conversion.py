"""What a conversion of weights did, and what proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.state import size_text
from migrate_kit.results import Finding, Result, counted, findings_html, plain, table_html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from torch import Tensor, nn

    from migrate_kit.checkpoints.proofs.measured import Proof

_SHOWN = 12


class Conversion(Result):
    """What :func:`migrate_kit.convert_weights` made.

    Attributes
    ----------
    name : str
        Which network.
    network : torch.nn.Module
        It, with the weights, in ``eval()``.
    state_dict : dict of str to Tensor
    out : list of Path
        What was written: each file a state_dict in torch's old stream, which torch from 1.0 on
        reads, also with ``weights_only=True``.
    proof : list of Proof
        How far the network is from independent executions of the original, and why where none ran.
    epsilon : float or None
        What the network's batch normalizations add to a variance; None where it has none.
    origin : dict of str to str
        What each tensor was in the original, and how it was turned.
    """

    kind = "conversion"

    def __init__(
        self,
        name: str,
        *,
        network: nn.Module | None,
        state_dict: Mapping[str, Tensor],
        out: Sequence[Path],
        proof: Sequence[Proof],
        epsilon: float | None = None,
        origin: Mapping[str, str] | None = None,
        findings: Sequence[Finding] = (),
    ) -> None:
        self.name, self.network, self.epsilon = name, network, epsilon
        self.state_dict = dict(state_dict)
        self.out, self.proof = list(out), list(proof)
        self.origin = dict(origin or {})
        failed = [finding for finding in (p.finding() for p in proof) if finding]
        self.findings: list[Finding] = [*failed, *findings]

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps: no tensor."""
        return super().to_dict() | {
            "network": self.name,
            "files": [path.name for path in self.out],
            "tensors": len(self.state_dict),
            "epsilon": self.epsilon,
            "proof": [str(proof) for proof in self.proof],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one line a tensor: name, shape, dtype, and what it was in the original."""
        import pandas as pd

        rows = [
            (name, tuple(t.shape), str(t.dtype).removeprefix("torch."), self.origin.get(name, ""))
            for name, t in self.state_dict.items()
        ]
        return pd.DataFrame(rows, columns=["name", "shape", "dtype", "origin"])

    def __repr__(self) -> str:
        errors = [f"{f.what}; " for f in self.findings if f.level == "error"]
        held = counted(len(self.state_dict), "tensor")
        files = ", ".join(path.name for path in self.out)
        epsilon = "" if self.epsilon is None else f", epsilon {self.epsilon:g}"
        return (
            f"Conversion({''.join(errors[:1])}{self.name}: {held} to "
            f"{files}{epsilon}; {self._proven()})"
        )

    def _proven(self) -> str:
        """Say in one line what the proofs come to; the file read back is not one of the network."""
        ran = [proof for proof in self.proof if proof.ran and proof.limit > 0]
        if not ran:
            return next((str(proof) for proof in self.proof if not proof.ran), "not compared")
        worst = max(ran, key=lambda proof: proof.difference / proof.span if proof.span else 0.0)
        good = sum(proof.ok for proof in ran)
        return f"{good} of {len(ran)} comparisons agree, the worst is {worst}"

    def _html(self) -> str:
        tensors = list(self.state_dict.items())
        count = sum(t.numel() for _, t in tensors)
        size = sum(t.numel() * t.element_size() for _, t in tensors)
        epsilon = "no batch normalization" if self.epsilon is None else f"{self.epsilon:g}"
        rows = [
            ("network", self.name),
            *(("written in the stream of torch before 1.6", plain(p.name)) for p in self.out),
            (
                "holds",
                f"{counted(len(tensors), 'tensor')}, {counted(count, 'value')}, {size_text(size)}",
            ),
            ("epsilon of batch normalization", epsilon),
        ]
        proofs = [
            (p.against, p.what or p.reason, str(p).rpartition(": ")[2], "yes" if p.ok else "NO")
            if p.ran
            else (p.against, f"not run: {p.reason}", "–", "–")
            for p in self.proof
        ]
        some = f"the first {_SHOWN} of " if len(tensors) > _SHOWN else ""
        lines = [
            (plain(name), str(tuple(t.shape)), plain(self.origin.get(name, "")))
            for name, t in tensors[:_SHOWN]
        ]
        return (
            table_html("Conversion", ("what", "value"), rows)
            + table_html("Proof", ("against", "what", "difference", "rounding only"), proofs)
            + findings_html(self.findings)
            + table_html(
                f"{some}{counted(len(tensors), 'tensor')}", ("name", "shape", "origin"), lines
            )
        )
