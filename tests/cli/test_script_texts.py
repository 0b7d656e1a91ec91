from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pytrace.cli import documents, main, script_texts, tools
from pytrace.cli.options import Option
from pytrace.cli.script_options import ScriptWords
from pytrace.core.diagnostics import TraceError
from pytrace.core.script_options import ScriptOption
from tests.cli.test_script_finder import folder, translated

__all__ = ["folder", "translated"]


def shown(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main.main(words.split()) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "_name_process", lambda: None)


def test_usage_of_a_tool(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("opens -h", capsys)
    assert text.startswith("usage: pytrace opens [options] [interval] [count]\n\ntool: what it shows\n\nOperands:\n")
    assert "  -x, --failed                  only failures\n" in text
    assert "\n      --format FORMAT " in text
    assert "\n  -o, --output FILE " in text
    assert shown("opens --help -d x", capsys) == text


def test_usage_of_a_script_with_old_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Parameters, after --:\n  --limit=N" in shown("old.bt -h", capsys)
    assert shown("old.bt -- --help", capsys).startswith("parameters of old.bt:\n  --limit=N")
    assert shown("own.bt -- --help", capsys) == shown("own.bt -h", capsys)


def test_options_of_imports_are_no_parameters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shared.bt").write_text('getopt("d|dist", false, "a histogram");')
    text = 'import "shared.bt"; begin { if comptime (getopt("dist")) { exit(); } print(getopt("limit", 5, "most")); }'
    (folder / "using.bt").write_text(text)
    usage = shown(f"{folder / 'using.bt'} -h", capsys)
    assert "  -d, --dist                    a histogram\n" in usage
    assert "Parameters, after --:\n  --limit=N" in usage
    assert "  --dist\n" not in usage


def test_text_of_a_script(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for words in ("opens --show-script", "--show-script opens -x", "own.bt --show-script"):
        assert main.main(words.split()) == 0
        assert capfdbinary.readouterr().out == (folder / "own.bt").read_bytes()
    assert main.main(["--show-script", "-e", "begin{}"]) == 0
    assert capfdbinary.readouterr().out == b"begin{}"


@pytest.mark.usefixtures("translated")
def test_translated_tools(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["counter", "vfs_read", "--show-script"]) == 0
    assert capfd.readouterr().out == "k:vfs_read {\n    @ = count();\n}\n\ninterval:s:1 {\n    exit()\n}\n"
    assert main.main(["counter", "-h"]) == 0
    text = capfd.readouterr().out
    assert text.startswith("usage: pytrace counter [options] <specs...>\n\ncounter: counts calls\n\nExamples:\n  py")
    assert main.main(["--tools", "counts"]) == 0
    assert "languages:\n  counter     counts calls\n" in capfd.readouterr().out


def test_common_options_have_long_names() -> None:
    assert all(item.long for item in script_texts.common_options())
    assert tools.GROUPS


def test_every_script_of_the_checkout_is_listed_with_a_question() -> None:
    place = Path(script_texts.examples_folder())
    assert place == Path(__file__).resolve().parents[2] / "docs/examples"
    first, *rows, empty, _, _ = script_texts.examples().split("\n")
    assert first == str(place)
    assert empty == ""
    assert [row.split()[0] for row in rows] == sorted(path.name for path in place.glob("*.bt"))
    assert all(len(row.split(maxsplit=1)) == 2 for row in rows)


def test_an_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages/pytrace"
    for place in (package / "documents/examples", tmp_path / "site-packages/docs/examples"):
        place.mkdir(parents=True)
    monkeypatch.setattr(documents, "__file__", str(package / "cli/documents.py"))
    assert script_texts.examples_folder() == str(package / "documents/examples")
    shutil.rmtree(package / "documents")
    assert script_texts.examples_folder() == str(tmp_path / "site-packages/docs/examples")
    (tmp_path / "site-packages/docs/examples").rmdir()
    assert script_texts.examples_folder() == ""
    assert script_texts.examples() == "This copy of pytrace has no example scripts.\n"


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("#!/usr/bin/env pytrace\n/*\n * Who reads?\n * More.\n */\n", "Who reads?"),
        ("/* Who writes? */\nbegin { }\n", "Who writes?"),
        ("// Who waits?\n", "Who waits?"),
        ("", ""),
    ],
)
def test_the_question_is_the_first_line_of_the_comment(
    text: str, question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "examples"
    place.mkdir()
    (place / "a.bt").write_text(text)
    (place / "long_name.bt").write_text("// x\n")
    (place / "README.md").write_text("# no script\n")
    monkeypatch.setattr(script_texts, "examples_folder", lambda: str(place))
    assert script_texts.examples() == (
        f"{place}\n" + f"  a.bt          {question}".rstrip() + "\n  long_name.bt  x\n\n"
        "The comment at the top of each script shows its usage.\n"
    )


COMMON = (
    Option("", "f", "format", "FORMAT", "the format", ""),
    Option("", "p", "pid", "PID", "trace PID", ""),
    Option("", "", "save", "FILE", "save", ""),
)


def test_the_parts_in_order() -> None:
    options = (
        ScriptOption(("f", "failed"), False, "only failures"),
        ScriptOption(("s",), "all", "order", "COLUMN", ("all", "reads")),
        ScriptOption(("save",), "", "mine", "WHAT", repeat=True),
        ScriptOption(("interval",), 5, "seconds", "interval", operand=True),
    )
    assert script_texts.usage_text(ScriptWords("tool", options), "tool: does it", COMMON) == (
        "usage: pytrace tool [options] [interval]\n\n"
        "tool: does it\n\n"
        "Operands:\n"
        "  interval                      seconds (default: 5)\n\n"
        "Options:\n"
        "  -f, --failed                  only failures\n"
        "  -s COLUMN                     order (one of all, reads; default: all)\n"
        "      --save WHAT...            mine\n\n"
        "Options of all scripts:\n"
        "      --format FORMAT           the format\n"
        "  -p, --pid PID                 trace PID\n"
        "`pytrace --help` lists all; with a letter that the script uses itself, give the long name.\n"
    )


def test_named_parameters_of_old_scripts() -> None:
    text = script_texts.usage_text(ScriptWords("a.bt"), "", (), "  --limit=N  most lines\n")
    assert text == (
        "usage: pytrace a.bt [parameters] [-- parameters]\n\nParameters, after --:\n  --limit=N  most lines\n"
    )


@pytest.mark.parametrize(
    ("script", "header"),
    [
        ("/* a: b */\nbegin { }", "a: b"),
        ("#!/bin/pytrace\n\n/*\n * a: b\n *\n * Examples:\n *   pytrace a\n */", "a: b\n\nExamples:\n  pytrace a"),
        ("/* a: b\n   more\n     inner */", "a: b\nmore\n  inner"),
        ("// a: b\n//   inner\nbegin { }\n// not this", "a: b\n  inner"),
        ("begin { } // no", ""),
        ("", ""),
        ("#!x", ""),
    ],
)
def test_headers(script: str, header: str) -> None:
    assert script_texts.header(script) == header


def test_every_page_is_a_topic_and_links_are_words(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["help"]) == 0
    listed = capfd.readouterr().out
    docs = Path(__file__).resolve().parents[2] / "docs"
    for path in (path for name in ("start", "guides", "reference", "operate") for path in (docs / name).glob("*.md")):
        assert re.search(rf"^  {path.stem} +\S", listed, re.MULTILINE), path
        text = documents.page(path.stem)
        assert text.startswith("# ")
        assert not re.search(r"\]\([\w./-]+\.md|<!-- ", text), path


def test_what_no_heading_names_is_found_in_the_pages() -> None:
    lines = documents.page("--follow").splitlines()
    assert lines[0] == "What the pages say of '--follow' (pytrace help PAGE):"
    assert lines[1:3] == ["  command-line, Options:", "    --follow with -p or -c: also trace child processes"]
    assert "  first-hour, 4. Filters:" in documents.page("predicate").splitlines()
    with pytest.raises(TraceError, match="no document is about 'nothing of the kind'"):
        documents.page("nothing of the kind")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["privileges"], "# Privileges"),
        (["Operate/Privileges.md"], "# Privileges"),
        (["from", "bcc"], "# From bcc"),
        (["opensnoop"], "opensnoop"),
        (["flame"], "usage: pytrace flame"),
        (["diff"], "usage: pytrace diff"),
        (["ustack"], "ustack"),
        (["lost data"], "## Lost data"),
    ],
)
def test_help_finds_pages_tools_commands_and_headings(
    words: list[str], shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["help", *words]) == 0
    assert shown in capfd.readouterr().out.partition("\n\n")[0]


def test_a_topic_that_nothing_is_about(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main.main(["help", "priveleges"]) == 1
    error = capfd.readouterr().err
    assert "no document is about 'priveleges'" in error
    assert "did you mean privileges?" in error
    monkeypatch.setattr(documents, "folder", lambda: None)
    assert main.main(["help"]) == 1
    assert "this copy of pytrace has no documents" in capfd.readouterr().err
