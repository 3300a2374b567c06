"""Traces from strangers: no index and no tensor file may do anything but give a MigrateError."""

from __future__ import annotations

import copy
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import migrate_kit as mk

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.just(-1),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["float99", "complex64", "int64", "F32", "../x", "input", "\ud800"]),
    st.recursive(st.none(), lambda s: st.lists(s, max_size=2) | st.dictionaries(st.text(), s)),
)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("traces") / "good"
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    mk.capture(model, torch.ones(2, 4), store=folder)
    mk.capture(model, torch.ones(2, 4), store=folder.with_name("sketched"), tensors=False)
    return folder


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside nested JSON."""
    found = [path] if path else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        found.extend(places(item, (*path, key)))
    return found


def use(folder: Path, good: Path) -> None:
    """Load and compare; whatever is wrong must be told as one MigrateError."""
    try:
        trace = mk.Trace.load(folder)
        diff = mk.compare(good, trace, noise=False)
        diff.to_frame()
        diff._repr_html_()
        json.dumps(diff.to_dict(), allow_nan=False)
    except mk.MigrateError:
        pass


@SETTINGS
@given(data=st.data())
def test_any_value_of_the_index_may_be_strange(data: st.DataObject, good: Path) -> None:
    index = json.loads((good / "index.json").read_text())
    strange = copy.deepcopy(index)
    for path in data.draw(st.lists(st.sampled_from(places(index)), min_size=1, max_size=3)):
        target = strange
        try:
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = data.draw(STRANGE)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took this place away
    folder = good.with_name("strange")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder)
    (folder / "index.json").write_text(json.dumps(strange))
    use(folder, good)


@SETTINGS
@given(
    name=st.sampled_from(["index.json", "tensors-001.safetensors", "sketches.safetensors"]),
    position=st.floats(0, 1),
    insert=st.binary(max_size=16),
    cut=st.integers(0, 64),
)
def test_any_bytes_may_be_wrong(
    good: Path, name: str, position: float, insert: bytes, cut: int
) -> None:
    folder = good.with_name("bytes")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good.with_name("sketched") if "sketches" in name else good, folder)
    content = (folder / name).read_bytes()
    # Most of a tensor file is the padding of its header; aim at both ends.
    at = int(position**3 * len(content))
    (folder / name).write_bytes(content[:at] + insert + content[at + cut :])
    use(folder, good)


@SETTINGS
@given(text=st.text(max_size=40) | st.just("[" * 5000) | st.just('{"format": "migrate-kit-noise"}'))
def test_any_noise_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "noise.json"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(mk.MigrateError):
        mk.NoiseFloor.from_file(path)
