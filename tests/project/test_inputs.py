"""Inputs are the tensors they say, and a bad file is one clear error."""

import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms

from migrate_kit.errors import MigrateError
from migrate_kit.inputs import DTYPES, INTEGERS, ArrayInput, ImageInput, RandomInput, image_tensor


@settings(deadline=None, max_examples=40)
@given(
    st.integers(3, 60),
    st.integers(3, 60),
    st.sampled_from([(7,), (16,), (9, 14)]),
    st.sampled_from(["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]),
    st.integers(1, 7),
)
def test_resize_and_crop_are_torchvisions(height, width, resize, filter_, crop):
    noise = np.random.default_rng(height * 61 + width).integers(
        0, 256, (height, width, 3), np.uint8
    )
    image = Image.fromarray(noise)
    how = ImageInput(Path("x"), resize=resize, crop=(crop,), interpolation=filter_)
    size = resize[0] if len(resize) == 1 else list(resize)
    reference = transforms.Compose(
        [
            transforms.Resize(size, transforms.InterpolationMode(filter_)),
            transforms.CenterCrop(crop),
            transforms.ToTensor(),
        ]
    )
    assert torch.equal(image_tensor(image, how)[0], reference(image))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "I;16"])
def test_any_kind_of_image_becomes_what_is_asked_for(mode, tmp_path):
    path = tmp_path / ("x.tif" if mode in {"CMYK", "I;16"} else "x.png")
    Image.new(mode, (6, 5)).save(path)
    assert ImageInput(path).tensor().shape == (1, 3, 5, 6)
    assert ImageInput(path, color="L").tensor().shape == (1, 1, 5, 6)


def test_a_crop_larger_than_the_image(tmp_path):
    Image.new("RGB", (6, 5)).save(tmp_path / "x.png")
    with pytest.raises(MigrateError, match="crop of 8 by 8 does not fit 5 by 6"):
        ImageInput(tmp_path / "x.png", crop=(8,)).tensor()


def test_a_damaged_image(tmp_path):
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 90).save(buffer, "png")
    for name, data in {"cut": buffer.getvalue()[:600], "empty": b"", "text": b"cat"}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(MigrateError, match="the image cannot be read"):
            ImageInput(tmp_path / name).tensor()


def test_an_array_is_what_was_saved(tmp_path):
    array = np.arange(12, dtype=np.float16).reshape(3, 4).T  # Fortran order
    np.save(tmp_path / "x.npy", array)
    tensor = ArrayInput(tmp_path / "x.npy").tensor()
    assert tensor.dtype == torch.float16
    assert np.array_equal(tensor.numpy(), array)


def test_a_damaged_array(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.ones(100))
    promised = buffer.getvalue().replace(b"(100,), }", b"(9999999999,), }")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=np.ones(1))
    np.save(tmp_path / "text.npy", np.array(["a"]))
    (tmp_path / "cut.npy").write_bytes(buffer.getvalue()[:300])
    (tmp_path / "promised.npy").write_bytes(promised)
    (tmp_path / "empty.npy").write_bytes(b"")
    for path in tmp_path.iterdir():
        with pytest.raises(MigrateError, match="the array cannot be read"):
            ArrayInput(path).tensor()


class Attack:
    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return os.mkdir, (self.file,)


def test_a_pickle_named_npy_runs_nothing(tmp_path):
    (tmp_path / "x.npy").write_bytes(pickle.dumps(Attack(tmp_path / "proof")))
    with pytest.raises(MigrateError, match="the array cannot be read"):
        ArrayInput(tmp_path / "x.npy").tensor()
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_numbers_are_the_same_every_time(dtype):
    high = 5 if dtype in INTEGERS else None
    first, second, other = (
        RandomInput((50,), dtype, seed=seed, high=high).tensor() for seed in (1, 1, 2)
    )
    assert first.dtype == getattr(torch, dtype)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_two_dtypes_are_the_same_numbers_rounded():
    wide = RandomInput((50,), "float64").tensor()
    assert torch.equal(RandomInput((50,), "float16").tensor(), wide.half())


def test_uniform_numbers_stay_in_their_bounds():
    x = RandomInput((1000,), low=-2.0, high=3.0).tensor()
    assert x.min() >= -2
    assert x.max() < 3
    assert x.min() < -1.9
    assert x.max() > 2.9


def test_a_huge_shape_takes_no_memory():
    with pytest.raises(MigrateError, match="GiB"):
        RandomInput((10**6, 10**6)).tensor()


def test_whole_numbers_that_do_not_fit():
    with pytest.raises(MigrateError, match="does not fit uint8"):
        RandomInput((1,), "uint8", high=300).tensor()
