"""Run MTCNN's originals without the converted network."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from migrate_kit.checkpoints.proofs.measured import Proof
from migrate_kit.checkpoints.proofs.mtcnn_arrays import run_arrays
from migrate_kit.checkpoints.proofs.opencv import exactly, opencv
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from migrate_kit.checkpoints.conversions.mtcnn import Original
    from migrate_kit.checkpoints.networks.mtcnn import MTCNN

# A kernel in the wrong layout is off by 0.07 and more, rounding by 1e-6.
LIMIT = 1e-5
_MOST_REFERENCE = 100_000_000


def prove(
    network: MTCNN, originals: Mapping[str, Original], reference: Sequence[Path]
) -> list[Proof]:
    """Compare each network's outputs with what its original makes of the same image."""
    sessions = [_session(path) for path in reference]
    proofs = []
    for part, original in originals.items():
        net: Any = network.get_submodule(part)
        height, width = (40, 52) if part == "pnet" else (net.size, net.size)
        generator = torch.Generator().manual_seed(0)
        image = torch.rand((2, 3, height, width), generator=generator) * 2 - 1
        with torch.no_grad():
            ours = net(image)
        theirs = run_arrays(original.form, original.arrays, part, image.numpy())
        name = f"NumPy in the layout of {original.form}"
        proofs += _compared(name, part, ours, theirs)
        if original.form == "Caffe":
            proofs += _by_opencv(part, original.path, image, ours)
        proofs += _by_onnx(part, sessions, image, ours)
    return proofs


def _compared(
    name: str, part: str, ours: Sequence[torch.Tensor], theirs: Sequence[Any]
) -> list[Proof]:
    outputs = ("points", "offsets", "probabilities")[-len(ours) :]
    return [
        Proof.of(name, f"{part} {what}", a, torch.from_numpy(np.ascontiguousarray(b)), LIMIT)
        for what, a, b in zip(outputs, ours, theirs, strict=True)
    ]


def _by_opencv(
    part: str, path: Path, image: torch.Tensor, ours: Sequence[torch.Tensor]
) -> list[Proof]:
    cv2, name = opencv("readNetFromCaffe")
    prototxt = path.with_suffix(".prototxt")
    if cv2 is None or not prototxt.is_file():
        why = name if cv2 is None else f"no {prototxt.name} beside {path.name}"
        return [Proof.not_run("OpenCV", why)]
    try:
        net = cv2.dnn.readNetFromCaffe(str(prototxt), str(path))
        exactly(net)
        net.setInput(image.transpose(2, 3).contiguous().numpy())
        names = sorted(net.getUnconnectedOutLayersNames())
        found = [np.asarray(output) for output in net.forward(names)]
    except cv2.error as error:
        text = str(error).strip().splitlines()[-1][:200]
        return [Proof.not_run(name, f"it does not read these files: {text}")]
    return _matched(name, part, ours, [_swapped(output) for output in found])


def _by_onnx(
    part: str, sessions: Sequence[Any], image: torch.Tensor, ours: Sequence[torch.Tensor]
) -> list[Proof]:
    proofs = []
    for file, session in sessions:
        given = session.get_inputs()[0]
        last = given.shape[-1] == 3
        sides = given.shape[1:3] if last else given.shape[2:]
        outputs = session.get_outputs()
        fixed = {side for side in sides if isinstance(side, int)}
        if fixed != (set() if part == "pnet" else {image.shape[2]}):
            continue
        best: list[Proof] = []
        for turned in (False, True):
            x = image.transpose(2, 3) if turned else image
            x = x.permute(0, 2, 3, 1) if last else x
            rows = [
                session.run([o.name for o in outputs], {given.name: one.numpy()[None]})
                for one in x.contiguous()
            ]
            found = [np.concatenate(column) for column in zip(*rows, strict=True)]
            found = [f.transpose(0, 3, 1, 2) if last and f.ndim == 4 else f for f in found]
            found = [_swapped(f) for f in found] if turned else found
            tried = _matched(f"ONNX Runtime, {file}", part, ours, found)
            if not best or max(p.difference for p in tried) < max(p.difference for p in best):
                best = tried
        proofs += best
    return proofs


def _session(path: Path) -> tuple[str, Any]:
    if find_spec("onnxruntime") is None:
        raise MigrateError(
            "ONNX Runtime is not installed",
            "reference=",
            "pip install onnxruntime, or leave it out",
        )
    import onnxruntime as ort

    try:
        if path.stat().st_size > _MOST_REFERENCE:
            raise MigrateError(
                "no network of MTCNN is so large", str(path), "pass pnet, rnet, onet"
            )
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except MigrateError:
        raise
    except Exception as error:  # its errors share no base
        raise MigrateError(
            f"ONNX Runtime cannot read it: {str(error)[:200]}", str(path), "pass .onnx files"
        ) from error
    return path.name, session


def _swapped(output: Any) -> Any:
    return output.transpose(0, 1, 3, 2) if output.ndim == 4 else output


def _matched(
    name: str, part: str, ours: Sequence[torch.Tensor], found: Sequence[Any]
) -> list[Proof]:
    """Put outputs into our order by their number of channels: 10 points, 4 offsets, 2 classes."""
    by_channels = {output.shape[1]: output for output in found}
    theirs = [by_channels.get(a.shape[1], np.empty(0, np.float32)) for a in ours]
    return _compared(name, part, ours, theirs)
