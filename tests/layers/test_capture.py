"""What capture records, and that it leaves the model as it was."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.layers.arguments import decode_arguments, encode_arguments


def names(trace: mk.Trace, channel: str = "forward") -> list[str]:
    return [r.name for r in trace.records if r.channel == channel]


class Calls(nn.Module):
    """One ReLU called three times, in place, around a functional add."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.a(x))
        z = self.relu(self.b(y))
        z += y
        return self.relu(z)


def test_values_are_those_before_the_next_layer_changed_them_in_place() -> None:
    model, x = Calls(), torch.randn(2, 3, 8, 8)
    trace = mk.capture(model, x)
    assert names(trace) == ["a", "relu", "b", "relu#1", "relu#2"]
    with torch.no_grad():
        torch.testing.assert_close(trace.tensor("a"), model.a(x), rtol=0, atol=0)
        torch.testing.assert_close(trace.tensor("relu"), model.a(x).relu(), rtol=0, atol=0)
        torch.testing.assert_close(trace.tensor("output"), model(x), rtol=0, atol=0)


def test_an_argument_that_was_changed_in_place_is_stored_as_it_was_given() -> None:
    trace = mk.capture(Calls(), torch.randn(2, 3, 8, 8))
    last = trace.find("forward", "relu#2")
    assert last is not None
    assert last.inputs is not None
    leaf = last.inputs[0]["tuple"][0]
    given = trace.view(leaf["tensor"], leaf["dtype"], leaf["shape"])
    first, second = trace.tensor("relu"), trace.tensor("relu#1")
    torch.testing.assert_close(given, first + second, rtol=0, atol=0)


def test_an_unchanged_output_is_stored_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Flatten(), nn.Linear(4, 2))
    trace = mk.capture(model, torch.randn(3, 4))
    keys = {n: trace.find("forward", n).tensor for n in ("0", "1", "2")}
    assert len(set(keys.values())) == 1


class Nested(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: dict[str, Any]) -> dict[str, Any]:
        return {"a": (x * scale["by"], None), "b": [x + 1, OrderedDict(c=x - 1)]}


def test_nested_outputs_and_keyword_inputs() -> None:
    x = torch.ones(2)
    trace = mk.capture(Nested(), x, kwargs={"scale": {"by": torch.tensor(3.0)}})
    assert names(trace) == [
        "(network)['a'][0]",
        "(network)['b'][0]",
        "(network)['b'][1]['c']",
    ]
    assert names(trace, "input") == ["input[0][0]", "input[1]['scale']['by']"]
    assert float(trace.tensor("(network)['a'][0]")[0]) == 3.0


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4).half(),
        torch.randn(3, 4).bfloat16(),
        torch.randn(3, 4, dtype=torch.float64),
        torch.randn(3, 4, dtype=torch.complex64),
        torch.randn(3, 4, dtype=torch.complex128).conj(),
        torch.arange(12).reshape(3, 4),
        torch.arange(12, dtype=torch.uint8),
        torch.tensor([True, False]),
        torch.randn(3, 4, 5).permute(2, 0, 1),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(4, 1).expand(4, 6),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.randn(4).to(torch.float8_e4m3fn),
        torch.eye(3).to_sparse(),
    ],
    ids=lambda t: f"{t.dtype}-{tuple(t.shape)}-{t.layout}",
)
def test_any_tensor_comes_back_as_it_was(value: torch.Tensor) -> None:
    trace = mk.capture(nn.Identity(), value)
    back = trace.tensor("(network)")
    expected = value.to_dense() if value.is_sparse else value
    assert back.dtype == expected.dtype
    assert back.shape == expected.shape
    # Equal bit for bit, also in formats that torch.equal does not take.
    same = back.contiguous().view(torch.uint8) if back.dim() else back
    other = expected.resolve_conj().contiguous()
    assert torch.equal(same, other.view(torch.uint8) if other.dim() else other)


def test_layers_start_and_end_select() -> None:
    model = nn.Sequential(
        OrderedDict(a=nn.Linear(2, 2), b=nn.Sequential(nn.Linear(2, 2), nn.ReLU()), c=nn.ReLU())
    )
    x = torch.ones(1, 2)
    assert names(mk.capture(model, x, layers=["b"])) == ["b.0", "b.1"]
    assert names(mk.capture(model, x, layers="*.1")) == ["b.1"]
    assert names(mk.capture(model, x, start="b")) == ["b.0", "b.1", "c"]
    assert names(mk.capture(model, x, end="b.0")) == ["a", "b.0"]
    assert names(mk.capture(model, x, start="b.1", end="b.1")) == ["b.1"]
    with pytest.raises(mk.MigrateError, match="no layer is called 'bb'"):
        mk.capture(model, x, layers=["bb"])


def test_a_failing_layer_is_named_and_every_hook_is_gone() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(9, 2)))
    with pytest.raises(mk.MigrateError, match=r"layer 1\.1 ") as caught:
        mk.capture(model, torch.randn(2, 4))
    assert "float32 (2, 8)" in caught.value.fix
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    x = torch.randn(2, 3, 8, 8)
    state = torch.get_rng_state()
    mk.capture(model, x, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[1].weight.grad is None
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_a_float64_yardstick_puts_the_very_same_tensors_back() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    tied = model[0].weight
    where = [t.data_ptr() for t in (*model.parameters(), *model.buffers())]
    mk.noise_floor(model, torch.randn(3, 4))
    assert [t.data_ptr() for t in (*model.parameters(), *model.buffers())] == where
    assert model[0].weight is tied
    assert torch.get_default_dtype() == torch.float32


# --- backward, buffers and one step ---------------------------------------------------------------


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.bn = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.relu, self.fc = nn.ReLU(inplace=True), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.relu(self.bn(self.conv(x))).mean((2, 3)))


X, TARGET = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(4)


def entropy(output: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, TARGET)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def test_gradients_are_autograds_and_come_in_backward_order() -> None:
    model = Small().train()
    trace = mk.capture(model, X, backward=True, loss=entropy)
    order = names(trace, "parameter gradient")
    assert order.index("fc.weight") < order.index("bn.weight") < order.index("conv.weight")
    assert names(trace, "gradient") == ["fc", "relu", "bn", "conv"]
    assert names(trace, "loss") == ["loss.input[TARGET]", "loss"]
    model.train()
    entropy(model(X)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(trace.tensor(name), parameter.grad, rtol=0, atol=0)


def test_one_step_and_running_statistics_are_channels_of_their_own() -> None:
    model = Small().train()
    trace = mk.capture(model, X, loss=entropy, optimizer=momentum)
    assert "bn.running_mean" in names(trace, "buffer")
    assert names(trace, "optimizer")[0] == "fc.bias.momentum_buffer"
    update = trace.tensor(trace.find("update", "fc.weight"))
    gradient = trace.tensor(trace.find("parameter gradient", "fc.weight"))
    torch.testing.assert_close(update, -0.1 * gradient, rtol=1e-3, atol=1e-7)


def test_backward_is_judged_by_a_float64_backward() -> None:
    model = Small().train()
    options = {"loss": entropy, "optimizer": momentum}
    a = mk.capture(model, X, **options)
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        b = mk.capture(model, X, **options)
    assert mk.compare(a, b).ok
    noise = mk.noise_floor(a)
    with mutated(model.bn, "momentum", 0.9):
        diff = mk.compare(a, mk.capture(model, X, **options), noise=noise)
    flagged = {r.layer for r in diff.rows if r.verdict == "differs"}
    assert flagged == {"bn.running_mean", "bn.running_var"}


def test_a_wrong_gradient_is_found_in_backward_order() -> None:
    model = Small().train()
    a = mk.capture(model, X, backward=True, loss=entropy)
    handle = model.bn.register_full_backward_hook(lambda _, g, __: (g[0] * 1.01,))
    with mutated(model.relu, "inplace", False):
        b = mk.capture(model, X, backward=True, loss=entropy)
    handle.remove()
    diff = mk.compare(a, b)
    assert diff.first_divergence is not None
    assert (diff.first_divergence.channel, diff.first_divergence.layer) == ("gradient", "conv")


@contextlib.contextmanager
def mutated(module: nn.Module, name: str, value: Any) -> Any:
    before = getattr(module, name)
    setattr(module, name, value)
    yield
    setattr(module, name, before)


def test_dropout_draws_the_same_masks_in_both_runs() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.Linear(64, 4)).train()
    x = torch.randn(8, 16)
    diff = mk.compare(mk.capture(model, x), mk.capture(model, x))
    assert [r.R for r in diff.rows] == [0.0] * len(diff.rows)


# --- what cannot be run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mk.capture({"a": 1}, torch.ones(1)), "cannot run a dict"),
        (lambda: mk.TorchRunner(OrderedDict()), "not a OrderedDict"),
        (lambda: mk.capture(Unused(), torch.ones(1)), "nothing was recorded"),
        (lambda: mk.capture(torch.jit.trace(nn.Linear(1, 1), torch.ones(1)), 1), "TorchScript"),
        (lambda: mk.capture(Small(), X, loss=lambda y: y, backward=True), "not one number"),
        (
            lambda: mk.capture(Small(), X, loss=lambda _: torch.tensor(1.0), backward=True),
            "depends",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_one_clear_error(call: Any, says: str) -> None:
    with pytest.raises(mk.MigrateError, match=says):
        call()


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> float:
        return float(x.sum())


@pytest.mark.parametrize("where", ["momentum", "weight"])
def test_a_reference_changed_after_its_capture_is_noticed(where: str) -> None:
    """Its float64 run would call the change rounding."""
    model = Small().train()
    a = mk.capture(model, X)
    if where == "momentum":
        model.bn.momentum = 0.9
    else:
        model.conv.weight.data.mul_(1.01)  # .data: no version counter tells
    diff = mk.compare(a, mk.capture(model, X))
    assert not diff.ok
    assert any("no longer come out as recorded" in f.what for f in diff.findings)
    assert diff.made_here == []


def test_arguments_survive_the_index() -> None:
    kept: dict[str, torch.Tensor] = {}

    def keep(tensor: torch.Tensor, key: str) -> str:
        kept[key] = tensor
        return key

    value = (torch.ones(2), [1, None, "s"], {"k": (2.5, True), "d": torch.float16})
    encoded = encode_arguments(value, keep, "in")
    back = decode_arguments(encoded, lambda leaf: kept[leaf["tensor"]])
    assert back[1:] == value[1:]
    assert torch.equal(back[0], value[0])
    with pytest.raises(ValueError, match="object"):
        decode_arguments(encode_arguments(object(), keep, "x"), lambda _: torch.ones(1))
