"""Metadata of installed packages that cannot be read."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.check import Check, pip_install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.facts import Facts
    from migrate_kit.targets import Target

_GROUP = "packages"


def damage_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Say which packages are damaged; their versions are then not judged."""
    del goal
    for name, package in facts.packages.items():
        for file, problem in package.damage.items():
            why = "what is not known of it is not judged here; pip may end at the same file"
            source = "pip and importlib.metadata of Python 3.11, measured"
            yield _check(facts, f"{name}-metadata", name, (file, problem), (why, source))
    for file, problem in facts.damaged.items():
        folder = Path(file).parent.name
        why = (
            "'import torch' looks for plug-ins among the entry points of every installed package,"
            " and ends at this one"
        )
        source = "torch/__init__.py, _import_device_backends; torch 2.14.1, measured"
        name = folder.partition("-")[0]
        yield _check(facts, f"entry-points-{folder}", name, (file, problem), (why, source))


def _check(
    facts: Facts, number: str, name: str, found: tuple[str, str], told: tuple[str, str]
) -> Check:
    (file, problem), (why, source) = found, told
    # pip reads the file before it would replace it, and fails as well: it must go first.
    again = pip_install(facts, "--force-reinstall", "--no-deps", name)
    command = f"{shlex.join(['rm', '-f', file])} && {again}"
    return Check(number, _GROUP, "error", f"{file} cannot be read: {problem}", why, command, source)
