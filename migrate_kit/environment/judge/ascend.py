"""CANN, NNAL and torch_npu, or their absence."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from migrate_kit.environment import compat
from migrate_kit.environment.check import Check, pip_install, some
from migrate_kit.environment.judge.npu import kernel_checks, npu_checks, npus_of
from migrate_kit.environment.judge.plan import paired, plan_checks
from migrate_kit.environment.judge.variables import lacking, source_command
from migrate_kit.environment.packages import CANN_PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.check import State
    from migrate_kit.environment.facts import Cann, Facts
    from migrate_kit.targets import Target

_GROUP = "Ascend"
_FAQ = "Ascend/pytorch installation FAQ"


def ascend_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Judge the Ascend side where it is wanted or where something of it is installed."""
    npus = npus_of(facts)
    installed = bool(facts.version("torch-npu") or facts.ascend.cann or facts.ascend.driver)
    if not (goal.ascend or installed or npus):
        return
    yield from npu_checks(facts, goal, npus)
    yield from _plugin(facts, goal, npus)
    if facts.ascend.cann:
        yield from _layout(facts, facts.ascend.cann[0])
        yield from kernel_checks(facts, goal, npus)
        yield from _kernel(facts)
        yield from _operators(facts)
        yield from _nnal(facts)
    else:
        yield from _no_cann(facts, goal, npus)


def _plugin(facts: Facts, goal: Target, npus: list[str]) -> Iterator[Check]:
    version = facts.version("torch-npu")
    if version and facts.torch and facts.torch.cuda:
        yield Check(
            "torch-npu-cuda",
            _GROUP,
            "warning",
            f"torch {facts.torch.version} is built for CUDA, beside torch_npu {version}",
            "with CANN in place both register the same allocator setting and the process ends in"
            " \"Duplicated key 'pinned_reserve_segment_size_mb'\"; torch_npu is made for the CPU"
            " build, which PyTorch's own index of CPU wheels has",
            pip_install(facts, f"torch=={_torch_for(version, facts.torch.version)}+cpu"),
            "seen with torch 2.14 for CUDA 13.0 and torch_npu 2.14.0 over stub libraries",
        )
    if not version and "torch_npu" in goal.frameworks:
        state: State = "error" if npus and not facts.version("mindspore") else "info"
        fitting = paired(facts.version("torch").partition("+")[0], facts)
        yield Check(
            "torch-npu-absent",
            _GROUP,
            state,
            "torch_npu is not installed",
            "PyTorch reaches the NPU through it"
            + ("" if npus else "; the rehearsal does without, and without CANN it breaks torch"),
            pip_install(facts, f"torch_npu=={fitting[0].version}") if npus and fitting else "",
            "tables/compat.csv",
        )
        yield from plan_checks(facts)


def _torch_for(plugin: str, here: str) -> str:
    rows = compat.rows_of("torch-npu", plugin)
    return (rows[0].cell("torch") if rows else here).partition("+")[0]


def _no_cann(facts: Facts, goal: Target, npus: list[str]) -> Iterator[Check]:
    plugin = facts.version("torch-npu")
    lost = [
        n for x in facts.libraries if x.package == "torch-npu" for n in x.absent if "atb" not in n
    ]
    lost = list(dict.fromkeys(lost))
    off = facts.kernel.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"
    if plugin and lost:
        yield Check(
            "cann-absent",
            _GROUP,
            "info" if off and not npus else "error",
            f"torch_npu {plugin} is installed, CANN is not: {some(lost, 5)} cannot be found",
            "torch_npu cannot be imported without the libraries of CANN"
            + ("" if off else ", and neither can torch, which loads it by itself"),
            pip_uninstall(facts, "torch_npu") if not npus else "",
            _FAQ,
        )
    elif npus or goal.ascend:
        yield Check(
            "cann-absent",
            _GROUP,
            "error" if npus else "info",
            "CANN is not installed",
            "the toolkit brings the runtime, the operator packages and ATC"
            + ("" if npus else "; the rehearsal does without"),
            "bash Ascend-cann-toolkit_VERSION_linux-ARCH.run --install" if npus else "",
            "CANN software installation guide",
        )


def pip_uninstall(facts: Facts, name: str) -> str:
    """Return the command that takes a package out of the environment that was looked at."""
    return shlex.join([facts.host.executable or "python", "-m", "pip", "uninstall", name])


def _layout(facts: Facts, cann: Cann) -> Iterator[Check]:
    version = cann.version or "of unknown version"
    if cann.absent:
        yield Check(
            "cann-layout",
            _GROUP,
            "error",
            f"CANN {version} in {cann.root} lacks {some(cann.absent)}",
            "a runtime package alone (nnrt) or an unfinished install: install the toolkit and the"
            " operator package of one version",
            "bash Ascend-cann-toolkit_VERSION_linux-ARCH.run --check",
            _FAQ,
        )
    else:
        yield Check("cann-layout", _GROUP, "ok", f"CANN {version} in {cann.root} is complete")
    if not cann.set_env:
        yield Check(
            "cann-script",
            _GROUP,
            "warning",
            f"{cann.root} has no set_env.sh",
            "its variables must then be set by hand",
            "",
            _FAQ,
        )
    if not cann.ops or (cann.version and cann.ops.split(".")[:2] != cann.version.split(".")[:2]):
        here = f"those of {cann.ops}" if cann.ops else "none"
        yield Check(
            "cann-ops",
            _GROUP,
            "warning",
            f"CANN {version} wants operator packages of its own version: {here} found",
            "without the operator (kernels) package of the chip, operators are compiled one by"
            " one or refused",
            "bash Ascend-cann-CHIP-ops_VERSION_linux-ARCH.run --install",
            "CANN 8.5.0 release note, version mapping",
        )
    others = [c.root for c in facts.ascend.cann[1:]]
    if others:
        yield Check(
            "cann-several",
            _GROUP,
            "info",
            f"other installations of CANN are here: {some(others)}",
            f"{cann.root} is the one that the variables name; two on the loader's path mix",
            "",
            _FAQ,
        )


def _kernel(facts: Facts) -> Iterator[Check]:
    who = "this kernel" if facts.kernel.is_kernel else "this process"
    lost = lacking(facts)
    if lost:
        grave = "LD_LIBRARY_PATH" in lost and bool(facts.version("torch-npu"))
        yield Check(
            "kernel-variables",
            _GROUP,
            "error" if grave else "warning",
            f"{who} lacks what set_env.sh sets: {some(lost, 6)}",
            "a Jupyter kernel reads no .bashrc: source the script before Jupyter starts, or write a"
            " kernel with these variables: report.kernel_spec('ascend')",
            source_command(facts),
            _FAQ,
        )
    else:
        yield Check("kernel-variables", _GROUP, "ok", f"{who} has the variables of set_env.sh")
    now, then = facts.kernel.environ.get("LD_LIBRARY_PATH", ""), facts.kernel.loader_path
    if now != then:
        yield Check(
            "loader-path-late",
            _GROUP,
            "warning",
            f"LD_LIBRARY_PATH was changed after {who} had started",
            "the loader reads it once, at the start; what os.environ says now has no effect on it",
            source_command(facts),
            "ld.so(8)",
        )
    for name, answer in facts.sourced.items():
        if answer.problem:
            yield Check(
                "set-env-fails",
                _GROUP,
                "warning",
                f"sourcing {name} fails: {answer.problem}",
                "its variables are not complete",
                shlex.join(["bash", "-x", name]),
            )


def _operators(facts: Facts) -> Iterator[Check]:
    lost = [name for name in CANN_PYTHON if not facts.version(name)]
    if lost:
        yield Check(
            "cann-python",
            _GROUP,
            "warning",
            f"CANN's operator compiler needs {some(lost, 6)}",
            "it runs in this Python; the first operator fails with error 500001 or"
            " 'No module named'",
            pip_install(facts, *lost),
            f"{_FAQ}; vllm-project/vllm-ascend issue 2210",
        )


def _nnal(facts: Facts) -> Iterator[Check]:
    atb = [x for x in facts.libraries if "libatb.so" in x.absent]
    if facts.ascend.nnal:
        if atb and facts.ascend.nnal_set_env:
            abi = facts.torch.cxx11_abi if facts.torch else ""
            extra = [f"--cxx_abi={abi}"] if abi else []
            yield Check(
                "nnal-not-sourced",
                _GROUP,
                "warning",
                f"NNAL {facts.ascend.nnal} is installed, but libatb.so is not on the loader's path",
                "it has a set_env.sh of its own, sourced after the toolkit's, with torch's C++ ABI",
                shlex.join(["source", facts.ascend.nnal_set_env, *extra]),
                "vllm-project/vllm-ascend issue 152; Ascend/pytorch issue 99",
            )
    elif atb:
        yield Check(
            "nnal-absent",
            _GROUP,
            "info",
            "NNAL (ATB) is not installed",
            "only fused transformer operators need it",
            "bash Ascend-cann-nnal_VERSION_linux-ARCH.run --install",
            "vllm-project/vllm-ascend issue 152",
        )
