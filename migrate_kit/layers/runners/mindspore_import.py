"""Import MindSpore once, quiet, and fast on processors with AVX-512."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from migrate_kit.errors import MigrateError

# dnnl_cpu_isa_avx2 in oneDNN's C interface.
_AVX2 = 7
# oneDNN's own words for it; both spellings are read.
_CAPS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_CPU = Path("/proc/cpuinfo")


def load() -> Any:
    """Return the module ``mindspore``, imported as it has to be.

    Its log shows errors only, unless ``GLOG_v`` is set. On a processor with AVX-512 its oneDNN
    would take the reference convolution, a hundred times slower, so it is held to AVX2; torch's
    own oneDNN is another library and is not touched. ``ONEDNN_MAX_CPU_ISA``, where it is set,
    decides instead.

    Raises
    ------
    MigrateError
        If MindSpore is not installed, or its import fails.

    Examples
    --------
    >>> from migrate_kit.layers.runners import mindspore_import
    >>> ms = mindspore_import.load()
    >>> ms.__name__
    'mindspore'
    """
    if "mindspore" not in sys.modules:
        os.environ.setdefault("GLOG_v", "3")
    try:
        module = import_module("mindspore")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "mindspore":
            raise MigrateError(
                "MindSpore is not installed",
                "import mindspore",
                'pip install "migrate-kit[workbook]" (Linux); a board needs the version that fits'
                " its CANN: migrate-kit doctor names it",
            ) from error
        first = next(iter(str(error).strip().splitlines()), "")
        raise MigrateError(
            f"MindSpore cannot be imported: {type(error).__name__}: {first}",
            "import mindspore",
            "give the whole traceback to migrate-kit explain, or run migrate-kit doctor;"
            " a protobuf or NumPy that does not fit it is the usual cause",
        ) from error
    _cap_onednn(str(module.__file__))
    return module


@functools.cache
def _cap_onednn(module: str) -> int | None:
    """Hold MindSpore's oneDNN to AVX2; return its answer (0 done, else too late), None if left.

    It has no effect once the library has compiled something, and must not fail an import then.
    """
    if any(os.environ.get(name) for name in _CAPS) or not _has_avx512():
        return None
    for library in sorted((Path(module).parent / "lib").glob("libdnnl.so*")):
        try:
            # The soname: the very library that MindSpore has loaded, not a second one.
            return int(ctypes.CDLL(str(library)).dnnl_set_max_cpu_isa(_AVX2))
        except (OSError, AttributeError):  # built without it, or for another processor
            continue
    return None


def _has_avx512() -> bool:
    try:
        return "avx512f" in _CPU.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return False
