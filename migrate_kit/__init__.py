"""Walk a PyTorch model to other hardware, and see which layer differs and why.

The public names are loaded when they are first used, so that ``import migrate_kit as mk`` costs
milliseconds and pulls in no framework.

Examples
--------
>>> import migrate_kit as mk
>>> project = mk.open_project()
>>> "capture" in dir(mk)
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    # What __getattr__ does at run time, said so that editors complete and mypy checks.
    from migrate_kit import check, dtypes
    from migrate_kit.checkpoints.convert import convert_weights
    from migrate_kit.checkpoints.diagnose import diagnose
    from migrate_kit.checkpoints.load import load_checkpoint
    from migrate_kit.checkpoints.write import write_state_dict
    from migrate_kit.dtypes.rehearse import rehearse
    from migrate_kit.environment.doctor import check_environment
    from migrate_kit.environment.explain import explain, explain_box
    from migrate_kit.errors import MigrateError
    from migrate_kit.front_end import setup_front_end
    from migrate_kit.layers.capture import capture
    from migrate_kit.layers.compare import LayerDiff, compare
    from migrate_kit.layers.formats import RoundingTable, rounding_table
    from migrate_kit.layers.noise import NoiseFloor, noise_floor
    from migrate_kit.layers.runners.dump_runner import DumpRunner
    from migrate_kit.layers.runners.mindspore_runner import MindSporeRunner
    from migrate_kit.layers.runners.onnx_runner import OnnxRunner
    from migrate_kit.layers.runners.torch_runner import TorchRunner
    from migrate_kit.layers.store import Trace
    from migrate_kit.porting.checkpoint import to_mindspore_checkpoint, to_state_dict
    from migrate_kit.porting.port import port
    from migrate_kit.project import open_project
    from migrate_kit.results import Finding
    from migrate_kit.snippets import snippet

_HOMES = {
    "DumpRunner": "migrate_kit.layers.runners.dump_runner",
    "Finding": "migrate_kit.results",
    "LayerDiff": "migrate_kit.layers.compare",
    "MigrateError": "migrate_kit.errors",
    "MindSporeRunner": "migrate_kit.layers.runners.mindspore_runner",
    "NoiseFloor": "migrate_kit.layers.noise",
    "OnnxRunner": "migrate_kit.layers.runners.onnx_runner",
    "TorchRunner": "migrate_kit.layers.runners.torch_runner",
    "RoundingTable": "migrate_kit.layers.formats",
    "Trace": "migrate_kit.layers.store",
    "capture": "migrate_kit.layers.capture",
    "check_environment": "migrate_kit.environment.doctor",
    "compare": "migrate_kit.layers.compare",
    "convert_weights": "migrate_kit.checkpoints.convert",
    "diagnose": "migrate_kit.checkpoints.diagnose",
    "dtypes": "migrate_kit.dtypes",
    "explain": "migrate_kit.environment.explain",
    "explain_box": "migrate_kit.environment.explain",
    "load_checkpoint": "migrate_kit.checkpoints.load",
    "noise_floor": "migrate_kit.layers.noise",
    "open_project": "migrate_kit.project",
    "port": "migrate_kit.porting.port",
    "rehearse": "migrate_kit.dtypes.rehearse",
    "rounding_table": "migrate_kit.layers.formats",
    "setup_front_end": "migrate_kit.front_end",
    "snippet": "migrate_kit.snippets",
    "to_mindspore_checkpoint": "migrate_kit.porting.checkpoint",
    "to_state_dict": "migrate_kit.porting.checkpoint",
    "write_state_dict": "migrate_kit.checkpoints.write",
}

__all__ = [
    "DumpRunner",
    "Finding",
    "LayerDiff",
    "MigrateError",
    "MindSporeRunner",
    "NoiseFloor",
    "OnnxRunner",
    "RoundingTable",
    "TorchRunner",
    "Trace",
    "__version__",
    "capture",
    "check",
    "check_environment",
    "compare",
    "convert_weights",
    "diagnose",
    "dtypes",
    "explain",
    "explain_box",
    "load_checkpoint",
    "noise_floor",
    "open_project",
    "port",
    "rehearse",
    "rounding_table",
    "setup_front_end",
    "snippet",
    "to_mindspore_checkpoint",
    "to_state_dict",
    "write_state_dict",
]


def __getattr__(name: str) -> Any:
    if name == "check":
        return import_module("migrate_kit.check")
    if name not in _HOMES:
        msg = f"module 'migrate_kit' has no attribute {name!r}"
        raise AttributeError(msg)
    home = import_module(_HOMES[name])
    value = home if home.__name__ == f"migrate_kit.{name}" else getattr(home, name)
    globals()[name] = value  # the next use does not come back here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
