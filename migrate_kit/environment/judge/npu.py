"""The NPUs of this machine: their nodes, what npu-smi says of them, and the driver."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from migrate_kit.environment.check import Check, some
from migrate_kit.targets import named_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.facts import Facts
    from migrate_kit.targets import Target

_GROUP = "Ascend"
# The card's nodes need these beside them (vllm-ascend and cann-container-image run commands).
_COMPANIONS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_CHIP = re.compile(
    r"^\|\s*\d+\s+(\S+)\s*\|\s*(OK|Warning|Alarm|Critical|UNKNOWN)\s*\|", re.MULTILINE
)


def npus_of(facts: Facts) -> list[str]:
    """Return the nodes of the NPUs."""
    return [n for n in facts.devices if re.fullmatch(r"/dev/davinci\d+", n)]


def npu_checks(facts: Facts, goal: Target, npus: list[str]) -> Iterator[Check]:
    """Judge the devices and the driver."""
    yield from _devices(facts, goal, npus)
    yield from _driver(facts, npus)


def _devices(facts: Facts, goal: Target, npus: list[str]) -> Iterator[Check]:
    if not npus:
        yield Check(
            "npu-absent",
            _GROUP,
            "info",
            "no NPU is here (no /dev/davinci0); the rehearsal will run on the CPU",
            "a rehearsal is real arithmetic under the device's rules; timing needs the device",
            "",
            "device nodes",
        )
        return
    group = facts.ascend.in_group
    closed = [n for n in (*npus, *_COMPANIONS) if facts.devices.get(n) == "no permission"]
    if closed:
        yield Check(
            "npu-permission",
            _GROUP,
            "error",
            f"this user may not open {some(closed)}",
            "the runtime reports 'dcmi module initialize failed. ret is -8005' or error 207006"
            + ("; the group HwHiAiUser may, and it is not in it" if group is False else ""),
            'sudo usermod -aG HwHiAiUser "$USER"',
            "vllm-project/vllm-ascend issue 2698",
        )
    absent = [n for n in _COMPANIONS if n not in facts.devices]
    if absent:
        flags = " ".join(f"--device {n}" for n in (npus[0], *_COMPANIONS))
        yield Check(
            "npu-nodes",
            _GROUP,
            "error",
            f"{npus[0]} is here, {some(absent)} is not",
            "a container needs these nodes beside the card's own: start it with these flags",
            f"docker run {flags} IMAGE",
            "vllm-project/vllm-ascend installation guide",
        )
    if not closed and not absent:
        yield Check("npu-nodes", _GROUP, "ok", f"{len(npus)} NPU nodes, open to this user")
    yield from _smi(facts, goal)


def _smi(facts: Facts, goal: Target) -> Iterator[Check]:
    if not facts.probed:
        return
    answer = facts.commands.get("npu-smi")
    if answer is None:
        yield Check(
            "npu-smi",
            _GROUP,
            "warning",
            "npu-smi is not here",
            "it tells the state of the cards; a container has it only if it is mounted",
            "docker run -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi IMAGE",
            "vllm-project/vllm-ascend installation guide",
        )
        return
    chips = _CHIP.findall(answer.out)
    if answer.code != 0 or not chips:
        said = (answer.err or answer.out).strip().splitlines()
        yield Check(
            "npu-smi",
            _GROUP,
            "error",
            f"npu-smi info fails: {said[-1][:200] if said else 'no answer'}",
            "the driver cannot reach the cards",
            shlex.join([answer.path, "info"]),
            "vllm-project/vllm-ascend issue 2698",
        )
        return
    names = sorted({name for name, _ in chips})
    sick = [f"{name} {health}" for name, health in chips if health != "OK"]
    yield Check(
        "npu-smi",
        _GROUP,
        "error" if sick else "ok",
        f"{len(chips)} chips, {some(names)}" + (f"; not well: {some(sick)}" if sick else ""),
        "a chip that is not OK refuses work or computes slowly" if sick else "",
        shlex.join([answer.path, "info", "-t", "health", "-i", "0"]) if sick else "",
    )
    # Newer cards say only Ascend910, which every target of the family is.
    known = [f"Ascend{n.removeprefix('Ascend')}" for n in names]
    told = [n for n in known if n != "Ascend910"]
    if goal.chips and told and not any(goal.has(n) for n in told):
        yield Check(
            "npu-target",
            _GROUP,
            "warning",
            f"the target is {goal.name}, the chip here is {some(told)}",
            "support of dtypes and operators differs between chips; choose the target that is here",
            "",
            "tables/targets.csv",
        )


def kernel_checks(facts: Facts, goal: Target, npus: list[str]) -> Iterator[Check]:
    """Judge whether the operator packages of CANN are those of the chip."""
    kernels = facts.ascend.cann[0].kernels
    chip = _chip_here(facts) or (goal.name if goal.ascend else "")
    # The first generation has no letter in CANN's folders.
    folder = chip.removesuffix("a") if chip == "ascend910a" else chip
    if not (kernels and chip):
        return
    if folder in kernels:
        yield Check("cann-kernels", _GROUP, "ok", f"operator packages for {some(kernels)} are here")
        return
    yield Check(
        "cann-kernels",
        _GROUP,
        "error" if npus else "warning",
        f"the operator packages are for the wrong chip: {some(kernels)} here, {chip} wanted",
        "the first operator ends in 561103, 561112 or 'Cannot find bin of op'; packages of several"
        " chips may lie beside each other",
        f"bash Ascend-cann-kernels-{folder.removeprefix('ascend')}_VERSION_linux.run --install",
        "CANN 7.0 and 8.0 installation guide, binary operator packages (instg_0034, instg_0035)",
    )


def _chip_here(facts: Facts) -> str:
    """Return the target that the chips of npu-smi belong to, if they say and all are of one."""
    answer = facts.commands.get("npu-smi")
    names = {name for name, _ in _CHIP.findall(answer.out)} if answer else set()
    found = {t.name for n in names if (t := named_target(f"ascend{n.lower()}")) is not None}
    return found.pop() if len(found) == 1 else ""


def _driver(facts: Facts, npus: list[str]) -> Iterator[Check]:
    ascend = facts.ascend
    if npus and not ascend.hal:
        yield Check(
            "driver-absent",
            _GROUP,
            "error",
            "the driver's libraries are not here (libascend_hal.so)",
            "CANN's runtime links them: importing ends in 'libascend_hal.so: cannot open shared"
            " object file'; a container needs them mounted",
            "docker run -v /usr/local/Ascend/driver:/usr/local/Ascend/driver"
            " -v /usr/local/dcmi:/usr/local/dcmi IMAGE",
            "vllm-project/vllm-ascend issue 1440; FlagCX issue 451",
        )
    if ascend.driver:
        firmware = f", firmware {ascend.firmware}" if ascend.firmware else ""
        yield Check("driver", _GROUP, "ok", f"driver {ascend.driver}{firmware}")
