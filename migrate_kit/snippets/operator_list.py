"""List the ATen operators that a PyTorch model runs, with dtypes, shapes and calls, as CSV.

Needs only torch. It is the list to hand in for an operator pre-assessment:
python operator_list.py torchvision.models:resnet18 1x3x224x224
python operator_list.py my_package.net:build 2x16:int64 --backward --out operators.csv

The function returns a model, or a model and its inputs: then no shapes are needed. Attention is
listed under the name of the CPU's own kernel, and with --backward the loss is the mean of squares.
"""

import argparse
import csv
import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

HEAD = ("operator", "dtypes", "shapes", "results", "calls")


class Operators(TorchDispatchMode):
    """Count every operator by the dtypes and shapes of its tensors, in the order of first calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[tuple[str, str, str, str]] = Counter()

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        given = tensors((args, kwargs))
        shapes = " ".join("x".join(map(str, t.shape)) or "scalar" for t in given)
        self.calls[str(func), dtypes(given), shapes, dtypes(tensors(result))] += 1
        return result


def tensors(value: object) -> list[torch.Tensor]:
    """Return the tensors in lists, tuples and dicts."""
    return [t for t in tree_flatten(value)[0] if isinstance(t, torch.Tensor)]


def dtypes(values: list[torch.Tensor]) -> str:
    """Return their dtypes as words."""
    return " ".join(str(t.dtype).replace("torch.", "") for t in values)


def operator_list(
    model: torch.nn.Module, *inputs: torch.Tensor, backward: bool = False
) -> list[tuple[str, str, str, str, int]]:
    """Run the model once and return the rows; ``backward`` leaves no gradients behind."""
    # One kernel of the CPU for a whole encoder layer would hide what another device has to run.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with Operators() as seen, torch.set_grad_enabled(backward):
            outputs = [t for t in tensors(model(*inputs)) if t.is_floating_point()]
            if backward:
                torch.stack([t.square().mean().float() for t in outputs]).sum().backward()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    if backward:
        model.zero_grad()
    return [(*key, calls) for key, calls in seen.calls.items()]


def example(text: str) -> torch.Tensor:
    """Return an input of a shape such as ``1x3x224x224`` or ``2x16:int64``."""
    shape, _, name = text.partition(":")
    dtype = getattr(torch, name or "float32")
    size = [int(n) for n in shape.split("x")]
    random = dtype.is_floating_point or dtype.is_complex
    return torch.randn(size, dtype=dtype) if random else torch.ones(size, dtype=dtype)


def main() -> None:
    """Build the model, run it and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("builder", metavar="package.module:function")
    parser.add_argument("shapes", nargs="*", help="of the inputs: 1x3x224x224 or 2x16:int64")
    parser.add_argument("--backward", action="store_true", help="the operators of training too")
    parser.add_argument("--out", type=Path, default=Path("operators.csv"))
    asked = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    module, _, function = asked.builder.partition(":")
    built = getattr(importlib.import_module(module), function)()
    model, inputs = built if isinstance(built, tuple) else (built, ())
    inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    inputs = [example(text) for text in asked.shapes] or inputs
    rows = operator_list(model.train(asked.backward), *inputs, backward=asked.backward)
    with asked.out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])
    print(f"{len(rows)} rows, {sum(row[-1] for row in rows)} calls: {asked.out}")


if __name__ == "__main__":
    main()
