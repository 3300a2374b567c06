"""Networks with modules around or inside them that run elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import migrate_kit as mk

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.ones(2, 4)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.f(x))


def names(model: nn.Module) -> list[str]:
    return [r.name for r in mk.capture(model, X).records if r.channel == "forward"]


def test_data_parallel_around_a_network() -> None:
    plain = nn.Sequential(Inner(), nn.Linear(4, 2))
    assert names(nn.DataParallel(plain)) == names(plain) == ["0.f", "1"]
    diff = mk.compare(mk.capture(plain, X), mk.capture(nn.DataParallel(plain), X))
    assert diff.ok
    assert not any(r.verdict == "unpaired" for r in diff.rows)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it takes no model on the CPU")
def test_data_parallel_inside_a_network() -> None:
    assert names(nn.Sequential(nn.DataParallel(Inner()), nn.Linear(4, 2))) == ["0.module.f", "1"]


# TorchScript is deprecated, not gone.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("how", ["scripted", "traced"])
def test_torchscript_inside_a_network_is_named(how: str) -> None:
    inner = Inner()
    child = torch.jit.script(inner) if how == "scripted" else torch.jit.trace(inner, X)
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), child))
    with pytest.raises(mk.MigrateError, match="TorchScript") as caught:
        mk.capture(model, X)
    assert caught.value.where == "layer 0.1"
    assert "OnnxRunner" in caught.value.fix
    with pytest.raises(mk.MigrateError, match="TorchScript"):
        mk.capture(child, X)


# --- the model is left as it was found ------------------------------------------------------------


class Net(nn.Module):
    """Whatever ``f(self, x)`` does, with one layer and one buffer."""

    def __init__(self, f: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.f, self.layer, self.past = f, nn.Linear(4, 4), []
        self.register_buffer("kept", torch.ones(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(self, x)


def _grown(net: Any, x: torch.Tensor) -> torch.Tensor:
    net.kept.data = torch.cat([net.kept, x])
    return net.layer(net.kept)


def _resized(net: Any, x: torch.Tensor) -> torch.Tensor:
    net.kept.resize_(3, 4).fill_(2)
    return net.layer(x)


def _remembered(net: Any, x: torch.Tensor) -> torch.Tensor:
    net.past.append(x)
    net.last = x
    return net.layer(torch.cat(net.past))


def _bound_anew(net: Any, x: torch.Tensor) -> torch.Tensor:
    net.layer.weight.data = net.layer.weight.data * 2
    return net.layer(x)


def _written(net: Any, x: torch.Tensor) -> torch.Tensor:
    net.layer.weight.data.mul_(2)
    return net.layer(x)


def _written_in_one_place(net: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        net.layer.weight[1, 1] = 7
    return net.layer(x)


def state(model: nn.Module) -> Any:
    tensors = {n: (id(t), t.tolist()) for n, t in model.state_dict(keep_vars=True).items()}
    return tensors, [sorted(vars(m)) for m in model.modules()], list(model.past)


@pytest.mark.parametrize("f", [_grown, _resized, _remembered, _bound_anew])
def test_what_a_forward_changes_is_put_back(f: Any) -> None:
    model = Net(f)
    before = state(model)
    first, second = mk.capture(model, X), mk.capture(model, X, backward=True)
    assert state(model) == before
    assert not first.findings
    assert first.find("output", "output").stats == second.find("output", "output").stats
    mk.noise_floor(first)
    assert state(model) == before


@pytest.mark.parametrize("f", [_written, _written_in_one_place])
def test_a_parameter_that_is_written_to_is_put_back_where_it_is_known(f: Any) -> None:
    model = Net(f)
    before = state(model)
    runner = mk.TorchRunner(model, writes=["layer.weight"])
    trace = mk.capture(runner, X)
    assert state(model) == before
    assert not trace.findings
    mk.noise_floor(trace)
    assert state(model) == before
    found = mk.capture(model, X).findings
    assert [(f.level, f.where) for f in found] == [("warning", "layer.weight")]
    assert "writes=['layer.weight']" in found[0].fix
    assert state(model) != before


def test_parameters_of_any_kind_are_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 4), nn.Identity())
    model[0].to(memory_format=torch.channels_last)
    model[1].weight = nn.Parameter(torch.full((4, 4), torch.nan))
    model[2].register_parameter("none", nn.Parameter(torch.empty(0)))
    model[2].register_parameter("row", nn.Parameter(torch.ones(1).expand(5)))
    model[2].table = torch.ones(2, 2).to_sparse()
    for dtype in (torch.float8_e4m3fn, torch.bfloat16, torch.complex64, torch.uint8, torch.bool):
        name, tensor = str(dtype).replace(".", "_"), torch.ones(3).to(dtype)
        model[2].register_parameter(name, nn.Parameter(tensor, requires_grad=False))
        model[2].register_buffer(f"{name}_buffer", tensor.clone())
    trace = mk.capture(model, torch.ones(1, 3, 6, 6))
    assert not any("put back" in f.what for f in trace.findings)


@pytest.mark.parametrize("inside", [False, True])
def test_a_network_that_was_built_in_inference_mode(inside: bool) -> None:
    with torch.inference_mode():
        model = Net(lambda net, x: net.layer(x) + (net.kept.add_(1) if inside else net.kept))
    before = state(model)
    with torch.inference_mode(inside):
        mk.capture(model, X)
    assert state(model) == before


def test_a_network_is_trained_wherever_it_is_looked_at() -> None:
    with torch.inference_mode():
        trace = mk.capture(nn.Linear(4, 4), X, backward=True)
    assert any(r.channel == "parameter gradient" for r in trace.records)


def test_layers_inside_a_transformed_function_are_recorded() -> None:
    net = Net(lambda net, x: torch.func.vmap(net.layer)(x))
    trace = mk.capture(net, X)
    assert torch.equal(trace.tensor("layer"), trace.tensor("output"))
    assert trace.find("forward", "layer").inputs is None
