"""A commented migration.toml to start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.errors import MigrateError
from migrate_kit.files import write_text
from migrate_kit.migration import FILE_NAME

if TYPE_CHECKING:
    import os

# It must open and run as it stands: whoever changes one line at a time always knows which line
# broke it. A test opens it.
TEMPLATE = """\
# What migrate-kit needs to know about your model. Paths start at this file's folder.
# Every notebook opens it with mk.open_project(); check it with: migrate-kit project

name = "my model"

[model]
# A function or class that returns the network: "module:function" or "package.function".
# This file's folder is searched first, so "net:build" is build() in net.py beside this file.
builder = "torchvision.models:resnet18"
# Its keyword arguments, if it takes any:
# kwargs = { num_classes = 10 }
# A state_dict (.pth, .pt, .bin) or .safetensors file. Nothing in it is run.
# weights = "weights.pth"
# If the builder loads the weights itself, the name of its argument that takes the path:
# weights_argument = "checkpoint"

# One [[inputs]] for each argument of forward(), in order. Random numbers will do to compare layers:
[[inputs]]
shape = [1, 3, 224, 224]
dtype = "float32"
seed = 0
# low = 0.0    # with both: uniform instead of normal; whole-number dtypes need high
# high = 1.0

# A photograph is better: a wrong label is seen at once.
# [[inputs]]
# image = "cat.jpg"
# resize = 256                     # the shorter side, or [height, width]
# crop = 224                       # from the centre
# interpolation = "bilinear"       # nearest, box, bilinear, hamming, bicubic, lanczos
# color = "RGB"                    # RGB, BGR, L
# range = "0..1"                   # 0..1, 0..255; before mean and std
# mean = [0.485, 0.456, 0.406]
# std = [0.229, 0.224, 0.225]

# Or an array that numpy.save wrote:
# [[inputs]]
# npy = "input.npy"

# [labels]
# file = "labels.txt"              # one label a line, or a .json list
# list = ["cat", "dog"]            # or the labels themselves

[target]
name = "ascend910b"
"""


def write_template(path: str | os.PathLike[str] = FILE_NAME) -> Path:
    """Write a commented migration.toml and return its path; an existing file is kept.

    Parameters
    ----------
    path : path
        The file, or the folder to put migration.toml in.

    Raises
    ------
    MigrateError
        If the file is there already or cannot be written.
    """
    file = Path(path)
    if file.is_dir():
        file /= FILE_NAME
    if file.exists():
        raise MigrateError("there is a file already", str(file), "edit it, or name another file")
    write_text(file, TEMPLATE)
    return file
