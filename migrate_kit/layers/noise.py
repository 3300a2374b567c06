"""The yardstick: what rounding does to every layer of this network, measured against float64."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.files import write_text
from migrate_kit.layers.capture import CallNames, LiveRun, Source, capture
from migrate_kit.layers.metrics import difference, flat_values, sketch, unit_roundoff
from migrate_kit.layers.runners.torch_runner import TorchRunner
from migrate_kit.layers.store import Trace, dtype_of
from migrate_kit.results import Finding, Result, table_html

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from migrate_kit.layers.store import Record

# Median relative L2 error of a layer of resnet50 in float32 against float64 was 5.7e-6 = 96 u, the
# worst 5.9e-5; used only where no float64 run is possible.
ASSUMED_IN_U = 96.0
# Rounding was measured up to 1e3 u of a layer's output; from here on the float64 run did something
# else: it drew other random numbers, met another state, or took another branch.
NOT_ROUNDING_IN_U = 1e5
# A norm over few elements is itself uncertain: the error of one number may be tiny by chance.
_FEW = ((1, 10.0), (8, 4.0))


@dataclass(frozen=True, slots=True)
class LayerNoise:
    """What rounding does to one layer.

    ``error`` is ``||host - float64||``, ``norm`` is ``||float64||``, ``peak`` the largest
    difference of one element; NaN where it could not be measured. ``numel`` is the element count.
    """

    error: float
    norm: float
    peak: float = math.nan
    numel: int = 0

    @property
    def relative(self) -> float:
        """``error / norm``; 0 for an exact layer."""
        return self.error / self.norm if self.norm else (math.inf if self.error else 0.0)


class NoiseFloor(Result):
    """Rounding noise of every layer, by ``(channel, name)``.

    Attributes
    ----------
    dtype : str
        The format whose rounding was measured.
    measured : dict
        :class:`LayerNoise` by ``(channel, name)``.
    """

    kind = "noise floor"

    def __init__(self, dtype: str, measured: dict[tuple[str, str], LayerNoise]) -> None:
        self.dtype, self.measured = dtype, measured
        self.findings: list[Finding] = []
        self._u = unit_roundoff(dtype_of(dtype))
        largest: dict[str, float] = {}
        for (channel, _), noise in measured.items():
            largest[channel] = max(largest.get(channel, 0.0), noise.norm)
        self._largest = largest

    def yardstick(self, key: tuple[str, str], reference_norm: float, *, exact: bool) -> float:
        """Return the absolute L2 error that rounding explains at one layer.

        Never below ``u * max(||ref||, u * the largest of its channel)``: a tensor that is zero but
        for rounding (the gradient of a bias before BatchNorm) has no scale of its own. ``exact``
        tensors (integers, bool) have no rounding of their own.
        """
        noise = self.measured.get(key)
        if exact:
            return noise.error if noise is not None and noise.error > 0 else 0.0
        floor = self._u * max(reference_norm, self._u * self._largest.get(key[0], 0.0))
        if noise is None or not math.isfinite(noise.error):
            return max(floor, ASSUMED_IN_U * self._u * reference_norm)
        scale = max(
            noise.norm, noise.error
        )  # of the run that was measured: another batch's differs
        error = noise.error * reference_norm / scale if scale else 0.0
        few = next((factor for n, factor in _FEW if 0 < noise.numel <= n), 1.0)
        return max(floor, few * error)

    def peak(self, key: tuple[str, str], reference_norm: float) -> float:
        """Return the largest difference of one element that was measured, NaN if it was not."""
        noise = self.measured.get(key)
        if noise is None or not noise.norm or not math.isfinite(noise.error):
            return math.nan
        return noise.peak * reference_norm / noise.norm

    def doubt(self, records: list[Record]) -> None:
        """Take out what was not rounding, and say so.

        An error of exactly zero in a layer that computes with weights means that the float64 run
        was not float64 there (a hard-coded ``.float()``, or a reference in float64 already); a huge
        one that it was another computation.
        """
        forward = {"forward", "output", "loss"}
        floats = [
            r for r in records if r.channel in forward and r.key in self and "float" in r.dtype
        ]
        unrounded = [r for r in floats if self.measured[r.key].error == 0 and not _selects(r)]
        same = [r for r in unrounded if r.parameters and r.stats.norm > 0]
        if same:
            self._forget(unrounded)
            many = f"{len(same)} layers compute" if len(same) > 1 else "1 layer computes"
            what = f"{many} the same in float64: the rounding there is assumed"
            self.findings.append(Finding("info", what, same[0].name, "a .float() in the layer?"))
        limit = min(0.5, NOT_ROUNDING_IN_U * self._u)
        wild = [
            r
            for r in floats
            if self.measured[r.key].relative > limit
            and self.measured[r.key].norm > self._u * self._largest[r.channel]
        ]
        if wild:
            self._forget(wild)
            what = (
                f"the float64 run is another computation from {wild[0].name!r} on (random numbers,"
                f" a state, a branch): the rounding of {len(wild)} tensors is assumed"
            )
            fix = "make the forward repeatable: fix its random numbers, reset its state"
            self.findings.append(Finding("warning", what, wild[0].name, fix))

    def _forget(self, records: Iterable[Record]) -> None:
        for record in records:
            self.measured[record.key] = LayerNoise(math.nan, self.measured[record.key].norm)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self.measured

    def to_frame(self) -> pd.DataFrame:
        """Return one line a layer: its relative error in this format against float64."""
        import pandas as pd

        return pd.DataFrame(
            {"layer": n, "channel": c, "relative_error": v.relative, "norm": v.norm}
            for (c, n), v in self.measured.items()
        )

    def __repr__(self) -> str:
        values = sorted(v.relative for v in self.measured.values() if math.isfinite(v.relative))
        if not values:
            return "NoiseFloor(nothing measured)"
        return (
            f"NoiseFloor({self.dtype}, {len(values)} tensors:"
            f" median {values[len(values) // 2]:.1e}, worst {values[-1]:.1e})"
        )

    def _html(self) -> str:
        worst = sorted(self.measured.items(), key=lambda kv: -kv[1].relative)[:12]
        rows = [(n, c, f"{v.relative:.2e}") for (c, n), v in worst]
        return table_html(f"{self!r}; the largest", ("layer", "channel", "relative L2 error"), rows)

    def to_file(self, path: str | Path) -> Path:
        """Write the yardstick as JSON, to judge traces later where the model is not at hand."""
        entries = [[c, n, asdict(v)] for (c, n), v in self.measured.items()]
        text = json.dumps({"format": "migrate-kit-noise", "dtype": self.dtype, "layers": entries})
        return write_text(Path(path), text)

    @classmethod
    def from_file(cls, path: str | Path) -> NoiseFloor:
        """Read what :meth:`to_file` wrote.

        Raises
        ------
        MigrateError
            If it is not such a file.
        """
        try:
            d = json.loads(Path(path).read_text(encoding="utf-8"))
            if d["format"] != "migrate-kit-noise":
                raise ValueError(f"format {d['format']!r}")
            measured = {(str(c), str(n)): _noise_from(v) for c, n, v in d["layers"]}
            dtype_of(d["dtype"])
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise MigrateError(
                f"not a noise floor: {error}",
                str(path),
                "write one with noise_floor(...).to_file(path)",
            ) from error
        return cls(d["dtype"], measured)


def _selects(record: Record) -> bool:
    """Whether a layer only picks rows of its weights, which rounds nothing."""
    return record.kind == "Embedding"


def _noise_from(values: dict[str, Any]) -> LayerNoise:
    error, norm, peak = (float(values[k]) for k in ("error", "norm", "peak"))
    noise = LayerNoise(error, norm, peak, int(values["numel"]))
    if noise.error < 0 or noise.norm < 0 or math.isinf(noise.error):
        raise ValueError(f"an error of {noise.error} in a norm of {noise.norm}")
    return noise


class _Against:
    """A recorder that compares with a reference trace at hook time and keeps two numbers."""

    keeps_inputs = False

    def __init__(self, reference: Trace) -> None:
        self.reference = reference
        self.measured: dict[tuple[str, str], LayerNoise] = {}
        self._name = CallNames()

    def add(self, source: Source, tensor: torch.Tensor, inputs: list[Any] | None = None) -> None:
        del inputs
        record = self.reference.find(source.channel, self._name(source))
        if record is None or record.shape != tuple(tensor.shape):
            return
        exact, row = flat_values(tensor), self.reference.row(record)
        if row is not None:
            d = difference(exact, row)
            self.measured[record.key] = LayerNoise(
                d.norm, d.reference_norm, d.max_abs, record.stats.numel
            )
            return
        known = self.reference.sketch(record)
        if known is not None:
            mine = sketch(exact).double()
            self.measured[record.key] = LayerNoise(float((mine - known).norm()), float(mine.norm()))

    def keep(self, tensor: torch.Tensor, key: str) -> None:
        del tensor, key


def noise_floor(
    model: torch.nn.Module | Trace, *inputs: Any, dtype: torch.dtype | None = None, **options: Any
) -> NoiseFloor:
    """Measure what rounding does to every layer: a run in the model's format against float64.

    The float64 run takes 2 to 3.5 times a float32 forward on a CPU and twice the parameters'
    memory; the model is put back bit for bit.

    Parameters
    ----------
    model : torch.nn.Module or Trace
        The network, or a trace whose model is still in memory (its own tensors are then judged).
    *inputs
        What the network is called with (not for a trace).
    dtype : torch.dtype, optional
        Measure the rounding of this format instead, e.g. ``torch.bfloat16`` as the yardstick for a
        target that is meant to compute in bfloat16.
    **options
        As for :func:`migrate_kit.capture`: ``backward``, ``loss``, ``optimizer``, ``layers``,
        ``kwargs``, ``seed``.

    Returns
    -------
    NoiseFloor

    Raises
    ------
    MigrateError
        If the network cannot run in float64, or the trace's model is gone.
    """
    if isinstance(model, Trace):
        trace, live = model, model.live
    else:
        trace = capture(TorchRunner(model, dtype=dtype), *inputs, **options)
        live = trace.live
    if not isinstance(live, LiveRun) or not isinstance(live.runner, TorchRunner):
        raise MigrateError(
            "the rounding noise cannot be measured: this trace has no PyTorch model in memory",
            str(trace.path),
            "call mk.noise_floor(model, *inputs) where the model is, and pass it as noise=",
        )
    against = _Against(trace)
    exact = TorchRunner(live.runner.model, dtype=torch.float64)
    exact.run(against, live.inputs, replace(live.options))
    formats = [r.dtype for r in trace.records if r.channel == "forward" and "float" in r.dtype]
    used = max(set(formats), key=formats.count) if formats else "float32"
    floor = NoiseFloor(used, against.measured)
    floor.doubt(trace.records)
    return floor
