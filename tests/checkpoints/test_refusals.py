"""What is no file of weights is named, and nothing is taken for what it is not."""

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints import load
from migrate_kit.checkpoints.formats import refusals
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.formats.structures import STRUCTURES
from migrate_kit.tables import read_table
from tests.checkpoints import bases
from tests.checkpoints.schemas import caffe, others, tensorflow

ROWS = read_table("not_checkpoints")
PACKAGE = "migrate_kit.checkpoints.formats"
READERS = [import_module(f"{PACKAGE}.{n}") for n in load._FORMATS if find_spec(f"{PACKAGE}.{n}")]
# A zip archive or a pickle of another kind is theirs to refuse.
GENERAL = {"torch_zip", "pickle_file"}


def said(content, name="a.pth"):
    found = refusals.refusal_of(Source.of_bytes(Path(name), content))
    return found.what if found else None


def takers(source):
    """Return the formats whose reader takes a file, in the order of load_checkpoint."""
    return [r.__name__.rpartition(".")[2] for r in READERS if r.recognises(source)]


def mindir():
    model = others.MindModel(ir_version="0.1.0", producer_name="MindSpore")
    model.graph.name = "g"
    return model.SerializeToString()


def program():
    desc = others.ProgramDesc()
    block = desc.blocks.add(idx=0, parent_idx=-1)
    block.vars.add(name="pool2d_7.tmp_0").type.version = 7
    desc.version.version = 0
    return desc.SerializeToString()


def core_ml():
    model = others.CoreModel(specificationVersion=6)
    model.description.text = "a"
    model.neuralNetwork.text = "b"
    return model.SerializeToString()


def meta_graph():
    meta = tensorflow.MetaGraphDef()
    meta.meta_info_def.tensorflow_version = "1.15.0"
    meta.graph_def.CopyFrom(bases.graph_def())
    return meta.SerializeToString()


def solver_state():
    state = caffe.SolverState(iter=1000, learned_net="a_iter_1000.caffemodel")
    state.history.add(data=[1.0, 2.0]).shape.dim.append(2)
    return state.SerializeToString()


def tokenizer():
    pieces = others.Pieces()
    for piece in ("<unk>", "<s>", "a"):
        pieces.pieces.add(piece=piece, score=0.5, type=2)
    return pieces.SerializeToString()


def archive(save):
    def write(file):
        with save(fileobj=file, mode="w") as out:
            out.addfile(tarfile.TarInfo("a"))

    return bases.in_memory(write)


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("config.json", "{}")
    return file.getvalue()


def pdiparams():
    # SerializeToStream: version, levels, version, then the tensor's description and its values.
    desc = b"\x08\x05\x10\x02\x10\x03"
    return bytes(16) + len(desc).to_bytes(4, "little") + desc + np.ones(6, "f4").tobytes()


LFS = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 248007048\n"
)
XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'
# By writers that are not ours, where there is one.
SAMPLES = {
    "Git LFS pointer": LFS,
    "MindIR": mindir(),
    "Paddle program": program(),
    "Paddle parameters": pdiparams(),
    "Core ML": core_ml(),
    "TensorFlow MetaGraph": meta_graph(),
    "Caffe solver state": solver_state(),
    "SentencePiece": tokenizer(),
    "OpenVINO": XML + b'<net name="a" version="11"><layers/></net>',
    "HTML": b"\n<!DOCTYPE html>\n<html><title>Sign in</title></html>",
    "JSON": b'{"error": "Repository not found"}',
    "XML": XML + b"<Error><Code>AccessDenied</Code></Error>",
    "zeros": bytes(5000) + b"x",
    "text": b"Entry not found",
    "gzip": gzip.compress(b"a"),
    "bzip2": bz2.compress(b"a"),
    "xz": lzma.compress(b"a"),
    "tar": archive(tarfile.open),
    "zip": zipped(),
    "encrypted MindSpore": (0x7F3A5ED8).to_bytes(4, "little") + bytes(range(200, 256)),
    "MXNet parameters": (0x112).to_bytes(8, "little") + bytes(16),
    "ncnn param": b"7767517\n1 1\nInput data 0 1 data\n",
    "TensorFlow list of checkpoints": b'model_checkpoint_path: "model.ckpt-1000"\n',
}


def test_every_structure_has_a_sample_and_a_row():
    structures = {row["name"] for row in ROWS if row["magic"] == "structure"}
    assert structures == set(STRUCTURES)
    assert structures <= set(SAMPLES) <= {row["name"] for row in ROWS}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_named_and_taken_by_no_reader(name):
    row = next(row for row in ROWS if row["name"] == name)
    source = Source.of_bytes(Path("a.pth"), SAMPLES[name])
    found = refusals.refusal_of(source)
    assert found.what.startswith(f"no weights to load: {row['what']}")
    assert (found.where, found.fix) == ("a.pth", row["fix"])
    assert set(takers(source)) <= GENERAL


@pytest.mark.parametrize("number", [n for n, r in enumerate(ROWS) if r["magic"] != "structure"])
def test_a_signature_is_found_at_its_place_alone(number):
    row = ROWS[number]
    magic = refusals._magic(row["magic"])
    noise = np.random.default_rng(number).integers(128, 256, 600, np.uint8).tobytes()
    content = bytearray(noise)
    place = int(row["offset"])
    content[place : place + len(magic)] = bytes(0x55 if b is None else b for b in magic)
    assert said(bytes(content)) == f"no weights to load: {row['what']}"
    moved = noise[:100] + bytes(content[place : place + len(magic)]) + noise
    assert said(moved) is None
    assert said(noise) is None


def test_a_pointer_says_how_large_the_file_is():
    what = said(LFS, "yolov3.weights")
    assert what.endswith(
        "a Git LFS pointer, not the file itself, which has 248 MB (248,007,048 bytes)"
    )


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (b'{"error": "Repository not found"}', "a JSON text: 'Repository not found'"),
        (b'{"message": "Bad \\u001b[31mcredentials"}', "a JSON text: 'Bad \ufffd[31mcredentials'"),
        (b'["a"]', """a JSON text: '["a"]'"""),
        (b'{"layers": 3}', """a JSON text: '{"layers": 3}'"""),
        ("\n \u9519\u8bef\uff1a\u6743\u9650\u4e0d\u8db3".encode(), "a text: '错误：权限不足'"),
        (b"[net]\nbatch=1", "a text: '[net]'"),
        (b'name: "PNet"\nlayer {', "a text: 'name: \"PNet\"'"),
        (b"x" * 5000, f"a text: '{'x' * 80}'"),
        (b"\xef\xbb\xbf[net]", "a text: '[net]'"),
        ("é".encode() * 5000, f"a text: '{'é' * 80}'"),
        (b"[" * 100_000, f"a text: '{'[' * 80}'"),
    ],
    ids=range(11),
)
def test_a_text_says_what_it_says(content, end):
    assert said(content) == f"no weights to load: {end}"


@pytest.mark.parametrize(
    "content",
    [
        b"\0\1\2\3" * 100,
        bytes(100),
        b"text \0 text",
        "text".encode("utf-16"),
        b"\xff\xfe" * 50,
        b"   ",
    ],
    ids=["binary", "a few zeros", "a zero in it", "utf-16", "no utf-8", "blanks"],
)  # fmt: skip
def test_of_other_bytes_nothing_is_said(content):
    assert said(content) is None


def test_what_torch_and_numpy_write_is_not_refused():
    state = {"a": torch.ones(2)}
    legacy = io.BytesIO()
    torch.save(state, legacy, _use_new_zipfile_serialization=False)
    assert said(legacy.getvalue()) is None
    assert said(pickle.dumps(state)) is None
    assert said(bases.in_memory(lambda file: np.save(file, np.ones(2)))) is None


@pytest.mark.parametrize("name", bases.BASES)
def test_each_format_is_taken_by_its_own_reader_alone(name, tmp_path):
    base = bases.BASES[name]()
    source = Source(base.put(tmp_path))
    first, *others = takers(source)
    assert first == base.reader
    assert set(others) <= GENERAL


# A table's signature is at its end.
@pytest.mark.parametrize("name", [name for name in bases.BASES if "bundle" not in name])
def test_a_file_that_is_cut_is_still_known(name, tmp_path):
    base = bases.BASES[name]()
    whole = base.files[base.main]
    source = Source.of_bytes(tmp_path / base.main, whole[: len(whole) * 2 // 3])
    assert takers(source)[:1] == [base.reader]


REAL = {
    "onnx/*.onnx": "onnx_file", "mtcnn/onnx/*.onnx": "onnx_file",
    "mtcnn/caffe/*.caffemodel": "caffemodel", "tensorflow/*.pb": "frozen_graph",
    "mindspore/*.ckpt": "mindspore_ckpt", "checkpoints/*.safetensors": "safetensors_file",
    "mtcnn/*/*.npy": "npy", "checkpoints/*_v0.1*.pth": "torch_legacy",
    "mindspore/*.mindir": "a MindIR", "om/*.om": "an Ascend offline model",
    "other/*.pdmodel": "a Paddle program", "other/*.param": "an ncnn .param",
    "other/*.tflite": "a TensorFlow Lite model", "mtcnn/caffe/*.prototxt": "a text",
}  # fmt: skip


@pytest.mark.parametrize("pattern", REAL)
def test_real_files_are_taken_for_what_they_are(cases, pattern):
    paths = sorted(cases.glob(pattern))
    assert paths
    for path in paths:
        source = Source(path)
        if " " in REAL[pattern]:
            assert takers(source) == []
            refusal = refusals.refusal_of(source)
            assert refusal.what.startswith(f"no weights to load: {REAL[pattern]}")
        else:
            assert takers(source)[:1] == [REAL[pattern]]
            assert set(takers(source)[1:]) <= GENERAL
