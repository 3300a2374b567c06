"""The reductions, against the plainest possible computation of the same thing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from migrate_kit.layers.rows import LayerRow
from migrate_kit.widgets import layout, wire
from migrate_kit.widgets.detail import NO_TENSORS, Limits, reduce_pair
from migrate_kit.widgets.layout import layout_of, pool

SHAPES = [
    (),
    (1,),
    (700,),
    (3, 5),
    (130, 7),
    (5, 900),
    (2, 7, 30),
    (1, 90, 50),
    (2, 3, 4, 5),
    (1, 130, 9, 11),
    (300, 2, 3, 3),
    (3, 130, 2, 30),
    (2, 3, 4, 5, 6),
    (1000, 1, 1, 1),
    (2, 1, 7000),
]


def pair(shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    reference = torch.randn(shape, generator=draw)
    return reference, reference + 0.01 * torch.randn(shape, generator=draw)


def brute_heat(difference, plan):
    """Put every element into its cell, one by one."""
    row, column, sample = plan["row"], plan["column"], plan["sample"]
    samples = sample["cells"] if sample else 1
    heat = np.zeros((row["cells"], samples * column["cells"]))
    signed = max(a["block"] for a in (row, column, sample) if a) == 1

    def along(axis, index, shape):
        flat = 0
        for a in axis["axes"]:
            flat = flat * shape[a] + index[a]
        return flat // axis["block"]

    for index in itertools.product(*(range(n) for n in difference.shape)):
        value = difference[index]
        i = along(row, index, difference.shape)
        j = along(column, index, difference.shape)
        if sample:
            j += along(sample, index, difference.shape) * column["cells"]
        heat[i, j] = value if signed else max(heat[i, j], abs(value))
    return heat, signed


@pytest.mark.parametrize("piece", [64, 1 << 18])
@pytest.mark.parametrize("channel", ["forward", "parameter gradient"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_heatmap_is_what_one_by_one_gives(shape, channel, piece, monkeypatch):
    monkeypatch.setattr(layout, "_PIECE", piece)  # small pieces: every border is crossed
    reference, candidate = pair(shape)
    header, arrays = reduce_pair(reference, candidate, Limits(rows=20, columns=50), channel)
    heat, signed = brute_heat((candidate - reference).numpy(), header["heat"])
    assert header["heat"]["signed"] is signed
    assert arrays["heat"].shape == heat.shape
    assert heat.shape[0] <= 20
    assert heat.shape[1] <= 50
    np.testing.assert_array_equal(arrays["heat"], heat.astype(np.float32))


@pytest.mark.parametrize("piece", [64, 1 << 18])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_worst_elements_and_counts(shape, piece, monkeypatch):
    monkeypatch.setattr(layout, "_PIECE", piece)
    reference, candidate = pair(shape)
    header, arrays = reduce_pair(reference, candidate)
    difference = (candidate - reference).numpy()
    order = np.argsort(-np.abs(difference), axis=None, kind="stable")[:20]
    assert [abs(w["d"]) for w in header["worst"]] == np.abs(difference).reshape(-1)[order].tolist()
    for line in header["worst"]:
        index = tuple(line["index"])
        assert difference[index] == line["d"]
        assert float(line["reference"]) == pytest.approx(float(reference[index]), rel=1e-7)
        assert float(line["candidate"]) == pytest.approx(float(candidate[index]), rel=1e-7)
    assert header["max"] == np.abs(difference).max()
    assert header["changed"] == np.count_nonzero(difference)
    assert header["elements"] == difference.size
    for side in ("reference", "candidate"):
        assert sum(header["histogram"][side]) == difference.size
    assert len(arrays["x"]) - header["sampled"] == min(200, header["changed"])


def test_channels_are_axis_1_of_images_and_the_last_of_sequences():
    image = layout_of((2, 64, 14, 14), "forward", 96, 256).describe()
    assert (image["row"]["name"], image["row"]["axes"]) == ("channel", [1])
    assert (image["sample"]["axes"], image["column"]["axes"]) == ([0], [2, 3])
    tokens = layout_of((2, 77, 768), "forward", 96, 256).describe()
    assert (tokens["row"]["name"], tokens["row"]["axes"]) == ("channel", [2])
    assert (tokens["sample"], tokens["column"]["axes"]) == (None, [0, 1])
    weight = layout_of((64, 3, 7, 7), "parameter gradient", 96, 256).describe()
    assert (weight["row"]["axes"], weight["column"]["axes"]) == ([0], [1, 2, 3])


def test_pool_keeps_the_short_last_block():
    box = torch.arange(7.0).view(1, 1, 7)
    assert pool(box, (1, 1, 3)).tolist() == [[[2.0, 5.0, 6.0]]]


@pytest.mark.parametrize(
    ("dtype", "other"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float64, torch.float32),
        (torch.float8_e4m3fn, torch.float32),
        (torch.int8, torch.int8),
        (torch.int64, torch.float32),
        (torch.uint8, torch.int32),
        (torch.bool, torch.bool),
    ],
    ids=str,
)
def test_types_are_subtracted_without_wrapping_round(dtype, other):
    reference = torch.tensor([0.0, 1.0, 100.0, 1.0]).to(dtype)
    candidate = torch.tensor([1.0, 0.0, 1.0, 1.0]).to(other)
    header, arrays = reduce_pair(reference, candidate)
    wanted = candidate.double() - reference.double()
    assert arrays["heat"][0].tolist() == wanted.tolist()
    assert header["max"] == wanted.abs().max()


def test_a_difference_of_one_in_large_integers_is_seen():
    header, _ = reduce_pair(torch.tensor([2**40, 7]), torch.tensor([2**40 + 1, 7]))
    assert header["changed"] == 1
    assert header["worst"] == [
        {"index": [0], "reference": "1099511627776", "candidate": "1099511627777", "d": 1.0}
    ]


def test_complex_values_are_compared_by_magnitude():
    header, arrays = reduce_pair(torch.tensor([[3 + 4j, 1j]]), torch.tensor([[0j, 1j]]))
    assert header["magnitude"]
    assert not header["heat"]["signed"]
    assert arrays["heat"].tolist() == [[5.0, 0.0]]
    assert header["worst"][0]["reference"] == "3+4j"


@pytest.mark.parametrize("piece", [4, 1 << 18])
def test_not_finite_is_counted_marked_and_left_out(piece, monkeypatch):
    monkeypatch.setattr(layout, "_PIECE", piece)
    nan, inf = math.nan, math.inf
    reference = torch.tensor([[1.0, nan, inf, inf, 2.0, -inf]])
    candidate = torch.tensor([[1.5, nan, inf, -inf, nan, 3.0]])
    header, arrays = reduce_pair(reference, candidate)
    assert header["nonfinite"] == {"reference": [1, 3], "candidate": [2, 2], "unlike": 3}
    assert arrays["alike"].tolist() == [1, 2]
    assert arrays["unlike"].tolist() == [3, 4, 5]
    assert arrays["heat"].tolist() == [[0.5, 0, 0, 0, 0, 0]]
    assert header["max"] == 0.5
    # The first line of the list is where one side alone broke, with its values as they are.
    first = header["worst"][0]
    assert (first["index"], first["reference"], first["candidate"]) == ([0, 3], "inf", "-inf")
    assert header["worst"][-1] == {
        "index": [0, 0], "reference": "1", "candidate": "1.5", "d": 0.5
    }  # fmt: skip
    assert header["histogram"]["low"] == 1.0
    assert header["histogram"]["high"] == 3.0
    assert np.isfinite(arrays["x"]).all()
    assert np.isfinite(arrays["y"]).all()
    wire.pack(header, arrays)  # strict JSON: no NaN slipped through


def test_nothing_finite_at_all():
    header, arrays = reduce_pair(torch.full((3,), math.nan), torch.zeros(3))
    assert header["histogram"] == {
        "low": -0.5, "high": 0.5, "reference": [0] * 80,
        "candidate": [0] * 40 + [3] + [0] * 39,
    }  # fmt: skip
    header, arrays = reduce_pair(torch.full((3,), math.nan), torch.full((3,), math.nan))
    assert header["histogram"] is None
    assert header["nonfinite"]["unlike"] == 0
    assert len(arrays["x"]) == 0


def test_a_difference_too_large_for_the_type_is_cut_not_lost():
    top = torch.finfo(torch.float32).max
    header, _ = reduce_pair(torch.tensor([-top, 0.0]), torch.tensor([top, 0.0]))
    assert header["max"] == pytest.approx(top)
    assert header["nonfinite"] == {"reference": [0, 0], "candidate": [0, 0], "unlike": 0}
    assert sum(header["histogram"]["reference"]) == 2


def test_equal_tensors_have_no_worst_element():
    header, arrays = reduce_pair(torch.ones(4, 4), torch.ones(4, 4))
    assert (header["changed"], header["max"], header["worst"]) == (0, 0.0, [])
    assert header["sampled"] == len(arrays["x"]) == 16


def test_views_of_memory_that_is_not_in_order():
    reference, candidate = pair((4, 6))
    turned, _ = reduce_pair(reference.T, candidate.T)
    plain, _ = reduce_pair(reference.T.contiguous(), candidate.T.contiguous())
    assert turned == plain
    wide, _ = reduce_pair(torch.ones(1).expand(5, 5), torch.zeros(5, 5))
    assert wide["changed"] == 25


def test_tensors_that_need_gradients_are_sparse_or_quantized():
    reference = torch.eye(3, requires_grad=True)
    assert reduce_pair(reference, torch.eye(3).to_sparse())[0]["changed"] == 0


def test_shapes_that_differ_give_histograms_only():
    header, arrays = reduce_pair(torch.zeros(2, 3), torch.tensor([1.0, math.inf]))
    assert "2×3 against 2" in header["message"]
    assert arrays == {}
    assert "heat" not in header
    assert sum(header["histogram"]["reference"]) == 6
    assert sum(header["histogram"]["candidate"]) == 1
    assert header["nonfinite"] == {"reference": [0, 0], "candidate": [0, 1]}


def test_one_side_alone_and_none_at_all():
    header, _ = reduce_pair(None, torch.arange(5.0))
    assert "Only the candidate" in header["message"]
    assert header["histogram"]["reference"] is None
    assert reduce_pair(None, None) == ({"message": NO_TENSORS}, {})
    assert "tensors=True" in NO_TENSORS


def test_an_empty_tensor():
    header, arrays = reduce_pair(torch.empty(0, 4), torch.empty(0, 4))
    assert header["message"] == "This tensor is empty (shape 0×4)."
    assert arrays == {}
    other, _ = reduce_pair(torch.empty(0, 4), torch.empty(0, 5))
    assert other["histogram"] is None


def test_points_are_elements_of_the_tensors_and_the_same_each_time():
    reference, candidate = pair((100, 100))
    header, arrays = reduce_pair(reference, candidate)
    assert header["sampled"] == 4000
    where = {float(x): float(y) for x, y in zip(reference.view(-1), candidate.view(-1))}  # noqa: B905
    assert all(where[float(x)] == float(y) for x, y in zip(arrays["x"], arrays["y"]))  # noqa: B905
    again = reduce_pair(reference, candidate)[1]
    np.testing.assert_array_equal(arrays["x"], again["x"])


def test_golden_bytes_of_an_answer():
    packed = wire.pack({"number": 7}, {"heat": np.array([[1.0, -2.0]])})
    text = b'{"number": 7, "arrays": {"heat": [0, 1, 2]}}'
    assert packed == (
        len(text).to_bytes(4, "little") + text + b"\x00\x00\x80\x3f" + b"\x00\x00\x00\xc0"
    )
    header, arrays = wire.unpack(packed)
    assert header == {"number": 7}
    assert arrays["heat"].tolist() == [[1.0, -2.0]]


@pytest.mark.parametrize("text", ["", "a", "ab", "abc", "é"])
def test_floats_begin_on_a_multiple_of_four(text):
    packed = wire.pack({"t": text}, {"x": np.ones(2)})
    assert int.from_bytes(packed[:4], "little") % 4 == 0
    assert wire.unpack(packed)[1]["x"].tolist() == [1.0, 1.0]


def test_an_answer_is_never_over_the_limit():
    packed = wire.pack({"number": 3, "row": 1}, {"x": np.zeros(300_000)})
    assert len(packed) < 1000
    header, _ = wire.unpack(packed)
    assert (header["number"], header["row"], header["error"]) == (3, 1, True)


class Broken:
    """A comparison whose files went away."""

    rows = (LayerRow("conv", note="n" * 10_000),)

    def tensors(self, i):
        raise OSError("gone\n" + "x" * 10_000)


def test_a_failure_becomes_a_short_sentence():
    header, arrays = wire.unpack(wire.answer(Broken(), 0, 5))
    assert header["error"]
    assert header["number"] == 5
    assert header["message"].startswith("This layer could not be read. OSError: gone")
    assert len(header["message"]) < 500
    assert len(header["facts"]["note"]) < 500
    assert arrays == {}


@pytest.mark.parametrize("row", [-1, 1, 10**9])
def test_a_row_that_is_not_there(row):
    header, _ = wire.unpack(wire.answer(Broken(), row, 1))
    assert header["message"] == f"There is no row {row}."


def test_answer_of_a_large_layer_is_small():
    class Diff:
        rows = (LayerRow("big", verdict="differs", R=math.inf),)

        def tensors(self, i):
            return pair((1, 512, 40, 40))

    packed = wire.answer(Diff(), 0, 1)
    assert len(packed) < 200_000
    assert wire.unpack(packed)[0]["facts"]["R"] == "inf"
