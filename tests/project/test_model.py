"""Networks are built and weights loaded; a file's code never runs."""

import os
import pickle
import sys

import pytest
import safetensors.torch
import torch

import migrate_kit as mk
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.errors import MigrateError
from migrate_kit.model import find_builder


class Attack:
    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return os.mkdir, (self.file,)


@pytest.fixture
def state(folder):
    return find_builder("net:build", folder, "")().state_dict()


def open_with(write, file):
    return mk.open_project(write(model=f'builder = "net:build"\nweights = "{file}"'))


def shifted(state):
    return {name: value + 1 for name, value in state.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: s,
        lambda s: {"state_dict": s, "epoch": 3},
        lambda s: {"model": s},
        lambda s: {"module." + name: value for name, value in s.items()},
        lambda s: {"net": {"module." + name: value for name, value in s.items()}},
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_state_dicts_as_training_scripts_save_them(write, folder, state, wrap, zipped):
    torch.save(wrap(shifted(state)), folder / "w.pth", _use_new_zipfile_serialization=zipped)
    model = open_with(write, "w.pth").model()
    assert not model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name] + 1)


def test_safetensors(write, folder, state):
    safetensors.torch.save_file(shifted(state), folder / "w.safetensors")
    model = open_with(write, "w.safetensors").model()
    assert torch.equal(model[0].bias, state["0.bias"] + 1)


def test_the_builder_may_load_its_own_weights(write, folder, state):
    torch.save(state, folder / "w.pth")
    text = 'builder = "net:own_weights"\nweights = "w.pth"\nweights_argument = "checkpoint"'
    assert mk.open_project(write(model=text)).model().path == str(folder / "w.pth")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_checkpoint_runs_nothing(tmp_path, zipped):
    file, proof = tmp_path / "w.pth", tmp_path / "proof"
    torch.save({"a": Attack(proof)}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(MigrateError) as caught:
        load_checkpoint(file)
    assert not proof.exists()
    assert len(str(caught.value).splitlines()) == 3


def test_a_bare_pickle_runs_nothing(tmp_path):
    (tmp_path / "w.pth").write_bytes(pickle.dumps(Attack(tmp_path / "proof")))
    with pytest.raises(MigrateError):
        load_checkpoint(tmp_path / "w.pth")
    assert not (tmp_path / "proof").exists()


def test_a_whole_model_gives_its_weights(write, folder):
    net = find_builder("net:build", folder, "")()
    torch.save(net, folder / "w.pth")
    model = open_with(write, "w.pth").model()
    assert torch.equal(model[0].bias, net[0].bias)


def test_without_weights_the_builder_s_own_values_stay(write, folder, state):
    torch.save(shifted(state), folder / "w.pth")
    bare = open_with(write, "w.pth").model(weights=False)
    assert not torch.equal(bare[0].bias, state["0.bias"] + 1)


def test_damaged_weights(tmp_path, state):
    torch.save(state, tmp_path / "sound.pth")
    data = (tmp_path / "sound.pth").read_bytes()
    safetensors.torch.save_file(state, tmp_path / "sound.safetensors")
    tensors = (tmp_path / "sound.safetensors").read_bytes()
    bad = {
        "cut.pth": data[: len(data) // 2],
        "empty.pth": b"",
        "text.pth": b"<html>404</html>",
        "words.pth": b"cat\n\n",  # as a pickle it wants something without a name
        "cut.safetensors": tensors[:-10],
        "long.safetensors": (2**60).to_bytes(8, "little") + tensors[8:],
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(MigrateError, match=r"damaged|empty|HTML|no known") as caught:
            load_checkpoint(tmp_path / name)
        assert "weights_only" not in str(caught.value)  # torch's advice to run what is in it


def test_unreadable_weights_name_the_file_that_named_them(write, folder):
    (folder / "w.pth").write_bytes(b"")
    with pytest.raises(MigrateError) as caught:
        open_with(write, "w.pth").model()
    weights = folder / "w.pth"
    assert caught.value.where == f"{folder / 'migration.toml'}, [model], weights {weights}"


def test_a_builder_that_fails_says_in_which_line(write, folder):
    with pytest.raises(MigrateError) as caught:
        mk.open_project(write(model='builder = "net:broken"')).model()
    lines = (folder / "net.py").read_text().splitlines()
    number = 1 + next(n for n, line in enumerate(lines) if "raise RuntimeError" in line)
    assert caught.value.fix.endswith(f"raised in net.py, line {number}")


@pytest.mark.parametrize("content", [{"epoch": 3}, [1, 2], {}])
def test_a_file_without_a_state_dict(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(MigrateError, match="no tensors of a network"):
        load_checkpoint(tmp_path / "w.pth")


def test_weights_of_another_network(write, folder, state):
    torch.save({"other." + name: value for name, value in state.items()}, folder / "w.pth")
    with pytest.raises(MigrateError, match=r"missing 0.weight.*; unexpected other.0.weight"):
        open_with(write, "w.pth").model()


def test_weights_of_another_shape(write, folder):
    torch.save(find_builder("net:build", folder, "")(width=5).state_dict(), folder / "w.pth")
    with pytest.raises(MigrateError, match=r"another shape.*4\.weight|size mismatch"):
        open_with(write, "w.pth").model()


@pytest.mark.parametrize(
    ("builder", "named"),
    [
        ("nothing_here:build", "no module 'nothing_here'"),
        ("net:biuld", "it has: a_list, broken, build"),
        ("net:number", "no function 'number'"),
        ("net:broken", "the builder fails: RuntimeError: no such file: cfg.yaml"),
        ("net:a_list", "returned list, not an nn.Module"),
        ("needs:build", "needs imports 'absent_package', which is not installed"),
        ("wrong:build", "wrong fails when imported: SyntaxError"),
        ("..:x", "builder is '..:x'"),
        (".net:build", "fails when imported"),
    ],
)
def test_a_builder_that_does_not_build(write, folder, builder, named):
    (folder / "needs.py").write_text("import absent_package")
    (folder / "wrong.py").write_text("def build(:")
    with pytest.raises(MigrateError) as caught:
        mk.open_project(write(model=f'builder = "{builder}"')).model()
    assert named in str(caught.value)


def test_wrong_keyword_arguments(write):
    text = 'builder = "net:build"\nkwargs = { widht = 3 }'
    with pytest.raises(MigrateError, match=r"widht[\s\S]*kwargs"):
        mk.open_project(write(model=text)).model()


def test_a_dotted_builder_and_a_class(write):
    model = mk.open_project(
        write(model='builder = "torch.nn.ReLU"\nkwargs = {inplace = true}')
    ).model()
    assert model.inplace


def test_two_projects_may_both_have_a_net(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    widths = {}
    for width in (3, 6):
        folder = tmp_path / f"project{width}"
        folder.mkdir()
        (folder / "net.py").write_text(
            f"import torch, parts\ndef build():\n    return torch.nn.Linear({width}, parts.n)"
        )
        (folder / "parts.py").write_text(f"n = {width}")
        (folder / "migration.toml").write_text(
            f'[model]\nbuilder = "net:build"\n[[inputs]]\nshape = [1, {width}]'
        )
    for width in (3, 6, 3):
        project = mk.open_project(tmp_path / f"project{width}")
        widths[width] = project.model()(*project.inputs()).shape
    assert widths == {3: (1, 3), 6: (1, 6)}


def test_without_weights_every_call_builds_the_same_network(write):
    project = mk.open_project(
        write(model='builder = "torch.nn.Linear"\nkwargs = {in_features = 3, out_features = 2}')
    )
    before = torch.random.get_rng_state()
    first = project.model()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(1)
    assert torch.equal(project.model().weight, first.weight)
