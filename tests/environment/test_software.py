"""CANN, NNAL, the driver and Neuware, in trees like those that their installers leave."""

import os
import platform

import pytest

from migrate_kit.environment.cambricon import find_cambricon
from migrate_kit.environment.cann import find_ascend, set_env_scripts

ARCH = f"{platform.machine()}-linux"
LIBRARIES = ["libhccl", "libascendcl", "libacl_op_compiler", "libge_runner", "libgraph"]


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def toolkit(root, where="usr/local/Ascend/ascend-toolkit/8.3.RC1", version="8.3.RC1"):
    folder = root / where
    for name in LIBRARIES:
        write(folder / "lib64" / f"{name}.so")
    (folder / "opp").mkdir()
    (folder / "python/site-packages").mkdir(parents=True)
    write(
        folder / ARCH / "ascend_toolkit_install.info",
        f"package_name=Ascend-cann-toolkit\nversion={version}\ninnerversion=V100\n",
    )
    return folder


def test_a_toolkit_is_found_behind_its_link(tmp_path):
    folder = toolkit(tmp_path)
    (folder.parent / "latest").symlink_to(folder.name)
    script = write(folder.parent / "set_env.sh", "export ASCEND_OPP_PATH=x\n")
    found = find_ascend({}, tmp_path)
    (cann,) = found.cann
    assert (cann.version, cann.absent, cann.set_env) == ("8.3.RC1", (), str(script))
    assert list(set_env_scripts(found)) == [str(script)]


def test_the_layout_of_cann_8_5_is_found_too(tmp_path):
    folder = toolkit(tmp_path, "usr/local/Ascend/cann-8.5.0", "8.5.0")
    (folder.parent / "cann").symlink_to(folder.name)
    write(folder / ARCH / "ascend_ops_install.info", "version=8.5.0\n")
    (cann,) = find_ascend({}, tmp_path).cann
    assert (cann.version, cann.ops) == ("8.5.0", "8.5.0")


def test_the_chips_of_the_operator_packages_are_read(tmp_path):
    folder = toolkit(tmp_path, "usr/local/Ascend/cann-8.5.0", "8.5.0")
    for chip in ("ascend310p", "ascend910b", "config"):
        (folder / "opp/built-in/op_impl/ai_core/tbe/kernel" / chip).mkdir(parents=True)
    assert find_ascend({}, tmp_path).cann[0].kernels == ("ascend310p", "ascend910b")


def test_the_variables_are_asked_first(tmp_path):
    toolkit(tmp_path, "usr/local/Ascend/cann-8.5.0", "8.5.0")
    mine = toolkit(tmp_path, "opt/mine", "9.0.0")
    found = find_ascend({"ASCEND_HOME_PATH": str(mine)}, tmp_path)
    assert [c.version for c in found.cann] == ["9.0.0", "8.5.0"]


def test_a_runtime_alone_is_incomplete(tmp_path):
    folder = toolkit(tmp_path)
    (folder.parent / "latest").symlink_to(folder.name)
    (folder / "lib64/libge_runner.so").unlink()
    (folder / "opp").rmdir()
    (cann,) = find_ascend({}, tmp_path).cann
    assert cann.absent == ("lib64/libge_runner.so", "opp/")


def test_a_version_is_read_from_what_there_is(tmp_path):
    folder = toolkit(tmp_path, "usr/local/Ascend/latest", "")
    write(folder / "version.cfg", "# CANN\nruntime_running_version=[7.0.0.1.231:8.0.RC1]\n")
    assert find_ascend({}, tmp_path).cann[0].version == "8.0.RC1"


def test_driver_firmware_and_nnal(tmp_path):
    base = tmp_path / "usr/local/Ascend"
    write(base / "driver/version.info", "Version=24.1.rc1\nascendhal_version=7.35.19\n")
    write(base / "firmware/version.info", "Version=7.3.0.1.231\nfirmware_version=1.0\n")
    write(base / "driver/lib64/driver/libascend_hal.so")
    write(base / "nnal/atb/8.3.RC1/version.info", "Ascend-cann-atb\nversion: x\n")
    (base / "nnal/atb/latest").symlink_to("8.3.RC1")
    script = write(base / "nnal/atb/set_env.sh")
    found = find_ascend({}, tmp_path)
    assert (found.driver, found.firmware, found.nnal) == ("24.1.rc1", "7.3.0.1.231", "8.3.RC1")
    assert found.hal.endswith("libascend_hal.so")
    assert found.nnal_set_env == str(script)


def test_the_driver_may_be_elsewhere(tmp_path):
    write(tmp_path / "etc/ascend_install.info", "Driver_Install_Path_Param=/opt/huawei\n")
    write(tmp_path / "opt/huawei/driver/version.info", "Version=25.5.0\n")
    assert find_ascend({}, tmp_path).driver == "25.5.0"


def test_nothing_is_an_answer_too(tmp_path):
    found = find_ascend({}, tmp_path)
    assert (found.cann, found.driver, found.nnal, found.hal) == ((), "", "", "")
    assert find_cambricon({}, tmp_path).home == ""


def test_binary_rubbish_in_version_files_does_no_harm(tmp_path):
    folder = toolkit(tmp_path, "usr/local/Ascend/latest")
    (folder / ARCH / "ascend_toolkit_install.info").write_bytes(os.urandom(100_000))
    assert len(find_ascend({}, tmp_path).cann) == 1


def neuware(root, *names):
    home = root / "usr/local/neuware"
    write(home / "version.txt", "Neuware Version 3.9.0\n")
    for name in names:
        write(home / "lib64" / name)
    return home


def test_neuware_and_its_components(tmp_path):
    home = neuware(tmp_path, "libcnrt.so.6.10.1", "libcnnl.so.1.13.0", "libcncl.so")
    (home / "lib64/libcnnl.so").symlink_to("libcnnl.so.1.13.0")
    found = find_cambricon({}, tmp_path)
    assert (found.home, found.version) == (str(home), "3.9.0")
    assert found.components == {
        "CNToolkit": "6.10.1",
        "CNML": "",
        "CNNL": "1.13.0",
        "CNPlugin": "",
        "CNCL": "found",
    }


@pytest.mark.parametrize(
    ("header", "wheel", "state"),
    [
        ("enum class DeviceType { CPU = 0, CUDA = 1 };", None, "not patched"),
        ("enum class DeviceType { CPU = 0, MLU = 11 };", None, "patched"),
        ("enum class DeviceType { CPU = 0, MLU = 11 };", "before", "built before"),
        ("enum class DeviceType { CPU = 0, MLU = 11 };", "after", "patched"),
        (None, None, ""),
    ],
)
def test_the_patches_come_before_the_build(tmp_path, header, wheel, state):
    if header:
        file = write(tmp_path / "c10/core/DeviceType.h", header)
        os.utime(file, (1000, 1000))
    if wheel:
        built = write(tmp_path / "dist/torch-1.6.0a0-cp36-cp36m-linux_x86_64.whl")
        os.utime(built, (500, 500) if wheel == "before" else (2000, 2000))
    assert find_cambricon({"PYTORCH_HOME": str(tmp_path)}, tmp_path).tree == state
