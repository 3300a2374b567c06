"""Turn PyTorch weights into a MindSpore checkpoint, and check that MindSpore reads it back.

Needs only torch and mindspore:
python pth2ckpt.py --pth net.pth --ckpt net.ckpt --network mymodels:resnet50 --dtype float16

--network names a function (or class) that builds the PyTorch network: its layers' types tell a
LayerNorm from a BatchNorm and an Embedding from a Linear. Without it the names and shapes have to
do, and what they do not tell is printed. The whole file is in memory while it is converted.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Errors only; MindSpore reads it when it is imported.
os.environ.setdefault("GLOG_v", "3")

import mindspore
import torch

DTYPES = {
    "float16": mindspore.float16,
    "bfloat16": mindspore.bfloat16,
    "float32": mindspore.float32,
}
NORM = {"weight": "gamma", "bias": "beta"}
BATCH = {**NORM, "running_mean": "moving_mean", "running_var": "moving_variance"}
NN = torch.nn
# The nearest of a layer's classes decides.
LAYERS: dict[type, dict[str, str]] = {
    NN.BatchNorm3d: {old: f"bn2d.{new}" for old, new in BATCH.items()},
    NN.modules.batchnorm._BatchNorm: BATCH,  # noqa: SLF001
    NN.modules.instancenorm._InstanceNorm: BATCH,  # noqa: SLF001
    NN.LayerNorm: NORM,
    NN.GroupNorm: NORM,
    NN.Embedding: {"weight": "embedding_table"},
    NN.EmbeddingBag: {"weight": "embedding_table"},
    NN.PReLU: {"weight": "w"},
}
# MindSpore's transformer layers call two of their children otherwise.
CHILDREN = {"linear1": "dense1", "linear2": "dense2"}


def read(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a .pth: a state_dict, or a training checkpoint with one inside."""
    held = torch.load(path, map_location="cpu", weights_only=True)
    inside = [held] + [held[k] for k in ("state_dict", "model", "net", "ema") if k in held]
    found = max(inside, key=lambda d: sum(map(torch.is_tensor, getattr(d, "values", list)())))
    state = {str(k): v.detach() for k, v in found.items() if torch.is_tensor(v)}
    if not state:
        sys.exit(f"{path} holds no state_dict")
    while all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): v for name, v in state.items()}
    return state


def by_type(network: Any, state: dict[str, torch.Tensor]) -> Iterator[tuple[str, str, bool]]:
    """Yield each tensor's name, its name in MindSpore, and whether it gets a fourth dimension."""
    layers = dict(network.named_modules(remove_duplicate=False))
    for name in state:
        path, _, leaf = name.rpartition(".")
        if path not in layers:
            sys.exit(f"{name} is not in the network")
        kinds = type(layers[path]).__mro__
        names = next((LAYERS[kind] for kind in kinds if kind in LAYERS), {})
        parts = path.split(".") if path else []
        for i in range(len(parts)):
            parent = layers[".".join(path.split(".")[:i])]
            if isinstance(parent, NN.TransformerEncoderLayer | NN.TransformerDecoderLayer):
                parts[i] = CHILDREN.get(parts[i], parts[i])
        wide = bool({NN.Conv1d, NN.ConvTranspose1d} & set(kinds)) and leaf == "weight"
        yield name, ".".join([*parts, names.get(leaf, leaf)]), wide


def by_name(state: dict[str, torch.Tensor]) -> Iterator[tuple[str, str, bool]]:
    """Do as by_type() does with names and shapes alone, and print what they do not tell."""
    for name, tensor in state.items():
        path, _, leaf = name.rpartition(".")
        dot = f"{path}." if path else ""
        weight, bias = (state.get(dot + end) for end in ("weight", "bias"))
        norm = weight is not None and bias is not None and weight.shape == bias.shape
        names = BATCH if f"{dot}running_mean" in state else NORM if norm else {}
        if leaf == "weight" and not names and (tensor.ndim in (1, 3) or bias is None):
            print(f"unsure without --network: {name} {tuple(tensor.shape)}, kept as it is")
        yield name, dot + names.get(leaf, leaf), False


def convert(tensor: torch.Tensor, dtype: str | None, *, wide: bool) -> Any:
    """Return MindSpore's tensor of the same values."""
    floating = tensor.is_floating_point()
    kind = dtype if dtype and floating else str(tensor.dtype).removeprefix("torch.")
    values = tensor.to(getattr(torch, kind))
    lost = int(torch.isfinite(tensor).sum() - torch.isfinite(values).sum()) if floating else 0
    if lost:
        print(f"{lost} values are too large for {kind} and are now infinite")
    if kind == "bfloat16":  # NumPy has none; float32 holds each of its values exactly
        values = values.float()
    values = values.unsqueeze(2) if wide else values
    target = DTYPES.get(kind)
    # Its own copy: numpy() would share torch's memory.
    return mindspore.Tensor(values.contiguous().numpy().copy(), target)


def main() -> None:
    """Convert, save, and read back."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--pth", type=Path, required=True)
    parser.add_argument("--ckpt", type=Path, required=True, help="ends in .ckpt")
    parser.add_argument("--network", metavar="MODULE:FUNCTION", help="builds the PyTorch network")
    parser.add_argument("--dtype", choices=DTYPES, help="of the floating-point tensors")
    given = parser.parse_args()
    state = read(given.pth)
    if given.network:
        module, _, function = given.network.partition(":")
        sys.path.insert(0, str(Path.cwd()))
        with torch.device("meta"):  # only its types are asked for
            network = getattr(importlib.import_module(module), function)()
        moves = list(by_type(network, state))
    else:
        moves = list(by_name(state))
    # MindSpore counts no batches.
    moves = [move for move in moves if not move[0].endswith("num_batches_tracked")]
    if len({new for _, new, _ in moves}) < len(moves):
        sys.exit("two tensors would have one name: give --network")
    saved = [
        {"name": new, "data": convert(state[name], given.dtype, wide=wide)}
        for name, new, wide in moves
    ]
    if given.ckpt.exists():
        given.ckpt.chmod(0o600)  # MindSpore leaves its files read-only
    mindspore.save_checkpoint(saved, str(given.ckpt))
    back = mindspore.load_checkpoint(str(given.ckpt))
    for entry in saved:
        read_back = back[entry["name"]]
        if read_back.shape != entry["data"].shape or read_back.dtype != entry["data"].dtype:
            sys.exit(f"{entry['name']} came back as {read_back.shape}, {read_back.dtype}")
    print(f"""{given.ckpt}: {len(saved)} of {len(state)} tensors. Load them, and go on training:

    parameters = mindspore.load_checkpoint("{given.ckpt.name}")
    missing, unused = mindspore.load_param_into_net(net, parameters)
    assert not missing and not unused, (missing, unused)  # it raises for neither
    net.set_train()
    optimizer = mindspore.nn.SGD(net.trainable_params(), learning_rate=0.01)
    gradients = mindspore.value_and_grad(
        lambda x, y: loss(net(x), y), None, optimizer.parameters
    )
    value, found = gradients(x, y)
    optimizer(found)""")


if __name__ == "__main__":
    main()
