from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.cli.options import SUBCOMMANDS
from pytrace.cli.scripts import tools


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three tools instead of those that come with pytrace."""
    for group, name, line in (
        ("files", "opens", "/* opens: files that are opened */"),
        ("files", "fsslower", "/*\n * fsslower: slow operations of file systems\n */"),
        ("scheduling", "queue", "#!/usr/bin/env pytrace\n// queue: time in the run queue"),
    ):
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / f"{name}.bt").write_text(line + "\nbegin { }\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "time.bt").write_text("macro x() { 1 }")
    monkeypatch.setattr(tools, "FOLDER", str(tmp_path))
    monkeypatch.setattr(tools, "TRANSLATED", ())
    return tmp_path


def test_names(folder: Path) -> None:
    assert tools.path("opens") == str(folder / "files" / "opens.bt")
    assert tools.path("time") == tools.path("opensnoop") == ""
    assert "queue" in tools.names()
    assert "opens.bt" not in tools.names()
    assert "files/opens" not in tools.names()
    assert tools.names() == ["btrfsslower", "ext4slower", "fsslower", "nfsslower", "opens", "queue", "xfsslower"]


def test_names_with_implied_options(folder: Path) -> None:
    assert tools.resolve("ext4slower") == ("fsslower", ("-t", "ext4"))
    assert tools.resolve("opens") == ("opens", ())
    assert "xfsslower" in tools.names()
    assert "xfsdist" not in tools.names(), folder


def test_the_list_by_group(folder: Path) -> None:
    assert folder.exists()
    assert tools.listing() == (
        "scheduling:\n  queue     time in the run queue\n\n"
        "files:\n  fsslower  slow operations of file systems\n  opens     files that are opened\n\n"
        "pytrace NAME -h shows the options of a tool.\n"
    )


def test_the_list_of_those_with_a_word(folder: Path) -> None:
    assert folder.exists()
    assert tools.listing("QUEUE").startswith("scheduling:\n  queue  time")
    assert "files:" in tools.listing("opened")
    assert tools.listing("nothing") == "No tool has 'nothing' in its name or summary; pytrace --tools lists all.\n"


def test_all_tools_have_a_summary_and_a_name_that_is_free() -> None:
    for group, name, summary in tools.rows():
        assert summary, (group, name)
        assert tools.is_name(name)
        assert name not in (*SUBCOMMANDS, *tools.ALIASES)


def test_aliases_are_listed_when_they_are_looked_for() -> None:
    assert "ext4slower" not in tools.listing()
    lines = tools.listing("ext4").split("\n")
    assert lines[0] == "files:"
    assert "  ext4slower  the same as fsslower -t ext4" in lines
