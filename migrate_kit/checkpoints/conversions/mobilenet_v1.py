"""MobileNetV1: what inference needs of a training checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.checkpoints.conversion import Conversion
from migrate_kit.checkpoints.conversions.source_files import one_file, out_file
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.networks.mobilenet_v1 import network_of
from migrate_kit.checkpoints.proofs.file import prove_file
from migrate_kit.checkpoints.proofs.measured import Proof
from migrate_kit.checkpoints.state import size_text
from migrate_kit.checkpoints.write import write_state_dict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from migrate_kit.checkpoints.checkpoint import Checkpoint

# nn.BatchNorm2d's own; a checkpoint does not hold it.
EPSILON = 1e-5
_PREFIX = "module."


def convert(name: str, paths: Any, out: Any) -> Conversion:
    """Keep the state_dict, without the prefix of DataParallel."""
    path = one_file(paths, "the checkpoint")
    checkpoint = load_checkpoint(path)
    names = list(checkpoint.state_dict)
    if not names:
        raise MigrateError("no tensor of a network", str(path), "pass the training checkpoint")
    # Only where every name has it: in a mixed file it is part of a name.
    wrapped = all(key.startswith(_PREFIX) for key in names)
    origin = {key[len(_PREFIX) :] if wrapped else key: key for key in names}
    state = {key: checkpoint.state_dict[old].clone() for key, old in origin.items()}
    before = path.stat().st_size  # it may be the file that is written over
    network = network_of(state)
    if network is None:
        raise MigrateError(
            f"the names or shapes are of no MobileNetV1 known here: {few(state)}",
            str(path),
            "write another network's file with mk.write_state_dict",
        )
    network.load_state_dict(_whole(network, state), strict=True, assign=True)
    network.eval()
    written = write_state_dict(state, out_file(out, name), format="torch-legacy")
    unchanged = "the values are unchanged, bit for bit: there is nothing to compute"
    return Conversion(
        name,
        network=network,
        state_dict=state,
        out=[written],
        proof=[Proof.not_run("another program", unchanged), prove_file(state, written)],
        epsilon=EPSILON if any("running_var" in key for key in state) else None,
        origin=origin,
        findings=_findings(checkpoint, written, before, wrapped=wrapped),
    )


def _whole(network: nn.Module, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors with the counters that old checkpoints lack."""
    counters = {
        key: torch.zeros((), dtype=torch.int64)
        for key in network.state_dict()
        if key.endswith("num_batches_tracked")
    }
    return counters | state


def _findings(
    checkpoint: Checkpoint, written: Path, before: int, *, wrapped: bool
) -> list[Finding]:
    after = written.stat().st_size
    left = f", without {few(checkpoint.extras, 6)}" if checkpoint.extras else ""
    part = f"{100 * after / before:.0f} %"
    findings = [
        Finding("info", f"{size_text(after)} of {size_text(before)} are kept ({part}){left}")
    ]
    if wrapped:
        findings.append(Finding("info", "every name began with 'module.', which was taken off"))
    findings.append(
        Finding(
            "info",
            f"a checkpoint does not hold its batch normalizations' epsilon: {EPSILON:g} is "
            "PyTorch's default",
        )
    )
    return findings
