"""Scripts to copy out, and the one reader of tables."""

import pytest

import migrate_kit as mk
from migrate_kit import snippets
from migrate_kit.errors import MigrateError
from migrate_kit.tables import read_table, table_names

SCRIPT = '"""Say <hello>.\n\nMore.\n"""\nprint("a & b")\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "hello.py").write_text(SCRIPT)
    (tmp_path / "_private.py").write_text("")
    monkeypatch.setattr(snippets, "FOLDER", tmp_path)
    return tmp_path


def test_a_snippet_is_its_file(folder):
    found = mk.snippet("hello")
    assert found.text == SCRIPT
    assert found.path == folder / "hello.py"
    assert repr(found) == "Snippet('hello': Say <hello>.)"
    assert snippets.snippet_names() == ["hello"]


def test_a_snippet_is_shown_escaped(folder):
    html = mk.snippet("hello")._repr_html_()
    assert html.startswith("<pre ")
    assert "Say &lt;hello&gt;." in html
    assert "a &amp; b" in html
    live = mk.snippet("hello").show().data
    assert live.endswith(html)
    assert "<script" not in live
    assert live.count('"') == 4  # none inside the attributes


@pytest.mark.parametrize("name", ["helo", "_private", "../hello", "__init__"])
def test_an_unknown_snippet(folder, name):
    with pytest.raises(MigrateError, match="choose one of: hello"):
        mk.snippet(name)


def test_every_snippet_of_the_package_compiles_and_says_what_it_is():
    for name in snippets.snippet_names():
        assert mk.snippet(name).summary


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a,b\n1,2\n", r"header[\s\S]*'source'"),
        ("a,a,source\n1,2,x\n", "header"),
        ("", "header"),
        ("a,source\n1,x\n2\n", r"1 fields where the header has 2[\s\S]*line 3"),
        ("a,source\n1, \n", r"without a source[\s\S]*line 2"),
        ('a,source\n"1,x\n', "cannot be read"),
        (b"a,source\n\xff,x\n", "cannot be read"),
    ],
)
def test_a_table_that_breaks_the_rules(tmp_path, text, named):
    (tmp_path / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MigrateError, match=named):
        read_table("t", tmp_path)


def test_tables_are_read_by_name_only():
    assert "targets" in table_names()
    assert {row["target"] for row in read_table("targets")} >= {"ascend910b", "mlu370"}
    for name in ("nope", "../tables/targets", ""):
        with pytest.raises(MigrateError, match="targets"):
            read_table(name)


def test_a_quoted_field_may_hold_a_comma_and_a_line(tmp_path):
    (tmp_path / "t.csv").write_text('a,source\n"x, y\nz",s\n')
    assert read_table("t", tmp_path) == [{"a": "x, y\nz", "source": "s"}]
