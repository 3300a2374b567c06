"""Which set of tensors is taken of several, and what is refused although it could be done."""

import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.errors import MigrateError


def small():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def training_file(path, main_prefix="module.", second_prefix=""):
    """Write a file as training scripts do, with trained weights and their moving average."""
    main, second = small().state_dict(), small().state_dict()
    whole = {
        "epoch": 7,
        "state_dict": {main_prefix + k: v for k, v in main.items()},
        "state_dict_ema": {second_prefix + k: v for k, v in second.items()},
    }
    torch.save(whole, path)
    return whole, main, second


@pytest.mark.parametrize("second_prefix", ["", "module."])
@pytest.mark.parametrize("from_file", [True, False])
def test_the_trained_weights_come_before_their_average(tmp_path, second_prefix, from_file):
    path = tmp_path / "c.pth"
    whole, main, _ = training_file(path, second_prefix=second_prefix)
    report = mk.diagnose(small(), path if from_file else whole)
    repaired = report.repair()
    assert all(torch.equal(repaired[k], v) for k, v in main.items())


def test_another_set_is_taken_with_a_warning_and_its_code_runs(tmp_path):
    path = tmp_path / "c.pth"
    _, _, second = training_file(path, main_prefix="other.thing.")
    report = mk.diagnose(small(), path)
    assert any(f.level == "warning" and "is taken" in f.what for f in report.findings)
    code = report.code()
    model = small()
    exec(code, {"model": model, "path": path})  # noqa: S102 - our own code is what is tested
    assert all(torch.equal(model.state_dict()[k], v) for k, v in second.items())


def test_code_after_load_checkpoint_runs(tmp_path):
    path = tmp_path / "c.pth"
    _, main, _ = training_file(path)
    report = mk.diagnose(small(), mk.load_checkpoint(path).state_dict)
    model = small()
    exec(report.code(), {"model": model, "path": path})  # noqa: S102
    assert all(torch.equal(model.state_dict()[k], v) for k, v in main.items())


def test_keep_is_refused_where_nothing_fits():
    report = mk.diagnose(small(), {"a": torch.ones(17), "b": torch.ones(5, 5, 5)})
    assert not any("missing=" in f.fix for f in report.findings)
    with pytest.raises(MigrateError, match="none has one"):
        report.repair(missing="keep")


class Order(nn.Module):
    """Two layers of one shape, called in one order or the other."""

    def __init__(self, first, second):
        super().__init__()
        self.conv_a = nn.Linear(4, 4, bias=False)
        self.conv_b = nn.Linear(4, 4, bias=False)
        self.order = first, second

    def forward(self, x):
        one, two = (getattr(self, name) for name in self.order)
        return two(torch.relu(one(x)))


@pytest.mark.parametrize("x", [torch.zeros(2, 4), torch.full((2, 4), torch.nan)])
def test_an_input_that_shows_nothing_proves_little(x):
    original = Order("conv_a", "conv_b")
    report = mk.diagnose(Order("conv_b", "conv_a"), original.state_dict(), x, reference=original)
    assert any(f.level == "warning" and "proves little" in f.what for f in report.findings)


def test_a_real_input_finds_the_swap():
    original = Order("conv_a", "conv_b")
    report = mk.diagnose(
        Order("conv_b", "conv_a"), original.state_dict(), torch.randn(2, 4), reference=original
    )
    assert not any("proves little" in f.what for f in report.findings)
    fixed = Order("conv_b", "conv_a")
    fixed.load_state_dict(report.repair())
    x = torch.randn(3, 4)
    assert torch.allclose(fixed(x), original(x), atol=1e-5)
