"""A cast to float64 by dtype alone is float32 on an NPU, and a rehearsal says so."""

import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.dtypes.support import LOWERED, TARGETS

REAL = torch.eye(4, dtype=torch.float64)


class Calls(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.layer, self.call = nn.Linear(4, 4), call

    def forward(self, x):
        return self.call(self.layer(x)).float()


def rows(call, *, target="ascend910b", backward=False):
    model, x = Calls(call), torch.ones(4, 4)
    return mk.rehearse(model, x, target=target, numbers=False, backward=backward)


def behind(x):
    y = x.double()
    return (y.view(2, 8).flatten().view(4, 4) @ y.t()).sin() + y.detach()


@pytest.mark.parametrize("target", TARGETS)
def test_what_follows_a_cast_is_judged_as_float32(target):
    found = rows(behind, target=target)
    lowered = [r for r in found.rows if LOWERED in r.dtypes.split()]
    assert {"aten.matmul.default", "aten.sin.default"} <= {r.op for r in lowered}
    assert not found.coverage["refused"]
    for row in lowered:
        assert row.kind == "view" or "lowered to float32" in row.note
    assert any("lowered to float32" in f.what and f.level == "warning" for f in found.findings)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.double() @ REAL,
        lambda x: x.to(x.device, torch.float64) @ REAL,
        lambda x: x.sum(0, dtype=torch.float64) @ REAL,
    ],
    ids=["meets a table", "device too", "dtype="],
)
def test_real_float64_is_refused(call):
    found = rows(call)
    (row,) = [r for r in found.rows if r.op == "aten.matmul.default"]
    assert row.status == "refused"
    assert row.dtypes.split()[1] == "float64"


def test_the_backward_is_float32_too():
    found = rows(behind, backward=True)
    assert any(LOWERED in r.dtypes for r in found.rows if r.backward)
    assert not found.coverage["refused"]
    assert not found.coverage["slow"]


def test_a_run_without_float64_says_nothing_of_it():
    assert not any("lowered" in f.what for f in rows(torch.sin).findings)
