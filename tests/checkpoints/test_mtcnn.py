"""MTCNN from every form its weights are published in, against ONNX Runtime and OpenCV."""

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.convert import convert_weights
from migrate_kit.checkpoints.networks.mtcnn import MTCNN
from migrate_kit.checkpoints.networks.mtcnn_cascade import detect_faces
from migrate_kit.checkpoints.proofs.measured import Proof
from migrate_kit.errors import MigrateError
from tests.checkpoints.one_thread import one_thread  # noqa: F401

FORMS = ("tropcomplique", "facenet_tf", "facenet_pytorch", "caffe")
NAMES = ("pnet", "rnet", "onet")


@pytest.fixture(scope="module")
def folder(cases):
    return cases / "mtcnn"


@pytest.fixture(scope="module")
def conversions(folder, tmp_path_factory):
    reference = sorted((folder / "onnx").iterdir())
    return {
        form: convert_weights(
            "mtcnn", folder / form, tmp_path_factory.mktemp(form), reference=reference
        )
        for form in FORMS
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_each_network_equals_both_sets_of_onnx_files(form, name, conversions, folder):
    ort = pytest.importorskip("onnxruntime")
    net = conversions[form].network.get_submodule(name)
    size = {"pnet": (31, 45), "rnet": (24, 24), "onet": (48, 48)}[name]
    image = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(7)) * 2 - 1
    with torch.no_grad():
        ours = {output.shape[1]: output.numpy() for output in net(image)}
    for maker in ("cv2", "runtime"):
        session = ort.InferenceSession(folder / f"onnx/{maker}_{name}.onnx")
        # One set is Caffe's, for a transposed image, in NHWC; the other takes it as it is, in NCHW.
        x = image.permute(0, 3, 2, 1).contiguous() if maker == "cv2" else image
        for output in session.run(None, {session.get_inputs()[0].name: x.numpy()}):
            turned_back = maker == "cv2" and output.ndim == 4
            theirs = output.transpose(0, 3, 2, 1) if turned_back else output
            assert np.abs(ours[theirs.shape[1]] - theirs).max() <= 1e-6


def test_all_forms_give_the_same_values(conversions):
    first = conversions["tropcomplique"].state_dict
    for form in FORMS[1:]:
        state = conversions[form].state_dict
        assert list(state) == list(first)
        assert all(torch.equal(state[name], first[name]) for name in first), form


@pytest.mark.parametrize("form", FORMS)
def test_the_conversion_proves_itself(form, conversions):
    found = conversions[form]
    assert found.ok
    assert found.epsilon is None
    against = {proof.against for proof in found.proof if proof.ran}
    assert sum(name.startswith("ONNX Runtime") for name in against) == 6
    assert sum(name.startswith("NumPy in the layout of") for name in against) == 1
    assert any(name.startswith("OpenCV") for name in against) == (form == "caffe")
    assert all(proof.difference <= 2e-6 for proof in found.proof if proof.ran)
    assert sum(proof.ran for proof in found.proof) >= 17


@pytest.mark.parametrize("form", FORMS)
def test_the_files_are_state_dicts_of_the_networks(form, conversions):
    fresh = MTCNN()
    for name, path in zip(NAMES, conversions[form].out, strict=True):
        assert path.name == f"{name}.pth"
        state = torch.load(path, weights_only=True)
        fresh.get_submodule(name).load_state_dict(state, strict=True)
    assert all(
        torch.equal(a, conversions[form].state_dict[k]) for k, a in fresh.state_dict().items()
    )


def test_what_is_not_used_is_said(conversions):
    said = [f.what for f in conversions["caffe"].findings]
    assert said == ["not used: conv5-3.weight, conv5-3.bias"]


def test_the_cascade_finds_the_one_face(conversions):
    from skimage import data

    faces = conversions["tropcomplique"].network.detect(data.astronaut())
    assert len(faces.boxes) == 1
    left, top, right, bottom = faces.boxes[0]
    # The face of the photograph, as one sees it.
    assert left == pytest.approx(180, abs=8)
    assert top == pytest.approx(65, abs=10)
    assert right == pytest.approx(263, abs=8)
    assert bottom == pytest.approx(172, abs=10)
    assert faces.scores[0] > 0.98
    eye, other, nose, mouth, corner = faces.points[0]
    assert eye[0] < nose[0] < other[0]
    assert max(eye[1], other[1]) < nose[1] < min(mouth[1], corner[1])
    assert mouth[0] < corner[0]
    assert np.allclose(faces.points[0].mean(0), (224, 122), atol=6)


def test_a_cat_and_a_cup_are_no_faces(conversions):
    from skimage import data

    for image in (data.chelsea(), data.coffee()):
        assert len(conversions["tropcomplique"].network.detect(image).boxes) == 0


def test_what_is_no_image_is_refused(conversions):
    for image in (np.zeros((4, 4)), np.zeros((3, 8, 8)), []):
        with pytest.raises(MigrateError, match="an image of the shape"):
            detect_faces(conversions["caffe"].network, image)
    tiny = detect_faces(conversions["caffe"].network, np.zeros((4, 4, 3)))
    assert tiny.boxes.shape == (0, 4)


def turned(state, name, how):
    return {k: how(v).contiguous() if k == name else v for k, v in state.items()}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        # A kernel with height and width in each other's place, and features flattened in another
        # order: what goes wrong in most hand-written conversions. The shapes stay the same.
        ("features.conv2.weight", lambda x: x.transpose(2, 3)),
        (
            "features.conv5.weight",
            lambda x: x.reshape(256, 128, 3, 3).permute(0, 2, 3, 1).reshape(256, 1152),
        ),
    ],
)
def test_a_wrong_layout_is_found(name, how, folder, tmp_path, monkeypatch):
    from migrate_kit.checkpoints.conversions import mtcnn

    right = mtcnn.converted
    monkeypatch.setattr(mtcnn, "converted", lambda o: turned(right(o), name, how))
    found = convert_weights("mtcnn", folder / "facenet_tf", tmp_path)
    assert not found.ok
    worst = max(p.difference / p.span for p in found.proof if p.ran and p.limit)
    assert worst > 0.05
    assert repr(found).startswith("Conversion(it differs from NumPy in the layout of facenet")


def save(path, state):
    torch.save(state, path)
    return path


def test_files_that_are_not_the_three_networks_are_refused(folder, tmp_path):
    files = {name: folder / f"tropcomplique/{name}.npy" for name in NAMES}
    refused = [
        ([files["pnet"]], "no weights of rnet, onet"),
        ([files["pnet"], files["pnet"]], "two files of pnet"),
        ({"qnet": files["pnet"]}, "no network 'qnet'; did you mean "),
        ([save(tmp_path / "a.pth", {"w": torch.zeros(2)})], "no network of MTCNN: it holds w"),
        ([save(tmp_path / "b.pth", {"conv1.weight": torch.zeros(10, 3, 3, 3)})], "no features"),
    ]
    for paths, what in refused:
        with pytest.raises(MigrateError, match=what):
            convert_weights("mtcnn", paths, tmp_path / "out")
    with pytest.raises(MigrateError, match="3 files cannot be written to one"):
        convert_weights("mtcnn", list(files.values()), tmp_path / "all.pth")
    with pytest.raises(MigrateError, match="no file for onet"):
        convert_weights("mtcnn", files, {"pnet": tmp_path / "p", "rnet": tmp_path / "r"})
    assert not (tmp_path / "out").exists()


def test_a_tensor_of_another_shape_is_named(folder, tmp_path):
    state = torch.load(folder / "facenet_pytorch/rnet.pt", weights_only=True)
    state["dense4.weight"] = torch.zeros(128, 500)
    paths = [folder / f"facenet_pytorch/{name}.pt" for name in ("pnet", "onet")]
    with pytest.raises(MigrateError, match=r"dense4.weight would be \(128, 500\)"):
        convert_weights("mtcnn", [*paths, save(tmp_path / "rnet.pt", state)], tmp_path)


def test_the_three_files_may_be_named(folder, tmp_path):
    files = [folder / f"tropcomplique/{name}.npy" for name in reversed(NAMES)]
    out = {name: tmp_path / f"my_{name}.pth" for name in NAMES}
    found = convert_weights("MTCNN", files, out)
    assert found.out == list(out.values())
    assert len(torch.load(out["pnet"], weights_only=True)) == 13


def test_a_reference_that_is_no_onnx_is_refused(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(MigrateError, match="ONNX Runtime cannot read it"):
        convert_weights(
            "mtcnn", folder / "caffe", tmp_path, reference=folder / "caffe/det1.prototxt"
        )


def test_a_difference_in_one_value_is_a_difference():
    ours = torch.zeros(2, 3)
    theirs = torch.zeros(2, 3)
    theirs[0, 0], theirs[1, 1] = 1, torch.nan
    for a in (ours, ours[:1], torch.full((2, 3), torch.nan)):
        proof = Proof.of("x", "y", a, theirs, 1e-3)
        assert proof.ran
        assert not proof.ok
