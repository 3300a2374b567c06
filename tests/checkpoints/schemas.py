"""The messages of Caffe, TensorFlow and MindSpore, for Google's own protobuf to read and write.

Field numbers as their .proto files have them; only what the tests need.
"""

import re
from types import SimpleNamespace

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CAFFE = """
message BlobShape { repeated int64 dim = 1 [packed]; }
message BlobProto {
  optional BlobShape shape = 7; repeated float data = 5 [packed]; repeated float diff = 6 [packed];
  repeated double double_data = 8 [packed];
  optional int32 num = 1; optional int32 channels = 2; optional int32 height = 3;
  optional int32 width = 4;
}
message LayerParameter {
  optional string name = 1; optional string type = 2; repeated string bottom = 3;
  repeated string top = 4; repeated BlobProto blobs = 7; optional int32 phase = 10;
}
message V1LayerParameter {
  repeated string bottom = 2; repeated string top = 3; optional string name = 4;
  optional int32 type = 5; repeated BlobProto blobs = 6;
}
message NetParameter {
  optional string name = 1; repeated V1LayerParameter layers = 2; repeated string input = 3;
  repeated int32 input_dim = 4; repeated LayerParameter layer = 100;
}
message SolverState {
  optional int32 iter = 1; optional string learned_net = 2; repeated BlobProto history = 3;
  optional int32 current_step = 4;
}
"""
TENSORFLOW = """
message Dim { optional int64 size = 1; optional string name = 2; }
message TensorShapeProto { repeated Dim dim = 2; optional bool unknown_rank = 3; }
message TensorProto {
  optional int32 dtype = 1; optional TensorShapeProto tensor_shape = 2;
  optional bytes tensor_content = 4; repeated float float_val = 5 [packed];
  repeated double double_val = 6 [packed]; repeated int32 int_val = 7 [packed];
  repeated bytes string_val = 8; repeated float scomplex_val = 9 [packed];
  repeated int64 int64_val = 10 [packed]; repeated bool bool_val = 11 [packed];
  repeated double dcomplex_val = 12 [packed]; repeated int32 half_val = 13 [packed];
  repeated uint32 uint32_val = 16 [packed]; repeated uint64 uint64_val = 17 [packed];
  optional bytes float8_val = 18;
}
message ListValue {
  repeated bytes s = 2; repeated int64 i = 3 [packed]; repeated float f = 4 [packed];
  repeated bool b = 5 [packed]; repeated int32 type = 6 [packed];
}
message AttrValue {
  optional ListValue list = 1; optional bytes s = 2; optional int64 i = 3; optional float f = 4;
  optional bool b = 5; optional int32 type = 6; optional TensorShapeProto shape = 7;
  optional TensorProto tensor = 8;
}
message AttrEntry { optional string key = 1; optional AttrValue value = 2; }
message NodeDef {
  optional string name = 1; optional string op = 2; repeated string input = 3;
  optional string device = 4; repeated AttrEntry attr = 5;
}
message VersionDef { optional int32 producer = 1; optional int32 min_consumer = 2; }
message GraphDef { repeated NodeDef node = 1; optional VersionDef versions = 4; }
message MetaInfoDef {
  optional string meta_graph_version = 1; repeated string tags = 4;
  optional string tensorflow_version = 5;
}
message MetaGraphDef { optional MetaInfoDef meta_info_def = 1; optional GraphDef graph_def = 2; }
message SavedModel {
  optional int64 saved_model_schema_version = 1; repeated MetaGraphDef meta_graphs = 2;
}
message BundleHeaderProto {
  optional int32 num_shards = 1; optional int32 endianness = 2; optional VersionDef version = 3;
}
message TensorSliceProto { optional int64 start = 1; }
message BundleEntryProto {
  optional int32 dtype = 1; optional TensorShapeProto shape = 2; optional int32 shard_id = 3;
  optional int64 offset = 4; optional int64 size = 5; optional fixed32 crc32c = 6;
  repeated TensorSliceProto slices = 7;
}
message SavedTensorSlices { optional VersionDef meta = 1; }
"""
MINDSPORE = """
message TensorProto {
  repeated int64 dims = 1; required string tensor_type = 2; required bytes tensor_content = 3;
}
message MapTensorProto { repeated TensorProto tensor = 1; }
message Value {
  required string tag = 1; optional TensorProto tensor = 2; optional MapTensorProto maptensor = 3;
}
message Checkpoint { repeated Value value = 1; }
"""
OTHERS = """
message Version { optional int64 version = 1; }
message Var { required string name = 1; optional Version type = 2; }
message BlockDesc { required int32 idx = 1; required int32 parent_idx = 2; repeated Var vars = 3; }
message ProgramDesc { repeated BlockDesc blocks = 1; optional Version version = 4; }
message Description { optional string text = 1; }
message CoreModel {
  optional int32 specificationVersion = 1; optional Description description = 2;
  optional Description neuralNetwork = 500;
}
message Piece { optional string piece = 1; optional float score = 2; optional int32 type = 3; }
message Pieces { repeated Piece pieces = 1; }
message MindGraph { optional string name = 2; }
message MindModel {
  optional string ir_version = 1; optional string producer_name = 2; optional MindGraph graph = 7;
}
"""
_KINDS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed32": 7, "bool": 8,
    "string": 9, "bytes": 12, "uint32": 13,
}  # fmt: skip
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_FIELD = re.compile(r"(optional|required|repeated) (\w+) (\w+) = (\d+)( \[packed\])?;")


def messages(text):
    """Return the message classes of one of the texts above as attributes."""
    package = "t"
    file = descriptor_pb2.FileDescriptorProto(name=package, package=package, syntax="proto2")
    for name, body in re.findall(r"message (\w+) \{(.*?)\}", text, re.DOTALL):
        message = file.message_type.add(name=name)
        for label, kind, field, number, packed in _FIELD.findall(body):
            added = message.field.add(name=field, number=int(number), label=_LABELS[label])
            added.type = _KINDS.get(kind, 11)
            if kind not in _KINDS:
                added.type_name = f".{package}.{kind}"
            added.options.packed = bool(packed)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [message.name for message in file.message_type]
    types = [pool.FindMessageTypeByName(f"{package}.{name}") for name in names]
    classes = map(message_factory.GetMessageClass, types)
    return SimpleNamespace(**dict(zip(names, classes, strict=True)))


caffe, tensorflow, mindspore, others = map(messages, (CAFFE, TENSORFLOW, MINDSPORE, OTHERS))
# The same, written one by one.
loose_caffe, loose_tensorflow = (messages(t.replace(" [packed]", "")) for t in (CAFFE, TENSORFLOW))
