"""Are the files of the vendors' packages made for this Python and this system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from migrate_kit.environment.check import Check, pip_install, some
from migrate_kit.environment.packages import JUDGED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.facts import Facts, Host, Package
    from migrate_kit.targets import Target

_GROUP = "packages"
_CPYTHON = r"cp3([0-9]{1,4})"
_BINARY = ("torch", "torchvision", "torchaudio", "torch-npu", "torch-mlu", "mindspore", "numpy")


def wheel_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Judge the tags, and whether Python reaches the package that is installed."""
    del goal
    for name in _BINARY:
        package = facts.packages.get(name)
        if package is None:
            continue
        module = JUDGED[name]
        if package.shadow:
            yield _shadow(name, module, package)
        if package.tags and not any(fits(tag, facts.host) for tag in package.tags):
            yield _tag(facts, name, module, package)
        others = [v for v in package.hidden if v != package.version]
        if others:
            yield Check(
                f"{name}-hidden",
                _GROUP,
                "info",
                f"{module} {package.version} hides {module} {some(others)} further down the path",
                "the first on Python's path is imported; the other is only in the way",
            )


def _shadow(name: str, module: str, package: Package) -> Check:
    what = f"'import {module}' takes {package.shadow}"
    if not package.version:
        return Check(
            f"{name}-shadow",
            _GROUP,
            "error",
            f"{what}, but {module} is not installed",
            "a folder that an uninstall or a clone has left is imported in its place:"
            ' "module has no attribute"',
            source="Ascend/pytorch issue 24; flash-linear-attention-npu issue 2",
        )
    return Check(
        f"{name}-shadow",
        _GROUP,
        "error",
        f"{what}, not the installed {module} {package.version}",
        "a folder of that name in the working folder comes first: start Python elsewhere",
        source="Ascend/pytorch issue 24 and installation FAQ",
    )


def _tag(facts: Facts, name: str, module: str, package: Package) -> Check:
    host = facts.host
    why = "its libraries cannot be loaded by another Python, processor or C library"
    command = pip_install(facts, "--force-reinstall", "--no-deps", f"{name}=={package.version}")
    if name == "torch-mlu":
        why = "wheels of Catch go from one system or Python to another only by building them again"
        command = ""
    return Check(
        f"{name}-wheel",
        _GROUP,
        "error",
        f"{module} {package.version} is made for {package.tags[0]}; this is Python {host.python}"
        f" on {host.machine} with glibc {host.glibc}",
        why,
        command,
        "PEP 425 and PEP 600; Cambricon PyTorch user guide, wheel packages",
    )


def fits(tag: str, host: Host) -> bool:
    """Say whether files with this tag of PEP 425 work here.

    Examples
    --------
    >>> from migrate_kit.environment.facts import Host
    >>> here = Host(python="3.11.7", machine="x86_64", glibc="2.36")
    >>> fits("cp311-cp311-manylinux_2_28_x86_64", here), fits("cp310-cp310-linux_x86_64", here)
    (True, False)
    """
    parts = tag.split("-")
    if len(parts) != 3:
        return True
    python, abi, platform = parts
    if platform != "any" and not platform.endswith(f"_{host.machine}"):
        return False
    wanted = re.search(r"manylinux_(\d{1,4})_(\d{1,4})_", platform, re.ASCII)
    glibc = re.match(r"(\d{1,4})\.(\d{1,4})", host.glibc, re.ASCII)
    if wanted and glibc and (int(glibc[1]), int(glibc[2])) < (int(wanted[1]), int(wanted[2])):
        return False
    major, minor = [*host.python.split("."), "0", "0"][:2]
    if python.startswith("py"):
        return any(p in {f"py{major}", f"py{major}{minor}"} for p in python.split("."))
    oldest, ours = re.fullmatch(_CPYTHON, python), re.fullmatch(_CPYTHON, f"cp{major}{minor}")
    if abi == "abi3" and oldest and ours:
        return int(oldest[1]) <= int(ours[1])
    return python == f"cp{major}{minor}"
