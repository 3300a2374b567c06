"""Machines that are not here, as their documentation and their users describe them."""
# ruff: noqa: E501 - a fault is one line of its table

import shlex
from dataclasses import replace

import pytest

from migrate_kit.environment.doctor import check_environment
from migrate_kit.environment.facts import (
    Ascend,
    Build,
    Cambricon,
    Cann,
    Command,
    Facts,
    Host,
    Kernel,
    Library,
    Missing,
    Package,
    Probe,
    Sourced,
)
from migrate_kit.environment.packages import CANN_PYTHON
from migrate_kit.environment.variables import variables
from migrate_kit.errors import MigrateError

# As `npu-smi info` prints it on an Atlas A2 (vllm-project/vllm-ascend issue 834), two chips.
SMI = """
+------------------------------------------------------------------------------------------------+
| npu-smi 25.3.rc1                 Version: 25.3.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 97.6        52                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3525 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | OK            | 97.6        52                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          3525 / 65536         |
+===========================+===============+====================================================+
"""
# As cnmon prints it (PaddlePaddle's guide for MLU370).
CNMON = """
+------------------------------------------------------------------------------+
| CNMON v5.10.13                                               Driver v5.10.13 |
+-------------------------------+----------------------+-----------------------+
| 0     /   MLU370-X8    v1.1.6 |         0000:39:00.0 | 0%                N/A |
+------------------------------------------------------------------------------+
"""
NODES = ["davinci0", "davinci1", "davinci_manager", "devmm_svm", "hisi_hdc"]
ROOT = "/usr/local/Ascend/ascend-toolkit/latest"
SCRIPT = "/usr/local/Ascend/ascend-toolkit/set_env.sh"
PATH = f"{ROOT}/lib64:/usr/local/Ascend/driver/lib64/driver"
SET = {
    "ASCEND_TOOLKIT_HOME": ROOT,
    "ASCEND_HOME_PATH": ROOT,
    "ASCEND_OPP_PATH": f"{ROOT}/opp",
    "ASCEND_AICPU_PATH": ROOT,
    "TOOLCHAIN_HOME": f"{ROOT}/toolkit",
    "LD_LIBRARY_PATH": PATH,
}
SAID = {"version": "2.7.1", "available": "True", "count": "2", "add float32": "True"}


def package(version, **more):
    return Package(version, folder="/opt/venv/lib", **more)


def atlas():
    """Return an Atlas A2 on which nothing is wrong: CANN 8.3.RC1 with its torch_npu."""
    packages = {name: package("1.0") for name in CANN_PYTHON}
    packages |= {
        "numpy": package("1.26.4"),
        "torch": package("2.7.1+cpu"),
        "torch-npu": package(
            "2.7.1",
            requires=("torch==2.7.1+cpu",),
            tags=("cp311-cp311-manylinux_2_28_aarch64",),
        ),
        **{n: package(v) for n, v in (("ipywidgets", "8.1.9"), ("anywidget", "0.11.0"))},
    }
    return Facts(
        probed=True,
        host=Host(
            python="3.11.9", executable="/opt/venv/bin/python", system="Linux", machine="aarch64",
            distribution="openEuler 22.03", glibc="2.34", glibcxx="3.4.28", gcc="10.3.1", cores=96,
            memory_gib=750.0, memory_free_gib=700.0, disk_free_gib=900.0,
        ),
        kernel=Kernel(
            is_kernel=True, environ=SET, loader_path=PATH, core_limit="unlimited",
            front_end={"anywidget": "0.11.0", "@jupyter-widgets/jupyterlab-manager": "5.0.16"},
        ),
        packages=packages,
        backends=("torch_npu",),
        torch=Build("2.7.1+cpu", "", "1"),
        libraries=(Library("torch-npu", "torch_npu/lib/libtorch_npu.so", 1900, glibc="2.28"),),
        ascend=Ascend(
            cann=(Cann(ROOT, "8.3.RC1", "8.3.RC1", SCRIPT),), driver="25.3.rc1",
            firmware="7.8.0", hal="/usr/local/Ascend/driver/lib64/driver/libascend_hal.so",
        ),
        devices={f"/dev/{name}": "ready" for name in NODES},
        commands={"npu-smi": Command("/usr/local/sbin/npu-smi", 0, SMI)},
        probes={
            "torch": Probe(0, 3.0, {"version": "2.7.1+cpu"}),
            "torch without plug-ins": Probe(0, 2.0, {"version": "2.7.1+cpu"}),
            "torch_npu": Probe(0, 9.0, SAID | {"add int64": "True"}),
        },
        sourced={SCRIPT: Sourced(0, {})},
    )  # fmt: skip


def judged(facts, target="ascend910b"):
    report = check_environment(target, facts=facts)
    return report, {c.id: c for c in report.checks}


def faults(report):
    return {c.id: c.state for c in report.checks if c.state in {"error", "warning"}}


def test_a_sound_machine_is_ready():
    report, checks = judged(atlas())
    assert faults(report) == {}
    assert repr(report) == "EnvironmentReport(ready to run on ascend910b)"
    assert (report.can_run, report.lacking) == (True, [])
    assert checks["npu-smi"].what == "2 chips, 910B3"
    for part in ("torch_npu 2.7.1", "CANN 8.3.RC1"):
        assert part in checks["torch-npu-cann"].what


def kernel(**more):
    return replace(atlas().kernel, **more)


def ascend(**more):
    return replace(atlas().ascend, **more)


def with_library(**more):
    return (replace(atlas().libraries[0], **more),)


def with_package(name, **more):
    packages = atlas().packages
    return packages | {name: replace(packages.get(name, Package()), **more)}


def without(*names):
    return {k: v for k, v in atlas().packages.items() if k not in names}


def probe(name, **more):
    return atlas().probes | {name: Probe(**more)}


BARE = kernel(environ={}, loader_path="")
OLD = Cann(ROOT, "8.0.RC1", "8.0.RC1", SCRIPT)
FAULTS = [
    # What is changed, what it is named, and what its text must say.
    ({"kernel": BARE, "sourced": {SCRIPT: Sourced(0, SET)}}, "kernel-variables", "error", "ASCEND_OPP_PATH"),
    ({"kernel": BARE, "sourced": {}}, "kernel-variables", "error", "LD_LIBRARY_PATH"),
    ({"kernel": kernel(loader_path="")}, "loader-path-late", "warning", "after this kernel had started"),
    ({"sourced": {SCRIPT: Sourced(1, {}, "exit code 1")}}, "set-env-fails", "warning", SCRIPT),
    ({"devices": {}}, "npu-absent", "info", "rehearsal"),
    ({"devices": {"/dev/davinci0": "ready"}}, "npu-nodes", "error", "/dev/davinci_manager"),
    ({"devices": dict.fromkeys(atlas().devices, "no permission")}, "npu-permission", "error", "/dev/davinci0"),
    ({"commands": {}}, "npu-smi", "warning", "npu-smi is not here"),
    (
        {"commands": {"npu-smi": Command("/usr/bin/npu-smi", 1, "", "dcmi module initialize failed. ret is -8005")}},
        "npu-smi", "error", "-8005",
    ),
    (
        {"commands": {"npu-smi": Command("/usr/bin/npu-smi", 0, SMI.replace("| OK     ", "| Alarm  ", 1))}},
        "npu-smi", "error", "910B3 Alarm",
    ),
    (
        {"commands": {"npu-smi": Command("/usr/bin/npu-smi", 0, SMI.replace("910B3", "310P3"))}},
        "npu-target", "warning", "Ascend310P3",
    ),
    ({"ascend": ascend(hal="")}, "driver-absent", "error", "libascend_hal.so"),
    ({"ascend": ascend(driver="24.1.0")}, "cann-driver", "warning", "25.3.RC1"),
    ({"ascend": ascend(cann=(OLD,))}, "torch-npu-cann", "warning", "8.3.RC1"),
    ({"ascend": ascend(cann=(replace(OLD, version="8.3.RC1", ops="8.2.RC1"),))}, "cann-ops", "warning", "8.2.RC1"),
    (
        {"ascend": ascend(cann=(replace(atlas().ascend.cann[0], absent=("lib64/libge_runner.so",)),))},
        "cann-layout", "error", "libge_runner.so",
    ),
    (
        {"ascend": ascend(cann=(replace(atlas().ascend.cann[0], kernels=("ascend310p",)),))},
        "cann-kernels", "error", "wrong chip: ascend310p here, ascend910b wanted",
    ),
    ({"ascend": ascend(nnal="8.2.RC1")}, "nnal-cann", "warning", "8.2.RC1"),
    (
        {
            "ascend": ascend(nnal="8.3.RC1", nnal_set_env="/usr/local/Ascend/nnal/atb/set_env.sh"),
            "libraries": with_library(file="torch_npu/lib/libop_plugin_atb.so", absent=("libatb.so",)),
        },
        "nnal-not-sourced", "warning", "libatb.so",
    ),
    ({"libraries": with_library(missing={"torch": Missing(3, ("_ZN2atE",))})}, "torch-npu-symbols", "error", "3 symbols"),
    ({"libraries": with_library(missing={"cann": Missing(1, ("aclAppLog",))})}, "cann-symbols", "error", "CANN 8.3.RC1"),
    (
        {"libraries": (Library("cann", "lib64/libruntime.so", 9, missing={"driver": Missing(1, ("halSqMemGet",))}),)},
        "driver-symbols", "error", "halSqMemGet",
    ),
    ({"libraries": with_library(glibc="2.38")}, "torch-npu-glibc", "error", "2.38"),
    ({"libraries": with_library(glibcxx="3.4.30")}, "torch-npu-glibcxx", "error", "3.4.30"),
    ({"libraries": with_library(problem="ELFError: cut")}, "torch-npu-damaged", "error", "libtorch_npu.so"),
    ({"torch": Build("2.7.1+cu128", "12.8", "1")}, "torch-npu-cuda", "warning", "CUDA"),
    ({"packages": with_package("torch", version="2.8.0")}, "torch-npu-torch", "warning", "torch 2.8.0"),
    ({"packages": without("decorator", "attrs")}, "cann-python", "warning", "attrs, decorator"),
    ({"packages": without("torch-npu")}, "torch-npu-absent", "error", "torch_npu"),
    ({"packages": with_package("torch-npu", shadow="/home/ma-user/torch_npu")}, "torch-npu-shadow", "error", "ma-user"),
    ({"packages": with_package("torch-npu", tags=("cp310-cp310-linux_x86_64",))}, "torch-npu-wheel", "error", "cp310"),
    ({"packages": with_package("torch-npu", version="9.9.9")}, "torch-npu-unknown", "info", "newer"),
    ({"packages": with_package("numpy", version="2.1.0"), "ascend": ascend(cann=(replace(OLD, version="8.2.RC1"),))}, "cann-numpy", "error", "NumPy"),
    ({"packages": without("anywidget")}, "workbook-widgets", "warning", "anywidget"),
    ({"kernel": kernel(front_end={"anywidget": "0.9.21"})}, "workbook-front-end", "warning", "0.9.21"),
    ({"kernel": kernel(server="/modelarts/authoring/notebook-conda/envs/jp4")}, "workbook-front-end", "warning", "front end"),
    (
        {"probes": probe("torch_npu", code=0, said=SAID | {"add int64": "RuntimeError: EZ1001"})},
        "torch_npu-addition", "warning", "int64",
    ),
    ({"probes": probe("torch_npu", code=None, error="no answer within 30 s")}, "import-torch_npu", "warning", "no answer"),
    (
        {"probes": probe("torch_npu", code=1, error="x", log="ImportError: cannot import name 'y'")},
        "import-torch_npu", "error", "cannot import name 'y'",
    ),
    ({"kernel": kernel(environ=SET | {"TASK_QUEUE_ENABLE": "0"})}, "variable-TASK_QUEUE_ENABLE", "warning", "is 0"),
    ({"kernel": kernel(environ=SET | {"TASK_QUEUE_ENABLE": "7"})}, "variable-TASK_QUEUE_ENABLE", "warning", "none of"),
    ({"kernel": kernel(environ=SET | {"DUMP_GE_GRAPH": "2"})}, "variable-DUMP_GE_GRAPH", "warning", "DUMP_GE_GRAPH is 2"),
    ({"kernel": kernel(environ=SET | {"SLOG_PRINT_TO_STDOUT": "1"})}, "variable-SLOG_PRINT_TO_STDOUT", "warning", "SLOG"),
    ({"kernel": kernel(core_limit="0")}, "variable-ulimit -c", "info", "ulimit -c is 0"),
    ({"host": replace(atlas().host, disk_free_gib=0.1)}, "disk", "error", "0.1 GiB"),
    ({"host": replace(atlas().host, memory_free_gib=1.0)}, "memory", "warning", "1 of 750"),
    ({"host": replace(atlas().host, modelarts=True)}, "modelarts-folder", "info", "ModelArts"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "name", "state", "says"), FAULTS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_one_fault_is_named(change, name, state, says):
    report, checks = judged(replace(atlas(), **change))
    assert name in checks, sorted(faults(report))
    assert checks[name].state == state
    assert says in checks[name].what + checks[name].why
    # One fault may have a consequence, and no more.
    others = {k: v for k, v in faults(report).items() if k != name}
    assert len(others) <= 2, others


@pytest.mark.parametrize(("change", "name"), [(c, n) for c, n, *_ in FAULTS])
def test_every_command_is_quoted_and_every_fault_has_a_reason(change, name):
    report, _ = judged(replace(atlas(), **change))
    for fault in report.findings:
        assert fault.why, fault.id
        shlex.split(fault.command)


def test_odd_names_stay_one_word_in_a_command():
    evil = "/opt/a b'; touch hit; '/python"
    facts = replace(
        atlas(), host=replace(atlas().host, executable=evil), packages=without("decorator")
    )
    _, checks = judged(facts)
    assert shlex.split(checks["cann-python"].command)[0] == evil


def test_a_pair_that_the_release_notes_allow_is_in_order():
    older = ascend(cann=(Cann(ROOT, "8.2.RC1", "8.2.RC1", SCRIPT),))
    _, checks = judged(replace(atlas(), ascend=older))
    assert checks["torch-npu-cann"].state == "ok"


def test_without_a_target_an_absent_device_is_no_matter():
    facts = Facts(host=atlas().host, kernel=atlas().kernel, packages=without("torch-npu"))
    report, checks = judged(facts, None)
    assert not any(c.group in {"Ascend", "Cambricon"} for c in report.checks)
    report, checks = judged(facts)
    assert report.ok
    assert checks["npu-absent"].state == checks["cann-absent"].state == "info"


@pytest.mark.parametrize(
    "variable", [v for v in variables() if v.group == "ascend"], ids=lambda v: v.name
)
def test_every_variable_of_the_guide_is_explained(variable):
    _, checks = judged(atlas())
    check = checks[f"variable-{variable.name}"]
    assert variable.what in check.why
    # This machine has no NNAL, so there is no script of it to source.
    assert check.command == ("" if variable.kind == "set_env_nnal" else variable.example)
    assert check.source


def test_the_variables_of_the_guides_are_there():
    names = {v.name for v in variables()}
    assert names >= {
        *("TASK_QUEUE_ENABLE", "SLOG_PRINT_TO_STDOUT", "DUMP_GE_GRAPH", "DUMP_GRAPH_LEVEL"),
        *("adc log level", "ulimit -c", "NEUWARE_HOME", "TORCH_HOME", "USE_ABI"),
        *("TORCH_ONLINE_QUANT", "CNML_OPTIMIZE", "LD_LIBRARY_PATH", "GLOG_v"),
    }
    assert all(v.what and v.why and v.example for v in variables())
    assert all(bool(v.watch) == bool(v.watch_why) for v in variables())


def test_an_absent_device_is_no_fault_and_no_readiness():
    """Nothing is wrong with a laptop, and a program for the NPU does not run on it."""
    laptop = Facts(host=atlas().host, kernel=kernel(environ={}), packages=without("torch-npu"))
    report, _ = judged(laptop)
    assert (report.ok, report.can_run) == (True, False)
    assert report.lacking == ["no NPU", "no torch_npu", "no CANN"]
    assert "ready to rehearse for ascend910b, not to run on it" in repr(report)
    assert "ready to rehearse" not in repr(judged(laptop, "mlu370")[0])
    report, _ = judged(laptop, None)
    assert report.can_run is None
    assert "no target was named" in repr(report)
    assert "ready" not in repr(report)
    # A program of MindSpore does without torch_npu; another chip is not the target.
    both = atlas().packages | {"mindspore": package("2.7.0")}
    del both["torch-npu"]
    assert judged(replace(atlas(), packages=both))[0].lacking == []
    other = Command("/usr/bin/npu-smi", 0, SMI.replace("910B3", "310P3"))
    report, _ = judged(replace(atlas(), commands={"npu-smi": other}))
    assert (report.ok, report.lacking) == (True, ["another chip"])


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        ("2.9.0", "for torch 2.9.0 plan for torch_npu 2.9.0"),
        ("2.14.1", "the nearest set is torch 2.12.0, torch_npu 2.12.0, CANN 9.1.0"),
        ("1.0.0", "the nearest set is torch 1."),
    ],
)
def test_the_set_to_plan_for_is_named(torch, says):
    packages = without("torch-npu") | {"torch": package(torch)}
    _, checks = judged(Facts(host=atlas().host, packages=packages))
    plan = checks["torch-npu-plan"]
    assert says in plan.what
    assert " and Python 3." in plan.what
    assert ("torch_npu 2.14.0" in plan.why) == (torch == "2.14.1")


def test_the_command_asks_for_the_torch_npu_of_the_cann_that_is_here():
    _, checks = judged(replace(atlas(), packages=without("torch-npu")))
    assert checks["torch-npu-absent"].command.endswith("torch_npu==2.7.1")


def test_a_variable_without_effect_on_the_chip_is_told_as_such():
    mode = {"INF_NAN_MODE_ENABLE": "0"}
    facts = replace(atlas(), kernel=kernel(environ=SET | mode), commands={})
    state = {t: judged(facts, t)[1]["variable-INF_NAN_MODE_ENABLE"] for t in ("ascend910b", "310p")}
    assert state["ascend910b"].state == "warning"
    assert state["310p"].state == "ok"
    assert "is 0, and has no effect on ascend310p" in state["310p"].what


def test_nothing_in_order_asks_to_be_typed():
    report, checks = judged(Facts(host=atlas().host, packages=without("torch-npu")))
    path = checks["variable-LD_LIBRARY_PATH"]
    assert (path.state, path.command) == ("ok", "")
    lines = report.lines(every=True)
    typed = [n for n, line in enumerate(lines) if line.startswith("         $ ")]
    heads = [max(n for n in range(at) if not lines[n].startswith("  ")) for at in typed]
    assert heads
    assert not any(lines[n].startswith("ok ") for n in heads)


@pytest.mark.parametrize(
    ("name", "target"),
    [("910b", "ascend910b"), ("Ascend910C", "ascend910_93"), ("Atlas 800T A2", "ascend910b")],
)
def test_a_target_is_taken_by_the_names_that_engineers_use(name, target):
    report, _ = judged(atlas(), name)
    assert report.target == target
    assert report.lines()[1].startswith(f"target   {target}: Atlas A")


def test_an_unknown_target_lists_those_there_are():
    with pytest.raises(MigrateError, match="ascend910b"):
        check_environment("ascend9000", facts=atlas())


def mlu(**more):
    """Return a machine with one MLU370."""
    home = "/usr/local/neuware"
    components = dict.fromkeys(("CNToolkit", "CNML", "CNNL", "CNPlugin", "CNCL"), "found")
    kernel = Kernel(environ={"NEUWARE_HOME": home}, loader_path=f"{home}/lib64")
    return replace(
        atlas(),
        packages=without("torch-npu") | {"torch-mlu": package("1.33.1+torch2.7.1")},
        ascend=Ascend(), libraries=(), probes={}, sourced={}, backends=(),
        cambricon=Cambricon(home, "3.9.0", components, torch_home=True),
        kernel=replace(atlas().kernel, environ=kernel.environ, loader_path=kernel.loader_path),
        devices={"/dev/cambricon_dev0": "ready", "/dev/cambricon_ctl": "ready"},
        commands={"cnmon": Command("/usr/bin/cnmon", 0, CNMON)},
    )  # fmt: skip


def test_a_sound_card_is_ready():
    report, checks = judged(mlu(), "mlu370")
    assert faults(report) == {}
    assert checks["cnmon"].what == "1 card, MLU370-X8, driver 5.10.13"
    assert checks["torch-mlu-torch"].state == "ok"


def cambricon(**more):
    return {"cambricon": replace(mlu().cambricon, **more)}


def neuware_env(**more):
    return {"kernel": replace(mlu().kernel, environ={"NEUWARE_HOME": "/usr/local/neuware"} | more)}


MLU_FAULTS = [
    ({"devices": {}}, "mlu-absent", "info", "no MLU card is here"),
    ({"devices": {"/dev/cambricon_dev0": "no permission"}}, "mlu-permission", "error", "cambricon_dev0"),
    ({"commands": {}}, "cnmon", "warning", "cnmon"),
    (cambricon(home=""), "neuware-absent", "error", "CNToolkit"),
    (cambricon(components=mlu().cambricon.components | {"CNPlugin": ""}), "neuware", "info", "CNPlugin not found"),
    (cambricon(components=mlu().cambricon.components | {"CNCL": ""}), "neuware", "warning", "CNCL not found"),
    ({"kernel": replace(mlu().kernel, environ={})}, "neuware-home", "warning", "NEUWARE_HOME"),
    ({"kernel": replace(mlu().kernel, loader_path="/usr/lib")}, "neuware-path", "error", "LD_LIBRARY_PATH"),
    (cambricon(torch_home=False), "torch-home", "info", "genoff.py"),
    (neuware_env(USE_ABI="0"), "mlu-abi", "error", "_GLIBCXX_USE_CXX11_ABI=1"),
    (neuware_env(TORCH_ONLINE_QUANT="1"), "variable-TORCH_ONLINE_QUANT", "warning", "on the device"),
    (neuware_env(CNML_OPTIMIZE="USE_CONFIG:c.ini"), "variable-CNML_OPTIMIZE", "warning", "one batch size"),
    (cambricon(tree="not patched"), "mlu-patch", "error", "patch torch's source"),
    (cambricon(tree="built before"), "mlu-patch", "error", "older than Catch's patches"),
    ({"host": replace(mlu().host, gcc="4.8.5")}, "mlu-gcc", "warning", ">=5.4"),
    ({"packages": mlu().packages | {"torch": package("2.6.0")}}, "torch-mlu-torch", "error", "2.7.1"),
    (
        {"packages": mlu().packages | {"torch-mlu": package("1.33.1+torch2.7.1", tags=("cp36-cp36m-linux_x86_64",))}},
        "torch-mlu-wheel", "error", "building them again",
    ),
    ({"packages": without("torch-npu")}, "torch-mlu-absent", "error", "torch_mlu"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "name", "state", "says"), MLU_FAULTS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_one_fault_of_a_card_is_named(change, name, state, says):
    report, checks = judged(replace(mlu(), **change), "mlu370")
    assert name in checks, sorted(faults(report))
    assert checks[name].state == state
    assert says in checks[name].what + checks[name].why
    assert len(faults(report)) <= 2
    for fault in report.findings:
        shlex.split(fault.command)


def test_an_mlu270_needs_every_component():
    lost = cambricon(components=mlu().cambricon.components | {"CNML": ""})
    _, checks = judged(replace(mlu(), **lost), "mlu270")
    assert checks["neuware"].state == "warning"


def test_the_wrong_card_is_told():
    _, checks = judged(mlu(), "mlu270")
    assert "MLU370-X8" in checks["mlu-target"].what


def test_a_modelarts_image_is_recognized():
    host = replace(atlas().host, modelarts=True)
    _, checks = judged(replace(atlas(), host=host))
    assert "pytorch_2.7.1-cann_8.3.rc1-py_3.11" in checks["modelarts-image"].what
    other = with_package("torch", version="1.4.0")
    _, checks = judged(replace(atlas(), host=host, packages=other))
    assert checks["modelarts-image"].state == "warning"
    assert "AttributeError" in checks["torch-old"].why
