"""pyproject.toml, constraints.txt and environment.yml say the same."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
PIP = CONDA[-1]["pip"]
EXTRAS = ("workbook", "test", "bench")


def pins(lines):
    found = {}
    for line in lines:
        if match := re.fullmatch(r"([\w.-]+)==([\w.+!-]+)", line.strip()):
            name = canonicalize_name(match[1])
            assert name not in found, f"{name} is pinned twice"
            found[name] = match[2]
    return found


CONSTRAINTS = pins((ROOT / "constraints.txt").read_text().splitlines())
DIRECT = [
    requirement
    for group in (PROJECT["dependencies"], *(PROJECT["optional-dependencies"][e] for e in EXTRAS))
    for requirement in map(Requirement, group)
    if requirement.marker is None or requirement.marker.evaluate({"python_version": "3.11"})
]


@pytest.mark.parametrize("requirement", DIRECT, ids=str)
def test_the_pin_is_in_the_range(requirement):
    assert requirement.specifier.contains(CONSTRAINTS[canonicalize_name(requirement.name)])


def test_every_constraint_is_an_exact_pin():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in lines if line.strip() and not line.startswith("#")]
    assert len(kept) == len(CONSTRAINTS)


def test_conda_pins_the_direct_dependencies_as_the_constraints_do():
    wanted = {canonicalize_name(r.name) for r in DIRECT}
    assert pins(PIP) == {name: CONSTRAINTS[name] for name in wanted}


def test_conda_installs_the_package_under_the_constraints():
    assert "-c constraints.txt" in PIP
    assert PIP[-1] == "-e ."
    assert len(PIP) == len(pins(PIP)) + 2


def test_conda_takes_the_python_that_the_pins_were_tried_on():
    assert "python=3.11" in CONDA
    assert "Python 3.11" in (ROOT / "constraints.txt").read_text()


def test_the_core_leaves_torch_alone():
    core = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert not core & {"torch", "torchvision", "torch-npu", "mindspore", "onnxruntime"}


def test_numpy_stays_below_2():
    (numpy,) = (r for r in DIRECT if r.name == "numpy")
    assert not numpy.specifier.contains("2.0.0")


@pytest.mark.parametrize("name", sorted({canonicalize_name(r.name) for r in DIRECT}))
def test_what_is_installed_here_is_what_is_pinned(name):
    try:
        installed = version(name)
    except PackageNotFoundError:
        pytest.fail(f"{name} is not installed; run: make lab")
    # A local build, such as torch 2.14.1+cpu, is the same version.
    assert installed.partition("+")[0] == CONSTRAINTS[name]
