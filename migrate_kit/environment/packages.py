"""Installed packages, from their metadata: nothing is imported."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from migrate_kit.environment.facts import Build, Package

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    path = [str(p or Path.cwd()) for p in (sys.path if path is None else path)]
    found = {name: _package(name, path) for name in JUDGED}
    wanted = {*CANN_PYTHON, *_ALSO}
    for package in found.values():
        if package is not None:
            wanted |= {canonicalize_name(Requirement(r).name) for r in package.requires}
    for name in sorted(wanted - set(found)):
        found[name] = _package(name, path)
    return {name: package for name, package in sorted(found.items()) if package is not None}


def backends(path: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the names of the plug-ins that ``import torch`` loads by itself."""
    if path is None:
        points = importlib.metadata.entry_points(group="torch.backends")
        return tuple(sorted({point.name for point in points}))
    places = [str(p or Path.cwd()) for p in path]
    return tuple(
        sorted(
            {
                point.name
                for distribution in importlib.metadata.distributions(path=places)
                for point in distribution.entry_points
                if point.group == "torch.backends"
            }
        )
    )


def torch_build(package: Package) -> Build:
    """Read how torch was built from its version.py, without running it."""
    try:
        text = (Path(package.folder) / "torch" / "version.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
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
    distributions = list(importlib.metadata.distributions(name=name, path=path))
    module = JUDGED.get(name, "")
    if not distributions:
        # A folder that an uninstall has left behind is imported all the same.
        left = _place(module, path) if name in _SHADOWED else ""
        return Package(shadow=left) if left else None
    first = distributions[0]
    folder = str(first.locate_file(""))
    shadow = ""
    if name in _SHADOWED:
        place = _place(module, path)
        if place and not Path(place).is_relative_to(Path(folder)):
            shadow = place
    judged = name in JUDGED
    return Package(
        first.version,
        tuple(_requires(first.requires or ())) if judged else (),
        tuple(_tags(first)) if judged else (),
        folder,
        tuple(d.version for d in distributions[1:]),
        shadow,
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


def _requires(lines: Iterable[str]) -> Iterable[str]:
    """Keep what is asked for in this environment without any extra."""
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirement.marker = None
            requirement.extras = set()
            yield str(requirement)


def _tags(distribution: importlib.metadata.Distribution) -> Iterable[str]:
    text = distribution.read_text("WHEEL") or ""
    for line in text.splitlines():
        if line.startswith("Tag:"):
            yield line.removeprefix("Tag:").strip()
