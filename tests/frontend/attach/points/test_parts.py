"""Parts of an attach point."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source, Span
from pytrace.frontend.probes.providers import Part, split_point
from pytrace.frontend.syntax import nodes
from tests.frontend.expanding import Expanded
from tests.support.facts import RecordedKernel


def test_parameters_in_attach_points() -> None:
    found = Expanded("tracepoint:$1:$2 { }", positional=("sched", "sched_switch"))
    assert found.names == ["tracepoint:sched:sched_switch"]


def test_parameter_without_value() -> None:
    found = Expanded("tracepoint:$1:$2 { }", positional=("sched",))
    assert found.places == ["$2"]
    assert "1 parameter" in found.hints[0]


def test_dollar_needs_a_number_or_a_name() -> None:
    assert Expanded("uprobe:/bin/app:a$ { }").places == ["$"]
    found = Expanded("uprobe:/bin/app:a$b { }")
    assert found.places == ["$b"]
    assert "options declared: none" in found.hints[0]


def texts(text: str, *options: tuple[str, str]) -> list[str] | None:
    """The parts of an attach point in a script with these options."""
    source = Source("x", text)
    found = split_point(nodes.AttachPoint(Span(source, 0, len(text)), text, None, options), (), Diagnostics())
    return None if found is None else [part.text for part in found]


def test_options_in_attach_points() -> None:
    options = (("lib", "/bin/sh"), ("min-ms", "5"), ("both", "sched:x"))
    assert texts("uprobe:$lib:main", *options) == ["uprobe", "/bin/sh", "main"]
    assert texts("interval:ms:$min-ms", *options) == ["interval", "ms", "5"]
    assert texts("uprobe:$lib-x:main", *options) == ["uprobe", "/bin/sh-x", "main"]
    assert texts("tracepoint:$both", *options) == ["tracepoint", "sched", "x"]
    assert texts("uprobe:$libs:main", *options) is None


def test_quotes_take_anything() -> None:
    kernel = RecordedKernel(files={'/bin/a:b"c': ["/bin/app"]})
    assert Expanded(r'uprobe:"/bin/a:b\"c":main { }', kernel).names == ["uprobe:/bin/app:main"]


def parts(text: str, *parameters: str, ahead: bool = False) -> tuple[Part, ...] | Diagnostics:
    found, source = Diagnostics(), Source("stdin", f"name={text}")
    result = split_point(nodes.AttachPoint(Span(source, 0, len(source.text)), text), parameters, found, ahead=ahead)
    return found if result is None else result


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("begin", [("begin", "")]),
        ("a:b:c", [("a", ""), ("b", ":"), ("c", ":")]),
        ("a:", [("a", ""), ("", ":")]),
        ("a:/b@c.c:12", [("a", ""), ("/b", ":"), ("c.c", "@"), ("12", ":")]),
        ('a:"b:c@d":e', [("a", ""), ("b:c@d", ":"), ("e", ":")]),
        (r'a:"q\"\\":e', [("a", ""), ('q"\\', ":"), ("e", ":")]),
        ('a:x"y:z"w', [("a", ""), ("xy:zw", ":")]),
    ],
)
def test_splitting(text: str, wanted: list[tuple[str, str]]) -> None:
    found = parts(text)
    assert isinstance(found, tuple)
    assert [(part.text, part.before) for part in found] == wanted


def test_values_of_parameters_may_hold_several_parts() -> None:
    found = parts("$1:x", "kprobe:f")
    assert isinstance(found, tuple)
    assert [part.text for part in found] == ["kprobe", "f", "x"]


@pytest.mark.parametrize("number", ["0", "2", "00", "99999999999999999999"])
def test_parameters_that_are_not_there(number: str) -> None:
    found = parts(f"a:${number}", "x")
    assert isinstance(found, Diagnostics)
    assert found.errors[0].hints == ("the script was given 1 parameter",)
    found = parts(f"a:${number}", "x", ahead=True)
    assert isinstance(found, Diagnostics)
    assert found.errors[0].hints == ("give it with --aot, which fixes attach points",)


def test_quotes_that_are_open() -> None:
    found = parts('a:"b')
    assert isinstance(found, Diagnostics)
    assert (found.errors[0].message, found.errors[0].span.text) == ("this quote is not closed", '"')


def test_places_of_parts() -> None:
    found = parts("a:bc@d")
    assert isinstance(found, tuple)
    assert [part.span.text for part in found] == ["a", "bc", "d"]


def test_offsets_are_outside_of_quotes() -> None:
    for text, plus in (("f+4", 1), ('"f+4"', -1), ('"operator+"+4', 9), ("f", -1)):
        found = parts(text)
        assert isinstance(found, tuple)
        assert found[0].plus == plus


def test_patterns_and_numbers() -> None:
    for text, wild, number in (
        ("a*", True, False),
        ("[a]", False, False),
        ("5s", False, True),
        ("-5", False, True),
        ("-", False, False),
    ):
        found = parts(text)
        assert isinstance(found, tuple)
        assert (found[0].wild, found[0].number) == (wild, number)
