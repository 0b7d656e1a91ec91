"""The pass from attach points to programs: providers by name and pattern, missing probes, limits, filters."""

from __future__ import annotations

import pytest

from pytrace.core.kernel_info import KernelFunction
from pytrace.core.options import Config
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel
from tests.support.rows import each_row


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("BEGIN", "begin"),
        ("End", "end"),
        ("I:s:1", "interval"),
        ("KPROBE:vfs_read", "kprobe"),
        ("kfunc:vfs_read", "fentry"),
        ("kretfunc:vfs_read", "fexit"),
        ("U:/bin/app:one:start", "usdt"),
        ("u:/bin/app:main", "uprobe"),
    ],
)
def test_names_and_short_names(text: str, kind: str) -> None:
    assert Expanded(f"{text} {{ }}").unit.kind.name == kind


def test_blocks_are_counted_in_source_order() -> None:
    assert [unit.index for unit in Expanded("begin { } begin { } end { }").units] == [0, 1, 2]


def test_unknown_providers_suggest() -> None:
    found = Expanded("intervl:s:1 { }")
    assert found.places == ["intervl"]
    assert "'interval'" in found.hints[0]


def test_unknown_name_alone_explains_the_form() -> None:
    found = Expanded("vfs_read { }")
    assert "kprobe:vfs_read" in found.hints[0]


def test_removed_provider() -> None:
    assert "watchpoint:ADDRESS:LENGTH:MODE" in Expanded("asyncwatchpoint:0x10:8:w { }").errors[0]


def test_pattern_as_provider_goes_over_the_kernel_kinds() -> None:
    found = Expanded("*:sched_switch { }")
    assert not found.errors
    assert found.names == ["rawtracepoint:vmlinux:sched_switch"]


def test_pattern_as_provider_with_two_parts() -> None:
    assert Expanded("*:sched:sched_switch { }").names == ["tracepoint:sched:sched_switch"]


def test_pattern_as_provider_with_a_path_means_user_kinds() -> None:
    assert set(Expanded("*:/bin/app:main { }").names) == {"uprobe:/bin/app:main", "uretprobe:/bin/app:main"}


def test_pattern_as_provider_with_nothing_found() -> None:
    assert "no probe matches this" in Expanded("k*:no_such_function { }").errors[0]


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


def test_empty_patterns_do_not_hide_what_is_missing_beside_them() -> None:
    found = Expanded("kprobe:nonsense*, kprobe:vfs_nosuch, interval:s:1 { }")
    assert [item.span.text for item in found.diagnostics.errors] == ["kprobe:vfs_nosuch"]
    found = Expanded("kprobe:nonsense*, interval:s:1 { }", RecordedKernel(features=frozenset()))
    assert "not possible" in found.errors[0]


def test_the_other_attach_point_stands_in_the_same_block() -> None:
    assert Expanded("kprobe:nonsense* { } interval:s:1 { }").errors


def test_all_missing_is_an_error_even_when_ignored() -> None:
    assert Expanded("tracepoint:sched:nope { }", config=Config(missing_probes="ignore")).errors == [
        "there are no probes to attach"
    ]


def test_limits_name_the_key() -> None:
    found = Expanded("tracepoint:sched:* { }", config=Config(max_probes=2))
    assert "limit is 2" in found.errors[0]
    assert "max_probes" in found.hints[0]
    found = Expanded("begin { } begin { } end { }", config=Config(max_bpf_progs=2))
    assert "max_bpf_progs" in found.hints[0]


def test_probe_filter_keeps_begin_and_end() -> None:
    found = Expanded("begin { } tracepoint:sched:* { } end { }", probe_filter="wakeup$")
    assert found.names == ["begin", "tracepoint:sched:sched_wakeup", "end"]


def test_probe_filter_without_match() -> None:
    assert "--probe-filter" in Expanded("begin { } tracepoint:sched:* { }", probe_filter="xyz").errors[0]


def test_probe_filter_must_be_an_expression() -> None:
    assert "regular expression" in Expanded("begin { }", probe_filter="(").errors[0]


def test_test_probes_need_their_mode() -> None:
    found = Expanded("test:a { }")
    assert "--test" in found.hints[0]
    assert Expanded("test:a { }", mode="test").names == ["test:a"]
    assert Expanded("test:a { } bench:b { }", mode="bench").names == ["bench:b"]
    assert Expanded("test:a { } begin { }").names == ["begin"]
