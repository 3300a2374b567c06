"""Capture: run a network once and record every layer's tensor as it appears."""

from __future__ import annotations

import fnmatch
import threading
import weakref
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.layers.metrics import Stats, flat_values, sketch, statistics
from migrate_kit.layers.store import Record, Trace, tensor_key
from migrate_kit.layers.writer import TraceWriter
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MISSPELT_SHOWN = 5
PROBES = 16
# A run uses what the whole process shares: the seed, the default dtype, the sketch's scratch.
RUNS = threading.RLock()


class Runner(Protocol):
    """Anything that can run a network and report its layers; see ``runners/``."""

    def run(self, recorder: Recorder, inputs: tuple[Any, ...], options: RunOptions) -> None:
        """Run once; call ``recorder.add`` for every tensor, in execution order."""

    def meta(self) -> dict[str, Any]:
        """Return what the trace says of this run: ``runner``, ``model``, ``libraries``."""


class Recorder(Protocol):
    """What a runner reports to: a trace being written, or a comparison on the fly."""

    keeps_inputs: bool

    def add(self, source: Source, tensor: torch.Tensor, inputs: list[Any] | None = None) -> None:
        """Take one tensor in at the moment it exists; it may change right after."""

    def keep(self, tensor: torch.Tensor, key: str) -> str | None:
        """Keep the values of an argument; return the key they can be read by."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a tensor comes from."""

    channel: str
    name: str
    module: str | None = None
    kind: str = ""
    scope: str = ""
    parameters: bool = False

    def at(self, path: str) -> Source:
        """Return the source of one tensor inside a tuple or dict."""
        return replace(self, name=self.name + path) if path else self


@dataclass(frozen=True)
class Selection:
    """Which layers to record: names, containers or globs, and a window ``start`` to ``end``."""

    layers: tuple[str, ...] | None = None
    start: str | None = None
    end: str | None = None

    def check(self, names: Iterable[str]) -> None:
        """Refuse a name that matches no layer of the network."""
        patterns = (*(self.layers or ()), *(n for n in (self.start, self.end) if n))
        known = list(names) if patterns else []
        for pattern in patterns:
            if not any(self._matches(n, pattern) for n in known):
                import difflib

                close = difflib.get_close_matches(pattern, known, MISSPELT_SHOWN, 0.4)
                raise MigrateError(
                    f"no layer is called {pattern!r}",
                    "layers=, start= or end=",
                    f"did you mean {', '.join(close)}?"
                    if close
                    else "list them with model.named_modules()",
                )

    def wants(self, name: str) -> bool:
        """Whether a layer is selected by ``layers``; the window is the runner's business."""
        return self.layers is None or any(self._matches(name, p) for p in self.layers)

    @staticmethod
    def _matches(name: str, pattern: str) -> bool:
        return (
            name == pattern or name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(name, pattern)
        )


@dataclass(frozen=True)
class RunOptions:
    """How to run; the same options make the float64 run of :func:`noise_floor`."""

    backward: bool = False
    loss: Callable[[Any], torch.Tensor] | None = None
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    selection: Selection = field(default_factory=Selection)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class LiveRun:
    """A run that can be repeated: what a trace remembers while its model is in memory."""

    runner: Runner
    inputs: tuple[Any, ...]
    options: RunOptions
    tensors: bool = True
    sketches: bool = True

    def repeat(self) -> Trace:
        """Run again with the same options, into a temporary trace."""
        return _record(self, None)


class CallNames:
    """Give every tensor of a run a name of its own: ``relu``, ``relu#1`` at its second call."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], int] = {}
        self._used: defaultdict[str, set[str]] = defaultdict(set)

    def __call__(self, source: Source) -> str:
        """Return the next name of ``source``."""
        key = (source.channel, source.name)
        number = self._next.get(key, 0)
        # A module may really be called "relu#1".
        while (name := f"{source.name}#{number}" if number else source.name) in self._used[key[0]]:
            number += 1
        self._next[key] = number + 1
        self._used[key[0]].add(name)
        return name


@dataclass(slots=True)
class _Known:
    tensor: weakref.ref[torch.Tensor]
    version: int
    layout: tuple[Any, ...]
    probe: torch.Tensor
    key: str
    stats: Stats | None = None


class TraceRecorder:
    """Reduce and store tensors as they come.

    A tensor that is still the very object recorded before, unchanged since (autograd's version
    counter), is stored once; that makes an argument that is an earlier layer's output free.
    """

    def __init__(self, writer: TraceWriter, *, tensors: bool = True, sketches: bool = True) -> None:
        # Where values are kept, a sketch follows from them when it is asked for.
        self.writer, self.keeps_inputs, self._sketches = writer, tensors, sketches
        self.records: list[Record] = []
        self._known: dict[int, _Known] = {}
        self._name = CallNames()

    def add(self, source: Source, tensor: torch.Tensor, inputs: list[Any] | None = None) -> None:
        """Record ``tensor``; a name that was used already gets ``#1``, ``#2``."""
        name = self._name(source)
        stats, row, kept = self._take(tensor, tensor_key(source.channel, name))
        record = Record(
            name,
            source.channel,
            source.name if source.module is None else source.module,
            source.kind,
            tuple(tensor.shape),
            str(tensor.dtype).removeprefix("torch."),
            stats,
            row,
            kept,
            inputs,
            source.scope,
            source.parameters,
        )
        self.records.append(record)

    def keep(self, tensor: torch.Tensor, key: str) -> str | None:
        """Store an argument's values unless they are stored already; no record is made."""
        if not self.keeps_inputs:
            return None
        known = self._recall(tensor)
        if known is None:
            key = self.writer.add_tensor(key, tensor, flat_values(tensor))
            self._remember(tensor, key)
            return key
        return known.key

    def _take(self, tensor: torch.Tensor, key: str) -> tuple[Stats, int | None, str | None]:
        """Return the statistics, the sketch's row and the key of the values."""
        if not self.keeps_inputs:
            # Without values to save, a second walk is cheaper than to tell whether it is one.
            flat = flat_values(tensor)
            row = self.writer.add_sketch(sketch(flat)) if self._sketches else None
            return statistics(flat), row, None
        known = self._recall(tensor)
        if known is None:
            flat = flat_values(tensor)
            known = self._remember(tensor, self.writer.add_tensor(key, tensor, flat))
            known.stats = statistics(flat)
        elif known.stats is None:  # so far it was only an argument
            known.stats = statistics(flat_values(tensor))
        return known.stats, None, known.key

    def _recall(self, tensor: torch.Tensor) -> _Known | None:
        known = self._known.get(tensor.data_ptr()) if _has_memory(tensor) else None
        if known is None or known.version != _version(tensor) or known.layout != _layout(tensor):
            return None
        held = known.tensor()
        # The address may be another tensor's by now, and x.data or NumPy may have written to it
        # where no version is counted.
        if held is None or held.data_ptr() != tensor.data_ptr():
            return None
        return known if torch.equal(known.probe, _probe(tensor)) else None

    def _remember(self, tensor: torch.Tensor, key: str) -> _Known:
        if not _has_memory(tensor):
            return _Known(weakref.ref(tensor), -1, (), torch.empty(0), key)
        probe = _probe(tensor).clone()
        known = _Known(weakref.ref(tensor), _version(tensor), _layout(tensor), probe, key)
        if known.version >= 0:
            self._known[tensor.data_ptr()] = known
        return known


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.numel() > 0 and not tensor.is_nested


def _probe(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of a few elements: they tell a silent change without another walk."""
    t = tensor.detach()
    flat = t.view(-1) if t.is_contiguous() else t[..., 0].reshape(-1)
    few = flat[:: max(1, flat.numel() // PROBES)]
    # torch.equal takes no float8, and calls NaN unequal to itself.
    return few.contiguous().view(torch.uint8)


def _version(tensor: torch.Tensor) -> int:
    # An inference tensor keeps no version: it may have changed, so nothing is taken as known.
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - there is no public one


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Equal layouts at one address are equal values: the same memory in the same order."""
    where = (tensor.numel(),) if tensor.is_contiguous() else (tuple(tensor.shape), tensor.stride())
    return tensor.dtype, tensor.is_conj(), tensor.is_neg(), *where


def capture(
    runner_or_model: Any,
    *inputs: Any,
    tensors: bool = True,
    sketches: bool = True,
    backward: bool = False,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    layers: Sequence[str] | str | None = None,
    start: str | None = None,
    end: str | None = None,
    store: str | Path | None = None,
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Trace:
    """Run a network once and record every layer.

    Every module that is a leaf or owns parameters is recorded, with its statistics, the 256-float
    sketch and (``tensors=True``) its values and arguments, streamed to disk at the moment they
    exist. The model is left as it was found: attributes, hooks, gradients, buffers, parameters and
    the random state are put back. Where the forward itself writes to a parameter's memory, a
    finding says so: copying all of them would take half the time of a forward.

    Parameters
    ----------
    runner_or_model
        A ``torch.nn.Module``, a runner, the path of an ``.onnx`` file or of a trace.
    *inputs : Tensor or nested
        What the network is called with; ``kwargs`` for keyword arguments.
    tensors, sketches : bool
        Keep values; keep sketches where no values are kept (they follow from values at any time).
        With neither, statistics alone are compared.
    backward : bool
        Record gradients too, in backward order: of every layer's output and of every parameter.
    loss : callable, optional
        Takes the network's output, returns a scalar. Its value, and the tensors that it closes
        over, are rows of their own. Without one, ``backward`` uses the mean of the output's
        squares.
    optimizer : callable, optional
        Takes the parameters, returns an optimizer; one step is taken and its updates and state are
        recorded. Implies ``backward``.
    layers, start, end : str
        Names, containers or globs to record; a window in execution order, both ends included.
    store : path, optional
        Folder to write. An older trace there is replaced when the new one is whole. Without it,
        the trace lives in a temporary folder as long as the object.
    seed : int
        Random state of the run, so that dropout draws the same masks in every run on one device.

    Returns
    -------
    Trace

    Raises
    ------
    MigrateError
        If the network raises (with the layer it happened in), a name matches no layer, the disk is
        full, or nothing was recorded.

    Examples
    --------
    >>> import torch, migrate_kit as mk
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> trace = mk.capture(model, torch.ones(1, 2))
    >>> [r.name for r in trace.records]
    ['input', '0', '1', 'output']
    """
    from migrate_kit.layers.runners import as_runner

    runner = as_runner(runner_or_model)
    loader = getattr(runner, "load", None)
    if loader is not None:
        loaded: Trace = loader()
        return loaded
    names = (layers,) if isinstance(layers, str) else layers
    options = RunOptions(
        backward=backward or optimizer is not None,
        loss=loss,
        optimizer=optimizer,
        selection=Selection(None if names is None else tuple(names), start, end),
        kwargs=dict(kwargs or {}),
        seed=seed,
    )
    live = LiveRun(runner, inputs, options, tensors, sketches)
    return _record(live, None if store is None else Path(store))


def _record(live: LiveRun, store: Path | None) -> Trace:
    with RUNS:
        return _record_alone(live, TraceWriter(store))


def _record_alone(live: LiveRun, writer: TraceWriter) -> Trace:
    from migrate_kit.layers.runners.snapshot import not_put_back

    recorder = TraceRecorder(writer, tensors=live.tensors, sketches=live.sketches)
    try:
        live.runner.run(recorder, live.inputs, live.options)
        channels = {r.channel for r in recorder.records}
        if not channels & {"forward", "output"}:
            raise MigrateError(
                "nothing was recorded: no selected layer ran",
                f"{live.runner.meta().get('model', 'the network')}",
                "check layers=, start= and end=; layers that were compiled away cannot be hooked",
            )
    except BaseException:
        writer.abort()
        raise
    trace = writer.finish(recorder.records, live.runner.meta())
    trace.live = live
    trace.findings += not_put_back(getattr(live.runner, "lost", ()))
    if "output" not in channels and live.options.selection.layers is None:
        trace.findings.append(
            Finding(
                "warning",
                "the network's output holds no tensor that could be recorded",
                str(live.runner.meta().get("model", "")),
                "return tensors, or tuples, dicts or dataclasses of them",
            )
        )
    return trace
