"""Run the code in a pickle, on the user's explicit word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.state import StateDict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    from migrate_kit.checkpoints.checkpoint import Checkpoint


def run_pickle(checkpoint: Checkpoint) -> None:
    """Unpickle the file with its code; ``checkpoint.object`` is what was saved.

    Raises
    ------
    MigrateError
        If the code is not there, or fails.
    """
    import torch

    try:
        loaded: Any = torch.load(checkpoint.path, map_location="cpu", weights_only=False)
    except Exception as error:
        raise MigrateError(
            f"its code fails here: {type(error).__name__}: {str(error).splitlines()[0][:200]}",
            str(checkpoint.path),
            f"put what it asks for on the path ({few(checkpoint.wanted, 6)}), or leave out "
            "trust=True: the tensors are read without it",
        ) from error
    checkpoint.object = loaded
    if isinstance(loaded, torch.nn.Module):
        checkpoint.state_dict = StateDict.of(loaded.state_dict())
    checkpoint.findings.append(
        Finding("info", f"its code was run, as trust=True says: {few(checkpoint.wanted, 6)}")
    )
