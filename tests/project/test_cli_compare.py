"""What the command line says of two traces, and of the rounding kept beside them."""

import json
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import migrate_kit as mk
from migrate_kit import cli
from migrate_kit.errors import MigrateError

runner = CliRunner()


def run(*arguments):
    return runner.invoke(cli.app, [str(a) for a in arguments])


def network(shift=0.0):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    with torch.no_grad():
        model[0].bias.add_(shift)
    return model


@pytest.fixture
def traces(tmp_path):
    """Two traces that differ from the first layer on, and the yardstick of the first."""
    x = torch.from_numpy(np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8))
    mk.capture(network(), x, store=tmp_path / "a")
    mk.capture(network(0.5), x, store=tmp_path / "b")
    mk.noise_floor(network(), x).to_file(tmp_path / "noise.json")
    return tmp_path


def altered(file, **values):
    """Return a sound noise file's text with these values in every layer."""
    kept = json.loads(file.read_text())
    kept["layers"] = [[c, n, v | values] for c, n, v in kept["layers"]]
    return json.dumps(kept)


def test_the_help_states_the_exit_codes():
    text = " ".join(run("compare", "--help").output.split())
    for code, meaning in enumerate(["the same", "they differ", "wrong use", "a fault"]):
        assert f"{code} {meaning}" in text
    assert (cli.DIFFERS, cli.WRONG_USE, cli.BROKEN) == (1, 2, 3)


def test_a_fault_of_the_program_is_exit_code_3(traces, monkeypatch, capsys):
    def fail(*_, **__):
        raise RuntimeError("planted")

    monkeypatch.setattr(mk, "compare", fail)
    monkeypatch.setattr(sys, "argv", ["migrate-kit", "compare", *map(str, traces.glob("[ab]"))])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 3
    assert "RuntimeError: planted" in capsys.readouterr().err


def test_an_error_that_quotes_a_stranger_stays_three_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["migrate-kit", "compare", "a\x1b[31m", "b"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert len(said.splitlines()) == 3
    assert "\x1b" not in said
    assert "[31m" in said


def test_without_a_noise_file_the_reader_is_told(traces):
    done = run("compare", traces / "a", traces / "b")
    assert done.exit_code == 1
    assert done.output.splitlines()[1].startswith("no noise.json in ")


def test_the_references_noise_is_used_the_candidates_is_not(traces):
    noise = (traces / "noise.json").read_text()
    (traces / "b" / "noise.json").write_text(noise)
    assert "is assumed" in run("compare", traces / "a", traces / "b").output
    (traces / "a" / "noise.json").write_text(noise)
    output = run("compare", traces / "a", traces / "b").output
    assert f"judged by the rounding measured in {traces / 'a' / 'noise.json'}" in output


def test_a_named_noise_file_goes_before_the_references_own(traces):
    (traces / "a" / "noise.json").write_text("damaged")
    named = run("compare", traces / "a", traces / "b", "--noise", traces / "noise.json")
    assert named.exit_code == 1
    assert f"measured in {traces / 'noise.json'}" in named.output


def test_another_networks_noise_is_told(traces):
    text = (traces / "noise.json").read_text()
    kept = json.loads(text)
    kept["layers"] = [[c, f"other.{n}", v] for c, n, v in kept["layers"]]
    (traces / "a" / "noise.json").write_text(json.dumps(kept))
    output = run("compare", traces / "a", traces / "b").output
    assert "warning: the noise floor knows 0 of 3 layers" in output


@pytest.mark.parametrize(
    "values", [{"norm": float("nan")}, {"error": float("nan")}, {"error": 1e9}, {"error": 0.0}]
)
def test_a_noise_file_of_no_use_hides_no_difference(traces, values):
    (traces / "a" / "noise.json").write_text(altered(traces / "noise.json", **values))
    assert run("compare", traces / "a", traces / "b").exit_code == 1
    assert run("compare", traces / "a", traces / "a").exit_code == 0


HOSTILE = {
    "empty": b"",
    "bytes": b"\xff\xfe\x00",
    "a list": b"[]",
    "a number": b"3",
    "deep": b"[" * 200_000,
    "digits": b"9" * 100_000,
    "no layers": b'{"format": "migrate-kit-noise", "dtype": "float32"}',
    "other format": b'{"format": "x", "dtype": "float32", "layers": []}',
    "other dtype": b'{"format": "migrate-kit-noise", "dtype": "os.system", "layers": []}',
    "no dtype": b'{"format": "migrate-kit-noise", "dtype": null, "layers": []}',
    "short layer": b'{"format": "migrate-kit-noise", "dtype": "float32", "layers": [["a"]]}',
    "layers": b'{"format": "migrate-kit-noise", "dtype": "float32", "layers": 7}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_noise_file_from_anybody_is_one_clear_error(traces, name):
    (traces / "a" / "noise.json").write_bytes(HOSTILE[name])
    error = run("compare", traces / "a", traces / "b").exception
    assert isinstance(error, MigrateError)
    assert error.where == str(traces / "a" / "noise.json")


@pytest.mark.parametrize(
    "values",
    [
        {"error": -1.0},
        {"error": float("inf")},
        {"norm": -1.0},
        {"error": "<b>"},
        {"error": 10**400},
        {"numel": float("inf")},
        {"numel": None},
    ],
)
def test_a_noise_file_with_impossible_numbers(traces, values):
    (traces / "x.json").write_text(altered(traces / "noise.json", **values))
    error = run("compare", traces / "a", traces / "b", "--noise", traces / "x.json").exception
    assert isinstance(error, MigrateError)
    assert "not a noise floor" in error.what


@pytest.mark.parametrize("where", ["nowhere.json", "a"])
def test_a_noise_file_that_is_not_there(traces, where):
    done = run("compare", traces / "a", traces / "b", "--noise", traces / where)
    assert isinstance(done.exception, MigrateError)


def test_why_nothing_was_measured_is_one_line(folder, write):
    net = folder / "stubborn.py"  # a name of its own: net.py is imported already
    net.write_text(
        """
import torch

class Single(torch.nn.Module):
    def forward(self, x):
        if x.dtype == torch.float64:
            raise RuntimeError("single precision only:\\n  \\x1b[31mgot double")
        return x * 2
"""
    )
    write(model='builder = "stubborn:Single"')
    done = run("capture", folder / "s", "-p", folder)
    assert done.exit_code == 0
    assert not (folder / "s" / "noise.json").exists()
    said = done.output.splitlines()
    assert len(said) == 2
    assert "could not be measured" in said[1]
    assert "got double" in said[1]
    assert "\x1b" not in said[1]
