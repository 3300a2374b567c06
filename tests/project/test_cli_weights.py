"""Files of weights on the command line."""

import struct

import pytest
import torch
from typer.testing import CliRunner

from migrate_kit import cli_weights
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.write import FORMATS
from migrate_kit.cli import app
from migrate_kit.cli_text import spoken
from migrate_kit.errors import MigrateError
from migrate_kit.model import find_builder

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, [*map(str, arguments)])


@pytest.fixture
def state(folder):
    return find_builder("net:build", folder, "")().state_dict()


def test_the_formats_are_those_there_are():
    assert cli_weights.FORMATS == FORMATS


def test_a_file_is_listed_and_written_again(folder, state):
    saved = {"epoch": 3, "state_dict": state, "ema": {k: v + 1 for k, v in state.items()}}
    torch.save(saved, folder / "w.pth")
    found = run("checkpoint", folder / "w.pth", "--out", folder / "w.safetensors")
    assert found.exit_code == 0, found.output
    assert "w.safetensors (safetensors)" in found.output
    assert "training checkpoint, torch zip: 4 tensors" in found.output
    assert "0.weight" in found.output
    written = load_checkpoint(folder / "w.safetensors")
    assert written.format == "safetensors"
    assert torch.equal(written.state_dict["4.bias"], state["4.bias"])
    run(
        "checkpoint",
        folder / "w.pth",
        "--part",
        "ema",
        "--out",
        folder / "e.pth",
        "--format",
        "torch",
    )
    assert torch.equal(load_checkpoint(folder / "e.pth").state_dict["4.bias"], state["4.bias"] + 1)
    missing = run("checkpoint", folder / "w.pth", "--part", "emma")
    assert "did you mean 'ema'" in str(missing.exception)


def test_weights_that_fit(folder, write, state):
    torch.save(state, folder / "w.pth")
    write(model='builder = "net:build"\nweights = "w.pth"')
    found = run("diagnose", "-p", folder)
    assert found.exit_code == 0, found.output
    assert "loads as it is" in found.output


def test_weights_that_do_not_fit_are_repaired(folder, write, state):
    torch.save({"module.net." + k: v + 1 for k, v in state.items()}, folder / "w.pth")
    write(model='builder = "net:build"\nweights = "w.pth"')
    found = run("diagnose", "-p", folder, "--out", folder / "fits.pth")
    assert found.exit_code == 1, found.output
    assert found.output.startswith("model: ")
    assert "migration.toml" in found.output.splitlines()[0]
    assert "does not load as it is; --out FILE writes what does" in found.output
    assert "fits.pth (torch)" in found.output
    assert torch.load(folder / "fits.pth", weights_only=True)
    assert "module.net.0.weight" in found.output
    fitting = load_checkpoint(folder / "fits.pth").state_dict
    assert all(torch.equal(fitting[k], v + 1) for k, v in state.items())


def test_another_set_and_another_head_on_the_command_line(folder, write, state):
    other = {k: v + 2 for k, v in state.items()}
    last = {k: v[:1] for k, v in state.items() if k.startswith("4.")}
    torch.save({"state_dict": state | last, "ema": other | last}, folder / "w.pth")
    write(model='builder = "net:build"\nweights = "w.pth"')
    refused = run("diagnose", "-p", folder, "--out", folder / "no.pth")
    assert isinstance(refused.exception, MigrateError)
    assert "--head keep" in str(refused.exception)
    assert "repair(" not in str(refused.exception) + refused.output
    assert not (folder / "no.pth").exists()
    given = ["--part", "ema", "--head", "keep", "--out", folder / "ok.pth"]
    found = run("diagnose", "-p", folder, *given)
    assert found.exit_code == 1, found.output
    kept = load_checkpoint(folder / "ok.pth").state_dict
    assert torch.equal(kept["0.weight"], other["0.weight"])
    assert kept["4.weight"].shape == state["4.weight"].shape


def test_the_sample_is_named_where_no_project_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.ones(1)}, "w.pth")
    found = run("diagnose", "w.pth")
    assert "(sample; no migration.toml found)" in found.output.splitlines()[0]


def test_a_wrong_format_is_refused_before_the_report(folder, state):
    torch.save(state, folder / "w.pth")
    for given in (["--format", "torhc"], ["--out", folder / "a.dat"]):
        found = run("checkpoint", folder / "w.pth", *given)
        assert isinstance(found.exception, MigrateError)
        assert "--format" in str(found.exception)
        assert not found.output


def test_advice_is_for_the_command_line():
    python = {
        'repair(head="keep")': "--head keep",
        'mk.repair(positions="resize", head="keep")': "--positions resize --head keep",
        "take another with checkpoint.parts[name]": "take another with --part NAME",
        "pass cfg=, or": "pass --cfg, or",
        "format=": "--format",
        "a tensor of 3=4": "a tensor of 3=4",
    }
    assert {text: spoken(text) for text in python} == python


def test_a_project_without_weights_needs_a_file(folder, write):
    write()
    assert "names no weights" in str(run("diagnose", "-p", folder).exception)


def test_a_conversion_says_what_proves_it(tmp_path):
    text = "[net]\nchannels=1\nheight=2\nwidth=2\n[convolutional]\nactivation=linear\n"
    (tmp_path / "tiny.cfg").write_text(text)
    values = struct.pack("<3iq2f", 0, 2, 5, 64, 0.5, 2.0)
    (tmp_path / "tiny.weights").write_bytes(values)
    found = run("convert", "yolov3", tmp_path / "tiny.weights", "--out", tmp_path / "tiny.pth")
    assert found.exit_code == 0, found.output
    assert "OpenCV" in found.output
    written = torch.load(tmp_path / "tiny.pth", weights_only=True)
    assert written["models.0.conv1.weight"].item() == 2.0
