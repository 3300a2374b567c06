"""The plain run that a rehearsal is compared with, and its rounding noise, which is kept."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.files import write_text
from migrate_kit.layers.arguments import walk
from migrate_kit.layers.capture import capture
from migrate_kit.layers.compare import compare
from migrate_kit.layers.metrics import flat_values, statistics
from migrate_kit.layers.noise import NoiseFloor, noise_floor
from migrate_kit.layers.runners.snapshot import left_as_found
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from pathlib import Path

    from migrate_kit.layers.rows import LayerRow
    from migrate_kit.layers.runners.torch_runner import TorchRunner
    from migrate_kit.layers.store import Trace

NOISE, MARK = "noise.json", "rehearsal.json"
_APART = ("differs", "unpaired")


def baseline(
    runner: TorchRunner,
    inputs: tuple[Any, ...],
    options: dict[str, Any],
    folder: Path | None,
    code: list[str],
) -> tuple[Trace, NoiseFloor | None, list[Finding]]:
    """Return the plain run and what rounding does to it.

    Parameters
    ----------
    runner : TorchRunner
    inputs : tuple
    options : dict
        Of :func:`migrate_kit.capture`.
    folder : Path, optional
        Where the run and its noise are written. The run is made each time, which is the only way to
        know that the model is the same; the float64 run, which takes longer, is not made again if
        every tensor of the plain one comes out as before.
    code : list of str
        What is known of the model's code: the lines that call operators.

    Raises
    ------
    MigrateError
        If the model cannot run, two runs of it differ, or the folder cannot be written.
    """
    known = None if folder is None else _read(folder)
    trace = capture(runner, *inputs, **options, store=folder)
    mark = _mark(trace, options, code, runner.model)
    found: list[Finding] = []
    if known is not None and known[0] == mark:
        floor: NoiseFloor | None = known[1]
    else:
        rows = _again(trace, runner, inputs, options)
        differ = next((r.layer or r.candidate for r in rows if r.verdict in _APART), None)
        if differ is not None:
            raise MigrateError(
                f"two plain runs of the model differ, so what the arithmetic adds cannot be told:"
                f" first at {differ!r}",
                f"layer {differ}",
                "make the forward repeatable: seed its own generators, keep no state between calls",
            )
        floor, found = measured_noise(trace, runner)
    if folder is not None and floor is not None:
        floor.to_file(folder / NOISE)
        write_text(folder / MARK, json.dumps({"format": "migrate-kit-rehearsal", "of": mark}))
    return trace, floor, found


def refuse_stale(
    reference: Trace,
    output: Any,
    runner: TorchRunner,
    inputs: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    """Refuse a plain run that was made before and is not what the model gives now.

    Parameters
    ----------
    reference : Trace
    output : Any
        What the model has just given. Only where it is not the reference's to the last bit, the
        model runs again.
    runner : TorchRunner
    inputs : tuple
    options : dict
    """
    if _gave(reference, output):
        return
    rows = _again(reference, runner, inputs, options)
    # It may be of some layers alone.
    differ = next((r.layer for r in rows if r.layer and r.verdict in _APART), None)
    if differ is not None:
        raise MigrateError(
            f"the model does not give what reference= holds, from {differ!r} on: it was changed"
            " since, or is not repeatable",
            f"layer {differ}",
            "capture it again, with the same inputs, seed, backward and loss",
        )


def measured_noise(trace: Trace, runner: TorchRunner) -> tuple[NoiseFloor | None, list[Finding]]:
    """Return what rounding does to a run, or say why it is not known."""
    try:
        # The float64 run writes to copies of the parameters, unless it comes to them another way.
        with left_as_found(runner.model, runner.writes):
            return noise_floor(trace), []
    except MigrateError as error:
        what = f"no float64 run was possible, so R is assumed: {error.what}"
        return None, [Finding("info", what, error.where, error.fix)]


def _again(
    trace: Trace, runner: TorchRunner, inputs: tuple[Any, ...], options: dict[str, Any]
) -> list[LayerRow]:
    """Run plainly again and compare; rounding apart, nothing should differ."""
    again = capture(runner, *inputs, **(options | {"tensors": False}))
    return compare(trace, again, "name", noise=False, replay=False).rows


def _gave(trace: Trace, output: Any) -> bool:
    for path, tensor in walk(output):
        record = trace.find("output", f"output{path}")
        if record is None or repr(record.stats) != repr(statistics(flat_values(tensor))):
            return False
    return True


def _read(folder: Path) -> tuple[str, NoiseFloor] | None:
    """Return what is kept there, and of which run; anything else is made anew."""
    files = folder / MARK, folder / NOISE
    try:
        if not all(f.is_file() for f in files):  # a pipe would be waited for
            return None
        mark = json.loads(files[0].read_text(encoding="utf-8"))["of"]
        return str(mark), NoiseFloor.from_file(files[1])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, MigrateError):
        return None


def _mark(trace: Trace, options: dict[str, Any], code: list[str], model: torch.nn.Module) -> str:
    """Return a checksum of every tensor of a run, and of how it was run."""
    training = [n for n, m in model.named_modules() if m.training]
    how = {k: v for k, v in options.items() if k not in ("kwargs", "loss")}
    total = hashlib.sha256(repr([torch.__version__, how, training, code]).encode())
    for record in trace.records:
        total.update(repr((record.key, record.dtype, record.shape, record.stats)).encode())
        sketch = trace.sketch(record)
        if sketch is not None:
            total.update(sketch.numpy().tobytes())
    return total.hexdigest()
