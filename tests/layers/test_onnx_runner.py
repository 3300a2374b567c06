"""ONNX Runtime against PyTorch, paired by the scopes that both exporters write."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import migrate_kit as mk
from migrate_kit.layers.runners import onnx_runner

if TYPE_CHECKING:
    from pathlib import Path


class Net(nn.Module):
    """Convolutions with BatchNorm, one activation called three times, and a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.act = nn.LayerNorm(8), nn.GELU()
        self.head = nn.Linear(8, 5)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):
                nn.init.uniform_(m.running_mean, -1, 1)
                nn.init.uniform_(m.running_var, 0.5, 2)
                nn.init.uniform_(m.weight, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.stem(x))
        y = self.act(self.body(y)) + y
        return self.head(self.act(self.norm(y.mean((2, 3)))))


X = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(4))


def export(model: nn.Module, path: Path, *, dynamo: bool, x: torch.Tensor = X) -> Path:
    logging.disable(logging.WARNING)
    try:
        options = {"external_data": False, "verbose": False} if dynamo else {}
        torch.onnx.export(
            model,
            (x,),
            str(path),
            dynamo=dynamo,
            opset_version=18 if dynamo else 13,
            input_names=["x"],
            **options,
        )
    finally:
        logging.disable(logging.NOTSET)
    return path


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
def test_every_module_finds_its_node(tmp_path: Path, dynamo: bool) -> None:
    model = Net().eval()
    path = export(model, tmp_path / "net.onnx", dynamo=dynamo)
    diff = mk.compare(mk.capture(model, X), mk.capture(path, X))
    rows = {r.layer: r for r in diff.rows if r.layer}
    paired = {n for n, r in rows.items() if r.verdict == "same"}
    assert diff.ok
    assert paired >= {"input", "stem.1", "body", "norm", "act", "act#1", "act#2", "head", "output"}
    assert rows["stem.0"].note == "computed together with stem.1"
    assert rows["stem.1"].note == "with stem.0 folded into it"
    assert max(r.R for r in diff.rows if r.verdict == "same") < 3
    assert not any(r.verdict == "differs" for r in diff.rows)


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("layer", ["stem.1", "body", "head"])
def test_a_wrong_weight_in_the_file_is_made_in_that_layer(
    tmp_path: Path, dynamo: bool, layer: str
) -> None:
    good, bad = Net().eval(), Net().eval()
    with torch.no_grad():
        bad.get_submodule(layer).bias.add_(0.01)
    path = export(bad, tmp_path / "net.onnx", dynamo=dynamo)
    diff = mk.compare(mk.capture(good, X), mk.capture(path, X))
    assert diff.first_divergence is not None
    assert diff.first_divergence.layer == layer
    assert [r.layer for r in diff.made_here] == [layer]


def test_several_passes_give_the_same_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export(Net().eval(), tmp_path / "net.onnx", dynamo=False)
    once = mk.capture(path, X)
    monkeypatch.setattr(onnx_runner, "PASS_BYTES", 4096)
    again = mk.capture(mk.OnnxRunner(path, optimization="none"), X)
    assert [r.key for r in once.records] == [r.key for r in again.records]
    assert mk.compare(once, again).ok


def test_a_file_of_no_known_exporter_is_paired_by_structure(tmp_path: Path) -> None:
    model = Net().eval()
    path = export(model, tmp_path / "net.onnx", dynamo=False)
    proto = onnx.load(path)
    rename = {o: f"t{i}" for i, n in enumerate(proto.graph.node) for o in n.output}
    rename |= {o.name: o.name for o in proto.graph.output}
    for node in proto.graph.node:
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [rename.get(n, n) for n in names]
    onnx.save(proto, path)
    diff = mk.compare(mk.capture(model, X), mk.capture(path, X))
    paired = {r.layer for r in diff.rows if r.verdict == "same"}
    assert paired >= {"input", "stem.1", "body", "head", "output"}


def test_wrong_inputs_are_one_clear_error(tmp_path: Path) -> None:
    path = export(Net().eval(), tmp_path / "net.onnx", dynamo=False)
    with pytest.raises(mk.MigrateError, match=r"takes 1 inputs \(x\), 0 were given"):
        mk.capture(path)
    with pytest.raises(mk.MigrateError, match="ONNX Runtime refused"):
        mk.capture(path, torch.ones(2, 3))
    with pytest.raises(mk.MigrateError, match="only runs forward"):
        mk.capture(path, X, backward=True)
    with pytest.raises(mk.MigrateError, match="optimization"):
        mk.capture(mk.OnnxRunner(path, optimization="fast"), X)


@pytest.mark.parametrize("content", [b"", b"\x00garbage" * 9, b"<html>404</html>"])
def test_what_is_no_onnx_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.onnx").write_bytes(content)
    with pytest.raises(mk.MigrateError):
        mk.OnnxRunner(tmp_path / "x.onnx")
    with pytest.raises(mk.MigrateError):
        mk.OnnxRunner(tmp_path / "nowhere.onnx")


def test_integer_bool_and_half_outputs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Greater", ["x", "zero"], ["b"]),
        helper.make_node("ArgMax", ["x"], ["i"], axis=0, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("i", TensorProto.INT64, [])],
        [helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    onnx.save(proto, tmp_path / "m.onnx")
    x = torch.tensor([1.0, -2.0, 3.0, 0.0])
    trace = mk.capture(tmp_path / "m.onnx", x)
    assert {r.name: r.dtype for r in trace.records if r.channel == "forward"} == {
        "h": "float16",
        "b": "bool",
        "i": "int64",
    }
    assert trace.tensor("b").tolist() == [True, False, True, False]
    assert np.asarray(trace.tensor("i")) == 2


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], options: dict[str, Any]) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.rnn = kind(8, 6, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0])  # type: ignore[no-any-return]


# The exporter traces Python branches, and says so.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {}),
        (nn.LSTM, {"batch_first": True}),
        (nn.GRU, {"batch_first": True}),
        (nn.LSTM, {"bidirectional": True}),
        (nn.LSTM, {"num_layers": 2}),
    ],
)
def test_a_recurrent_layers_outputs_are_paired(
    kind: type[nn.Module], options: dict[str, Any], tmp_path: Path
) -> None:
    model, x = Recurrent(kind, options).eval(), torch.randn(5, 2, 8)
    export(model, tmp_path / "m.onnx", dynamo=False, x=x)
    diff = mk.compare(mk.capture(model, x), mk.capture(tmp_path / "m.onnx", x))
    paired = {r.layer for r in diff.rows if r.layer and r.candidate}
    # Two layers' states are never put together in the graph, as nobody uses them.
    states = {"rnn[1]"} if kind is nn.GRU else {"rnn[1][0]", "rnn[1][1]"}
    expected = {"rnn[0]"} if options.get("num_layers") else {"rnn[0]"} | states
    assert {n for n in paired if n.startswith("rnn")} == expected
    assert diff.ok
    broken = copy.deepcopy(model)
    broken.rnn.weight_hh_l0.data *= 1.01
    export(broken, tmp_path / "b.onnx", dynamo=False, x=x)
    wrong = mk.compare(mk.capture(model, x), mk.capture(tmp_path / "b.onnx", x))
    assert wrong.first_divergence is not None
    assert wrong.first_divergence.layer == "rnn[0]"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True])
def test_attention_and_its_weights_are_paired(tmp_path: Path, *, dynamo: bool) -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.attention(x, x, x)  # type: ignore[no-any-return]

    model, x = Attends().eval(), torch.randn(2, 5, 8)
    export(model, tmp_path / "m.onnx", dynamo=dynamo, x=x)
    diff = mk.compare(mk.capture(model, x), mk.capture(tmp_path / "m.onnx", x))
    assert diff.ok
    paired = {r.layer for r in diff.rows if r.layer and r.candidate}
    assert {"attention[0]", "attention[1]"} <= paired


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(mk.MigrateError, match="no such file"):
        mk.OnnxRunner(tmp_path / "gone.onnx")
    with pytest.raises(mk.MigrateError, match="a folder"):
        mk.OnnxRunner(tmp_path)
