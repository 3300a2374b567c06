"""convert_weights: what it takes, what it gives back, and Darknet's real files."""

import sys

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.convert import convert_weights
from migrate_kit.checkpoints.networks.darknet import build_darknet
from migrate_kit.checkpoints.proofs import opencv
from migrate_kit.errors import MigrateError
from tests.checkpoints import darknet_files as files
from tests.checkpoints.one_thread import one_thread  # noqa: F401

REAL = ("yolo-fastest-1.1", "MobileNetV2-YOLO-Fastest-voc")
TEXT = files.net(3, 8, 8) + files.conv(4, 3, pad=1, batch_normalize=1, activation="leaky")
TEXT += files.conv(18, activation="linear")
TEXT += files.section("yolo", classes=1, num=3, mask="0,1,2", anchors="1,2,3,4,5,6")


@pytest.fixture(scope="module")
def real(cases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    return {
        name: convert_weights("yolov3", cases / f"darknet/{name}.weights", folder / f"{name}.pth")
        for name in REAL
    }


@pytest.mark.parametrize("name", REAL)
def test_a_real_network_equals_opencv(name, real, cases):
    cv2 = pytest.importorskip("cv2")
    path = cases / f"darknet/{name}"
    net = cv2.dnn.readNetFromDarknet(f"{path}.cfg", f"{path}.weights")
    network = real[name].network
    image = torch.rand(1, *network.plan.image, generator=torch.Generator().manual_seed(9))
    heads = [network.plan.layers[i].inputs[0] for i in network.plan.outputs]
    net.setInput(image.numpy())
    with torch.no_grad():
        raw = network(image)
    for ours, theirs in zip(raw, net.forward([f"conv_{i}" for i in heads]), strict=True):
        assert np.abs(ours.numpy() - theirs).max() <= 1e-4 * (theirs.max() - theirs.min())
    boxes = np.concatenate(net.forward(net.getUnconnectedOutLayersNames()))
    assert np.abs(network.decode(raw)[0, :, :5].numpy() - boxes[:, :5]).max() <= 1e-4


@pytest.mark.parametrize("name", REAL)
def test_a_real_conversion_proves_itself(name, real, cases):
    found = real[name]
    assert found.ok
    assert found.epsilon == 1e-6
    assert [p.against.split()[0] for p in found.proof] == ["OpenCV", "OpenCV", f"{name}.pth"]
    assert all(p.difference <= 1e-5 * p.span for p in found.proof[:2])
    moved = next(f.what for f in found.findings if "epsilon" in f.what)
    assert "with 1e-05 the output moves by up to" in moved
    fresh = build_darknet(cases / f"darknet/{name}.cfg")
    fresh.load_state_dict(torch.load(found.out[0], weights_only=True), strict=True)
    # The stream that torch before 1.6 reads, and no zip.
    assert found.out[0].read_bytes()[:4] == b"\x80\x02\x8a\x0a"


def test_variances_below_zero_are_set_to_zero(real):
    found = real["MobileNetV2-YOLO-Fastest-voc"]
    said = [f for f in found.findings if f.level == "warning"]
    assert [f.what for f in said] == ["9 variances below zero, the least -7.0e-44, were set to 0"]
    assert said[0].where == "models.65.bn50.running_var, models.75.bn56.running_var"
    variances = [v for k, v in found.state_dict.items() if k.endswith("running_var")]
    assert min(float(v.min()) for v in variances) == 0


def test_images_seen_and_the_public_network_are_said(real):
    said = real["yolo-fastest-1.1"].findings[0].what
    assert said == (
        "Darknet 0.2.5, a header of 20 bytes, trained on 14,231,680 images; so many floats has "
        "yolo-fastest-1.1"
    )


def test_the_result_is_a_result(real):
    found = real["yolo-fastest-1.1"]
    assert repr(found).startswith(
        "Conversion(yolov3: 496 tensors to yolo-fastest-1.1.pth, epsilon 1e-06; 2 of 2 comparisons "
        "agree, the worst is OpenCV"
    )
    frame = found.to_frame()
    assert list(frame.columns) == ["name", "shape", "dtype", "origin"]
    assert len(frame) == 496
    assert frame.iloc[0]["origin"] == "layer 0 of yolo-fastest-1.1.weights"
    html = found._repr_html_()
    assert "346,062 values" not in html  # the counters of batches are values too
    assert html.count("<table>") == 3
    kept = found.to_dict()
    assert kept["files"] == ["yolo-fastest-1.1.pth"]
    assert kept["kind"] == "conversion"
    assert any(line.startswith("OpenCV") for line in kept["proof"])


def test_names_of_files_are_escaped(tmp_path):
    path = files.write_pair(tmp_path, TEXT)
    found = convert_weights("yolov3", path, tmp_path / "<b>a.pth")
    assert "&lt;b&gt;a.pth" in found._repr_html_()
    assert "<b>a" not in found._repr_html_()


@pytest.mark.parametrize("name", ["YOLOv3", "yolov3", "YOLO-V3"])
def test_the_guides_spellings_are_known(name, tmp_path):
    assert convert_weights(name, files.write_pair(tmp_path, TEXT), tmp_path).name == "yolov3"
    assert (tmp_path / "yolov3.pth").is_file()


def test_yolov2_with_a_yolo_head_is_a_warning(tmp_path):
    found = convert_weights("yolov2", files.write_pair(tmp_path, TEXT), tmp_path)
    assert "[yolo] layers, as yolov3 has, and not yolov2" in found.findings[1].what


def test_wrong_arguments_are_named(tmp_path):
    path = files.write_pair(tmp_path, TEXT)
    for arguments, keywords, what in (
        (("yolov9", path, tmp_path), {}, "no network 'yolov9'; did you mean"),
        (("yolov3", [path, path], tmp_path), {}, "2 files"),
        (("yolov3", tmp_path / "no.weights", tmp_path), {}, "which network the floats belong to"),
        (("yolov3", path, tmp_path), {"reference": path}, "yolov3 takes no reference"),
        (("mobilenetv1", path, tmp_path), {"cfg": path}, "mobilenetv1 takes no cfg"),
        (("mtcnn", path, tmp_path), {"epsilon": 1.0}, "mtcnn takes no epsilon"),
    ):
        with pytest.raises(MigrateError, match=what):
            convert_weights(*arguments, **keywords)


def test_the_old_file_is_whole_when_the_conversion_fails(tmp_path):
    out = tmp_path / "a.pth"
    out.write_bytes(b"old")
    path = files.write_pair(tmp_path, TEXT, values=np.zeros(3, "<f4"))
    with pytest.raises(MigrateError, match="needs"):
        convert_weights("yolov3", path, out)
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pth", "net.cfg", "net.weights"]


def test_the_epsilon_can_be_chosen(tmp_path):
    path = files.write_pair(tmp_path, TEXT)
    found = convert_weights("yolov3", path, tmp_path / "a.pth", epsilon=1e-5)
    assert found.epsilon == 1e-5
    assert found.network.models[0].bn1.eps == 1e-5
    assert found.ok  # OpenCV is compared with its own
    again = convert_weights("yolov3", path, tmp_path / "b.pth")
    state = torch.load(tmp_path / "a.pth", weights_only=True)
    assert all(torch.equal(v, state[k]) for k, v in again.state_dict.items())
    assert again.network.models[0].bn1.eps == 1e-6


def test_a_file_of_the_first_layers_becomes_their_network(tmp_path):
    first = 4 * 4 + 4 * 3 * 9
    path = files.write_pair(tmp_path, TEXT, values=files.floats(TEXT)[:first])
    found = convert_weights("yolov3", path, tmp_path / "a.pth")
    assert len(found.network.models) == 1
    assert found.network(torch.zeros(1, 3, 8, 8)).shape == (1, 4, 8, 8)
    assert found.ok
    assert "the first 1 of 3 layers" in " ".join(f.what for f in found.findings)
    assert str(found.proof[0]) == "OpenCV: not run: the file does not hold the whole network"


def test_values_that_are_no_numbers_are_said(tmp_path):
    values = files.floats(TEXT)
    values[-1] = np.nan
    found = convert_weights("yolov3", files.write_pair(tmp_path, TEXT, values=values), tmp_path)
    assert not found.ok  # what nobody can compare is not proven
    assert any("NaN or infinite" in f.what for f in found.findings)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("activation=leaky\n", "activation=ramp\n"), "does not read this .cfg"),
        (("activation=leaky\n", ""), "a missing activation of layer 0"),
        (("pad=1\n", "pad=1\ndilation=2\n"), "dilation of layer 0"),
        (("[convolutional]\nfilters=18", "[conv]\nfilters=18"), "the name of layer 1"),
        (("pad=1\n", "pad=1\npad=0\n"), "a key that stands there twice of layer 0"),
    ],
)
def test_what_opencv_would_read_otherwise_is_not_compared(change, why, tmp_path):
    pytest.importorskip("cv2")
    found = convert_weights("yolov3", files.write_pair(tmp_path, TEXT.replace(*change)), tmp_path)
    assert why in found.proof[0].reason
    assert not found.proof[0].ran
    assert found.ok
    assert "not run" in repr(found)


def test_without_opencv_the_reason_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(opencv, "find_spec", lambda _: None)
    found = convert_weights("yolov3", files.write_pair(tmp_path, TEXT), tmp_path)
    assert str(found.proof[0]).startswith("OpenCV: not run: OpenCV is not installed")
    assert found.ok


def test_opencv_is_not_imported_before_it_is_needed():
    import subprocess

    program = (
        "import sys, migrate_kit.checkpoints.convert as c, migrate_kit.checkpoints.conversions"
    )
    program += ".darknet, migrate_kit.checkpoints.proofs.mtcnn; print('cv2' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_network_too_large_to_check_is_converted_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(opencv, "_MOST_VALUES", 100)
    found = convert_weights("yolov3", files.write_pair(tmp_path, TEXT), tmp_path)
    assert "too large for a check" in found.proof[0].reason
    assert found.out[0].is_file()


def test_a_padding_too_large_to_check_takes_no_memory(tmp_path):
    # 16,391 x 16,391 pixels for a window that leaves one of them.
    text = files.net(3, 8, 8) + files.conv(4, activation="linear")
    text += files.section("maxpool", size=16384, stride=16384)
    found = convert_weights("yolov3", files.write_pair(tmp_path, text), tmp_path)
    assert "too large for a check" in found.proof[0].reason


def test_a_planted_difference_is_an_error(tmp_path, monkeypatch):
    from migrate_kit.checkpoints.networks import darknet_modules

    pytest.importorskip("cv2")
    wrong = torch.nn.LeakyReLU(0.01)  # PyTorch's default slope instead of Darknet's
    monkeypatch.setattr(darknet_modules, "activation", lambda _: wrong)
    found = convert_weights("yolov3", files.write_pair(tmp_path, TEXT), tmp_path)
    assert not found.ok
    assert repr(found).startswith("Conversion(it differs from OpenCV")
    assert "NO" in found._repr_html_()
