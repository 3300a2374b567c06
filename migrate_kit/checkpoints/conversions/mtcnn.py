"""MTCNN, from any of the four forms its weights are published in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.conversion import Conversion
from migrate_kit.checkpoints.conversions.source_files import files_of, out_files
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.networks.mtcnn import MTCNN
from migrate_kit.checkpoints.proofs import mtcnn as proofs
from migrate_kit.checkpoints.proofs.file import prove_file
from migrate_kit.checkpoints.write import write_state_dict
from migrate_kit.errors import MigrateError, meant
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

NAMES = ("pnet", "rnet", "onet")
# The first convolution's filters tell which network a file is of.
_FILTERS = {10: "pnet", 28: "rnet", 32: "onet"}
# What the first fully connected layer flattens: channels, height, width.
_FLATTENED = {"features.conv4.weight": (64, 3, 3), "features.conv5.weight": (128, 3, 3)}


@dataclass(frozen=True)
class Original:
    """One network's arrays under the names of :mod:`networks.mtcnn`, laid out as they were.

    Attributes
    ----------
    form : str
        ``Caffe``, ``facenet``, ``TropComplique`` or ``facenet-pytorch``.
    arrays : dict of str to Tensor
    names : dict of str to str
        What each was called.
    path : Path
    unused : list of str
        What belongs to none of the network's layers.
    """

    form: str
    arrays: dict[str, torch.Tensor]
    names: dict[str, str]
    path: Path
    unused: list[str]


def convert(name: str, paths: Any, out: Any, reference: Any) -> Conversion:
    """Convert the three networks."""
    network = MTCNN().eval()
    originals = _originals(_given(paths, "paths="), network)
    files = dict(zip(NAMES, out_files(out, NAMES), strict=True))
    state: dict[str, torch.Tensor] = {}
    origin: dict[str, str] = {}
    findings: list[Finding] = []
    for part, original in originals.items():
        own = converted(original)
        _check_shapes(own, network.get_submodule(part).state_dict(), original)
        network.get_submodule(part).load_state_dict(own, strict=True)
        state |= {f"{part}.{key}": tensor for key, tensor in own.items()}
        origin |= {
            f"{part}.{key}": f"{original.names[key]} of {original.path.name} ({original.form})"
            for key in own
        }
        if original.unused:
            findings.append(
                Finding("info", f"not used: {few(original.unused)}", original.path.name)
            )
    found = proofs.prove(network, originals, _given(reference, "reference="))
    for part, path in files.items():
        own = network.get_submodule(part).state_dict()
        write_state_dict(own, path, format="torch-legacy")
        found.append(prove_file(own, path))
    return Conversion(
        name,
        network=network,
        state_dict=state,
        out=list(files.values()),
        proof=found,
        origin=origin,
        findings=findings,
    )


def converted(original: Original) -> dict[str, torch.Tensor]:
    """Return the arrays as :mod:`networks.mtcnn` has them."""
    turn = {
        "TropComplique": _as_it_is,
        "facenet-pytorch": _from_facenet_pytorch,
        "facenet": _from_facenet,
        "Caffe": _from_caffe,
    }[original.form]
    return {key: turn(key, x).clone().contiguous() for key, x in original.arrays.items()}


def _as_it_is(_key: str, x: torch.Tensor) -> torch.Tensor:
    return x


def _from_caffe(key: str, x: torch.Tensor) -> torch.Tensor:
    # Caffe's networks were trained on transposed images: height and width change places.
    if key.startswith("features.prelu"):
        return x.reshape(-1)
    if x.ndim == 4 and min(x.shape[:2]) > 1:
        return x.transpose(2, 3)
    # An old file writes a fully connected layer as 1 x 1 x outputs x inputs.
    return x.reshape(x.shape[-2:]) if x.ndim == 4 else x


def _from_facenet(key: str, x: torch.Tensor) -> torch.Tensor:
    # HWIO of the same, and a flattened (height, width, channel) in rows.
    if key in _FLATTENED and x.ndim == 2:
        return _channels_first(key, x.T)
    return x.permute(3, 2, 1, 0) if x.ndim == 4 else x.T if x.ndim == 2 else x


def _from_facenet_pytorch(key: str, x: torch.Tensor) -> torch.Tensor:
    return _channels_first(key, x) if key in _FLATTENED and x.ndim == 2 else x


def _channels_first(key: str, x: torch.Tensor) -> torch.Tensor:
    channels, height, width = _FLATTENED[key]
    if x.shape[1] != channels * height * width:
        return x  # The shape is refused by name afterwards.
    return x.reshape(-1, height, width, channels).permute(0, 3, 1, 2).reshape(len(x), -1)


def _given(paths: Any, argument: str) -> list[Path]:
    """Return the files; which network each is of, its shapes say."""
    if paths is None:
        return []
    if isinstance(paths, str | os.PathLike):
        paths = sorted(Path(paths).iterdir()) if Path(paths).is_dir() else [paths]
    if isinstance(paths, dict):
        for key in paths:
            if key not in NAMES:
                raise MigrateError(
                    f"no network {key!r}{meant(str(key), NAMES)}", argument, "pnet, rnet, onet"
                )
    return [Path(path) for path in files_of(paths, argument)]


def _originals(paths: Sequence[Path], network: MTCNN) -> dict[str, Original]:
    found: dict[str, Original] = {}
    for path in paths:
        if path.suffix == ".prototxt":
            continue
        part, original = _original(path, network)
        if part in found:
            raise MigrateError(
                f"two files of {part}", f"{found[part].path}, {path}", "pass one of each"
            )
        found[part] = original
    missing = [part for part in NAMES if part not in found]
    if missing:
        raise MigrateError(
            f"no weights of {', '.join(missing)}",
            "paths=",
            "pass three files: pnet.npy, rnet.npy, onet.npy, or det1 to det3, or a folder of them",
        )
    return {part: found[part] for part in NAMES}


def _original(path: Path, network: MTCNN) -> tuple[str, Original]:
    state = load_checkpoint(path).state_dict
    forms = {
        "features.conv1.weight": ("TropComplique", 0),
        "conv1.weights": ("facenet", 3),
        "conv1.weight": ("facenet-pytorch", 0),
    }
    first = next((key for key in forms if key in state), None)
    part = None
    if first is not None and len(state.entries[first].shape) == 4:
        part = _FILTERS.get(state.entries[first].shape[forms[first][1]])
    if first is None or part is None:
        raise MigrateError(
            f"no network of MTCNN: it holds {few(state)}",
            str(path),
            "pass pnet.npy, rnet.npy and onet.npy, det1 to det3 of facenet or Caffe, or the .pt of "
            "facenet-pytorch",
        )
    form = forms[first][0]
    if any("-" in key for key in state) and form == "facenet-pytorch":
        form = "Caffe"
    by_plain = {_plain(key): key for key in state}
    names = {}
    for key in network.get_submodule(part).state_dict():
        if _plain(key) not in by_plain:
            raise MigrateError(f"no {key} of {part}", str(path), f"the file holds {few(state, 6)}")
        names[key] = by_plain[_plain(key)]
    unused = [key for key in state if key not in set(names.values())]
    arrays = {key: state[name].float() for key, name in names.items()}
    return part, Original(form, arrays, names, path, unused)


def _plain(name: str) -> str:
    """Return a name without what the four forms spell differently."""
    name = name.lower().replace("-", "_").removeprefix("features.").replace("dense", "conv")
    for old, new in (("weights", "weight"), ("biases", "bias"), ("alpha", "weight")):
        name = name[: -len(old)] + new if name.endswith(f".{old}") else name
    return name


def _check_shapes(
    own: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor], original: Original
) -> None:
    for key, tensor in own.items():
        if tensor.shape != wanted[key].shape:
            raise MigrateError(
                f"{original.names[key]} would be {tuple(tensor.shape)} instead of "
                f"{tuple(wanted[key].shape)}",
                str(original.path),
                "the file is of another network than MTCNN",
            )
