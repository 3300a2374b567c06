"""SSD-MobileNetV1, from the frozen graph of TensorFlow's object detection API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.checkpoints.conversion import Conversion
from migrate_kit.checkpoints.conversions.source_files import one_file, out_file
from migrate_kit.checkpoints.conversions.tf_convolutions import Convolution, convolutions
from migrate_kit.checkpoints.formats import frozen_graph
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.networks.ssd_mobilenet_v1 import SEEN, SIZE, Sizes, SSDMobileNetV1
from migrate_kit.checkpoints.proofs.file import prove_file
from migrate_kit.checkpoints.proofs.graph_run import GraphRun, plain_name
from migrate_kit.checkpoints.proofs.measured import Proof
from migrate_kit.checkpoints.write import write_state_dict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from migrate_kit.checkpoints.formats.frozen_graph import Node

LIMIT = 1e-4
# nn.BatchNorm2d's own, which is what the guide's network is built with.
EPSILON = 1e-5
_BLOCK = re.compile(
    r"(?:^|/)MobilenetV1/Conv2d_(\d{1,2})(?:_(depthwise|pointwise))?/(?:\w+_)?weights$"
)
_EXTRA = re.compile(r"_pointwise_([12])_Conv2d_(\d{1,2})_\dx\d\w*/(?:\w+_)?weights$")
_PREDICTOR = re.compile(r"BoxPredictor_(\d{1,2})/(BoxEncoding|Class)Predictor/(?:\w+_)?weights$")
_UNTRIED = Finding(
    "info",
    "this conversion was tried on graphs with the published names and shapes, and not on the "
    "original file, of which no public copy could be had",
)
_PREDICTS = {"BoxEncoding": "regression", "Class": "classification"}


def convert(name: str, paths: Any, out: Any) -> Conversion:
    """Convert a frozen graph."""
    path = one_file(paths, "frozen_inference_graph.pb")
    source = Source(path)
    if not frozen_graph.recognises(source):
        raise MigrateError(
            "no frozen GraphDef",
            str(path),
            "pass frozen_inference_graph.pb; a file of about 130 bytes is a Git LFS pointer: fetch "
            "the file it names",
        )
    nodes = frozen_graph.read_nodes(source)
    _believable(nodes, source)
    found = _named(convolutions(nodes), str(path))
    state, origin, own = _state(found)
    network = SSDMobileNetV1(_sizes(found, str(path))).eval()
    _check(state, network.state_dict(), origin, str(path))
    network.load_state_dict(state, strict=True)
    final = network.state_dict()
    proofs = _proofs(network, nodes, found)
    written = write_state_dict(final, out_file(out, name), format="torch-legacy")
    proofs.append(prove_file(final, written))
    return Conversion(
        name,
        network=network,
        state_dict=final,
        out=[written],
        proof=proofs,
        epsilon=EPSILON,
        origin=origin,
        findings=[_about_epsilon(own), _UNTRIED],
    )


def _believable(nodes: Sequence[Node], source: Source) -> None:
    # A constant may give one value and a shape to fill with it. No published network does that
    # with its weights, and memory is not given for what a file only claims.
    claimed = sum(node.tensor.nbytes for node in nodes if node.tensor is not None)
    if claimed > 2 * source.size + 1_000_000:
        raise source.damaged(f"its constants claim {claimed:,} bytes and it has {source.size:,}")


def _named(found: Sequence[Convolution], where: str) -> dict[str, Convolution]:
    """Return the convolutions under our names, without ``.weight``."""
    named: dict[str, Convolution] = {}
    for one in found:
        key = _key(one.name)
        if key is not None and named.setdefault(key, one) is not one:
            raise MigrateError(f"two convolutions would be {key}", where, "check the file")
    blocks = [f"backbone.{n}.{kind}" for n in range(1, 14) for kind in ("depthwise", "pointwise")]
    predictors = [
        f"predictors.{n}.{kind}"
        for n in range(max(1, sum(key.endswith("regression") for key in named)))
        for kind in _PREDICTS.values()
    ]
    missing = [key for key in ("backbone.0.0", *blocks, *predictors) if key not in named]
    if missing:
        raise MigrateError(
            f"no SSD-MobileNetV1: {few(missing)} of its convolutions are missing",
            where,
            f"the graph's convolutions are {few((one.name for one in found), 4)}",
        )
    return named


def _key(name: str) -> str | None:
    extra = _EXTRA.search(name)
    if extra:
        return f"extras.{int(extra[2]) - 2}.{0 if extra[1] == '1' else 2}"
    predictor = _PREDICTOR.search(name)
    if predictor:
        return f"predictors.{int(predictor[1])}.{_PREDICTS[predictor[2]]}"
    block = _BLOCK.search(name)
    if block:
        return f"backbone.{int(block[1])}.{block[2] or '0'}"
    return None


def _sizes(found: Mapping[str, Convolution], where: str) -> Sizes:
    """Return the network's channels, as the kernels have them."""
    out = {key: one.kernel.shape[3] for key, one in found.items()}
    extras = sum(key.startswith("extras.") for key in found) // 2
    predictors = sum(key.endswith(".regression") for key in found)
    if predictors != len(SEEN) + extras or any(
        f"extras.{n}.{k}" not in found for n in range(extras) for k in (0, 2)
    ):
        raise MigrateError(
            f"{predictors} predictors on {len(SEEN) + extras} feature maps", where, "check the file"
        )
    anchors = [out[f"predictors.{n}.regression"] // 4 for n in range(predictors)]
    classes = {out[f"predictors.{n}.classification"] / max(1, a) for n, a in enumerate(anchors)}
    if len(classes) != 1 or 0 in anchors or not classes <= set(range(1, 1 << 16)):
        raise MigrateError("the predictors have different numbers of classes", where, "check it")
    return Sizes(
        [out["backbone.0.0"], *(out[f"backbone.{n}.pointwise"] for n in range(1, 14))],
        [(out[f"extras.{n}.0"], out[f"extras.{n}.2"]) for n in range(extras)],
        anchors,
        int(classes.pop()),
    )


def _state(
    found: Mapping[str, Convolution],
) -> tuple[dict[str, torch.Tensor], dict[str, str], set[float]]:
    """Return the tensors, where each is from, and the epsilons the graph itself has."""
    state: dict[str, torch.Tensor] = {}
    origin: dict[str, str] = {}
    own: set[float] = set()
    for key, one in found.items():
        if one.norm is not None:
            own.add(one.norm.epsilon)
        if key.endswith("depthwise"):
            parts = _depthwise(key, one)
        else:
            kernel = one.kernel.permute(3, 2, 0, 1)
            if one.scale is not None:
                kernel = kernel * one.scale[:, None, None, None]
            norm = "/BatchNorm" if key.startswith("backbone.") else ""
            shift = torch.zeros(len(kernel)) if one.shift is None else one.shift
            parts = {f"{key}.weight": kernel, f"{key}{norm}.bias": shift}
        for name, tensor in parts.items():
            state[name] = tensor.float().clone().contiguous()
            origin[name] = one.name if name == f"{key}.weight" else f"after {one.node.name}"
    return state, origin, own


def _depthwise(key: str, one: Convolution) -> dict[str, torch.Tensor]:
    height, width, channels, times = one.kernel.shape
    norm = f"{key}/BatchNorm"
    if one.norm is None:
        ones, zeros = torch.ones(channels * times), torch.zeros(channels * times)
        gamma = ones if one.scale is None else one.scale
        beta = zeros if one.shift is None else one.shift
        # sqrt(1 - epsilon + epsilon) is 1: the layer multiplies and adds, and nothing else.
        mean, variance = zeros, ones - EPSILON
    else:
        # The graph's own epsilon, 0.001 as a rule, would be another one in the network.
        gamma, beta, mean = one.norm.gamma, one.norm.beta, one.norm.mean
        variance = one.norm.variance + (one.norm.epsilon - EPSILON)
    return {
        f"{key}.weight": one.kernel.permute(2, 3, 0, 1).reshape(-1, 1, height, width),
        f"{norm}.weight": gamma,
        f"{norm}.bias": beta,
        f"{norm}.running_mean": mean,
        f"{norm}.running_var": variance,
    }


def _check(
    state: Mapping[str, torch.Tensor],
    wanted: Mapping[str, torch.Tensor],
    origin: Mapping[str, str],
    where: str,
) -> None:
    for key, tensor in wanted.items():
        if key.endswith("num_batches_tracked"):
            continue
        if key not in state or state[key].shape != tensor.shape:
            held = tuple(state[key].shape) if key in state else "missing"
            raise MigrateError(
                f"{key} is {held} instead of {tuple(tensor.shape)} ({origin.get(key, '')})",
                where,
                "the graph is of another network than SSD-MobileNetV1",
            )


def _proofs(
    network: SSDMobileNetV1, nodes: Sequence[Node], found: Mapping[str, Convolution]
) -> list[Proof]:
    against = "the graph, run node by node"
    image = torch.rand((1, 3, SIZE, SIZE), generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        ours = network(image)
        run = GraphRun(
            nodes, {plain_name(found["backbone.0.0"].node.inputs[0]): image.permute(0, 2, 3, 1)}
        )
        try:
            theirs = [
                torch.cat([run.value(n).reshape(1, -1, ours[i].shape[2]) for n in names], 1)
                for i, names in enumerate(_outputs(found))
            ]
        except (MigrateError, RuntimeError) as error:
            reason = error.what if isinstance(error, MigrateError) else str(error)[:200]
            return [Proof.not_run(against, reason)]
    return [
        Proof.of(against, what, a, b, LIMIT)
        for what, a, b in zip(("boxes", "classes"), ours, theirs, strict=True)
    ]


def _outputs(found: Mapping[str, Convolution]) -> tuple[list[str], list[str]]:
    count = sum(key.endswith(".regression") for key in found)
    boxes, classes = (
        [found[f"predictors.{n}.{kind}"].last.name for n in range(count)]
        for kind in ("regression", "classification")
    )
    return boxes, classes


def _about_epsilon(own: set[float]) -> Finding:
    if own:
        text = ", ".join(f"{value:g}" for value in sorted(own))
        what = f"the graph's epsilon is {text}; the difference to {EPSILON:g} is in running_var"
    else:
        what = (
            "the graph's batch normalizations come to scales and biases, any epsilon inside of them"
        )
    return Finding(
        "info",
        what,
        "depthwise/BatchNorm",
        f"load it into nn.BatchNorm2d with its default epsilon, {EPSILON:g}",
    )
