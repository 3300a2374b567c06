"""Run a MindSpore network operator by operator, with hooks on its cells."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import encode_arguments
from migrate_kit.layers.capture import Source
from migrate_kit.layers.runners import mindspore_import
from migrate_kit.layers.runners.borrowed import one_thread, random_state, without_collector
from migrate_kit.layers.runners.failures import said_by
from migrate_kit.layers.runners.mindspore_state import (
    cell_left_as_found,
    drain,
    eager,
    flush,
    same_bits,
    seeded,
)
from migrate_kit.layers.runners.mindspore_values import (
    Mirror,
    is_floating,
    is_tensor,
    to_mindspore,
    to_torch,
    walk,
)
from migrate_kit.layers.runners.torch_runner import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from migrate_kit.layers.capture import Recorder, RunOptions

# Below it, MindSpore's errors show where in its own C++ they were raised.
_RULE = "\n---"
_SAID = 400


class MindSporeRunner:
    """Run ``cell`` and report its cells: every one that is a leaf or owns parameters.

    It runs operator by operator (PyNative), also where graph mode is on or ``@jit`` is used, since
    hooks see nothing inside a compiled cell; ``meta`` then names what was compiled. ``set_train``
    is taken as it is. Inputs may be tensors of torch or MindSpore, or arrays; their formats stay.
    The cell and MindSpore's own settings are put back, bit for bit.

    Parameters
    ----------
    cell : mindspore.nn.Cell

    Raises
    ------
    MigrateError
        If it is no cell, or MindSpore cannot be imported.

    Examples
    --------
    >>> import torch, migrate_kit as mk
    >>> from migrate_kit.layers.runners import mindspore_import
    >>> ms = mindspore_import.load()
    >>> cell = ms.nn.SequentialCell(ms.nn.Dense(2, 3), ms.nn.ReLU())
    >>> trace = mk.capture(mk.MindSporeRunner(cell), torch.ones(1, 2))
    >>> [(r.name, r.kind) for r in trace.records if r.channel == "forward"]
    [('0', 'Dense'), ('1', 'ReLU')]
    """

    def __init__(self, cell: Any) -> None:
        self._ms = mindspore_import.load()
        if not isinstance(cell, self._ms.nn.Cell):
            raise MigrateError(
                f"MindSporeRunner takes a mindspore.nn.Cell, not a {type(cell).__name__}",
                "cell",
                "build the network first, then load its parameters into it",
            )
        self.cell = cell
        self._notes: dict[str, list[str]] = {}

    def meta(self) -> dict[str, Any]:
        """Return what the trace says of this run.

        ``compiled`` are cells under ``@jit`` (or the mode), which ran uncompiled; ``unseen`` cells
        that take no hooks; ``random`` cells whose masks no seed fixes.
        """
        return {
            "runner": "mindspore",
            "model": type(self.cell).__name__,
            "device": str(self._ms.get_context("device_target")),
            "libraries": {"mindspore": self._ms.__version__},
            **self._notes,
        }

    def run(self, recorder: Recorder, inputs: tuple[Any, ...], options: RunOptions) -> None:
        """Run once and report; see :func:`migrate_kit.capture` for what is reported.

        Raises
        ------
        MigrateError
            If the network raises (with the cell it happened in), or an optimizer is asked for.
        """
        if options.optimizer is not None:
            raise MigrateError(
                "a MindSpore optimizer's step is not recorded",
                "optimizer=",
                "capture with backward=True, and compare gradients; or take the step yourself",
            )
        cells = list(self.cell.cells_and_names())
        options.selection.check(n for n, _ in cells if n)
        with contextlib.ExitStack() as stack:
            stack.enter_context(random_state(options.seed))
            stack.enter_context(without_collector())
            # torch's threads wait actively after each statistic, in the way of MindSpore's own: a
            # resnet50 on two cores took three times as long.
            stack.enter_context(one_thread())
            stack.enter_context(cell_left_as_found(self._ms, self.cell))
            stack.enter_context(seeded(self._ms, options.seed))
            compiled = stack.enter_context(eager(self._ms))
            self._notes = _notes(cells, compiled=compiled)
            drain(self._ms)  # what failed before was another network's
            args, kwargs = to_mindspore((inputs, dict(options.kwargs)))
            _Run(self._ms, self.cell, recorder, options).step(args, kwargs)


def _notes(cells: list[tuple[str, Any]], *, compiled: bool) -> dict[str, list[str]]:
    """Say which cells ran or were seen otherwise than their user would expect."""
    named = [(name or ROOT, cell) for name, cell in cells]
    notes = {
        "compiled": [n for n, c in named if hasattr(c.construct, "__wrapped_by_jit__")],
        "unseen": [n for n, c in named if c.has_bprop],
        "random": [n for n, c in named if c.training and type(c).__name__.startswith("Dropout")],
    }
    if compiled:
        notes["compiled"].insert(0, "(graph mode)")
    return {key: names for key, names in notes.items() if names}


class _Run:
    """One run of one cell: hooks in, forward, backward, hooks out."""

    def __init__(self, ms: Any, cell: Any, recorder: Recorder, options: RunOptions) -> None:
        self.ms, self.cell, self.recorder, self.options = ms, cell, recorder, options
        self.active = options.selection.start is None
        self.calls: dict[str, int] = {}
        self.mirror = Mirror()
        # The cells that are running, with their arguments; the innermost last.
        self.running: list[tuple[str, Any, Any]] = []
        self.raised: BaseException | None = None

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for path, tensor in walk([list(args), kwargs] if kwargs else list(args)):
            name = "input" if path == "[0]" else f"input{path}"
            self.recorder.add(Source("input", name), self.mirror(tensor))
        state = {p.name: p for p in self.cell.get_parameters() if not p.requires_grad}
        before = {n: to_torch(p).clone() for n, p in state.items()}
        with contextlib.ExitStack() as stack, self._named_errors():
            for name, cell in self.cell.cells_and_names():
                self._hook(stack, name, cell)

            def network() -> Any:
                output = self.cell(*args, **kwargs)
                flush(self.ms)
                self._report("output", "output", output)
                for name, was in before.items():
                    now = to_torch(state[name])
                    if not same_bits(now, was):
                        self.recorder.add(Source("buffer", name, kind="buffer"), now)
                if self.options.backward or self.options.loss is not None:
                    return self._loss(output)
                return None

            if self.options.backward:
                self._backward(stack, network)
            else:
                network()

    def _hook(self, stack: contextlib.ExitStack, name: str, cell: Any) -> None:
        selection = self.options.selection
        owns, leaf = bool(cell._params), not cell._cells  # noqa: SLF001 - the public walks go deep
        layer = None
        if (owns or leaf) and selection.wants(name):
            source = Source("forward", name or ROOT, name, type(cell).__name__, parameters=owns)
            layer = _Layer(self, source)

        def before(_: Any, args: Any, kwargs: Any) -> None:
            flush(self.ms)  # so far it was the cell around
            if name and name == selection.start:
                self.active = True
            self.running.append((name, cell, (args, kwargs)))
            if layer is not None:
                layer.enter(args, kwargs)

        def after(_: Any, __: Any, output: Any) -> None:
            flush(self.ms)
            if layer is not None:
                layer.leave(output)
            while self.running and self.running.pop()[0] != name:
                pass  # cells that raised, where the one around caught it
            if name and name == selection.end:
                self.active = False

        stack.callback(cell.register_forward_pre_hook(before, with_kwargs=True).remove)
        stack.callback(cell.register_forward_hook(after).remove)

    def watch_gradient(self, tensor: Any, source: Source) -> None:
        """Report the gradient of a tensor when it arrives."""

        def arrived(gradient: Any) -> None:
            try:
                self.recorder.add(source, to_torch(gradient))
            except BaseException as error:  # noqa: BLE001 - MindSpore's C++ would reword it
                self.raised = self.raised or error

        # Of what depends on no parameter there is none, and MindSpore refuses the hook.
        with contextlib.suppress(RuntimeError):
            tensor.register_hook(arrived)

    def _report(self, channel: str, name: str, value: Any) -> None:
        for path, tensor in walk(value):
            self.recorder.add(Source(channel, name + path), self.mirror(tensor))

    def _loss(self, output: Any) -> Any:
        loss = self.options.loss
        if loss is None:
            floating = [t for _, t in walk(output) if is_floating(t)]
            value: Any = sum((t * t).mean() for t in floating)
        else:
            for name, tensor in _closed_over(loss):
                self.recorder.add(Source("loss", f"loss.input[{name}]"), self.mirror(tensor))
            value = loss(output)
        if not is_tensor(value) or value.size != 1:
            raise MigrateError(
                f"the loss is {_described(value)}, not one number",
                "loss=",
                "return a MindSpore scalar, e.g. mindspore.ops.cross_entropy(output, target)",
            )
        flush(self.ms)
        source = Source("loss", "loss", kind=getattr(loss, "__name__", ""))
        self.recorder.add(source, self.mirror(value))
        return value

    def _backward(self, stack: contextlib.ExitStack, network: Callable[[], Any]) -> None:
        weights = [p for p in self.cell.get_parameters() if p.requires_grad]
        arrived: set[str] = set()
        for p in weights:
            stack.callback(p.register_hook(self._arrival(p.name, arrived)).remove)
        if weights:
            self.ms.value_and_grad(network, None, weights)()
            flush(self.ms)
        else:
            network()
        if self.raised is not None:
            raise self.raised
        if not arrived:
            raise MigrateError(
                "the loss depends on no parameter that requires a gradient",
                "loss=",
                "check requires_grad and that the loss uses the network's output",
            )

    def _arrival(self, name: str, arrived: set[str]) -> Callable[[Any], None]:
        source = Source("parameter gradient", name, kind="Parameter")

        def take(gradient: Any) -> None:
            arrived.add(name)
            try:
                self.recorder.add(source, to_torch(gradient))
            except BaseException as error:  # noqa: BLE001 - MindSpore's C++ would reword it
                self.raised = self.raised or error

        return take

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except MigrateError:
            raise
        except (Exception, SystemExit) as error:
            name, cell, arguments = self.running[-1] if self.running else ("", self.cell, ())
            drain(self.ms)
            seen = [_described(t) for _, t in walk(arguments)][:4]
            said = said_by(error).split(_RULE, 1)[0].strip()
            raise MigrateError(
                f"the network raised {type(error).__name__}: {said[:_SAID]}",
                f"layer {name or 'model'} ({_one_line(cell)})",
                f"compare its inputs ({', '.join(seen)}) with what the layer takes"
                if seen
                else "the traceback above shows the line",
            ) from error


class _Layer:
    """What one cell was called with and what it returned, call by call."""

    def __init__(self, run: _Run, source: Source) -> None:
        self.run, self.source = run, source
        self.pending: list[list[Any] | None] = []

    def enter(self, args: Any, kwargs: Any) -> None:
        run, name = self.run, self.source.name
        if not run.active or not run.recorder.keeps_inputs:
            self.pending.append(None)
            return
        call = run.calls[name] = run.calls.get(name, -1) + 1
        key = f"argument/{name}#{call}"
        self.pending.append(
            [
                encode_arguments(run.mirror.nested(given), run.recorder.keep, key)
                for given in (tuple(args), dict(kwargs))
            ]
        )

    def leave(self, output: Any) -> None:
        run = self.run
        arguments = self.pending.pop() if self.pending else None
        if not run.active:
            return
        for path, tensor in walk(output):
            run.recorder.add(self.source.at(path), run.mirror(tensor), arguments)
            if run.options.backward and is_floating(tensor):
                name = self.source.name + path
                run.watch_gradient(tensor, Source("gradient", name, name, self.source.kind))


def _closed_over(function: Callable[..., Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors a loss brings along: partial arguments, closure and named globals."""
    while isinstance(function, functools.partial):
        yield from walk(list(function.args), "args")
        yield from walk(function.keywords, "keywords")
        function = function.func
    with contextlib.suppress(TypeError, ValueError):
        seen = inspect.getclosurevars(function)
        for scope in (seen.nonlocals, seen.globals):
            for name, value in scope.items():
                if is_tensor(value):
                    yield name, value


def _described(value: Any) -> str:
    if is_tensor(value):
        return f"{str(value.dtype).lower()} {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def _one_line(cell: Any) -> str:
    try:
        text = repr(cell)
    except Exception:  # noqa: BLE001 - it is the user's code
        text = "\n"
    return type(cell).__name__ if "\n" in text else text
