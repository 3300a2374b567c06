"""Machines on which nothing can be taken for granted: the doctor says so, and never ends itself."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import migrate_kit as mk
from migrate_kit.environment import libraries, places
from migrate_kit.environment.cambricon import find_cambricon
from migrate_kit.environment.cann import find_ascend
from migrate_kit.environment.elf import read_elf
from migrate_kit.environment.kernel import read_kernel, user_data
from migrate_kit.environment.machine import machine
from migrate_kit.environment.metadata import plugins
from migrate_kit.environment.packages import packages, torch_build

LONG = "/" + "x" * 300
VARIABLES = (
    *("HOME", "LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "NEUWARE_HOME"),
    *("PYTORCH_HOME", "TORCH_HOME", "JUPYTER_DATA_DIR", "PATH"),
)


def doctor(*arguments, cwd=None, **environ):
    command = [sys.executable, "-m", "migrate_kit.environment", "--no-probes", *arguments]
    env = {k: v for k, v in (os.environ | environ).items() if v is not None}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=env, errors="replace"
    )


def states(report):
    return {check.id: check.state for check in report.checks}


def look_everywhere(place):
    """Look for everything that the doctor looks for, where a variable names ``place``."""
    environ = dict.fromkeys(VARIABLES, str(place))
    find_ascend(environ)
    find_cambricon(environ)
    read_kernel(environ)
    loader = libraries.Loader(str(place), [Path(place)], Path(place))
    assert loader.find("libc.so.6", Path(place), libraries.Elf(paths=(str(place),))) is None
    packages([str(place)])
    plugins([str(place)])


# --- folders that cannot be looked into ---


def test_a_name_that_is_too_long_is_not_there():
    look_everywhere(LONG)
    done = doctor("--target", "mlu270", **dict.fromkeys(VARIABLES[1:-1], LONG), HOME=LONG)
    assert done.returncode == 4, done.stderr  # there is no card
    for name in ("HOME", "ASCEND_HOME_PATH", "NEUWARE_HOME", "PYTORCH_HOME"):
        said = f"{name} names a folder that cannot be reached: File name too long"
        assert said in done.stdout


def test_a_folder_that_may_not_be_entered_is_not_there(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir()
    real = os.stat

    def refuse(path, *args, **kwargs):
        # As for a user who may not enter it; whoever runs the tests may.
        if str(path).startswith(str(closed / "in")):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refuse)
    look_everywhere(closed / "in")
    lost = read_kernel({"ASCEND_HOME_PATH": str(closed / "in")}).lost
    assert lost == {"ASCEND_HOME_PATH": "Permission denied"}


def test_a_link_that_leads_to_itself_is_not_there(tmp_path):
    for name in ("Ascend/nnal/atb/latest", "Ascend/latest", "itself", "Ascend/cann-9.0"):
        link = tmp_path / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(link.name)
    look_everywhere(tmp_path / "itself")
    assert find_ascend({"HOME": str(tmp_path)}).nnal == "unknown"


def test_the_working_folder_may_be_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    report = mk.check_environment(probes=False)
    assert states(report)["folder-gone"] == "error"
    assert "disk" not in states(report)
    assert not report.ok


def test_there_may_be_no_home(monkeypatch, tmp_path):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("JUPYTER_DATA_DIR", raising=False)
    report = mk.check_environment(probes=False)
    assert states(report)["home-absent"] == "warning"
    assert report.ok
    assert user_data({}) is None
    script = tmp_path / "set_env.sh"
    script.write_text("export A=1\n")
    with pytest.raises(mk.MigrateError, match="no home folder"):
        report.kernel_spec("x", set_env=[script])
    assert report.kernel_spec("x", set_env=[script], prefix=tmp_path).is_file()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_user_without_a_name_or_rights(tmp_path):
    strange = ["unshare", "-U", "--map-user=54321"]
    if subprocess.run([*strange, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system gives no user namespaces")
    (tmp_path / "closed" / "in").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    command = [*strange, sys.executable, "-m", "migrate_kit.environment", "--no-probes"]
    named = dict.fromkeys(VARIABLES[1:-1], str(tmp_path / "closed/in"))
    env = {k: v for k, v in (os.environ | named).items() if k != "HOME"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert "[home-absent]" in done.stdout
    assert "NEUWARE_HOME names a folder that cannot be reached: Permission denied" in done.stdout


def test_only_a_regular_file_is_read(tmp_path):
    pipe = tmp_path / "version.info"
    os.mkfifo(pipe)
    assert places.text(pipe) == ""
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert places.exists(pipe)
    with pytest.raises(mk.MigrateError, match="regular file"):
        read_elf(pipe)
    assert places.text(Path("/dev/zero")) == ""
    assert places.text(tmp_path / "a\0b") == ""


def test_the_loaders_own_list_may_hold_anything(tmp_path):
    (tmp_path / "etc").mkdir()
    lines = f"include /\ninclude \ninclude {LONG}/*.conf\n/opt/x\n{LONG}\n\0\n"
    (tmp_path / "etc/ld.so.conf").write_text(lines)
    assert tmp_path / "opt/x" in libraries.system_folders(tmp_path)


# --- damaged packages ---


def installed(folder, name, *, metadata=b"", **files):
    """Install a package's metadata and no package."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    (info / "METADATA").write_bytes(head + metadata)
    for file, content in files.items():
        (info / file.replace("entry_points", "entry_points.txt")).write_bytes(content)
    return info


DAMAGE = [
    ("METADATA", b"Author: \xff\xfe\n", {}),
    ("METADATA", b"Requires-Dist: numpy ; python_version < '" + b"9" * 5000 + b"'\n", {}),
    ("WHEEL", b"", {"WHEEL": b"Tag: \xff\n"}),
]


@pytest.mark.parametrize(("file", "metadata", "files"), DAMAGE, ids=range(len(DAMAGE)))
def test_damaged_metadata_is_told_with_the_way_out(tmp_path, monkeypatch, file, metadata, files):
    info = installed(tmp_path, "mindspore", metadata=metadata, **files)
    monkeypatch.syspath_prepend(tmp_path)
    report = mk.check_environment(probes=False)
    (check,) = [c for c in report.checks if c.id == "mindspore-metadata"]
    assert check.state == "error"
    assert str(info / file) in check.what
    # pip reads it too, and fails: it must go before pip is called.
    assert check.command.startswith(f"rm -f {info / file} && ")
    assert check.command.endswith("pip install --force-reinstall --no-deps mindspore")
    assert machine().parts  # which asks for the version of mindspore as well


def test_metadata_that_is_not_there_is_told(tmp_path):
    (installed(tmp_path, "torch_npu") / "METADATA").unlink()
    found = packages([str(tmp_path)])["torch-npu"]
    assert found.version == "unknown"
    assert list(found.damage.values()) == ["it is not there, or names no version"]


@pytest.mark.parametrize("content", [b"[torch.backends]\nnonsense\n", b"[x]\na = \xff\n"])
def test_a_broken_list_of_entry_points_of_any_package_is_told(tmp_path, content):
    info = installed(tmp_path, "unrelated", entry_points=content)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = doctor(PYTHONPATH=path)
    assert done.returncode == 1, done.stderr
    assert f"{info}/entry_points.txt cannot be read" in done.stdout
    # The reason why it matters is true: Python looks at every package's list.
    look = "import importlib.metadata as m; m.entry_points(group='torch.backends')"
    env = os.environ | {"PYTHONPATH": path}
    ended = subprocess.run([sys.executable, "-c", look], env=env, capture_output=True, check=False)
    assert ended.returncode != 0


def test_a_sound_package_beside_a_damaged_one_is_read(tmp_path):
    installed(tmp_path, "unrelated", entry_points=b"[x]\n\xff")
    installed(tmp_path, "torch_npu", entry_points=b"[torch.backends]\ntorch_npu = torch_npu:f\n")
    names, damage = plugins([str(tmp_path)])
    assert names == ("torch_npu",)
    assert [Path(file).parent.name for file in damage] == ["unrelated-1.0.dist-info"]


def test_a_version_of_five_thousand_digits_is_one_that_nothing_goes_with(tmp_path, monkeypatch):
    info = installed(tmp_path, "mindspore", metadata=b"Requires-Dist: numpy<" + b"9" * 5000)
    text = (info / "METADATA").read_text().replace("Version: 1.0", "Version: " + "9" * 5000)
    (info / "METADATA").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert "mindspore-unknown" in states(mk.check_environment(probes=False))


def test_a_version_file_of_torch_may_hold_anything(tmp_path):
    from migrate_kit.environment.facts import Package

    (tmp_path / "torch").mkdir()
    for content in (b"\xff\xfe", b"(" * 100_000, b"x = 1\0", b"-" * 300_000 + b"1"):
        (tmp_path / "torch/version.py").write_bytes(content)
        assert torch_build(Package("2.0", folder=str(tmp_path))).version == "2.0"


# --- bytes that are no UTF-8, and terminals that know few letters ---


def test_variables_that_are_no_utf8(tmp_path):
    kept = tmp_path / "facts.json"
    odd = {"ASCEND_SLOG_PRINT_TO_STDOUT": "\udcff", "LD_LIBRARY_PATH": "/a\udcff"}
    done = doctor("--save", str(kept), "--all", **odd)
    assert done.returncode == 0, done.stderr
    assert "ASCEND_SLOG_PRINT_TO_STDOUT is \\udcff" in done.stdout
    assert "loader-path-late" not in done.stdout  # it is as it was at the start
    facts = mk.check_environment(facts=kept).facts
    assert facts.kernel.environ["ASCEND_SLOG_PRINT_TO_STDOUT"] == "\udcff"
    report = mk.check_environment(facts=facts)
    report._repr_html_().encode()
    assert facts.save(tmp_path / "again.json").read_text() == kept.read_text()


def test_a_script_that_leaves_odd_variables_alone_does_not_change_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ODD", "\udcff")
    script = tmp_path / "set_env.sh"
    script.write_bytes(b"export NEW=$'a\\xfe'\n")
    report = mk.check_environment(probes=False)
    found = report.variables([script])
    assert "ODD" not in found
    assert found["NEW"] == "a\udcfe"
    path = report.env_script(tmp_path / "env.sh", set_env=[script])
    assert b"export NEW='a\xfe'" in path.read_bytes()
    shown = subprocess.run(
        ["bash", "-c", '. "$1"; printf %s "$NEW"', "bash", path], capture_output=True, check=True
    )
    assert shown.stdout == b"a\xfe"
    assert report.kernel_spec("odd", set_env=[script], prefix=tmp_path).is_file()


@pytest.mark.parametrize("encoding", ["gbk", "latin-1", "ascii"])
def test_a_terminal_of_few_letters(tmp_path, encoding):
    facts = tmp_path / "facts.json"
    facts.write_text('{"host": {"distribution": "昇腾 ‹é› \\ud800", "system": "Linux"}}')
    done = doctor("--facts", str(facts), "--all", PYTHONIOENCODING=encoding)
    assert done.returncode == 1, done.stderr
    assert "[system]" in done.stdout


def test_nobody_may_listen():
    command = f"{sys.executable} -m migrate_kit.environment --no-probes --all"
    for rest in ("| head -n 0", ">&-", "--facts /absent 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{command} {rest}"], capture_output=True, text=True, check=False
        )
        assert done.stderr == ""


def test_what_is_said_of_a_hostile_snapshot_does_not_drive_the_terminal(tmp_path):
    facts = tmp_path / "facts.json"
    facts.write_text('{"commands": {"\\u001b[2J": 1}}')
    done = doctor("--facts", str(facts))
    assert done.returncode == 2
    assert "\x1b" not in done.stderr


# --- arguments ---


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"facts": {}}, "expected a path, found dict"),
        ({"facts": "absent.json"}, "no snapshot"),
        ({"facts": Path("a\0b")}, "no snapshot"),
        ({"seconds": "a"}, "no time limit"),
        ({"seconds": float("nan")}, "no time limit"),
        ({"seconds": float("inf")}, "no time limit"),
        ({"seconds": 0}, "no time limit"),
        ({"seconds": None}, "no time limit"),
        ({"target": 5}, "no target"),
    ],
)
def test_a_wrong_argument_is_told(arguments, says):
    with pytest.raises(mk.MigrateError, match=says):
        mk.check_environment(**arguments)


def test_a_wrong_argument_of_the_report_is_told(tmp_path):
    report = mk.check_environment(probes=False)
    script = tmp_path / "set_env.sh"
    script.write_text("export A=1\n")
    assert report.variables(script)["A"] == "1"  # one script, not a list of them
    assert report.variables(str(script))["A"] == "1"
    for call in (
        lambda: report.variables(["x" * 5000]),
        lambda: report.variables(["a\0b"]),
        lambda: report.variables(5),
        lambda: report.variables([None]),
        lambda: report.env_script("a\0b", set_env=[script]),
        lambda: report.env_script(5, set_env=[script]),
        lambda: report.kernel_spec(5, set_env=[script]),
        lambda: report.kernel_spec("x", set_env=[script], prefix=5),
        lambda: report.kernel_spec("x", set_env=[script], prefix="a\0b"),
        lambda: report.facts.save(tmp_path / "a\0b"),
        lambda: report.facts.save(None),
        lambda: type(report.facts).load(5),
    ):
        with pytest.raises(mk.MigrateError):
            call()
    kept = report.facts.save(str(tmp_path / "facts.json"))
    assert type(report.facts).load(str(kept)) == report.facts
    assert mk.check_environment(facts=str(kept)).facts == report.facts
