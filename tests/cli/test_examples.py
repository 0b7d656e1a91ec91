"""pytrace.cli.examples: the list of example scripts, each with its question."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytrace.cli import examples


def test_every_script_of_the_checkout_is_listed_with_a_question() -> None:
    place = Path(examples.folder())
    assert place == Path(__file__).resolve().parents[2] / "docs/examples"
    first, *rows, empty, _, _ = examples.listing().split("\n")
    assert first == str(place)
    assert empty == ""
    assert [row.split()[0] for row in rows] == sorted(path.name for path in place.glob("*.bt"))
    assert all(len(row.split(maxsplit=1)) == 2 for row in rows)


def test_an_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages/pytrace"
    for place in (package / "example_scripts", tmp_path / "site-packages/docs/examples"):
        place.mkdir(parents=True)
    monkeypatch.setattr(examples, "__file__", str(package / "cli/examples.py"))
    assert examples.folder() == str(package / "example_scripts")
    (package / "example_scripts").rmdir()
    assert examples.folder() == str(tmp_path / "site-packages/docs/examples")
    (tmp_path / "site-packages/docs/examples").rmdir()
    assert examples.folder() == ""
    assert examples.listing() == "This copy of pytrace has no example scripts.\n"


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
    (tmp_path / "a.bt").write_text(text)
    (tmp_path / "long_name.bt").write_text("// x\n")
    (tmp_path / "README.md").write_text("# no script\n")
    monkeypatch.setattr(examples, "folder", lambda: str(tmp_path))
    assert examples.listing() == (
        f"{tmp_path}\n" + f"  a.bt          {question}".rstrip() + "\n  long_name.bt  x\n\n"
        "The comment at the top of each script shows its usage.\n"
    )
