"""Grouping of targets into programs: sharing, names, process filters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytrace.core.kernel_info import KernelFunction, UsdtProbe, UserSymbol
from pytrace.core.options import Config, ProcessFilters
from pytrace.core.types import INT32, UINT64, Field, Struct
from pytrace.frontend.probes import uprobes
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


def test_which_units_decide_about_processes() -> None:
    options = {"filters": ProcessFilters(pids=(7,), uids=(0,)), "follow": True}
    found = Expanded("tracepoint:sched:sched_switch { } interval:s:1 { print(in_scope) }", **options)
    assert [(unit.pid_filter, unit.filtered, unit.follow) for unit in found.units] == [(False, False, False)] * 2
    found = Expanded("interval:s:1, tracepoint:sched:sched_switch { }", filters=ProcessFilters(pids=(7,)))
    assert [unit.pid_filter for unit in found.units] == [True, True]
    assert Expanded("tracepoint:sched:sched_switch { }", ahead=True).unit.pid_filter
    assert not Expanded("tracepoint:sched:sched_switch { }").unit.pid_filter


def test_tracepoints_share_a_unit_where_fields_lie_the_same() -> None:
    assert len(Expanded("tracepoint:*:* { @[probe] = count() }").unit.targets) == 5
    found = Expanded("tracepoint:sched:sched_wakeup* { print(args.pid) }")
    assert len(found.unit.targets) == 2
    found = Expanded("tracepoint:sched:sched_* { print(args) }")
    assert len(found.units) == 3
    assert sorted(len(unit.targets) for unit in found.units) == [1, 1, 2]
    kernel = RecordedKernel(features=frozenset({"tracepoint"}))
    assert len(Expanded("tracepoint:sched:sched_wakeup* { print(probe) }", kernel).units) == 2
    assert len(Expanded("tracepoint:sched:sched_wakeup* { print(1) }", kernel).units) == 1


def test_other_kinds_share_what_they_can() -> None:
    found = Expanded("tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup* { }")
    assert found.names == ["tracepoint:sched:sched_wakeup", "tracepoint:sched:sched_wakeup_new"]
    assert len(Expanded("fentry:vfs_* { }").units) == 3
    assert len(Expanded('uprobe:/bin/app:work* { print(uaddr("main")) }').units) == 2
    assert len(Expanded("uprobe:/bin/app:work* { print(1) }").units) == 1


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
    assert links(text, no_features=frozenset({"kprobe_session"})) == [("kprobe_multi", ""), ("kprobe_multi", "")]
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


# ------------------------------------------------------------------------------------------------------- harmful places

BAD = bytes.fromhex("62f27d487ac7")
"""vpbroadcastb."""
ALSO_BAD = bytes.fromhex("c5f97ec0")
"""vmovd."""
GOOD = b"\x90" * 16
NOP5_HEX = "0f1f440000"
NOP5 = bytes.fromhex(NOP5_HEX)
LEAF = bytes.fromhex("48897c24f8") + NOP5 + b"\xc3"
"""Stores below the stack pointer."""

SYMBOLS = {
    "/bin/app": (
        UserSymbol("bad", 0x401000, 0x1000, 64),
        UserSymbol("good", 0x401040, 0x1040, 64),
        UserSymbol("worse", 0x401080, 0x1080, 64),
        UserSymbol("short", 0x4010C0, 0x10C0, 6),
        UserSymbol("leaf", 0x401100, 0x1100, len(LEAF)),
        UserSymbol("nops", 0x401140, 0x1140, 32),
    )
}
CODE = {
    0x1000: BAD + GOOD,
    0x1040: GOOD,
    0x1044: BAD + GOOD,
    0x1080: BAD + ALSO_BAD + GOOD,
    0x10C0: BAD,
    0x1100: LEAF,
    0x1105: NOP5 + b"\xc3",
    0x1140: NOP5 + LEAF,
}
KERNEL = RecordedKernel(symbols=SYMBOLS, code_at=CODE, features=FEATURES | {"nop5_uprobes"})


def usdt(*offsets: int) -> RecordedKernel:
    probes = tuple(UsdtProbe("/bin/app", "one", "start", 0x400000 + at, at, 0, "") for at in offsets)
    return RecordedKernel(symbols=SYMBOLS, code_at=CODE, usdt=probes, features=FEATURES | {"nop5_uprobes"})


def test_a_named_function_is_an_error() -> None:
    for kind in ("uprobe", "uretprobe"):
        found = Expanded(f"{kind}:/bin/app:bad {{ }}", KERNEL)
        why = "the kernel would misread the instruction there (62 f2 7d 48 7a c7) and corrupt the program"
        assert found.errors == [f"cannot probe {kind}:/bin/app:bad: {why}"]
        assert found.hints == ["the next instruction that can be probed: uprobe:/bin/app:bad+6"]
        assert found.places == [f"{kind}:/bin/app:bad"]


def test_the_hint_passes_other_such_instructions_but_not_the_end() -> None:
    assert "uprobe:/bin/app:worse+10" in Expanded("uprobe:/bin/app:worse { }", KERNEL).hints[0]
    found = Expanded("uprobe:/bin/app:short { }", KERNEL)
    assert found.errors
    assert not found.hints


def test_offsets_and_addresses() -> None:
    found = Expanded("uprobe:/bin/app:good+4 { }", KERNEL)
    assert found.errors
    assert "uprobe:/bin/app:good+10" in found.hints[0]
    found = Expanded("uprobe:/bin/app:0x401044 { }", KERNEL)
    assert "misread" in found.errors[0]
    assert "uprobe:/bin/app:0x40104a" in found.hints[0]
    assert not Expanded("uprobe:/bin/app:0x401040 { }", KERNEL).errors
    # --unsafe means what may go wrong; this does.
    assert Expanded("uprobe:/bin/app:bad { }", KERNEL, unsafe=True).errors


def test_source_lines() -> None:
    third, fourth = UserSymbol("good", 0x401044, 0x1044, 0), UserSymbol("good", 0x401040, 0x1040, 0)
    lines = {("app.c", 3): [third], ("app.c", 4): [fourth]}
    kernel = RecordedKernel(symbols=SYMBOLS, code_at=CODE, lines=lines)
    assert "misread" in Expanded("uprobe:/bin/app@app.c:3 { }", kernel).errors[0]
    assert Expanded("uprobe:/bin/app@app.c:4 { }", kernel).unit


def test_patterns_leave_them_out() -> None:
    found = Expanded("uprobe:/bin/app:* { }", KERNEL)
    assert found.names == ["uprobe:/bin/app:good", "uprobe:/bin/app:leaf", "uprobe:/bin/app:nops"]
    assert found.warnings == ["3 of 6 probes left out: the kernel would corrupt the program there"]
    assert found.hints == ["-v shows which"]
    assert not found.errors
    found = Expanded("uprobe:/bin/app:* { }", KERNEL, verbose=True)
    assert not found.hints
    notes = [item.message for item in found.diagnostics.notes]
    assert [note.split(":")[2] for note in notes] == ["bad", "worse", "short"]


def test_what_patterns_leave_out() -> None:
    found = Expanded("uprobe:/bin/app:b* { }", KERNEL)
    assert found.errors == ["there are no probes to attach"]
    assert found.warnings
    found = Expanded("uprobe:/bin/app:* { }", KERNEL, probe_filter=":(good|bad)$")
    assert found.warnings == ["1 of 2 probes left out: the kernel would corrupt the program there"]


def test_missing_probes_decides() -> None:
    found = Expanded("uprobe:/bin/app:bad,uprobe:/bin/app:good { }", KERNEL, Config(missing_probes="warn"))
    assert found.names == ["uprobe:/bin/app:good"]
    assert len(found.warnings) == 1
    found = Expanded("uprobe:/bin/app:* { }", KERNEL, Config(missing_probes="ignore"))
    assert len(found.names) == 3
    assert not found.warnings


def test_lists_and_other_machines_have_all() -> None:
    assert len(Expanded("uprobe:/bin/app:* { }", KERNEL, mode="list").names) == 6
    arm = RecordedKernel(symbols=SYMBOLS, code_at=CODE, arch="aarch64")
    assert not Expanded("uprobe:/bin/app:bad { }", arm).errors


def test_static_probes() -> None:
    found = Expanded("usdt:/bin/app:one:start { }", usdt(0x1000))
    assert "misread" in found.errors[0]
    assert not found.hints
    # One of several locations.
    found = Expanded("usdt:/bin/app:one:start { }", usdt(0x1000, 0x1040))
    assert len(found.unit.targets) == 1
    assert found.warnings == ["1 of 2 probes left out: the kernel would corrupt the program there"]


def test_nops_that_become_calls() -> None:
    found = Expanded("usdt:/bin/app:one:start { }", usdt(0x1105))
    assert "replaces the 5-byte nop there by a call" in found.errors[0]
    assert found.hints == ["a function compiled with -mno-red-zone can be probed there"]
    # At the entry of a function nothing is in the red zone yet.
    assert Expanded("usdt:/bin/app:one:start { }", usdt(0x1140)).unit
    assert Expanded("uprobe:/bin/app:leaf { }", KERNEL).unit
    # A function of unknown size, probed at its start.
    sizeless = usdt(0x1140)
    sizeless.symbols = {"/bin/app": (UserSymbol("nops", 0x401140, 0x1140, 0),)}
    assert Expanded("usdt:/bin/app:one:start { }", sizeless).unit
    # No function is known to be there.
    outside = usdt(0x2000)
    outside.code_at = {0x2000: NOP5}
    assert Expanded("usdt:/bin/app:one:start { }", outside).errors


def test_other_kernels_leave_nops_alone() -> None:
    kernel = usdt(0x1105)
    kernel.features = FEATURES
    assert Expanded("usdt:/bin/app:one:start { }", kernel).unit
    hidden = Expanded("usdt:/bin/app:one:start { }", usdt(0x1105), no_features=frozenset({"nop5_uprobes"}))
    assert hidden.unit




@each_row(
    ("code", "offset", "expected"),
    [
        (NOP5_HEX, 0x1000, True),
        (NOP5_HEX, 0x1FFB, True),  # the last place in a page
        (NOP5_HEX, 0x1FFC, False),
        ("6666666690", 0, True),
        ("90", 0, False),
        ("0f1f4000", 0, False),  # four bytes
        ("660f1f440000", 0, False),  # six bytes
        ("0f1f4c0000", 0, False),  # another instruction of the group
        ("e800000000", 0, False),
        ("b811223344", 0, False),
        ("0f1f44", 0, False),  # cut off
        ("", 0, False),
        ("06", 0, False),
    ],
)
def test_becomes_call(code: str, offset: int, expected: bool) -> None:
    assert uprobes.becomes_call(bytes.fromhex(code), offset) is expected


def test_at_entry() -> None:
    assert uprobes.red_zone_unused(b"")
    assert uprobes.red_zone_unused(bytes.fromhex("f30f1efa"))
    assert not uprobes.red_zone_unused(bytes.fromhex("55"))


@each_row(
    ("code", "expected"),
    [
        (f"48897c24f8{NOP5_HEX}c3", True),  # mov [rsp-8], rdi
        (f"4889bc2478ffffff{NOP5_HEX}c3", True),  # mov [rsp-136], rdi
        (f"554889e5488945f8{NOP5_HEX}c3", True),  # mov [rbp-8], rax
        (f"488985f0feffff{NOP5_HEX}c3", True),  # mov [rbp-272], rax
        (f"4c8b44cdf8{NOP5_HEX}c3", True),  # mov r8, [rbp+rcx*8-8]
        (f"c5fa7f4424f0{NOP5_HEX}c3", True),  # vmovdqu [rsp-16], xmm0
        (f"48897c24f8{NOP5_HEX}e800000000c3", False),  # calls
        (f"48897c24f8{NOP5_HEX}ff5008c3", False),  # call [rax+8]
        (f"48897c24f8{NOP5_HEX}ffe0", True),  # jmp rax
        (f"48897c2408{NOP5_HEX}c3", False),  # mov [rsp+8], rdi
        (f"488947f8{NOP5_HEX}c3", False),  # mov [rdi-8], rax
        (f"4889f8{NOP5_HEX}c3", False),  # between registers
        (f"{NOP5_HEX}06", True),  # not an instruction
        (f"{NOP5_HEX}48", True),  # cut off
    ],
)
def test_used(code: str, expected: bool) -> None:
    assert uprobes.uses_red_zone(bytes.fromhex(code)) is expected
