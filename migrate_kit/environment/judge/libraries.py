"""Will the loader find everything: libraries, symbols, versions of the C and C++ libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate_kit.environment.check import Check, pip_install, some
from migrate_kit.environment.compat import parse
from migrate_kit.environment.judge.pairs import mend
from migrate_kit.environment.packages import JUDGED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.facts import Facts, Library
    from migrate_kit.targets import Target

_GROUP = "libraries"


def library_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Judge what was read from the libraries' files."""
    del goal
    for package in dict.fromkeys(x.package for x in facts.libraries):
        mine = [x for x in facts.libraries if x.package == package]
        yield from _damaged(facts, package, mine)
        if package == "cann":
            yield from _driver(facts, mine)
        else:
            yield from _torch_symbols(facts, package, mine)
            yield from _system(facts, package, mine)
    yield from _cann_symbols(facts)


def _damaged(facts: Facts, package: str, mine: list[Library]) -> Iterator[Check]:
    for x in mine:
        if x.problem:
            name = JUDGED.get(package, package)
            again = pip_install(facts, "--force-reinstall", "--no-deps", package)
            yield Check(
                f"{package}-damaged",
                _GROUP,
                "error",
                f"{x.file} of {name} cannot be read",
                x.problem,
                "" if package == "cann" else again,
            )


def _torch_symbols(facts: Facts, package: str, mine: list[Library]) -> Iterator[Check]:
    name, version = JUDGED.get(package, package), facts.version(package)
    worst = max(mine, key=lambda x: x.missing["torch"].count if "torch" in x.missing else 0)
    lost = worst.missing.get("torch")
    torch = facts.torch.version if facts.torch else "(none)"
    if lost is None:
        if worst.undefined:
            yield Check(
                f"{package}-symbols",
                _GROUP,
                "ok",
                f"every symbol that {name} {version} takes from torch is in torch {torch}",
            )
        return
    count = "1 symbol" if lost.count == 1 else f"{lost.count} symbols"
    yield Check(
        f"{package}-symbols",
        _GROUP,
        "error",
        f"{count} that {name} {version} takes from torch {'is' if lost.count == 1 else 'are'}"
        f" not in torch {torch}",
        f"{worst.file} takes {worst.undefined:,} symbols; importing it ends in 'undefined symbol'."
        f" Missing: {some(lost.names, 2, lost.count)}",
        mend(facts, package),
        "symbol tables of both, as the loader resolves them; Ascend/pytorch issue 35",
    )


def _system(facts: Facts, package: str, mine: list[Library]) -> Iterator[Check]:
    name, host = JUDGED.get(package, package), facts.host
    for kind, here, cure in (
        ("glibc", host.glibc, "use a newer system or container image; glibc cannot be exchanged"),
        ("glibcxx", host.glibcxx, "put a newer libstdc++.so.6 in front"),
    ):
        wanted = max((getattr(x, kind) for x in mine), key=_order, default="")
        if not wanted or not here or _order(wanted) <= _order(here):
            continue
        label = "glibc" if kind == "glibc" else "libstdc++ with GLIBCXX"
        command = "" if kind == "glibc" else "conda install -c conda-forge libstdcxx-ng"
        where = "" if kind == "glibc" else f" ({host.libstdcxx})"
        yield Check(
            f"{package}-{kind}",
            _GROUP,
            "error",
            f"{name} needs {label} {wanted}; {here} is here{where}",
            f"importing it ends in \"version '{kind.upper()}_{wanted}' not found\"; {cure}",
            command,
        )


def _order(version: str) -> tuple[int, ...]:
    found = parse(version) if version else None
    return found.release if found else ()


def _cann_symbols(facts: Facts) -> Iterator[Check]:
    """With CANN's libraries found, whatever is missing of them is a CANN that is too old."""
    mine = [x for x in facts.libraries if x.package == "torch-npu"]
    for x in mine:
        lost = x.missing.get("cann")
        if (
            lost is None
            or any(y.absent for y in mine if "atb" not in y.file)
            or not facts.ascend.cann
        ):
            continue
        yield Check(
            "cann-symbols",
            _GROUP,
            "error",
            f"{lost.count} functions that torch_npu {facts.version('torch-npu')} calls are not in"
            f" CANN {facts.ascend.cann[0].version}",
            f"CANN is older than the one it was built for: importing torch_npu ends in 'undefined"
            f" symbol'. Missing: {some(lost.names, 3, lost.count)}",
            "",
            "stub libraries taken away one at a time, torch_npu 2.14.0",
        )
        return


def _driver(facts: Facts, mine: list[Library]) -> Iterator[Check]:
    for x in mine:
        if (lost := x.missing.get("driver")) is not None:
            version = facts.ascend.driver or "of unknown version"
            yield Check(
                "driver-symbols",
                _GROUP,
                "error",
                f"{lost.count} driver functions that {x.file} of CANN calls are not in the driver"
                f" {version}: {some(lost.names, 3, lost.count)}",
                "the driver and firmware are older than CANN: even 'import torch' may end in"
                ' "undefined symbol: halSqMemGet". Install the driver and firmware of CANN\'s'
                " release notes and restart the machine",
                "npu-smi info",
                "symbol tables of both",
            )
            return
