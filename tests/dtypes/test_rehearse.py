"""What a rehearsal records: operators by the NPU's names, lines, counts; and what it survives."""

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.dtypes.op_rows import STATUSES
from migrate_kit.dtypes.parting import in_parts
from migrate_kit.dtypes.rehearsal import REHEARSED
from migrate_kit.dtypes.support import lookup

HERE = Path(__file__)
LINES = HERE.read_text(encoding="utf-8").splitlines()


def line_of(mark):
    """Return the number of the line of this file that ends in ``# mark``."""
    found = [n for n, text in enumerate(LINES, 1) if text.endswith(f"# {mark}")]
    assert len(found) == 1
    return found[0]


def look(model, *inputs, **options):
    return mk.rehearse(model, *inputs, numbers=False, **options)


def ops(rehearsal, *, backward=False):
    return [r.op.removeprefix("aten.") for r in rehearsal.rows if r.backward is backward]


def values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x)).relu() + x  # the block


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(4, 3)

    def forward(self, x, ids):
        x = self.blocks(x).mean((2, 3))  # the mean
        x = x + ids.cumsum(0)[:, None]  # the sum
        return self.head(x)  # the head


def net():
    return Net().eval(), values(2, 4, 6, 6), torch.tensor([1, 2])


# --- lines, modules, counts -----------------------------------------------------------------------


def test_every_call_is_recorded_with_its_line_module_dtypes_and_shapes():
    rows = {r.op: r for r in look(*net()).rows}
    conv = rows["aten.convolution.default"]
    assert (conv.count, conv.dtypes) == (2, "float32 float32 float32")
    assert conv.shapes == "2x4x6x6 4x4x3x3 4"
    assert conv.module == "blocks.0.conv"
    assert conv.where.endswith(f"test_rehearse.py:{line_of('the block')}")
    assert conv.code.startswith("return self.norm(self.conv(x)).relu() + x")
    cumsum = rows["aten.cumsum.default"]
    assert (cumsum.dtypes, cumsum.module) == ("int64", "(network)")
    assert cumsum.where.endswith(f":{line_of('the sum')}")
    assert rows["aten.addmm.default"].where.endswith(f":{line_of('the head')}")


def test_the_same_operator_on_two_lines_or_dtypes_is_two_rows():
    class Twice(nn.Module):
        def forward(self, x, i):
            x = x + 1
            i = i + 1
            return x + 2, i

    rows = look(Twice(), values(3), torch.tensor([1])).rows
    assert [(r.op, r.dtypes, r.count) for r in rows] == [
        ("aten.add.Tensor", "float32", 1),
        ("aten.add.Tensor", "int64", 1),
        ("aten.add.Tensor", "float32", 1),
    ]


def test_a_loop_is_counted():
    class Loop(nn.Module):
        def forward(self, x):
            for _ in range(5):
                x = x.sin()
            return x

    (row,) = look(Loop(), values(3)).rows
    assert (row.op, row.count) == ("aten.sin.default", 5)


def test_what_a_library_of_operators_does_is_laid_to_the_line_that_calls_it():
    from torchvision.ops import nms

    class Boxes(nn.Module):
        def forward(self, boxes, scores):
            return nms(boxes, scores, 0.5)  # the call

    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1]])
    row = look(Boxes(), boxes, torch.tensor([0.5, 0.9])).rows[-1]
    assert row.op == "torchvision.nms.default"
    assert row.where.endswith(f"test_rehearse.py:{line_of('the call')}")


def test_a_network_of_a_library_has_that_librarys_lines():
    from torchvision.models import resnet18

    (conv,) = [r for r in look(resnet18().eval(), values(1, 3, 32, 32)).rows if r.module == "conv1"]
    assert conv.where.startswith("torchvision/models/resnet.py:")
    assert conv.code == "x = self.conv1(x)"


def test_a_list_of_tensors_has_its_dtypes_once():
    class Joins(nn.Module):
        def forward(self, x):
            return torch.cat([x, x, x]), torch.stack([x] * 5)

    assert [r.dtypes for r in look(Joins(), values(3)).rows] == ["float32", "float32"]


def test_a_tensor_made_from_nothing_has_the_dtype_it_gets():
    class Makes(nn.Module):
        def forward(self, x):
            return x + torch.arange(3).sum() + torch.zeros(3, dtype=torch.float64)

    by_op = {r.op: r.dtypes for r in look(Makes(), values(3)).rows}
    assert by_op["aten.arange.default"] == "int64"
    assert by_op["aten.zeros.default"] == "float64"
    assert by_op["aten.add.Tensor"] == "float32 float64"  # the last of two


# --- the NPU's names ------------------------------------------------------------------------------


class Product(nn.Module):
    def forward(self, a, b):
        return a @ b


class Attention(nn.Module):
    def forward(self, q, **options):
        return nn.functional.scaled_dot_product_attention(q, q, q, **options)


@pytest.mark.parametrize(
    ("model", "shape", "names"),
    [
        (nn.Conv2d(3, 4, 3), (1, 3, 8, 8), ["convolution.default"]),
        (nn.Conv2d(3, 4, 3, padding="same"), (1, 3, 8, 8), ["convolution.default"]),
        (nn.ConvTranspose2d(3, 4, 3), (1, 3, 8, 8), ["convolution.default"]),
        (nn.BatchNorm1d(3).eval(), (2, 3), ["native_batch_norm.default"]),
        (nn.LayerNorm(3), (2, 3), ["native_layer_norm.default"]),
        (nn.GroupNorm(1, 4), (2, 4), ["native_group_norm.default"]),
        (nn.Linear(3, 2), (2, 3), ["t.default", "addmm.default"]),
        (nn.LSTM(3, 2), (4, 1, 3), ["zeros.default", "lstm.input"]),
        (nn.AdaptiveAvgPool2d(2), (1, 3, 8, 8), ["adaptive_avg_pool2d.default"]),
        (nn.MaxPool2d(2), (1, 3, 8, 8), ["max_pool2d_with_indices.default"]),
        # torch.export takes these apart, a device does not.
        (nn.Upsample(None, 2.0), (1, 1, 4, 4), ["upsample_nearest2d.default"]),
        (nn.Upsample(None, 2.0, "bilinear"), (1, 1, 4, 4), ["upsample_bilinear2d.default"]),
        (nn.Upsample(None, 2.0, "bicubic"), (1, 1, 4, 4), ["upsample_bicubic2d.default"]),
        (nn.Dropout(0.5).train(), (4,), ["native_dropout.default"]),
        (nn.Dropout(0.5).eval(), (4,), []),
        (nn.Dropout(0.0).train(), (4,), []),
        (Attention(), (1, 2, 5, 8), ["scaled_dot_product_attention.default"]),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_operators_have_the_names_that_the_npu_registers(model, shape, names):
    assert ops(look(model, values(*shape))) == names


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 2)), ((5, 3, 4), (4, 2)), ((2, 1, 3, 4), (5, 4, 2))]
)
def test_a_matrix_product_of_any_rank_is_one_operator(shapes):
    assert ops(look(Product(), *(values(*s) for s in shapes))) == ["matmul.default"]


def test_attention_is_taken_apart_where_the_npu_does():
    half, odd = values(1, 2, 5, 8).half(), values(1, 2, 5, 6)
    flat, mask = values(2, 5, 8), values(5, 5)
    whole = ["scaled_dot_product_attention.default"]
    assert ops(look(Attention(), half)) == whole
    assert ops(look(Attention(), half, kwargs={"attn_mask": mask > 0})) == whole
    apart = [
        look(Attention(), half, target="ascend910a"),
        look(Attention(), odd),
        look(Attention(), flat),
        look(Attention(), values(1, 2, 5, 8), kwargs={"attn_mask": mask, "scale": 0.5}),
    ]
    for rehearsal in apart:
        assert whole[0] not in ops(rehearsal)
        assert sum(r.count for r in rehearsal.rows if r.op == "aten.matmul.default") == 2
    causal = look(Attention(), half, target="ascend310p", kwargs={"is_causal": True})
    assert "aten.matmul.default" in {r.op for r in causal.rows}


@pytest.mark.parametrize(
    "options",
    [{}, {"attn_mask": values(5, 5)}, {"is_causal": True}, {"scale": 0.3}],
    ids=["plain", "mask", "causal", "scale"],
)
def test_attention_in_parts_is_the_same_attention(options):
    q, k, v = (values(2, 5, 8) * n for n in (1, 2, 3))
    whole = nn.functional.scaled_dot_product_attention(q, k, v, **options)
    assert torch.allclose(in_parts({"query": q, "key": k, "value": v} | options), whole, atol=1e-5)


# --- backward -------------------------------------------------------------------------------------


def test_a_backward_operator_has_the_line_and_module_of_its_forward():
    rehearsal = look(*net(), backward=True)
    rows = {r.op: r for r in rehearsal.rows if r.backward}
    conv = rows["aten.convolution_backward.default"]
    assert (conv.count, conv.module) == (2, "blocks.1.conv")  # the last layer comes first
    assert conv.where.endswith(f":{line_of('the block')}")
    assert rows["aten.native_batch_norm_backward.default"].count == 2
    assert rows["aten.mm.default"].where.endswith(f":{line_of('the head')}")
    assert ops(rehearsal) == ops(look(*net()))


def test_a_loss_of_the_users_is_rehearsed_and_one_that_stands_in_is_not():
    target = torch.tensor([0, 2])

    def entropy(output):
        return nn.functional.cross_entropy(output, target)  # the loss

    own = {r.op: r for r in look(*net(), backward=True, loss=entropy).rows}
    assert own["aten.nll_loss_forward.default"].where.endswith(f":{line_of('the loss')}")
    assert own["aten.nll_loss_forward.default"].module == "(loss)"
    assert own["aten.nll_loss_backward.default"].where.endswith(f":{line_of('the loss')}")
    stand_in = {r.op for r in look(*net(), backward=True).rows}
    assert not stand_in & {"aten.pow.Tensor_Scalar", "aten.mean.default", "aten.square.default"}


def test_a_backward_that_the_user_wrote_has_its_own_line():
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].cosh()  # the rule

    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return Exp.apply(self.linear(x))

    rows = {r.op: r for r in look(Uses(), values(2, 3), backward=True).rows}
    assert rows["aten.cosh.default"].backward
    assert rows["aten.cosh.default"].where.endswith(f":{line_of('the rule')}")
    assert not rows["aten.exp.default"].backward


@pytest.mark.parametrize("loss", [lambda y: y, lambda y: y.detach().sum(), lambda _: 1.0, None])
def test_a_loss_that_cannot_be_differentiated_is_refused(loss):
    model = nn.Linear(2, 2).requires_grad_(loss is not None)
    with pytest.raises(mk.MigrateError, match="not one number that depends"):
        look(model, values(3, 2), backward=True, loss=loss)


# --- the result -----------------------------------------------------------------------------------


def test_the_counts_the_frame_and_the_csv_agree(tmp_path):
    rehearsal = look(*net(), backward=True)
    frame = rehearsal.to_frame()
    assert list(rehearsal.coverage) == list(STATUSES)
    assert sum(rehearsal.coverage.values()) == frame["count"].sum()
    for row in rehearsal.rows:
        said = lookup(row.op, tuple(row.dtypes.split()), "ascend910b")
        assert (row.status, row.source) == (said.status, said.source)
    path = rehearsal.to_csv(tmp_path / "operators.csv")
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(r["op"], int(r["count"]), r["where"]) for r in lines] == [
        (r.op, r.count, r.where) for r in rehearsal.rows
    ]
    wanted = ["op", "dtypes", "shapes", "status", "count", "where", "module", "fix", "source"]
    assert list(frame.columns)[: len(wanted)] == wanted


def test_it_says_that_no_npu_was_used_and_keeps_itself_as_json(tmp_path):
    rehearsal = mk.rehearse(*net())
    assert REHEARSED in repr(rehearsal)
    assert REHEARSED in rehearsal._repr_html_()
    assert REHEARSED in rehearsal.show().data
    kept = json.loads(json.dumps(rehearsal.to_dict(), allow_nan=False))
    assert kept["rehearsed"] is True
    assert kept["coverage"] == rehearsal.coverage
    assert kept["target"] == "ascend910b"


def test_no_folder_of_anybodys_is_in_the_result(monkeypatch):
    monkeypatch.chdir("/")
    monkeypatch.setattr(
        "sys.path", [p for p in __import__("sys").path if p != str(HERE.parents[2])]
    )
    rehearsal = look(*net())
    assert {r.where.split(":")[0] for r in rehearsal.rows} == {"test_rehearse.py"}


def test_names_that_are_markup_are_shown_as_text():
    model = nn.Sequential()
    model.add_module("<img src=x onerror=alert(1)>", nn.Conv2d(3, 4, 3))
    html = mk.rehearse(model, values(1, 3, 5, 5))._repr_html_()
    assert "<img" not in html


def test_the_expected_difference_is_that_of_hf32_convolutions():
    rehearsal = mk.rehearse(*net())
    rows = {r.layer: r for r in rehearsal.diff.rows}
    assert rehearsal.rounded == {"convolution": 2}
    assert rehearsal.diff.first_divergence.layer == "blocks.0.conv"
    assert 1e-5 < rows["blocks.0.conv"].rel_l2 < 1e-3
    assert rows["blocks.0.conv"].R > 100
    assert rows["input"].R == rows["input[1]"].R == 0
    assert rehearsal.expected.layer == "output"
    text = " ".join(f.what for f in rehearsal.findings)
    assert "11 stored mantissa bits" in text
    assert "uncertain" in text
    assert "the output differs by" in text


def test_nothing_is_expected_where_nothing_is_rounded():
    rehearsal = mk.rehearse(nn.Linear(4, 4), values(2, 4))
    assert rehearsal.rounded == {}
    assert rehearsal.diff.ok
    assert "output is the same" in repr(rehearsal)
    assert "HF32" not in " ".join(f.what for f in rehearsal.findings)


def test_the_difference_of_a_backward_is_expected_too():
    rehearsal = mk.rehearse(*net(), target="ascend310p", backward=True)
    channels = {r.channel for r in rehearsal.diff.rows if r.verdict == "differs"}
    assert {"forward", "gradient", "parameter gradient", "loss"} <= channels
    assert rehearsal.rounded["convolution_backward"] == 2


def test_overflow_in_either_run_is_said():
    class Grows(nn.Module):
        def forward(self, x):
            return (x * 1000).exp()

    rehearsal = mk.rehearse(Grows(), torch.ones(3), target="ascend910a")
    assert any("saturate" in f.what and "exp" in f.what for f in rehearsal.findings)
    assert "NaN or Inf" in repr(rehearsal)


def test_float64_is_said_to_be_lowered():
    class Doubles(nn.Module):
        def forward(self, x):
            return (x.double() / 3).float()

    rehearsal = mk.rehearse(Doubles(), torch.ones(3))
    assert any("float64" in f.what and "2 results" in f.what for f in rehearsal.findings)


def test_elements_can_be_compared_and_layers_replayed():
    rehearsal = mk.rehearse(*net(), tensors=True)
    assert {r.layer: r for r in rehearsal.diff.rows}["blocks.0.conv"].arithmetic == "HF32"
    assert rehearsal.diff.tensors(0)[0] is not None


# --- what is kept between rehearsals --------------------------------------------------------------


class Tally(list):
    """A plain list of a module is put back after a run."""


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.runs = Tally()

    def forward(self, x):
        self.runs.append(self.linear.weight.dtype)
        return self.linear(x)


def test_the_float64_run_is_made_once(tmp_path):
    model, x = Counts(), values(2, 3)
    first = mk.rehearse(model, x, store=tmp_path / "kept")
    assert model.runs.count(torch.float64) == 1
    made = len(model.runs)
    second = mk.rehearse(model, x, store=tmp_path / "kept")
    assert len(model.runs) - made == 3  # the operators, a plain run, and the chip's arithmetic
    assert model.runs.count(torch.float64) == 1
    assert [r.R for r in first.diff.rows] == [r.R for r in second.diff.rows]


@pytest.mark.parametrize("change", ["weights", "input", "seed", "training", "damage", "foreign"])
def test_what_was_kept_of_another_run_is_not_used(tmp_path, change):
    model, x, options = Counts(), values(2, 3), {"store": tmp_path / "kept"}
    mk.rehearse(model, x, **options)
    if change == "weights":
        model.linear.weight.data[0, 0] += 2.0**-20
    elif change == "input":
        x = x + 2.0**-20
    elif change == "seed":
        options["seed"] = 5
    elif change == "training":
        model.eval()
    elif change == "damage":
        (tmp_path / "kept" / "noise.json").write_text("{", encoding="utf-8")
    else:
        (tmp_path / "kept" / "rehearsal.json").write_text("[1]", encoding="utf-8")
    mk.rehearse(model, x, **options)
    assert model.runs.count(torch.float64) == 2


def test_a_plain_run_that_was_made_before_is_taken():
    model, x = Counts(), values(2, 3)
    reference = mk.capture(model, x)
    noise = mk.noise_floor(reference)
    made = len(model.runs)
    rehearsal = mk.rehearse(model, x, target="ascend910a", reference=reference, noise=noise)
    assert len(model.runs) - made == 2
    assert rehearsal.diff.noise is noise
    assert mk.rehearse(model, x, reference=reference).diff.noise.measured.keys() >= {
        ("forward", "linear")
    }
    with pytest.raises(mk.MigrateError, match="reference is a Linear"):
        mk.rehearse(model, x, reference=nn.Linear(1, 1))
    with pytest.raises(mk.MigrateError, match="noise is a Trace"):
        mk.rehearse(model, x, noise=reference)


# --- models as they come --------------------------------------------------------------------------


def test_the_model_is_left_as_it_was_found():
    model, x, ids = net()
    model.train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    torch.manual_seed(11)
    state = torch.get_rng_state()
    mk.rehearse(model, x, ids, backward=True)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    model(x, ids).sum().backward()  # nothing that was cached is without a gradient
    assert model.head.weight.grad is not None


def test_a_forward_that_differentiates_is_rehearsed():
    class Forces(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                energy = self.linear(x).tanh().sum()
                return torch.autograd.grad(energy, x)[0]

    rehearsal = mk.rehearse(Forces(), values(4, 3))
    assert "tanh_backward.default" in ops(rehearsal)
    assert any("differentiates" in f.what for f in rehearsal.findings)


def test_every_run_draws_the_same_random_numbers():
    class Tosses(nn.Module):
        def forward(self, x):
            return x.sin() if torch.rand(()) > 0.5 else x.cos()

    state = torch.get_rng_state()
    seen = {}
    for seed in range(8):
        first, second = (mk.rehearse(Tosses(), values(2), seed=seed) for _ in range(2))
        assert ops(first) == ops(second)
        assert first.diff.ok
        seen[seed] = ops(first)[-1]
    assert set(seen.values()) == {"sin.default", "cos.default"}
    assert torch.equal(torch.get_rng_state(), state)


def test_control_flow_that_depends_on_data_is_followed_and_reads_are_said():
    class Chooses(nn.Module):
        def forward(self, x):
            return x[x > 0] if x.sum() > 0 else x.sin()  # the choice

    taken = ops(look(Chooses(), torch.ones(3)))
    other = look(Chooses(), -torch.ones(3))
    assert "index.Tensor" in taken
    assert "sin.default" not in taken
    assert "sin.default" in ops(other)
    (reads,) = [f for f in other.findings if "wait for the NPU: 1 .item()" in f.what]
    assert reads.where.endswith(f":{line_of('the choice')} .item()")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_half_precision_is_taken_as_it_is(dtype):
    rehearsal = mk.rehearse(nn.Linear(4, 4).to(dtype), values(2, 4).to(dtype), target="ascend910a")
    assert rehearsal.rounded == {}
    assert rehearsal.diff.ok
    name = str(dtype).removeprefix("torch.")
    assert {r.dtypes for r in rehearsal.rows} == {name, f"{name} {name} {name}"}


def test_a_quantized_module_is_named_and_the_rest_still_rehearsed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(
            nn.Sequential(nn.Linear(4, 4), nn.Tanh()), {nn.Linear}
        )
        rehearsal = mk.rehearse(model, values(2, 4))
    assert ops(rehearsal)[0] == "quantized.linear_dynamic.default"
    assert rehearsal.rows[0].status != "supported"
    assert "quantize for the target" in rehearsal.rows[0].fix
    assert "tanh.default" in ops(rehearsal)


def test_what_was_given_to_torch_compile_is_rehearsed_as_it_is_written():
    class Compiled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.rest = torch.compile(lambda x: x.sin() + 1)

        def forward(self, x):
            return self.rest(self.linear(x))

    x = values(2, 3)
    inside = look(Compiled(), x)
    assert ops(inside) == ["t.default", "addmm.default", "sin.default", "add.Tensor"]
    whole = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    assert ops(look(torch.compile(whole), x)) == ops(look(whole, x))
    whole.compile()
    assert ops(look(whole, x)) == ["t.default", "addmm.default", "tanh.default"]


def test_a_model_without_values_is_looked_up_all_the_same():
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    rehearsal = mk.rehearse(model, values(1, 3, 5, 5), backward=True)
    assert ops(rehearsal) == ["convolution.default", "relu.default"]
    assert rehearsal.diff is None
    assert any("meta" in f.what for f in rehearsal.findings)


def test_nested_inputs_and_outputs_are_taken():
    class Nested(nn.Module):
        def forward(self, pair, *, extra):
            return {"out": (pair[0] + pair[1]["b"], extra.sum())}

    rehearsal = mk.rehearse(
        Nested(), (values(2), {"b": values(2)}), kwargs={"extra": values(3)}, target="ascend310b"
    )
    assert ops(rehearsal) == ["add.Tensor", "sum.default"]
    assert rehearsal.diff.ok


# --- what cannot be rehearsed ---------------------------------------------------------------------


def refused(model, *inputs, **options):
    with pytest.raises(mk.MigrateError) as caught:
        mk.rehearse(model, *inputs, **options)
    return caught.value


def test_a_model_that_fails_on_the_cpu_names_the_module_and_the_operator():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(3, 2)))
    error = refused(model, values(2, 4))
    assert "mat1 and mat2 shapes" in error.what
    assert error.where == "layer 1.0, operator aten.addmm.default"


def test_a_model_that_raises_by_itself_names_the_module():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("no such head")

    error = refused(nn.Sequential(nn.Tanh(), Fails()), values(2))
    assert "KeyError" in error.what
    assert error.where.startswith("layer 1")


def test_a_failure_in_the_backward_is_named_too():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("not implemented here")

    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return Bad.apply(self.linear(x))

    assert "not implemented here" in refused(Uses(), values(1, 2), backward=True).what


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((np.ones((2, 4)),), "numpy.ndarray"),
        (([np.float64(1.0)],), "numpy.float64"),
        (([1.0, 2.0],), "must be Tensor, not list"),
        ((), "missing 1 required positional argument"),
        (("text",), "must be Tensor, not str"),
    ],
)
def test_inputs_that_are_no_tensors(inputs, said):
    assert said in refused(nn.Linear(4, 4), *inputs).what


def test_scripted_and_other_things_that_are_no_model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    assert "TorchScript" in refused(traced, torch.ones(1, 2)).what
    inside = refused(nn.Sequential(nn.Tanh(), traced), torch.ones(1, 2))
    assert "TorchScript" in inside.what
    assert inside.where == "layer 1"
    assert "OrderedDict" in refused(nn.Linear(2, 2).state_dict(), torch.ones(1, 2)).what


def test_an_unknown_target_lists_the_targets():
    assert "ascend310p" in refused(nn.Tanh(), torch.ones(1), target="ascend9000").fix


def test_a_device_inside_the_model_is_said():
    class Elsewhere(nn.Module):
        def forward(self, x):
            return x + torch.ones(1, device="meta")

    assert "cannot run on the CPU" in refused(Elsewhere(), torch.ones(1)).what


class Squared(nn.Module):
    def forward(self, x):
        return x.square()


def test_code_that_changed_makes_the_plain_run_anew(tmp_path, monkeypatch):
    model, x = Squared(), values(2, 3)
    mk.rehearse(model, x, store=tmp_path)
    # The same class, weights and inputs; only the code of the forward is another.
    monkeypatch.setattr(Squared, "forward", lambda _, x: x.abs())
    assert mk.rehearse(model, x, store=tmp_path).expected.rel_l2 == 0


class Projected(torch.nn.Module):
    def __init__(self, mask=None, causal=False):
        super().__init__()
        self.proj, self.mask, self.causal = torch.nn.Linear(16, 16), mask, causal

    def forward(self, x):
        q = self.proj(x)[:, None]
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, q, q, attn_mask=self.mask, is_causal=self.causal)


@pytest.mark.parametrize(
    ("mask", "causal"),
    [
        (None, False),
        (None, True),
        (torch.ones(6, 6).tril().bool(), False),
        (torch.zeros(6, 6), False),
        (torch.zeros(2, 1, 6, 6), False),
    ],
)
@pytest.mark.parametrize("target", ["ascend910b", "ascend310p"])
def test_attention_is_rehearsed_with_its_backward(mask, causal, target):
    # Under autograd another operator stands for it, with its arguments in other places.
    torch.manual_seed(0)
    net, x = Projected(mask, causal), torch.randn(2, 6, 16)
    found = mk.rehearse(net, x, target=target, backward=True, numbers=False)
    assert found.ok
    assert any(row.backward for row in found.rows)
    names = {row.op for row in found.rows if not row.backward}
    plain_mask = mask is None or mask.dtype == torch.bool
    whole = "aten.scaled_dot_product_attention.default" in names
    assert whole or not (plain_mask and mask is None and target == "ascend910b")
    if target == "ascend310p":
        assert not whole
        assert any("softmax" in name for name in names)
