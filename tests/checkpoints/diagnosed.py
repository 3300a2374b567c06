"""Networks that the tests of the diagnosis take apart."""

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from migrate_kit.checkpoints.state import Entry, StateDict


def small(classes=10):
    """A convolution, BatchNorm and a linear layer: every usual kind of tensor."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, classes)
    )


def randomized(model, seed=0):
    """Give every parameter and buffer a value of its own, so that no wrong mapping passes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            if not tensor.is_floating_point():
                continue
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2, generator=generator)
            elif tensor.ndim < 2:
                tensor.normal_(1, 0.3, generator=generator)
            else:
                tensor.normal_(0, tensor[0].numel() ** -0.5, generator=generator)
    return model.eval()


def apart(one, other, *inputs):
    """Return the largest difference of two networks' outputs."""
    with torch.no_grad():
        return float((one.eval()(*inputs) - other.eval()(*inputs)).abs().max())


def unreadable(state):
    """Return a state_dict of names, shapes and dtypes whose tensors cannot be read."""

    def refuse():
        raise AssertionError("a tensor was read")

    return StateDict({k: Entry(tuple(v.shape), v.dtype, refuse) for k, v in state.items()})


class Conv1D(nn.Module):
    """GPT-2's linear layer: its weight is (in, out)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class GPTBlock(nn.Module):
    def __init__(self, width, linear):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict(
            {"c_attn": linear(width, 3 * width), "c_proj": linear(width, width)}
        )
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(
            {"c_fc": linear(width, 4 * width), "c_proj": linear(4 * width, width)}
        )

    def forward(self, x):
        q, k, v = self.attn["c_attn"](self.ln_1(x)).chunk(3, -1)
        x = x + self.attn["c_proj"](functional.scaled_dot_product_attention(q, k, v))
        return x + self.mlp["c_proj"](functional.gelu(self.mlp["c_fc"](self.ln_2(x))))


class GPT(nn.Module):
    """A small GPT-2 with its head tied to its embedding."""

    def __init__(self, linear=nn.Linear, positions=9, tied=True, width=16):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(50, width),
                "wpe": nn.Embedding(positions, width),
                "h": nn.ModuleList(GPTBlock(width, linear) for _ in range(2)),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, 50, bias=False)
        if tied:
            self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1]))
        for block in t["h"]:
            x = block(x)
        return self.lm_head(t["ln_f"](x))


class Separate(nn.Module):
    """Attention with q, k and v apart."""

    def __init__(self, width=8):
        super().__init__()
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.out_proj(functional.scaled_dot_product_attention(q, k, v))


class Fused(nn.Module):
    """Attention with q, k and v in one, as timm has it."""

    def __init__(self, width=8):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.proj(functional.scaled_dot_product_attention(q, k, v))


class Multihead(nn.Module):
    """PyTorch's own attention."""

    def __init__(self, width=8):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, 1, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x, need_weights=False)[0]


class Spelt(nn.Module):
    """A network whose layers have any names and are registered in any order.

    ``layers`` are (kind, width in, width out), in the order in which they run; two linear layers in
    a row may run side by side, one as the gate of the other.
    """

    KINDS: ClassVar = {
        "linear": nn.Linear,
        "bare": lambda i, o: nn.Linear(i, o, bias=False),
        "bn": lambda _, o: nn.BatchNorm1d(o),
        "ln": lambda _, o: nn.LayerNorm(o),
    }

    def __init__(self, layers, names, order, gates=()):
        super().__init__()
        self.layers, self.names, self.gates = layers, names, gates
        for i in order:
            kind, inputs, outputs = layers[i]
            *way, last = names[i].split(".")
            at = self
            for part in way:
                if part not in at._modules:
                    at.add_module(part, nn.Module())
                at = at._modules[part]
            at.add_module(last, self.KINDS[kind](inputs, outputs))

    def forward(self, x):
        called = [self.get_submodule(name) for name in self.names]
        i = 0
        while i < len(called):
            if i in self.gates:
                x = torch.tanh(called[i](x)) * torch.sigmoid(called[i + 1](x))
                i += 2
                continue
            y = called[i](x)
            x = torch.nn.functional.leaky_relu(y) + (x if x.shape == y.shape else 0)
            i += 1
        return x
