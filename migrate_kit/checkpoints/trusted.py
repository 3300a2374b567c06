"""Run the code in a pickle, on the user's explicit word."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from migrate_kit.checkpoints.formats import pickle_file
from migrate_kit.checkpoints.formats.dangerous import dangerous
from migrate_kit.checkpoints.state import StateDict
from migrate_kit.checkpoints.tree import NOT_RUN, UNRUN
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
        if checkpoint.format == pickle_file.FORMAT:
            with checkpoint.path.open("rb") as file:
                loaded: Any = pickle.load(file)  # noqa: S301 - the user's explicit word
        else:
            loaded = torch.load(checkpoint.path, map_location="cpu", weights_only=False)
    except Exception as error:
        said = str(error).partition("\n")[0][:200]
        raise MigrateError(
            f"its code fails here: {type(error).__name__}: {said}",
            str(checkpoint.path),
            f"put what it asks for on the path ({few(checkpoint.wanted, 6)}), or leave out "
            "trust=True: the tensors are read without it",
        ) from error
    checkpoint.object = loaded
    if isinstance(loaded, torch.nn.Module):
        checkpoint.state_dict = StateDict.of(loaded.state_dict())
    # What was said of the code before it ran is no longer so.
    checkpoint.findings[:] = [
        replace(f, what=f.what.removesuffix(f"; {UNRUN}"))
        for f in checkpoint.findings
        if not f.what.endswith(NOT_RUN)
    ]
    level: Literal["warning", "info"] = "warning" if dangerous(checkpoint.wanted) else "info"
    checkpoint.findings.append(
        Finding(level, f"its code was run, as trust=True says: {few(checkpoint.wanted, 6)}")
    )
