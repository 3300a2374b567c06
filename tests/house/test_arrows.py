"""Rooms import downwards only; imports inside functions count too."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "migrate_kit"
BASE = {"errors", "results", "files", "tables", "targets"}
PROJECT = {"project", "sample", "migration", "template", "toml_table", "inputs", "model"}
SIDE_BY_SIDE = {
    "checkpoints",
    "dtypes",
    "environment",
    "offline",
    "performance",
    "porting",
    "quantization",
    "training",
}
# room -> what it may import besides itself
ALLOWED = {
    "errors": set(),
    "files": {"errors"},
    "results": {"errors"},
    "tables": {"errors"},
    "targets": {"errors", "tables"},
    "layers": BASE,
    "widgets": BASE | {"layers"},
    "check": set(),
    "front_end": BASE,
    "snippets": BASE,
    **dict.fromkeys(PROJECT, BASE | PROJECT),
    **dict.fromkeys(SIDE_BY_SIDE, BASE | {"layers"}),
    "report": BASE | {"layers"} | SIDE_BY_SIDE,
    "cli_text": BASE | {"checkpoints", "dtypes", "environment", "layers"},
    "cli_weights": BASE | PROJECT | {"__init__", "checkpoints", "cli_text"},
    "cli": BASE
    | PROJECT
    | SIDE_BY_SIDE
    | {"__init__", "cli_text", "cli_weights", "layers", "report"},
}
# Any room may explain an error and load a checkpoint.
FOR_ALL_ROOMS = {"environment.explain", "checkpoints.load"}
# MindSpore's files are read and written in one place; what is written comes as it is read.
FOR_PORTING = {
    "checkpoints.formats.mindspore_ckpt",
    "checkpoints.state",
    "checkpoints.write",
}
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE)


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree, package):
    """Yield (dotted name below migrate_kit, whether it is inside a function)."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                above = package[: len(package) - node.level + 1]
                start = ".".join([*above, *filter(None, [start])])
            names = [start]
            if start == "migrate_kit":
                names = [f"migrate_kit.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
        for name in names:
            if name == "migrate_kit":
                yield "__init__", id(node) in inside
            elif name.startswith("migrate_kit."):
                yield name.removeprefix("migrate_kit."), id(node) in inside


def wrong(source, path):
    room, package = room_of(path), ["migrate_kit", *path.relative_to(PACKAGE).parts[:-1]]
    found = []
    for name, lazily in imports(ast.parse(source), package):
        other = name.partition(".")[0]
        fine = other == room or other in ALLOWED[room]
        fine |= room in SIDE_BY_SIDE | PROJECT | {"report"} and name in FOR_ALL_ROOMS
        fine |= room == "porting" and name in FOR_PORTING
        # .show() may fetch the view; nothing may need it to be imported.
        fine |= other == "widgets" and lazily
        if not fine:
            found.append(name)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    assert room_of(path) in ALLOWED, "a new room: say here what it may import"
    assert wrong(path.read_text(encoding="utf-8"), path) == []


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from migrate_kit.porting import rules", "layers/x.py"),
        ("def f():\n    import migrate_kit.report", "layers/x.py"),
        ("from migrate_kit import project", "layers/x.py"),
        ("from ..porting import rules", "checkpoints/x.py"),
        ("from migrate_kit.widgets.layer_diff import View", "layers/x.py"),
        ("import migrate_kit as mk", "layers/x.py"),
        ("from importlib import import_module\nimport_module('migrate_kit.cli')", "layers/x.py"),
    ],
)
def test_an_import_that_points_upwards_is_found(source, path):
    assert wrong(source, PACKAGE / path)


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from migrate_kit.layers.store import Trace", "porting/x.py"),
        ("from .store import Trace", "layers/x.py"),
        ("from migrate_kit.checkpoints.load import load", "porting/x.py"),
        ("def show():\n    from migrate_kit.widgets.layer_diff import View", "layers/x.py"),
    ],
)
def test_an_import_that_points_downwards_is_not(source, path):
    assert not wrong(source, PACKAGE / path)


def test_snippets_stand_alone():
    for path in (PACKAGE / "snippets").glob("[!_]*.py"):
        names = {name for name, _ in imports(ast.parse(path.read_text()), ["migrate_kit"])}
        assert not names, path.name
