"""Run an ONNX model with ONNX Runtime and report every node's output."""

from __future__ import annotations

import ast
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import tensor_leaf, walk
from migrate_kit.layers.capture import Source
from migrate_kit.layers.runners.ort_values import from_ort, to_ort
from migrate_kit.layers.store import tensor_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from migrate_kit.layers.capture import Recorder, RunOptions

# How many bytes of node outputs one pass may hold; past it the model runs again for the next part.
PASS_BYTES = 256 << 20
_UNKNOWN_BYTES = 4 << 20


class OnnxRunner:
    """Run the model at ``path``; every node's floating, integer or bool output is a layer.

    Nodes inside an If, Loop or Scan are not, their node is. What has no tensor in torch (4-bit
    numbers, strings, sequences) is left out and named in ``skipped`` and in the trace's ``meta``.

    Parameters
    ----------
    path : path
        An ``.onnx`` file, with external data beside it if it has any.
    providers : sequence of str
        ONNX Runtime's execution providers.
    optimization : {"all", "extended", "basic", "none"}
        ONNX Runtime's graph optimisation. An output that is looked at cannot be fused away, so
        fusions across layers do not happen under any of them.

    Raises
    ------
    MigrateError
        If the file, or the file that holds its weights, cannot be read.
    """

    def __init__(
        self,
        path: str | Path,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        optimization: str = "all",
    ) -> None:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

        self.path = Path(path)
        self.providers, self.optimization = list(providers), optimization
        self.skipped: dict[str, str] = {}
        _check_file(self.path)
        try:
            self.model = onnx.load(str(self.path), load_external_data=False)
        except (OSError, DecodeError, ValueError) as error:
            raise MigrateError(
                f"not a readable ONNX model: {error}", str(self.path), "export it again"
            ) from error
        if not self.model.graph.node:
            raise MigrateError("the ONNX model has no nodes", str(self.path), "export it again")
        _check_names(self.path, self.model.graph)
        _check_weights(self.path, self.model)

    def meta(self) -> dict[str, Any]:
        """Return what the trace says of this run."""
        import onnxruntime

        opsets = {o.domain or "ai.onnx": o.version for o in self.model.opset_import}
        return {
            "runner": "onnxruntime",
            "model": self.path.name,
            "opset": opsets,
            "libraries": {"onnxruntime": onnxruntime.__version__},
        } | ({"skipped": dict(self.skipped)} if self.skipped else {})

    def run(self, recorder: Recorder, inputs: tuple[Any, ...], options: RunOptions) -> None:
        """Run once, in as many passes as :data:`PASS_BYTES` asks for, and report.

        Raises
        ------
        MigrateError
            If the inputs do not fit, or ONNX Runtime refuses the model.
        """
        if options.backward or options.loss is not None:
            raise MigrateError(
                "ONNX Runtime only runs forward", "backward=", "compare gradients with TorchRunner"
            )
        self.skipped = {}
        feed = self._feed(inputs, dict(options.kwargs))
        nodes = self._nodes()
        selection = options.selection
        selection.check([n for n, *_ in nodes])
        for name, given in feed.items():
            recorder.add(Source("input", name, kind="input"), given)
        leaves = {name: _leaf("input", name, given) for name, given in feed.items()}
        wanted = [
            n for n in _window(nodes, selection.start, selection.end) if selection.wants(n[0])
        ]
        outputs = {o.name for o in self.model.graph.output}
        for group in self._passes(wanted):
            names = [n for n, *_ in group]
            for (name, node, scope), value in zip(
                group, self._execute(names, feed, keep=outputs), strict=True
            ):
                if value is None:
                    continue
                arguments = self._arguments(node, leaves, keep=recorder.keeps_inputs)
                recorder.add(Source("forward", name, name, node.op_type, scope), value, arguments)
                leaves[name] = _leaf("forward", name, value)
        finals = [o.name for o in self.model.graph.output]
        for name, value in zip(finals, self._execute(finals, feed, keep=outputs), strict=True):
            if value is not None:
                recorder.add(Source("output", name, kind="output"), value)

    def _feed(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
        initial = {i.name for i in self.model.graph.initializer}
        names = [i.name for i in self.model.graph.input if i.name not in initial]
        tensors = [t for _, t in walk(list(inputs))]
        feed = dict(zip(names, tensors, strict=False)) | {
            k: v for k, v in kwargs.items() if isinstance(v, torch.Tensor)
        }
        if len(tensors) > len(names) or set(feed) != set(names):
            raise MigrateError(
                f"the model takes {len(names)} inputs ({', '.join(names)}), {len(feed)} were given",
                str(self.path),
                "pass them in this order, or by name in kwargs=",
            )
        return {k: v.detach().cpu().contiguous() for k, v in feed.items()}

    def _nodes(self) -> list[tuple[str, Any, str]]:
        """Every output that depends on an input, with its node and scope, in execution order."""
        graph = self.model.graph
        constant = {i.name for i in graph.initializer}
        found: list[tuple[str, Any, str]] = []
        for node in graph.node:
            # A subgraph (If, Loop) may read what its node does not list; Random* differs each time.
            inner = any(a.HasField("g") or a.graphs for a in node.attribute)
            free = inner or node.op_type.startswith("Random")
            if not free and all(i in constant for i in node.input if i):
                constant.update(node.output)
                continue
            found.extend((o, node, _scope_of(node)) for o in node.output if o)
        return found

    def _arguments(
        self, node: Any, leaves: dict[str, dict[str, Any]], *, keep: bool
    ) -> list[Any] | None:
        if not keep:
            return None
        args = [leaves[i] for i in node.input if i in leaves]
        return [{"tuple": args}, {"dict": []}]

    def _passes(self, wanted: list[tuple[str, Any, str]]) -> Iterator[list[tuple[str, Any, str]]]:
        sizes = self._sizes()
        group: list[tuple[str, Any, str]] = []
        held = 0
        for item in wanted:
            size = sizes.get(item[0], _UNKNOWN_BYTES)
            if group and held + size > PASS_BYTES:
                yield group
                group, held = [], 0
            group.append(item)
            held += size
        if group:
            yield group

    def _sizes(self) -> dict[str, int]:
        import math

        import onnx

        try:
            known = onnx.shape_inference.infer_shapes(self.model).graph.value_info
        except (onnx.shape_inference.InferenceError, ValueError):
            return {}
        shapes = {
            v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
            for v in known
            if v.type.HasField("tensor_type")
        }
        return {name: 4 * math.prod(shape) for name, shape in shapes.items() if all(shape)}

    def _execute(
        self, names: list[str], feed: dict[str, torch.Tensor], *, keep: set[str]
    ) -> list[torch.Tensor | None]:
        import onnx
        import onnxruntime as ort

        levels = {
            "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
            "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
            "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
            "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        }
        if self.optimization not in levels:
            raise MigrateError(
                f"unknown optimization {self.optimization!r}",
                "optimization=",
                f"use {', '.join(levels)}",
            )
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.graph.output.extend(
            onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names) if n not in keep
        )
        options = ort.SessionOptions()
        options.graph_optimization_level = levels[self.optimization]
        options.log_severity_level = 4  # an error is raised, and need not be printed as well
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(self.path.resolve().parent)
        )
        try:
            # Another provider than the one asked for would answer another question.
            session = ort.InferenceSession(
                model.SerializeToString(), options, self.providers, enable_fallback=0
            )
            values = session.run_with_ort_values(names, {k: to_ort(v) for k, v in feed.items()})
        except Exception as error:
            # ONNX Runtime's exceptions have no common base but Exception.
            raise MigrateError(
                f"ONNX Runtime refused: {str(error).splitlines()[0]}",
                str(self.path),
                "check the inputs' shapes and dtypes against the model's, and the opset",
            ) from error
        return [self._tensor(n, from_ort(v)) for n, v in zip(names, values, strict=True)]

    def _tensor(self, name: str, value: torch.Tensor | str) -> torch.Tensor | None:
        if isinstance(value, str):
            self.skipped[name] = value
            return None
        return value


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise MigrateError("this is a folder", str(path), "name the .onnx file inside it")
    if not path.is_file():
        raise MigrateError("no such file", str(path), "name the .onnx file that you exported")
    if path.stat().st_size == 0:
        raise MigrateError(
            "the file is empty", str(path), "export the model again, or copy it anew"
        )


def _check_names(path: Path, graph: Any) -> None:
    """Refuse names that are no text: protobuf hands them out as bytes, or raises at every touch."""
    try:
        texts: list[Any] = [
            t.name for part in (graph.initializer, graph.input, graph.output) for t in part
        ]
        for node in graph.node:
            texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
            texts += [t for p in node.metadata_props for t in (p.key, p.value)]
        for tensor in graph.initializer:
            texts += [t for e in tensor.external_data for t in (e.key, e.value)]
    except UnicodeDecodeError:
        texts = [b""]
    if not all(isinstance(t, str) for t in texts):
        raise MigrateError(
            "the ONNX model is damaged: a name in it is not UTF-8", str(path), "export it again"
        )


def _check_weights(path: Path, model: Any) -> None:
    """Refuse a model whose weights are in another file that is missing or too short."""
    wanted: dict[str, int] = {}
    for tensor in model.graph.initializer:
        entry = {e.key: e.value for e in tensor.external_data}
        if "location" in entry:
            parts = (entry.get("offset", "0"), entry.get("length", "0"))
            end = sum(int(p) for p in parts if p.isdecimal() and len(p) < 20)
            wanted[entry["location"]] = max(end, wanted.get(entry["location"], 0))
    for location, end in wanted.items():
        inside = PurePath(location)
        if inside.is_absolute() or ".." in inside.parts:
            raise MigrateError(
                f"the model keeps its weights outside its own folder, in {location!r}",
                str(path),
                "put them beside the .onnx file: onnx.save(..., location='name.data')",
            )
        try:
            size = (path.parent / inside).stat().st_size
        except (OSError, ValueError) as error:
            raise MigrateError(
                f"the model keeps its weights in {location!r}, which cannot be read",
                str(path),
                "copy that file into the same folder, or export with external_data=False",
            ) from error
        if size < end:
            raise MigrateError(
                f"{location!r} holds {size} bytes, the model's weights take {end}",
                str(path),
                "copy that file again: it is truncated or belongs to another export",
            )


def _leaf(channel: str, name: str, value: torch.Tensor) -> dict[str, Any]:
    kind = str(value.dtype).removeprefix("torch.")
    return tensor_leaf(tensor_key(channel, name), kind, tuple(value.shape))


def _window(
    nodes: list[tuple[str, Any, str]], start: str | None, end: str | None
) -> list[tuple[str, Any, str]]:
    names = [n for n, *_ in nodes]
    first = names.index(start) if start in names else 0
    last = names.index(end) + 1 if end in names else len(names)
    return nodes[first:last]


def _scope_of(node: Any) -> str:
    """Return the module scope that PyTorch's exporters wrote: metadata (dynamo) or the name."""
    for prop in node.metadata_props:
        if prop.key == "pkg.torch.onnx.name_scopes":
            try:
                scopes = ast.literal_eval(prop.value)
            except (ValueError, SyntaxError):
                return ""
            return str(scopes[-2]) if isinstance(scopes, list) and len(scopes) > 1 else ""
    name = str(node.name)
    return name.rsplit("/", 1)[0] if name.startswith("/") and name.count("/") > 1 else ""
