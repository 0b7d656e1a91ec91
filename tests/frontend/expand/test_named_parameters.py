from __future__ import annotations

from pytrace.frontend.expand import parameters
from tests.frontend.expand.test_parameters import NAMED, parse


def test_usage() -> None:
    program = parse(NAMED)
    assert [(item.name, item.default, item.description) for item in parameters.used_parameters(program)] == [
        ("n", 5, "how many"),
        ("s", b"dflt", ""),
        ("f", False, ""),
        ("g", True, ""),
    ]
    text = parameters.help_text(program, "script.bt")
    assert "--n=N" in text
    assert "how many (default: 5)" in text
    assert "--s=TEXT" in text


def test_usage_without_parameters() -> None:
    assert "no named parameters" in parameters.help_text(parse("begin { }"), "x.bt")


def test_options_of_the_root_are_no_named_parameters() -> None:
    program = parse('getopt("x|failed"); begin { print(getopt("failed")); print(getopt("old", 1)); }')
    assert [item.name for item in parameters.used_parameters(program)] == ["old"]
