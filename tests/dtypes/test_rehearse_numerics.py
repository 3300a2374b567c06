"""A chip's arithmetic against NumPy in float64, which shares no code with it."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.dtypes.chips import find_chip
from migrate_kit.dtypes.numerics import ChipMode, RehearsedRunner, round_operand
from migrate_kit.layers.formats import round_mantissa

A2, FIRST = find_chip("ascend910b"), find_chip("ascend910a")


def hf32(x, stored=11):
    """Round to 1 + ``stored`` significant bits, ties to even, by what the format is."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    return np.ldexp(np.rint(np.ldexp(mantissa, stored + 1)), exponent - stored - 1)


def half(x):
    return np.asarray(x, np.float32).astype(np.float16).astype(np.float64)


def convolve(x, w, b):
    """A 3x3 convolution without padding, as the sum that it is."""
    n, _, height, width = x.shape
    out = np.zeros((n, w.shape[0], height - 2, width - 2))
    for i in range(height - 2):
        for j in range(width - 2):
            patch = x[:, :, i : i + 3, j : j + 3].reshape(n, -1)
            out[:, :, i, j] = patch @ w.reshape(w.shape[0], -1).T + b
    return out


def far(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


# --- operands -------------------------------------------------------------------------------------

AWKWARD = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 1 + 2**-12, 1 + 3 * 2**-12, 1e-40, -1e-45, 3.4028235e38, torch.pi]
)


@pytest.mark.parametrize("bits", [7, 10, 11])
def test_hf32_rounds_as_numpy_does_by_the_formats_definition(bits):
    torch.manual_seed(0)
    x = torch.cat([torch.randn(70_000) * 10.0 ** torch.randint(-30, 30, (70_000,)), AWKWARD])
    x = x[x.abs() < 3e38]
    normal = x.abs() >= 2.0**-126  # below, a float32 has fewer bits than frexp gives it
    mine = round_operand(x, "HF32", hf32_bits=bits)
    assert np.array_equal(mine[normal].numpy(), hf32(x[normal], bits))
    assert torch.equal(mine, round_mantissa(x, bits))


def test_the_signs_of_zero_and_what_is_not_finite_stay():
    every_nan = torch.tensor([0x7FFFFFFF, -1, 0x7FC00000, 0x7F800001]).int().view(torch.float32)
    x = torch.cat([every_nan, torch.tensor([torch.inf, -torch.inf, -0.0, 1.0])])
    mine = round_operand(x, "HF32")
    assert mine[:4].isnan().all()
    assert mine[4:].tolist() == [torch.inf, -torch.inf, 0.0, 1.0]
    assert torch.signbit(mine[6])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(1, 3),
        lambda x: x[:, ::2],
        lambda x: x[:, :, 1:, :3],
        lambda x: x.expand(3, *x.shape),
        lambda x: x[:0],
        lambda x: x.as_strided((1, 6, 5), (999, 5, 1)),
        lambda x: x[0, 0, 0, 0],
    ],
)
@pytest.mark.parametrize("form", ["HF32", "fp16", "bf16", "fp32"])
def test_any_layout_is_rounded_and_nothing_else_is_touched(view, form):
    x = torch.randn(2, 4, 6, 5)
    before = x.clone()
    mine = round_operand(view(x), form)
    expected = {
        "HF32": lambda t: round_mantissa(t, 11),
        "fp16": lambda t: t.half().float(),
        "bf16": lambda t: t.bfloat16().float(),
        "fp32": lambda t: t,
    }[form](view(x))
    assert torch.equal(mine, expected)
    assert torch.equal(x, before)


def test_float16_saturates_where_the_chip_does():
    x = torch.tensor([1e6, -1e6, torch.inf, -torch.inf, torch.nan, 65519.9, 1.0])
    kept = [65504.0, -65504.0, 65504.0, -65504.0, 0.0, 65504.0, 1.0]
    assert round_operand(x, "fp16", saturate=True).tolist() == kept
    plain = round_operand(x, "fp16")
    assert plain[:4].isinf().all()
    assert plain[4].isnan()


def test_an_unknown_format_is_refused():
    with pytest.raises(mk.MigrateError, match="no format 'fp4'"):
        round_operand(torch.ones(1), "fp4")


# --- convolution and matrix product ---------------------------------------------------------------


def values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(
    ("chip", "rounded"),
    [(A2, hf32), (find_chip("ascend950"), lambda x: hf32(x, 10)), (FIRST, half)],
    ids=lambda v: getattr(v, "target", ""),
)
def test_a_convolution_is_that_of_rounded_operands(chip, rounded):
    layer, x = nn.Conv2d(3, 5, 3), values(2, 3, 7, 6)
    with torch.no_grad(), ChipMode(chip):
        mine = layer(x).numpy()
    w, b = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    expected = convolve(rounded(x), rounded(w), b)
    assert far(mine, expected) < 1e-6  # the sums are float32's
    assert far(mine, convolve(x.double().numpy(), w, b)) > 1e-5  # and plain float32 is not this


def test_a_matrix_product_is_that_of_halves_on_the_first_generation():
    a, b = values(6, 40), values(40, 5)
    for product in (torch.mm, torch.matmul, lambda p, q: torch.bmm(p[None], q[None])[0]):
        with ChipMode(FIRST):
            mine = product(a, b).numpy()
        assert far(mine, half(a) @ half(b)) < 1e-6
        assert far(mine, a.double().numpy() @ b.double().numpy()) > 1e-5


def test_a_linear_layer_keeps_its_bias_as_it_is():
    layer, x = nn.Linear(40, 5), values(6, 40)
    with torch.no_grad(), ChipMode(FIRST):
        mine = layer(x).numpy()
    w, b = layer.weight.detach().numpy(), layer.bias.detach().double().numpy()
    assert far(mine, half(x) @ half(w).T + b) < 1e-6


def test_matrix_products_stay_float32_on_ascend910b():
    a, b = values(6, 40), values(40, 5)
    with ChipMode(A2):
        assert torch.equal(a @ b, torch.mm(a, b))
        inside = a @ b
    assert torch.equal(inside, a @ b)


def test_halves_and_integers_are_computed_as_they_are():
    a, b = values(4, 8).half(), values(8, 4).half()
    with ChipMode(FIRST) as mode:
        inside = a @ b
        whole = torch.ones(2, 2, dtype=torch.int64) @ torch.ones(2, 2, dtype=torch.int64)
    assert torch.equal(inside, a @ b)
    assert whole.tolist() == [[2, 2], [2, 2]]
    assert not mode.rounded


def test_a_gradient_is_made_of_rounded_operands_too():
    layer, x, g = nn.Linear(40, 5), values(6, 40).requires_grad_(), values(6, 5)
    with ChipMode(FIRST):
        layer(x).backward(g)
    w = layer.weight.detach().numpy()
    assert far(layer.weight.grad.numpy(), half(g).T @ half(x.detach())) < 1e-6
    assert far(x.grad.numpy(), half(g) @ half(w)) < 1e-6


def test_a_convolutions_gradient_is_made_of_rounded_operands_too():
    layer, x, g = nn.Conv2d(3, 5, 3, bias=False), values(2, 3, 6, 6), values(2, 5, 4, 4)
    with ChipMode(A2):
        layer(x).backward(g)
    expected = np.zeros((5, 3, 3, 3))
    rx, rg = hf32(x), hf32(g)
    for i in range(3):
        for j in range(3):
            expected[:, :, i, j] = np.einsum("nohw,nchw->oc", rg, rx[:, :, i : i + 4, j : j + 4])
    assert far(layer.weight.grad.numpy(), expected) < 1e-6


def test_attention_and_recurrent_layers_do_not_hide_their_products():
    class Attention(nn.Module):
        def forward(self, q):
            return nn.functional.scaled_dot_product_attention(q, q, q)

    class Recurrent(nn.Module):
        """What torch.nn calls, without a module of torch.nn."""

        def forward(self, x):
            w, h, b = torch.ones(16, 8), torch.ones(16, 4), torch.zeros(16)
            state = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)
            weights = [w, h, b, b]
            return torch._VF.lstm(x, state, weights, True, 1, 0.0, False, False, False)[0]

    for model, x, kinds in (
        (Attention(), values(1, 2, 5, 8), {"bmm"}),
        (nn.LSTM(8, 4), values(3, 2, 8), {"addmm"}),
        (Recurrent(), values(3, 2, 8), {"addmm"}),
    ):
        runner = RehearsedRunner(model, FIRST)
        mk.capture(runner, x, tensors=False)
        assert kinds <= set(runner.mode.rounded)
        assert not runner.mode.hidden


def test_a_bilinear_layer_is_made_of_rounded_products():
    layer, a, b = nn.Bilinear(8, 8, 4, bias=False), values(6, 8), values(2, 6, 8)[1]
    with torch.no_grad(), ChipMode(FIRST) as mode:
        mine = layer(a, b).numpy()
    w = layer.weight.detach().double().numpy()
    exact = np.einsum("ni,oij,nj->no", a.double().numpy(), w, b.double().numpy())
    assert mode.rounded
    assert 1e-5 < far(mine, exact) < 2e-3


# TorchScript is deprecated, not gone.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_convolution_in_a_traced_function_is_rounded():
    x, w = values(1, 3, 6, 6), values(4, 3, 3, 3)
    traced = torch.jit.trace(torch.nn.functional.conv2d, (x, w))
    with ChipMode(A2) as mode:
        mine = traced(x, w).numpy()
    assert mode.rounded == {"_convolution": 1}
    assert far(mine, convolve(hf32(x), hf32(w), np.zeros(4))) < 1e-6


@pytest.mark.parametrize("chip", [A2, FIRST], ids=lambda chip: chip.target)
def test_in_inference_mode_operands_are_rounded_too(chip):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 8))
    x = values(2, 3, 6, 6)
    with torch.no_grad(), ChipMode(chip) as plain:
        expected = model(x)
    with torch.inference_mode(), ChipMode(chip) as mode:
        inside = model(x)
    assert torch.equal(inside, expected)
    assert mode.rounded == plain.rounded
    assert mode.rounded


@torch.library.custom_op("migrate_kit_tests::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (torch.ops.migrate_kit_tests.square, "migrate_kit_tests.square"),
        (lambda x: torch.sparse.mm(x.to_sparse(), x), "_sparse_addmm"),
        (lambda x: x.to_sparse() @ x, "mm"),
        (lambda x: torch.cdist(x, x), "_euclidean_dist"),
        (lambda x: torch.cdist(x[:4], x[:4]), "_cdist_forward"),
        (
            lambda x: torch.cond(x.sum() > 0, lambda y: y @ y, lambda y: y.clone(), (x,)),
            "higher_order.cond",
        ),
    ],
)
def test_products_that_cannot_be_seen_are_counted(call, name):
    with ChipMode(FIRST) as mode:
        call(torch.eye(40))
    assert mode.hidden == {name: 1}
    assert mode.rounded.keys() <= {name}  # the dense operand, where one is sparse


def test_a_transformed_function_is_rounded_as_it_is():
    layer, x = nn.Linear(8, 8), values(4, 8)
    calls = {
        "vmap": lambda: torch.func.vmap(layer)(x),
        "jacrev": lambda: torch.func.jacrev(layer)(x[0]),
        "jvp": lambda: torch.func.jvp(layer, (x,), (x,))[1],
    }
    w = half(layer.weight.detach())
    expected = {
        "vmap": half(x) @ w.T + layer.bias.detach().numpy(),
        "jacrev": w,
        "jvp": half(x) @ w.T,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's rules for jvp are scripted
        for name, call in calls.items():
            with torch.no_grad(), ChipMode(FIRST) as mode:
                mine = call()
            assert mode.rounded, name
            assert far(mine.detach().numpy(), expected[name]) < 1e-6, name


# --- overflow and float64 -------------------------------------------------------------------------


def test_overflow_saturates_and_is_counted_where_the_chip_has_no_inf():
    x = torch.tensor([1.0, 100.0, -1.0])
    with ChipMode(FIRST) as mode:
        grown = x.exp()
        divided = x / torch.zeros(3)
        unknown = (x - x) / (x - x)
    largest = torch.finfo(torch.float32).max
    assert grown.tolist() == [x[0].exp().item(), largest, x[2].exp().item()]
    assert divided.tolist() == [largest, largest, -largest]
    assert unknown.tolist() == [0, 0, 0]
    assert mode.saturated == {"exp": 1, "div": 6}
    with ChipMode(A2) as mode:
        assert x.exp()[1].isinf()
    assert not mode.saturated


def test_an_inf_that_was_asked_for_is_not_called_an_overflow():
    scores, mask = torch.zeros(2, 2), torch.tensor([[False, True], [False, False]])
    with ChipMode(FIRST) as mode:
        masked = scores.masked_fill(mask, -torch.inf)
        out = (masked + 1).softmax(-1)
    assert out.tolist() == [[1, 0], [0.5, 0.5]]
    assert not mode.saturated


def test_an_operand_that_no_half_can_hold_is_counted():
    with ChipMode(FIRST) as mode:
        out = torch.tensor([[1e6]]) @ torch.tensor([[1.0]])
    assert out.item() == 65504
    assert mode.saturated == {"mm": 1}


def test_float64_is_kept_in_float32_on_every_chip():
    x = torch.tensor([1.0], dtype=torch.float64)
    with ChipMode(A2) as mode:
        third = x / 3
        stepped = third.clone()
        stepped += 2.0**-40
    assert third.item() == np.float32(1 / 3)
    assert stepped.item() == third.item()
    assert third.dtype == torch.float64
    assert mode.lowered == 3


# --- the runner -----------------------------------------------------------------------------------


class Shared(nn.Module):
    """The same convolution twice, and a buffer that counts."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(self.conv(x)))


class Flips(nn.Module):
    """Writes to its weight between two calls, where no version is counted."""

    def __init__(self, write):
        super().__init__()
        self.linear, self.write = nn.Linear(8, 8, bias=False), write

    def forward(self, x):
        first = self.linear(x)
        self.write(self.linear.weight)
        return torch.cat([first, self.linear(x)])


@pytest.mark.parametrize(
    "write", [lambda w: w.data.neg_(), lambda w: w.detach().numpy().__imul__(-1)]
)
def test_a_weight_that_is_written_between_two_calls_is_rounded_again(write):
    model, x = Flips(write), values(4, 8)
    w = model.linear.weight.detach().clone().double().numpy()
    trace = mk.capture(RehearsedRunner(model, FIRST), x)
    expected = np.concatenate([half(x) @ half(w).T, half(x) @ half(-w).T])
    assert far(trace.tensor("output").numpy(), expected) < 1e-6


def test_the_model_is_left_as_it_was_found():
    model, x = Shared().train(), values(2, 4, 6, 6)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    mk.capture(RehearsedRunner(model, FIRST), x, backward=True)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(torch.ones(2, 2) @ torch.full((2, 2), 1e6), torch.full((2, 2), 2e6))


def test_the_trace_says_what_it_is():
    trace = mk.capture(RehearsedRunner(nn.Linear(2, 2), FIRST), torch.ones(1, 2))
    assert trace.meta["runner"] == "rehearsed"
    assert "ascend910a" in trace.meta["device"]


def test_the_recorders_own_sums_are_not_the_chips():
    """Squares of large values overflow in statistics; they must not saturate there."""
    model, x = nn.Identity(), torch.full((100,), 1e30)
    trace = mk.capture(RehearsedRunner(model, FIRST), x)
    assert trace.find("output", "output").stats.norm == pytest.approx(1e31)


def test_replay_names_the_arithmetic_of_each_layer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 8))
    x = values(2, 3, 8, 8)
    here = mk.capture(model, x)
    for chip, names in ((A2, ["HF32", "fp32"]), (FIRST, ["TF32/fp16", "TF32/fp16"])):
        diff = mk.compare(here, mk.capture(RehearsedRunner(model, chip), x))
        rows = {r.layer: r for r in diff.rows}
        assert [rows["0"].arithmetic, rows["3"].arithmetic] == names
        assert rows["0"].origin == "made here"
