"""The rehearsal on the command line."""

import csv
import json

import pytest
from typer.testing import CliRunner

from migrate_kit.cli import app

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, ["rehearse", *map(str, arguments)])


@pytest.fixture
def opened(folder, write, monkeypatch, tmp_path):
    monkeypatch.setenv("MIGRATE_KIT_RESULTS", str(tmp_path / "results"))
    write()
    return folder


def test_nothing_is_refused(opened, tmp_path):
    found = run("-p", opened, "--csv", tmp_path / "ops.csv")
    assert found.exit_code == 0, found.output
    assert "rehearsed on CPU; no NPU was used" in found.output
    assert "HF32" in found.output
    rows = list(csv.DictReader((tmp_path / "ops.csv").read_text().splitlines()))
    assert "aten.convolution.default" in {row["op"] for row in rows}
    assert "operator " not in found.output
    every = run("-p", opened, "--all", "--no-numbers").output
    assert "aten.convolution.default" in every
    assert "HF32" not in every


def test_the_plain_run_is_kept_and_its_noise_used_again(opened, tmp_path, monkeypatch):
    first = run("-p", opened).output
    kept = tmp_path / "results" / "rehearsal"
    json.loads((kept / "index.json").read_text())

    def again(_):
        raise AssertionError("a second float64 run")

    monkeypatch.setattr("migrate_kit.dtypes.baseline.noise_floor", again)
    assert run("-p", opened).output == first
    assert (kept / "noise.json").is_file()


def test_a_refusal_is_exit_code_1(opened):
    net = opened / "net.py"
    net.write_text(
        net.read_text() + "\nbuild_ = build\ndef build(**k):\n"
        "    return torch.nn.Sequential(Cast(), build_(**k).bfloat16())\n"
        "class Cast(torch.nn.Module):\n    def forward(self, x):\n        return x.bfloat16()\n"
    )
    found = run("-p", opened, "--target", "Ascend310P3", "--no-numbers")
    assert found.exit_code == 1, found.output
    assert (
        "error: ascend310p has no kernel for aten.convolution.default on bfloat16" in found.output
    )
    assert run("-p", opened, "--target", "ascend910b", "--no-numbers").exit_code == 0
