"""The kernel and the script that are written: sourced by a real bash, started by a real Jupyter."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from migrate_kit.environment import kernel_spec
from migrate_kit.environment.doctor import check_environment
from migrate_kit.errors import MigrateError

ODD = {
    "ONE": "a b'c\"d",
    "TWO": "$HOME ${PATH} $$ `id` \\ \n second line",
    "LD_LIBRARY_PATH": "/usr/local/Ascend/lib64:/x y",
    "CHINESE": "昇腾",
}


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "a folder" / "set_env.sh"
    path.parent.mkdir()
    lines = [f"export {k}={shlex.quote(v)}" for k, v in ODD.items()]
    path.write_text("\n".join([*lines, "f() { :; }; export -f f", ""]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report():
    return check_environment(probes=False)


def test_a_kernel_starts_with_the_variables_of_the_script(report, script, tmp_path):
    path = report.kernel_spec("Ascend-8.3", set_env=[script], prefix=tmp_path)
    folder = tmp_path / "share/jupyter/kernels"
    assert path == folder / "ascend-8.3" / "kernel.json"
    specs = KernelSpecManager(kernel_dirs=[str(folder)])
    spec = specs.get_kernel_spec("ascend-8.3")
    assert spec.argv[0] == sys.executable
    manager = KernelManager(kernel_name="ascend-8.3", kernel_spec_manager=specs)
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        code = f"import os, json; print(json.dumps({{k: os.environ[k] for k in {list(ODD)!r}}}))"
        said = []
        client.execute_interactive(
            code, timeout=60, output_hook=lambda m: said.append(m["content"].get("text", ""))
        )
        assert json.loads("".join(said)) == ODD
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_shell_gets_the_same_from_env_sh(report, script, tmp_path):
    path = report.env_script(tmp_path / "env $(touch hit).sh", set_env=[script])
    names = shlex.join(ODD)
    code = (
        f'import os, json, sys; print(json.dumps({{k: os.environ[k] for k in "{names}".split()}}))'
    )
    done = subprocess.run(
        ["bash", "-c", 'source "$1"; exec "$2" -c "$3"', "bash", str(path), sys.executable, code],
        capture_output=True, text=True, check=True, cwd=tmp_path, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert json.loads(done.stdout) == ODD
    assert not (tmp_path / "hit").exists()


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "-x", "x" * 65, "é", "a\n"])
def test_a_name_that_is_no_kernels_is_refused(report, script, tmp_path, name):
    with pytest.raises(MigrateError, match="cannot be named"):
        report.kernel_spec(name, set_env=[script], prefix=tmp_path)
    assert not (tmp_path / "share").exists()


def test_somebody_elses_kernel_is_left_alone(report, script, tmp_path):
    path = tmp_path / "share/jupyter/kernels/mine/kernel.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"argv": []}')
    with pytest.raises(MigrateError, match="not written here"):
        report.kernel_spec("mine", set_env=[script], prefix=tmp_path)
    assert path.read_text() == '{"argv": []}'
    report.kernel_spec("mine", set_env=[script], prefix=tmp_path, replace=True)
    report.kernel_spec("mine", set_env=[script], prefix=tmp_path)  # ours by now
    assert [p.name for p in path.parent.iterdir()] == ["kernel.json"]


def test_by_default_the_users_own_folder_is_written(report, script, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    path = report.kernel_spec("ascend", set_env=[script])
    assert path == tmp_path / "data/kernels/ascend/kernel.json"


def test_a_folder_that_cannot_be_written_is_an_error(report, script, tmp_path):
    (tmp_path / "share").write_text("a file")
    with pytest.raises(MigrateError, match="cannot write"):
        report.kernel_spec("ascend", set_env=[script], prefix=tmp_path)


def test_nothing_to_set_is_said(report, tmp_path):
    with pytest.raises(MigrateError, match=r"no set_env\.sh was found"):
        report.kernel_spec("ascend", set_env=[], prefix=tmp_path)
    with pytest.raises(MigrateError, match="no such script"):
        report.kernel_spec("ascend", set_env=[tmp_path / "absent.sh"], prefix=tmp_path)
    broken = tmp_path / "broken.sh"
    broken.write_text("false\n")
    with pytest.raises(MigrateError, match="cannot be sourced"):
        report.env_script(tmp_path / "env.sh", set_env=[broken])


def test_functions_of_bash_are_no_variables(tmp_path):
    path = kernel_spec.write_script(tmp_path / "env.sh", {"BASH_FUNC_f%%": "() { :; }", "A": "1"})
    assert Path(path).read_text().splitlines()[1:] == ["export A=1"]
