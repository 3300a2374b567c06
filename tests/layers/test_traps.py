"""Runs that once were judged wrong, or networks that could not be run: each stays mended."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.layers.runners.borrowed import moved

if TYPE_CHECKING:
    from pathlib import Path


def net(width: int = 32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 8))


X = torch.randn(16, 32, generator=torch.Generator().manual_seed(2))


def broken(model: nn.Module, layer: str) -> nn.Module:
    other = copy.deepcopy(model)
    other.get_submodule(layer).weight.data[:4] = 0
    return other


# --- a real fault must not be called the same -----------------------------------------------------


def test_a_store_that_is_written_again_leaves_the_first_trace_its_own(tmp_path: Path) -> None:
    model = net()
    a = mk.capture(model, X, store=tmp_path / "t")
    noise = mk.noise_floor(model, X)
    b = mk.capture(broken(model, "2"), X, store=tmp_path / "t")
    assert not mk.compare(a, b, noise=noise).ok


def test_a_relative_store_outlives_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a = mk.capture(net(), X, store="t")
    monkeypatch.chdir(tmp_path.parent)
    assert mk.compare(a, mk.capture(net(), X)).ok


class Draws(nn.Module):
    """A variational bottleneck: float32 and float64 draw different numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.down, self.up = nn.Linear(32, 16), nn.Linear(16, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.down(x)
        return self.up(z + torch.randn_like(z))


class ChangesItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.up = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x.sub_(1.0))


class Counts(nn.Module):
    """Keeps a state in eval mode too, in a buffer that it binds anew."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.up = nn.Linear(32, 32)
        self.register_buffer("state", torch.zeros(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = self.state * 0.9 + x.mean(0)
        if not hasattr(self, "late"):
            self.register_buffer("late", torch.ones(1))
        return self.up(x + self.state)


@pytest.mark.parametrize("kind", [Draws, ChangesItsInput, Counts])
def test_what_is_not_rounding_does_not_hide_a_fault(kind: type[nn.Module]) -> None:
    model = kind().eval()
    x = X.clone()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    a, b = mk.capture(model, x), mk.capture(model, x)
    assert mk.compare(a, b).ok
    assert not mk.compare(a, mk.capture(broken(model, "up"), x)).ok
    assert torch.equal(x, X)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    warned = any("another computation" in f.what for f in mk.noise_floor(a).findings)
    assert warned == (kind is Draws)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: list[torch.Tensor]


class ReturnsADataclass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = nn.Parameter(torch.randn(8, 32))

    def forward(self, x: torch.Tensor) -> Output:
        y = x @ self.weight.T
        return Output(y, [y.relu()])


def test_tensors_in_a_dataclass_are_seen() -> None:
    model, other = ReturnsADataclass(), ReturnsADataclass()
    other.weight.data[0] = 0
    a = mk.capture(model, X)
    assert [r.name for r in a.records if r.channel == "output"] == [
        "output.logits",
        "output.hidden[0]",
    ]
    assert not mk.compare(a, mk.capture(other, X)).ok


def test_an_output_without_tensors_is_said() -> None:
    class Nothing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(32, 2)

        def forward(self, x: torch.Tensor) -> str:
            return f"{self.fc(x).shape}"

    assert "holds no tensor" in mk.capture(Nothing(), X).findings[-1].what


def test_nothing_compared_is_not_all_same() -> None:
    a = mk.capture(net(), X)
    other = nn.Sequential()
    for i, layer in enumerate(net()):
        other.add_module(f"b{i}", layer)
    diff = mk.compare(a, mk.capture(other, X, end="b1"), "name")
    assert "unpaired" in repr(diff)
    b = mk.capture(other, X, layers="b1")
    b.records[:] = [r for r in b.records if r.channel == "forward"]
    b._by_key = {r.key: r for r in b.records}
    none = mk.compare(a, b, "name")
    assert not none.ok
    assert "nothing compared" in repr(none)


@pytest.mark.parametrize("write", [lambda y: y.data.add_(9), lambda y: y.numpy().__iadd__(9)])
def test_a_change_that_no_version_counts_is_seen(write: Any) -> None:
    class Silent(nn.Module):
        def __init__(self, *, active: bool) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.fc, self.active = nn.Linear(32, 8), active

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.fc(x)
            if self.active:
                write(y)
            return y

    a, b = mk.capture(Silent(active=False), X), mk.capture(Silent(active=True), X)
    assert not mk.compare(a, b).ok
    assert float((b.tensor("output") - a.tensor("output")).min()) == pytest.approx(9, abs=1e-4)


def test_token_ids_are_exact_in_any_network() -> None:
    model = nn.Embedding(4000, 8).bfloat16()
    ids = torch.arange(3000)
    wrong = ids.clone()
    wrong[7] += 1
    diff = mk.compare(mk.capture(model, ids), mk.capture(model, wrong))
    assert diff.first_divergence is not None
    assert diff.first_divergence.layer == "input"
    huge = torch.full((8,), 2**60)
    a, b = mk.capture(nn.Identity(), huge), mk.capture(nn.Identity(), huge + 1)
    assert not mk.compare(a, b).ok


def test_a_wrong_corner_is_seen_in_bfloat16_too() -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.Conv2d(64, 8, 1))
    x = torch.randn(1, 8, 48, 48)

    def corner(y: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        y[..., -1, -1] = 0
        return y

    other = copy.deepcopy(model)
    forward = other[0].forward
    other[0].forward = lambda t: corner(forward(t))  # type: ignore[method-assign]
    low = mk.TorchRunner(other, dtype=torch.bfloat16)
    noise = mk.noise_floor(model, x, dtype=torch.bfloat16)
    clean = mk.capture(mk.TorchRunner(model, dtype=torch.bfloat16), x)
    reference = mk.capture(model, x)
    assert mk.compare(reference, clean, noise=noise).ok
    diff = mk.compare(reference, mk.capture(low, x), noise=noise)
    assert diff.first_divergence is not None
    assert diff.first_divergence.layer == "0"


def test_a_noise_floor_of_another_batch_or_network() -> None:
    model = net()
    small = mk.noise_floor(model, X[:1])
    a = mk.capture(model, X)
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        b = mk.capture(model, X)
    assert mk.compare(a, b, noise=small).ok
    other = nn.Sequential()
    for i, layer in enumerate(net()):
        other.add_module(f"b{i}", layer)
    diff = mk.compare(a, b, noise=mk.noise_floor(other, X))
    assert any("another network's" in f.what for f in diff.findings)


# --- clean rounding must not be called a fault ----------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_in_float64(threads: int) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(8, 32, 3), nn.Hardswish(inplace=True), nn.Conv2d(32, 8, 3), nn.Flatten()
    ).double()
    x = torch.randn(2, 8, 20, 20, dtype=torch.float64)
    a = mk.capture(model, x)
    first = a.tensor("0").clone()
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    b = mk.capture(last, x)
    torch.set_num_threads(before)
    for _ in range(2):
        diff = mk.compare(a, b)
        assert diff.ok
        assert diff.made_here == []
    assert torch.equal(a.tensor("0"), first), "a replayed in-place layer wrote into the map"
    assert not mk.compare(a, mk.capture(broken(model, "2"), x)).ok


def test_a_float_inside_a_layer_leaves_no_zero_yardstick() -> None:
    class Single(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.conv2d(x.float(), self.weight.float(), None, padding=1)

    torch.manual_seed(1)
    model = nn.Sequential(*(Single(16, 16, 3, bias=False) for _ in range(8)))
    x = torch.randn(1, 16, 24, 24)
    a = mk.capture(model, x)
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        diff = mk.compare(a, mk.capture(model, x))
    assert diff.ok
    assert any("compute the same in float64" in f.what for f in diff.findings)


def test_sketches_do_not_depend_on_what_ran_first(tmp_path: Path) -> None:
    code = """
import sys, torch, migrate_kit as mk
torch.manual_seed(0)
model, x = torch.nn.Linear(300, 300), torch.randn(40, 300)
if sys.argv[1] == "bf16":
    torch.set_default_dtype(torch.bfloat16)
mk.capture(model, x, tensors=False, store=sys.argv[2])
"""
    for kind in ("plain", "bf16"):
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code, kind, str(tmp_path / kind)]
        subprocess.run(command, check=True, env=env)
    diff = mk.compare(tmp_path / "plain", tmp_path / "bf16", noise=False)
    assert [r.R for r in diff.rows] == [0.0] * len(diff.rows)


def test_two_threads_do_not_disturb_each_other() -> None:
    model = net(256)
    x = torch.randn(64, 256)
    reference = mk.capture(model, x, tensors=False)
    traces: list[mk.Trace] = []

    def run() -> None:
        traces.extend(mk.capture(model, x, tensors=False) for _ in range(8))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(traces) == 24
    assert all(mk.compare(reference, t, noise=False).ok for t in traces)


# --- networks that must run -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 0], lambda x: x.diagonal(), lambda x: x[0, :1].expand(5), lambda x: x[::2, 1]],
)
def test_strided_rows(view: Any) -> None:
    class Head(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return view(x)

    trace = mk.capture(Head(), X)
    assert torch.equal(trace.tensor("output"), view(X))


def test_batch_norms_counter_survives_a_comparison() -> None:
    model = nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8)).train()
    a, b = mk.capture(model, X), mk.capture(model, X)
    mk.compare(a, b)
    assert int(model[1].num_batches_tracked) == 0


def test_a_module_that_calls_itself_and_one_that_is_tried_again(tmp_path: Path) -> None:
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(32))

        def forward(self, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
            y = x * self.weight
            return self(y + 1, depth - 1) if depth else y

    class Retries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.fc(torch.cat([x, x], 1))
            except RuntimeError:
                return self.fc(x)

    for name, model in (("recursive", Recursive()), ("retries", Retries())):
        mk.capture(model, X, store=tmp_path / name)
        assert mk.compare(tmp_path / name, mk.capture(model, X), noise=False).ok
        assert mk.compare(mk.capture(model, X), mk.capture(model, X)).ok


def test_a_child_called_like_a_second_call() -> None:
    model = nn.Sequential()
    relu = nn.ReLU()
    model.add_module("r#1", nn.Linear(32, 32))
    model.add_module("r", relu)
    model.forward = lambda x: relu(model._modules["r#1"](relu(x)))  # type: ignore[method-assign, misc]
    trace = mk.capture(model, X)
    assert [r.name for r in trace.records if r.channel == "forward"] == ["r", "r#1", "r#2"]


def test_a_users_pre_hook_is_not_applied_twice() -> None:
    model = net()
    model[0].register_forward_pre_hook(lambda _, a: (a[0] * 3,))
    diff = mk.compare(mk.capture(model, X), mk.capture(broken(model, "0"), X))
    assert [r.layer for r in diff.made_here] == ["0"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weight_norm_is_replayed() -> None:
    torch.manual_seed(1)
    for norm in (nn.utils.weight_norm, nn.utils.parametrizations.weight_norm):
        model = nn.Sequential(norm(nn.Linear(32, 16)), nn.ReLU())
        a = mk.capture(model, X)
        with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
            assert mk.compare(a, mk.capture(model, X)).ok


def test_a_forked_child_leaves_the_trace(tmp_path: Path) -> None:
    trace = mk.capture(net(), X)
    pid = os.fork()
    if pid == 0:
        del trace
        os._exit(0)
    os.waitpid(pid, 0)
    assert trace.path.exists()


def test_a_store_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        mk.capture(net(), X, store=tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]
    assert len(mk.Trace.load(tmp_path / "link")) == 5


def test_tensors_without_values_are_one_clear_error() -> None:
    with pytest.raises(mk.MigrateError, match="meta tensor has no values"):
        mk.capture(nn.Identity(), torch.empty(3, device="meta"))


def test_moved_keeps_the_kinds_of_containers() -> None:
    value = {"a": [X, (X, 1)], "b": None}
    back = moved(value, torch.device("cpu"), torch.float64)
    assert back["a"][0].dtype == torch.float64
    assert back["a"][0].data_ptr() != X.data_ptr()
    assert (type(back["a"][1]), back["a"][1][1], back["b"]) == (tuple, 1, None)


# --- networks whose root, or whose layer, only hands on ------------------------------------------


class WithToken(nn.Module):
    """A root that owns a parameter, as a vision transformer's class token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.token = nn.Parameter(torch.randn(32))
        self.first, self.second, self.third = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x + self.token)).relu())  # type: ignore[no-any-return]


@pytest.mark.parametrize("layer", ["first", "second", "third"])
def test_a_root_with_a_parameter_leaves_the_fault_to_the_layer(layer: str) -> None:
    model = WithToken()
    diff = mk.compare(mk.capture(model, X), mk.capture(broken(model, layer), X))
    assert [r.layer for r in diff.made_here] == [layer]


def test_a_fault_in_the_roots_own_parameter_is_the_roots() -> None:
    model = WithToken()
    other = copy.deepcopy(model)
    other.token.data[0] += 1
    diff = mk.compare(mk.capture(model, X), mk.capture(other, X))
    assert [r.layer for r in diff.made_here] == ["(network)"]


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.table, self.head = nn.Embedding(50, 32), nn.Linear(32, 8)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(index))  # type: ignore[no-any-return]


def test_an_embedding_rounds_nothing_and_is_not_doubted() -> None:
    model, index = Embedded(), torch.arange(16)
    a = mk.capture(model, index)
    assert mk.noise_floor(model, index).findings == []
    coarse = copy.deepcopy(model)
    coarse.table.weight.data = coarse.table.weight.data.bfloat16().float()
    diff = mk.compare(a, mk.capture(coarse, index))
    assert diff.first_divergence is not None
    assert diff.first_divergence.layer == "table"
    assert [r.layer for r in diff.made_here] == ["table"]
