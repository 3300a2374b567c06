"""The stand-alone script lists what a model runs."""

import csv
import runpy
import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch import nn

import migrate_kit as mk
from tests.dtypes.networks import UNet

SCRIPT = mk.snippet("operator_list").path
NET = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.ReLU())

def with_inputs():
    return build(), (torch.ones(1, 3, 5, 5),)

def embedding():
    return torch.nn.Embedding(4, 2)
"""


@pytest.fixture(scope="module")
def operator_list():
    return runpy.run_path(str(SCRIPT))["operator_list"]


def run(folder, *arguments):
    (folder / "net.py").write_text(NET)
    command = [sys.executable, "-I", str(SCRIPT), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_it_runs_alone_and_writes_the_list(tmp_path):
    done = run(tmp_path, "net:build", "1x3x5x5")
    assert done.stdout == "2 rows, 3 calls: operators.csv\n", done.stderr
    kernel = "float32 float32 float32"
    assert read(tmp_path / "operators.csv") == [
        ["operator", "dtypes", "shapes", "results", "calls"],
        ["aten.convolution.default", kernel, "1x3x5x5 4x3x3x3 4", "float32", "1"],
        ["aten.relu.default", "float32", "1x4x3x3", "float32", "2"],
    ]


def test_the_builder_may_give_the_inputs_and_the_backward_is_listed_too(tmp_path):
    done = run(tmp_path, "net:with_inputs", "--backward", "--out", "all.csv")
    assert done.returncode == 0, done.stderr
    rows = {row[0]: row for row in read(tmp_path / "all.csv")}
    assert rows["aten.convolution_backward.default"][3] == "float32 float32"
    assert rows["aten.threshold_backward.default"][4] == "2"


def test_a_shape_may_name_its_dtype(tmp_path):
    done = run(tmp_path, "net:embedding", "2x3:int64", "--out", "e.csv")
    assert done.returncode == 0, done.stderr
    row = read(tmp_path / "e.csv")[1]
    assert row == ["aten.embedding.default", "float32 int64", "4x2 2x3", "float32", "1"]


def test_wrong_use_shows_how(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2
    assert "package.module:function" in done.stderr


def test_it_counts_what_a_rehearsal_counts(operator_list):
    model, x = UNet().eval(), torch.ones(1, 3, 16, 16)
    rehearsed = Counter()
    for row in mk.rehearse(model, x, numbers=False).rows:
        rehearsed[row.op] += row.count
    listed = Counter()
    for op, _, _, _, calls in operator_list(model, x):
        listed[op] += calls
    assert rehearsed["aten.convolution.default"] == 4
    assert {op: listed[op] for op in rehearsed} == dict(rehearsed)


def test_an_encoder_layer_is_not_one_kernel(operator_list):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    listed = {row[0] for row in operator_list(layer, torch.ones(1, 3, 8))}
    assert "aten.native_layer_norm.default" in listed
    assert not any("_transformer_encoder_layer_fwd" in op for op in listed)
    assert torch.backends.mha.get_fastpath_enabled()


def test_no_gradients_are_left(operator_list):
    model = nn.Linear(2, 2)
    assert len(operator_list(model, torch.ones(1, 2), backward=True)) > 3
    assert model.weight.grad is None
