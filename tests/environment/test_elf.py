"""Symbol tables, against binutils and under damage."""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrate_kit.environment.elf import read_elf
from migrate_kit.environment.libraries import Loader, newest, side_of, system_folders
from migrate_kit.errors import MigrateError

SITE = Path(np.__file__).parents[1]
SMALL = next(SITE.glob("markupsafe/_speedups*.so"))


def nm(path, *flags):
    command = ["nm", "-D", "--no-demangle", *flags, str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split() for line in lines]


@pytest.mark.skipif(not shutil.which("nm"), reason="no binutils to compare with")
@pytest.mark.parametrize("path", [SMALL, SITE / "torch/lib/libc10.so"], ids=lambda p: p.name)
def test_symbols_are_those_of_nm(path):
    elf = read_elf(path)
    undefined = {w[-1].partition("@")[0] for w in nm(path, "--undefined-only") if w[-2] == "U"}
    defined = {w[-1].partition("@")[0] for w in nm(path, "--defined-only")}
    assert elf.undefined == undefined
    # nm also lists the names of versions and what only the library itself uses.
    assert elf.defined <= defined
    assert len(defined - elf.defined) < 30


@pytest.mark.skipif(not shutil.which("readelf"), reason="no binutils to compare with")
def test_needed_libraries_and_versions_are_those_of_readelf():
    path = SITE / "torch/lib/libtorch_python.so"
    elf = read_elf(path, symbols=False)
    text = subprocess.run(
        ["readelf", "-d", "-V", str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert all(f"[{name}]" in text for name in elf.needed)
    assert text.count("(NEEDED)") == len(elf.needed)
    assert all(f"Name: {name}" in text for name in elf.wants)
    assert elf.undefined == frozenset()


def test_the_loader_finds_what_this_process_has_loaded():
    loader = Loader("", [SITE / "torch/lib"])
    elf = read_elf(SITE / "torch/lib/libc10.so")
    given_, absent = loader.closure(SITE / "torch/lib/libc10.so", elf)
    assert absent == []
    assert {s for s in elf.undefined if s not in given_} == set()


def test_an_absent_library_is_named(tmp_path):
    loader = Loader("", [], root=tmp_path)
    elf = read_elf(SMALL)
    assert set(loader.closure(SMALL, elf)[1]) == set(elf.needed)


def test_the_configuration_of_the_loader_is_read(tmp_path):
    etc = tmp_path / "etc"
    (etc / "ld.so.conf.d").mkdir(parents=True)
    (etc / "ld.so.conf").write_text("include ld.so.conf.d/*.conf\ninclude /etc/ld.so.conf\n")
    (etc / "ld.so.conf.d" / "a.conf").write_text("# note\n/opt/one\n/opt/two # note\n")
    assert [str(p.relative_to(tmp_path)) for p in system_folders(tmp_path)][:2] == [
        "opt/one",
        "opt/two",
    ]


@pytest.mark.parametrize(
    ("symbol", "side"),
    [
        ("_ZN5torch10ValueErrorC1EPKcz", "torch"),
        ("_ZNK3c1010TensorImpl20is_contiguous_customENS_12MemoryFormatE", "torch"),
        ("_ZN2atlsERSoRKNS_7DimnameE", "torch"),
        ("_ZNR5torch7Library4_defEON3c1014FunctionSchemaE", "torch"),
        ("_ZN7c10_npu6option14OptionsManagerE", "other"),
        ("_ZN3atb15CreateOperationINS_5infer14GroupTopkParamEEE", "atb"),
        ("_ZN3Mki2DlC1ERKNSt7__cxx1112basic_stringE", "atb"),
        ("_ZN2ge10TensorDesc11SetDataTypeENS_8DataTypeE", "cann"),
        ("aclAppLog", "cann"),
        ("HcclAllGather", "cann"),
        ("halSqMemGet", "driver"),
        ("cnrtMalloc", "cambricon"),
        ("printf", "other"),
    ],
)
def test_whose_symbol_it_is(symbol, side):
    assert side_of(symbol) == side


def test_the_newest_version_is_not_the_last_word():
    assert newest(["GLIBC_2.9", "GLIBC_2.17", "GLIBC_PRIVATE"], "GLIBC_") == "2.17"
    assert newest([], "GLIBC_") == ""


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(57), b"#!/bin/sh\n"]
)
def test_what_is_no_library_is_an_error_of_three_lines(tmp_path, content):
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    with pytest.raises(MigrateError, match="not a library"):
        read_elf(path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_library_gives_an_answer_or_a_plain_error(tmp_path, data):
    content = bytearray(SMALL.read_bytes())
    # The headers at both ends are what a reader follows.
    ends = [*range(min(4096, len(content))), *range(max(0, len(content) - 4096), len(content))]
    for _ in range(data.draw(st.integers(1, 12))):
        content[data.draw(st.sampled_from(ends))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(content), len(content) // 2, 64]))
    path = tmp_path / "damaged.so"
    path.write_bytes(bytes(content[:cut]))
    with contextlib.suppress(MigrateError):
        read_elf(path)


def test_reading_loads_nothing():
    code = (
        "import sys; from pathlib import Path; from migrate_kit.environment.elf import read_elf;"
        f"read_elf(Path({str(SMALL)!r})); sys.exit('markupsafe' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
