"""Any network into any cell of the same architecture, with no rule written by hand."""

import copy

import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.errors import MigrateError

pytest.importorskip("mindspore", reason="MindSpore is not installed")

from migrate_kit.layers.runners.mindspore_import import load
from migrate_kit.porting.cells import values_of
from migrate_kit.porting.port import port
from migrate_kit.porting.randomize import randomized

ms = load()
X = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))
TOKENS = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(4))


class Blocks(nn.Module):
    """Two branches of one shape, a pool and a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8, eps=1e-3)
        self.left = nn.Conv2d(8, 8, 1)
        self.right = nn.Conv2d(8, 8, 1)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.stem(x))))
        x = torch.cat([self.left(x), self.right(x)], 1)
        return self.head(nn.functional.gelu(x).mean((2, 3)))


class BlocksCell(ms.nn.Cell):
    """The same, with other names, another order of registration and MindSpore's defaults."""

    def __init__(self, classes=10, *, bias=True):
        super().__init__()
        self.fc = ms.nn.Dense(16, classes)
        self.b = ms.nn.Conv2d(8, 8, 1, has_bias=bias, pad_mode="pad")
        self.a = ms.nn.Conv2d(8, 8, 1, has_bias=True, pad_mode="pad")
        self.bn = ms.nn.BatchNorm2d(8)
        self.conv = ms.nn.Conv2d(3, 8, 3, 2, has_bias=True)
        self.down = ms.nn.MaxPool2d(3, 2, pad_mode="same")
        self.act = ms.nn.GELU()

    def construct(self, x):
        x = self.down(ms.ops.relu(self.bn(self.conv(x))))
        x = ms.ops.cat((self.a(x), self.b(x)), 1)
        return self.fc(self.act(x).mean((2, 3)))


class Attention(nn.Module):
    """Attention whose three projections are one, and a token that no layer owns."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 12))
        self.place = nn.Parameter(torch.zeros(1, 6, 12))
        self.scale = nn.Parameter(torch.full((12,), 1e-6))
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.norm = nn.LayerNorm(12)

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        y = self.norm(x)
        return x + self.scale * self.attention(y, y, y, need_weights=False)[0]


class AttentionCell(ms.nn.Cell):
    """The same with three projections, or one."""

    def __init__(self, *, fused):
        super().__init__()
        new = lambda *shape: ms.Parameter(ms.ops.zeros(shape, ms.float32))  # noqa: E731
        self.norm1 = ms.nn.LayerNorm((12,))
        self.fused = fused
        if fused:
            self.qkv = ms.nn.Dense(12, 36)
        else:
            self.q, self.k, self.v = (ms.nn.Dense(12, 12) for _ in range(3))
        self.proj = ms.nn.Dense(12, 12)
        self.gamma = new(12)
        self.cls_token = new(1, 1, 12)
        self.pos_embed = new(1, 6, 12)

    def construct(self, x):
        n = x.shape[0]
        x = ms.ops.cat((ms.ops.tile(self.cls_token, (n, 1, 1)), x), 1) + self.pos_embed
        y = self.norm1(x)
        if self.fused:
            q, k, v = ms.ops.split(self.qkv(y), 12, 2)
        else:
            q, k, v = self.q(y), self.k(y), self.v(y)
        q, k, v = (t.reshape(n, 6, 3, 4).transpose(0, 2, 1, 3) for t in (q, k, v))
        weights = ms.ops.softmax(ms.ops.matmul(q / 2.0, k.transpose(0, 1, 3, 2)), -1)
        y = ms.ops.matmul(weights, v).transpose(0, 2, 1, 3).reshape(n, 6, 12)
        return x + self.gamma * self.proj(y)


class Split(nn.Module):
    """Attention of three projections."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.query, self.key, self.value = (nn.Linear(12, 12) for _ in range(3))
        self.out = nn.Linear(12, 12)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (
            f(y).reshape(len(x), -1, 3, 4).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        weights = torch.softmax((q / 2.0) @ k.transpose(-1, -2), -1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))


class FusedCell(ms.nn.Cell):
    """The same with one."""

    def __init__(self):
        super().__init__()
        self.ln = ms.nn.LayerNorm((12,), epsilon=1e-5)
        self.qkv = ms.nn.Dense(12, 36)
        self.proj = ms.nn.Dense(12, 12)

    def construct(self, x):
        n, length, _ = x.shape
        q, k, v = (
            t.reshape(n, length, 3, 4).transpose(0, 2, 1, 3)
            for t in ms.ops.split(self.qkv(self.ln(x)), 12, 2)
        )
        weights = ms.ops.softmax(ms.ops.matmul(q / 2.0, k.transpose(0, 1, 3, 2)), -1)
        y = ms.ops.matmul(weights, v).transpose(0, 2, 1, 3).reshape(n, length, 12)
        return x + self.proj(y)


def output_error(model, cell, x):
    """Return how far the outputs are apart, measured without the package."""
    cell.set_train(False)
    ours = copy.deepcopy(model).eval()
    with torch.no_grad():
        expected = ours(x).double()
    got = torch.from_numpy(cell(ms.Tensor(x.numpy())).asnumpy()).double()
    return float((got - expected).norm() / expected.norm())


def test_other_names_orders_and_settings():
    model, cell = randomized(Blocks()), BlocksCell()
    report = port(model, cell, X, apply_fixes=True)
    assert report.ok, report.findings
    assert report.R <= 2
    assert output_error(model, cell, X) < 2e-6
    wheres = {r.cell_name: r.torch_name for r in report.mapping}
    assert wheres["a.weight"] == "left.weight"
    assert wheres["b.bias"] == "right.bias"
    assert wheres["bn.moving_variance"] == "norm.running_var"
    assert {(f.cell, f.what) for f in report.fixes if f.matters == "output"} == {
        ("conv", "padding"),
        ("bn", "eps"),
        ("down", "padding"),
        ("act", "approximate"),
    }
    assert all(f.after < f.before for f in report.fixes if f.matters == "output")


def test_without_apply_fixes_the_settings_stay_and_the_weights_are_in():
    model, cell = randomized(Blocks()), BlocksCell()
    report = port(model, cell, X)
    assert report.R > 8
    assert "padding" in " ".join(f.what for f in report.findings)
    assert cell.conv.pad_mode == "same"
    assert torch.equal(values_of(cell)["fc.weight"], model.head.weight)
    assert output_error(model, cell, X) > 1e-3


@pytest.mark.parametrize("fused", [True, False])
def test_one_projection_or_three_and_loose_parameters(fused):
    model, cell = randomized(Attention()), AttentionCell(fused=fused)
    report = port(model, cell, TOKENS, apply_fixes=True)
    assert report.ok, report.findings
    assert output_error(model, cell, TOKENS) < 2e-6
    wheres = {r.cell_name: r.torch_name for r in report.mapping}
    assert wheres["gamma"] == "scale"
    assert wheres["pos_embed"] == "place"
    if not fused:
        assert wheres["k.weight"] == "attention.in_proj_weight[12:24]"


def test_three_projections_into_one():
    model, cell = randomized(Split()), FusedCell()
    report = port(model, cell, TOKENS)
    assert report.ok, report.findings
    assert output_error(model, cell, TOKENS) < 2e-6
    wheres = {r.cell_name: r.torch_name for r in report.mapping}
    assert wheres["qkv.bias"] == "query.bias + key.bias + value.bias"


def test_a_missing_bias_is_reported_as_impossible():
    model, cell = randomized(Blocks()), BlocksCell(bias=False)
    report = port(model, cell, X, apply_fixes=True)
    assert not report.ok
    assert report.left_out == ["right.bias"]
    assert any("1 bias has no place" in f.what for f in report.findings)
    assert "b.bias" not in values_of(cell)


def test_another_architecture_keeps_its_weights():
    cell = AttentionCell(fused=True)
    before = values_of(cell)
    other = nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 12))
    report = port(other, cell, torch.randn(2, 5, 12))
    assert not report.loaded
    assert "another architecture" in repr(report)
    after = values_of(cell)
    assert all(torch.equal(before[n], after[n]) for n in before)


def test_a_head_of_another_class_count_is_named():
    model, cell = randomized(Blocks()), BlocksCell(classes=7)
    report = port(model, cell, X, apply_fixes=True)
    assert not report.ok
    assert set(report.left_out) == {"head.weight", "head.bias"}
    assert set(report.unfilled) == {"fc.weight", "fc.bias"}


@pytest.mark.parametrize("suffix", [".ckpt", ".safetensors"])
def test_the_file_loads_into_mindspore(tmp_path, suffix):
    model, cell = randomized(Blocks()), BlocksCell()
    report = port(model, cell, X, out=tmp_path / f"x{suffix}", apply_fixes=True)
    assert report.path == tmp_path / f"x{suffix}"
    other = BlocksCell()
    form = suffix[1:]
    held = ms.load_checkpoint(str(report.path), format=form)
    missing, unexpected = ms.load_param_into_net(other, held)
    assert not missing
    assert not unexpected
    assert all(torch.equal(a, values_of(other)[n]) for n, a in values_of(cell).items())


def test_the_model_is_not_changed_and_train_flags_stay():
    model, cell = Blocks().train(), BlocksCell()
    cell.set_train(True)
    before = copy.deepcopy(model.state_dict())
    port(model, cell, X)
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())
    assert model.training
    assert cell.training
    assert cell.bn.training


def test_half_precision_and_nan_weights():
    model = randomized(Blocks())
    model.head.weight.data[0, 0] = float("nan")
    report = port(model, BlocksCell(), X, apply_fixes=True)
    held = values_of_names(report)
    assert held["fc.weight"] == "head.weight"


def values_of_names(report):
    """Return which tensor went where."""
    return {r.cell_name: r.torch_name for r in report.mapping}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((nn.Linear(2, 2), ms.nn.Dense(2, 2)), "no inputs"),
        ((3, ms.nn.Dense(2, 2), torch.ones(1, 2)), "not a torch.nn.Module"),
        ((nn.Linear(2, 2), nn.Linear(2, 2), torch.ones(1, 2)), "not a mindspore.nn.Cell"),
        ((nn.Linear(2, 2), ms.nn.Dense(2, 2), torch.ones(1, 3)), "PyTorch network raised"),
        ((nn.Linear(2, 2), ms.nn.Dense(3, 2), torch.ones(1, 2)), "MindSpore network raised"),
    ],
)
def test_bad_arguments(arguments, said):
    with pytest.raises(MigrateError, match=said):
        port(*arguments)


def test_out_without_a_format(tmp_path):
    with pytest.raises(MigrateError, match="says no format"):
        port(nn.Linear(2, 2), ms.nn.Dense(2, 2), torch.ones(1, 2), out=tmp_path / "x.bin")


def test_the_report_reads_well(tmp_path):
    report = port(randomized(Blocks()), BlocksCell(), X)
    assert list(report.to_frame().columns)[:2] == ["torch", "mindspore"]
    assert len(report.fixes_frame()) == len(report.fixes)
    html = report._repr_html_()
    assert "Settings that differ" in html
    assert "MaxPool2d" in html
    assert mk.open_project is not None
