"""Ahead-of-time files on the kernel that loads them: layouts, probes that moved, and what is prepared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytrace import pipeline
from pytrace.core.diagnostics import Diagnostics, MisfitError, ScriptError, TraceError
from pytrace.core.event_layout import Location
from pytrace.core.kernel_info import UsdtProbe, UserSymbol
from pytrace.core.manifest import LOAD_TIME_SECTION, CompiledScript, Manifest, OpenValue, ProgramSpec, Target
from pytrace.core.options import CompileOptions, Config, ProcessFilters, RunOptions
from pytrace.core.probe_kinds import ProbeTarget, StaticProbeTarget, TypedFunctionTarget, UserTarget
from pytrace.core.source import Source
from pytrace.core.types import INT32, UINT64, Enum, Field, Int, Pointer, String, Struct
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.load import ahead_of_time
from pytrace.runtime.machine import fingerprints
from tests.support.facts import RecordedKernel, event, function, tracepoint_field
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- prepare
# Ahead-of-time files: open values, refusals, and what moves; compiled with recorded facts, never loaded.


SCHED = 'tracepoint:sched:sched_wakeup { %s }'
FACT = ("kernel", "none", "x86_64", "6.1.0-test", "another build", "0")


def task(*fields: Field, size: int = 64) -> dict[tuple[str, str], Struct]:
    """A kernel whose only struct is this ``task_struct``."""
    return {("struct", "task_struct"): Struct("struct", "task_struct", size, fields, origin="vmlinux", alignment=8)}


def compiled(
    text: str, positional: tuple[str, ...] = (), named: tuple[tuple[str, str | None], ...] = ()
) -> CompiledScript:
    diagnostics = Diagnostics()
    wanted = CompileOptions(positional=positional, named=named, ahead=True)
    found = pipeline.compile_script(Source("stdin", text), wanted, RecordedKernel(), diagnostics)
    found = replace(found, manifest=replace(found.manifest, facts=(FACT,)))
    return CompiledScript.from_bytes(found.to_bytes())


def prepared(
    script: CompiledScript,
    *positional: str,
    kernel: RecordedKernel | None = None,
    options: RunOptions | None = None,
    named: Mapping[str, str | None] | None = None,
) -> ahead_of_time.Prepared:
    given = ahead_of_time.RunParameters(positional, tuple((named or {}).items()))
    return ahead_of_time.prepare(script, given, options or RunOptions(), kernel or RecordedKernel())


def values(script: CompiledScript) -> tuple[OpenValue, ...]:
    assert script.manifest.ahead is not None
    return script.manifest.ahead.values


def value(script: CompiledScript, what: str, *parts: str) -> bytes:
    """The bytes of an open value in the ELF file."""
    item = next(item for item in values(script) if item.what == what and item.parts[: len(parts)] == parts)
    section = ElfFile(script.elf, "").section(LOAD_TIME_SECTION)
    assert section is not None
    start = section.offset + item.offset
    return script.elf[start : start + item.size]


def number(script: CompiledScript, what: str, *parts: str) -> int:
    return int.from_bytes(value(script, what, *parts), "little", signed=True)


# ---------------------------------------------------------------------------------------------- open values

NAMED = 'begin { print((getopt("min", 7, "least"), getopt("who", "all"), getopt("loud"), getopt("on", true))); }'
MACHINE = "tracepoint:sched:sched_wakeup { print((ncpus, has_cpid, pid)); }"
SIZES = SCHED % "print((sizeof(struct task_struct), offsetof(struct task_struct, comm)));"
PID = ("member", "struct", "task_struct", "pid")
Expected = Mapping[tuple[str, ...], int | bytes]


@each_row(
    ("text", "positional", "more", "expected"),
    [
        ("begin { print($1); }", ("1",), {}, {("parameter", "1"): 1}),
        ("begin { print(($1, str($2), $#, str($2 + 2))); }", ("-0x10", "hello"), {},
         {("parameter", "1"): -16, ("parameter", "2", "text", "", "0"): b"hello", ("parameter", "#"): 2,
          ("parameter", "2", "text", "", "2"): b"llo"}),
        (NAMED, (), {}, {("parameter", "min"): 7, ("parameter", "who"): b"all", ("parameter", "loud"): 0,
                         ("parameter", "on"): 1}),
        (NAMED, (), {"named": {"min": "-1", "who": "", "loud": None, "on": "false"}},
         {("parameter", "min"): -1, ("parameter", "who"): b"", ("parameter", "loud"): 1, ("parameter", "on"): 0}),
        (MACHINE, (), {"kernel": RecordedKernel(possible_cpus=3, pid_namespace=(4, 0xF0000001)),
                       "options": RunOptions(filters=ProcessFilters(pids=(77,)))},
         {("cpus",): 3, ("child",): 0, ("pid",): 77, ("namespace", "inode"): 0xF0000001}),
        (MACHINE, (), {"options": RunOptions(command="true")}, {("child",): 1}),
        (SCHED % "print(curtask->pid);", (), {}, {PID: 0}),
        (SCHED % "print(curtask->pid);", (),
         {"kernel": RecordedKernel(structs=task(Field("pid", INT32, 40), Field("comm", String(16), 8)))}, {PID: 40}),
        (SIZES, (), {"kernel": RecordedKernel(structs=task(Field("comm", String(16), 24), size=128))},
         {("size", "struct", "task_struct"): 128, ("member", "struct", "task_struct", "comm"): 24}),
    ],
)  # fmt: skip
def test_values_of_a_run(text: str, positional: tuple[str, ...], more: dict[str, Any], expected: Expected) -> None:
    script = compiled(text)
    before = script.elf
    ready = prepared(script, *positional, **more)
    assert not ready.warnings
    for parts, wanted in expected.items():
        if isinstance(wanted, bytes):
            assert value(ready.script, *parts).rstrip(b"\0") == wanted
        else:
            assert number(ready.script, *parts) == wanted
    assert script.elf == before, "each run has its own values"


def test_missing_parameters_are_zero_with_one_warning() -> None:
    ready = prepared(compiled("begin { print($2 + $2); print(str($3)); }"))
    assert number(ready.script, "parameter", "2") == 0
    assert ready.warnings == ["parameter $2 was not given; it is 0"]


def test_long_texts_are_cut_as_others_are() -> None:
    ready = prepared(compiled("config = { max_strlen = 8 } begin { print(str($1)); }"), "0123456789")
    assert value(ready.script, "parameter", "1") == b"0123456\0"
    assert ready.warnings == ["parameter $1 has 10 bytes and is truncated to 7 (max_strlen)"]


@pytest.mark.parametrize(
    ("positional", "named", "message"),
    [
        (("x",), {}, "parameter $1 must be a number, not 'x'"),
        (("99999999999999999999",), {}, "does not fit 64 bits"),
        (("1",), {"mim": "3"}, "no parameter --mim"),
        (("1",), {"min": "many"}, "parameter --min must be a number"),
        (("1",), {"min": None}, "parameter --min needs a value"),
        (("1",), {"loud": "maybe"}, "parameter --loud must be true or false"),
    ],
)
def test_wrong_parameters_are_refused(positional: tuple[str, ...], named: dict[str, str | None], message: str) -> None:
    script = compiled('begin { print(($1, str($2), getopt("min", 1), getopt("loud"))); }')
    with pytest.raises(TraceError, match=message.replace("$", r"\$").replace("(", r"\(")):
        prepared(script, *positional, named=named)


def test_parameters_given_with_aot_are_fixed() -> None:
    script = compiled(
        'tracepoint:sched:$1 { print(($2, getopt("n", 1))); }', positional=("sched_wakeup",), named=(("n", "5"),)
    )
    assert script.manifest.programs[0].targets[0].probe == "tracepoint:sched:sched_wakeup"
    assert number(prepared(script, "sched_wakeup", "4", named={"n": "5"}).script, "parameter", "2") == 4
    others: list[tuple[tuple[str, ...], dict[str, str | None]]] = [(("other",), {}), ((), {"n": "6"})]
    for positional, named in others:
        with pytest.raises(TraceError, match="is fixed in the file"):
            prepared(script, *positional, named=named)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tracepoint:sched:$1 { }", "has no value"),
        ("begin { @ = lhist(5, 0, $1, 1); }", "must be an integer literal"),
        ('begin { print(kaddr(str($1))); }', "must be a string literal"),
        ("begin { if comptime $1 > 1 { print(1); } }", "cannot be decided at compile time"),
        ("begin { print(comptime ($1 + 1)); }", "cannot be computed at compile time"),
    ],
)
def test_open_parameters_where_a_constant_is_needed(text: str, message: str) -> None:
    diagnostics = Diagnostics()
    with pytest.raises(ScriptError):
        pipeline.compile_script(Source("stdin", text), CompileOptions(ahead=True), RecordedKernel(), diagnostics)
    assert message in diagnostics.errors[0].message
    error = diagnostics.errors[0]
    assert "$1" in error.span.text
    assert "--aot" in error.hints[0]


def test_usage_lists_parameters() -> None:
    text = ahead_of_time.usage(compiled('begin { print(($2, getopt("min", 7, "least value"), getopt("x"))); }'), "tool")
    assert text == (
        "parameters of tool:\n  --min=N  least value (default: 7)\n  --x\ntool takes 2 positional parameters\n"
    )
    assert ahead_of_time.usage(compiled("begin { }"), "tool") == "tool has no parameters\n"


# ---------------------------------------------------------------------------------------------- facts of the machine


def test_more_processors_than_the_file_has_room_for() -> None:
    with pytest.raises(MisfitError, match="up to 4 CPUs, this machine may have 5") as caught:
        prepared(compiled("begin { @ = count(); }"), kernel=RecordedKernel(possible_cpus=5))
    assert (caught.value.lacks, caught.value.cpus) == ((), 5)


def test_features_that_the_code_uses_and_the_kernel_lacks() -> None:
    """Another compilation helps where nothing else is wrong."""
    script = compiled(SCHED % "print(*curtask);")
    ahead = replace(script.manifest.ahead, features=("atomic_fetch", "ringbuf"))
    uses = replace(script, manifest=replace(script.manifest, ahead=ahead))
    lacking = {"features": RecordedKernel().features - {"ringbuf"}}
    other = task(Field("pid", INT32, 4), Field("comm", String(16), 8))
    for kernel, lacks in (
        (RecordedKernel(**lacking), ("ringbuf",)),
        (RecordedKernel(**lacking, structs=other), ()),
    ):  # fmt: skip
        with pytest.raises(MisfitError, match="does not fit this one") as caught:
            prepared(uses, kernel=kernel)
        assert (caught.value.lacks, caught.value.cpus) == (lacks, 0)
        assert "this kernel lacks ringbuf, which the code uses" in caught.value.hints


def test_another_machine_is_refused() -> None:
    with pytest.raises(TraceError, match="compiled for x86_64, this machine is aarch64"):
        prepared(compiled("begin { }"), kernel=RecordedKernel(arch="aarch64"))


def test_options_that_are_part_of_the_code_are_refused() -> None:
    with pytest.raises(TraceError, match="--follow"):
        prepared(compiled("begin { }"), options=RunOptions(follow=True))


def test_cache_entries_are_no_ahead_of_time_files() -> None:
    script = compiled("begin { }")
    plain = replace(script, manifest=replace(script.manifest, ahead=None))
    with pytest.raises(TraceError, match="compile cache"):
        prepared(plain)


# ---------------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((Field("comm", String(16), 8),), "struct task_struct has no member pid"),
        ((Field("pid", Int(8, True), 0),), "has pid of type int64, not int32"),
    ],
)
def test_members_that_are_gone_or_different_are_refused(fields: tuple[Field, ...], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        prepared(compiled(SCHED % "print(curtask->pid);"), kernel=RecordedKernel(structs=task(*fields)))


MOVED = RecordedKernel(structs=task(Field("pid", INT32, 4), Field("comm", String(16), 8)))
BIGGER = RecordedKernel(structs=task(Field("pid", INT32, 0), Field("comm", String(16), 8), size=72))
OTHER_EVENT = RecordedKernel()
OTHER_EVENT.events[("sched", "sched_wakeup")] = event(
    tracepoint_field("comm", String(16), 8), tracepoint_field("pid", INT32, 28)
)
OTHER_FUNCTION = RecordedKernel(prototypes=(function("vfs_read", ("file", INT32), ("count", INT32)),))
GROWN = Enum("pid_type", 4, False, (("PIDTYPE_PID", 0), ("PIDTYPE_NEW", 1), ("PIDTYPE_MAX", 5)))
OTHER_ENUM = RecordedKernel(enums={"pid_type": GROWN})
READS = "fentry:vfs_read { print(args.count); }"


@each_row(
    ("text", "kernel", "hint"),
    [
        (SCHED % "print(*curtask);", MOVED, "struct task_struct: member pid is at offset 4 here, it was at offset 0"),
        (SCHED % "print(*curtask);", BIGGER, "struct task_struct has 72 bytes here, it had 64"),
        (SCHED % "print(args.pid);", OTHER_EVENT,
         "tracepoint sched:sched_wakeup: field pid has 4 bytes at offset 28 here, it had 4 at offset 24"),
        (READS, OTHER_FUNCTION, "function vfs_read is int32 (int32 file, int32 count) here, it was int64 ("),
        (READS, RecordedKernel(prototypes=()), "there is no function vfs_read here"),
        # An answer that decided what was compiled.
        ('begin { if (kfunc_exist("vfs_read")) { print(1); } }', RecordedKernel(prototypes=()),
         "there is no function vfs_read here"),
        ("begin { print(PIDTYPE_MAX); }", OTHER_ENUM, "enumerator PIDTYPE_MAX is 5 here, it was 4"),
        # What the code does not read may be anywhere.
        (SCHED % "print(args.comm);", OTHER_EVENT, ""),
        ("fentry:vfs_read { print(1); }", OTHER_FUNCTION, ""),
    ],
)  # fmt: skip
def test_what_was_compiled_in_must_be_the_same(text: str, kernel: RecordedKernel, hint: str) -> None:
    script = compiled(text)
    if not hint:
        prepared(script, kernel=kernel)
        return
    with pytest.raises(TraceError, match="does not fit this one") as caught:
        prepared(script, kernel=kernel)
    (found, _) = caught.value.hints
    assert found.startswith(hint)


def test_enumerators_print_by_todays_names() -> None:
    ready = prepared(compiled("begin { print((enum pid_type)nsecs); }"), kernel=OTHER_ENUM).script
    assert [kind for item in ready.manifest.events for kind in item.args if isinstance(kind, Enum)] == [GROWN]


def test_the_scripts_own_structs_are_no_business_of_the_kernel() -> None:
    text = "struct mine { int a; long b; }\n" + SCHED % "print(((struct mine *)1)->b);"
    script = compiled(text)
    assert not [item for item in values(script) if item.what == "member"]
    prepared(script, kernel=RecordedKernel(structs={}))


@pytest.mark.parametrize("facts", [(), ((),), (("kernel",),), (("file", "a", "b", "c"),)])
def test_files_that_do_not_say_for_which_kernel_they_are(facts: tuple[tuple[str, ...], ...]) -> None:
    script = compiled("begin { exit(); }")
    with pytest.raises(TraceError, match="does not say for which kernel"):
        prepared(replace(script, manifest=replace(script.manifest, facts=facts)))


def test_open_values_of_another_form_are_refused() -> None:
    script = compiled("begin { print($1); exit(); }")
    ahead = script.manifest.ahead
    assert ahead is not None
    for values_ in ((OpenValue("unknown", (), 0, 8),), (OpenValue("parameter", ("1",), 0, 8),)):
        damaged = replace(script, manifest=replace(script.manifest, ahead=replace(ahead, values=values_)))
        with pytest.raises(TraceError, match="the file is damaged: the value"):
            prepared(damaged, "5")


# ---------------------------------------------------------------------------------------------- layouts
# Comparing layouts with recorded kernels.


INNER = Struct("struct", "", 16, (Field("low", INT32, 0), Field("flag", INT32, 4, 3, 2)), "vmlinux#9", 8)
OUTER = Struct("struct", "outer", 32, (Field("in", INNER, 8), Field("next", UINT64, 24)), origin="vmlinux", alignment=8)
HOLDER = Struct("struct", "holder", 8, (Field("out", Pointer(OUTER), 0),), origin="vmlinux", alignment=8)
KERNEL = RecordedKernel(structs={("struct", item.name): item for item in (OUTER, HOLDER)})


def test_a_path_gives_the_offset_in_the_last_struct() -> None:
    found = ahead_of_time.nested_member(KERNEL, "struct", "outer", "in.flag")
    assert found is not None
    assert (found.offset, found.bit_offset, found.bit_size) == (4, 3, 2)
    assert ahead_of_time.nested_member(KERNEL, "struct", "outer", "in.none") is None
    assert ahead_of_time.nested_member(KERNEL, "struct", "outer", "next.none") is None


def test_a_path_follows_pointers() -> None:
    found = ahead_of_time.nested_member(KERNEL, "struct", "holder", "out.in.low")
    assert found is not None
    assert found.type == INT32


@each_row(
    ("row", "message"),
    [
        (("member", "struct", "outer", "next", "24", "0", "0", "uint64"), ""),
        (("member", "struct", "outer", "next", "16", "0", "0", "uint64"), "is at offset 24 here, it was at offset 16"),
        (("member", "struct", "outer", "next", "24", "0", "0", "int64"), "is of type uint64 here, it was int64"),
        (
            ("member", "struct", "outer", "in.flag", "4", "1", "2", "int32"),
            "at offset 4 (bit 3, 2 bits) here, it was at offset 4 (bit 1, 2 bits)",
        ),
        (("member", "struct", "none", "x", "0", "0", "0", "int8"), "there is no struct none here"),
        (("size", "struct", "outer", "32"), ""),
        (("size", "struct", "none", "32"), "there is no struct none here"),
        (("tracepoint", "no", "such", "x", "8", "4", "int x"), "there is no tracepoint no:such here"),
        (("tracepoint", "sched", "sched_wakeup", "x", "8", "4", "int x"), "has no field x here"),
        (("tracepoint", "sched", "sched_wakeup", "pid", "24", "4", "long pid"), "is 'int32 pid' here, it was 'long"),
        (("tracepoint", "sched", "sched_wakeup", "pid", "24", "4", "int32 pid"), ""),
        (("rawtracepoint", "no_such", "int (x)"), "there is no raw tracepoint no_such here"),
        (("enumerator", "PIDTYPE_PID", "0"), ""),
        (("enumerator", "NO_SUCH", "0"), "there is no enumerator NO_SUCH here"),
        (("names", "pid_type", "8"), "enum pid_type has 4 bytes here, it had 8"),
        (("kfunc", "vfs_read", "1"), ""),
        (("kfunc", "vfs_read", "0"), "there is a function vfs_read here"),
        (("kfunc", "none", "1"), "there is no function none here"),
        (("type_exist", "struct", "outer", "1"), ""),
        (("type_exist", "struct", "outer", "0"), "there is a struct outer here"),
        (("type_exist", "enum", "none", "1"), "there is no enum none here"),
        (("member_exist", "struct", "holder", "out.in.low", "1"), ""),
        (("member_exist", "struct", "outer", "in.none", "1"), "struct outer has no member in.none here"),
        (("member_exist", "struct", "outer", "next", "0"), "struct outer has a member next here"),
        (("member_exist", "struct", "none", "x", "0"), ""),
        (("constant_exist", "PIDTYPE_PID", "0"), "there is a constant PIDTYPE_PID here"),
        (("constant_exist", "NO_SUCH", "1"), "there is no constant NO_SUCH here"),
        (("symbol_exist", "none", "0"), ""),
        (("symbol_exist", "none", "1"), "there is no symbol none here"),
        (("build", "typeinfo()"), "it uses typeinfo()"),
        (("of another version",), "unknown fact 'of another version'"),
    ],
)
def test_rows(row: tuple[str, ...], message: str) -> None:
    found = ahead_of_time.layout_differences(KERNEL, [row])
    assert found == [] if not message else message in found[0]


# ---------------------------------------------------------------------------------------------- moved probes
# Probes of ahead-of-time files in user binaries that were changed.


PLACE = Location("x", 1, 1)


@pytest.fixture
def binary(tmp_path: Path) -> str:
    path = tmp_path / "app"
    path.write_bytes(b"first")
    return str(path)


def manifest(path: str, *places: ProbeTarget) -> Manifest:
    targets = tuple(Target("p", at, place) for at, place in enumerate(places))
    program = ProgramSpec("p", "uprobe", 0, targets, PLACE)
    return Manifest((program,), (), (), (), Config(), facts=(fingerprints.file_fact(path),))


def kernel(path: str, offset: int = 0x1000, arguments: str = "4@%eax") -> RecordedKernel:
    usdt = (UsdtProbe(path, "one", "start", 0, offset + 0x10, 0x3000, arguments),)
    return RecordedKernel(symbols={path: (UserSymbol("work", 0x401000, offset, 8),)}, usdt=usdt)


def change(path: str) -> None:
    Path(path).write_bytes(b"another build")


def work(path: str) -> UserTarget:
    """Four bytes into a function."""
    return UserTarget(path, 0x1004, symbol="work")


def test_nothing_moves_in_the_same_file(binary: str) -> None:
    found = manifest(binary, work(binary))
    rows = [["symbol", binary, "work", "4096"]]
    assert ahead_of_time.moved_programs(found, rows, kernel(binary, 0x9000)) is found.programs


def test_functions_are_found_again(binary: str) -> None:
    found = manifest(binary, work(binary), UserTarget(binary, 0x50))
    change(binary)
    (program,) = ahead_of_time.moved_programs(found, [["symbol", binary, "work", "4096"]], kernel(binary, 0x2000))
    assert [target.of(UserTarget).offset for target in program.targets] == [0x2004, 0x50]


def test_code_that_the_kernel_would_misread_is_refused(binary: str) -> None:
    rows = [["symbol", binary, "work", "4096"]]
    found = manifest(binary, work(binary))
    changed = kernel(binary, 0x2000)
    changed.code_at = {0x2004: bytes.fromhex("c5f9ebc1")}
    assert ahead_of_time.moved_programs(found, rows, changed) is found.programs
    change(binary)
    with pytest.raises(TraceError, match="cannot probe p: the kernel would misread the instruction"):
        ahead_of_time.moved_programs(found, rows, changed)
    changed.arch = "aarch64"
    assert ahead_of_time.moved_programs(found, rows, changed)


def test_files_that_are_gone_matter_only_where_they_were_asked_for(binary: str) -> None:
    rows = [["symbol", binary, "work", "4096"]]
    by_name = manifest(binary, work(binary))
    by_pattern = manifest(binary, replace(work(binary), by_pattern=True))
    Path(binary).unlink()
    assert ahead_of_time.moved_programs(by_pattern, rows, RecordedKernel(symbols={})) is by_pattern.programs
    with pytest.raises(TraceError, match="no longer has a function 'work'"):
        ahead_of_time.moved_programs(by_name, rows, RecordedKernel(symbols={}))


def test_functions_that_are_gone_are_refused(binary: str) -> None:
    found = manifest(binary, work(binary))
    change(binary)
    with pytest.raises(TraceError, match="no longer has a function 'work'"):
        ahead_of_time.moved_programs(found, [["symbol", binary, "work", "4096"]], RecordedKernel(symbols={}))


def test_static_tracepoints_are_found_again(binary: str) -> None:
    found = manifest(binary, StaticProbeTarget(binary, 0x1010, provider="one", name="start"))
    row = ["usdt", binary, "one", "start", str(0x1010), "4@%eax"]
    change(binary)
    (program,) = ahead_of_time.moved_programs(found, [row], kernel(binary, 0x2000))
    place = program.targets[0].of(StaticProbeTarget)
    assert (place.offset, place.semaphore_offset) == (0x2010, 0x3000)
    with pytest.raises(TraceError, match="arguments of usdt"):
        ahead_of_time.moved_programs(found, [row], kernel(binary, arguments="8@%rdi"))


def test_code_for_one_file_only(binary: str) -> None:
    found = manifest(binary, work(binary))
    row = ["exact", binary, "the probe is on an address"]
    assert ahead_of_time.moved_programs(found, [row], kernel(binary)) == found.programs
    inode = replace(found, facts=((*found.facts[0][:4], "1"),))
    assert ahead_of_time.moved_programs(inode, [row], kernel(binary)) == found.programs
    # A library in an archive is as old as the archive.
    inside = ["exact", f"{binary}!/lib/libx.so", "the probe is on an address"]
    for facts_of in (found, inode):
        assert ahead_of_time.moved_programs(facts_of, [inside], kernel(binary)) == found.programs
    change(binary)
    for given in (row, inside):
        with pytest.raises(TraceError, match=r"is not the file that .* and the probe is on an address"):
            ahead_of_time.moved_programs(found, [given], kernel(binary))


def test_programs_that_are_gone(binary: str) -> None:
    found = manifest(binary, TypedFunctionTarget("other", program_id=7))
    ahead_of_time.check_programs(found, RecordedKernel(programs=[(7, "other")]))
    with pytest.raises(TraceError, match="BPF program with id 7 is gone"):
        ahead_of_time.check_programs(found, RecordedKernel(programs=[(8, "other")]))
