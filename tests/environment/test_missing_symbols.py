"""The stand-alone script finds what another torch does not have."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import migrate_kit as mk

TORCH = Path(find_spec("torch").origin).parent / "lib"


def run(*arguments):
    command = [sys.executable, "-I", str(mk.snippet("missing_symbols").path), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_torchs_own_libraries_fit_each_other():
    done = run(TORCH / "libtorch_python.so", TORCH)
    assert done.stdout == "0 symbols of torch are missing\n\n"


def test_a_torch_without_a_library_is_seen(tmp_path):
    (tmp_path / "libc10.so").symlink_to(TORCH / "libc10.so")
    lines = run(TORCH / "libtorch_python.so", tmp_path).stdout.splitlines()
    assert int(lines[0].split()[0]) > 1000
    assert lines[1].startswith("_Z")
    # What libc10.so has is not missing.
    assert not any(line.startswith("_ZN3c105ErrorC") for line in lines)
    assert lines[-1].endswith("install the pair of one version.")


def test_wrong_use_shows_how():
    done = run()
    assert done.returncode == 1
    assert "python missing_symbols.py" in done.stderr
