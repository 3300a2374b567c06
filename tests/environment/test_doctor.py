"""This machine, really examined: what is read, what is not imported, what a plug-in breaks."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import migrate_kit as mk
from migrate_kit.environment.collect import collect
from migrate_kit.environment.packages import packages, torch_build

HEAVY = ("torch", "torch_npu", "mindspore", "numpy", "pandas", "onnxruntime")


def doctor(*arguments, **environ):
    command = [sys.executable, "-m", "migrate_kit.environment", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environ
    )


@pytest.fixture
def overlay(tmp_path):
    """A plug-in as torch_npu is one, whose library is not there."""
    folder = tmp_path / "overlay"
    info = folder / "torch_npu-9.9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch_npu\nVersion: 9.9.9\nRequires-Dist: torch==9.9.9\n"
    )
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    (folder / "torch_npu").mkdir()
    (folder / "torch_npu" / "__init__.py").write_text(
        'raise ImportError("libhccl.so: cannot open shared object file: No such file")\n'
    )
    return folder


def test_nothing_heavy_is_imported_here():
    code = (
        "import sys, migrate_kit as mk; mk.check_environment('ascend910b', probes=False);"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_facts_are_those_of_this_environment():
    facts = collect(probe=False)
    for name in ("torch", "numpy", "torchvision", "protobuf"):
        assert facts.version(name) == importlib.metadata.version(name)
    assert facts.host.executable == sys.executable
    assert facts.host.cores >= 1
    import torch

    assert facts.torch.version == torch.__version__
    assert facts.torch.cuda == (torch.version.cuda or "")
    assert facts.torch.cxx11_abi == str(int(torch.compiled_with_cxx11_abi()))
    assert facts.probes == facts.commands == {}


def test_this_environment_is_in_order():
    report = mk.check_environment(probes=False)
    assert [f.what for f in report.findings if f.level == "error"] == []
    states = {c.id: c.state for c in report.checks}
    assert states["torchvision-torch"] == states["torchvision-symbols"] == "ok"


@pytest.mark.slow
def test_the_imports_work_here():
    report = mk.check_environment()
    states = {c.id: c.state for c in report.checks}
    assert states["import-torch"] == states["import-torchvision"] == "ok"
    assert report.ok


@pytest.mark.slow
def test_from_inside_an_environment_where_torch_cannot_be_imported(overlay, tmp_path):
    env = {"PYTHONPATH": str(overlay)}
    broken = subprocess.run(
        [sys.executable, "-c", "import torch"],
        env=os.environ | env,
        capture_output=True,
        check=False,
    )
    assert broken.returncode != 0
    kept = tmp_path / "facts.json"
    done = doctor("--save", str(kept), "--target", "ascend910b", **env)
    assert done.returncode == 1, done.stderr
    assert "[torch-autoload]" in done.stdout
    assert "$ export TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stdout
    assert "torch_npu 9.9.9 needs torch ==9.9.9" in done.stdout
    assert json.loads(kept.read_text())["backends"] == ["torch_npu"]
    again = doctor("--facts", str(kept), "--target", "ascend910b")
    assert done.stdout.startswith(again.stdout)


def test_a_leftover_folder_is_found(tmp_path):
    (tmp_path / "torch_npu").mkdir()
    assert packages([str(tmp_path)])["torch-npu"].shadow == str(tmp_path / "torch_npu")


def test_the_first_on_the_path_counts(overlay):
    other = overlay.parent / "other"
    info = other / "torch_npu-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 1.0\n")
    found = packages([str(overlay), str(other)])["torch-npu"]
    assert (found.version, found.hidden, found.shadow) == ("9.9.9", ("1.0",), "")


def test_a_strange_version_file_is_not_run(tmp_path):
    folder = tmp_path / "torch"
    folder.mkdir()
    mark = tmp_path / "ran"
    (folder / "version.py").write_text(f"open({str(mark)!r}, 'w')\n__version__ = '2.1'\n")
    from migrate_kit.environment.facts import Package

    assert torch_build(Package("2.0", folder=str(tmp_path))).version == "2.1"
    (folder / "version.py").write_text("not python (")
    assert torch_build(Package("2.0", folder=str(tmp_path))).version == "2.0"
    assert not mark.exists()


def test_the_module_is_the_same_doctor(tmp_path):
    script = tmp_path / "set_env.sh"
    script.write_text("export ASCEND_HOME_PATH=/x\n")
    kept = tmp_path / "env.sh"
    done = doctor("ascend910b", "--no-probes", "--env-script", str(kept), "--set-env", str(script))
    assert done.returncode == 4, done.stderr
    assert "ready to rehearse for ascend910b, not to run on it" in done.stdout
    assert "export ASCEND_HOME_PATH=/x" in kept.read_text()
    assert doctor("--target", "ascend910b", "--no-probes", "--rehearse").returncode == 0
    told = doctor("--help").stdout
    assert "ascend910_93" in told
    assert "targets.csv" not in told


def test_the_command_line_says_what_is_wrong_with_its_use(tmp_path):
    done = doctor("--target", "nowhere", "--no-probes")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no target 'nowhere'")
    assert doctor("--facts", str(tmp_path / "absent")).returncode == 2


def test_a_hostile_snapshot_does_not_drive_the_terminal(tmp_path):
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({"host": {"distribution": "\x1b[2Jevil", "system": "Linux"}}))
    done = doctor("--facts", str(facts), "--all")
    assert "evil" in done.stdout
    assert "\x1b" not in done.stdout


def test_it_is_a_public_name():
    assert "check_environment" in mk.__all__
    assert Path(sys.modules[mk.check_environment.__module__].__file__).name == "doctor.py"
