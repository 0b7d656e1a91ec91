from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.cli import main, script_texts
from pytrace.cli.scripts import tools
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
    assert all(item.word for item in script_texts.common_options())
    assert tools.GROUPS
