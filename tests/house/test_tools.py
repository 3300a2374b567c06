"""The programs behind make: they open, run and clean what they say."""

import contextlib
import http.client
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import lab  # noqa: E402
import publish  # noqa: E402
import quiet_lab  # noqa: E402
import run_notebooks  # noqa: E402
import run_tests  # noqa: E402
import set_up  # noqa: E402


def notebook(*sources):
    v4 = nbformat.v4
    cells = [v4.new_markdown_cell("# A title"), *(v4.new_code_cell(s) for s in sources)]
    return v4.new_notebook(cells=cells)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder in the repository's place, with one notebook."""
    for module in (run_notebooks,):
        monkeypatch.setattr(module, "ROOT", tmp_path)
        monkeypatch.setattr(module, "NOTEBOOKS", tmp_path / "notebooks")
        monkeypatch.setattr(module, "BUILD", tmp_path / "build")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def test_every_notebook_is_run_and_put_on_one_page(repository, capsys):
    good = repository / "notebooks" / "00_good.ipynb"
    nbformat.write(notebook("import os\nprint(sum(range(9)), os.path.basename(os.getcwd()))"), good)
    nbformat.write(notebook("1 / 0", "2 + 2"), repository / "notebooks" / "01_bad.ipynb")
    before = good.read_bytes()
    assert run_notebooks.main([]) == 1
    assert good.read_bytes() == before
    executed = nbformat.read(repository / "build" / "notebooks" / "00_good.ipynb", as_version=4)
    assert executed.cells[1].outputs[0].text == "36 notebooks\n"
    page = (repository / "build" / "index.html").read_text()
    assert "36 notebooks" in page
    assert "ZeroDivisionError" in page
    assert re.search(r"01_bad</a>: <strong>failed", page)
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=.https?:", page)
    assert "01_bad.ipynb" in capsys.readouterr().out


def test_notebooks_are_run_in_place_on_the_sample_and_cleaned(repository, monkeypatch):
    monkeypatch.setenv("MIGRATE_KIT_PROJECT", "/nowhere")
    monkeypatch.setenv("MIGRATE_KIT_RESULTS", "/nowhere")
    path = repository / "notebooks" / "00_good.ipynb"
    nbformat.write(notebook("import os\nos.environ['MIGRATE_KIT_PROJECT']"), path)
    assert run_notebooks.main(["--in-place"]) == 0
    done = nbformat.read(path, as_version=4)
    assert done.cells[1].outputs[0].data["text/plain"] == "'sample'"
    assert publish.clean(done) == done
    assert [p.name for p in path.parent.iterdir()] == ["00_good.ipynb"]


def test_a_failing_notebook_is_not_replaced(repository):
    path = repository / "notebooks" / "00_bad.ipynb"
    nbformat.write(notebook("1 / 0"), path)
    before = path.read_bytes()
    assert run_notebooks.main(["--in-place"]) == 1
    assert path.read_bytes() == before


def test_publish_checks_and_cleans(tmp_path, capsys):
    path = tmp_path / "a.ipynb"
    nb = notebook("1")
    nb.metadata["widgets"] = {}
    nbformat.write(nb, path)
    assert publish.main(["--check", str(path)]) == 1
    assert publish.main([str(path)]) == 1
    assert publish.main(["--check", str(path)]) == 0
    assert "not clean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": "localhost:10", "SSH_CONNECTION": "10.0.0.2 5 10.0.0.9 22"}, False),
    ],
)
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS needs no variable for its display")
def test_a_display_is_one_that_the_reader_sees(environ, seen):
    assert lab.has_display(environ) is seen


def test_the_banner_says_the_ssh_line(monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.2 5 10.0.0.9 22")
    info = {"port": 8899, "token": "abc", "base_url": "/"}
    text = lab.banner(info, headless=True)
    assert re.search(r"ssh -L 8899:localhost:8899 \w+@10\.0\.0\.9", text)
    assert re.search(r"http://localhost:8899/lab\S*\?token=abc", text)
    assert "ssh" not in lab.banner(info, headless=False)


@pytest.mark.parametrize(
    ("info", "headless", "address"),
    [
        ({"hostname": "0.0.0.0"}, False, "http://localhost:8899/"),  # noqa: S104
        ({"hostname": "10.0.0.9"}, False, "http://10.0.0.9:8899/"),
        ({"hostname": "fe80::1", "secure": True}, False, "https://[fe80::1]:8899/"),
        ({"hostname": "10.0.0.9"}, True, "http://localhost:8899/"),
    ],
)
def test_the_banner_names_an_address_that_answers(info, headless, address):
    text = lab.banner({"port": 8899, "token": "", "base_url": "/", **info}, headless=headless)
    assert f"    {address}" in text
    assert text.count("://") == 1
    assert "token" not in text
    assert not headless or "-L 8899:10.0.0.9:8899" in text


def test_a_socket_is_left_to_jupyters_own_words():
    info = {"port": 0, "token": "abc", "base_url": "/", "sock": "/run/x"}
    assert "://" not in lab.banner(info, headless=True)


@pytest.mark.parametrize(
    ("level", "function", "text", "heard"),
    [
        ("CRITICAL", "start_app", "open this:\n  http://127.0.0.1:1/lab?token=ab", False),
        ("CRITICAL", "start_app", "在浏览器打开:\n  https://[::1]:1/lab?token=ab", False),
        ("CRITICAL", "start_app", "Running as root is not recommended.", True),
        ("CRITICAL", "start_app", "listening on http+unix://%2Frun%2Fx/lab", True),
        ("CRITICAL", "init_httpserver", "no certificate for https://x", True),
        ("WARNING", "start_app", "see http://127.0.0.1:1", True),
        ("ERROR", "log_request", "500 GET /lab?token=[secret] http://127.0.0.1", True),
    ],
)
def test_only_the_address_is_left_out_of_the_log(level, function, text, heard):
    number = logging.getLevelNamesMapping()[level]
    record = logging.LogRecord("ServerApp", number, "", 1, text, (), None, function)
    assert quiet_lab.is_not_the_address(record) is heard


def test_the_command_line(monkeypatch):
    monkeypatch.setenv("LAB_ARGS", "--port=9000 '--ServerApp.x=a b; touch y'")
    command = lab.command(headless=True)
    assert "--no-browser" in command
    assert ("--allow-root" in command) == (os.geteuid() == 0)
    assert command[command.index("--port=9000") + 1] == "--ServerApp.x=a b; touch y"
    assert "--no-browser" not in lab.command(headless=False)


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.slow
def test_the_lab_opens_keeps_its_token_and_stops(tmp_path):
    env = os.environ | {
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "SSH_CONNECTION": "10.0.0.2 5 10.0.0.9 22",
        "LAB_ARGS": "--ip=127.0.0.1",
    }
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tools" / "lab.py")],
            env=env,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 60
        while not (
            found := re.search(r"localhost:(\d+)(/lab\S*)\?token=(\w+)\n\n", log.read_text())
        ):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        port, page, token = int(found[1]), found[2], found[3]
        assert get(port, f"/api/contents?token={token}")[0] == 200
        assert log.read_text().count("://") == 1, log.read_text()
        assert log.read_text().count(token) == 1
        assert get(port, "/api/contents")[0] == 403
        assert get(port, f"{page}?token={token}")[0] == 200
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert not list((tmp_path / "runtime").glob("jpserver-*.json"))


@pytest.mark.slow
def test_what_stops_the_lab_is_not_quiet(tmp_path):
    env = os.environ | {
        "JUPYTER_RUNTIME_DIR": str(tmp_path),
        "JUPYTER_CONFIG_DIR": str(tmp_path),
        "LAB_ARGS": "--ServerApp.port=many",
    }
    command = [sys.executable, str(ROOT / "tools" / "lab.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "'port' trait" in done.stderr
    assert "://" not in done.stdout


def test_an_old_python_is_told_so(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    with pytest.raises(SystemExit, match=r"3\.11 or 3\.12"):
        set_up.make_venv()


def test_a_failed_set_up_leaves_no_stamp(tmp_path, monkeypatch):
    (tmp_path / "constraints.txt").write_text("torch==1\nnumpy==2\n")
    monkeypatch.setattr(set_up, "ROOT", tmp_path)
    monkeypatch.setattr(set_up, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(set_up, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    called = []
    monkeypatch.setattr(
        set_up.subprocess, "call", lambda c, **_: called.append(c) or len(called) > 2
    )
    with pytest.raises(SystemExit):
        set_up.main()
    assert called[1][-1] == "torch==1"
    assert not (tmp_path / ".venv" / ".ready").exists()


def test_the_readme_and_ci_run_the_same_command():
    assert "make test" in (ROOT / "README.md").read_text()
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_a_recipe_is_one_line():
    recipes = re.findall(r"^\S.*:.*\n((?:\t.*\n?)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipes
    assert all(recipe.count("\n\t") == 0 for recipe in recipes)


def test_the_summary_tells_a_failure(monkeypatch, capsys):
    steps = [
        run_tests.Step("good", ["timeit", "-n1", "-r1", "1"]),
        run_tests.Step("bad", ["no_such_module"]),
        run_tests.Step("absent", ["timeit"], ("no_such_folder",)),
    ]
    monkeypatch.setattr(run_tests, "STEPS", steps)
    assert run_tests.main([]) == 1
    assert run_tests.main(["good", "absent"]) == 0
    assert run_tests.main(["godo"]) == 2
    text = capsys.readouterr().out
    assert re.search(r"good +passed", text)
    assert re.search(r"bad +FAILED", text)
    assert re.search(r"absent +nothing there", text)


def test_a_step_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(run_tests, "STEP_SECONDS", 0.5)
    step = run_tests.Step("hangs", ["timeit", "-n1", "-r1", "import time; time.sleep(60)"])
    began = time.monotonic()
    assert run_tests.run(step, dict(os.environ)).startswith("FAILED: over")
    assert time.monotonic() - began < 20


def test_the_notebooks_line_is_the_one_in_the_design():
    (step,) = (s for s in run_tests.STEPS if s.name == "notebooks")
    line = " ".join([*step.arguments, *step.folders])
    for part in ("--nbval --nbval-current-env", "--nbval-cell-timeout 90", "-p no:playwright"):
        assert part in line
    assert "--nbval-sanitize-with tests/nbval.cfg" in line


def test_the_overrides_name_settings_that_this_jupyterlab_has():
    schemas = Path(sys.prefix) / "share" / "jupyter" / "lab" / "schemas"
    for plugin, values in lab.OVERRIDES.items():
        package, name = plugin.split(":")
        schema = json.loads((schemas / package / f"{name}.json").read_text())
        assert set(values) <= set(schema["properties"])
