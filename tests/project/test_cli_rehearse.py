"""The rehearsal on the command line."""

import csv
import json

import pytest
from typer.testing import CliRunner

from migrate_kit import cli_text
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


def test_a_target_that_anothers_tables_answer_for_is_said_first(opened):
    lines = run("-p", opened, "--target", "ascend910_93", "--no-numbers").output.splitlines()
    assert lines[0].startswith("Rehearsal(ascend910_93 as ascend910b, ")
    assert lines[1].startswith("warning: ascend910_93 (Atlas A3")
    assert "answered by" not in run("-p", opened, "--target", "Ascend310P3", "--no-numbers").output


def test_in_a_pipe_a_finding_is_one_line_and_a_minus_can_be_typed(opened):
    found = run("-p", opened, "--all")
    assert "\N{MINUS SIGN}" not in found.output
    lines = found.output.splitlines()
    assert all(not line.startswith(" ") for line in lines)
    assert any(len(line) > 120 for line in lines)


def test_at_a_terminal_lines_are_folded_between_words(opened, monkeypatch):
    plain = run("-p", opened, "--all", "--backward").output

    class Terminal:
        def isatty(self):
            return True

    class System:
        stdout = Terminal()

    monkeypatch.setattr(cli_text, "sys", System)
    monkeypatch.setenv("COLUMNS", "80")
    folded = run("-p", opened, "--all", "--backward").output
    assert max(map(len, plain.splitlines())) > 80
    assert max(map(len, folded.splitlines())) <= 80
    assert folded.split() == plain.split()


def test_every_operator_says_how_many_tensors_it_takes_and_whether_it_goes_back(opened):
    lines = run("-p", opened, "--all", "--backward", "--no-numbers").output.splitlines()
    table = [line for line in lines if line.startswith("aten.")]
    (back,) = [line for line in table if line.startswith("aten.convolution_backward")]
    assert "(backward)" in back
    assert "3xfloat32" in back
