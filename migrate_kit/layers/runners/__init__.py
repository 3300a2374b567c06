"""One file a framework, the same verbs: ``run(recorder, inputs, options)`` and ``meta()``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from migrate_kit.errors import MigrateError


def as_runner(thing: Any) -> Any:
    """Return a runner for a model, a cell, a runner, an ``.onnx`` file or a trace folder.

    Raises
    ------
    MigrateError
        If it is none of these.
    """
    if hasattr(thing, "run") and hasattr(thing, "meta"):
        return thing
    if isinstance(thing, str | Path):
        path = Path(thing)
        if path.suffix == ".onnx":
            from migrate_kit.layers.runners.onnx_runner import OnnxRunner

            return OnnxRunner(path)
        from migrate_kit.layers.runners.dump_runner import DumpRunner

        return DumpRunner(path)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.nn.Module):
        from migrate_kit.layers.runners.torch_runner import TorchRunner

        return TorchRunner(thing)
    # Nobody has a cell who has not imported MindSpore; a half imported one has no nn.
    nn = getattr(sys.modules.get("mindspore"), "nn", None)
    if nn is not None and isinstance(thing, nn.Cell):
        from migrate_kit.layers.runners.mindspore_runner import MindSporeRunner

        return MindSporeRunner(thing)
    raise MigrateError(
        f"cannot run a {type(thing).__name__}",
        "the first argument",
        "pass a torch.nn.Module, a mindspore.nn.Cell, a runner, the path of an .onnx file or of a"
        " trace folder",
    )
