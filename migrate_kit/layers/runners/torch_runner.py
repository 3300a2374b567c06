"""Run a PyTorch network, on any device, with hooks on its layers."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import encode_arguments, walk
from migrate_kit.layers.capture import Source
from migrate_kit.layers.runners.borrowed import (
    in_format,
    moved,
    one_thread,
    random_state,
    without_collector,
)
from migrate_kit.layers.runners.failures import described, said_by, where_it_failed
from migrate_kit.layers.runners.snapshot import left_as_found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from migrate_kit.layers.capture import Recorder, RunOptions


# The name of a network that is itself a layer; no child can have it.
ROOT = "(network)"


class TorchRunner:
    """Run ``model`` and report its layers.

    Parameters
    ----------
    model : torch.nn.Module
        Used as it is: train or eval mode, dtype, user hooks.
    device : str or torch.device, optional
        Where to run. If the model is elsewhere, a copy runs there. None stays where the model is.
    dtype : torch.dtype, optional
        Run with parameters, buffers and inputs of this floating type; the model is put back
        bit for bit afterwards.
    writes : iterable of str
        Parameters that the forward writes to, to be copied before each run and put back: a copy of
        all of them would take half the time of a forward.

    Attributes
    ----------
    lost : tuple of str
        What the last run changed in the model and could not put back.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        device: str | torch.device | None = None,
        *,
        dtype: torch.dtype | None = None,
        writes: Iterable[str] = (),
    ) -> None:
        self.model = _unwrapped(model)
        self.dtype, self.writes = dtype, frozenset(writes)
        self.lost: tuple[str, ...] = ()
        here = _device_of(self.model)
        self.device = torch.device(device) if device is not None else here
        # "cuda" without an index means wherever the model is among the cuda devices.
        elsewhere = self.device.type != here.type or self.device.index not in (None, here.index)
        if elsewhere and here.type != "meta":
            self.model = copy.deepcopy(self.model).to(self.device)

    def meta(self) -> dict[str, Any]:
        """Return what the trace says of this run."""
        return {
            "runner": "torch",
            "model": type(self.model).__name__,
            "device": str(self.device),
            "libraries": {"torch": torch.__version__},
        }

    def run(self, recorder: Recorder, inputs: tuple[Any, ...], options: RunOptions) -> None:
        """Run once and report; see :func:`migrate_kit.capture` for what is reported."""
        options.selection.check(n for n, _ in self.model.named_modules() if n)
        named = dict(self.model.named_parameters())
        writes = named if options.optimizer is not None else self.writes
        snapshot = None
        try:
            with (
                # A model is trained outside of it, wherever it is looked at.
                torch.inference_mode(mode=False) if options.backward else contextlib.nullcontext(),
                random_state(options.seed),
                without_collector(),
                left_as_found(self.model, writes) as snapshot,
                one_thread(self.model) if self.dtype == torch.float64 else contextlib.nullcontext(),
                in_format(self.model, self.dtype),
                torch.set_grad_enabled(options.backward),
            ):
                args, kwargs = moved((inputs, dict(options.kwargs)), self.device, self.dtype)
                _Run(self.model, recorder, options).step(args, kwargs)
        finally:
            if snapshot is not None:
                own = (n for n in snapshot.touched if self.dtype in (None, named[n].dtype))
                self.lost = (*snapshot.lost, *own)


class _Run:
    """One run of one model: hooks in, forward, backward, step, hooks out."""

    def __init__(self, model: torch.nn.Module, recorder: Recorder, options: RunOptions) -> None:
        self.model, self.recorder, self.options = model, recorder, options
        self.active = options.selection.start is None
        self.arguments: dict[int, list[list[Any]]] = {}
        self.calls: dict[str, int] = {}

    def step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        before = {n: b.clone() for n, b in self.model.named_buffers()}
        with self._named_errors():
            for path, tensor in walk([list(args), kwargs] if kwargs else list(args)):
                name = "input" if path == "[0]" else f"input{path}"
                self.recorder.add(Source("input", name), tensor)
        with contextlib.ExitStack() as stack:
            self._hook(stack)
            # The fused attention kernels skip the modules inside them, so nothing could be seen.
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
            with self._named_errors():
                output = self.model(*args, **kwargs)
            self._report("output", "output", output)
            for name, buffer in self.model.named_buffers():
                was = before.get(name)
                if was is None or was.shape != buffer.shape or not torch.equal(was, buffer):
                    self.recorder.add(Source("buffer", name, kind="buffer"), buffer)
            if self.options.loss is not None or self.options.backward:
                with self._named_errors():
                    self._backward(output, stack)

    def _hook(self, stack: contextlib.ExitStack) -> None:
        selection = self.options.selection
        for name, module in self.model.named_modules():
            if name and name == selection.start:
                self._keep(stack, module.register_forward_pre_hook(self._open_window))
            # The dicts themselves: their public walks take a tenth of a millisecond each call.
            owns = any(p is not None for p in module._parameters.values())  # noqa: SLF001
            leaf = not any(m is not None for m in module._modules.values())  # noqa: SLF001
            if (owns or leaf) and selection.wants(name):
                self._hook_layer(stack, name, module, owns=owns)
            if name and name == selection.end:
                self._keep(stack, module.register_forward_hook(self._close_window))

    def _hook_layer(
        self, stack: contextlib.ExitStack, name: str, module: torch.nn.Module, *, owns: bool
    ) -> None:
        kind, recorder, path_in_model, name = (
            type(module).__name__,
            self.recorder,
            name,
            name or ROOT,
        )
        pending: list[list[Any] | None] = []
        plain = Source("forward", name, path_in_model, kind, parameters=owns)

        def before(_: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if not self.active:
                pending.append(None)
                return
            call = self.calls[name] = self.calls.get(name, -1) + 1
            key = f"argument/{name}#{call}"
            if any(_is_transformed(t) for _, t in walk([args, kwargs])):
                pending.append(None)  # of a batch, where the layer took one of it
                return
            pending.append(
                [
                    encode_arguments(args, recorder.keep, key),
                    encode_arguments(kwargs, recorder.keep, key),
                ]
            )

        def after(_: torch.nn.Module, __: Any, output: Any) -> None:
            arguments = pending.pop() if pending else None
            if not self.active:
                return
            for path, tensor in walk(output):
                if _is_transformed(tensor):
                    with torch._C._DisableFuncTorch():  # noqa: SLF001 - sums of a batch are one sum
                        recorder.add(plain.at(path), _untransformed(tensor), arguments)
                    continue
                recorder.add(plain.at(path), tensor, arguments)
                self._watch_gradient(tensor, name + path, kind)

        if not recorder.keeps_inputs:
            self._keep(stack, module.register_forward_hook(after))
            return
        # always_call: a forward that raises and is caught and called again must not leave its
        # arguments to the next call.
        self._keep(stack, module.register_forward_pre_hook(before, with_kwargs=True))
        self._keep(stack, module.register_forward_hook(after, always_call=True))

    def _watch_gradient(self, tensor: torch.Tensor, name: str, kind: str) -> None:
        if self.options.backward and tensor.requires_grad:
            source = Source("gradient", name, name, kind)
            tensor.register_hook(lambda g: self.recorder.add(source, g))

    def _report(self, channel: str, name: str, value: Any) -> None:
        for path, tensor in walk(value):
            self.recorder.add(Source(channel, name + path), tensor)

    def _backward(self, output: Any, stack: contextlib.ExitStack) -> None:
        loss = self.options.loss
        if loss is None:
            value = mean_of_squares(output)
        else:
            for name, tensor in _closed_over(loss):
                self.recorder.add(Source("loss", f"loss.input[{name}]"), tensor)
            value = loss(output)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise MigrateError(
                f"the loss is {described(value)}, not one number",
                "loss=",
                "return a scalar tensor, e.g. torch.nn.functional.cross_entropy(output, target)",
            )
        self.recorder.add(Source("loss", "loss", kind=getattr(loss, "__name__", "")), value)
        if not self.options.backward:
            return
        named = {id(p): n for n, p in self.model.named_parameters()}
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                self._watch_parameter(stack, parameter, named[id(parameter)])
        if not value.requires_grad:
            raise MigrateError(
                "the loss depends on no parameter that requires a gradient",
                "loss=",
                "check requires_grad and that the loss uses the network's output",
            )
        value.backward()
        if self.options.optimizer is not None:
            self._optimize(self.options.optimizer, named)

    def _watch_parameter(
        self, stack: contextlib.ExitStack, parameter: torch.nn.Parameter, name: str
    ) -> None:
        source = Source("parameter gradient", name, kind="Parameter")

        def arrived(p: torch.Tensor) -> None:
            if p.grad is not None:
                self.recorder.add(source, p.grad)

        self._keep(stack, parameter.register_post_accumulate_grad_hook(arrived))

    def _optimize(
        self, build: Callable[[Any], torch.optim.Optimizer], named: dict[int, str]
    ) -> None:
        optimizer = build(self.model.parameters())
        before = {id(p): p.detach().clone() for p in self.model.parameters()}
        optimizer.step()
        for parameter in reversed(list(self.model.parameters())):
            name = named[id(parameter)]
            update = parameter.detach() - before[id(parameter)]
            self.recorder.add(Source("update", name, kind="Parameter"), update)
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    self.recorder.add(Source("optimizer", f"{name}.{key}", kind="state"), value)

    @staticmethod
    def _keep(stack: contextlib.ExitStack, handle: Any) -> None:
        stack.callback(handle.remove)

    def _open_window(self, *_: Any) -> None:
        self.active = True

    def _close_window(self, *_: Any) -> None:
        self.active = False

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except MigrateError:
            raise
        except (Exception, SystemExit) as error:
            where, what = where_it_failed(self.model, error)
            raise MigrateError(
                f"the network raised {type(error).__name__}: {said_by(error)}",
                where,
                f"compare {what} with what the layer takes; the traceback above shows the line",
            ) from error


def mean_of_squares(output: Any) -> torch.Tensor | int:
    """Return what stands for a loss where none is given; 0 where no floating tensor is."""
    return sum(t.square().mean() for _, t in walk(output) if t.is_floating_point())


def _is_transformed(tensor: torch.Tensor) -> bool:
    """Whether it stands for a tensor inside ``torch.func.vmap``, ``grad``, ``jvp``."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))  # noqa: SLF001


def _untransformed(tensor: torch.Tensor) -> torch.Tensor:
    while _is_transformed(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)  # noqa: SLF001
    return tensor


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
                if isinstance(value, torch.Tensor):
                    yield name, value


def _device_of(model: torch.nn.Module) -> torch.device:
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")


def _unwrapped(model: Any) -> torch.nn.Module:
    """Return the network inside torch.compile's and DataParallel's wrappers; refuse TorchScript."""
    if _is_scripted(model):
        raise MigrateError(
            "a TorchScript module runs its layers where no hook sees them",
            type(model).__name__,
            "capture the nn.Module it was made from, or export it and use OnnxRunner",
        )
    if not isinstance(model, torch.nn.Module):
        raise MigrateError(
            f"TorchRunner takes a torch.nn.Module, not a {type(model).__name__}",
            "model",
            "build the network first, then load_state_dict; a state_dict alone cannot run",
        )
    for name, module in model.named_modules():
        if _is_scripted(module):
            raise MigrateError(
                "a TorchScript module inside the network runs its layers where no hook sees them",
                f"layer {name}",
                "put the nn.Module it was made from in its place, or export the network and use"
                " OnnxRunner",
            )
        if isinstance(module, LazyModuleMixin) and _has_no_shapes(module):
            raise MigrateError(
                "the parameters of a lazy layer have no shape before its first call",
                f"layer {name}",
                "call it once first: model(*inputs)",
            )
    inner = getattr(model, "_orig_mod", None)
    if inner is None and isinstance(
        model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel
    ):
        inner = model.module
    return _unwrapped(inner) if isinstance(inner, torch.nn.Module) else model


def _has_no_shapes(module: Any) -> bool:
    return bool(module.has_uninitialized_params())


def _is_scripted(module: Any) -> bool:
    return isinstance(module, torch.jit.ScriptModule)
