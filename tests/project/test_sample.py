"""The embedded sample says what a real network says, and fetches nothing."""

import socket

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

import migrate_kit as mk
from migrate_kit.sample import PHOTOGRAPHS, _photograph

LABELS = {
    "chelsea": ("Egyptian cat", 0.34),
    "coffee": ("espresso", 0.78),
    "camera": ("tripod", 0.94),
    "rocket": ("missile", 0.24),
    "motorcycle": ("moped", 0.27),
}


@pytest.fixture(scope="module")
def sample():
    return mk.open_project("sample")


@pytest.fixture(scope="module")
def model(sample):
    return sample.model()


@pytest.mark.parametrize("name", LABELS)
def test_labels(sample, model, name):
    with torch.no_grad():
        label, probability = sample.top(model(*sample.inputs(name)))[0]
    assert (label, round(probability, 2)) == LABELS[name]


def test_the_network_is_ready_for_use_and_each_call_builds_another(sample, model):
    assert not model.training
    other = sample.model()
    assert other is not model
    assert all(
        torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True)
    )


def test_the_preprocessing_is_torchvisions(sample):
    reference = transforms.Compose(
        [
            transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    for name, image in sample.images.items():
        expected = reference(Image.fromarray(image.copy()))[None]
        torch.testing.assert_close(sample.inputs(name)[0], expected, rtol=0, atol=1e-6)


def test_the_photographs_are_all_there(sample):
    assert set(sample.images) == set(PHOTOGRAPHS)
    for image in sample.images.values():
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3


def test_nothing_is_fetched(monkeypatch, sample):
    def refuse(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    _photograph.cache_clear()
    assert sample.model()(*sample.inputs("rocket")).shape == (1, 1000)
    assert len(sample.labels) == 1000


def test_the_weights_are_a_file_and_are_loaded_without_running_it(sample, monkeypatch):
    assert sample.weights.is_file()
    expected = torch.load(sample.weights, weights_only=True)
    monkeypatch.setattr(torch, "load", None)
    found = sample.model().state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_an_unknown_photograph_is_answered_with_those_there_are(sample):
    with pytest.raises(mk.MigrateError, match="chelsea, coffee, camera"):
        sample.inputs("lena")


def test_a_missing_package_is_named(sample, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(mk.MigrateError, match=r"efficientnet_lite_pytorch[\s\S]*workbook"):
        sample.model()
