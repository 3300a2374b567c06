"""Networks built from a .cfg, layer by layer against Darknet's own C code and OpenCV."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.formats import darknet
from migrate_kit.checkpoints.formats.darknet_cfg import parse_cfg
from migrate_kit.checkpoints.formats.darknet_sections import plan_network
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.networks.darknet import DarknetNetwork, build_darknet
from migrate_kit.errors import MigrateError
from tests.checkpoints import darknet_files as files
from tests.checkpoints.one_thread import one_thread  # noqa: F401

# Made with AlexeyAB's Darknet (59596d78) on a CPU, compiled by gcc 12 -O2 without its fast math,
# which adds 1e-5 to a variance: a few values of every layer's output for the networks, weights and
# images of darknet_files.py.
with (Path(__file__).parent / "darknet_c.csv").open(encoding="utf-8", newline="") as _file:
    OF_C = list(csv.DictReader(_file))


def loaded(folder, text, epsilon=1e-5, **settings):
    path = files.write_pair(folder, text, **settings)
    source = Source(path)
    found = darknet.fit(source, plan_network(parse_cfg(text)))
    network = DarknetNetwork(found.plan, epsilon).eval()
    network.load_state_dict({k: e.read() for k, e in darknet.entries(source, found).items()})
    return network


def outputs(network, image):
    found = {}
    for index, module in enumerate(network.models):
        module.register_forward_hook(lambda *a, index=index: found.__setitem__(index, a[2]))
    with torch.no_grad():
        network(torch.from_numpy(image))
    return found


@pytest.mark.parametrize("name", files.NETWORKS)
def test_every_layer_equals_darknets_c_code(name, tmp_path):
    text = files.NETWORKS[name]
    found = outputs(loaded(tmp_path, text), files.image(text))
    rows = [row for row in OF_C if row["network"] == name]
    assert rows
    for row in rows:
        ours = found[int(row["layer"])]
        assert ours.numel() == int(row["values"]), row
        theirs = [float(row[f"v{k}"]) for k in range(6)]
        np.testing.assert_allclose(files.some(ours), theirs, rtol=2e-6, atol=2e-6, err_msg=str(row))


def test_all_kinds_of_layers_and_activations_are_among_them():
    from migrate_kit.checkpoints.formats.darknet_sections import _READERS, ACTIVATIONS

    text = "".join(files.NETWORKS.values())
    kinds = set(_READERS) - {"yolo", "region", "cost", "empty", "activation"}
    assert all(f"[{kind}]" in text for kind in kinds)
    assert all(f"activation={a}\n" in text for a in ACTIVATIONS if a not in ("relu6", "logistic"))


def test_padding_never_wins_over_negative_values():
    text = files.net(1, 2, 2) + files.section("maxpool", size=2, stride=1)
    network = DarknetNetwork(plan_network(parse_cfg(text)))
    x = torch.tensor([[[[-1.0, -2.0], [-3.0, -4.0]]]])
    assert network(x).tolist() == [[[[-1.0, -2.0], [-3.0, -4.0]]]]


def test_reorg_is_neither_pixel_unshuffle_nor_reorg3d():
    x = torch.arange(64.0).reshape(1, 4, 4, 4)
    ours = {
        kind: DarknetNetwork(
            plan_network(parse_cfg(files.net(4, 4, 4) + files.section(kind, stride=2)))
        )(x)
        for kind in ("reorg", "reorg3d")
    }
    unshuffled = torch.nn.functional.pixel_unshuffle(x, 2)
    assert not torch.equal(ours["reorg"], unshuffled)
    assert not torch.equal(ours["reorg"], ours["reorg3d"])
    # reorg_cpu of blas.c: out channel k reads channel k % (c / 4) of an image twice as wide.
    by_hand = torch.zeros(16, 2, 2)
    flat = x.reshape(-1)
    for k in range(4):
        for j in range(4):
            for i in range(4):
                c2, offset = k % 1, k // 1
                w2, h2 = i * 2 + offset % 2, j * 2 + offset // 2
                by_hand.view(-1)[i + 4 * (j + 4 * k)] = flat[w2 + 8 * (h2 + 8 * c2)]
    assert torch.equal(ours["reorg"][0], by_hand)


def head_cfg(kind, **options):
    anchors, classes = 3, 4
    text = files.net(3, 8, 12) + files.conv(6, 3, pad=1, stride=2, activation="leaky")
    squashed = "logistic" if options.get("new_coords") else "linear"
    text += files.conv(anchors * (classes + 5), activation=squashed)
    numbers = "1.5,2, 3,1, 0.7,4" if kind == "region" else "10,13, 16,30, 33,23"
    return text + files.section(
        kind, classes=classes, num=anchors, anchors=numbers, thresh=0, nms_threshold=0, **options
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("region", {"softmax": 1, "coords": 4}),
        ("yolo", {"mask": "0,1,2"}),
        ("yolo", {"mask": "2,0,1", "scale_x_y": 1.2}),
        ("yolo", {"mask": "0,1,2", "scale_x_y": 2.0, "new_coords": 1}),
    ],
)
def test_boxes_are_opencvs(kind, options, tmp_path):
    cv2 = pytest.importorskip("cv2")
    text = head_cfg(kind, **options)
    network = loaded(tmp_path, text, 1e-6)
    image = files.image(text)
    with torch.no_grad():
        boxes = network.decode(network(torch.from_numpy(image)))[0].numpy()
    net = cv2.dnn.readNetFromDarknet(str(tmp_path / "net.cfg"), str(tmp_path / "net.weights"))
    net.setInput(image)
    theirs = net.forward()
    np.testing.assert_allclose(boxes[:, :5], theirs[:, :5], rtol=1e-5, atol=1e-6)
    # A region's boxes that a surer one covers have lost their classes in OpenCV.
    kept = theirs[:, 5:] != 0
    assert kept.mean() > 0.5
    ours = boxes[:, 5:] * boxes[:, 4:5]
    np.testing.assert_allclose(ours[kept], theirs[:, 5:][kept], rtol=1e-5, atol=1e-6)


def test_only_a_head_can_be_decoded(tmp_path):
    network = loaded(tmp_path, files.FLIPPED)
    with pytest.raises(MigrateError, match="no head"):
        network.decode(torch.zeros(1, 6, 3, 4))


def test_classes_in_a_tree_are_not_decoded(tmp_path):
    text = head_cfg("region", tree="9k.tree")
    (tmp_path / "a.cfg").write_text(text)
    network = build_darknet(tmp_path / "a.cfg")
    with pytest.raises(MigrateError, match="tree"):
        network.decode(network(torch.zeros(1, 3, 8, 12)))


def test_an_image_of_another_size_runs_through(tmp_path):
    text = head_cfg("yolo", mask="0,1,2")
    network = loaded(tmp_path, text)
    raw = network(torch.zeros(2, 3, 16, 20))
    assert network.decode(raw, (16, 20)).shape == (2, 8 * 10 * 3, 9)


def test_a_residual_of_another_size_is_taken_in_steps(tmp_path):
    # The original Darknet's resnet cfgs: 64 x 64 is added to 32 x 32, every second pixel.
    text = files.net(2, 4, 4) + files.conv(2, 1, stride=2, activation="linear")
    text += files.section("route", layers="0") + files.section("upsample", stride=4)
    text += files.section("route", layers="0") + files.section("shortcut", **{"from": 2})
    network = loaded(tmp_path, text)
    found = outputs(network, files.image(text))
    assert torch.allclose(found[4], found[0] + found[2][:, :, ::4, ::4])
