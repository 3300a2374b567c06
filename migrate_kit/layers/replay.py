"""Replay one layer of the reference, in float64, on the candidate's own input.

A layer whose residual is small only passes on an error that came in; a large one is made here.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import decode_arguments, tensor_leaves, walk
from migrate_kit.layers.capture import LiveRun
from migrate_kit.layers.metrics import (
    Difference,
    difference,
    effective_bits,
    flat_values,
    unit_roundoff,
)
from migrate_kit.layers.runners.borrowed import LINEAR_LAYERS, changed_weight, in_format
from migrate_kit.layers.runners.torch_runner import ROOT, TorchRunner
from migrate_kit.layers.store import dtype_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.layers.store import Record, Trace

# A layer of the reference that misses its own record by this many u was changed after the capture,
# or draws random numbers; real layers were measured below 30 u.
CHANGED_IN_U = 1e4
# What one layer's rounding is taken for where float64 gives the very same numbers, as where the run
# was float64 already. Convolutions in float32 were measured at 4 u.
LOCAL_IN_U = 16.0
# |cosine| of residual and output: 1 for a wrong scale; rounding of the operands to HF32, TF32,
# fp16, bf16 or int8 gave at most 0.26 on every layer of EfficientNet-Lite0.
FOLLOWS_OUTPUT = 0.6


@dataclass(frozen=True, slots=True)
class Replay:
    """What one layer alone does.

    ``local`` is the candidate's residual over the layer's own rounding noise; ``rho`` is
    ``max |d| / (2 u (|W| * |x|))`` and ``bits`` is ``log2(rms(S) / rms(d)) - 0.7`` with
    ``S = sqrt(W^2 * x^2)``, for convolutions and linear layers; ``n`` is their reduction length.
    ``systematic`` says that the residual follows the output, as a wrong scale's does and rounding's
    does not.
    """

    local: float
    rho: float = math.nan
    bits: float = math.nan
    n: int = 0
    changed: bool = False
    systematic: bool = False


class Replayer:
    """Replays layers of a reference whose model is in memory; ``None`` results where it cannot."""

    def __init__(self, reference: Trace, candidate: Trace, dtype: str) -> None:
        live = reference.live
        self.model: nn.Module | None = None
        if isinstance(live, LiveRun) and isinstance(live.runner, TorchRunner):
            self.model = live.runner.model
        self.reference, self.candidate = reference, candidate
        self.u = unit_roundoff(dtype_of(dtype))

    def __call__(
        self, chain: list[Record], candidate: Record, candidate_inputs: list[dict[str, Any]] | None
    ) -> Replay | None:
        """Replay the modules of ``chain`` one after the other.

        ``chain`` is one record, or those that the candidate computes in one step (a convolution
        with the BatchNorm folded into it).
        """
        record = chain[-1]
        if (
            self.model is None
            or record.channel != "forward"
            or record.tensor is None
            or candidate.tensor is None
            or chain[0].inputs is None
            or candidate_inputs is None
            or len(tensor_leaves(chain[0].inputs)) != len(candidate_inputs)
        ):
            return None
        try:
            modules = [self.model.get_submodule(r.module) for r in chain]
            ours = decode_arguments_pair(chain[0].inputs, lambda k: _widened(self.reference, k))
            substitutes = iter(candidate_inputs)
            theirs = decode_arguments_pair(
                chain[0].inputs, lambda _: _widened(self.candidate, next(substitutes))
            )
        except (ValueError, KeyError, AttributeError, TypeError, RuntimeError, MigrateError):
            return None  # arguments that were not kept, or an index that does not describe them
        try:
            return self._residuals(modules, record, candidate, ours, theirs)
        except Exception:  # noqa: BLE001 - any layer may refuse the candidate's shapes or float64
            return None

    def _residuals(
        self, modules: list[nn.Module], record: Record, candidate: Record, ours: Any, theirs: Any
    ) -> Replay:
        with _in_double(modules), torch.no_grad():
            exact = self._output(modules, ours, record)
            mine = difference(exact, self._row(self.reference, record))
            noise = max(mine.norm, (1 if mine.dd else LOCAL_IN_U) * self.u * mine.reference_norm)
            changed = mine.norm > CHANGED_IN_U * self.u * mine.reference_norm > 0
            try:
                expected = self._output(modules, theirs, record)
                actual = self._row(self.candidate, candidate)
                d = difference(expected, actual)
            except (RuntimeError, ValueError):
                # The candidate's layer takes an input that the reference's layer refuses, or gives
                # another shape: that is this layer's doing.
                return Replay(math.inf, changed=changed)
            if d.masks_differ:
                return Replay(math.inf, changed=changed)
            scale = d.reference_norm / mine.reference_norm if mine.reference_norm else 1.0
            local = d.norm / (noise * max(scale, 1e-30)) if noise else (math.inf if d.dd else 0.0)
            numbers = self._arithmetic(modules, theirs, expected, actual, d)
            systematic = abs(d.ad) > FOLLOWS_OUTPUT * math.sqrt(d.aa * d.dd)
            return Replay(local, *numbers, changed, systematic)

    def _arithmetic(
        self,
        modules: list[nn.Module],
        theirs: Any,
        expected: torch.Tensor,
        actual: torch.Tensor,
        d: Difference,
    ) -> tuple[float, float, int]:
        module = modules[0]
        # A parametrized weight is computed anew at every call, so it cannot be replaced.
        if (
            len(modules) > 1
            or not isinstance(module, LINEAR_LAYERS)
            or not isinstance(module.weight, nn.Parameter)
        ):
            return math.nan, math.nan, 0
        n = module.weight[0].numel()
        if d.dd == 0:
            return 0.0, math.nan, n
        args, kwargs = theirs
        with changed_weight(module, torch.abs):
            absolute = flat_values(module(*_each(args, torch.abs), **_each(kwargs, torch.abs)))
        with changed_weight(module, torch.square):
            squares = module(*_each(args, torch.square), **_each(kwargs, torch.square)).mean()
        bound = 2 * unit_roundoff(torch.float32) * absolute
        ratio = (actual.double() - expected).abs_().div_(bound)
        rho = float(ratio[bound > 0].max()) if bool((bound > 0).any()) else math.nan
        return rho, effective_bits(float(squares), d.mse), n

    def _output(self, modules: list[nn.Module], arguments: Any, record: Record) -> torch.Tensor:
        args, kwargs = arguments
        with _as_recorded(modules[0]):
            value = modules[0](*args, **kwargs)
        for module in modules[1:]:
            value = module(value)
        path = re.sub(r"#\d+$", "", record.name.removeprefix(record.module or ROOT))
        return flat_values(dict(walk(value))[path])

    @staticmethod
    def _row(trace: Trace, record: Record) -> torch.Tensor:
        row = trace.row(record)
        if row is None:
            raise ValueError("no tensor kept")
        return row


def decode_arguments_pair(inputs: list[Any], fetch: Any) -> tuple[Any, Any]:
    """Return ``(args, kwargs)`` of a record's encoded inputs."""
    args, kwargs = inputs
    return decode_arguments(args, fetch), decode_arguments(kwargs, fetch)


def _widened(trace: Trace, leaf: dict[str, Any]) -> torch.Tensor:
    """Return a float64 copy; an in-place layer would write into the file's map."""
    values = trace.view(leaf["tensor"], leaf["dtype"], leaf["shape"])
    if values.is_complex():
        return values.to(torch.complex128, copy=True)
    return values.to(torch.float64 if values.is_floating_point() else values.dtype, copy=True)


@contextlib.contextmanager
def _in_double(modules: list[nn.Module]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(in_format(module, torch.float64, torch.device("cpu")))
        yield


@contextlib.contextmanager
def _as_recorded(module: nn.Module) -> Iterator[None]:
    """Leave a user's forward pre-hooks out: the recorded arguments are those behind them.

    weight_norm and spectral_norm are such hooks too; they compute the weight and stay.
    """
    hooks = dict(module._forward_pre_hooks)  # noqa: SLF001
    own = [k for k, h in hooks.items() if type(h).__module__.startswith("torch.nn.utils")]
    try:
        for key in hooks.keys() - set(own):
            del module._forward_pre_hooks[key]  # noqa: SLF001
        yield
    finally:
        module._forward_pre_hooks.clear()  # noqa: SLF001
        module._forward_pre_hooks.update(hooks)  # noqa: SLF001


def _each(value: Any, function: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value) if value.is_floating_point() else value
    if isinstance(value, tuple | list):
        return type(value)(_each(v, function) for v in value)
    if isinstance(value, dict):
        return {k: _each(v, function) for k, v in value.items()}
    return value
