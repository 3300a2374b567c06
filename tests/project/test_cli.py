"""The command line says in its exit code what it found."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from migrate_kit.cli import app

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, [str(a) for a in arguments])


def test_the_walk(folder, write):
    write(more='[labels]\nlist = ["cat", "dog"]')
    shown = run("project", "-p", folder)
    assert shown.exit_code == 0
    assert "net:build" in shown.output
    assert "cat 0." in shown.output
    for name in ("a", "b"):
        assert run("capture", folder / name, "-p", folder).exit_code == 0
    same = run("compare", folder / "a", folder / "b")
    assert same.exit_code == 0, same.output
    net = folder / "net.py"
    net.write_text(
        net.read_text() + "\nbuild_ = build\ndef build(**k):\n    m = build_(**k)\n"
        "    m[0].weight.data[0] *= 1.5\n    return m\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "migrate_kit.cli", "capture", "c", "-p", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    differs = run("compare", folder / "a", folder / "c")
    assert differs.exit_code == 1
    assert differs.output.splitlines()[2].startswith("0 ")  # the first convolution
    assert len(run("compare", folder / "a", folder / "c", "--all").output) > len(differs.output)


def test_layers_without_a_counterpart_are_counted_not_dropped(folder, write):
    net = folder / "net.py"
    net.write_text(
        net.read_text()
        + """
def longer():
    model = build()
    model.add_module("9", torch.nn.Identity())
    return model
"""
    )
    assert run("capture", folder / "a", "-p", write()).exit_code == 0
    other = write(model='builder = "net:longer"')
    assert run("capture", folder / "b", "-p", other).exit_code == 0
    shown = run("compare", folder / "a", folder / "b").output
    assert "1 without a counterpart" in shown
    assert any(
        line.startswith("9 ") and "unpaired" in line
        for line in run("compare", folder / "a", folder / "b", "--all").output.splitlines()
    )


def test_init_and_project(tmp_path):
    done = run("init", tmp_path)
    assert done.exit_code == 0
    assert (tmp_path / "migration.toml").exists()
    assert run("project", "-p", tmp_path, "--no-run").exit_code == 0


@pytest.mark.parametrize("verb", [["project", "-p", "nowhere"], ["compare", "a", "b"]])
def test_a_users_error_is_three_lines_and_exit_code_2(verb, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "migrate_kit.cli", *verb],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 3
    assert "Traceback" not in done.stderr


def test_a_model_that_does_not_fit_its_inputs(write):
    file = write(inputs="shape = [1, 5, 8, 8]")
    done = run("project", "-p", file)
    assert "does not run on these inputs" in str(done.exception)
