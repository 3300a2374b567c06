"""ONNX files that are missing or incomplete, formats that NumPy lacks, and subgraphs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import migrate_kit as mk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

F = TensorProto.FLOAT
X = torch.tensor([1.0, -2.0, 3.0, 0.25])
TWO, ZERO = (helper.make_tensor(n, F, [], [v]) for n, v in (("two", 2.0), ("zero", 0.0)))
TRUE = helper.make_tensor("true", TensorProto.BOOL, [], [True])
THREE = helper.make_tensor("three", TensorProto.INT64, [], [3])


def value(name: str, kind: int = F, shape: Sequence[int] = (4,)) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def saved(
    path: Path,
    nodes: list[Any],
    *,
    inputs: Sequence[Any] = (value("x"),),
    outputs: Sequence[Any] = (value("y"),),
    constants: Sequence[Any] = (),
) -> Path:
    graph = helper.make_graph(nodes, "g", list(inputs), list(outputs), list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, path)
    return path


def node(kind: str, takes: str, makes: str, **attributes: Any) -> Any:
    return helper.make_node(kind, takes.split(), makes.split(), **attributes)


def layers(trace: mk.Trace) -> dict[str, str]:
    return {r.name: r.dtype for r in trace.records if r.channel == "forward"}


# --- files ----------------------------------------------------------------------------------------


def linear(folder: Path, name: str, location: str | None) -> tuple[nn.Module, Path]:
    torch.manual_seed(3)
    layer = nn.Linear(4, 3)
    weight = onnx.numpy_helper.from_array(layer.weight.detach().numpy(), "w")
    bias = onnx.numpy_helper.from_array(layer.bias.detach().numpy(), "b")
    path = saved(
        folder / name,
        [node("Gemm", "x w b", "y", transB=1)],
        inputs=[value("x", F, (1, 4))],
        outputs=[value("y", F, (1, 3))],
        constants=[weight, bias],
    )
    if location is not None:
        onnx.save(
            onnx.load(path),
            path,
            save_as_external_data=True,
            location=location,
            size_threshold=0,
        )
    return layer, path


@pytest.mark.parametrize("location", [None, "m.data"], ids=["one file", "external data"])
def test_weights_are_read_from_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str | None
) -> None:
    layer, path = linear(tmp_path, "m.onnx", location)
    assert (tmp_path / "m.data").exists() == (location is not None)
    monkeypatch.chdir(tmp_path)
    for asked in (str(path), "m.onnx"):
        trace = mk.capture(asked, X[None])
        torch.testing.assert_close(trace.tensor("y"), layer(X[None]).detach())


def test_missing_or_foreign_weights_are_named_at_once(tmp_path: Path) -> None:
    _, path = linear(tmp_path, "m.onnx", "m.data")
    data = (tmp_path / "m.data").read_bytes()
    (tmp_path / "m.data").write_bytes(data[: len(data) // 2])
    with pytest.raises(mk.MigrateError, match=r"'m.data' holds \d+ bytes.* weights take \d+"):
        mk.OnnxRunner(path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(mk.MigrateError, match=r"in 'm.data', which cannot be read") as caught:
        mk.OnnxRunner(path)
    assert caught.value.where == str(path)
    assert "same folder" in caught.value.fix


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "a/../../b", "n" * 5000])
def test_weights_outside_the_folder_are_not_touched(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(b"s" * 4096)
    folder = tmp_path / "in"
    folder.mkdir()
    _, path = linear(folder, "m.onnx", "m.data")
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    onnx.save(model, path)
    with pytest.raises(mk.MigrateError, match="keeps its weights") as caught:
        mk.capture(path, X[None])
    assert "4096" not in str(caught.value)


def test_nonsense_offsets_are_one_clear_error(tmp_path: Path) -> None:
    _, path = linear(tmp_path, "m.onnx", "m.data")
    for offset in ("9" * 6000, "-1", "zero", "99999999999"):
        model = onnx.load(path, load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "offset":
                    entry.value = offset
        onnx.save(model, tmp_path / "bad.onnx")
        with pytest.raises(mk.MigrateError):
            mk.capture(tmp_path / "bad.onnx", X[None])


def test_no_file_a_folder_and_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    for name, what in (
        ("gone.onnx", "no such file"),
        ("", "a folder"),
        ("empty.onnx", "the file is empty"),
    ):
        with pytest.raises(mk.MigrateError, match=what) as caught:
            mk.OnnxRunner(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
        assert caught.value.fix


@pytest.mark.parametrize("name", [b"/fine/Neg", b"fine_output"])
def test_names_that_are_no_text(tmp_path: Path, name: bytes) -> None:
    made = [node("Neg", "x", "fine_output"), node("Neg", "fine_output", "y")]
    made[0].name = "/fine/Neg"
    path = saved(tmp_path / "m.onnx", made)
    path.write_bytes(path.read_bytes().replace(name, b"\xff" + name[1:]))
    with pytest.raises(mk.MigrateError, match="not UTF-8"):
        mk.OnnxRunner(path)


def test_damaged_files_raise_one_kind_of_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    branches = {"then_branch": branch("t", "Mul"), "else_branch": branch("e", "Add")}
    nodes = [
        node("Relu", "x", "r"),
        node("Greater", "r zero", "many"),
        node("If", "true", "i", **branches),
        node("Where", "many i r", "y"),
    ]
    whole = saved(tmp_path / "m.onnx", nodes, constants=[TWO, TRUE, ZERO]).read_bytes()
    seen, dice = set(), random.Random(7)  # noqa: S311 - the same damage at every run
    for _ in range(200):
        raw = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 4))):
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        if dice.random() < 0.2:
            del raw[dice.randrange(len(raw)) :]
        (tmp_path / "m.onnx").write_bytes(raw)
        try:
            mk.capture(tmp_path / "m.onnx", X)
            seen.add("ran")
        except mk.MigrateError:
            seen.add("refused")
    assert seen == {"ran", "refused"}
    # ONNX Runtime says in the exception what it would also print.
    assert capfd.readouterr() == ("", "")


# --- formats --------------------------------------------------------------------------------------

FORMATS = {
    "FLOAT16": torch.float16,
    "BFLOAT16": torch.bfloat16,
    "FLOAT8E4M3FN": torch.float8_e4m3fn,
    "FLOAT8E5M2": torch.float8_e5m2,
    "DOUBLE": torch.float64,
    "INT8": torch.int8,
    "UINT64": torch.uint64,
    "BOOL": torch.bool,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_that_torch_has_is_recorded_in_it(tmp_path: Path, name: str) -> None:
    kind, x = getattr(TensorProto, name), X.abs()
    nodes = [node("Cast", "x", "q", to=kind), node("Cast", "q", "f", to=F), node("Neg", "f", "y")]
    trace = mk.capture(saved(tmp_path / "m.onnx", nodes), x)
    assert layers(trace)["q"] == str(FORMATS[name]).removeprefix("torch.")
    got, wanted = trace.tensor("q"), x.to(FORMATS[name])
    assert torch.equal(got.to(torch.float64), wanted.to(torch.float64))
    end = saved(tmp_path / "e.onnx", [node("Cast", "x", "y", to=kind)], outputs=[value("y", kind)])
    last = mk.capture(end, x).find("output", "y")
    assert last is not None
    assert last.dtype == str(FORMATS[name]).removeprefix("torch.")


@pytest.mark.parametrize("name", ["FLOAT16", "BFLOAT16", "FLOAT8E5M2", "INT8"])
def test_an_input_of_every_format(tmp_path: Path, name: str) -> None:
    nodes = [node("Cast", "x", "f", to=F), node("Neg", "f", "y")]
    path = saved(tmp_path / "m.onnx", nodes, inputs=[value("x", getattr(TensorProto, name))])
    x = torch.tensor([1.0, 2.0, 0.0, 3.0]).to(FORMATS[name])
    assert torch.equal(mk.capture(path, x).tensor("y"), -x.float())


def test_bfloat16_is_compared_with_torch(tmp_path: Path) -> None:
    cast = {"to": TensorProto.BFLOAT16}
    nodes = [node("Cast", "x", "/0/h", **cast), node("Cast", "/0/h", "y", to=F)]
    trace = mk.capture(saved(tmp_path / "m.onnx", nodes), X * 1.001)

    class Rounds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.bfloat16()

    reference = mk.capture(nn.Sequential(Rounds()), X * 1.001)
    diff = mk.compare(reference, trace, pairing={"0": "/0/h"})
    assert [r.max_abs for r in diff.rows if r.layer == "0"] == [0.0]


@pytest.mark.parametrize(
    ("kind", "said"), [("INT4", "int4"), ("UINT4", "uint4"), ("STRING", "string")]
)
def test_what_torch_has_no_format_for_is_named_and_left_out(
    tmp_path: Path, kind: str, said: str
) -> None:
    number = getattr(TensorProto, kind)
    nodes = [
        node("Neg", "x", "n"),
        node("Cast", "n", "q", to=number),
        node("Cast", "q", "f", to=F),
        node("Neg", "f", "y"),
    ]
    path = saved(tmp_path / "m.onnx", nodes)
    trace = mk.capture(path, X, store=tmp_path / "trace")
    assert list(layers(trace)) == ["n", "f", "y"]
    assert trace.meta["skipped"] == {"q": f"tensor({said})"}
    diff = mk.compare(mk.capture(path, X), tmp_path / "trace")
    rows = [r for r in diff.rows if r.verdict == "unpaired"]
    assert [(r.layer, r.candidate) for r in rows] == [("q", ""), ("", "q")]
    assert all(r.note == f"not recorded: tensor({said})" for r in rows)
    assert not any("unpaired" in f.what for f in diff.findings)
    assert diff.ok
    # A runner that runs again says again what it left out, and no more.
    runner = mk.OnnxRunner(path)
    assert mk.capture(runner, X).meta["skipped"] == mk.capture(runner, X).meta["skipped"]


def test_sequences_are_left_out(tmp_path: Path) -> None:
    nodes = [
        node("SequenceConstruct", "x x", "s"),
        node("ConcatFromSequence", "s", "y", axis=0),
    ]
    trace = mk.capture(saved(tmp_path / "m.onnx", nodes, outputs=[value("y", F, (8,))]), X)
    assert list(layers(trace)) == ["y"]
    assert trace.meta["skipped"] == {"s": "seq(tensor(float))"}


def test_a_damaged_list_of_what_was_left_out_is_ignored(tmp_path: Path) -> None:
    trace = mk.capture(saved(tmp_path / "m.onnx", [node("Neg", "x", "y")]), X)
    for nonsense in ("q", ["q"], 3, None):
        trace.meta["skipped"] = nonsense
        assert mk.compare(trace, trace).ok
    trace.meta["skipped"] = {"<b>": ["<i>"]}
    html = mk.compare(trace, trace)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<i>" not in html


# --- subgraphs ------------------------------------------------------------------------------------


def branch(name: str, kind: str) -> Any:
    made = value(name)
    return helper.make_graph([node(kind, "r two", name)], name, [], [made])


def loop_body() -> Any:
    return helper.make_graph(
        [
            node("Add", "acc x", "acc2"),
            node("Identity", "go", "go2"),
            node("Mul", "acc2 two", "each"),
        ],
        "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("acc")],
        [value("go2", TensorProto.BOOL, ()), value("acc2"), value("each")],
    )


def scan_body() -> Any:
    nodes = [node("Add", "state item", "state2"), node("Identity", "state2", "made")]
    takes = [value("state", F, ()), value("item", F, ())]
    return helper.make_graph(nodes, "body", takes, [value("state2", F, ()), value("made", F, ())])


def test_an_if_is_one_layer(tmp_path: Path) -> None:
    branches = {"then_branch": branch("t", "Mul"), "else_branch": branch("e", "Add")}
    nodes = [
        node("Relu", "x", "r"),
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Greater", "sum zero", "positive"),
        node("If", "positive", "i", **branches),
        node("Neg", "i", "y"),
    ]
    path = saved(tmp_path / "m.onnx", nodes, constants=[TWO, ZERO])
    trace = mk.capture(path, X)
    assert list(layers(trace)) == ["r", "sum", "positive", "i", "y"]
    assert torch.equal(trace.tensor("i"), X.relu() * 2)
    assert torch.equal(mk.capture(path, -X).tensor("i"), (-X).relu() + 2)
    nodes = [node("Relu", "x", "r"), node("If", "true", "y", **branches)]
    trace = mk.capture(saved(tmp_path / "c.onnx", nodes, constants=[TWO, TRUE]), X)
    assert list(layers(trace)) == ["r", "y"]


def test_a_loop_and_a_scan_are_one_layer_each(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "r"),
        node("Loop", "three true r", "last each_one", body=loop_body()),
        node("Scan", "zero last", "total running", body=scan_body(), num_scan_inputs=1),
        node("Neg", "running", "y"),
    ]
    trace = mk.capture(saved(tmp_path / "m.onnx", nodes, constants=[TWO, ZERO, TRUE, THREE]), X)
    assert list(layers(trace)) == ["r", "last", "each_one", "total", "running", "y"]
    last = X.relu() + 3 * X
    torch.testing.assert_close(trace.tensor("last"), last)
    assert trace.tensor("each_one").shape == (3, 4)
    torch.testing.assert_close(trace.tensor("running"), last.cumsum(0))
