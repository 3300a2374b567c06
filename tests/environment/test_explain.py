"""What a reader pastes, and what he is told first."""

from __future__ import annotations

import io
import re
import tracemalloc
from pathlib import Path

import pytest

import migrate_kit as mk
from migrate_kit.environment import error_codes, log_text, signatures
from migrate_kit.environment.diagnosis import COLUMNS

CHAINS = sorted((Path(__file__).parent / "chains").glob("*.txt"))
KNOWN = "AttributeError: 'collections.OrderedDict' object has no attribute 'eval'"


def ids(found):
    return [answer.id for answer in found.answers]


# --- the root cause ---


@pytest.mark.parametrize("path", CHAINS, ids=lambda p: p.stem)
def test_a_chain_is_explained_by_its_root(path):
    head, _, text = path.read_text(encoding="utf-8").partition("\n")
    _, root, line = head.split()
    found = mk.explain(text)
    assert (found.root.id, found.root.line) == (root, int(line))
    assert found.in_language("zh").root.fix != found.root.fix
    # The line number is the one an editor shows.
    assert found.root.text[:20].strip("…") in text.splitlines()[int(line) - 1].replace("\t", " ")


def test_there_are_enough_chains():
    # Whole tracebacks and logs, and the words of those who asked for this.
    threads = [path for path in CHAINS if path.stem.startswith("thread_")]
    assert len(CHAINS) - len(threads) >= 10
    assert len(threads) >= 5


def test_two_complaints_of_one_post_are_both_answered():
    post = (
        "AttributeError: 'tuple' object has no attribute 'load_state_dict'，"
        "AttributeError: 'collections.OrderedDict' object has no attribute 'eval'"
    )
    assert set(ids(mk.explain(post))) == {"SCR02", "SCR16"}


def test_of_one_line_the_more_exact_row_comes_first():
    line = "RuntimeError: operator torchvision::nms does not exist, Address already in use"
    assert ids(mk.explain(line)) == ["OPS28", "DST17"]


def test_a_warning_does_not_hide_the_error_after_it():
    warning = "[W] Warning: NPU out of memory. Tried to allocate 1.00 GiB, trying again\n"
    error = "AssertionError: Torch not compiled with CUDA enabled\n"
    found = mk.explain(warning + error)
    assert [(a.id, a.role) for a in found.answers] == [("DEV01", "cause"), ("MEM01", "notice")]
    again = mk.explain(warning + error + "RuntimeError: NPU out of memory. Tried to allocate 1 GiB")
    assert [(a.id, a.line) for a in again.answers] == [("DEV01", 2), ("MEM01", 3)]


def test_the_clock_decides_only_where_every_line_has_one():
    late = "2026-04-02-11:40:12.000.101 the aicore execution is abnormal\n"
    early = "2026-04-02-11:10:12.000.101 vector core execution is abnormal\n"
    assert ids(mk.explain(late + early))[0] == "OPS23"
    assert ids(mk.explain("the aicore execution is abnormal\n" + early))[0] == "OPS22"


# --- codes ---


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NPU function error: aclrtSynchronizeStream, error code is 507011", "507011"),
        ("acl.rt.malloc failed, ret=507899", "507899"),
        ("errorCode: [500002]", "500002"),
        ("E10001: [PID: 1] Value [x] for parameter [y] is invalid.", "E10001"),
        ("Environment_Error(EE4001): failed to bind", "EE4001"),
        ("error code is EL0014", "EL0014"),
    ],
)
def test_a_code_alone_is_explained(text, code):
    found = mk.explain(text)
    assert (found.root.id, found.root.role) == (code, "code")
    assert found.root.fix
    assert code in found.root.text


@pytest.mark.parametrize(
    "text",
    [
        "processed 507011 images of 500000, 107003 left",
        "step 161002 loss 0.3 time 507018 ms",
        "commit E10001-A of board E50035 in 0xE10001",
        "/opt/E10001/net.om",
        "error code is 5070111",
        "retina 507011",
    ],
)
def test_digits_and_letters_elsewhere_are_no_codes(text):
    assert mk.explain(text).unknown


def test_a_code_comes_after_a_row_that_knows_the_text():
    text = "error code is 507011\nNPU out of memory. Tried to allocate 2.00 GiB"
    assert ids(mk.explain(text)) == ["MEM01", "507011"]


def test_a_code_on_a_line_that_is_explained_adds_nothing():
    line = "E10016: Op name [a] specified in [--out_nodes] is not found in the model."
    assert ids(mk.explain(line)) == ["ATC03"]
    assert ids(mk.explain("E10016: and nothing more")) == ["E10016"]


def test_a_bare_number_is_looked_up():
    found = mk.explain("NPU error, error code is 507018")
    meaning = error_codes.code_rows()["507018"]["meaning"]
    assert (found.root.id, found.root.meaning) == ("GEN03", f"507018: {meaning}")
    said = found.root.line, "The aicpu execution is abnormal"
    again = mk.explain("NPU error, error code is 507018\n[Error]: The aicpu execution is abnormal")
    assert ids(again)[0] == "OPS21"
    assert said[1] in again.root.text


# --- what it does not know ---


def test_unknown_says_so_and_points_at_the_first_error():
    text = "ok\nTraceback (most recent call last):\n  File 'a.py', line 3\n    f()\n"
    found = mk.explain(text + "mylib.OddError: no such thing\nlater\n[ERROR] and so on\n")
    assert found.unknown
    assert found.root is None
    assert [(s.line, s.text[:14]) for s in found.suspects] == [
        (5, "mylib.OddError"),
        (7, "[ERROR] and so"),
    ]
    assert "No known error" in found._repr_html_()


def test_a_wrapper_alone_points_at_the_line_behind_it():
    text = "OSError: libodd.so: wrong ELF class\nATC run failed, Please check the detail log"
    found = mk.explain(text)
    assert ids(found) == ["ATC08"]
    assert [s.line for s in found.suspects] == [1]


def test_a_harmless_line_is_listed_apart_and_hides_nothing():
    harmless = "ATC run success, welcome to the next use."
    found = mk.explain(f"{harmless}\n{KNOWN}\n{harmless}")
    assert ids(found) == ["SCR02"]
    assert [(b.id, b.line) for b in found.benign] == [("BEN17", 1)]
    # The word of a row may stand in a harmless line first.
    second = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
    first = f"UserWarning: Failed to load image Python extension: '{second[13:]}'"
    assert [(a.id, a.line) for a in mk.explain(f"{first}\n{second}").answers] == [("HST05", 2)]


def test_only_harmless_lines_are_no_unknown_text():
    line = "Warning: Cannot create tensor with internal format while allow_internal_format=False"
    found = mk.explain(line)
    assert (found.calm, found.unknown, found.ok) == (True, False, True)
    assert "BEN04" in repr(found)
    assert "BEN04" in "".join(found.lines())
    assert "does no harm" in found._repr_html_()
    worse = mk.explain(f"{line}\nmylib.OddError: no such thing")
    assert (worse.calm, worse.unknown) == (False, True)
    assert "BEN04" in "".join(worse.lines())


IMPORTS = """Fatal Python error: Segmentation fault

Current thread 0x00007fbb0da06b80 (most recent call first):
  File "/opt/lib/python3.11/site-packages/torch_npu/__init__.py", line 19 in <module>
  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed
"""


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("train.py: step 500 ok\nSegmentation fault (core dumped)", "HST09"),
        ('  File "train.py", line 3\n    loss.backward()\nSegmentation fault', "HST09"),
        ("import torch_npu\n" + "step ok\n" * 100 + "Segmentation fault", "HST09"),
        ('$ python -c "import torch_npu"\nSegmentation fault (core dumped)', "IMP25"),
        (IMPORTS, "IMP25"),
    ],
)
def test_a_crash_is_one_of_the_import_only_with_evidence(text, root):
    found = mk.explain(text)
    assert found.root.id == root
    assert ("faulthandler" in found.root.fix) == (root == "HST09")


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("Could not run 'torchvision::nms' with arguments from the 'PrivateUse1' backend", "OPS38"),
        ("Could not run 'aten::x' with arguments from the 'AutogradPrivateUse1' backend", "OPS38"),
        ("Could not run 'torchvision::nms' with arguments from the 'NPU' backend.", "OPS38"),
        ("Could not run 'npu::npu_format_cast' with arguments from the 'CPU' backend.", "OPS39"),
        ("Could not run 'torchvision::nms' with arguments from the 'CUDA' backend.", "OPS40"),
        ("The operator 'aten::x' is not currently implemented for the NPU device.", "OPS41"),
        ("Select operator[Cast] fail! Unsupported data type!", "MSP18"),
        ("package type mindspore support 'device_target' type cpu, but got Ascend", "MSP17"),
        ("Error occurred in cnrtMalloc: OUT_OF_MEMORY", "CAM18"),
        ("'_OpNamespace' 'npu' object has no attribute 'npu_rotary_mul'", "IMP28"),
        ("bash: line 1: 31175 Killed                  python train.py", "HST03"),
        ("epoch 3 loss: nan lr 0.1", "TRN02"),
    ],
)  # fmt: skip
def test_the_commonest_errors_of_a_port_are_known(text, root):
    assert mk.explain(text).root.id == root


@pytest.mark.parametrize("text", ["finance: nan rows 3", "Killed 3 of 4 monsters", "gloss = nano"])
def test_words_like_theirs_are_not_taken_for_them(text):
    assert not mk.explain(text).answers


@pytest.mark.parametrize("wrong", ["OPS18", "OPS24", "DEV01"])
def test_the_next_check_is_about_the_error_itself(wrong):
    (row,) = (s.row for s in signatures.signatures("errors") if s.id == wrong)
    advice = mk.explain(row["sample"]).root.next_check
    assert "rehearse" not in advice
    assert "npu-smi info, and" not in advice


def test_the_terminal_speaks_the_language_that_was_asked_for():
    for text in (KNOWN, "nothing here", f"{KNOWN}\nATC run success, welcome"):
        lines = "\n".join(mk.explain(text, "zh").lines())
        assert not re.search("it says|cause |check next|nothing in this|harmless|also ", lines)


# --- how it may be pasted ---


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[0;31mAttribute\x1b[0mError" + KNOWN[14:].replace(" no", "\x1b[1m no\x1b[0m"),
        KNOWN.replace(" ", "\xa0").replace("'", "\u2019"),
        KNOWN.encode("utf-16"),
        KNOWN.encode("utf-16-le"),
        KNOWN.encode("utf-16-be"),
        ("第一步报错：" + KNOWN).encode("gbk"),
        ("第一步报错：" + KNOWN).encode(),
        b"\xef\xbb\xbf" + KNOWN.encode(),
        b"\xe9\xff" + KNOWN.encode(),
        bytearray(KNOWN.encode()),
        memoryview(KNOWN.encode()),
        "\ud800" + KNOWN,
        "\\u001b[0;31m" + KNOWN,
        "10%\r20%\r" + KNOWN + "\r30%\n",
    ],
)  # fmt: skip
def test_the_same_message_however_it_is_written(text):
    found = mk.explain(text)
    assert (found.root.id, found.root.line) == ("SCR02", 1)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encode", [str, str.encode, lambda t: t.encode("utf-16")])
def test_line_numbers_are_the_readers(end, encode):
    assert mk.explain(encode(end.join(["一", "", "b", KNOWN, "c"]))).root.line == 4


def test_a_path_is_a_file_and_a_str_is_not(tmp_path):
    (tmp_path / "name.log").write_bytes(f"a\n{KNOWN}\n".encode())
    assert mk.explain(tmp_path / "name.log").root.line == 2
    assert mk.explain(str(tmp_path / "name.log")).unknown


@pytest.mark.parametrize("text", ["", "  \n\t\r\n ", b"", b"\n"])
def test_no_text_is_said(text):
    found = mk.explain(text)
    assert found.unknown
    assert [n.what for n in found.notes] == ["there is no text to explain"]
    assert (found.suspects, found.to_frame().shape[0]) == ([], 0)


@pytest.mark.parametrize("content", [bytes(range(256)) * 20, b"\0" * 500 + KNOWN.encode()])
def test_what_is_no_text_is_said(content):
    found = mk.explain(content)
    assert found.unknown
    assert "not text" in found.notes[0].what


@pytest.mark.parametrize("text", [None, 3, ["a"], object()])
def test_another_type_is_refused(text):
    with pytest.raises(mk.MigrateError, match="str or bytes"):
        mk.explain(text)


@pytest.mark.parametrize("name", ["absent.log", ".", "/dev/zero", "a\0b"])
def test_a_path_that_is_no_file_is_refused(tmp_path, name):
    with pytest.raises(mk.MigrateError) as error:
        mk.explain(tmp_path / name)
    assert "log" in error.value.fix or "file" in error.value.fix


def test_another_language_is_refused():
    for call in (lambda: mk.explain("", language="fr"), lambda: mk.explain("").in_language("fr")):
        with pytest.raises(mk.MigrateError, match="en, zh"):
            call()


# --- long texts ---


@pytest.fixture
def small(monkeypatch):
    """Read of a text above 3,000 characters what is read of one above 32 million."""
    for name, size in (("HEAD", 1500), ("MIDDLE", 800), ("TAIL", 700), ("MOST", 3000)):
        monkeypatch.setattr(log_text, name, size)


@pytest.mark.parametrize("make", [str, str.encode, "file", "utf-16"])
def test_of_a_long_text_the_ends_and_the_first_error_are_read(small, tmp_path, make):
    lines = [f"filler line {i}" for i in range(1, 2001)]
    lines[900] = "Traceback (most recent call last):"
    lines[901] = KNOWN
    lines[1400] = "No such words anywhere: NPU out of memory. Tried to allocate 1.00 GiB"
    lines[1990] = "AssertionError: Torch not compiled with CUDA enabled"
    text = "\n".join(lines)
    if make == "file":
        source = tmp_path / "long.log"
        source.write_text(text)
    else:
        source = text.encode("utf-16") if make == "utf-16" else make(text)
    found = mk.explain(source)
    assert [(a.id, a.line) for a in found.answers] == [("SCR02", 902), ("DEV01", 1991)]
    (note,) = found.notes
    assert re.match(
        r"read \d+ of \d+ million (characters|bytes): the beginning, the end", note.what
    )


def test_a_file_that_is_too_large_is_refused(monkeypatch, tmp_path):
    from migrate_kit.environment import log_file

    path = tmp_path / "sparse.log"
    with path.open("wb") as file:
        file.truncate(log_file.MOST_BYTES + 1)
    with pytest.raises(mk.MigrateError, match="tail -c"):
        mk.explain(path)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", ["/proc/self/limits", "/proc/sys/kernel/osrelease"])
def test_a_file_that_says_it_is_empty_is_read(name):
    assert Path(name).stat().st_size == 0
    assert log_text.read_log(Path(name)).data == Path(name).read_bytes()
    assert mk.explain(Path(name)).notes == []


def test_what_is_piped_in_is_kept_while_it_is_read(monkeypatch):
    from migrate_kit.environment import log_file

    with log_file.piped(io.BytesIO(KNOWN.encode())) as path:
        assert mk.explain(path).root.id == "SCR02"
    assert not path.exists()
    monkeypatch.setattr(log_file, "MOST_BYTES", 1000)
    monkeypatch.setattr(log_file, "_STEP", 100)

    class Endless(io.RawIOBase):
        def read(self, size=-1):
            assert size > 0
            return b"x\n" * (size // 2)

    for stream, says in (
        (Endless(), "more than 1.1 GB"),
        (None, "nothing is piped in"),
    ):
        with pytest.raises(mk.MigrateError, match=says), log_file.piped(stream):
            pass
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(mk.MigrateError, match="cannot be kept"), log_file.piped(closed):
        pass


def test_a_text_of_escapes_takes_no_more_memory_than_another():
    text = b"\x1b]" * 200_000
    tracemalloc.start()
    try:
        assert log_text.read_log(text + b"end").data == b"end"
        assert tracemalloc.get_traced_memory()[1] < 10 * len(text)
    finally:
        tracemalloc.stop()


def test_a_word_across_two_steps_of_a_file_is_found(monkeypatch, tmp_path):
    from migrate_kit.environment import log_file

    monkeypatch.setattr(log_file, "_STEP", 7)
    path = tmp_path / "a.log"
    path.write_bytes(b"abcd\nefgh\n[ERROR] x\n")
    log = log_file.LogFile(path)
    assert (log.find(b"[ERROR]", 0, 20), log.find(b"[ERROR]", 0, 14)) == (10, -1)
    assert log.count(b"\n", 0, 20) == 3
    log.close()


def test_a_line_is_looked_at_only_near_the_words(monkeypatch):
    seen = []
    match = signatures._match

    def spy(signature, window, data):
        seen.append(len(window.text))
        return match(signature, window, data)

    monkeypatch.setattr(signatures, "_match", spy)
    line = "x has no attribute 'y' " * 50_000
    found = mk.explain(line + KNOWN)
    assert (found.root.id, found.root.line) == ("SCR02", 1)
    assert len(found.root.text) < 300
    assert max(seen) <= log_text.BEFORE + log_text.AFTER + 2
    assert len(seen) < 20 * len(line) / log_text.AFTER


def test_lines_that_are_alike_are_not_tried_for_ever(monkeypatch):
    tried = []
    match = signatures._match
    monkeypatch.setattr(signatures, "MOST_TRIES", 50)
    monkeypatch.setattr(signatures, "_match", lambda *a: (tried.append(1), match(*a))[1])
    found = mk.explain("x has no attribute 'y'\n" * 10_000 + KNOWN)
    rows = [s for s in signatures.signatures("errors") if b"has no attribute '" in s.words]
    assert len(tried) <= 50 * len(rows)
    assert "very many lines are alike" in found.notes[0].what


def test_the_ends_of_a_cut_line_are_not_its_own():
    row = next(s for s in signatures.signatures("errors") if s.id == "CKP01")
    text = log_text.read_log("y" * 5000 + ' Unexpected key(s) in state_dict: "module.a"')
    window = text.window(5010)
    assert window.text.startswith("…")
    assert not row.regex.search(window.text)


# --- the result ---


def test_the_table(monkeypatch):
    text = "error code is 507011\n" + KNOWN
    frame = mk.explain(text).to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["rank"].tolist() == [1, 2]
    assert frame["id"].tolist() == ["SCR02", "507011"]
    assert frame["line"].tolist() == [2, 1]
    assert frame["text"][0] == KNOWN
    assert all(frame["source"])


def test_findings_and_ok():
    found = mk.explain(f"{KNOWN}\nUserWarning: Device do not support double dtype now")
    assert [f.level for f in found.findings] == ["error", "info"]
    assert "line 1" in found.findings[0].where
    assert not found.ok
    assert mk.explain("all is well").ok


def test_chinese():
    found = mk.explain(KNOWN, language="zh")
    page = found._repr_html_()
    assert "原因" in page
    assert found.root.cause in page
    assert re.search("[\u4e00-\u9fff]", found.root.fix)
    assert found.in_language("en").root == mk.explain(KNOWN).root


def test_hostile_text_is_text():
    text = f"<script>alert(1)</script>\u202e\x00{KNOWN} <img src=x onerror=alert(2)>"
    found = mk.explain(text)
    page = found._repr_html_()
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    assert "‹202E›" in page
    assert "‹0000›" in page
    unknown = mk.explain("<b>OddError: <script>")._repr_html_()
    assert "<script" not in unknown
    assert "&lt;script&gt;" in unknown


def test_half_of_a_pair_does_not_reach_the_page():
    found = mk.explain(f"\ud800 {KNOWN}")
    found.text.encode()
    assert found.text.endswith(KNOWN)


def test_it_is_kept_in_a_project(tmp_path):
    import json

    kept = json.loads(json.dumps(mk.explain(KNOWN).to_dict()))
    assert (kept["kind"], kept["answers"][0]["id"]) == ("diagnosis", "SCR02")


def test_show_offers_the_box_with_the_text():
    found = mk.explain(KNOWN)
    box = found.show()
    assert (box.text, box.diagnosis) == (KNOWN, found)
    assert mk.explain_box("zh").language == "zh"
