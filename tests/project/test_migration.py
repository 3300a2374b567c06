"""migration.toml: a sound one is read, a wrong one is answered with what the key may be."""

import numpy as np
import pytest
import torch
from PIL import Image

import migrate_kit as mk
from migrate_kit.errors import MigrateError
from migrate_kit.migration import KEYS
from migrate_kit.template import TEMPLATE, write_template

IMAGE = 'image = "a.png"'
BAD = {
    # what is wrong: (arguments of write(), what the text must name)
    "not TOML": ({"text": "[model"}, ["cannot read"]),
    "no model": ({"text": "[[inputs]]\nshape=[1]"}, ["model is missing", "[model]"]),
    "model is text": ({"text": 'model = "net"\n[[inputs]]\nshape=[1]'}, ["not a table", "[model]"]),
    "unknown table": ({"more": "[modle]\n"}, ["unknown key 'modle'", "mean 'model'", "target"]),
    "misspelt key": (
        {"model": 'biulder = "net:build"'},
        ["'biulder'", "mean 'builder'", "weights"],
    ),
    "no builder": ({"model": ""}, ["builder is missing", "module:function"]),
    "builder no name": ({"model": 'builder = "net"'}, ["builder is 'net'", "module:function"]),
    "builder number": ({"model": "builder = 5"}, ["builder is 5", "module:function"]),
    "kwargs text": ({"model": 'builder = "net:build"\nkwargs = "x"'}, ["not a table", "kwargs"]),
    "no weights": (
        {"model": 'builder = "net:build"\nweights = "w.pth"'},
        ["weights names no file: 'w.pth'", ".safetensors"],
    ),
    "hostile path": (
        {"model": 'builder = "net:build"\nweights = "\\u0000"'},
        ["weights names no file"],
    ),
    "argument alone": (
        {"model": 'builder = "net:build"\nweights_argument = "path"'},
        ["weights_argument", "weights"],
    ),
    "no inputs": ({"text": '[model]\nbuilder = "net:build"'}, ["inputs is missing", "[[inputs]]"]),
    "inputs empty": (
        {"text": 'inputs = []\n[model]\nbuilder = "net:build"'},
        ["inputs is []", "[[inputs]]"],
    ),
    "inputs of numbers": (
        {"text": 'inputs = [1]\n[model]\nbuilder = "net:build"'},
        ["1 is not a table", "[[inputs]] number 1"],
    ),
    "no source": ({"inputs": 'dtype = "float32"'}, ["none of image, npy and shape", "number 1"]),
    "two sources": ({"inputs": f"{IMAGE}\nshape = [1]"}, ["image and shape", "exactly one"]),
    "key of another": ({"inputs": "shape = [1]\ncrop = 3"}, ["crop does not go with shape"]),
    "no image": ({"inputs": 'image = "b.png"'}, ["image names no file: 'b.png'"]),
    "folder as image": ({"inputs": 'image = "."'}, ["image names no file"]),
    "resize 0": ({"inputs": f"{IMAGE}\nresize = 0"}, ["resize is 0", "shorter side"]),
    "resize of three": ({"inputs": f"{IMAGE}\nresize = [1, 2, 3]"}, ["resize is [1, 2, 3]"]),
    "resize huge": ({"inputs": f"{IMAGE}\nresize = 1000000"}, ["resize is 1000000"]),
    "crop text": ({"inputs": f'{IMAGE}\ncrop = "224"'}, ["crop is '224'"]),
    "interpolation": (
        {"inputs": f'{IMAGE}\ninterpolation = "bicubc"'},
        ["mean 'bicubic'", "bilinear"],
    ),
    "color": ({"inputs": f'{IMAGE}\ncolor = "RGBA"'}, ["color is 'RGBA'", "RGB, BGR, L"]),
    "range": ({"inputs": f'{IMAGE}\nrange = "0-1"'}, ["range is '0-1'", "0..1, 0..255"]),
    "mean of two": ({"inputs": f"{IMAGE}\nmean = [0.5, 0.5]"}, ["mean is [0.5, 0.5]"]),
    "mean nan": ({"inputs": f"{IMAGE}\nmean = [nan]"}, ["mean is [nan]"]),
    "std 0": ({"inputs": f"{IMAGE}\nstd = [0.2, 0, 0.2]"}, ["std is", "none of them 0"]),
    "mean bool": ({"inputs": f"{IMAGE}\nmean = [true]"}, ["mean is [True]"]),
    "no npy": ({"inputs": 'npy = "x.npy"'}, ["npy names no file", "numpy.save"]),
    "shape empty": ({"inputs": "shape = []"}, ["shape is []", "positive whole numbers"]),
    "shape number": ({"inputs": "shape = 3"}, ["shape is 3"]),
    "shape of 0": ({"inputs": "shape = [1, 0]"}, ["shape is [1, 0]"]),
    "shape float": ({"inputs": "shape = [1.5]"}, ["shape is [1.5]"]),
    "dtype": ({"inputs": 'shape = [1]\ndtype = "flaot32"'}, ["mean 'float32'", "int64"]),
    "dtype alias": ({"inputs": 'shape = [1]\ndtype = "double"'}, ["dtype is 'double'", "float64"]),
    "seed": ({"inputs": "shape = [1]\nseed = -1"}, ["seed is -1"]),
    "int no high": ({"inputs": 'shape = [1]\ndtype = "int64"'}, ["high is missing", "vocabulary"]),
    "high not above": ({"inputs": "shape = [1]\nlow = 2\nhigh = 2"}, ["high is 2", "above low"]),
    "low alone": ({"inputs": "shape = [1]\nlow = 2"}, ["high is missing beside low"]),
    "high nan": ({"inputs": "shape = [1]\nhigh = nan"}, ["high is nan"]),
    "label file": ({"more": '[labels]\nfile = "l.txt"'}, ["file names no file: 'l.txt'"]),
    "labels both": ({"more": '[labels]\nfile = "a.png"\nlist = ["a"]'}, ["both given"]),
    "labels number": ({"more": "[labels]\nlist = [1]"}, ["list is no list of texts"]),
    "labels binary": ({"more": '[labels]\nfile = "a.png"'}, ["file cannot be read"]),
    "target": (
        {"more": '[target]\nname = "ascend910"'},
        ["no target", "mean 'ascend910", "mlu370"],
    ),
    "target table": ({"more": 'target = "x"'}, ["x"]),
    "name blank": ({"text": 'name = " "\n[model]\nbuilder="a:b"'}, ["name is ' '"]),
}


@pytest.fixture(autouse=True)
def _image(folder):
    Image.new("RGB", (30, 20), (250, 10, 90)).save(folder / "a.png")


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_with_what_it_may_be(case, write):
    arguments, named = BAD[case]
    file = write(**arguments)
    with pytest.raises(MigrateError) as caught:
        mk.open_project(file)
    text = str(caught.value)
    assert [part for part in named if part not in text] == []
    assert "migration.toml" in caught.value.where
    assert caught.value.fix
    assert len(text.splitlines()) == 3


def test_not_utf8(write):
    file = write()
    file.write_bytes(b"name = '\xff'")
    with pytest.raises(MigrateError, match="cannot read"):
        mk.open_project(file)


def test_deep_nesting(write):
    with pytest.raises(MigrateError, match="cannot read"):
        mk.open_project(write("a = " + "[" * 100_000))


def test_a_full_one(write, folder):
    torch.save({"state_dict": torch.load, "x": 1}, folder / "never_loaded.pth")
    np.save(folder / "mask.npy", np.ones((1, 4), dtype=bool))
    (folder / "labels.txt").write_text("cat\n狗\n", encoding="utf-8")
    file = write(
        """
name = "mine"
[model]
builder = "net:build"
kwargs = { width = 7 }
[[inputs]]
image = "a.png"
resize = [10, 12]
crop = 8
interpolation = "lanczos"
color = "BGR"
range = "0..255"
mean = [1, 2, 3]
std = [2.0]
[[inputs]]
npy = "mask.npy"
[[inputs]]
shape = [2, 5]
dtype = "int32"
low = 3
high = 9
[labels]
file = "labels.txt"
[target]
name = "mlu270"
"""
    )
    project = mk.open_project(file)
    assert (project.name, project.target, project.labels) == ("mine", "mlu270", ["cat", "狗"])
    assert project.weights is None
    assert not project.is_sample
    assert project.model()[0].out_channels == 7
    image, mask, tokens = project.inputs()
    assert image.shape == (1, 3, 8, 8)
    # Blue comes first: (90 - 1) / 2, (10 - 2) / 2, (250 - 3) / 2.
    assert image[0, :, 0, 0].tolist() == [44.5, 4.0, 123.5]
    assert mask.dtype == torch.bool
    assert tokens.dtype == torch.int32
    assert tokens.min() >= 3
    assert tokens.max() < 9
    html = project._repr_html_()
    assert "mask.npy" in html
    assert str(folder) not in html + repr(project)


def test_labels_from_json(write, folder):
    (folder / "labels.json").write_text('["a", "b"]')
    project = mk.open_project(write(more='[labels]\nfile = "labels.json"'))
    assert project.labels == ["a", "b"]
    assert [label for label, _ in project.top(torch.tensor([[0.0, 2.0, 1.0]]))] == [
        "b",
        "class 2",
        "a",
    ]


def test_single_brackets_are_one_input(write):
    text = '[model]\nbuilder = "net:build"\n[inputs]\nshape = [1, 3, 8, 8]'
    assert len(mk.open_project(write(text)).inputs()) == 1


def test_the_template_opens_and_runs_as_it_stands(tmp_path):
    project = mk.open_project(write_template(tmp_path))
    with torch.no_grad():
        assert project.model()(*project.inputs()).shape == (1, 1000)


def test_the_template_shows_every_key():
    for keys in KEYS.values():
        assert [
            key for key in keys if f"{key} =" not in TEMPLATE and f"[{key}]" not in TEMPLATE
        ] == []


def test_the_template_does_not_replace_a_file(tmp_path):
    (tmp_path / "migration.toml").write_text("mine")
    with pytest.raises(MigrateError, match="already"):
        write_template(tmp_path)
    assert (tmp_path / "migration.toml").read_text() == "mine"
    with pytest.raises(MigrateError, match="cannot write"):
        write_template(tmp_path / "migration.toml" / "x")
    assert not list(tmp_path.glob("*partial*"))
