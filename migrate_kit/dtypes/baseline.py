"""The plain run that a rehearsal is compared with, and its rounding noise: made once, kept."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.files import write_text
from migrate_kit.layers.arguments import walk
from migrate_kit.layers.capture import capture
from migrate_kit.layers.metrics import flat_values
from migrate_kit.layers.noise import NoiseFloor, noise_floor
from migrate_kit.layers.store import Trace
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NOISE, MARK = "noise.json", "rehearsal.json"


class Kept(NamedTuple):
    """Where a plain run is kept, and what the model gives today."""

    folder: Path
    output: Any


def baseline(
    model: torch.nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], kept: Kept | None
) -> tuple[Trace, NoiseFloor | None, list[Finding]]:
    """Return the plain run and what rounding does to it.

    Parameters
    ----------
    model : torch.nn.Module
    inputs : tuple
    options : dict
        Of :func:`migrate_kit.capture`.
    kept : Kept, optional
        A folder to read them from if they are those of this model, these inputs and options, and
        to write them to otherwise. That the code of the model is the same is known by its output.
        A loss is code and has no output to tell it from another: with one, nothing is read or
        kept.

    Raises
    ------
    MigrateError
        If the model cannot run, or the folder cannot be written.
    """
    folder, mark = None, ""
    if kept is not None and options.get("loss") is None:
        folder, mark = kept.folder, _mark(model, inputs, options, kept.output)
        found = _read(folder, mark)
        if found is not None:
            return *found, []
    trace = capture(model, *inputs, **options, store=folder)
    floor, findings = measured_noise(trace)
    if folder is not None and floor is not None:
        floor.to_file(folder / NOISE)
        write_text(folder / MARK, json.dumps({"format": "migrate-kit-rehearsal", "of": mark}))
    return trace, floor, findings


def measured_noise(trace: Trace) -> tuple[NoiseFloor | None, list[Finding]]:
    """Return what rounding does to a run, or say why it is not known."""
    try:
        return noise_floor(trace), []
    except MigrateError as error:
        what = f"no float64 run was possible, so R is assumed: {error.what}"
        return None, [Finding("info", what, error.where, error.fix)]


def _read(folder: Path, mark: str) -> tuple[Trace, NoiseFloor] | None:
    """Return what is kept there if it belongs to ``mark``; anything else is made anew."""
    try:
        if json.loads((folder / MARK).read_text(encoding="utf-8"))["of"] != mark:
            return None
        return Trace.load(folder), NoiseFloor.from_file(folder / NOISE)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, MigrateError):
        return None


def _mark(
    model: torch.nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], output: Any
) -> str:
    """Return a checksum of all that the run depends on; of the model's code, what it gives."""
    named: list[tuple[str, torch.Tensor]] = [
        *model.named_parameters(),
        *model.named_buffers(),
        *walk([list(inputs), dict(options.get("kwargs") or {})]),
        *walk(output, "output"),
    ]
    training = [n for n, m in model.named_modules() if m.training]
    plain = {k: v for k, v in options.items() if k != "kwargs"}
    text = repr([type(model).__qualname__, str(model), torch.__version__, plain, training])
    return f"{zlib.crc32(text.encode()):08x}-{_checksum(named):08x}"


def _checksum(named: Iterable[tuple[str, torch.Tensor]]) -> int:
    total = 0
    for name, tensor in named:
        total = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), total)
        total = zlib.crc32(flat_values(tensor).view(torch.uint8).numpy().data, total)
    return total
