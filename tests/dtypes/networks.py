"""Small networks of the kinds that people port, and the operators they call."""

from functools import partial

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):
    """Collect every operator with the dtypes of its tensors."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = []

        def walk(value):
            if isinstance(value, torch.Tensor | torch.dtype):
                dtype = value if isinstance(value, torch.dtype) else value.dtype
                found.append(str(dtype).removeprefix("torch."))
            elif isinstance(value, list | tuple):
                for item in value:
                    walk(item)

        walk(args)
        walk(list((kwargs or {}).values()))
        if func.namespace in ("aten", "torchvision"):
            self.seen.add((str(func), tuple(found)))
        return func(*args, **(kwargs or {}))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(40, 16), nn.Embedding(12, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.layers, self.norm = nn.TransformerEncoder(layer, 1), nn.LayerNorm(16)
        self.head = nn.Linear(16, 2)

    def forward(self, ids):
        x = self.norm(self.token(ids) + self.place(torch.arange(ids.shape[1])))
        return self.head(torch.tanh(self.layers(x, src_key_padding_mask=ids == 0)[:, 0]))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.low = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        a = functional.leaky_relu(self.norm(self.down(x)), 0.1)
        b = functional.silu(self.low(functional.max_pool2d(a, 1)))
        c = functional.interpolate(b, scale_factor=2, mode="bilinear")[:, :4] + self.up(b)
        return self.out(torch.cat([a, c], 1))


class Decoder(nn.Module):
    """With rotary positions, as complex numbers or as sines and cosines."""

    def __init__(self, rotate):
        super().__init__()
        self.token, self.qkv = nn.Embedding(40, 16), nn.Linear(16, 48, bias=False)
        self.rotate, self.weight = rotate, nn.Parameter(torch.ones(16))

    def forward(self, ids):
        x = self.token(ids)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, 2, 8).transpose(1, 2) for t in self.qkv(x).split(16, -1))
        q, k = self.rotate(q), self.rotate(k)
        a = (q @ k.transpose(-1, -2) / 8**0.5 + torch.full((n, n), -1e9).triu(1)).softmax(-1)
        return (a @ v).transpose(1, 2).reshape(b, n, 16) @ self.token.weight.t()


def angles(n, d):
    return torch.outer(torch.arange(n).float(), 1 / 10000 ** (torch.arange(0, d, 2).float() / d))


def rope_complex(x):
    angle = angles(*x.shape[-2:])
    turn = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2).type_as(x)


def rope_real(x):
    angle = angles(*x.shape[-2:]).repeat(1, 2)
    a, b = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-b, a], -1) * angle.sin()


def _train(model, inputs, loss):
    for make in (partial(torch.optim.SGD, lr=0.1, momentum=0.9), torch.optim.AdamW):
        step = make(model.parameters())
        loss(model(*inputs)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step.step()
        step.zero_grad()


def _detect():
    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 5.0, 5.0], [9.0, 9.0, 12.0, 12.0]])
    scores = torch.tensor([0.9, 0.8, 0.7])
    keep = torchvision.ops.batched_nms(boxes, scores, torch.tensor([0, 0, 1]), 0.5)
    best, _ = scores[keep].topk(2)
    torchvision.ops.roi_align(torch.randn(1, 2, 16, 16), [boxes], 2)
    return best


def calls(name):
    """Return every (operator, dtypes) of one network, forward and backward."""
    torch.manual_seed(0)
    labels, ids = torch.tensor([0, 1]), torch.randint(1, 40, (2, 6))
    images = torch.randn(2, 3, 32, 32)
    classes = partial(functional.cross_entropy, target=labels)
    lm = nn.CrossEntropyLoss()
    build = {
        "resnet": lambda: (torchvision.models.resnet18(), (images,), classes),
        "efficientnet": lambda: (torchvision.models.efficientnet_b0(), (images,), classes),
        "vit": lambda: (
            torchvision.models.VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=4),
            (images,),
            classes,
        ),
        "encoder": lambda: (Encoder(), (ids,), classes),
        "lstm": lambda: (
            nn.LSTM(4, 8, 2, batch_first=True, bidirectional=True),
            (torch.randn(2, 5, 4),),
            lambda y: y[0].pow(2).mean(),
        ),
        "unet": lambda: (
            UNet(),
            (images,),
            lambda y: functional.binary_cross_entropy_with_logits(y, torch.zeros_like(y)),
        ),
        "decoder": lambda: (
            Decoder(rope_real), (ids,), lambda y: lm(y.flatten(0, 1), ids.flatten())
        ),
        "decoder with complex rope": lambda: (
            Decoder(rope_complex), (ids,), lambda y: lm(y.flatten(0, 1), ids.flatten())
        ),
    }  # fmt: skip
    with Calls() as recorded:
        if name == "detection":
            _detect()
        else:
            _train(*build[name]())
    return recorded.seen


NAMES = (
    "resnet",
    "efficientnet",
    "vit",
    "encoder",
    "lstm",
    "unet",
    "decoder",
    "decoder with complex rope",
    "detection",
)
