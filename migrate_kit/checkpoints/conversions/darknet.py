"""YOLOv2, YOLOv3 and what else a Darknet ``.cfg`` of their kind describes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from migrate_kit.checkpoints.conversion import Conversion
from migrate_kit.checkpoints.conversions.source_files import one_file, out_file
from migrate_kit.checkpoints.formats import darknet
from migrate_kit.checkpoints.formats.darknet_cfg import read_cfg
from migrate_kit.checkpoints.formats.darknet_sections import plan_network
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.networks.darknet import EPSILON, DarknetNetwork
from migrate_kit.checkpoints.proofs import opencv
from migrate_kit.checkpoints.proofs.file import prove_file
from migrate_kit.checkpoints.proofs.measured import Proof
from migrate_kit.checkpoints.write import write_state_dict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few, number

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from migrate_kit.checkpoints.formats.darknet import Fit

# PyTorch's default, and what AlexeyAB's Darknet adds; see networks/darknet.py.
_OTHER_EPSILON = 1e-5


def convert(
    name: str, paths: Any, out: Any, cfg: str | os.PathLike[str] | None, epsilon: float | None
) -> Conversion:
    """Convert ``.weights`` with the network of a ``.cfg``."""
    weights = one_file(paths, "the .weights")
    described = Path(cfg) if cfg is not None else weights.with_suffix(".cfg")
    if cfg is None and not described.is_file():
        raise MigrateError(
            "which network the floats belong to is in its .cfg, and none is given",
            str(weights),
            f"pass cfg=, or put it beside the weights as {described.name}",
        )
    source = Source(weights)
    found = darknet.fit(source, plan_network(read_cfg(described)))
    findings = [*_about(name, found), *darknet.findings(found)]
    entries = darknet.entries(source, found)
    # Copies: the file may be the one that is written over.
    state = {key: entry.read().clone() for key, entry in entries.items()}
    findings += _repaired(state)
    used = EPSILON if epsilon is None else epsilon
    with torch.device("meta"):
        network = DarknetNetwork(found.plan, used).eval()
    counters = [key for key in network.state_dict() if key.endswith("num_batches_tracked")]
    state |= {key: torch.zeros((), dtype=torch.int64) for key in counters}
    network.load_state_dict(state, strict=True, assign=True)
    runs = _Runs(network, found)
    proofs = _proofs(runs, found, described, weights)
    findings += _about_epsilon(runs, found, used)
    final = network.state_dict()
    path = write_state_dict(final, out_file(out, name), format="torch-legacy")
    origin = {key: f"layer {key.split('.')[1]} of {weights.name}" for key in entries}
    proofs.append(prove_file(final, path))
    return Conversion(
        name,
        network=network,
        state_dict=final,
        out=[path],
        proof=proofs,
        epsilon=used,
        origin=origin,
        findings=findings,
    )


def _about(name: str, found: Fit) -> list[Finding]:
    header = found.header
    names = darknet.stock_networks(found.plan.floats(optional=False))
    known = f"; so many floats has {few(names, 6)}" if names else ""
    findings = [
        Finding(
            "info",
            f"Darknet {header.version}, a header of {header.length} bytes, trained on "
            f"{header.seen:,} images{known}",
        )
    ]
    kinds = {found.plan.layers[index].kind for index in found.plan.outputs}
    for head, own in (("region", "yolov2"), ("yolo", "yolov3")):
        if head in kinds and name != own:
            findings.append(
                Finding("warning", f"the .cfg has [{head}] layers, as {own} has, and not {name}")
            )
    return findings


def _repaired(state: dict[str, torch.Tensor]) -> list[Finding]:
    """Clamp what is no variance; say what is no number."""
    below, wrong = {}, []
    for key, tensor in state.items():
        if key.endswith("running_var"):
            count = int((tensor < 0).sum())
            if count:
                below[key] = (count, float(tensor.min()))
                tensor.clamp_(min=0)
        if not bool(tensor.isfinite().all()):
            wrong.append(key)
    findings = []
    if below:
        count = sum(n for n, _ in below.values())
        least = min(value for _, value in below.values())
        findings.append(
            Finding(
                "warning",
                f"{count} variances below zero, the least {least:.1e}, were set to 0",
                few(below),
                "without it their root is NaN where no epsilon is added before the root",
            )
        )
    if wrong:
        findings.append(
            Finding(
                "warning",
                "the file holds values that are NaN or infinite",
                few(wrong),
                "the network was trained to divergence, or the file is not whole",
            )
        )
    return findings


class _Runs:
    """The network's outputs on one image, with each epsilon once."""

    def __init__(self, network: DarknetNetwork, found: Fit) -> None:
        self.network, self._shape = network, (1, *found.plan.image)
        self._found: dict[float, Sequence[torch.Tensor]] = {}

    @property
    def image(self) -> torch.Tensor:
        """The same noise each time."""
        return torch.rand(self._shape, generator=torch.Generator().manual_seed(0))

    def outputs(self, epsilon: float) -> Sequence[torch.Tensor]:
        """Return them; the network keeps its own epsilon."""
        if epsilon not in self._found:
            self._found[epsilon] = self._run(epsilon)
        return self._found[epsilon]

    def _run(self, epsilon: float) -> Sequence[torch.Tensor]:
        kinds = nn.BatchNorm1d | nn.BatchNorm2d
        norms = [m for m in self.network.modules() if isinstance(m, kinds)]
        before = [norm.eps for norm in norms]
        try:
            for norm in norms:
                norm.eps = epsilon
            with torch.no_grad():
                raw = self.network(self.image)
        finally:
            for norm, eps in zip(norms, before, strict=True):
                norm.eps = eps
        return [raw] if isinstance(raw, torch.Tensor) else list(raw)


def _proofs(runs: _Runs, found: Fit, cfg: Path, weights: Path) -> list[Proof]:
    reason = opencv.too_large(found.plan)
    if reason:
        return [Proof.not_run("OpenCV", reason)]
    ours = runs.outputs(opencv.EPSILON)
    return opencv.prove_darknet(ours, runs.image, found, cfg, weights)


def _about_epsilon(runs: _Runs, found: Fit, used: float) -> list[Finding]:
    """Say how much another epsilon would move the output."""
    if not any("running_var" in key for key in runs.network.state_dict()):
        return []
    other = EPSILON if used == _OTHER_EPSILON else _OTHER_EPSILON
    moved = ""
    if not opencv.too_large(found.plan):
        pairs = zip(runs.outputs(used), runs.outputs(other), strict=True)
        parts = [float((a - b).abs().max() / (a.max() - a.min())) for a, b in pairs]
        moved = f"; with {other:g} the output moves by up to {number(max(parts))} of its range"
    return [
        Finding(
            "info",
            f"the file does not say which epsilon its batch normalizations had: {used:g} was used"
            f"{moved}",
            "",
            "OpenCV adds 1e-06, and so does the original Darknet on a CPU (to the root); "
            "AlexeyAB's Darknet, Darknet on a GPU and PyTorch by default add 1e-05. The written "
            "file is the same for both",
        )
    ]
