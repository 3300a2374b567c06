"""Networks with modules around or inside them that run elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import migrate_kit as mk

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
