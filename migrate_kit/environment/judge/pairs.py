"""Do the versions go together: the packages' own metadata, and tables/compat.csv."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from migrate_kit.environment import compat
from migrate_kit.environment.check import Check, pip_install
from migrate_kit.environment.facts import UNKNOWN, Package
from migrate_kit.environment.packages import JUDGED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from migrate_kit.environment.check import State
    from migrate_kit.environment.facts import Facts
    from migrate_kit.targets import Target

_GROUP = "versions"
# A wrong version of these is a fault; of anything else a warning, since the import may still work.
_GRAVE = {"torch", "numpy", "protobuf", "python"}
_PLUGINS = (
    *("torch-npu", "torchvision", "torchaudio", "torch-mlu", "mindspore", "torch"),
    *("onnx", "onnxruntime"),
)
_WHY = {
    "torch": "its libraries are built for one release of torch: with another, symbols or operators"
    " are missing when it is imported",
    "numpy": "libraries built against NumPy 1.x fail under NumPy 2 at the first call that passes a"
    " number or a shape (SystemError)",
    "protobuf": "generated code and the protobuf runtime must fit: the import fails otherwise",
    "python": "its libraries are built for certain versions of Python only",
    "cann": "torch_npu and MindSpore call CANN by names that came and went with its releases",
    "driver": "CANN's runtime calls the driver: an older one ends in undefined symbols such as"
    " halSqMemGet, or in EE1015",
}


@dataclass(frozen=True)
class Demand:
    """What one package wants of another, and whether it has it."""

    package: str
    version: str
    partner: str
    wanted: str
    here: str
    met: bool
    source: str
    note: str = ""
    # Only the build differs, as 2.9.0 from 2.9.0+cpu.
    build_only: bool = False


def pair_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Judge every pair that is installed."""
    del goal
    outside = {
        "cann": facts.ascend.cann[0].version if facts.ascend.cann else "",
        "nnal": facts.ascend.nnal,
    }
    for name in _PLUGINS:
        version = facts.version(name)
        if version and version != UNKNOWN:
            yield from _of(facts, name, version, [*_metadata(facts, name), *_table(facts, name)])
            yield from _status(name, version)
    for name, version in outside.items():
        if version and version != UNKNOWN:
            yield from _of(facts, name, version, list(_table(facts, name, version)))


def mend(facts: Facts, name: str) -> str:
    """Return the command that gives a package the torch it is made for, or an empty text."""
    demands = [*_metadata(facts, name), *_table(facts, name)]
    unmet = [d for d in demands if d.partner == "torch" and not d.met]
    return _command(facts, unmet[-1]) if unmet else ""


def _of(facts: Facts, name: str, version: str, demands: list[Demand]) -> Iterator[Check]:
    """Turn the demands of one package into one check a partner, the unmet demand first."""
    partners = list(dict.fromkeys(d.partner for d in demands))
    for partner in partners:
        mine = [d for d in demands if d.partner == partner]
        unmet = [d for d in mine if not d.met]
        if unmet:
            yield _unmet(facts, unmet)
        elif any(d.here for d in mine) and (partner in _GRAVE or partner in compat.PARTNERS):
            what = f"{_say(name)} {version} goes with {_say(partner)} {mine[-1].here}"
            yield Check(f"{name}-{partner}", _GROUP, "ok", what, source=mine[-1].source)


def _unmet(facts: Facts, unmet: list[Demand]) -> Check:
    # A single release says more than a bound: the table's word comes before "numpy>=1.25".
    demand = unmet[-1]
    name, partner = demand.package, demand.partner
    here = (
        f"{_say(partner)} {demand.here} is here" if demand.here else f"no {_say(partner)} is here"
    )
    what = f"{_say(name)} {demand.version} needs {_say(partner)} {demand.wanted}; {here}"
    why = _WHY.get(partner, "it may fail when it is imported or later")
    state: State = "error" if partner in _GRAVE else "warning"
    if name == "torch-npu" and partner == "torch" and demand.here:
        symbols = _resolved(facts)
        if demand.build_only:
            state = "warning" if facts.torch and facts.torch.cuda else "ok"
            why = "the plug-in is made for the CPU build of torch"
        elif symbols:
            state = "warning"
            why = (
                f"pip refuses this pair. All {symbols:,} symbols that it takes are there, so it"
                " loads, but nobody tested the two together"
            )
    if demand.note:
        why = f"{why}; {demand.note}"
    return Check(
        f"{name}-{partner}", _GROUP, state, what, why, _command(facts, demand), demand.source
    )


def _command(facts: Facts, demand: Demand) -> str:
    name, partner = demand.package, demand.partner
    if partner == "torch" and name in {"torchvision", "torchaudio"} and demand.here:
        fits = [r for r in compat.rows_of(name) if compat.accepts(r.cell("torch"), demand.here)]
        if fits:
            return pip_install(facts, f"{name}=={fits[-1].version}")
    if partner in {"cann", "driver", "gcc", "python"}:
        return ""
    wanted = demand.wanted
    exact = f"{partner}{wanted if wanted[:1] in '<>=!~' else f'=={wanted.split()[0]}'}"
    if partner == "torch" and name == "torch-npu":
        base = wanted.lstrip("=").split()[0].partition("+")[0].removesuffix(".*")
        vision = [r for r in compat.rows_of("torchvision") if compat.accepts(r.cell("torch"), base)]
        extra = [f"torchvision=={vision[0].version}"] if vision and _both(facts) else []
        return pip_install(facts, exact, *extra)
    return pip_install(facts, exact)


def _both(facts: Facts) -> bool:
    return bool(facts.version("torchvision"))


def _metadata(facts: Facts, name: str) -> Iterator[Demand]:
    for text in facts.packages.get(name, Package()).requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # of a snapshot that somebody has changed
            continue
        partner = canonicalize_name(requirement.name)
        if partner not in facts.packages and partner.startswith(("nvidia-", "cuda-", "triton")):
            continue  # a build of torch without CUDA is the right one here
        here = facts.version(partner)
        if here == UNKNOWN:
            continue  # its own check says so
        met, build_only = bool(here), False
        if here and requirement.specifier:
            met = _contains(requirement.specifier, here)
            build_only = not met and _contains(
                _public(requirement.specifier), here.partition("+")[0]
            )
        yield Demand(
            name,
            facts.version(name),
            partner,
            str(requirement.specifier) or "(any)",
            here,
            met,
            f"metadata of {name} {facts.version(name)}",
            build_only=build_only,
        )


def _contains(wanted: SpecifierSet, version: str) -> bool:
    try:
        return wanted.contains(version, prereleases=True)
    except ValueError:  # no version, or one of some thousand digits
        return False


def _public(wanted: SpecifierSet) -> SpecifierSet:
    return SpecifierSet(",".join(re.sub(r"\+[\w.]+$", "", str(s)) for s in wanted))


def _table(facts: Facts, name: str, version: str = "") -> Iterator[Demand]:
    version = version or facts.version(name)
    for row in compat.rows_of(name, version):
        for partner in compat.PARTNERS:
            wanted, here = _wanted(row.cell(partner), facts, name, version), _here(facts, partner)
            if not wanted or not here or (partner == "gcc" and name != "build of torch_npu"):
                continue
            met = compat.accepts(wanted, here)
            if partner == "cann" and not met and compat.accepts(row.cann_also, here):
                met = True
            if partner == "driver" and not met and not compat.older(here, wanted):
                met = True  # newer than the table: it is the old ones that lack something
            yield Demand(
                name,
                version,
                partner,
                wanted,
                here,
                met,
                row.source,
                "" if met else _note(row.note, partner),
            )


def _note(note: str, partner: str) -> str:
    """Return the parts of a row's note that speak of this partner."""
    return "; ".join(p.strip() for p in note.split("; ") if _say(partner).lower() in p.lower())


def _wanted(cell: str, facts: Facts, name: str, version: str) -> str:
    if cell == "same":
        return version
    if cell == "local":
        found = re.search(r"torch[._]?(\d+(?:\.\d+)*)", facts.version(name).partition("+")[2])
        return found[1] if found else ""
    return cell


def _here(facts: Facts, partner: str) -> str:
    if partner == "python":
        return ".".join(facts.host.python.split(".")[:2])
    if partner == "cann":
        return facts.ascend.cann[0].version if facts.ascend.cann else ""
    if partner == "driver":
        return facts.ascend.driver
    if partner == "gcc":
        return facts.host.gcc
    here = facts.version(partner)
    return "" if here == UNKNOWN else here


def _resolved(facts: Facts) -> int:
    """Return how many symbols torch_npu takes, if all of torch's are there; else 0."""
    mine = [x for x in facts.libraries if x.package == "torch-npu"]
    if not mine or any(x.problem or "torch" in x.missing for x in mine):
        return 0
    return max(x.undefined for x in mine)


def _status(name: str, version: str) -> Iterable[Check]:
    if name not in {"torch-npu", "mindspore"}:
        return
    rows = compat.rows_of(name, version)
    if not rows:
        yield Check(
            f"{name}-unknown",
            _GROUP,
            "info",
            f"{_say(name)} {version} is not in the table of pairs of {compat.checked()}",
            "its partners are judged by its metadata and its symbols only"
            + ("; it is newer than the table" if _newer(name, version) else ""),
            source="tables/compat.csv",
        )
    for row in rows:
        if row.status == "eol":
            yield Check(
                f"{name}-eol",
                _GROUP,
                "info",
                f"{_say(name)} {version} is no longer maintained, since {row.eol}",
                "errors in it are not mended",
                source=row.source,
            )


def _newer(name: str, version: str) -> bool:
    try:
        return Version(version) > max(Version(r.version) for r in compat.rows_of(name))
    except (InvalidVersion, ValueError):
        return False


def _say(name: str) -> str:
    names = {"cann": "CANN", "nnal": "NNAL", "driver": "driver", "python": "Python", "gcc": "GCC"}
    names |= {"numpy": "NumPy", "mindspore": "MindSpore"}
    return names.get(name) or JUDGED.get(name, name)
