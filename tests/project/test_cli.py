"""The command line says in its exit code what it found."""

import os
import subprocess
import sys
from pathlib import Path

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
    lines = differs.output.splitlines()
    assert lines[1].startswith("judged by the rounding measured in")
    assert lines[3].startswith("0 ")  # the first convolution
    assert "origin" not in lines[2]  # no model is in memory, so nothing is known of it
    assert any(line.startswith("error: the runs part at '0'") for line in lines)
    everything = run("compare", folder / "a", folder / "c", "--all").output
    assert len(everything) > len(differs.output)


def test_noise_is_measured_kept_and_used(folder, write):
    write()
    assert run("capture", folder / "a", "-p", folder).exit_code == 0
    assert (folder / "a" / "noise.json").is_file()
    assert run("capture", folder / "b", "-p", folder, "--no-noise").exit_code == 0
    assert not (folder / "b" / "noise.json").exists()
    assert "is assumed" in run("compare", folder / "b", folder / "a").output
    named = run("compare", folder / "b", folder / "a", "--noise", folder / "a" / "noise.json")
    assert named.exit_code == 0
    assert "is assumed" not in named.output
    # A trace is only ever replaced by a trace, and its old noise goes with it.
    assert run("capture", folder / "a", "-p", folder, "--no-noise").exit_code == 0
    assert not (folder / "a" / "noise.json").exists()


def test_a_noise_file_that_is_none(folder, write):
    write()
    run("capture", folder / "a", "-p", folder)
    (folder / "a" / "noise.json").write_text("[]")
    assert "not a noise floor" in str(run("compare", folder / "a", folder / "a").exception)


def test_a_model_that_cannot_run_in_float64_is_captured_all_the_same(folder, write):
    write()
    net = folder / "net.py"
    net.write_text(
        net.read_text()
        + """
class Single(torch.nn.Module):
    def forward(self, x):
        if x.dtype == torch.float64:
            raise RuntimeError("float32 only")
        return x * 2

def build():
    return Single()
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "migrate_kit.cli", "capture", "s", "-p", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "could not be measured" in done.stdout


def test_only_the_first_flagged_layers_are_listed(folder, write):
    write()
    net = folder / "net.py"
    deep = """
def build(shift=0.0):
    torch.manual_seed(1)
    layers = [torch.nn.Conv2d(3, 3, 1) for _ in range(14)]
    layers[0].bias.data += shift
    return torch.nn.Sequential(*layers)

def shifted():
    return build(1.0)
"""
    net.write_text(net.read_text() + deep)
    for name, builder in (("deep", "build"), ("other", "shifted")):
        write(model=f'builder = "net:{builder}"')
        command = [sys.executable, "-m", "migrate_kit.cli", "capture", name, "-p", "."]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    shown = run("compare", folder / "deep", folder / "other").output
    assert "5 more are flagged" in shown


def test_version():
    import migrate_kit

    assert run("--version").output == f"migrate-kit {migrate_kit.__version__}\n"


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
    assert done.exception.where == f"{file}, [[inputs]]: number 1 is float32 (1, 5, 8, 8)"


FAULTY = Path(__file__).parents[2] / "data" / "environments" / "torch_npu-2.9.0.json"


def test_the_doctor_judges_a_snapshot(tmp_path):
    done = run("doctor", "ascend910b", "--facts", FAULTY, "--save", tmp_path / "again.json")
    assert done.exit_code == 1
    assert "58 symbols" in done.output
    again = run("doctor", "ascend910b", "--facts", tmp_path / "again.json")
    assert done.output.startswith(again.output)
    assert len(run("doctor", "--facts", FAULTY, "--all").output) > len(again.output)


def test_the_doctor_writes_a_script(tmp_path, monkeypatch):
    done = run("doctor", "--facts", FAULTY, "--env-script", tmp_path / "env.sh")
    assert done.exit_code == 1
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" in (tmp_path / "env.sh").read_text()


def test_the_doctor_says_whether_the_target_can_run_here():
    done = run("doctor", "ascend910b", "--no-probes")
    assert (done.exit_code, "not to run on it: no NPU" in done.output) == (4, True)
    assert run("doctor", "910b", "--no-probes", "--rehearse").exit_code == 0
    assert run("doctor", "--no-probes").exit_code == 0


def test_the_doctor_takes_the_script_to_write_from(tmp_path):
    script = tmp_path / "set_env.sh"
    script.write_text("export ASCEND_HOME_PATH=/x\n")
    kept = tmp_path / "env.sh"
    done = run("doctor", "--no-probes", "--env-script", kept, "--set-env", script)
    assert done.exit_code == 0
    assert "export ASCEND_HOME_PATH=/x" in kept.read_text()
    # What cannot be written is told before anything else, with the option to add.
    missing = run("doctor", "--no-probes", "--kernel", "x")
    assert missing.output == ""
    assert "there are no variables to set" in missing.exception.what
    assert "--set-env" in missing.exception.fix
    assert "--env-script" in run("doctor", "--no-probes", "--set-env", script).exception.fix


def test_a_message_in_place_of_a_file_is_told_how_to_be_piped_in():
    assert "| migrate-kit explain -" in run("explain", "RuntimeError: no").exception.fix
    assert "there" in run("explain", "absent.log").exception.fix


def test_explain_a_log_and_what_is_piped_in(tmp_path):
    log = tmp_path / "train.log"
    text = "step 1\nAttributeError: 'collections.OrderedDict' object has no attribute 'eval'\n"
    log.write_text(text)
    from_file = run("explain", log)
    assert from_file.exit_code == 0
    assert from_file.output.startswith("SCR02, line 2: ")
    assert "  fix" in from_file.output
    piped = runner.invoke(app, ["explain", "-"], input=text)
    assert piped.output == from_file.output
    assert run("explain", log, "--language", "zh").output != from_file.output


def test_explain_says_when_it_does_not_know(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("fine\nValueError: my \x1b[31mown\x1b[0m check\n")
    done = run("explain", log)
    assert done.exit_code == 1
    assert "nothing in this text is known" in done.output
    assert "line 2: ValueError: my own check" in done.output
    assert "\x1b" not in done.output


def program(rest, **environ):
    """Run the program itself through a shell, with its streams as they are there."""
    return subprocess.run(
        ["bash", "-c", f'"$1" -m migrate_kit.cli {rest}', "bash", sys.executable],
        capture_output=True,
        check=False,
        env=os.environ | environ,
        timeout=120,
    )


@pytest.mark.parametrize("encoding", ["gbk", "latin-1"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_terminal_of_few_letters_gets_the_answer_too(tmp_path, encoding, language):
    log = tmp_path / "a.log"
    known = "AttributeError: 'collections.OrderedDict' object has no attribute 'eval'"
    log.write_text(f"{'x' * 40}\n\x02 é {known}\n")
    done = program(f"explain {log} --language {language}", PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    where = {"en": "line 2", "zh": "\\u7b2c 2" if encoding == "latin-1" else "第 2 行"}[language]
    assert done.stdout.decode(encoding).startswith(f"SCR02, {where}")


def test_a_file_name_that_is_no_utf8_is_printed_all_the_same(tmp_path):
    done = program(f"doctor --no-probes --save $'{tmp_path}/\\xff.json'", PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    assert b"kept in" in done.stdout
    assert [os.fsencode(p.name) for p in tmp_path.iterdir()] == [b"\xff.json"]


def test_a_closed_standard_input_is_told():
    done = program("explain - <&-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: nothing is piped in")


def test_a_pipe_in_place_of_a_snapshot_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = program(f"doctor --facts {tmp_path}/pipe")
    assert done.returncode == 2
    assert b"regular file" in done.stderr


def test_what_is_piped_in_is_explained():
    done = program("explain - <<< 'RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB'")
    assert done.returncode == 0
    assert done.stdout.startswith(b"MEM01, line 1")
