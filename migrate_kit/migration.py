"""migration.toml: what a user says about the model, read and checked in one place."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError
from migrate_kit.inputs import (
    COLORS,
    DTYPES,
    INTEGERS,
    INTERPOLATIONS,
    RANGES,
    ArrayInput,
    ImageInput,
    Input,
    RandomInput,
)
from migrate_kit.targets import find_target
from migrate_kit.toml_table import TomlTable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "migration.toml"
DEFAULT_TARGET = "ascend910b"

# Every key there is, with what it may be: the error texts are made from this.
KEYS = {
    "": {
        "name": "text, the project's name in reports",
        "model": "a table [model]",
        "inputs": "one or more tables [[inputs]]",
        "labels": "a table [labels]",
        "target": "a table [target]",
    },
    "model": {
        "builder": "text, 'module:function' or 'package.function'",
        "kwargs": "a table of keyword arguments for the builder",
        "weights": "the path of a .pth, .pt, .bin or .safetensors file",
        "weights_argument": "the builder's argument that takes the path of the weights",
    },
    "inputs": {
        "image": "the path of an image",
        "resize": "a number (shorter side) or [height, width]",
        "crop": "a number or [height, width]",
        "interpolation": f"one of: {', '.join(INTERPOLATIONS)}",
        "color": f"one of: {', '.join(COLORS)}",
        "range": f"one of: {', '.join(RANGES)}",
        "mean": "a list of one number a channel",
        "std": "a list of one number a channel, none of them 0",
        "npy": "the path of a file that numpy.save wrote",
        "shape": "a list of positive whole numbers",
        "dtype": f"one of: {', '.join(DTYPES)}",
        "seed": "a whole number from 0",
        "low": "a number",
        "high": "a number above low",
    },
    "labels": {
        "file": "the path of a text file, one label a line, or of a .json list",
        "list": "a list of texts",
    },
    "target": {"name": "the name of a target"},
}
_SOURCES = {
    "image": ("image", "resize", "crop", "interpolation", "color", "range", "mean", "std"),
    "npy": ("npy",),
    "shape": ("shape", "dtype", "seed", "low", "high"),
}


@dataclass(frozen=True)
class Migration:
    """A migration.toml that holds what it must; paths are absolute and exist."""

    file: Path
    name: str
    builder: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    weights: Path | None = None
    weights_argument: str = ""
    inputs: tuple[Input, ...] = ()
    labels: tuple[str, ...] | None = None
    target: str = DEFAULT_TARGET

    @property
    def folder(self) -> Path:
        """The folder that its paths and its builder start from."""
        return self.file.parent


def read_migration(file: Path) -> Migration:
    """Read and check a migration.toml.

    Raises
    ------
    MigrateError
        Naming the first key that is wrong or missing, and what it may be.
    """
    file = file.resolve()
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        # ValueError: not TOML, or not UTF-8.
        raise MigrateError(
            f"cannot read the project: {error}", str(file), "see a sound one: migrate-kit init"
        ) from error
    top = TomlTable(data, KEYS[""], str(file), file.parent)
    model = top.table("model", KEYS["model"], required=True)
    target = top.table("target", KEYS["target"])
    weights, argument = model.path("weights"), model.text("weights_argument")
    builder = model.text("builder", required=True)
    if not builder.strip(":.").replace(":", ".").count("."):
        raise model.error("builder", f"is {builder!r}")
    if argument and not weights:
        raise model.error("weights_argument", "has no weights to pass on; add 'weights'")
    return Migration(
        file=file,
        name=top.text("name") or file.parent.name,
        builder=builder,
        kwargs=dict(model.table("kwargs", None).data),
        weights=weights,
        weights_argument=argument,
        inputs=_inputs(top),
        labels=_labels(top.table("labels", KEYS["labels"])),
        target=find_target(target.text("name") or DEFAULT_TARGET, target.where).name,
    )


def _inputs(top: TomlTable) -> tuple[Input, ...]:
    tables = top.data.get("inputs")
    if isinstance(tables, dict):
        tables = [tables]  # [inputs] in single brackets is meant for one input
    if not isinstance(tables, list) or not tables:
        raise top.error("inputs", "is missing" if tables is None else f"is {tables!r}")
    return tuple(
        _input(
            TomlTable(table, KEYS["inputs"], f"{top.where}, [[inputs]] number {number}", top.folder)
        )
        for number, table in enumerate(tables, 1)
    )


def _input(table: TomlTable) -> Input:
    sources = [source for source in _SOURCES if source in table.data]
    if len(sources) != 1:
        raise MigrateError(
            f"{' and '.join(sources) or 'none of image, npy and shape'} in one input",
            table.where,
            "give exactly one of image, npy and shape",
        )
    for key in table.data:
        if key not in _SOURCES[sources[0]]:
            raise MigrateError(
                f"{key} does not go with {sources[0]}",
                table.where,
                f"with {sources[0]}: {', '.join(_SOURCES[sources[0]])}",
            )
    path = table.path(sources[0]) if sources[0] != "shape" else None
    if path is None:
        return _random(table)
    return ArrayInput(path) if sources[0] == "npy" else _image(table, path)


def _image(table: TomlTable, path: Path) -> ImageInput:
    color = table.text("color", among=COLORS) or "RGB"
    channels = (1,) if color == "L" else (1, 3)
    sizes = {k: table.numbers(k, whole=True, lengths=(1, 2)) for k in ("resize", "crop")}
    for key, size in sizes.items():
        if any(not 1 <= s <= 16384 for s in size):
            raise table.error(key, f"is {table.data[key]!r}")
    std = table.numbers("std", whole=False, lengths=channels)
    if 0 in std:
        raise table.error("std", f"is {table.data['std']!r}")
    return ImageInput(
        path=path,
        resize=sizes["resize"],
        crop=sizes["crop"],
        interpolation=table.text("interpolation", among=INTERPOLATIONS) or "bilinear",
        color=color,
        range=table.text("range", among=RANGES) or "0..1",
        mean=table.numbers("mean", whole=False, lengths=channels),
        std=std,
    )


def _random(table: TomlTable) -> RandomInput:
    shape = table.numbers("shape", whole=True)
    if not isinstance(table.data["shape"], list) or min(shape) < 1:
        raise table.error("shape", f"is {table.data['shape']!r}")
    dtype = table.text("dtype", among=DTYPES) or "float32"
    seed = table.number("seed", whole=True) or 0
    if not 0 <= seed < 2**63:
        raise table.error("seed", f"is {seed!r}")
    whole = dtype in INTEGERS
    low, high = table.number("low", whole=whole), table.number("high", whole=whole)
    if whole and high is None:
        raise table.error("high", f"is missing: an input of {dtype} needs it (a vocabulary's size)")
    if high is not None and not (low or 0) < high:
        raise table.error("high", f"is {high!r}, low is {low or 0!r}")
    if low is not None and high is None:
        raise table.error("high", "is missing beside low")
    return RandomInput(shape=shape, dtype=dtype, seed=seed, low=low, high=high)


def _labels(table: TomlTable) -> tuple[str, ...] | None:
    path = table.path("file")
    found: Any = table.data.get("list")
    if path and found is not None:
        raise table.error("list", "and file are both given; keep one")
    key = "file" if path else "list"
    if path:
        try:
            text = path.read_text(encoding="utf-8")
            found = json.loads(text) if path.suffix == ".json" else text.splitlines()
        except (OSError, ValueError, RecursionError) as error:
            raise table.error("file", f"cannot be read: {error}") from error
    if found is None:
        return None
    if not isinstance(found, list) or not found or not all(isinstance(x, str) for x in found):
        raise table.error(key, "is no list of texts")
    return tuple(found)
