"""The Python half of the checklist: what it sends, and what the buttons write."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from migrate_kit.environment.doctor import check_environment
from migrate_kit.environment.facts import Facts
from migrate_kit.errors import MigrateError
from migrate_kit.widgets.environment import EnvironmentWidget, as_page, checks_of

FIXTURE = Path(__file__).parents[2] / "data" / "environments" / "torch_npu-2.9.0.json"


@pytest.fixture
def report():
    return check_environment("ascend910b", facts=Facts.load(FIXTURE))


def test_every_line_is_sent_with_its_command(report):
    sent = json.loads(checks_of(report))
    assert sent["title"] == "Environment for ascend910b"
    assert len(sent["lines"]) == len(report.checks)
    assert sent["lines"][0][0] == "error"
    assert [line[4] for line in sent["lines"]] == [c.command for c in report.checks]


def test_show_gives_the_widget_with_the_table_beside_it(report):
    widget = report.show()
    assert isinstance(widget, EnvironmentWidget)
    data, _ = widget._repr_mimebundle_()
    assert data["text/html"] == report._repr_html_()
    assert repr(widget) == repr(report)


def test_the_buttons_write_what_the_methods_write(report, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "set_env.sh"
    script.write_text("export ASCEND_HOME_PATH=/x\n")
    monkeypatch.setattr(report, "_scripts", lambda: [str(script)])
    widget = report.show()
    widget.request = {"number": 1, "action": "kernel", "name": "ascend"}
    answer = json.loads(widget.answer)
    assert (answer["number"], answer["ok"]) == (1, True)
    spec = json.loads((tmp_path / "data/kernels/ascend/kernel.json").read_text())
    assert spec["env"]["ASCEND_HOME_PATH"] == "/x"
    widget.request = {"number": 2, "action": "script", "name": ""}
    assert "export ASCEND_HOME_PATH=/x" in (tmp_path / "env.sh").read_text()


def test_an_error_is_a_sentence_in_the_widget(report):
    widget = report.show()
    widget.request = {"number": 1, "action": "kernel", "name": "../../x"}
    answer = json.loads(widget.answer)
    assert not answer["ok"]
    assert "cannot be named" in answer["text"]


def test_without_a_script_the_kernel_only_switches_the_plug_in_off(report, tmp_path):
    path = report.kernel_spec("cpu", prefix=tmp_path)
    assert json.loads(path.read_text())["env"] == {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"number": 1},
        {"number": "1", "action": "kernel", "name": "x"},
        {"number": 1, "action": "rm", "name": "x"},
        {"number": 1, "action": ["kernel"], "name": "x"},
        {"number": 1, "action": "kernel", "name": None},
    ],
)
def test_a_request_that_makes_no_sense_is_ignored(report, asked):
    widget = report.show()
    widget.request = asked
    assert widget.answer == ""


def test_the_page_holds_no_address_and_escapes_what_it_shows(report):
    page = as_page(report).data
    inner = html.unescape(re.search(r'srcdoc="(.*)"></iframe>', page.replace("\n", " "))[1])
    assert "://" not in inner
    assert "default-src 'none'" in inner
    assert "<b>" not in page


def test_the_checklist_opens_where_torch_cannot_be_imported(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libhccl.so: cannot open')\n")
    code = (
        "import sys; from migrate_kit.environment.doctor import check_environment;"
        "w = check_environment(probes=False).show();"
        "print(type(w).__name__, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "EnvironmentWidget False\n"


def test_an_unwritable_place_is_an_error_of_three_lines(report, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MigrateError, match="cannot write"):
        report.env_script(tmp_path / "file" / "env.sh")
