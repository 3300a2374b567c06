"""CNToolkit and its libraries, torch_mlu, the build, and the cards."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from migrate_kit.environment import compat
from migrate_kit.environment.check import Check, some
from migrate_kit.results import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.check import State
    from migrate_kit.environment.facts import Facts
    from migrate_kit.targets import Target

_GROUP = "Cambricon"
_GUIDE = "Cambricon PyTorch user guide, wheel packages"
_OF_MLU270 = {"CNML", "CNPlugin"}
_ORDER = (
    "the order is: patch torch's source, build and install torch, build and install Catch,"
    " then torchvision"
)
_BUILD = (
    'bash "$CATCH_HOME/script/apply_patches_to_pytorch.sh"'
    ' && cd "$PYTORCH_HOME" && python setup.py clean && python setup.py bdist_wheel'
)
_CARD = re.compile(r"\bMLU\d+[\w-]*")


def cambricon_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Judge the Cambricon side where it is wanted or where something of it is installed."""
    cards = [n for n in facts.devices if re.fullmatch(r"/dev/cambricon_dev\d+", n)]
    here = facts.cambricon
    installed = bool(facts.version("torch-mlu") or here.home)
    if not (goal.cambricon or installed or cards):
        return
    yield from _cards(facts, goal, cards)
    yield from _software(facts, goal, cards)
    yield from _build(facts)
    if not facts.version("torch-mlu"):
        yield Check(
            "torch-mlu-absent",
            _GROUP,
            "error" if cards else "info",
            "torch_mlu is not installed",
            "PyTorch reaches the card through it; its wheels (and those of the patched torch) go"
            " from one system or Python to another only by building them again"
            + ("" if cards else ". Without a card there is no need for it"),
            "",
            _GUIDE,
        )


def _cards(facts: Facts, goal: Target, cards: list[str]) -> Iterator[Check]:
    if not cards:
        yield Check(
            "mlu-absent",
            _GROUP,
            "info",
            "no MLU card is here (no /dev/cambricon_dev0)",
            "weights can be read, converted and compared without it; running needs the card",
            "",
            "device nodes",
        )
        return
    closed = [n for n in cards if facts.devices[n] == "no permission"]
    if closed:
        yield Check(
            "mlu-permission",
            _GROUP,
            "error",
            f"this user may not open {some(closed)}",
            "no program can use the card",
            shlex.join(["ls", "-l", *closed[:4]]),
        )
    answer = facts.commands.get("cnmon")
    if not facts.probed:
        return
    if answer is None or answer.code != 0:
        yield Check(
            "cnmon",
            _GROUP,
            "warning",
            "cnmon is not here" if answer is None else "cnmon fails",
            "it tells the state of the cards; a container has it only if it is mounted",
            "docker run -v /usr/bin/cnmon:/usr/bin/cnmon IMAGE",
            "Paddle guide for MLU370",
        )
        return
    names = sorted(set(_CARD.findall(answer.out)))
    driver = re.search(r"Driver\s+v?([\d.]+)", answer.out)
    told = f", driver {driver[1]}" if driver else ""
    yield Check(
        "cnmon", _GROUP, "ok", f"{counted(len(cards), 'card')}, {some(names) or 'unnamed'}{told}"
    )
    if names and goal.chips and not any(n.startswith(goal.chips) for n in names):
        yield Check(
            "mlu-target",
            _GROUP,
            "warning",
            f"the target is {goal.name}, the card here is {some(names)}",
            "MLU270 quantizes to int8 and int16, MLU370 runs fp16 and fp32; choose the card"
            " that is here",
            "",
            "tables/targets.csv",
        )


def _software(facts: Facts, goal: Target, cards: list[str]) -> Iterator[Check]:
    here, environ = facts.cambricon, facts.kernel.environ
    if not here.home:
        yield Check(
            "neuware-absent",
            _GROUP,
            "error" if cards else "info",
            "CNToolkit is not here (no NEUWARE_HOME, no /usr/local/neuware)",
            "torch_mlu needs CNToolkit, CNML, CNNL, CNPlugin and CNCL"
            + ("" if cards else "; without a card there is no need for them"),
            "export NEUWARE_HOME=/usr/local/neuware" if cards else "",
            _GUIDE,
        )
        return
    found = {k: v for k, v in here.components.items() if v}
    lost = [k for k, v in here.components.items() if not v]
    # The software of later cards has no CNML and CNPlugin any more (SGLang guide, components).
    grave = [k for k in lost if goal.name == "mlu270" or k not in _OF_MLU270]
    state: State = "warning" if grave else "info" if lost else "ok"
    said = ", ".join(k if v == "found" else f"{k} {v}" for k, v in found.items())
    yield Check(
        "neuware",
        _GROUP,
        state,
        f"Neuware {here.version or 'of unknown version'} in {here.home}: {said or 'nothing'}"
        + (f"; {some(lost, 5)} not found" if lost else ""),
        "each is a package of its own; an MLU270 needs all, later cards no CNML and CNPlugin"
        if lost
        else "",
        "",
        _GUIDE,
    )
    if not environ.get("NEUWARE_HOME"):
        yield Check(
            "neuware-home",
            _GROUP,
            "warning",
            "NEUWARE_HOME is not set",
            "torch_mlu is built and looked up by it",
            shlex.join(["export", f"NEUWARE_HOME={here.home}"]),
            _GUIDE,
        )
    if f"{here.home}/lib64" not in [p.rstrip("/") for p in facts.kernel.loader_path.split(":")]:
        yield Check(
            "neuware-path",
            _GROUP,
            "error" if facts.version("torch-mlu") else "warning",
            f"{here.home}/lib64 is not on LD_LIBRARY_PATH",
            "the loader does not find the libraries of Neuware: 'import torch_mlu' fails",
            f'export LD_LIBRARY_PATH={shlex.quote(here.home)}/lib64:"$LD_LIBRARY_PATH"',
            _GUIDE,
        )
    if not here.torch_home:
        yield Check(
            "torch-home",
            _GROUP,
            "info",
            "TORCH_HOME names no folder",
            "genoff.py reads its models from TORCH_HOME; nothing else needs it",
            'export TORCH_HOME="$PWD/model_zoo"',
            "Cambricon PyTorch user guide, offline models",
        )


def _build(facts: Facts) -> Iterator[Check]:
    gcc, abi = facts.host.gcc, facts.kernel.environ.get("USE_ABI", "")
    rows = [r for r in compat.rows_of("torch_mlu") if r.cell("gcc")]
    if gcc and rows and not compat.accepts(rows[0].cell("gcc"), gcc):
        yield Check(
            "mlu-gcc",
            _GROUP,
            "warning",
            f"GCC {gcc} is here; building Catch needs {rows[0].cell('gcc')}",
            "older ones do not compile its C++ code; installed wheels do not care",
            "gcc --version",
            rows[0].source,
        )
    built = facts.torch.cxx11_abi if facts.torch else ""
    if abi in {"0", "1"} and built and abi != built:
        yield Check(
            "mlu-abi",
            _GROUP,
            "error",
            f"USE_ABI={abi}, but torch is built with _GLIBCXX_USE_CXX11_ABI={built}",
            "the offline examples will not link: std::string has two forms, and torch, glog and"
            " gflags must all have the same",
            f"export USE_ABI={built}",
            _GUIDE,
        )
    if facts.cambricon.tree in {"not patched", "built before"}:
        before = facts.cambricon.tree == "built before"
        yield Check(
            "mlu-patch",
            _GROUP,
            "error",
            "the wheel of torch in PYTORCH_HOME/dist is older than Catch's patches"
            if before
            else "PYTORCH_HOME does not have Catch's patches: no device type MLU in DeviceType.h",
            _ORDER,
            _BUILD,
            f"{_GUIDE}; Cambricon/catch README.md",
        )
