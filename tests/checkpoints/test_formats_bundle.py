"""TensorFlow's checkpoints, against a writer of the tests' own."""

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.formats import sstable, tensor_bundle
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.errors import MigrateError
from tests.checkpoints import bases
from tests.checkpoints.schemas import tensorflow

INDEX, DATA = "model.ckpt.index", "model.ckpt.data-00000-of-00001"
END = ".ATTRIBUTES/VARIABLE_VALUE"


def put(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content)


def read(path):
    source = Source(path)
    assert tensor_bundle.recognises(source)
    return tensor_bundle.read(source)


def some(count):
    rng = np.random.default_rng(0)
    return {
        f"block_{n // 7}/conv_{n}/kernel": rng.standard_normal((2, n % 5 + 1)).astype("f4")
        for n in range(count)
    }


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "snappy"])
@pytest.mark.parametrize("name", ["index", "data"])
def test_every_variable_from_the_index_or_a_shard(tmp_path, shards, packed, name):
    arrays = some(50)
    arrays |= {"b": np.arange(3, dtype="f2"), "c": np.array(2.5), "d": np.zeros((0, 2), "i4")}
    put(tmp_path, bases.bundle_files(arrays, shards, packed))
    found = read(
        tmp_path / (INDEX if name == "index" else f"model.ckpt.data-00000-of-0000{shards}")
    )
    assert list(found.state_dict) == sorted(arrays)
    for key, array in arrays.items():
        assert np.array_equal(found.state_dict[key].numpy(), array)
        assert found.state_dict.entries[key].shape == array.shape
    assert (found.kind, found.extras, found.findings) == ("weights", {}, [])


def test_snappy_is_packed_smaller_and_unpacks_to_the_same():
    # Not a round trip of ours: the packing is the tests' own.
    data = bytes(range(256)) + b"abcabcabcabc" * 200 + bytes(1000)
    packed = bases.snappy(data)
    assert len(packed) < len(data) / 2
    source = Source.of_bytes("x", packed)
    assert sstable.unsnappy(source, memoryview(packed)) == data


@pytest.mark.parametrize(
    "packed",
    [
        b"", b"\x05", b"\x04\x02\x01\x00", b"\x02\x00a\x02\x05\x00", b"\xff\xff\xff\x7f\x00a",
        b"\x02\x04ab\x00c",
    ],
    ids=["empty", "cut", "from before", "from far before", "a bomb", "too long"],
)  # fmt: skip
def test_a_packed_block_is_bounded(packed):
    source = Source.of_bytes("x", packed or b" ")
    with pytest.raises(MigrateError, match="damaged"):
        sstable.unsnappy(source, memoryview(packed))


def test_what_optimizers_and_metrics_keep_is_set_apart(tmp_path):
    one = np.ones((2, 2), "f4")
    weights = ["conv/kernel", "conv/kernel/ExponentialMovingAverage", "Adam", f"dense/kernel/{END}"]
    state = [
        "conv/kernel/Adam", "conv/kernel/Adam_1", "conv/kernel/Momentum", "beta1_power",
        "global_step", f"dense/kernel/.OPTIMIZER_SLOT/optimizer/m/{END}", f"optimizer/iter/{END}",
        f"save_counter/{END}",
    ]  # fmt: skip
    metrics = [f"keras_api/metrics/0/total/{END}"]
    put(tmp_path, bases.bundle_files(dict.fromkeys([*weights, *state, *metrics], one)))
    found = read(tmp_path / INDEX)
    assert set(found.state_dict) == set(weights)
    assert set(found.parts["optimizer"]) == set(state)
    assert list(found.parts["metrics"]) == metrics
    assert found.kind == "training checkpoint"


def test_slices_and_texts_are_said(tmp_path):
    arrays = {"a": np.ones(2, "f4"), "b": np.ones(2, "f4"), "c": np.array(["x"], object)}
    put(tmp_path, bases.bundle_files(arrays, slices=("b",)))
    found = read(tmp_path / INDEX)
    assert list(found.state_dict) == ["a"]
    assert found.extras == {"texts": "1 variable without numbers: c"}
    (finding,) = found.findings
    assert (finding.level, finding.what) == ("error", "1 variable stored in slices, left out: b")


def test_a_shard_that_is_missing_is_named(tmp_path):
    put(tmp_path, bases.bundle_files(some(4), shards=2))
    (tmp_path / "model.ckpt.data-00001-of-00002").unlink()
    with pytest.raises(MigrateError, match=r"it is not there: model\.ckpt\.data-00001-of-00002"):
        read(tmp_path / INDEX)


def test_a_shard_without_an_index_is_not_taken(tmp_path):
    put(tmp_path, bases.bundle_files(some(4)))
    (tmp_path / INDEX).unlink()
    assert not tensor_bundle.recognises(Source(tmp_path / DATA))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (tensorflow.SavedTensorSlices(meta=tensorflow.VersionDef(producer=1)), "of version 1"),
        (tensorflow.BundleHeaderProto(num_shards=1, endianness=1), "big-endian"),
        (tensorflow.BundleHeaderProto(num_shards=-1), "damaged"),
        (tensorflow.BundleHeaderProto(), "damaged"),
    ],
)
def test_other_headers(tmp_path, header, said):
    (tmp_path / INDEX).write_bytes(bases.table([(b"", header.SerializeToString())]))
    with pytest.raises(MigrateError, match=said):
        read(tmp_path / INDEX)


def entry(**fields):
    found = tensorflow.BundleEntryProto(**{"dtype": 1, "size": 4, **fields})
    bases.tf_shape(found.shape, (1,))
    return found.SerializeToString()


@pytest.mark.parametrize(
    "value",
    [
        entry(offset=1), entry(offset=-1), entry(size=8), entry(size=-4), entry(shard_id=1),
        entry(shard_id=-1), b"\x08", b"\x12\x04\x18\x01",
    ],
)  # fmt: skip
def test_damage_is_said(tmp_path, value):
    header = tensorflow.BundleHeaderProto(num_shards=1).SerializeToString()
    (tmp_path / INDEX).write_bytes(bases.table([(b"", header), (b"a", value)]))
    (tmp_path / DATA).write_bytes(b"1234")
    with pytest.raises(MigrateError, match="damaged"):
        read(tmp_path / INDEX)


def test_blocks_that_are_used_again_and_again_are_refused(tmp_path):
    # A small index of an index could otherwise name one block a million times.
    header = tensorflow.BundleHeaderProto(num_shards=1).SerializeToString()
    content = bases.table([(b"", header), (b"a", entry())])
    source = Source.of_bytes(tmp_path / INDEX, content)
    table = sstable.Table(source)
    assert [key for key, _, _ in table.entries()] == [b"", b"a"]
    table._blocks = len(content)
    with pytest.raises(MigrateError, match="overlap"):
        list(table.entries())


def test_names_ascend(tmp_path):
    header = tensorflow.BundleHeaderProto(num_shards=1).SerializeToString()
    content = bases.table([(b"", header), (b"ab", entry()), (b"cd", entry())])
    (tmp_path / INDEX).write_bytes(content.replace(b"cd", b"ab"))
    (tmp_path / DATA).write_bytes(b"1234")
    with pytest.raises(MigrateError, match="do not ascend"):
        read(tmp_path / INDEX)


def test_values_are_mapped_where_they_are_aligned(tmp_path):
    put(tmp_path, bases.bundle_files({"a": np.arange(4, dtype="f4")}))
    before = (tmp_path / DATA).read_bytes()
    found = read(tmp_path / INDEX).state_dict
    found["a"].fill_(7)
    assert torch.equal(found["a"], torch.full((4,), 7.0))  # one memory, and private
    assert (tmp_path / DATA).read_bytes() == before


def test_the_folder_of_a_saved_model_is_loaded_by_its_variables(tmp_path):
    arrays = {"conv/kernel": np.arange(8, dtype="f4").reshape(2, 2, 2, 1)}
    (tmp_path / "variables").mkdir()
    for name, content in bases.bundle_files(arrays, stem="variables").items():
        (tmp_path / "variables" / name).write_bytes(content)
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    found = load_checkpoint(tmp_path)
    assert found.format == "TensorFlow bundle"
    assert found.state_dict["conv/kernel"].shape == (2, 2, 2, 1)
