"""The script to copy out: PyTorch's weights in, a checkpoint that MindSpore loads out."""

import runpy
import subprocess
import sys

import numpy as np
import pytest
import torch

from migrate_kit import snippets
from migrate_kit.layers.runners import mindspore_import

NETWORK = """
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv1d(3, 6, 3), nn.BatchNorm1d(6), nn.PReLU(6), nn.ConvTranspose1d(6, 4, 3),
        nn.Flatten(), nn.LayerNorm(40), nn.Linear(40, 5),
    )

def words():
    return nn.Sequential(nn.Embedding(9, 6), nn.TransformerEncoderLayer(6, 2, 8), nn.Linear(6, 9))

def volume():
    return nn.Sequential(nn.Conv3d(1, 2, 1), nn.BatchNorm3d(2))
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "copied.py").write_text(snippets.snippet("pth2ckpt").text)
    (tmp_path / "mymodels.py").write_text(NETWORK)

    def run(*arguments):
        command = [sys.executable, "-I", "copied.py", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def built(function, folder):
    scope = {}
    exec(NETWORK, scope)  # noqa: S102 - the text above
    torch.manual_seed(0)
    model = scope[function]().eval()
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.1, 0.9)
    torch.save({"epoch": 1, "state_dict": model.state_dict()}, folder / "a.pth")
    return model


def cell():
    M = mindspore_import.load().nn
    return M.SequentialCell(
        M.Conv1d(3, 6, 3, has_bias=True, pad_mode="valid"), M.BatchNorm1d(6), M.PReLU(6),
        M.Conv1dTranspose(6, 4, 3, has_bias=True, pad_mode="valid"), M.Flatten(),
        M.LayerNorm((40,), epsilon=1e-5), M.Dense(40, 5),
    )  # fmt: skip


def test_every_parameter_is_loaded_and_the_outputs_agree(tmp_path, script):
    ms = mindspore_import.load()
    model = built("build", tmp_path)
    for _ in range(2):  # MindSpore's file is read-only; a second run replaces it
        done = script("--pth", "a.pth", "--ckpt", "a.ckpt", "--network", "mymodels:build")
        assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("a.ckpt: 13 of 14 tensors. Load them")
    net = cell()
    parameters = ms.load_checkpoint(str(tmp_path / "a.ckpt"))
    assert ms.load_param_into_net(net, parameters) == ([], [])
    x = torch.randn(2, 3, 10)
    with torch.no_grad():
        wanted = model(x).numpy()
    assert np.abs(net(ms.Tensor(x.numpy())).asnumpy() - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_the_lines_it_prints_run(tmp_path, script):
    ms = mindspore_import.load()
    built("build", tmp_path)
    said = script("--pth", "a.pth", "--ckpt", "a.ckpt", "--network", "mymodels:build").stdout
    lines = [line[4:] for line in said.splitlines() if line.startswith("    ")]
    # A file: MindSpore looks up the source of what it differentiates.
    path = repr(str(tmp_path / "a.ckpt"))
    (tmp_path / "go_on.py").write_text("\n".join(lines).replace('"a.ckpt"', path))
    net = cell()
    scope = {
        "mindspore": ms, "net": net, "loss": ms.nn.MSELoss(),
        "x": ms.ops.ones((2, 3, 10)), "y": ms.ops.zeros((2, 5)),
    }  # fmt: skip
    before = net[6].weight.asnumpy()
    scope = runpy.run_path(str(tmp_path / "go_on.py"), scope)
    assert scope["value"].asnumpy() > 0
    assert not np.array_equal(net[6].weight.asnumpy(), before)


@pytest.mark.parametrize("function", ["words", "volume"])
def test_names_of_other_layers(function, tmp_path, script):
    ms = mindspore_import.load()
    M = ms.nn
    built(function, tmp_path)
    done = script("--pth", "a.pth", "--ckpt", "a.ckpt", "--network", f"mymodels:{function}")
    assert done.returncode == 0, done.stderr
    words = (M.Embedding(9, 6), M.TransformerEncoderLayer(6, 2, 8), M.Dense(6, 9))
    volume = (M.Conv3d(1, 2, 1, has_bias=True), M.BatchNorm3d(2))
    net = M.SequentialCell(*(words if function == "words" else volume))
    found = ms.load_checkpoint(str(tmp_path / "a.ckpt"))
    assert ms.load_param_into_net(net, found) == ([], [])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_dtype(dtype, tmp_path, script):
    ms = mindspore_import.load()
    state = {"a.weight": torch.tensor([[1.25, 1e6]]), "a.bias": torch.ones(1), "n": torch.arange(2)}
    torch.save(state, tmp_path / "a.pth")
    done = script("--pth", "a.pth", "--ckpt", "a.ckpt", "--dtype", dtype)
    assert done.returncode == 0, done.stderr
    found = ms.load_checkpoint(str(tmp_path / "a.ckpt"))
    assert str(found["a.weight"].dtype).lower() == dtype
    assert str(found["n"].dtype) == "Int64"
    wanted = state["a.weight"].to(getattr(torch, dtype)).float().numpy()
    assert np.array_equal(found["a.weight"].float().asnumpy(), wanted)
    assert ("1 values are too large" in done.stdout) == (dtype == "float16")


def test_what_names_do_not_tell_is_printed(tmp_path, script):
    built("build", tmp_path)
    done = script("--pth", "a.pth", "--ckpt", "a.ckpt")
    unsure = [line.split()[3] for line in done.stdout.splitlines() if line.startswith("unsure")]
    assert unsure == ["0.weight", "2.weight", "3.weight"]
    ms = mindspore_import.load()
    assert "1.moving_mean" in ms.load_checkpoint(str(tmp_path / "a.ckpt"))


def test_what_it_refuses(tmp_path, script):
    torch.save({"epoch": 1}, tmp_path / "a.pth")
    assert "a.pth holds no state_dict" in script("--pth", "a.pth", "--ckpt", "a.ckpt").stderr
    built("build", tmp_path)
    done = script("--pth", "a.pth", "--ckpt", "a.ckpt", "--network", "mymodels:volume")
    assert "2.weight is not in the network" in done.stderr
    assert not (tmp_path / "a.ckpt").exists()
