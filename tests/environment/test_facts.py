"""Snapshots from strangers, and what is not in one."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrate_kit.environment.facts import Facts
from migrate_kit.environment.judge import judge
from migrate_kit.environment.kernel import read_kernel
from migrate_kit.errors import MigrateError
from migrate_kit.targets import Target, targets

FIXTURE = Path(__file__).parents[2] / "data" / "environments" / "torch_npu-2.9.0.json"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
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
        assert judge(snapshot, goal)


def test_a_snapshot_carries_no_secret():
    environ = {"ASCEND_HOME_PATH": "/x", "HF_TOKEN": "t", "NPU_API_KEY": "k", "MS_PASSWORD": "p"}
    assert read_kernel(environ | {"JUPYTER_TOKEN": "j"}).environ == {"ASCEND_HOME_PATH": "/x"}


def test_the_loader_path_is_the_one_of_the_start(monkeypatch):
    monkeypatch.setitem(os.environ, "LD_LIBRARY_PATH", "/changed/now")
    found = read_kernel()
    assert found.environ["LD_LIBRARY_PATH"] == "/changed/now"
    assert found.loader_path != "/changed/now"
