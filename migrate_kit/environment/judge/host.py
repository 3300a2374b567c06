"""The machine: room, cores, and what a cloud notebook keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate_kit.environment import compat
from migrate_kit.environment.check import Check, pip_install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.facts import Facts
    from migrate_kit.targets import Target

_GROUP = "machine"
# Traces, ONNX files and reports of one network take a few hundred MB; MindSpore 2.6 GB.
_DISK_GIB, _FULL_GIB = 5.0, 0.5
# torch, torchvision and MindSpore together take 1.04 GB after their import (measured).
_MEMORY_GIB = 2.0


def host_checks(facts: Facts, goal: Target) -> Iterator[Check]:
    """Judge the machine itself."""
    del goal
    host = facts.host
    yield Check(
        "system",
        _GROUP,
        "ok",
        f"{host.distribution or host.system}, {host.machine}, Python {host.python},"
        f" glibc {host.glibc or 'unknown'}, GLIBCXX {host.glibcxx or 'unknown'}"
        + (", in a container" if host.container else ""),
    )
    if host.system and host.system != "Linux":
        yield Check(
            "system-linux",
            _GROUP,
            "warning",
            f"this is {host.system}",
            "the vendors' packages exist for Linux only",
            "",
            "package index, Dec 2026",
        )
    yield Check(
        "memory",
        _GROUP,
        "warning" if host.memory_free_gib < _MEMORY_GIB else "ok",
        f"{host.memory_free_gib:g} of {host.memory_gib:g} GiB of memory are free",
        "torch and MindSpore together take 1 GB before the first network"
        if host.memory_free_gib < _MEMORY_GIB
        else "",
        "free -h" if host.memory_free_gib < _MEMORY_GIB else "",
    )
    if host.homeless:
        yield Check(
            "home-absent",
            _GROUP,
            "warning",
            "there is no home folder: HOME is not set, and this user is not in passwd",
            "Jupyter does not start ('Could not determine home directory'); in a container whose"
            " user is only a number, set it before anything else",
            'export HOME="$PWD"',
            "measured: jupyter --paths as such a user",
        )
    yield _folder(facts)
    yield Check("cores", _GROUP, "ok", f"{host.cores} core{'' if host.cores == 1 else 's'}")
    if (
        host.avx512
        and facts.version("mindspore")
        and not facts.kernel.environ.get("ONEDNN_MAX_CPU_ISA")
    ):
        yield Check(
            "mindspore-avx512",
            _GROUP,
            "info",
            "MindSpore convolves slowly on this processor (AVX-512)",
            "its oneDNN falls to the reference convolution: 14 s instead of 0.14 s for resnet18."
            " Set this before Python starts",
            "export ONEDNN_MAX_CPU_ISA=AVX2",
            "MindSpore 2.10.0, measured with DNNL_VERBOSE=1",
        )
    if host.modelarts:
        yield from _modelarts(facts)


def _folder(facts: Facts) -> Check:
    """Judge the working folder: whether it is there, and the room in it."""
    free = facts.host.disk_free_gib
    if facts.host.folder_gone:
        return Check(
            "folder-gone",
            _GROUP,
            "error",
            "the working folder has been removed",
            "whatever is read or written by a relative name fails, and so do programs that ask"
            " where they are",
            'cd "$HOME"',
            "getcwd(3)",
        )
    short = free < _DISK_GIB
    return Check(
        "disk",
        _GROUP,
        "error" if free < _FULL_GIB else "warning" if short else "ok",
        f"{free:g} GiB of disk are free in the working folder",
        "traces and converted models take hundreds of MB; a full disk ends every run"
        if short
        else "",
        "df -h ." if short else "",
    )


def _modelarts(facts: Facts) -> Iterator[Check]:
    yield Check(
        "modelarts-folder",
        _GROUP,
        "info",
        "this is a ModelArts notebook",
        "only /home/ma-user/work survives a stop; environments and ~/.local go unless the image is"
        " saved. JupyterLab runs in an environment of its own: see the workbook's line",
        "cd /home/ma-user/work",
        "ModelArts documentation, bestpractice modelarts_20_00057",
    )
    torch = facts.version("torch").partition("+")[0]
    python = ".".join(facts.host.python.split(".")[:2])
    images = [
        r for r in compat.rows_of("modelarts image") if compat.accepts(r.cell("python"), python)
    ]
    fitting = [r for r in images if torch and compat.accepts(r.cell("torch"), torch)]
    if fitting:
        yield Check(
            "modelarts-image",
            _GROUP,
            "ok",
            f"torch {torch} is that of the image {fitting[0].version}",
            source=fitting[0].source,
        )
    elif torch and images:
        wanted = next((r for r in images if r.cell("torch")), images[0])
        yield Check(
            "modelarts-image",
            _GROUP,
            "warning",
            f"torch {torch} is not that of a preset image for Python {python}",
            f"the image {wanted.version} holds a torch that fits its torch_npu and CANN"
            f" {wanted.cell('cann')}; another one breaks that pair",
            pip_install(facts, f"torch=={wanted.cell('torch')}") if wanted.cell("torch") else "",
            wanted.source,
        )
    if torch and (version := compat.parse(torch)) and version.release < (1, 6):
        yield Check(
            "torch-old",
            _GROUP,
            "warning",
            f"torch {torch} is older than what torch.hub serves today",
            "hub models raise AttributeError at the first load, and checkpoints of torch 1.6 and"
            " later are zip files that it cannot read: choose an image with a later torch",
            "",
            "user reports on ModelArts with PyTorch 1.4; pytorch/pytorch issue 43766",
        )
