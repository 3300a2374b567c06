"""What a rehearsal must not say or do: false words, other numbers, a model or a process changed."""

import collections
import csv
import os
import random
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import migrate_kit as mk


def values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


X = values(4, 8)


class Net(nn.Module):
    """Whatever ``f(self, *inputs)`` does, with one layer and one buffer."""

    def __init__(self, f, layer=None, buffer=None):
        super().__init__()
        torch.manual_seed(5)
        self.f, self.layer = f, layer or nn.Linear(8, 8)
        self.register_buffer("kept", torch.ones(8) if buffer is None else buffer)

    def forward(self, *inputs, **options):
        return self.f(self, *inputs, **options)


def rehearsed(f, *inputs, **options):
    options = {"target": "ascend310p"} | options
    return mk.rehearse(Net(f), *(inputs or (X,)), **options)


def refused(f, *inputs, **options):
    with pytest.raises(mk.MigrateError) as caught:
        rehearsed(f, *inputs, **options)
    return caught.value


def said(rehearsal):
    return " / ".join(f"{f.level} {f.what} {f.where}" for f in rehearsal.findings)


def as_it_should(rehearsal):
    """Whether the output differs by what half-precision operands make."""
    return 1e-5 < rehearsal.expected.rel_l2 < 2e-3


# --- autocast and inference mode ------------------------------------------------------------------


def test_a_training_inside_autocast_keeps_its_gradients():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = mk.rehearse(model, X, backward=True, numbers=False)
        model(X).float().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    casts = [r for r in seen.rows if r.op == "aten._to_copy.default" and not r.backward]
    assert sum(r.count for r in casts) >= 3  # the input, the weight and the bias


def test_casts_that_autocast_has_kept_are_recorded_all_the_same():
    model = nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = mk.rehearse(model, X, numbers=False).coverage
        model(X)
        assert mk.rehearse(model, X, numbers=False).coverage == first


@torch.inference_mode()
def _inferring(net, x):
    return net.layer(x)


@pytest.mark.parametrize("f", [_inferring, lambda net, x: net.layer(x)])
@pytest.mark.parametrize("outside", [False, True])
def test_in_inference_mode_the_difference_is_the_same(f, outside):
    plain = rehearsed(lambda net, x: net.layer(x))
    with torch.inference_mode(outside):
        inside = rehearsed(f)
    assert inside.expected.rel_l2 == plain.expected.rel_l2 > 0
    assert inside.rounded == plain.rounded


def test_a_backward_is_rehearsed_inside_inference_mode():
    model = Net(lambda net, x: net.layer(x))
    with torch.inference_mode():
        found = mk.rehearse(model, X, target="ascend310p", backward=True)
    assert found.rounded["mm"] == 1
    assert as_it_should(found)


def test_a_model_that_was_built_in_inference_mode():
    with torch.inference_mode():
        model = Net(lambda net, x: net.layer(x) + net.kept)
    assert as_it_should(mk.rehearse(model, X, target="ascend310p"))


# --- models that are not repeatable ---------------------------------------------------------------


def _counting():
    calls = iter(range(1, 100))
    return lambda net, x: net.layer(x) * next(calls)


def _drawing():
    own = torch.Generator().manual_seed(1)
    return lambda net, x: net.layer(x + torch.randn(x.shape, generator=own)).argmax(1)


def _remembering():
    past = [torch.zeros(4, 8)]
    return lambda net, x: net.layer(past.append(x) or sum(past))


@pytest.mark.parametrize("make", [_counting, _drawing, _remembering])
def test_a_model_that_is_not_repeatable_gets_no_numbers(make):
    found = rehearsed(make(), target="ascend910b")
    assert found.diff is None
    assert "two plain runs of the model differ" in said(found)
    assert "this arithmetic alone" not in said(found)


def test_pythons_and_numpys_generators_are_seeded_and_put_back():
    def noisy(net, x):
        noise = torch.from_numpy(np.random.randn(*x.shape)).float()  # noqa: NPY002
        return net.layer(x) + noise * random.random()  # noqa: S311

    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    states = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert as_it_should(rehearsed(noisy))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states  # noqa: NPY002


def test_a_reference_of_another_state_is_not_compared_with():
    model = Net(lambda net, x: net.layer(x))
    reference = mk.capture(model, X)
    model.layer.weight.data.mul_(1.01)
    found = mk.rehearse(model, X, target="ascend310p", reference=reference)
    assert found.diff is None
    assert "does not give what reference= holds" in said(found)


class Chooses(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3, bias=False)

    def forward(self, x):
        return self.b(self.a(x) * self.scale).argmax(1)


def test_what_was_kept_is_not_used_after_an_edit_that_the_output_does_not_show(
    tmp_path, monkeypatch
):
    model = Chooses()
    mk.rehearse(model, X, target="ascend910b", store=tmp_path / "kept")
    monkeypatch.setattr(Chooses, "scale", 5.0)
    found = mk.rehearse(model, X, target="ascend910b", store=tmp_path / "kept")
    assert [r.verdict for r in found.diff.rows] == ["same"] * 4
    fresh = mk.rehearse(model, X, target="ascend910b").diff.noise.measured
    assert found.diff.noise.measured == fresh


@pytest.mark.parametrize("name", ["rehearsal.json", "noise.json"])
def test_a_pipe_among_what_was_kept_is_not_waited_for(tmp_path, name):
    options = {"target": "ascend310p", "store": tmp_path / "kept"}
    model = Net(lambda net, x: net.layer(x))
    mk.rehearse(model, X, **options)
    (tmp_path / "kept" / name).unlink()
    os.mkfifo(tmp_path / "kept" / name)
    assert as_it_should(mk.rehearse(model, X, **options))


# --- what is not seen -----------------------------------------------------------------------------


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x * 2

    @staticmethod
    def backward(_, grad):
        return (grad.double() @ torch.eye(8, dtype=torch.float64)).float()


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_backward_inside_a_checkpoint_is_recorded(reentrant):
    def checkpointed(net, x):
        return checkpoint(lambda y: Doubles.apply(net.layer(y)), x, use_reentrant=reentrant)

    x = X.clone().requires_grad_()
    found = rehearsed(checkpointed, x, backward=True, numbers=False)
    refusals = {r.op for r in found.rows if r.status == "refused" and r.backward}
    assert "aten.mm.default" in refusals
    gradients = [r for r in found.rows if r.op == "aten.mm.default" and r.dtypes[:7] == "float32"]
    assert {r.module for r in gradients} == {"layer"}
    with pytest.raises(mk.MigrateError, match="no kernel for"):
        rehearsed(checkpointed, x, backward=True, numbers=False, raise_on_unsupported=True)


def test_a_stand_in_loss_is_still_left_out():
    found = rehearsed(lambda net, x: net.layer(x), backward=True, numbers=False)
    assert not {"aten.pow.Tensor_Scalar", "aten.div.Scalar"} & {r.op for r in found.rows}


def _in_a_thread(work):
    done = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    thread.join()
    return done[0]


def test_layers_in_another_thread_are_said():
    found = rehearsed(lambda net, x: _in_a_thread(lambda: net.layer(x)))
    assert not found.ok
    assert found.diff is None
    assert "no operator was seen" in repr(found)
    assert "error 1 call of layers ran in another thread" in said(found)
    assert "supported" not in repr(found)
    assert "is the same" not in repr(found)


def test_layers_in_a_thread_that_was_there_before_are_said():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # now it has its thread
        found = rehearsed(lambda net, x: net.layer(pool.submit(net.layer, x).result()))
    assert not found.ok
    assert "error 1 call of layers ran in another thread" in said(found)


def test_a_thread_without_layers_is_said():
    found = rehearsed(lambda net, x: net.layer(x) + _in_a_thread(x.double).float())
    assert "1 thread began while the model ran" in said(found)
    assert threading.getprofile() is None
    assert "thread" not in said(rehearsed(lambda net, x: net.layer(x)))


def test_a_product_that_could_not_be_rounded_is_said_beside_the_output():
    found = rehearsed(lambda _, x: torch.sparse.mm(torch.eye(4).to_sparse(), x))
    assert found.hidden == {"_sparse_addmm": 1}
    assert "output is the same, without what 1 call may round" in repr(found)


def test_what_runs_functions_is_recorded_as_one_operator():
    def choosing(net, x):
        return torch.cond(x.sum() > 0, net.layer, lambda y: y.sin(), (x,))

    found = rehearsed(choosing)
    assert "higher_order.cond" in [r.op for r in found.rows]
    assert found.hidden == {"higher_order.cond": 1}


def test_layers_inside_torch_func_are_compared():
    def mapped(net, x):
        return torch.func.vmap(net.layer)(x) + torch.func.grad(lambda y: net.layer(y).sum())(x)

    for tensors in (False, True):
        found = rehearsed(mapped, tensors=tensors)
        assert as_it_should(found)
        rows = {r.layer: r for r in found.diff.rows}
        assert rows["layer"].verdict == rows["layer#1"].verdict == "differs"


# --- inputs as they come --------------------------------------------------------------------------


class Attributed(dict):
    __getattr__ = dict.__getitem__


class Listed(list):
    def first(self):
        return self[0]


class Boxed:
    def __init__(self, x):
        self.x, self.inner = x, [x]


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@pytest.mark.parametrize(
    ("f", "value"),
    [
        (lambda net, b: net.layer(b.x), Attributed(x=X)),
        (lambda net, b: b.move_to_end("x") or net.layer(b["x"]), collections.OrderedDict(x=X, y=X)),
        (lambda net, b: net.layer(b["x"]) + len(b["z"]), collections.defaultdict(list, x=X)),
        (lambda net, b: net.layer(b.first()), Listed([X])),
        (lambda net, b: net.layer(b.values), torch.max(values(4, 8, 3), 2)),
        (lambda net, b: net.layer(X.to(net.layer.weight)) * b.numel(), torch.Size([2, 2])),
        (lambda net, b: net.layer(b.x + b.y), Pair(X, X)),
        (lambda net, b: net.layer(b.x), Boxed(X)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_inputs_keep_their_classes_and_their_format(f, value):
    found = rehearsed(f, value)
    assert as_it_should(found)
    assert "float64" not in said(found)  # the yardstick was measured


def test_inputs_are_copied_however_they_are_held_and_the_same_one_once():
    box, pair = Boxed(torch.ones(4, 8)), [torch.ones(4, 8)] * 2

    def changing(net, box, pair):
        box.x.mul_(2)
        box.inner.append(box.inner[0] + 1)
        pair[0].add_(1)
        return net.layer(box.inner[1] + pair[1])  # 3 + 2 everywhere

    expected = mk.capture(Net(lambda net, x: net.layer(x)), torch.full((4, 8), 5.0))
    found = rehearsed(changing, box, pair)
    assert as_it_should(found)
    stats = found.diff.reference.find("forward", "layer").stats
    assert stats == expected.find("forward", "layer").stats
    assert bool((box.x == 1).all())
    assert len(box.inner) == 1
    assert bool((pair[0] == 1).all())


def test_inputs_that_hold_themselves_or_are_nested_too_deep():
    held = [X]
    held.append(held)
    deep = [X]
    for _ in range(3000):
        deep = [deep]
    for value in (held, deep):
        assert "nested more than 16 deep" in refused(lambda net, b: net.layer(b[0]), value).what


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"loss": "abc"}, "loss is a str 'abc'"),
        ({"seed": None}, "seed is a NoneType"),
        ({"seed": 2**70}, "seed is a int"),
        ({"seed": 1.5}, "seed is a float"),
        ({"kwargs": 5}, "kwargs is a int"),
        ({"kwargs": [1]}, "kwargs is a list"),
        ({"kwargs": {1: 2}}, "a key of kwargs is a int"),
        ({"store": 5}, "store is a int"),
        ({"store": "a\0b"}, "store is a str"),
        ({"target": "x" * 10_000}, "cannot be rehearsed"),
    ],
)
def test_what_cannot_be_asked(options, what):
    error = refused(lambda net, x: net.layer(x), **options)
    assert what in error.what
    assert len(str(error)) < 500


# --- failures that are not the model's ------------------------------------------------------------


def test_a_model_that_runs_where_nobody_looks_is_not_called_broken():
    class Shy(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
                raise RuntimeError("somebody is looking")
            return x

    error = refused(lambda net, x: Shy.apply(net.layer(x)))
    assert "the model runs, but not while its operators are recorded" in error.what
    assert "somebody is looking" in error.what


def test_a_model_that_needs_autograd_is_recorded_under_it():
    def needs(net, x):
        if not torch.is_grad_enabled():
            raise ValueError("no gradients, no output")
        return net.layer(x)

    found = rehearsed(needs, numbers=False)
    assert "needs autograd (ValueError: no gradients, no output)" in said(found)
    assert "aten.addmm.default" in [r.op for r in found.rows]


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_tensors_are_refused_with_the_truth(layout):
    nested = torch.nested.nested_tensor([values(2, 8), values(3, 8)], layout=layout)
    assert "no table says what an NPU does" in refused(lambda net, x: net.layer(x), nested).what


def test_a_model_without_values_that_asks_for_some():
    def asking(net, x):
        return net.layer(x) if x.sum().item() > 0 else x

    with pytest.raises(mk.MigrateError, match="does not run without values"):
        mk.rehearse(Net(asking).to("meta"), X)


class WordlessError(Exception):
    def __str__(self):
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "words"), [(WordlessError(), "WordlessError"), (SystemExit("bye"), "SystemExit: bye")]
)
def test_what_a_forward_raises_is_said(error, words):
    def raising(*_):
        raise error

    assert words in refused(raising).what
    with pytest.raises(mk.MigrateError, match=r"Wordless|SystemExit"):
        mk.capture(Net(raising), X)


def test_control_characters_of_an_error_stay_out_of_the_terminal():
    def raising(*_):
        raise RuntimeError("red \x1b[31m")

    assert "\x1b" not in str(refused(raising))


class Unprintable(Net):
    def __repr__(self):
        raise RuntimeError("no words")


def test_a_model_that_cannot_be_printed_is_kept(tmp_path):
    model = Unprintable(lambda net, x: net.layer(x))
    assert as_it_should(mk.rehearse(model, X, target="ascend310p", store=tmp_path / "kept"))


def test_a_lazy_layer_has_to_be_called_first():
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    for run in (mk.rehearse, mk.capture):
        with pytest.raises(mk.MigrateError, match="lazy layer") as caught:
            run(model, X)
        assert "call it once first" in caught.value.fix


# --- one rehearsal at a time ----------------------------------------------------------------------


def test_a_rehearsal_inside_a_rehearsal_is_refused():
    inner = nn.Linear(8, 8)
    assert "inside a rehearsal" in refused(lambda _, x: mk.rehearse(inner, x) and x).what
    assert as_it_should(rehearsed(lambda net, x: net.layer(x)))  # and nothing is left of it


def test_a_rehearsal_that_waits_for_one_in_another_thread_does_not_wait_for_ever():
    errors = []

    def inner(x):
        try:
            mk.rehearse(nn.Linear(8, 8), x, numbers=False)
        except mk.MigrateError as error:
            errors.append(error.what)

    def waiting(net, x):
        thread = threading.Thread(target=inner, args=(x,), daemon=True)
        thread.start()
        thread.join(30)
        return net.layer(x)

    began = time.monotonic()
    rehearsed(waiting, numbers=False)
    assert time.monotonic() - began < 20
    assert errors == ["the rehearsal that runs seems to wait for this one"]


def test_rehearsals_in_several_threads_take_turns():
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(rehearsed(lambda net, x: net.layer(x))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert all(map(as_it_should, found))


# --- the model is left as it was found ------------------------------------------------------------


def _new_parts(net, x):
    net.extra = nn.Parameter(torch.ones(1))
    net.register_buffer("late", torch.ones(1))
    net.cache = x
    net.layer.register_forward_hook(lambda *_: None)
    return net.layer(x)


def _flags(net, x):
    net.train(not net.training)
    net.layer.weight.requires_grad_(False)
    return net.layer(x)


def _scaled_past_torch(net, x):
    net.layer.weight.data.mul_(1.5)
    return net.layer(x)


def _added(net, x):
    with torch.no_grad():
        net.layer.weight[0].add_(1)
    return net.layer(x)


def _bound_anew(net, x):
    net.layer.weight.data = torch.renorm(net.layer.weight.data, 2, 0, 0.1)
    return net.layer(x)


def _grown(net, x):
    net.kept.data = torch.cat([net.kept, torch.ones(1)])
    return net.layer(x) + net.kept.sum()


def _resized(net, x):
    net.kept.resize_(20).fill_(1)
    return net.layer(x) + net.kept.sum()


def _cached(net, x):
    net.past = [*getattr(net, "past", []), x]
    return net.layer(torch.cat(net.past))


CHANGES = (
    *(_new_parts, _flags, _scaled_past_torch, _added, _bound_anew, _grown, _resized, _cached),
)


def state(model):
    tensors = {n: (id(t), t.shape, t.tolist()) for n, t in model.state_dict(keep_vars=True).items()}
    modules = [
        (m.training, sorted(vars(m)), len(m._forward_hooks), [*m._parameters], [*m._buffers])
        for m in model.modules()
    ]
    trained = [(p.requires_grad, p.grad) for p in model.parameters()]
    return tensors, modules, trained


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("backward", [False, True])
def test_a_forward_that_changes_the_model_leaves_no_trace(change, backward):
    model = Net(change)
    before = state(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mk.rehearse(model, X, target="ascend310p", backward=backward)
    assert state(model) == before
    assert as_it_should(found)  # and no run saw what another had done
    assert "put back" not in said(found)


@pytest.mark.parametrize("part", [slice(0, 128), slice(0, 64), slice(64, 128), slice(70, 71)])
def test_parameters_that_share_their_memory_are_put_back(part):
    flat = values(128)

    class Shares(nn.Module):
        def __init__(self):
            super().__init__()
            self.b = nn.Parameter(flat[64:].view(8, 8))
            self.a = nn.Parameter(flat[:64].view(8, 8))

        def forward(self, x):
            flat[part].mul_(3)
            return x @ self.a @ self.b

    before = flat.clone()
    found = mk.rehearse(Shares(), X, target="ascend310p")
    assert torch.equal(flat, before)
    assert as_it_should(found)


def test_what_cannot_be_put_back_is_said():
    def past_torch(net, x):
        weight = net.layer.weight.detach().numpy()
        weight *= 1.5
        return net.layer(x)

    found = rehearsed(past_torch)
    (finding,) = [f for f in found.findings if "put back" in f.what]
    assert (finding.level, finding.where) == ("warning", "layer.weight")


@pytest.mark.parametrize(
    "buffer", [torch.ones(8, 8).tril()[None].expand(4, -1, -1), torch.ones(()).expand(4, 8)]
)
def test_an_expanded_buffer_is_no_trouble(buffer):
    model = Net(lambda net, x: net.layer(x) + net.kept.mean(), buffer=buffer)
    assert as_it_should(mk.rehearse(model, X, target="ascend310p"))
    assert model.kept is buffer


# --- what is written ------------------------------------------------------------------------------


def test_a_spreadsheet_takes_no_text_for_a_formula(tmp_path):
    model = nn.Sequential()
    model.add_module("=cmd()\x1b[31m", nn.Linear(8, 8))
    model.add_module("-1", nn.ReLU())
    path = mk.rehearse(model, X, numbers=False).to_csv(tmp_path / "operators.csv")
    text = path.read_text(encoding="utf-8")
    assert "\x1b" not in text
    modules = {row["module"] for row in csv.DictReader(text.splitlines())}
    assert modules == {"'=cmd()\N{REPLACEMENT CHARACTER}[31m", "'-1"}


def test_a_normalisation_that_only_inherits_is_not_called_another_arithmetic():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)),
    ).eval()
    for norm in (model[1], model[4]):
        norm.running_var.uniform_(0.5, 2)
        norm.running_mean.normal_()
        nn.init.uniform_(norm.weight, 0.5, 2)
        nn.init.normal_(norm.bias)
    rows = mk.rehearse(model, torch.randn(2, 3, 16, 16), tensors=True).diff.rows
    made = [r.layer for r in rows if r.origin == "made here"]
    assert made == [r.layer for r in rows if r.arithmetic] == ["0", "3"]
