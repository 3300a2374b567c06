"""MTCNN's three networks, for an image as it is: not transposed, as Caffe's need it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from migrate_kit.checkpoints.networks.mtcnn_cascade import Faces


class _Flatten(nn.Module):
    """Flatten in the order of Caffe's transposed image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(3, 2).flatten(1)


def _features(layers: dict[str, nn.Module]) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


class PNet(nn.Module):
    """The proposal network: every 12 x 12 window of an image.

    The names of its parameters are those of TropComplique's mtcnn-pytorch, whose pnet.npy the
    vendor's guide converts.
    """

    size = 12

    def __init__(self) -> None:
        super().__init__()
        self.features = _features(
            {
                "conv1": nn.Conv2d(3, 10, 3),
                "prelu1": nn.PReLU(10),
                "pool1": nn.MaxPool2d(2, 2, ceil_mode=True),
                "conv2": nn.Conv2d(10, 16, 3),
                "prelu2": nn.PReLU(16),
                "conv3": nn.Conv2d(16, 32, 3),
                "prelu3": nn.PReLU(32),
            }
        )
        self.conv4_1 = nn.Conv2d(32, 2, 1)
        self.conv4_2 = nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the offsets of each window's box, and the probabilities of no face and a face.

        Parameters
        ----------
        x : Tensor
            ``(b, 3, height, width)``, RGB, ``(value - 127.5) / 128``.
        """
        x = self.features(x)
        return self.conv4_2(x), self.conv4_1(x).softmax(1)


class RNet(nn.Module):
    """The refinement network: one 24 x 24 candidate."""

    size = 24

    def __init__(self) -> None:
        super().__init__()
        self.features = _features(
            {
                "conv1": nn.Conv2d(3, 28, 3),
                "prelu1": nn.PReLU(28),
                "pool1": nn.MaxPool2d(3, 2, ceil_mode=True),
                "conv2": nn.Conv2d(28, 48, 3),
                "prelu2": nn.PReLU(48),
                "pool2": nn.MaxPool2d(3, 2, ceil_mode=True),
                "conv3": nn.Conv2d(48, 64, 2),
                "prelu3": nn.PReLU(64),
                "flatten": _Flatten(),
                "conv4": nn.Linear(576, 128),
                "prelu4": nn.PReLU(128),
            }
        )
        self.conv5_1 = nn.Linear(128, 2)
        self.conv5_2 = nn.Linear(128, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the offsets of each box, and the two probabilities."""
        x = self.features(x)
        return self.conv5_2(x), self.conv5_1(x).softmax(1)


class ONet(nn.Module):
    """The output network: one 48 x 48 candidate, with five points of the face."""

    size = 48

    def __init__(self) -> None:
        super().__init__()
        self.features = _features(
            {
                "conv1": nn.Conv2d(3, 32, 3),
                "prelu1": nn.PReLU(32),
                "pool1": nn.MaxPool2d(3, 2, ceil_mode=True),
                "conv2": nn.Conv2d(32, 64, 3),
                "prelu2": nn.PReLU(64),
                "pool2": nn.MaxPool2d(3, 2, ceil_mode=True),
                "conv3": nn.Conv2d(64, 64, 3),
                "prelu3": nn.PReLU(64),
                "pool3": nn.MaxPool2d(2, 2, ceil_mode=True),
                "conv4": nn.Conv2d(64, 128, 2),
                "prelu4": nn.PReLU(128),
                "flatten": _Flatten(),
                "conv5": nn.Linear(1152, 256),
                "drop5": nn.Dropout(0.25),
                "prelu5": nn.PReLU(256),
            }
        )
        self.conv6_1 = nn.Linear(256, 2)
        self.conv6_2 = nn.Linear(256, 4)
        self.conv6_3 = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the points (five x, then five y), the offsets, and the two probabilities."""
        x = self.features(x)
        return self.conv6_3(x), self.conv6_2(x), self.conv6_1(x).softmax(1)


class MTCNN(nn.Module):
    """All three networks."""

    def __init__(self) -> None:
        super().__init__()
        self.pnet, self.rnet, self.onet = PNet(), RNet(), ONet()

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the proposal network returns; :meth:`detect` runs the whole cascade."""
        return self.pnet(image)  # type: ignore[no-any-return]

    def detect(self, image: object, **settings: float) -> Faces:
        """Find faces; see :func:`migrate_kit.checkpoints.networks.mtcnn_cascade.detect_faces`."""
        from migrate_kit.checkpoints.networks.mtcnn_cascade import detect_faces

        return detect_faces(self, image, **settings)
