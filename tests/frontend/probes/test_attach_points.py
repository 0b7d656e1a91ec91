"""Attach points: their parts, their providers and mistakes in them."""

from __future__ import annotations

from typing import Any

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelFunction
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import PROBE_KINDS, NoTarget, ProbeKind, TypedFunctionTarget, UserTarget
from pytrace.core.source import Source, Span
from pytrace.frontend.probes.attach_points import PROVIDERS, split_point
from pytrace.frontend.probes.providers import Match, Part, Point, Scope, by_pattern, matches_pattern, nearest, number_of
from pytrace.frontend.syntax import nodes
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel
from tests.support.rows import each_row


def test_blocks_are_counted_in_source_order() -> None:
    assert [unit.index for unit in Expanded("begin { } begin { } end { }").units] == [0, 1, 2]


def test_unknown_providers() -> None:
    found = Expanded("intervl:s:1 { }")
    assert found.places == ["intervl"]
    assert "'interval'" in found.hints[0]
    found = Expanded("vfs_read { }")
    assert "kprobe:vfs_read" in found.hints[0]
    assert "watchpoint:ADDRESS:LENGTH:MODE" in Expanded("asyncwatchpoint:0x10:8:w { }").errors[0]


def test_patterns_as_providers() -> None:
    found = Expanded("*:sched_switch { }")
    assert not found.errors
    assert found.names == ["rawtracepoint:vmlinux:sched_switch"]
    assert Expanded("*:sched:sched_switch { }").names == ["tracepoint:sched:sched_switch"]
    assert set(Expanded("*:/bin/app:main { }").names) == {"uprobe:/bin/app:main", "uretprobe:/bin/app:main"}
    assert "no probe matches this" in Expanded("k*:no_such_function { }").errors[0]
    assert len(Expanded("*:/bin/app:work+z { }").errors) == 1, "not one of each kind"


def test_missing_probes_error_warn_ignore() -> None:
    text = "tracepoint:sched:nope, tracepoint:sched:sched_switch { }"
    found = Expanded(text)
    assert len(found.errors) == 1
    found = Expanded(text, config=Config(missing_probes="warn"))
    assert not found.errors
    assert len(found.warnings) == 1
    assert found.names == ["tracepoint:sched:sched_switch"]
    found = Expanded(text, config=Config(missing_probes="ignore"))
    assert not found.errors
    assert not found.warnings


class _Unsearched(RecordedKernel):
    """Fails when names are searched for one that is similar."""

    def kernel_functions(self, pattern: str, module: str = "") -> list[KernelFunction]:
        assert "*" not in pattern, pattern
        return super().kernel_functions(pattern, module)

    def tracepoints(self, category: str, event: str) -> list[tuple[str, str]]:
        assert "*" not in category + event, (category, event)
        return super().tracepoints(category, event)


@pytest.mark.parametrize("features", [FEATURES, FEATURES - {"kprobe", "fentry"}])
def test_names_are_searched_only_for_hints_that_are_shown(features: frozenset[str]) -> None:
    kernel = _Unsearched(features=features)
    text = "kprobe:vfs_nosuch, kretprobe:vfs_nosuch, fentry:vfs_nosuch, tracepoint:sched:nope, interval:s:1 { }"
    found = Expanded(text, kernel, Config(missing_probes="ignore"))
    assert (found.names, found.diagnostics.items) == (["interval:s:1"], [])


EMPTY_PATTERNS = [
    "kprobe:nonsense*", "kretprobe:nonsense*", "kprobe:nosuchmodule:nonsense*", "kprobe:*:nonsense", "fentry:nonsense*",
    "fexit:*:nonsense", "fentry:bpf:nonsense*", "tracepoint:nonsense*:*", "tracepoint:sched:nonsense*",
    "rawtracepoint:nonsense*", "rawtracepoint:non*:sched_switch", "uprobe:/bin/app:nonsense*",
    "uprobe:/nonsense/*:main", "uprobe:/bin/app:cpp:nonsense*", "usdt:/bin/app:nonsense*", "usdt:/bin/app:non*:start",
    "*:nonsense*",
]  # fmt: skip


@each_row("pattern", EMPTY_PATTERNS)
def test_empty_patterns_beside_another_attach_point(pattern: str) -> None:
    for text in (f"{pattern}, interval:s:1 {{ }}", f"interval:s:1, {pattern}, {pattern} {{ }}"):
        found = Expanded(text)
        assert (found.names, found.diagnostics.items) == (["interval:s:1"], [])
        (note, *_) = Expanded(text, verbose=True).diagnostics.notes
        assert note.span.text in pattern


@each_row("pattern", EMPTY_PATTERNS)
def test_empty_patterns_alone(pattern: str) -> None:
    text = f"{pattern}, tracepoint:nonsense*:* {{ }} interval:s:1 {{ }}"
    found = Expanded(text)
    first, second = found.diagnostics.errors
    assert first.span.text in pattern
    assert second.span.text == "tracepoint:nonsense*:*"
    found = Expanded(text, config=Config(missing_probes="warn"))
    assert (found.names, len(found.warnings), found.errors) == (["interval:s:1"], 2, [])
    found = Expanded(text, config=Config(missing_probes="ignore"))
    assert (found.names, found.diagnostics.items) == (["interval:s:1"], [])


def test_what_is_missing_beside_empty_patterns() -> None:
    found = Expanded("kprobe:nonsense*, kprobe:vfs_nosuch, interval:s:1 { }")
    assert [item.span.text for item in found.diagnostics.errors] == ["kprobe:vfs_nosuch"]
    found = Expanded("kprobe:nonsense*, interval:s:1 { }", RecordedKernel(features=frozenset()))
    assert "not possible" in found.errors[0]
    assert Expanded("kprobe:nonsense* { } interval:s:1 { }").errors
    assert len(Expanded("kprobe:nonsense*, interval:s:1 { } kprobe:vfs_nosuch { }").errors) == 1, "not those before"
    assert Expanded("tracepoint:sched:nope { }", config=Config(missing_probes="ignore")).errors == [
        "there are no probes to attach"
    ]


def test_limits_name_the_key() -> None:
    found = Expanded("tracepoint:sched:* { }", config=Config(max_probes=2))
    assert "limit is 2" in found.errors[0]
    assert "max_probes" in found.hints[0]
    found = Expanded("begin { } begin { } end { }", config=Config(max_bpf_progs=2))
    assert "max_bpf_progs" in found.hints[0]


def test_probe_filters() -> None:
    found = Expanded("begin { } tracepoint:sched:* { } end { }", probe_filter="wakeup$")
    assert found.names == ["begin", "tracepoint:sched:sched_wakeup", "end"]
    assert "--probe-filter" in Expanded("begin { } tracepoint:sched:* { }", probe_filter="xyz").errors[0]
    assert "regular expression" in Expanded("begin { }", probe_filter="(").errors[0]


def test_test_probes_need_their_mode() -> None:
    found = Expanded("test:a { }")
    assert "--test" in found.hints[0]
    assert Expanded("test:a { }", mode="test").names == ["test:a"]
    assert Expanded("test:a { } bench:b { }", mode="bench").names == ["bench:b"]
    assert Expanded("test:a { } begin { }").names == ["begin"]


# ---------------------------------------------------------------------------------------------------------------- parts


def test_parameters_in_attach_points() -> None:
    found = Expanded("tracepoint:$1:$2 { }", positional=("sched", "sched_switch"))
    assert found.names == ["tracepoint:sched:sched_switch"]
    found = Expanded("tracepoint:$1:$2 { }", positional=("sched",))
    assert found.places == ["$2"]
    assert "1 parameter" in found.hints[0]
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


def test_spans_and_open_quotes() -> None:
    found = parts('a:"b')
    assert isinstance(found, Diagnostics)
    assert (found.errors[0].message, found.errors[0].span.text) == ("this quote is not closed", '"')
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


# ---------------------------------------------------------------------------------------------------------------- table


SPAN = Span(Source("stdin", "x"), 0, 1)
PARTS = {
    "begin": {0}, "end": {0}, "self": {2}, "test": {1}, "bench": {1}, "kprobe": {1, 2}, "kretprobe": {1, 2},
    "uprobe": {2, 3}, "uretprobe": {2, 3}, "usdt": {2, 3}, "python": {2}, "pythonret": {2}, "tracepoint": {2},
    "rawtracepoint": {1, 2}, "fentry": {1, 2}, "fexit": {1, 2}, "profile": {1, 2}, "interval": {1, 2},
    "software": {1, 2}, "hardware": {1, 2},
    "watchpoint": {3}, "iter": {1, 2},
}  # fmt: skip
"""Numbers of parts that an attach point of each kind may have, for a pattern as provider."""


@each_row("row", PROBE_KINDS, ids=lambda row: row.name)
def test_what_a_pattern_as_provider_may_mean(row: ProbeKind) -> None:
    def point(count: int) -> Point:
        return Point(row, Part(row.name, SPAN), (Part("x", SPAN),) * count, SPAN)

    assert {count for count in range(6) if PROVIDERS[row.name].fit(point(count))} == PARTS[row.name]


# ----------------------------------------------------------------------------------------------------------------- base

BASE_SPAN = Span(Source("stdin", "kprobe:x"), 0, 8)


def scope(missing: str = "error", *, quiet: bool = False, **options: Any) -> Scope:
    config = Config(missing_probes=missing)
    return Scope(CompileOptions(**options), RecordedKernel(), config, Diagnostics(), quiet=quiet)


@pytest.mark.parametrize(
    ("text", "number", "message"),
    [
        ("5", 5, ""), ("0x10", 16, ""), ("-5", -5, ""), ("x", None, "the count must be a number, not 'x'"),
        (str(2**64 - 1), 2**64 - 1, ""), (str(2**64), None, "the count does not fit 64 bits"),
    ],
)  # fmt: skip
def test_numbers(text: str, number: int | None, message: str) -> None:
    where = scope()
    assert number_of(Part(text, BASE_SPAN), where, "the count") == number
    assert [item.message for item in where.diagnostics.errors] == ([message] if message else [])


@each_row(
    ("pattern", "name", "fits"),
    [
        ("abc", "abc", True), ("abc", "abcd", False), ("*", "", True), ("a*", "abc", True), ("*c", "abc", True),
        ("a*c", "ac", True), ("a*a", "a", False), ("a*b*c", "axbxc", True), ("a*b*c", "acb", False),
        ("a*bb*b", "abb", False), ("a?c", "abc", False), ("*b*b*", "ab", False), ("*b*b*", "bxb", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, name: str, fits: bool) -> None:
    assert matches_pattern(pattern, name) is fits


def test_suggestions() -> None:
    assert nearest("vfs_raed", ["vfs_read", "do_exit"], "kprobe:{}") == ["did you mean kprobe:vfs_read?"]
    assert nearest("zzz", ["vfs_read"]) == []


def test_places_that_a_pattern_found_may_be_gone_later() -> None:
    kind = PROBE_KINDS[0]
    found = by_pattern(
        [
            Match(kind, "a", UserTarget("/bin/a", 1), BASE_SPAN),
            Match(kind, "b", TypedFunctionTarget("f", program_id=1), BASE_SPAN),
        ]
    )
    assert [item.place.by_pattern for item in found] == [True, True]
    with pytest.raises(AssertionError):
        by_pattern([Match(kind, "c", NoTarget(), BASE_SPAN)])
