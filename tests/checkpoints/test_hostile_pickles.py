"""A folder of pickles that want to run something: none does, and each is told."""

import contextlib
import io
import os
import pickle
import pickletools
import struct
import sys
import zipfile

import pytest
import torch

from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.errors import MigrateError

MARK = "MIGRATE_KIT_WAS_RUN"
TENSOR = {"w": torch.ones(2)}


class Calls:
    """An object whose pickle calls something."""

    def __init__(self, function, *args, state=None):
        self.function, self.args, self.state = function, args, state

    def __reduce__(self):
        found = (self.function, self.args)
        return found if self.state is None else (*found, self.state)


RUN = f"import os; os.environ[{MARK!r}] = '1'"


def payloads():
    """Yield names and pickles of protocol 2; each sets a variable if it runs."""
    put = (os.putenv, MARK, "1")
    yield "reduce", pickle.dumps({"a": Calls(exec, RUN)}, 2)
    yield "eval", pickle.dumps({"a": Calls(eval, f"exec({RUN!r})")}, 2)
    yield "os.system", pickle.dumps({"a": Calls(os.system, "touch was_run")}, 2)
    yield "putenv", pickle.dumps([Calls(*put)], 2)
    yield (
        "getattr",
        pickle.dumps([Calls(getattr, "x", "upper")], 2),
    )
    yield "import", pickle.dumps([Calls(__import__, "antigravity")], 2)
    yield "setstate", pickle.dumps([Calls(dict, state={"__class__": 1})], 2)
    yield "key", pickle.dumps({("k",): Calls(exec, RUN)}, 2)
    code = RUN.encode()
    word = pickle.BINUNICODE + struct.pack("<I", len(code)) + code
    yield "global", b"\x80\x02cbuiltins\nexec\n(" + word + b"tR."
    yield "inst", b"\x80\x02(" + word + b"ibuiltins\nexec\n."
    yield "obj", b"\x80\x02(cbuiltins\nexec\n" + word + b"o."
    yield "newobj", b"\x80\x02cbuiltins\nexec\n" + word + b"\x85\x81."
    yield "newobj_ex", b"\x80\x04cbuiltins\nexec\n" + word + b"\x85}\x92."
    yield (
        "stack_global",
        b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93" + word + b"\x85R.",
    )
    yield "dotted", b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0dtouch was_run\x85R."
    yield "build", b"\x80\x02cos\nenviron\n}" + word + word + b"sb."
    yield "persistent", b"\x80\x02cbuiltins\nexec\n" + word + b"\x85RQ."
    yield "extension", b"\x80\x02\x82\x01."
    yield "torch's own", b"\x80\x02ctorch.serialization\nload\n" + word + b"\x85R."
    yield "nested load", b"\x80\x02ctorch.storage\n_load_from_bytes\n" + word + b"\x85R."
    yield "numpy", b"\x80\x02cnumpy\nload\n" + word + b"\x85R."
    yield "codecs", b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R."
    yield "partial", pickle.dumps([Calls(io.open, "was_run", "w")], 2)


def bombs():
    """Yield pickles that would take for ever, or all of the memory, if they were believed."""
    tuples = b"\x80\x02)" + b"2\x86" * 60 + b"}" + b"\x8a\x01\x01" + b"\x30\x30."
    yield "tuples", tuples
    laughs = (
        b"\x80\x02]q\x00" + b"".join(b"]" + b"h\x00a" * 2 + b"q\x00" for _ in range(200)) + b"."
    )
    yield "lists of lists", laughs
    key = b"\x80\x02}" + b"N" + b"2\x86" * 60 + b"Ns."
    yield "a key without end", key
    yield "itself", b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."
    yield "long bytes", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x."
    yield "long bytearray", b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b"x."
    yield "long frame", b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N."
    yield "long number", b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1) + b"1."
    yield "decimal number", b"I" + b"9" * 100_000 + b"\n."
    yield "far memo", b"\x80\x02Nr\xff\xff\xff\xff."
    yield "deep", b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."
    yield "deep objects", b"\x80\x02" + b"cx\ny\n" * 50_000 + b"N" + b"\x85R" * 50_000 + b"."


def containers(data):
    """Yield a pickle in each of the files that hold one."""
    yield "bare.pkl", data
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
    yield "zip.pth", buffer.getvalue()
    buffer = io.BytesIO()
    torch.save(TENSOR, buffer, _use_new_zipfile_serialization=False)
    head = buffer.getvalue()
    end = 0
    stream = io.BytesIO(head)
    for _ in range(3):
        for _code, _arg, at in pickletools.genops(stream):
            end = at + 1
    yield "legacy.pth", head[:end] + data + pickle.dumps([], 2)
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    yield "dict.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def files():
    for name, data in [*payloads(), *bombs()]:
        for file, content in containers(data):
            yield pytest.param(file, content, id=f"{name} in {file}")


@pytest.mark.parametrize(("file", "content"), list(files()))
def test_nothing_runs(tmp_path, monkeypatch, file, content):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(MARK, raising=False)
    before = set(sys.modules)
    (tmp_path / file).write_bytes(content)
    with contextlib.suppress(MigrateError):
        found = load_checkpoint(tmp_path / file)
        repr(found), found._repr_html_(), found.to_dict(), dict(found.state_dict)
    assert MARK not in os.environ
    assert [p.name for p in tmp_path.iterdir()] == [file]
    assert "antigravity" not in set(sys.modules) - before


def test_the_payloads_would_run(tmp_path, monkeypatch):
    # The test above says nothing if they do nothing.
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(MARK, raising=False)
    for name, data in payloads():
        if name in {"reduce", "global", "inst", "stack_global"}:
            monkeypatch.delenv(MARK, raising=False)
            pickle.loads(data)  # noqa: S301 - our own
            assert os.environ[MARK] == "1", name


def test_what_a_pickle_wants_is_listed_global_by_global(tmp_path):
    saved = {"w": torch.ones(2), "a": Calls(os.system, "true"), "b": Calls(exec, RUN)}
    torch.save(saved, tmp_path / "a.pth")
    found = load_checkpoint(tmp_path / "a.pth")
    assert found.wanted == ["posix.system", "__builtin__.exec"]
    (said,) = [f for f in found.findings if "posix.system" in f.what]
    assert said.level == "warning"
    assert "none of it was run" in said.what
    assert "do not trust this file" in said.fix
    assert not any("trust=True" in f.fix for f in found.findings)
    assert torch.equal(found.state_dict["w"], torch.ones(2))


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((1 << 40,), (1,), 0), ((2, 2), (1 << 40, 1), 0), ((2,), (1,), 1 << 40), ((-1,), (1,), 0),
     ((1 << 40, 1 << 40), (0, 0), 0), ((2,), (-1,), 1), ((2,), (1, 1), 0), ("ab", (1,), 0)],
)  # fmt: skip
def test_a_tensor_outside_of_its_storage_is_refused(tmp_path, size, stride, offset):
    class Bad:
        def __reduce__(self):
            args = (torch.ones(4).storage(), offset, size, stride, False, {})
            return torch._utils._rebuild_tensor_v2, args

    torch.save({"w": Bad()}, tmp_path / "a.pth")
    with pytest.raises(MigrateError, match="the file is damaged"):
        load_checkpoint(tmp_path / "a.pth")
