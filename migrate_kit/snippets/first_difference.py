"""Find the first layer of two PyTorch models that differs by more than rounding.

Needs only torch. Put your two models and an input at the bottom, then: python first_difference.py

Each leaf's difference is divided by what float32 rounding does to that very layer, measured by a
float64 run of the first model: up to 2 is the same arithmetic, above 8 the layers differ.
"""

import copy
import math
from collections.abc import Callable, Iterator

import torch


def tensors(value: object, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what a layer returned, tensor by tensor: ``lstm[0]``, ``head['box']``."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from tensors(item, f"{path}[{index}]")


def outputs(model: torch.nn.Module, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Run the model once; return {"name" or "name#1" at a second call: float64 copy}."""
    found: dict[str, torch.Tensor] = {}
    handles = []

    def hook(name: str) -> Callable[[object, object, object], None]:
        def keep(_module: object, _inputs: object, output: object) -> None:
            for path, tensor in tensors(output, name):
                calls = sum(key.split("#")[0] == path for key in found)
                # A copy: the next layer may change this tensor in place.
                found[f"{path}#{calls}" if calls else path] = tensor.detach().double().clone()

        return keep

    for name, module in model.named_modules():
        leaf = next(module.children(), None) is None
        owns = next(module.parameters(recurse=False), None) is not None
        if name and (leaf or owns):
            handles.append(module.register_forward_hook(hook(name)))
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def first_difference(
    reference: torch.nn.Module, candidate: torch.nn.Module, *inputs: torch.Tensor
) -> str | None:
    """Print one line a layer; return the name of the first that differs, or None."""
    ours, theirs = outputs(reference, *inputs), outputs(candidate, *inputs)
    exact = outputs(
        copy.deepcopy(reference).double(),
        *(x.double() if x.is_floating_point() else x for x in inputs),
    )
    first = None
    for name, a in ours.items():
        b = theirs.get(name)
        if b is None or a.shape != b.shape:
            print(f"{name:40} no counterpart of the same shape")
            continue
        rounding = max((a - exact[name]).norm().item(), 2.0**-24 * a.norm().item())
        apart = (b - a).norm().item()
        # An all-zero tensor rounds to nothing: any difference there is a difference.
        ratio = apart / rounding if rounding else (math.inf if apart else 0.0)
        # A NaN in one run only makes the ratio NaN, which is not <= 8.
        verdict = "same" if ratio <= 2 else "look" if ratio <= 8 else "differs"
        if verdict == "differs" and first is None:
            first = name
        print(f"{name:40} R = {ratio:10.3g}  {verdict}")
    return first


def example(eps: float) -> torch.nn.Module:
    """Build the network of the example; put your own here."""
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(8, eps=eps)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), norm, torch.nn.ReLU()).eval()


if __name__ == "__main__":
    # 1e-3 is another framework's default eps.
    found = first_difference(example(1e-5), example(1e-3), torch.randn(1, 3, 16, 16))
    print("first difference:", found)
