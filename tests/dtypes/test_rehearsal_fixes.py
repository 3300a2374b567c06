"""What the advice of a rehearsal says: something to do, and that doing it helps."""

import re

import pytest
import torch
from torch.nn import functional

from migrate_kit.dtypes import kernels
from migrate_kit.dtypes.fixes import fix_for
from migrate_kit.dtypes.lowered import Lowered
from migrate_kit.dtypes.mapping import dtypes
from migrate_kit.dtypes.support import LOWERED, TARGETS, lookup
from migrate_kit.tables import read_table

ORDER = ("supported", "slow", "not listed", "fallback", "refused")
# They say a dtype, a call, or where else to compute.
DOES = re.compile(r"torch|\.cpu\(\)|CPU|float32|float16|run this line|\(x != 0\)|once")
DTYPES = [d for d in dtypes() if not d.startswith(("float8", "hifloat", "float4", "int4"))]


def operators():
    yield from (f"aten.{n}" for n in kernels.operators() if not n.startswith("npu."))
    yield from (f"aten.{n}" for n in kernels.fallbacks() if "." not in n)


def fix(op, given, target):
    found = lookup(op, given, target)
    return fix_for(found.status, op, given, target, found.dtypes_ok)


@pytest.mark.parametrize("target", TARGETS)
def test_every_advice_is_one_and_a_cast_that_it_names_is_better(target):
    checked = 0
    for op in operators():
        for dtype in DTYPES:
            found = lookup(op, (dtype,), target)
            said = fix(op, (dtype,), target)
            assert bool(said) == (found.status != "supported"), (op, dtype)
            assert not said or DOES.search(said), (op, dtype, said)
            cast = re.search(r"\.to\(torch\.(\w+)\) (?:at|before) this line", said)
            if cast and found.status in ("slow", "refused"):
                after = lookup(op, (cast[1],), target).status
                # torch itself widens the sum of integers: that advice is another.
                assert ORDER.index(after) < ORDER.index(found.status), (op, dtype, said)
                checked += 1
    assert checked > (1000 if target != "ascend310b" else 300)


def test_every_rule_of_an_operator_is_reached():
    said = {fix(op, (d,), t) for op in operators() for d in dtypes() for t in TARGETS}
    others = ("torchvision.", "quantized.", "aten._local_scalar_dense")
    for rule in read_table("rehearsal_fixes"):
        assert rule["op"].startswith(others) or rule["fix"] in said, rule["op"]


@pytest.mark.parametrize(
    ("op", "given", "target", "words"),
    [
        ("aten.nonzero.default", ("bool",), "ascend310p", "torch.where"),
        ("aten.nonzero.default", ("int64",), "ascend910b", "(x != 0).nonzero()"),
        ("aten.grid_sampler_2d.default", ("float32", "float32"), "ascend910b", "F.interpolate"),
        ("aten.linalg_qr.default", ("float32",), "ascend910b", "x.cpu()"),
        ("aten._fft_r2c.default", ("float32",), "ascend910b", "x @ cos and x @ -sin"),
        ("aten._fft_c2c.default", ("complex64",), "ascend310p", "x @ cos and x @ -sin"),
        ("aten.mul.Tensor", ("complex64", "complex64"), "ascend310p", "a*c - b*d"),
        ("aten.sort.default", ("float32",), "ascend910a", "torch.float16"),
        ("aten._unique2.default", ("int64",), "ascend910b", "while the data is loaded"),
    ],
)
def test_the_advice_is_for_this_operator(op, given, target, words):
    said = fix(op, given, target)
    assert words in said
    assert "cos and sin" not in said or "complex" in said


def test_a_transform_is_two_products_as_the_advice_says():
    n = 32
    x = torch.randn(4, n, generator=torch.Generator().manual_seed(0))
    turn = 2 * torch.pi * torch.outer(torch.arange(n), torch.arange(n // 2 + 1)) / n
    there = torch.complex(x @ turn.cos(), x @ -turn.sin())
    assert torch.allclose(there, torch.fft.rfft(x), atol=1e-4)


def test_positions_counts_and_products_are_what_the_advice_says():
    x = torch.tensor([0, 3, 0, 3, 1])
    assert torch.equal((x != 0).nonzero(), x.nonzero())
    counts = (x.int()[:, None] == torch.arange(4)).float().sum(0)
    assert torch.equal(counts.long(), torch.bincount(x, minlength=4))
    a, b, c, d = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    product = torch.complex(a, b) * torch.complex(c, d)
    assert torch.allclose(product, torch.complex(a * c - b * d, a * d + b * c), atol=1e-6)
    image = torch.randn(1, 1, 4, 4)
    theta = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    grid = functional.affine_grid(theta, [1, 1, 8, 8], align_corners=False)
    there = functional.grid_sample(image, grid, align_corners=False, padding_mode="border")
    plain = functional.interpolate(image, size=(8, 8), mode="bilinear", align_corners=False)
    assert torch.allclose(there, plain, atol=1e-5)


CAST = {"dtype": torch.float64}
BOTH = (torch.float32, torch.float64)


def lowered_to():
    lowered, x = Lowered(), torch.ones(2)
    names = lowered.names("aten._to_copy.default", (x,), CAST, BOTH)
    return lowered, x, names, lowered.made(names, x.double())


def names(lowered, *tensors, **kwargs):
    return lowered.names("aten.mm.default", tensors, kwargs, tuple(t.dtype for t in tensors))


def test_a_cast_by_dtype_alone_is_lowered_and_so_is_what_follows():
    lowered, _, made, y = lowered_to()
    assert made == (torch.float32, LOWERED)
    z = lowered.made(names(lowered, y, y), y + y)
    assert names(lowered, y.view(2, 1), z.detach()) == (LOWERED, LOWERED)


def test_a_cast_that_names_the_device_is_not():
    lowered, x = Lowered(), torch.ones(2)
    asked = CAST | {"device": x.device}
    assert lowered.names("aten._to_copy.default", (x,), asked, BOTH) == BOTH


def test_what_meets_real_float64_is_float64():
    lowered, _, _, y = lowered_to()
    real = torch.ones(2, dtype=torch.float64)
    mixed = names(lowered, y, real)
    assert mixed == (LOWERED, torch.float64)
    total = lowered.made(mixed, y + real)
    assert names(lowered, total) == (torch.float64,)
    assert names(lowered, real) == (torch.float64,)


def test_a_backward_casts_back_to_what_the_forward_had():
    lowered, x, _, _ = lowered_to()
    asked = CAST | {"device": x.device}
    call = ("aten._to_copy.default", (x,), asked, BOTH)
    assert lowered.names(*call, autograd=True) == (torch.float32, LOWERED)
    names(lowered, torch.ones(2, dtype=torch.float64))
    assert lowered.names(*call, autograd=True) == BOTH
