"""Run a model forward and backward under the recorder, and say what failed if it does."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from migrate_kit.dtypes.coverage import OpRecord, OpRecorder, below_autograd
from migrate_kit.dtypes.fixes import fix_for
from migrate_kit.dtypes.lines import place, text_of
from migrate_kit.dtypes.support import lookup
from migrate_kit.errors import MigrateError
from migrate_kit.layers.runners.borrowed import (
    left_as_found,
    moved,
    random_state,
    without_collector,
)
from migrate_kit.layers.runners.torch_runner import ROOT, innermost_layer, mean_of_squares
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from migrate_kit.dtypes.chips import Chip
    from migrate_kit.layers.capture import RunOptions


def recorder_for(model: torch.nn.Module, chip: Chip, *, stop: bool) -> OpRecorder:
    """Return a recorder that asks the tables of ``chip``; ``stop`` raises where they refuse."""

    def refuse(record: OpRecord) -> None:
        if record.verdict.status != "refused":
            return
        code, line, module = record.where
        layer = f"layer {module}" if module else ""
        ok = tuple(record.verdict.dtypes_ok)
        raise MigrateError(
            f"{chip.target} has no kernel for {record.op} on {' '.join(record.dtypes)}",
            ", ".join(t for t in (place(code, line), text_of(code, line), layer) if t),
            fix_for("refused", record.op, record.dtypes, chip.target, ok),
        )

    return OpRecorder(
        lambda op, dtypes: lookup(op, dtypes, chip.target),
        {id(m): n or ROOT for n, m in model.named_modules()},
        fuses_attention=chip.fuses_attention,
        noticed=refuse if stop else None,
    )


def look(
    model: torch.nn.Module, inputs: tuple[Any, ...], options: RunOptions, recorder: OpRecorder
) -> tuple[list[OpRecord], list[Finding], Any]:
    """Run forward, and backward if asked; return every operator that ran, and the output."""
    findings: list[Finding] = []
    with without_collector(), left_as_found(model, options):
        run = _Run(model, inputs, options, recorder)
        if not run.forward_below_autograd():
            recorder.records.clear()
            what = "the forward differentiates: composite operators are shown as the CPU parts them"
            findings.append(Finding("info", what, type(model).__name__))
            run.guarded(lambda: run.forward(torch.enable_grad()))
        if options.backward:
            run.guarded(run.backward)
    return list(recorder.records.values()), findings, run.output


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
        self.names = {id(m): n or ROOT for n, m in model.named_modules()}

    def _call(self) -> Any:
        args, kwargs = moved((self.inputs, dict(self.options.kwargs)), torch.device("cpu"), None)
        if is_meta(self.model):
            args, kwargs = tree_map(_to_meta, (args, kwargs))
        self.recorder.module = ""
        return args, kwargs

    def forward_below_autograd(self) -> bool:
        """Run the forward; return False if it needs autograd itself (forces from energies)."""
        try:
            self.forward(below_autograd())
        except MigrateError:
            raise
        except Exception as error:
            if isinstance(error, RuntimeError) and "require grad" in str(error):
                return False
            raise self.explained(error) from error
        return True

    def forward(self, grad: AbstractContextManager[None]) -> None:
        args, kwargs = self._call()
        with random_state(self.options.seed), grad, self.recorder:
            self.output = self.model(*args, **kwargs)
            if self.options.loss is not None:
                self.recorder.module = "(loss)"
                self.options.loss(self.output)

    def backward(self) -> None:
        args, kwargs = self._call()
        loss = self.options.loss
        value: Any = None
        parts = contextlib.nullcontext() if self.recorder.fuses else sdpa_kernel([SDPBackend.MATH])
        with parts, random_state(self.options.seed), torch.enable_grad():
            with self.recorder.noting_forward():
                output = self.model(*args, **kwargs)
                self.recorder.module = "(loss)"
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
        except Exception as error:
            raise self.explained(error) from error

    def explained(self, error: BaseException) -> MigrateError:
        """Name the layer and the operator that failed."""
        op, (module, _) = self.recorder.failed, innermost_layer(self.names, error)
        layer = (
            f"layer {self.names[id(module)]}" if module is not None else type(self.model).__name__
        )
        said = str(error).strip().splitlines()
        return MigrateError(
            f"the model cannot run on the CPU: {type(error).__name__}: {said[0] if said else ''}",
            f"{layer}, operator {op}" if op else layer,
            "make model(*inputs) run on the CPU first; the traceback above shows the line",
        )


def is_meta(model: torch.nn.Module) -> bool:
    """Whether a model has shapes and no values."""
    return any(t.is_meta for t in (*model.parameters(), *model.buffers()))


def _to_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value
