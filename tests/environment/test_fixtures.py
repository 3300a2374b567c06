"""What the doctor read in really faulty environments (make test-environments), judged again."""

import csv
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from migrate_kit.environment.doctor import check_environment
from migrate_kit.environment.facts import Facts

FIXTURES = Path(__file__).parents[2] / "data" / "environments"
with (FIXTURES / "expected.csv").open(encoding="utf-8", newline="") as file:
    EXPECTED = list(csv.DictReader(file))
NAMES = sorted({row["fixture"] for row in EXPECTED})


def report_of(name, target=None):
    return check_environment(target, facts=Facts.load(FIXTURES / f"{name}.json"))


def by_id(report):
    return {check.id: check for check in report.checks}


def test_every_fixture_is_expected_to_give_something():
    assert sorted(p.stem for p in FIXTURES.glob("*.json")) == NAMES
    assert len(NAMES) == 5


@pytest.mark.parametrize("row", EXPECTED, ids=lambda r: f"{r['fixture']}, {r['state']}")
def test_each_fault_is_named_and_no_other(row):
    report = report_of(row["fixture"], row["target"] or None)
    assert {c.id for c in report.checks if c.state == row["state"]} == set(row["ids"].split())


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_says_why_and_what_to_type(name):
    report = report_of(name)
    assert not report.ok
    for fault in report.findings:
        if fault.level == "error":
            assert fault.why
            assert shlex.split(fault.command)
            assert fault.fix == fault.command


def test_torch_npu_forced_beside_a_later_torch():
    checks = by_id(report_of("torch_npu-2.14.0"))
    assert "2,281 symbols" in checks["torch-npu-torch"].why
    assert "torch==2.14.0" in checks["torch-npu-torch"].command
    for part in ("libhccl.so", "libascendcl.so", "2.14.0"):
        assert part in checks["cann-absent"].what
    autoload = checks["torch-autoload"]
    assert "ImportError: libhccl.so" in autoload.why
    assert autoload.command == "export TORCH_DEVICE_BACKEND_AUTOLOAD=0"


def test_the_missing_symbols_are_counted():
    check = by_id(report_of("torch_npu-2.9.0"))["torch-npu-symbols"]
    assert check.what.startswith("58 symbols that torch_npu 2.9.0 takes from torch")
    assert "and 56 more" in check.why
    assert "torch==2.9.0" in check.command


def test_torchvision_of_another_torch():
    checks = by_id(report_of("torchvision-0.28.0"))
    assert checks["torchvision-torch"].command.endswith("torchvision==0.29.1")
    assert "operator torchvision::nms does not exist" in checks["torchvision-symbols"].why


def test_numpy_2_and_an_old_protobuf_beside_mindspore():
    numpy = by_id(report_of("numpy-2-mindspore-2.10"))["mindspore-numpy"]
    assert "NumPy 2.4.6 is here" in numpy.what
    assert "'numpy>=1.25,<2'" in numpy.command
    protobuf = by_id(report_of("protobuf-3.20-mindspore-2.10"))["mindspore-protobuf"]
    assert "protobuf 3.20.3 is here" in protobuf.what
    assert "cannot import name 'runtime_version'" in protobuf.why


def test_a_switched_off_plug_in_breaks_nothing_without_an_npu():
    facts = Facts.load(FIXTURES / "torch_npu-2.14.0.json")
    kernel = replace(facts.kernel, environ={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    report = check_environment("ascend910b", facts=replace(facts, kernel=kernel))
    states = {c.id: c.state for c in report.checks}
    assert report.ok
    assert (states["cann-absent"], states["torch-autoload"]) == ("info", "info")


def test_a_snapshot_survives_the_disk(tmp_path):
    facts = Facts.load(FIXTURES / "torch_npu-2.9.0.json")
    assert Facts.load(facts.save(tmp_path / "facts.json")) == facts


def test_the_report_is_plain_data_and_escaped_html():
    facts = Facts.load(FIXTURES / "torch_npu-2.9.0.json")
    package = replace(facts.packages["torch-npu"], version="<b>2.9.0</b>")
    facts = replace(facts, packages=facts.packages | {"torch-npu": package})
    report = check_environment(facts=facts)
    assert "<b>2.9.0" not in report._repr_html_()
    assert "&lt;b&gt;2.9.0" in report._repr_html_()
    frame = report.to_frame()
    assert list(frame.columns[:5]) == ["state", "group", "what", "why", "command"]
    assert len(frame) == len(report.checks)
    kept = report.to_dict()
    assert kept["findings"][0]["why"]
    assert kept["counts"]["error"] == sum(f.level == "error" for f in report.findings)
    assert "\n" not in repr(report)
