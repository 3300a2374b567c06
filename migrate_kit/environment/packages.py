"""Installed packages, from their metadata: nothing is imported."""

from __future__ import annotations

import ast
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from migrate_kit.environment.facts import UNKNOWN, Build, Package
from migrate_kit.environment.metadata import installed, places, read_metadata
from migrate_kit.environment.places import text

if TYPE_CHECKING:
    from collections.abc import Sequence

# These are judged: what they ask for is looked up too.
JUDGED = {
    "anywidget": "anywidget",
    "ipywidgets": "ipywidgets",
    "jupyterlab": "jupyterlab",
    "mindspore": "mindspore",
    "numpy": "numpy",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "torch": "torch",
    "torch-mlu": "torch_mlu",
    "torch-npu": "torch_npu",
    "torchaudio": "torchaudio",
    "torchvision": "torchvision",
}
# What the operator compiler of CANN imports in this Python (Ascend/pytorch installation FAQ).
CANN_PYTHON = (
    *("attrs", "cython", "numpy", "decorator", "sympy", "cffi", "pyyaml", "pathlib2", "psutil"),
    *("protobuf", "scipy", "requests", "absl-py"),
)
_ALSO = ("ipykernel", "jupyterlab-widgets", "migrate-kit", "protobuf", "setuptools")
_SHADOWED = {"torch", "torch-mlu", "torch-npu", "torchaudio", "torchvision", "mindspore", "numpy"}


def packages(path: Sequence[str] | None = None) -> dict[str, Package]:
    """Return the installed packages that matter here, by their canonical names.

    Parameters
    ----------
    path : sequence of str, optional
        Where to look, in the order in which Python does; by default ``sys.path``.

    Examples
    --------
    >>> "numpy" in packages()
    True
    """
    where = places(path)
    found = {name: _package(name, where) for name in JUDGED}
    wanted = {*CANN_PYTHON, *_ALSO}
    for package in found.values():
        if package is not None:
            wanted |= {canonicalize_name(Requirement(r).name) for r in package.requires}
    for name in sorted(wanted - set(found)):
        found[name] = _package(name, where)
    return {name: package for name, package in sorted(found.items()) if package is not None}


def torch_build(package: Package) -> Build:
    """Read how torch was built from its version.py, without running it."""
    try:
        tree = ast.parse(text(Path(package.folder) / "torch" / "version.py"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # text nested without end
        return Build(package.version)
    values: dict[str, str] = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        target = node.target if isinstance(node, ast.AnnAssign) else target
        if isinstance(target, ast.Name) and isinstance(
            value := getattr(node, "value", None), ast.Constant
        ):
            values[target.id] = "" if value.value is None else str(value.value)
    return Build(values.get("__version__") or package.version, values.get("cuda", ""))


def _package(name: str, path: list[str]) -> Package | None:
    distributions = installed(name, path)
    module = JUDGED.get(name, "")
    if not distributions:
        # A folder that an uninstall has left behind is imported all the same.
        left = _place(module, path) if name in _SHADOWED else ""
        return Package(shadow=left) if left else None
    first, *others = (read_metadata(d, whole=name in JUDGED) for d in distributions)
    shadow = ""
    if name in _SHADOWED:
        place = _place(module, path)
        if place and not Path(place).is_relative_to(Path(first.folder)):
            shadow = place
    return Package(
        first.version or UNKNOWN,
        first.requires,
        first.tags,
        first.folder,
        tuple(other.version or UNKNOWN for other in others),
        shadow,
        first.damage,
    )


def _place(module: str, path: list[str]) -> str:
    """Return the file or folder that ``import module`` would take, without importing it."""
    spec = PathFinder.find_spec(module, path)
    if spec is None:
        return ""
    if spec.origin:
        return spec.origin
    folders = list(spec.submodule_search_locations or ())
    return str(folders[0]) if folders else ""
