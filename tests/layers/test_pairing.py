"""Modules and the ONNX nodes that hold their results, in files of both exporters."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import migrate_kit as mk

if TYPE_CHECKING:
    from pathlib import Path

# The exporters say what they trace, deprecate and will change.
pytestmark = pytest.mark.filterwarnings("ignore")
both = pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])

kept = pytest.mark.parametrize(
    "options",
    [{}, {"tensors": False}, {"tensors": False, "sketches": False}],
    ids=["values", "sketches", "statistics"],
)


@pytest.fixture(autouse=True)
def _same_inputs() -> None:
    torch.manual_seed(0)


def export(
    model: nn.Module, args: tuple[Any, ...], path: Path, *, dynamo: bool, opset: int = 0
) -> Path:
    logging.disable(logging.WARNING)
    options = {"external_data": False, "verbose": False} if dynamo else {}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            torch.onnx.export(
                model,
                args,
                str(path),
                dynamo=dynamo,
                opset_version=opset or (18 if dynamo else 16),
                **options,
            )
    finally:
        logging.disable(logging.NOTSET)
    return path


def against_onnx(
    model: nn.Module,
    args: tuple[Any, ...],
    folder: Path,
    *,
    dynamo: bool,
    exported: nn.Module | None = None,
    opset: int = 0,
    **options: Any,
) -> mk.LayerDiff:
    """Compare a model with its export, or with the export of a changed copy."""
    path = export(exported or model, args, folder / "m.onnx", dynamo=dynamo, opset=opset)
    return mk.compare(mk.capture(model, *args, **options), mk.capture(path, *args, **options))


def alone(diff: mk.LayerDiff) -> set[str]:
    """Name the reference's tensors that have no counterpart, but for folded convolutions."""
    rows = [r for r in diff.rows if r.layer and not r.candidate]
    return {r.layer for r in rows if not r.note.startswith("computed together")}


def partner(diff: mk.LayerDiff, layer: str) -> str:
    return next(r.candidate for r in diff.rows if r.layer == layer)


def changed(model: nn.Module, parameter: str, factor: float) -> nn.Module:
    copied = copy.deepcopy(model)
    copied.get_parameter(parameter).data.mul_(factor)
    return copied


# --- several results ------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], *, states: bool = True, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.rnn, self.states = kind(8, 6, **options), states
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        y, state = self.rnn(x)
        return (self.head(y), state) if self.states else self.head(y)


class Classifier(nn.Module):
    """Only the last state of the LSTM is used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed, self.rnn = nn.Embedding(20, 8), nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embed(tokens))[1][0][-1])


ALL_OPTIONS = {"num_layers": 2, "bidirectional": True, "batch_first": True}


@pytest.mark.parametrize(
    ("kind", "options", "dynamo"),
    [
        *[(k, o, False) for k in (nn.LSTM, nn.GRU) for o in ({}, ALL_OPTIONS)],
        (nn.LSTM, {"batch_first": True}, False),
        (nn.RNN, {"bidirectional": True}, False),
        (nn.LSTM, {"batch_first": True}, True),
        (nn.LSTM, {"num_layers": 2}, True),
        (nn.GRU, {"bidirectional": True}, True),
    ],
)
def test_every_state_of_a_recurrent_layer_is_paired(
    kind: type[nn.Module], options: dict[str, Any], dynamo: bool, tmp_path: Path
) -> None:
    model, x = Recurrent(kind, **options).eval(), (torch.randn(5, 2, 8),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()


@both
@pytest.mark.parametrize(
    ("steps", "layers"), [(1, 1), (2, 2)], ids=["one step", "as many layers as steps"]
)
def test_sequence_and_states_of_one_shape_are_not_mixed_up(
    steps: int, layers: int, dynamo: bool, tmp_path: Path
) -> None:
    model = Recurrent(nn.LSTM, num_layers=layers).eval()
    diff = against_onnx(model, (torch.randn(steps, 2, 8),), tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()
    assert partner(diff, "rnn[1][1]") == partner(diff, "output[1][1]")


@both
def test_a_state_that_the_graph_does_not_hold_stays_alone(tmp_path: Path, dynamo: bool) -> None:
    model, x = Recurrent(nn.LSTM, states=False, num_layers=2).eval(), (torch.randn(5, 2, 8),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == {"rnn[1][0]", "rnn[1][1]"}
    assert partner(diff, "rnn[0]")


@both
def test_a_classifier_of_the_last_state(tmp_path: Path, dynamo: bool) -> None:
    tokens = (torch.randint(0, 20, (2, 5)),)
    diff = against_onnx(Classifier().eval(), tokens, tmp_path, dynamo=dynamo)
    assert diff.ok
    # The TorchScript exporter leaves the cell's state in the graph though nobody uses it.
    assert alone(diff) == {"rnn[0]"} | ({"rnn[1][1]"} if dynamo else set())


@both
@pytest.mark.parametrize("factor", [1.01, 0.0], ids=["slightly", "grossly"])
def test_a_wrong_recurrent_weight_is_made_in_its_layer(
    tmp_path: Path, dynamo: bool, factor: float
) -> None:
    model, x = Recurrent(nn.LSTM, num_layers=2).eval(), (torch.randn(5, 2, 8),)
    wrong = changed(model, "rnn.weight_hh_l1", factor)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, exported=wrong)
    assert diff.first_divergence is not None
    assert diff.first_divergence.layer == "rnn[0]"
    assert {r.layer for r in diff.made_here} == {"rnn[0]", "rnn[1][0]", "rnn[1][1]"}


class Steps(nn.Module):
    """A cell called step by step: the first call has no state and so fewer nodes."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.cell = kind(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, seen = None, []
        for t in range(3):
            state = self.cell(x[t], state)
            seen.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(seen)


@kept
def test_whatever_was_kept_every_layer_is_paired(tmp_path: Path, options: dict[str, bool]) -> None:
    for model, x in (
        (Steps(nn.LSTMCell), torch.randn(3, 2, 8)),
        (Attends(), torch.randn(2, 8, 8)),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)), torch.randn(2, 4)),
    ):
        diff = against_onnx(model.eval(), (x,), tmp_path, dynamo=False, **options)
        assert diff.ok
        assert alone(diff) == set()


@both
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_every_call_of_a_cell_is_paired(
    kind: type[nn.Module], tmp_path: Path, dynamo: bool
) -> None:
    model, x = Steps(kind).eval(), (torch.randn(3, 2, 8),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()
    wrong = against_onnx(
        model, x, tmp_path, dynamo=dynamo, exported=changed(model, "cell.weight_hh", 1.01)
    )
    # The first call multiplies no state.
    first = "cell[0]#1" if kind is nn.LSTMCell else "cell#1"
    assert wrong.first_divergence is not None
    assert wrong.made_here[0].layer == first
    assert alone(wrong) == set()


@both
def test_the_second_call_takes_the_first_ones_state(tmp_path: Path, dynamo: bool) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.rnn = nn.LSTM(6, 6)

        def forward(self, x: torch.Tensor) -> Any:
            return self.rnn(*self.rnn(x))

    model, x = Twice().eval(), (torch.randn(5, 2, 6),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()
    wrong = changed(model, "rnn.weight_hh_l0", 1.1)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, exported=wrong)
    assert [r.layer for r in diff.made_here if "[0]" in r.layer.split("#")[0][:6]] == [
        "rnn[0]",
        "rnn[0]#1",
    ]


class Attends(nn.Module):
    def __init__(self, *, weights: bool = True) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.weights = weights

    def forward(self, x: torch.Tensor) -> Any:
        y, weights = self.attention(x, x, x)
        return (self.norm(x + y), weights) if self.weights else self.norm(x + y)


@both
@pytest.mark.parametrize("length", [5, 8], ids=["two shapes", "one shape"])
def test_attention_and_its_weights(tmp_path: Path, dynamo: bool, length: int) -> None:
    model, x = Attends().eval(), (torch.randn(2, length, 8),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()
    assert partner(diff, "attention[1]") == partner(diff, "output[1]")
    wrong = changed(model, "attention.in_proj_weight", 1.01)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, exported=wrong)
    assert {r.layer for r in diff.made_here} == {"attention[0]", "attention[1]"}


def test_unused_attention_weights_stay_alone(tmp_path: Path) -> None:
    model, x = Attends(weights=False).eval(), (torch.randn(2, 8, 8),)
    diff = against_onnx(model, x, tmp_path, dynamo=False)
    assert diff.ok
    assert alone(diff) == {"attention[1]"}


class Named(nn.Module):
    """Returns a dict whose first tensor is computed last."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        early = x * self.w
        return {"late": early + self.u, "early": early, "more": [torch.tanh(early)]}


class UsesNamed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.named, self.f = Named(), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Any:
        r = self.named(x)
        return self.f(r["late"]), r["early"], self.f(r["more"][0])


@both
@kept
def test_a_dict_is_paired_whatever_order_it_was_computed_in(
    tmp_path: Path, dynamo: bool, options: dict[str, bool]
) -> None:
    model, x = UsesNamed().eval(), (torch.randn(3, 4),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, **options)
    assert diff.ok
    assert alone(diff) == set()
    assert len({partner(diff, f"named[{k}]") for k in ("'late'", "'early'", "'more'][0")}) == 3


# --- names ----------------------------------------------------------------------------------------


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.block(x))


class Nested(nn.Module):
    """Sequentials in Sequentials called twice, lists in lists, dicts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.feat = nn.Sequential(
            nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.ReLU()),
            Inner(),
            nn.Sequential(Inner()),
        )
        self.layers = nn.ModuleList(
            [nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)), nn.ModuleList([nn.Linear(4, 4)])]
        )
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 4), "b_1": nn.Sequential(Inner())})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.feat(self.feat(x))
        x = self.layers[2][0](self.layers[1](self.layers[0](x)))
        return self.heads["b_1"](self.heads["a"](x))


@both
def test_containers_in_containers(tmp_path: Path, dynamo: bool) -> None:
    diff = against_onnx(Nested().eval(), (torch.randn(2, 4),), tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()
    made = [r.candidate for r in diff.rows if r.channel == "forward" and r.layer]
    assert len(made) == len(set(made)) == 2 * 3 + 2 * 2 * 6 + 3 + 1 + 6


class Wrapped(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.softmax = net, nn.Softmax(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.softmax(self.net(x))


@both
def test_a_network_wrapped_for_its_export_or_taken_out_of_a_wrapper(
    tmp_path: Path, dynamo: bool
) -> None:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 3), nn.ReLU())).eval()
    x = (torch.randn(2, 4),)
    inside = against_onnx(net, x, tmp_path, dynamo=dynamo, exported=Wrapped(net).eval())
    outside = against_onnx(Wrapped(net).eval(), x, tmp_path, dynamo=dynamo, exported=net)
    for diff, names in (
        (inside, ["0", "1.0", "1.1"]),
        (outside, ["net.0", "net.1.0", "net.1.1"]),
    ):
        assert [
            r.layer for r in diff.rows if r.verdict == "same" and r.channel == "forward"
        ] == names


# --- layers without a node of their own -----------------------------------------------------------


class Double(nn.Module):
    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
        self.c2, self.b2 = nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.b2(self.c2(self.act(self.b1(self.c1(x))))))


class UNet(nn.Module):
    """Two levels, skip connections, one transposed convolution with a BatchNorm and one without."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.d1, self.d2, self.mid = Double(3, 4), Double(4, 8), Double(8, 16)
        self.pool, self.drop = nn.MaxPool2d(2), nn.Dropout2d()
        self.u2, self.n2, self.e2 = (
            nn.ConvTranspose2d(16, 8, 2, 2),
            nn.BatchNorm2d(8),
            Double(16, 8),
        )
        self.u1, self.e1, self.out = (
            nn.ConvTranspose2d(8, 4, 2, 2),
            Double(8, 4),
            nn.Conv2d(4, 2, 1),
        )
        _lived_in(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.d1(x)
        b = self.d2(self.pool(a))
        y = self.n2(self.u2(self.mid(self.pool(b))))
        y = self.u1(self.e2(torch.cat([y, b], 1)))
        return torch.sigmoid(self.out(self.drop(self.e1(torch.cat([y, a], 1)))))


def _lived_in(model: nn.Module) -> None:
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.running_mean, -1, 1)
            nn.init.uniform_(m.running_var, 0.5, 2)
            nn.init.uniform_(m.weight, 0.5, 1.5)


@both
def test_a_unet(tmp_path: Path, dynamo: bool) -> None:
    model, x = UNet().eval(), (torch.randn(1, 3, 16, 16),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()
    folded = {r.layer for r in diff.rows if r.layer and not r.candidate}
    convolutions = {f"{b}.{c}" for b in ("d1", "d2", "mid", "e2", "e1") for c in ("c1", "c2")}
    # Only the dynamo exporter folds a BatchNorm into a transposed convolution.
    assert folded == convolutions | ({"u2"} if dynamo else set())
    wrong = changed(model, "u1.weight", 1.01)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, exported=wrong)
    assert diff.first_divergence is not None
    assert [r.layer for r in diff.made_here] == [diff.first_divergence.layer] == ["u1"]


class Apart(nn.Module):
    """BatchNorms that do not run right behind their convolutions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.c1, self.c2, self.c3 = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.b1, self.b2, self.b3 = (nn.BatchNorm2d(3) for _ in range(3))
        self.keep, self.drop = nn.Identity(), nn.Dropout()
        _lived_in(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, z = self.c1(x), self.c2(x)
        y = self.b1(y) * self.b2(z)
        return self.drop(torch.relu(self.b3(self.keep(self.c3(y)))))


@both
def test_a_batch_norm_away_from_its_convolution(tmp_path: Path, dynamo: bool) -> None:
    model, x = Apart().eval(), (torch.randn(1, 3, 8, 8),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo)
    assert diff.ok
    notes = {r.layer: r.note for r in diff.rows if r.layer}
    assert [notes[n] for n in ("b1", "b2", "b3")] == [
        f"with {c} folded into it" for c in ("c1", "c2", "c3")
    ]
    assert [notes[n] for n in ("c1", "c3", "keep")] == [
        f"computed together with {b}" for b in ("b1", "b3", "b3")
    ]
    wrong = changed(model, "b3.weight", 1.01)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, exported=wrong)
    assert [r.layer for r in diff.made_here] == ["b3"]


class Encoder(nn.Module):
    """Owns a parameter, and returns what a layer inside it made."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.drop = nn.Parameter(torch.randn(1, 5, 8)), nn.Dropout()
        self.body, self.norm = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.body(self.drop(x + self.place)))


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.token, self.encoder, self.head = (
            nn.Parameter(torch.randn(1, 1, 8)),
            Encoder(),
            nn.Linear(8, 3),
        )
        self.drop, self.last = nn.Dropout(), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.encoder(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1))
        return self.last(self.drop(torch.relu(self.head(y[:, 0]))))


@both
def test_layers_that_only_hand_on(tmp_path: Path, dynamo: bool) -> None:
    model, x = Patches().eval(), (torch.randn(2, 4, 8),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()
    notes = {r.layer: r.note for r in diff.rows}
    assert notes["encoder.drop"] == notes["drop"] == "hands on its input"
    assert notes["encoder"] == "returns what encoder.norm made"
    assert partner(diff, "(network)") == partner(diff, "output")
    wrong = changed(model, "encoder.body.0.weight", 1.01)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, exported=wrong)
    assert [r.layer for r in diff.made_here] == ["encoder.body.0"]
    wrong = changed(model, "encoder.place", 1.01)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, exported=wrong)
    assert [r.layer for r in diff.made_here] == ["encoder"]


@pytest.mark.parametrize("network", [nn.Linear(4, 3), nn.LSTM(4, 3)], ids=["one", "three results"])
@both
def test_a_network_that_is_a_layer_itself(tmp_path: Path, dynamo: bool, network: nn.Module) -> None:
    diff = against_onnx(network.eval(), (torch.randn(2, 2, 4),), tmp_path, dynamo=dynamo)
    assert diff.ok
    assert alone(diff) == set()


# --- versions -------------------------------------------------------------------------------------


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.deep, self.bn = nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.BatchNorm2d(8)
        self.act, self.gelu, self.prelu = nn.Hardswish(), nn.GELU(), nn.PReLU(8)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid())
        self.group, self.norm, self.up = nn.GroupNorm(2, 8), nn.LayerNorm(8), nn.Upsample(None, 2)
        self.most, self.mean, self.flat = nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten()
        self.drop, self.head, self.log = nn.Dropout(), nn.Linear(8, 5), nn.LogSoftmax(1)
        _lived_in(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.bn(self.deep(self.stem(x))))
        y = self.group(y * self.squeeze(y))
        y = self.mean(self.gelu(self.up(self.most(y))) + self.prelu(y[:, :, :6, :6]))
        y = self.drop(self.flat(self.norm(y.mean((2, 3)))))
        return self.log(self.head(y))


@pytest.mark.parametrize(
    ("dynamo", "opset"), [*((False, n) for n in range(9, 21)), (True, 18), (True, 20), (True, 23)]
)
def test_every_opset_is_paired_in_full(tmp_path: Path, dynamo: bool, opset: int) -> None:
    model, x = Convolutions().eval(), (torch.randn(2, 3, 14, 14),)
    diff = against_onnx(model, x, tmp_path, dynamo=dynamo, opset=opset)
    assert diff.ok
    assert alone(diff) == set()
    assert {r.layer for r in diff.rows if r.layer and not r.candidate} == {"stem.0", "deep"}
