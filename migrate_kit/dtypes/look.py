"""Run a model forward and backward under the recorder, and say what failed if it does."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from migrate_kit.dtypes.coverage import OpRecord, OpRecorder, below_autograd
from migrate_kit.dtypes.elsewhere import Elsewhere
from migrate_kit.dtypes.fixes import fix_for
from migrate_kit.dtypes.lines import LOSS, place, text_of
from migrate_kit.dtypes.support import lookup
from migrate_kit.errors import MigrateError
from migrate_kit.layers.runners.borrowed import moved, random_state, without_collector
from migrate_kit.layers.runners.failures import innermost_layer, said_by
from migrate_kit.layers.runners.snapshot import left_as_found
from migrate_kit.layers.runners.torch_runner import ROOT, mean_of_squares
from migrate_kit.results import Finding, plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from migrate_kit.dtypes.chips import Chip
    from migrate_kit.layers.capture import RunOptions
    from migrate_kit.targets import Target


def refuses(chip: Chip, asked_for: Target | None) -> str:
    """Name a chip where it refuses, and the one that was asked for if that is another."""
    if asked_for is None:
        return chip.target
    return f"{chip.target}, whose tables answer for {asked_for.name},"


def recorder_for(
    model: torch.nn.Module, chip: Chip, *, stop: bool, asked_for: Target | None = None
) -> OpRecorder:
    """Return a recorder that asks the tables of ``chip``; ``stop`` raises where they refuse."""

    def refuse(record: OpRecord) -> None:
        if record.verdict.status != "refused":
            return
        code, line, module = record.where
        layer = f"layer {module}" if module else ""
        ok = tuple(record.verdict.dtypes_ok)
        raise MigrateError(
            f"{refuses(chip, asked_for)} has no kernel for {record.op} on"
            f" {' '.join(record.dtypes)}",
            ", ".join(t for t in (place(code, line), text_of(code, line), layer) if t),
            fix_for("refused", record.op, record.dtypes, chip.target, ok),
        )

    return OpRecorder(
        lambda op, dtypes: lookup(op, dtypes, chip.target),
        {id(m): n or ROOT for n, m in model.named_modules()},
        fuses_attention=chip.fuses_attention,
        noticed=refuse if stop else None,
    )


class Seen(NamedTuple):
    """What one look at a model found.

    Attributes
    ----------
    records : list of OpRecord
        Every operator that ran.
    findings : list of Finding
    output : Any
        Of the forward.
    writes : tuple of str
        The parameters that it writes to.
    lost : list of str
        What was changed in the model and could not be put back.
    elsewhere : bool
        Whether layers ran in another thread, where no operator is seen or changed.
    """

    records: list[OpRecord]
    findings: list[Finding]
    output: Any
    writes: tuple[str, ...]
    lost: list[str]
    elsewhere: bool


def look(
    model: torch.nn.Module, inputs: tuple[Any, ...], options: RunOptions, recorder: OpRecorder
) -> Seen:
    """Run forward, and backward if asked, under the recorder."""
    findings: list[Finding] = []
    threads = Elsewhere(recorder.names)
    with without_collector(), left_as_found(model) as found, threads:
        recorder.writing = found.keep
        run = _Run(model, inputs, options, recorder)
        failed = run.forward_below_autograd()
        if failed is not None:
            recorder.records.clear()
            run.guarded(lambda: run.forward(torch.enable_grad()))
            differentiates = isinstance(failed, RuntimeError) and "require grad" in said_by(failed)
            why = "differentiates" if differentiates else f"needs autograd ({_line_of(failed)})"
            what = f"the forward {why}: composite operators are shown as the CPU parts them"
            findings.append(Finding("info", what, type(model).__name__))
        if options.backward:
            # A model is trained outside of it, wherever it is looked at.
            with torch.inference_mode(mode=False):
                run.guarded(run.backward)
    findings += threads.findings()
    records, writes = list(recorder.records.values()), tuple(found.kept)
    lost = [*found.lost, *found.touched]
    return Seen(records, findings, run.output, writes, lost, bool(threads.layers))


class _Run:
    """The runs of one rehearsal: copies of the inputs, the same random numbers each time."""

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: tuple[Any, ...],
        options: RunOptions,
        recorder: OpRecorder,
    ) -> None:
        self.model, self.inputs, self.options, self.recorder = model, inputs, options, recorder
        self.output: Any = None
        self.device = torch.device("meta" if is_meta(model) else "cpu")

    def _call(self) -> Any:
        self.recorder.module = self.recorder.failed = ""
        torch.clear_autocast_cache()  # casts of another run: without a gradient, or not seen
        return moved((self.inputs, dict(self.options.kwargs)), self.device, None)

    def forward_below_autograd(self) -> BaseException | None:
        """Run the forward; return why it cannot: it differentiates (forces from energies)."""
        try:
            self.forward(below_autograd())
        except MigrateError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is run again, and then raised
            return error
        return None

    def forward(self, grad: AbstractContextManager[None]) -> None:
        args, kwargs = self._call()
        with random_state(self.options.seed), grad, self.recorder:
            self.output = self.model(*args, **kwargs)
            if self.options.loss is not None:
                self.recorder.module = LOSS
                self.options.loss(self.output)

    def backward(self) -> None:
        args, kwargs = self._call()
        loss = self.options.loss
        value: Any = None
        parts = contextlib.nullcontext() if self.recorder.fuses else sdpa_kernel([SDPBackend.MATH])
        with parts, random_state(self.options.seed), torch.enable_grad():
            with self.recorder.noting_forward():
                output = self.model(*args, **kwargs)
                self.recorder.module = LOSS
                if loss is not None:
                    value = loss(output)
            if loss is None:
                self.recorder.forward_ends()
                value = mean_of_squares(output)
            if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
                raise MigrateError(
                    "the loss is not one number that depends on a parameter",
                    "loss=",
                    "return a scalar tensor, and check requires_grad",
                )
            with self.recorder.backward():
                value.backward()

    def guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except MigrateError:
            raise
        except (Exception, SystemExit) as error:
            raise self.explained(error) from error

    def explained(self, error: BaseException) -> MigrateError:
        """Name the layer and the operator that failed, and whose fault it is."""
        op, names = self.recorder.failed, self.recorder.names
        module, _ = innermost_layer(names, error)
        layer = f"layer {names[id(module)]}" if module is not None else type(self.model).__name__
        where = f"{layer}, operator {op}" if op else layer
        said = _line_of(error)
        if self.device.type == "meta":
            what = f"the model does not run without values, on the meta device: {said}"
            return MigrateError(what, where, "build it on the CPU: it asks for values")
        if self._runs_plainly():
            what = f"the model runs, but not while its operators are recorded: {said}"
            return MigrateError(what, where, "rehearse the layers around this one by themselves")
        fix = "make model(*inputs) run on the CPU first; the traceback above shows the line"
        return MigrateError(f"the model cannot run on the CPU: {said}", where, fix)

    def _runs_plainly(self) -> bool:
        """Whether it runs without anybody looking; as far as it was asked to."""
        options = self.options
        try:
            args, kwargs = self._call()
            grad = torch.enable_grad() if options.backward else torch.no_grad()
            with random_state(options.seed), grad:
                output = self.model(*args, **kwargs)
                if options.loss is not None:
                    output = options.loss(output)
                value = mean_of_squares(output) if options.backward else None
                if isinstance(value, torch.Tensor):
                    value.backward()
        except (Exception, SystemExit):  # noqa: BLE001 - any one is the answer
            return False
        return True


def _line_of(error: BaseException) -> str:
    lines = said_by(error).splitlines()
    return plain(f"{type(error).__name__}: {lines[0][:300] if lines else ''}")


def is_meta(model: torch.nn.Module) -> bool:
    """Whether a model has shapes and no values."""
    return any(t.is_meta for t in (*model.parameters(), *model.buffers()))
