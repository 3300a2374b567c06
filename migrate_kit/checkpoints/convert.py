"""Convert weights as their makers published them to a state_dict, and prove it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError, meant

if TYPE_CHECKING:
    import os

    from migrate_kit.checkpoints.conversion import Conversion

NETWORKS = ("yolov2", "yolov3", "mtcnn", "ssd_mobilenet_v1", "mobilenetv1")


def convert_weights(
    name: str,
    paths: Any,
    out: Any,
    cfg: str | os.PathLike[str] | None = None,
    *,
    epsilon: float | None = None,
    reference: Any = None,
) -> Conversion:
    r"""Convert a published network's weights to the state_dict that Cambricon's guide asks for.

    The network is run and compared with an independent execution of the original, where there is
    one: OpenCV's importers for Darknet and Caffe, ONNX Runtime for ``reference=``, the original's
    arrays in their own layout for MTCNN, the graph itself for SSD. Nothing of the files is run.

    Parameters
    ----------
    name : {"yolov2", "yolov3", "mtcnn", "ssd_mobilenet_v1", "mobilenetv1"}
        ``yolov2`` and ``yolov3`` are any network that a Darknet ``.cfg`` of their kind describes.
    paths : path, list or dict of paths
        ``.weights``; three files or their folder for MTCNN (``.npy``, ``.caffemodel``, ``.pt``);
        ``frozen_inference_graph.pb`` (not tried on the original file, of which no public copy could
        be had, but on a graph with its names and shapes); or a training checkpoint.
    out : path, list or dict of paths
        The file to write, in torch's old stream, which torch 1.3 reads as well; for MTCNN a folder
        or three files.
    cfg : path, optional
        Darknet's description of the network, by default the ``.cfg`` beside the weights.
    epsilon : float, optional
        For Darknet only, whose files do not say it: what batch normalizations add to the variance.
    reference : path, list or dict of paths, optional
        For MTCNN only: the same networks as ONNX, to compare with.

    Returns
    -------
    Conversion
        ``.network``, ``.state_dict``, ``.out``, ``.proof`` and ``.epsilon``.

    Raises
    ------
    MigrateError
        If the files do not belong together, are damaged, or are of another network.

    Examples
    --------
    >>> import pathlib, struct, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> text = "[net]\nchannels=1\nheight=2\nwidth=2\n[convolutional]\nactivation=linear\n"
    >>> _ = (folder / "tiny.cfg").write_text(text)
    >>> header = struct.pack("<3iq", 0, 2, 5, 64)
    >>> _ = (folder / "tiny.weights").write_bytes(header + struct.pack("<2f", 0.5, 2.0))
    >>> conversion = convert_weights("yolov3", folder / "tiny.weights", folder / "tiny.pth")
    >>> conversion.state_dict["models.0.conv1.weight"].item()
    2.0
    """
    known = _known(name)
    if known in ("yolov2", "yolov3"):
        from migrate_kit.checkpoints.conversions import darknet

        _only(known, reference=reference)
        return darknet.convert(known, paths, out, cfg, epsilon)
    _only(known, cfg=cfg, epsilon=epsilon, reference=None if known == "mtcnn" else reference)
    if known == "mtcnn":
        from migrate_kit.checkpoints.conversions import mtcnn

        return mtcnn.convert(known, paths, out, reference)
    if known == "ssd_mobilenet_v1":
        from migrate_kit.checkpoints.conversions import ssd_mobilenet_v1

        return ssd_mobilenet_v1.convert(known, paths, out)
    from migrate_kit.checkpoints.conversions import mobilenet_v1

    return mobilenet_v1.convert(known, paths, out)


def _known(name: str) -> str:
    """Return the network meant: the guide writes YOLOv2 and SSD MobilenetV1."""
    squeezed = "".join(c for c in str(name).lower() if c.isalnum())
    for network in NETWORKS:
        if network.replace("_", "") == squeezed:
            return network
    raise MigrateError(
        f"no network {name!r}{meant(str(name), NETWORKS)}",
        "convert_weights()",
        f"choose one of: {', '.join(NETWORKS)}",
    )


def _only(name: str, **arguments: object) -> None:
    for key, value in arguments.items():
        if value is not None:
            raise MigrateError(f"{name} takes no {key}", f"{key}=", "leave it out")
