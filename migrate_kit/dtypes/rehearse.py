"""Run a model on the CPU as an NPU would: what it refuses, and how far its arithmetic is off."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from migrate_kit.dtypes.alone import alone
from migrate_kit.dtypes.asked import checked, refuse_other
from migrate_kit.dtypes.baseline import baseline, measured_noise, refuse_stale
from migrate_kit.dtypes.chips import Chip, find_chip
from migrate_kit.dtypes.host import OnHost
from migrate_kit.dtypes.look import Seen, is_meta, look, recorder_for, refuses
from migrate_kit.dtypes.numerics import ChipMode, RehearsedRunner
from migrate_kit.dtypes.op_rows import OpRow, rows_of
from migrate_kit.dtypes.rehearsal import Rehearsal, apart, largest_output
from migrate_kit.errors import MigrateError
from migrate_kit.layers.capture import RunOptions, capture
from migrate_kit.layers.compare import LayerDiff, compare
from migrate_kit.layers.noise import NoiseFloor
from migrate_kit.layers.runners.snapshot import not_put_back
from migrate_kit.layers.runners.torch_runner import TorchRunner
from migrate_kit.layers.store import Trace
from migrate_kit.results import Finding, counted, few, number
from migrate_kit.targets import answered_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from migrate_kit.targets import Target


def rehearse(
    model: torch.nn.Module,
    *inputs: Any,
    target: str = "ascend910b",
    backward: bool = False,
    loss: Callable[[Any], torch.Tensor] | None = None,
    raise_on_unsupported: bool = False,
    numbers: bool = True,
    tensors: bool = False,
    reference: Trace | None = None,
    noise: NoiseFloor | None = None,
    store: str | Path | None = None,
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Rehearsal:
    """Rehearse a model for an NPU that is not there.

    The model runs on the CPU, and every operator call is looked up with its dtypes in the public
    tables of the target. Then it runs again with the chip's default arithmetic (HF32 or float16
    operands of convolutions and matrix products), which gives the difference of every layer to be
    expected. The model is left as it was found.

    Parameters
    ----------
    model : torch.nn.Module
        On any device; on ``meta`` only the operators are looked up.
    *inputs
        What it is called with; ``kwargs`` for keyword arguments.
    target : str
        ``ascend910a``, ``ascend910b``, ``ascend310p``, ``ascend310b``, ``ascend950`` or a SoC or
        product name. ``ascend910_93`` has no tables of its own; the result says whose it used.
    backward : bool
        Also the backward of ``loss``, a callable from the output to a scalar; without one, of the
        mean of the output's squares.
    raise_on_unsupported : bool
        Stop at the first operator that the target refuses, where the NPU would.
    numbers : bool
        Whether to run with the chip's arithmetic too.
    tensors : bool
        Compare every element and replay each layer; otherwise 256 sums of each tensor, which gives
        R within 5 %.
    reference, noise : Trace and NoiseFloor, optional
        The plain run and its noise, if they were made before.
    store : path, optional
        Folder where the plain run and its noise are kept; the noise is not measured again while
        the plain run comes out the same.
    seed : int
        Random state of every run.

    Returns
    -------
    Rehearsal
        ``.to_frame()``, ``.coverage``, ``.diff``, ``.to_csv(path)``.

    Raises
    ------
    MigrateError
        If the target is unknown, or the model cannot run on the CPU (with the layer and the
        operator); with ``raise_on_unsupported`` at the first operator that is refused.

    Examples
    --------
    >>> import torch, migrate_kit as mk
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
    >>> rehearsal = mk.rehearse(model, torch.randn(1, 3, 8, 8), target="ascend910b")
    >>> [row.op for row in rehearsal.rows]
    ['aten.convolution.default', 'aten.relu.default']
    >>> rehearsal.rounded
    {'convolution': 1}
    """
    chip = find_chip(target)
    asked_for = answered_for(target, chip.target)
    keywords, folder = checked(inputs, kwargs, loss, seed, store)
    for name, value, kind in (("reference", reference, Trace), ("noise", noise, NoiseFloor)):
        refuse_other(name, value, kind)
    network = TorchRunner(model, "cpu").model
    options = RunOptions(backward=backward, loss=loss, kwargs=keywords, seed=seed)
    diff: LayerDiff | None = None
    mode = ChipMode(chip)
    with alone(), _eager():
        recorder = recorder_for(network, chip, stop=raise_on_unsupported, asked_for=asked_for)
        seen = look(network, inputs, options, recorder)
        rows, findings = rows_of(seen.records, chip.target), seen.findings
        if raise_on_unsupported:
            _refuse_swallowed(rows, chip, asked_for)
        if numbers:
            asked: dict[str, Any] = {
                "backward": backward,
                "loss": loss,
                "kwargs": keywords,
                "seed": seed,
                "tensors": tensors,
            }
            code = [f"{r.where} {r.code}" for r in rows]
            host = OnHost(seen.records, recorder.names)
            known = _Known(seen, reference, noise, folder, code, host)
            try:
                diff, mode, more = _numbers(network, inputs, chip, asked, known)
            except MigrateError as error:
                what = f"the numbers were not rehearsed: {error.what}"
                more = [Finding("warning", what, error.where, error.fix)]
            findings += more
    findings += not_put_back(seen.lost)
    return Rehearsal(chip, rows, findings, diff, mode, asked_for=asked_for)


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """Run what was given to torch.compile as it is written, so that its operators are seen."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    with set_stance("force_eager") if set_stance else contextlib.nullcontext():
        yield


def _refuse_swallowed(rows: list[OpRow], chip: Chip, asked_for: Target | None) -> None:
    """Raise for a refusal that the model itself caught: on the NPU it would see another error."""
    for row in rows:
        if row.status == "refused":
            raise MigrateError(
                f"{refuses(chip, asked_for)} has no kernel for {row.op} on {row.dtypes},"
                " and the model catches the error",
                ", ".join(t for t in (row.where, f"layer {row.module}") if t),
                row.fix,
            )


class _Known(NamedTuple):
    """What there is already when the numbers are rehearsed."""

    seen: Seen
    reference: Trace | None
    noise: NoiseFloor | None
    folder: Path | None
    code: list[str]
    host: OnHost


def _numbers(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    chip: Chip,
    options: dict[str, Any],
    known: _Known,
) -> tuple[LayerDiff, ChipMode, list[Finding]]:
    """Run with the chip's arithmetic, and compare with the plain run."""
    if is_meta(model):
        raise MigrateError(
            "a model on the meta device has no values",
            type(model).__name__,
            "build it on the CPU, or pass numbers=False",
        )
    seen = known.seen
    if seen.elsewhere:
        raise MigrateError("layers run in another thread, whose arithmetic cannot be the chip's")
    plain = TorchRunner(model, "cpu", writes=seen.writes)
    reference, noise = known.reference, known.noise
    findings: list[Finding] = []
    if reference is None:
        reference, floor, findings = baseline(plain, inputs, options, known.folder, known.code)
        noise = noise or floor
    else:
        refuse_stale(reference, seen.output, plain, inputs, options)
        if noise is None:
            noise, findings = measured_noise(reference, plain)
    runner = RehearsedRunner(model, chip, seen.writes, known.host)
    there = capture(runner, *inputs, **options)
    diff = compare(reference, there, noise=noise or False, replay=bool(options["tensors"]))
    seen.lost.extend([*plain.lost, *runner.lost])
    findings += _arithmetic_findings(chip, runner, diff)
    return diff, runner.mode, findings


def _arithmetic_findings(chip: Chip, runner: RehearsedRunner, diff: LayerDiff) -> list[Finding]:
    mode, found = runner.mode, []
    if mode.rounded and "HF32" in (chip.conv, chip.matmul):
        what = (
            f"HF32 is taken as float32 with {chip.hf32_bits} stored mantissa bits, ties to even:"
            " read in public pages, not measured on a device (uncertain)"
        )
        fix = "torch.npu.conv.allow_hf32 = False gives float32 convolutions there"
        found.append(Finding("info", what, chip.source, fix))
    if chip.note and any("conv" in op for op in mode.rounded):
        found.append(Finding("info", chip.note, chip.target))
    if mode.hidden:
        calls = counted(sum(mode.hidden.values()), "call")
        what = f"{calls} computed as on the CPU: if it multiplies, no operand of it was rounded"
        fix = "write them with torch's own products, or expect more difference than this"
        found.append(Finding("info", what, ", ".join(list(mode.hidden)[:5]), fix))
    if mode.hosted:
        calls = counted(sum(mode.hosted.values()), "product")
        what = f"{calls} not run on {chip.target}: computed in the host's arithmetic, not rounded"
        found.append(Finding("info", what, few(mode.hosted, 5)))
    if mode.lowered:
        what = f"{mode.lowered} results in float64 were kept in float32: torch_npu lowers them"
        found.append(Finding("warning", what, "", "compute in float64 on the CPU where it matters"))
    for op, count in (+mode.saturated).most_common(5):
        what = (
            f"{count} elements overflow in {op} and saturate on {chip.target}, with no Inf to see"
        )
        found.append(Finding("warning", what, "", "scale the values down, or use loss scaling"))
    return [*found, *_expectation(diff)]


def _expectation(diff: LayerDiff) -> list[Finding]:
    first, worst = diff.first_divergence, largest_output(diff)
    if first is None or worst is None:
        return []
    R = f", R = {number(worst.R)}" if math.isfinite(worst.rel_l2) and worst.rel_l2 else ""
    what = f"from this arithmetic alone the output {apart(worst)}{R}; the first layer to differ is"
    fix = "judge the device's run against this, not against float32's rounding"
    return [Finding("info", f"{what} {first.layer!r}", worst.layer, fix)]
