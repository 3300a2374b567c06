"""Programs, scripts and probes that hang, shout, fail or are called something odd."""

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from migrate_kit.environment import probes
from migrate_kit.environment.commands import run
from migrate_kit.environment.devices import ask
from migrate_kit.environment.set_env import source, source_all

ODD = ["plain.sh", "a b.sh", "$(touch hit).sh", "'; touch hit; '.sh", "-n.sh", "new\nline.sh"]


def alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{number}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_arguments_are_not_read_by_a_shell(tmp_path):
    answer = run([sys.executable, "-c", "import sys; print(sys.argv[1])", "$(id); `id`"], 20)
    assert (answer.code, answer.out) == (0, "$(id); `id`\n")


def test_what_hangs_is_ended_with_its_children(tmp_path):
    note = tmp_path / "child"
    code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"open({str(note)!r}, 'w').write(str(p.pid)); print('begun', flush=True); time.sleep(600)"
    )
    answer = run([sys.executable, "-c", code], 3.0)
    assert answer.code is None
    assert "no answer within 3 s" in answer.err
    assert answer.out == "begun\n"
    child = int(note.read_text())
    until = time.monotonic() + 10
    while alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(child)


def test_a_child_that_keeps_the_pipe_does_not_keep_us():
    code = (
        "import subprocess, sys;"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print('done')"
    )
    answer = run([sys.executable, "-c", code], 30.0)
    assert (answer.code, answer.out) == (0, "done\n")
    assert answer.seconds < 25


def test_of_a_flood_both_ends_are_kept():
    code = "print('first'); print('x' * 5_000_000); print('last')"
    answer = run([sys.executable, "-c", code], 30.0, most=1000)
    assert answer.out.startswith("first\n")
    assert answer.out.endswith("last\n")
    assert "bytes left out" in answer.out
    assert len(answer.out) < 1200


def test_what_is_not_there_is_an_answer():
    assert "cannot be started" in run(["/no/such/program"], 1.0).err
    assert run([sys.executable, "-c", "raise SystemExit(7)"], 20).code == 7


@pytest.mark.parametrize("name", ODD)
def test_a_script_with_an_odd_name_is_sourced_and_no_more(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / name
    script.write_text("echo noise; export ONE=\"a $HOME b\"; export TWO='x\ny'; cd /; false\n")
    before = {"HOME": "/home/ma-user", "PATH": os.environ["PATH"], "KEPT": "1"}
    found = source(str(script), before)
    assert found.changes == {"ONE": "a /home/ma-user b", "TWO": "x\ny"}
    assert found.code == 1
    assert not list(tmp_path.glob("hit*"))


def test_a_script_may_spoil_path_and_still_be_read(tmp_path):
    script = tmp_path / "set_env.sh"
    script.write_text("export PATH=/nowhere\n")
    assert source(str(script)).changes == {"PATH": "/nowhere"}


def test_a_script_that_hangs_or_exits_says_so(tmp_path):
    hangs, leaves = tmp_path / "hangs.sh", tmp_path / "leaves.sh"
    hangs.write_text("sleep 600\n")
    leaves.write_text("exit 3\n")
    assert "no answer" in source(str(hangs), seconds=1.0).problem
    assert source(str(leaves)).problem
    assert source(str(tmp_path / "absent.sh")).problem


def test_scripts_build_on_each_other_and_nnal_gets_the_abi(tmp_path):
    first, second = tmp_path / "toolkit.sh", tmp_path / "nnal" / "set_env.sh"
    second.parent.mkdir()
    first.write_text("export LD_LIBRARY_PATH=/one:$LD_LIBRARY_PATH\n")
    second.write_text('export LD_LIBRARY_PATH=/two:$LD_LIBRARY_PATH\nexport ABI="$*"\n')
    base = {"LD_LIBRARY_PATH": "/zero", "PATH": os.environ["PATH"]}
    found = source_all([str(first), str(second)], "1", base)
    assert found[str(second)].changes == {
        "ABI": "--cxx_abi=1",
        "LD_LIBRARY_PATH": "/two:/one:/zero",
    }


def test_a_vendors_program_is_asked_by_its_path(tmp_path, monkeypatch):
    fake = tmp_path / "npu-smi"
    fake.write_text(f"#!{sys.executable}\nimport sys; print(sys.argv[1:])\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = ask("npu-smi", 20.0)
    assert (answer.path, answer.code, answer.out) == (str(fake), 0, "['info']\n")
    assert ask("cnmon", 5.0) is None


def program(text):
    return probes.Program("x", text)


def test_a_probe_says_what_it_printed():
    found = probes.probe(program("say(version='1', count=2)"), 20.0)
    assert (found.code, found.said, found.error) == (0, {"version": "1", "count": "2"}, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os; os.abort()", "ended by signal 6"),
        ("import time; time.sleep(600)", "no answer within 3 s"),
        ("pass", "exit code 0"),
        ("raise SystemExit(4)", "exit code 4"),
    ],
)
def test_a_probe_that_fails_says_how(text, said):
    found = probes.probe(program(text), 3.0)
    assert found.error == said
    assert found.said == {}


def test_a_probe_that_prints_rubbish_is_no_success():
    text = f"print({probes._MARK!r} + '[1, 2')\nprint({probes._MARK!r} + '[]')"
    assert probes.probe(program(text), 20.0).error


def test_plug_ins_are_tried_both_ways():
    chosen = {n: p.environ for n, p in probes.PROGRAMS.items() if p.package == "torch"}
    assert [e["TORCH_DEVICE_BACKEND_AUTOLOAD"] for e in chosen.values()] == ["1", "0"]


def test_only_installed_packages_are_probed():
    found, others = probes.run_all(["onnxruntime"], 60.0, {"four": lambda: 4})
    assert set(found) == {"onnxruntime"}
    assert found["onnxruntime"].code == 0
    assert others == {"four": 4}


def test_quoting_of_this_file_is_sound():
    assert all(shlex.split(shlex.quote(name)) == [name] for name in ODD)
