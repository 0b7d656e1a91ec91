"""Grouping of targets into programs: sharing, names, process filters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytrace.core.kernel_info import KernelFunction
from pytrace.core.options import ProcessFilters
from pytrace.core.types import INT32, UINT64, Field, Struct
from pytrace.frontend.syntax import nodes
from tests.frontend.expanding import Expanded
from tests.support.facts import FEATURES, RecordedKernel, function
from tests.support.rows import each_row


def test_several_attach_points_of_one_kind_share_a_unit() -> None:
    unit = Expanded("interval:s:1, interval:ms:10, { }").unit
    assert [target.probe for target in unit.targets] == ["interval:s:1", "interval:ms:10"]
    assert [target.cookie for target in unit.targets] == [0, 1]


def test_kinds_have_their_own_units_and_bodies() -> None:
    found = Expanded("begin, end { print(1) }")
    first, second = found.units
    assert [first.index, second.index] == [0, 0]
    assert first.symbol != second.symbol
    assert first.body is not second.body
    assert nodes.same(first.body, second.body)
    assert not set(nodes.walk(first.body)) & set(nodes.walk(second.body))


def test_predicate_becomes_an_if() -> None:
    from pytrace.frontend.syntax import nodes

    unit = Expanded("begin /pid == 1/ { print(1) }").unit
    (statement,) = unit.body.statements
    assert isinstance(statement, nodes.ExprStmt)
    assert isinstance(statement.value, nodes.If)
    assert isinstance(statement.value.condition, nodes.Binary)
    assert statement.value.other is None


def test_pid_filter_of_injected_kinds() -> None:
    assert Expanded("tracepoint:sched:sched_switch { }", filters=ProcessFilters(pids=(7,))).unit.pid_filter
    assert not Expanded("interval:s:1 { }", filters=ProcessFilters(pids=(7,))).unit.pid_filter
    # The kernel binds it to no process whose first thread has ended, and then it is that of all.
    assert Expanded("uprobe:/bin/app:main { }", filters=ProcessFilters(pids=(7,))).unit.pid_filter
    assert not Expanded("uprobe:/bin/app:main { }").unit.pid_filter


@each_row(
    ("probe", "compared"),
    [("profile:hz:9", True), ("profile:us:100", True), ("profile:us:99", False), ("profile:hz:10001", False),
     ("software:cpu-clock:1000000", True), ("software:cpu", True), ("software:task-clock:1000000", True),
     ("software:task-clock", False), ("software:page-faults:1000000", False),
     ("interval:s:1", False)],
)  # fmt: skip
def test_samples_of_cpus_are_compared_with_the_process(probe: str, compared: bool) -> None:
    """Also in scripts that decide themselves, and in no other block of theirs."""
    for more in ("", "tracepoint:sched:sched_switch { print(in_scope); }"):
        units = Expanded(f"{probe} {{ }} {more}", filters=ProcessFilters(pids=(7,))).units
        assert [unit.pid_filter for unit in units] == [compared, *([False] if more else [])]
    assert [unit.pid_filter for unit in Expanded(f"{probe}, interval:s:2 {{ }}", filters=ProcessFilters((7,))).units] \
        == ([False] if probe == "interval:s:1" else [compared, False])


@pytest.mark.parametrize(
    ("probe", "filtered"),
    [("tracepoint:sched:sched_switch", True), ("uprobe:/bin/app:main", True), ("profile:hz:9", True),
     ("interval:s:1", False), ("begin", False), ("end", False)],
)  # fmt: skip
def test_other_filters_are_for_all_kinds_that_tasks_run(probe: str, filtered: bool) -> None:
    unit = Expanded(f"{probe} {{ }}", filters=ProcessFilters(comms=("x",))).unit
    assert (unit.filtered, unit.pid_filter, unit.follow) == (filtered, False, False)


def test_a_script_that_asks_decides_itself() -> None:
    options = {"filters": ProcessFilters(pids=(7,), uids=(0,)), "follow": True}
    found = Expanded("tracepoint:sched:sched_switch { } interval:s:1 { print(in_scope) }", **options)
    assert [(unit.pid_filter, unit.filtered, unit.follow) for unit in found.units] == [(False, False, False)] * 2


def test_one_injected_kind_filters_the_block() -> None:
    found = Expanded("interval:s:1, tracepoint:sched:sched_switch { }", filters=ProcessFilters(pids=(7,)))
    assert [unit.pid_filter for unit in found.units] == [True, True]


def test_tracepoints_share_a_unit_when_args_is_not_used() -> None:
    assert len(Expanded("tracepoint:*:* { @[probe] = count() }").unit.targets) == 5


def test_tracepoints_share_a_unit_when_the_used_fields_lie_the_same() -> None:
    found = Expanded("tracepoint:sched:sched_wakeup* { print(args.pid) }")
    assert len(found.unit.targets) == 2


def test_tracepoints_with_other_layouts_have_their_own_unit() -> None:
    found = Expanded("tracepoint:sched:sched_* { print(args) }")
    assert len(found.units) == 3
    assert sorted(len(unit.targets) for unit in found.units) == [1, 1, 2]


def test_without_cookies_probe_needs_a_unit_for_each() -> None:
    kernel = RecordedKernel(features=frozenset({"tracepoint"}))
    assert len(Expanded("tracepoint:sched:sched_wakeup* { print(probe) }", kernel).units) == 2
    assert len(Expanded("tracepoint:sched:sched_wakeup* { print(1) }", kernel).units) == 1


def test_overlapping_patterns_fire_once() -> None:
    found = Expanded("tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup* { }")
    assert found.names == ["tracepoint:sched:sched_wakeup", "tracepoint:sched:sched_wakeup_new"]


def test_typed_kinds_have_a_unit_for_each_place() -> None:
    assert len(Expanded("fentry:vfs_* { }").units) == 3


@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        ("begin { }", "begin_0"),
        ("kprobe:vfs_read { }", "kprobe_vfs_read_0"),
        ("kprobe:vfs_read+4 { }", "kprobe_vfs_read_4_0"),
        ("uprobe:/bin/app:work { }", "uprobe_work_0"),
        ("tracepoint:sched:sched_switch { }", "tracepoint_sched_sched_switch_0"),
        ("kprobe:vfs_* { }", "kprobe_0"),
    ],
)
def test_symbols_say_what_a_program_serves(text: str, symbol: str) -> None:
    assert Expanded(text).unit.symbol == symbol


def test_followed_processes() -> None:
    """Perf events of a command are inherited; those of a process that runs already, and of CPUs, are not."""
    for text, options, follow in (
        ("tracepoint:sched:sched_switch { }", {"filters": ProcessFilters((7,)), "follow": True}, True),
        ("tracepoint:sched:sched_switch { }", {"filters": ProcessFilters((7,))}, False),
        ("profile:hz:9 { }", {"filters": ProcessFilters((7,)), "follow": True}, True),
        ("profile:hz:9 { }", {"child": True, "follow": True}, True),
        ("software:cpu-clock:1000000 { }", {"child": True, "follow": True}, True),
        ("software:page-faults:1 { }", {"child": True, "follow": True}, False),
        ("uprobe:/bin/app:work { }", {"child": True, "follow": True}, True),
        ("interval:s:1 { }", {"filters": ProcessFilters((7,)), "follow": True}, False),
    ):
        assert Expanded(text, **options).unit.follow is follow, (text, options)


def test_files_compiled_ahead_learn_the_process_later() -> None:
    assert Expanded("tracepoint:sched:sched_switch { }", ahead=True).unit.pid_filter
    assert not Expanded("tracepoint:sched:sched_switch { }").unit.pid_filter


def test_the_address_of_a_binary_needs_one_place_a_program() -> None:
    assert len(Expanded('uprobe:/bin/app:work* { print(uaddr("main")) }').units) == 2
    assert len(Expanded("uprobe:/bin/app:work* { print(1) }").units) == 1


_PLAIN = RecordedKernel()
SESSIONS = replace(
    _PLAIN,
    features=FEATURES | {"kprobe_multi", "kprobe_session"},
    prototypes=(*_PLAIN.prototypes, function("bpf_session_is_return", result=INT32)),
)


def links(text: str, **options: object) -> list[tuple[str, str]]:
    """(multi link, the program that it is part of) of each unit."""
    return [(unit.multi, unit.part_of) for unit in Expanded(text, SESSIONS, **options).units]  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["vfs_read", "vfs_*", "vfs_read,{}:do_exit"])
def test_one_entry_and_one_return(what: str) -> None:
    text = " ".join(f"{kind}:{what.format(kind)} {{ }}" for kind in ("kprobe", "kretprobe"))
    entry, leaving = Expanded(text, SESSIONS).units
    assert (entry.multi, entry.part_of) == ("kprobe_session", "")
    assert (leaving.multi, leaving.part_of) == ("kprobe_session", entry.symbol)
    assert [item.place for item in entry.targets] == [item.place for item in leaving.targets]


def test_the_order_of_the_blocks_does_not_matter() -> None:
    leaving, entry = Expanded("kretprobe:vfs_read { } kprobe:vfs_read { }", SESSIONS).units
    assert leaving.part_of == entry.symbol


@pytest.mark.parametrize(
    "text",
    [
        "kprobe:vfs_read { } kretprobe:vfs_write { }",
        "kprobe:vfs_read { } kprobe:vfs_read { } kretprobe:vfs_read { }",
        "kprobe:vfs_read { } kretprobe:vfs_read { } kretprobe:vfs_read { }",
        "kprobe:vfs_read+4 { } kretprobe:vfs_read { }",
        "kprobe:vfs_read { } kprobe:vfs_write { }",
    ],
)
def test_others_stay_apart(text: str) -> None:
    assert all(multi == "" and not part for multi, part in links(text))


def test_only_where_the_kernel_has_it_and_the_user_wants_it() -> None:
    text = "kprobe:vfs_* { } kretprobe:vfs_* { }"
    assert links(text) != [("kprobe_multi", ""), ("kprobe_multi", "")]
    assert links(text, disabled=frozenset({"kprobe_session"})) == [("kprobe_multi", ""), ("kprobe_multi", "")]
    assert [unit.multi for unit in Expanded(text).units] == ["", ""]
    unknown = replace(SESSIONS, prototypes=_PLAIN.prototypes)
    assert [unit.multi for unit in Expanded(text, unknown).units] == ["kprobe_multi", "kprobe_multi"]


def test_pools_of_older_kernels_need_many_functions() -> None:
    """Before 6.14 a session on one function that sleeps would leave out calls that a kprobe sees."""
    probe = Struct("struct", "fprobe", 8, (Field("rethook", UINT64, 0),), origin="vmlinux", alignment=8)
    names = [f"pooled_{number}" for number in range(16)]
    kernel = replace(
        SESSIONS,
        structs={**SESSIONS.structs, ("struct", "fprobe"): probe},
        traceable=(*SESSIONS.traceable, *(KernelFunction(name) for name in names)),
    )

    def multi(what: str) -> list[str]:
        text = f"kprobe:{what} {{ }} kretprobe:{what} {{ }}"
        return [unit.multi for unit in Expanded(text, kernel).units]

    assert multi("vfs_read") == ["", ""]
    assert multi("pooled_*") == ["kprobe_session", "kprobe_session"]
