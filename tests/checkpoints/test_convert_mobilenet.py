"""MobileNetV1 without its training: what is kept is kept bit for bit."""

import pytest
import torch

from migrate_kit.checkpoints.convert import convert_weights
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.networks.mobilenet_v1 import MobileNetV1, StagedMobileNetV1
from migrate_kit.errors import MigrateError
from tests.checkpoints.one_thread import one_thread  # noqa: F401


def same(a, b):
    return a.dtype == b.dtype and torch.equal(a, b)


def training_checkpoint(path, network, prefix="module.", old=False):
    """What the public training scripts save."""
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = {prefix + k: v for k, v in network.state_dict().items()}
    if old:  # before torch 0.4.1
        state = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    torch.save(
        {
            "epoch": 90,
            "arch": "mobilenet",
            "state_dict": state,
            "best_prec1": 69.526,
            "optimizer": optimizer.state_dict(),
        },
        path,
    )
    return state


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The full size: 1,000 classes, 4.2 million weights, with the state of an optimizer."""
    folder = tmp_path_factory.mktemp("full")
    torch.manual_seed(0)
    network = MobileNetV1().eval()
    state = training_checkpoint(folder / "mobilenet_sgd.tar", network)
    found = convert_weights("mobilenetv1", folder / "mobilenet_sgd.tar", folder / "out.pth")
    return network, state, found, folder


def test_the_full_network_computes_what_it_did(full):
    network, _, found, _ = full
    x = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert torch.equal(found.network(x), network(x))
    assert type(found.network) is MobileNetV1
    assert not found.network.training


def test_the_file_is_the_state_dict_alone(full):
    _, state, found, folder = full
    written = torch.load(folder / "out.pth", weights_only=True)
    assert list(written) == [k.removeprefix("module.") for k in state]
    assert all(same(written[k.removeprefix("module.")], v) for k, v in state.items())
    assert found.origin["model.0.0.weight"] == "module.model.0.0.weight"
    assert "are kept (50 %), without" in found.findings[0].what
    assert "optimizer" in found.findings[0].what
    assert found.epsilon == 1e-5
    assert "the values are unchanged" in str(found.proof[0])
    assert found.proof[1].difference == 0


def test_the_real_checkpoint(cases, tmp_path):
    path = cases / "checkpoints/retinaface_mobilenetV1x0.25_model_best.pth.tar"
    found = convert_weights("mobilenetv1", path, tmp_path / "out.pth")
    before = load_checkpoint(path).state_dict
    assert len(found.state_dict) == len(before) == 164
    for name, tensor in found.state_dict.items():
        assert same(tensor, before[f"module.{name}"])
    assert not any(name.startswith("module.") for name in found.state_dict)
    assert found.ok
    assert type(found.network) is StagedMobileNetV1
    assert found.network.fc.out_features == 1000
    # Half of the file was the optimizer's.
    assert 0.5 < (tmp_path / "out.pth").stat().st_size / path.stat().st_size < 0.52
    with torch.no_grad():
        logits = found.network(torch.zeros(1, 3, 224, 224))
    assert logits.shape == (1, 1000)
    assert logits.std() > 0.1


def test_the_prefix_goes_only_where_all_have_it(tmp_path):
    state = {f"module.{k}": v for k, v in MobileNetV1([8] * 14, 10).state_dict().items()}
    mixed = state | {"b.module.weight": torch.zeros(2)}
    torch.save({"state_dict": state}, tmp_path / "a.tar")
    found = convert_weights("mobilenetv1", tmp_path / "a.tar", tmp_path / "a.pth")
    assert list(found.state_dict) == [k.removeprefix("module.") for k in state]
    torch.save({"state_dict": mixed}, tmp_path / "b.tar")
    with pytest.raises(MigrateError, match=r"no MobileNetV1 known here: module\.model"):
        convert_weights("mobilenetv1", tmp_path / "b.tar", tmp_path / "b.pth")


@pytest.mark.parametrize(
    "state",
    [
        {"w": torch.ones(3)},
        torch.nn.Linear(2, 2).state_dict(),
        MobileNetV1([8] * 14).fc.state_dict(),
    ],
)
def test_another_network_is_refused(state, tmp_path):
    torch.save(state, tmp_path / "any.pth")
    with pytest.raises(MigrateError, match="no MobileNetV1 known here"):
        convert_weights("mobilenetv1", tmp_path / "any.pth", tmp_path / "out.pth")
    assert not (tmp_path / "out.pth").exists()


@pytest.mark.parametrize("name", ["mobilenetv1", "yolov3", "mtcnn", "ssd_mobilenet_v1"])
@pytest.mark.parametrize("wrong", [None, 0, [None], {"a": 5}])
def test_what_is_no_path_is_refused(name, wrong, tmp_path):
    with pytest.raises(MigrateError):
        convert_weights(name, wrong, tmp_path / "out.pth")


def test_an_old_checkpoint_without_counters(tmp_path):
    network = MobileNetV1([8] * 14, 10)
    training_checkpoint(tmp_path / "a.tar", network, old=True)
    found = convert_weights("mobilenetv1", tmp_path / "a.tar", tmp_path / "a.pth")
    assert not any("num_batches_tracked" in name for name in found.state_dict)
    assert type(found.network) is MobileNetV1
    with torch.no_grad():
        assert found.network(torch.zeros(1, 3, 224, 224)).shape == (1, 10)


def test_a_plain_state_dict_is_one_too(tmp_path):
    network = MobileNetV1([8] * 14, 10)
    torch.save(network.state_dict(), tmp_path / "a.pth")
    found = convert_weights("mobilenetv1", tmp_path / "a.pth", tmp_path / "a.pth")
    assert len(torch.load(tmp_path / "a.pth", weights_only=True)) == len(found.state_dict)
    assert found.ok


def test_half_precision_stays(tmp_path):
    torch.save({"state_dict": MobileNetV1([8] * 14, 10).half().state_dict()}, tmp_path / "a.tar")
    found = convert_weights("mobilenetv1", tmp_path / "a.tar", tmp_path / "a.pth")
    assert found.state_dict["fc.weight"].dtype == torch.float16


def test_a_checkpoint_without_tensors_is_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "a.tar")
    with pytest.raises(MigrateError):
        convert_weights("mobilenetv1", tmp_path / "a.tar", tmp_path / "a.pth")
