"""Every real file loads to the right kind, or gets the right refusal: the table."""

import pytest

from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.errors import MigrateError

# file -> kind, format, tensors
LOADS = {
    "checkpoints/cgcnn_band-gap.pth.tar": ("training checkpoint", "torch legacy stream", 46),
    "checkpoints/cgcnn_semi-metal-classification.pth.tar": (
        "training checkpoint",
        "torch legacy stream",
        46,
    ),
    "checkpoints/lpips_v0.1_alex.pth": ("state_dict", "torch legacy stream", 5),
    "checkpoints/retinaface_mobilenet0.25_Final.pth": ("state_dict", "torch legacy stream", 300),
    "checkpoints/retinaface_mobilenetV1x0.25_model_best.pth.tar": (
        "training checkpoint",
        "torch legacy stream",
        164,
    ),
    "checkpoints/silero_vad.jit": ("TorchScript", "TorchScript", 32),
    "checkpoints/silero_vad_16k.safetensors": ("weights", "safetensors", 15),
    "darknet/MobileNetV2-YOLO-Fastest-voc.weights": ("weights", "Darknet weights", 289),
    "darknet/yolo-fastest-1.1.weights": ("weights", "Darknet weights", 414),
    "mindspore/checkpoint_lenet-10_1875.ckpt": ("training checkpoint", "MindSpore ckpt", 8),
    "mtcnn/caffe/det1.caffemodel": ("weights", "caffemodel", 13),
    "mtcnn/caffe/det2.caffemodel": ("weights", "caffemodel", 18),
    "mtcnn/caffe/det3.caffemodel": ("weights", "caffemodel", 21),
    "mtcnn/facenet_pytorch/onet.pt": ("state_dict", "torch legacy stream", 21),
    "mtcnn/facenet_pytorch/pnet.pt": ("state_dict", "torch legacy stream", 13),
    "mtcnn/facenet_pytorch/rnet.pt": ("state_dict", "torch legacy stream", 16),
    "mtcnn/facenet_tf/det1.npy": ("state_dict", "npy", 13),
    "mtcnn/facenet_tf/det2.npy": ("state_dict", "npy", 16),
    "mtcnn/facenet_tf/det3.npy": ("state_dict", "npy", 21),
    "mtcnn/onnx/cv2_onet.onnx": ("weights", "ONNX", 21),
    "mtcnn/onnx/cv2_pnet.onnx": ("weights", "ONNX", 13),
    "mtcnn/onnx/cv2_rnet.onnx": ("weights", "ONNX", 16),
    "mtcnn/onnx/runtime_onet.onnx": ("weights", "ONNX", 21),
    "mtcnn/onnx/runtime_pnet.onnx": ("weights", "ONNX", 13),
    "mtcnn/onnx/runtime_rnet.onnx": ("weights", "ONNX", 16),
    "mtcnn/tropcomplique/onet.npy": ("state_dict", "npy", 21),
    "mtcnn/tropcomplique/pnet.npy": ("state_dict", "npy", 13),
    "mtcnn/tropcomplique/rnet.npy": ("state_dict", "npy", 16),
    "onnx/light_resnet50.onnx": ("weights", "ONNX", 29),
    "onnx/light_shufflenet.onnx": ("weights", "ONNX", 5),
    "onnx/light_squeezenet.onnx": ("weights", "ONNX", 13),
    "onnx/magika_standard_v3_3.onnx": ("weights", "ONNX", 20),
    "onnx/modelbox_trt_model.onnx": ("weights", "ONNX", 2),
    "onnx/mul_1.onnx": ("weights", "ONNX", 1),
    "onnx/silero_vad_16k_op15.onnx": ("weights", "ONNX", 17),
    "tensorflow/modelbox_mnist_model.pb": ("weights", "frozen GraphDef", 2),
    "tensorflow/mtcnn.pb": ("weights", "frozen GraphDef", 81),
}
# file -> what its refusal says
REFUSED = {
    "mindspore/tensor_add.mindir": "a MindIR",
    "om/2d_2048_w_stage1_pad0.om": "an Ascend offline model",
    "om/fixture_new64.om": "an Ascend offline model",
    "om/fixture_old32.om": "an Ascend offline model",
    "om/tfzoo_autoencoder_hh_om.om": "an Ascend offline model",
    "other/cls_inference.pdmodel": "a Paddle program",
    "other/face.param": "an ncnn .param",
    "other/face_detection_front.tflite": "a TensorFlow Lite model",
}
# Read beside a file of weights, and no weights themselves.
TEXTS = (".md", ".cfg", ".prototxt")


def test_every_file_is_in_the_table(cases):
    files = {str(p.relative_to(cases)) for p in cases.rglob("*") if p.is_file()}
    assert {f for f in files if not f.endswith(TEXTS)} == set(LOADS) | set(REFUSED)


@pytest.mark.parametrize("file", LOADS)
def test_it_loads_to_its_kind(cases, file):
    found = load_checkpoint(cases / file)
    assert (found.kind, found.format, len(found.state_dict)) == LOADS[file]
    for name, entry in found.state_dict.entries.items():
        tensor = found.state_dict[name]
        assert (tuple(tensor.shape), tensor.dtype) == (entry.shape, entry.dtype)
        # One of them holds a lone -inf, as a mask.
        values = tensor.is_floating_point() and tensor.numel() > 1
        assert not values or tensor.isfinite().all()


@pytest.mark.parametrize("file", REFUSED)
def test_it_is_refused_in_its_words(cases, file):
    with pytest.raises(MigrateError, match=REFUSED[file]) as caught:
        load_checkpoint(cases / file)
    assert caught.value.fix


@pytest.mark.parametrize("file", [f for f in LOADS if LOADS[f][1].startswith("torch")])
def test_it_is_what_torch_reads(cases, file):
    import torch

    found = load_checkpoint(cases / file).state_dict
    # False: one of them holds a NumPy number, and this is a file that we know.
    saved = torch.load(cases / file, map_location="cpu", weights_only=False)
    expected = saved.get("state_dict", saved)
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
