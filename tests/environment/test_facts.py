"""Snapshots from strangers, and what is not in one."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrate_kit.environment.facts import (
    Ascend,
    Cann,
    Facts,
    Host,
    Kernel,
    Library,
    Package,
    Sourced,
)
from migrate_kit.environment.judge import judge
from migrate_kit.environment.kernel import read_kernel
from migrate_kit.environment.report import EnvironmentReport
from migrate_kit.errors import MigrateError
from migrate_kit.targets import Target, targets

FIXTURE = Path(__file__).parents[2] / "data" / "environments" / "torch_npu-2.9.0.json"
# Versions, tags and requirements as nobody writes them: the judges take all of them apart.
DIGITS = "9" * 5000
ODD = [
    *("1." + DIGITS, "²", "٣.٣", "1.*", "a.*", ".*", "==1", "<2,>x", "!=1.*", "v" + DIGITS),
    *("torch==" + DIGITS, f"torch>=1; python_version<'{DIGITS}'", "torch (>dev)", "1!" + DIGITS),
    *(f"cp39-abi3-manylinux_{DIGITS}_1_x86_64", f"cp3{DIGITS}-abi3-any", "cp3²-abi3-any"),
    *("2.1+torch" + DIGITS, "same", "3.rc1", "8.2.RC1.alpha003", "unknown"),
    *("\ud800", "a\0b", "/" + "x" * 5000, "\x1b[2J"),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(ODD),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no snapshot"),
        (b"\xff\xfe", "no snapshot"),
        (b"[1]", "expected an object"),
        (b'{"host": {"cores": "many"}}', "facts.json.host.cores"),
        (b'{"host": {"cores": true}}', "expected int"),
        (b'{"taken": null}', "expected str"),
        (b'{"no_such": 1}', "no such field"),
        (b'{"backends": "torch_npu"}', "expected a list"),
        (b"[" * 100_000, "no snapshot"),
        (json.dumps({"taken": "x" * 2_000_000}).encode(), "above 1 MiB"),
        (b'{"host": {"memory_gib": 1' + b"0" * 400 + b"}}", "expected float"),
        (b'{"host": {"cores": ' + b"9" * 5000 + b"}}", "no snapshot"),
    ],
)
def test_what_is_no_snapshot_is_told_where(tmp_path, content, says):
    path = tmp_path / "facts.json"
    path.write_bytes(content)
    with pytest.raises(MigrateError, match=says):
        Facts.load(path)


def test_a_large_file_is_not_read(tmp_path):
    path = tmp_path / "facts.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(MigrateError, match="too large"):
        Facts.load(path)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_changed_snapshot_is_judged_or_refused(tmp_path, data):
    facts = json.loads(FIXTURE.read_text(encoding="utf-8"))
    place, key = facts, data.draw(st.sampled_from(sorted(facts)))
    while isinstance(place[key], dict) and place[key] and data.draw(st.booleans()):
        place, key = place[key], data.draw(st.sampled_from(sorted(place[key])))
    place[key] = data.draw(JSON)
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts), encoding="utf-8")
    try:
        snapshot = Facts.load(path)
    except MigrateError:
        return
    for goal in (Target(), targets()["ascend910b"], targets()["mlu270"]):
        report = EnvironmentReport(snapshot, goal, judge(snapshot, goal))
        assert report.checks
        report._repr_html_().encode()
        "".join(report.lines(every=True)).encode()


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("name", ["torch", "torch-npu", "torchvision", "mindspore"])
def test_every_text_of_a_package_may_be_odd(name, odd):
    package = Package(odd, (odd, f"numpy{odd}"), (odd,), odd, (odd,), odd, {odd: odd})
    facts = Facts(
        packages={name: package, "numpy": Package(odd)},
        host=Host(python=odd, glibc=odd, glibcxx=odd, gcc=odd, modelarts=True),
        ascend=Ascend(cann=(Cann(odd, odd, odd, odd),), nnal=odd, driver=odd),
        libraries=(Library(name, odd, glibc=odd, glibcxx=odd),),
        damaged={odd: odd},
        sourced={odd: Sourced(0, {odd: odd}, odd)},
        kernel=Kernel(environ={odd: odd}, loader_path=odd, lost={odd: odd}),
    )
    assert judge(facts, targets()["ascend910b"])


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "."])
def test_what_never_ends_is_not_read(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MigrateError, match="regular file"):
        Facts.load(tmp_path / name)


def test_text_that_is_no_unicode_comes_back_as_it_was(tmp_path):
    facts = Facts(host=Host(folder="/昇腾/\udcff", distribution="\ud800 \\udcff"))
    path = facts.save(tmp_path / "facts.json")
    assert "昇腾" in path.read_text(encoding="utf-8")
    assert Facts.load(path) == facts


def test_a_snapshot_carries_no_secret():
    environ = {"ASCEND_HOME_PATH": "/x", "HF_TOKEN": "t", "NPU_API_KEY": "k", "MS_PASSWORD": "p"}
    assert read_kernel(environ | {"JUPYTER_TOKEN": "j"}).environ == {"ASCEND_HOME_PATH": "/x"}


def test_the_loader_path_is_the_one_of_the_start(monkeypatch):
    monkeypatch.setitem(os.environ, "LD_LIBRARY_PATH", "/changed/now")
    found = read_kernel()
    assert found.environ["LD_LIBRARY_PATH"] == "/changed/now"
    assert found.loader_path != "/changed/now"
