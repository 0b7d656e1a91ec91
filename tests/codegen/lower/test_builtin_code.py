"""Code of builtins, a family after the other."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence

import msgspec
import pytest
from elftools.elf.elffile import ELFFile
from msgspec.structs import asdict

from pytrace.base.dispatch import methods
from pytrace.codegen.lower.expressions import FAMILIES, family_of
from pytrace.codegen.lower.maps import Aggregates
from pytrace.codegen.lower.output_family import WRITE_MOST
from pytrace.codegen.lower.string_family import NEEDLE_FOLLOWED
from pytrace.codegen.walkers.frame_pointers import CODE_64
from pytrace.core.builtins import AGGREGATES, BUILTINS, Builtin, Mode
from pytrace.core.diagnostics import TraceError
from pytrace.core.kernel_info import UserSymbol
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, Config
from pytrace.core.types import TSeries, Type
from tests.codegen.emit.test_emitter import functions, program_compiled
from tests.codegen.running import compiled, helpers, machine, messages, printed, ran
from tests.codegen.walkers.test_python_stacks import calls_compiled
from tests.codegen.walkers.test_user_stacks import Kernel, stack
from tests.support.bpf_machine import FAULT, NOW, Machine
from tests.support.facts import RecordedKernel
from tests.support.recorded import SYMBOLS, Facts

KERNEL = [row for row in BUILTINS if row.mode is Mode.KERNEL and row not in AGGREGATES]


@pytest.mark.parametrize("row", KERNEL, ids=lambda row: row.name)
def test_kernel_builtin_has_emission(row: Builtin) -> None:
    assert row.name in methods(family_of(row))


def test_no_emission_without_row() -> None:
    families: dict[str, set[str]] = {}
    for row in BUILTINS:
        families.setdefault(row.family, set()).add(row.name)
    assert families.keys() == {*FAMILIES, "aggregate"}
    for family in FAMILIES:
        row = next(row for row in BUILTINS if row.family == family)
        assert set(methods(family_of(row))) <= families[family]


def test_every_aggregation_has_a_row() -> None:
    known: set[type[Type]] = {*Aggregates.ROWS, TSeries}
    tags = {kind.__struct_config__.tag for kind in known if issubclass(kind, msgspec.Struct)}
    assert tags == {row.name for row in AGGREGATES}


# ------------------------------------------------------------------------------------------------------- context family

@pytest.mark.parametrize(
    ("cookie", "name"), [(0, b"kprobe:vfs_read"), (1, b"kprobe:tcp_sendmsg"), (9, b"kprobe:tcp_sendmsg")]
)
def test_the_attach_cookie_says_which_probe_it_is(cookie: int, name: bytes) -> None:
    found = ran("kprobe:vfs_read, kprobe:tcp_sendmsg { print(probe); }", helpers={174: lambda *_: cookie})
    assert found.printed() == [name]


@pytest.mark.parametrize(("cookie", "ip"), [(0, 0x7001), (1, 0x7009)])
def test_the_function_at_a_return_instruction(cookie: int, ip: int) -> None:
    """Wherever it is left, it is the same function."""
    kernel = RecordedKernel(
        symbols={"/bin/app": (UserSymbol("main.work", 0x401000, 0x1000, 10, go=True),)},
        code_at={0x1000: bytes.fromhex("90c348c7c0c3909090c3")},
    )
    helpers = {173: lambda *_: ip, 174: lambda *_: cookie}
    found = ran("uretprobe:/bin/app:main.work { print(func); }", kernel, CompileOptions(), helpers=helpers)
    (event,) = found.events
    assert (0x7000).to_bytes(8, "little") in event


@pytest.mark.parametrize(("cs", "user"), [(0x33, True), (0x10, False)])
def test_the_privilege_level(cs: int, user: bool) -> None:
    found = machine("kprobe:vfs_read { print((bool)usermode); }")
    context = bytearray(168)
    context[136:144] = cs.to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [user]


def test_probes_of_the_tracer_run_by_its_own_call() -> None:
    assert ran("begin { print((bool)usermode); }").printed() == [True]


def test_the_context_as_an_address() -> None:
    found = machine("kprobe:vfs_read { print((uint64)ctx); }")
    found.run()
    assert found.printed() == [found._context]


# ------------------------------------------------------------------------------------------------------- control family

@pytest.mark.parametrize(
    ("call", "number"), [("signal(9)", 109), ('signal("KILL")', 109), ("signal_thread(pid - 4312)", 117)]
)
def test_signals(call: str, number: int) -> None:
    assert (number, 9) in [(helper, given[0]) for helper, given in ran(f"kprobe:vfs_read {{ {call}; }}").calls]


def test_results_are_replaced() -> None:
    (given,) = [given for number, given in ran("kprobe:vfs_read { override(pid); }").calls if number == 58]
    assert given[1] == 4321


def writing(arguments: str, source: bytes = bytes(16)) -> tuple[Machine, bytes]:
    found = machine(f"kprobe:vfs_read {{ print(write_user(arg0, {arguments})); }}")
    target = found.region(b"." * 16)
    context = bytearray(168)
    context[112:120], context[104:112] = target.to_bytes(8, "little"), found.region(source).to_bytes(8, "little")
    found.run(context=bytes(context))
    return found, found.read(target, 16)


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ("kptr(arg1), 4", b"abcd............"),
        ('"xyz", 3', b"xyz............."),
        ('"xyz", 100', b"xyz\0............"),
        ("kptr(arg1), 0", b"." * 16),
    ],
)
def test_user_memory_is_changed(arguments: str, written: bytes) -> None:
    found, after = writing(arguments, b"abcdefgh" + bytes(8))
    assert (found.printed(), after) == ([True], written)


def test_one_call_moves_so_many_bytes() -> None:
    found, _ = writing(f"kptr(arg1), {WRITE_MOST + 5}", bytes(WRITE_MOST + 5))
    assert found.printed()[-1] is False, "the target is shorter"
    assert [given[2] for number, given in found.calls if number == 36] == [WRITE_MOST]


# ----------------------------------------------------------------------------------------------------------- map family

VALUES = [
    ("@m[1] = 5; $f = find(@m, 1, $v); print(($f, $v));", (True, 5)),
    ("@m[1] = 5; $v = 9; $f = find(@m, 2, $v); print(($f, $v));", (False, 9)),
    ('@m[1] = "text"; $f = find(@m, 1, $v); print($v);', b"text"),
    ('@m[1] = (1, "a"); $f = find(@m, 1, $v); print($v);', (1, b"a")),
    ("@m[1] = sum(5); @m[1] = sum(6); $f = find(@m, 1, $v); print(($f, $v));", (True, 11)),
    ("@m[1] = 1; @m[2] = 2; print(len(@m));", 2),
    ('@m["a", 1] = count(); @m["a", 2] = count(); print(len(@m));', 2),
    ("@m[1] = count(); print((has_key(@m, 1), has_key(@m, 2)));", (True, False)),
    ("@m[1] = count(); print((delete(@m, 1), delete(@m, 1)));", (True, False)),
]


@pytest.mark.parametrize(("body", "wanted"), VALUES)
def test_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


# ---------------------------------------------------------------------------------------------------------- meta family

def test_all_keys() -> None:
    values = asdict(Config())
    (found,) = printed("print(config());")
    assert found == tuple(item.encode() if isinstance(item, str) else item for item in values.values())


@pytest.mark.parametrize("key", ["license", "max_strlen"])
def test_one_key_of_the_record(key: str) -> None:
    wanted = asdict(Config())[key]
    assert printed(f"$c = config(); print($c.{key});") == [wanted.encode() if isinstance(wanted, str) else wanted]


# fmt: off
LISTS = [
    ([5], [4, 5, 6]),
    (range(0, 280, 7), [-7, -1, 0, 1, 6, 7, 8, 139, 140, 141, 273, 274, 280, 2**31 - 1]),
    (range(-300, 4000, 13), [-313, -301, -300, -299, -1, 0, 12, 25, 3990, 3989, 4003]),
    ([2**31 - 1, -(2**31)], [2**31 - 1, -(2**31), 0, -1]),
    ([3, 3, 2, 1], [0, 1, 2, 3, 4]),
]
# fmt: on


@pytest.mark.parametrize(("entries", "values"), LISTS)
def test_one_of_numbers(entries: Sequence[int], values: Sequence[int]) -> None:
    listed = ",".join(map(str, entries))
    body = "".join(f'print(one_of((int32)cpu + ({value}), "{listed}"));' for value in values)
    assert printed(body) == [value in entries for value in values]


def code(script: CompiledScript) -> int:
    """Bytes of code of a script's programs."""
    sections = ELFFile(io.BytesIO(script.elf)).iter_sections()
    return sum(section["sh_size"] for section in sections if section.name.startswith("pytrace/"))


def test_texts_that_one_of_compares() -> None:
    lists = ["a,b", "task", "a, task ,b", "tas", "task1", "", "TASK"]
    found = printed("".join(f'print(one_of(comm, "{text}"));' for text in lists), comm=b"task")
    assert found == [False, True, True, False, False, False, False]
    listed = ",".join(str(at * 7) for at in range(1000))
    found = machine(f'begin {{ print(one_of(pid, "{listed}")); }}')
    found.run()
    assert found.steps < 150
    option = 'getopt("port", "")'
    plain = code(compiled("rawtracepoint:sched_switch { @ = count(); }"))
    probe = f"rawtracepoint:sched_switch /{option} == \"\" || one_of(pid, {option})/ {{ @ = count(); }}"
    assert code(compiled(probe)) == plain > 0
    assert code(compiled(probe, options=CompileOptions(named=(("port", "80,443"),)))) > plain


# ------------------------------------------------------------------------------------------------------- network family

V4 = bytes((1, 2, 3, 4))
V6 = bytes(range(16))


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("ntop(0x04030201 + pid - 4321)", (2, V4)), ('ntop(pton("1.2.3.4"))', (2, V4)),
        ("ntop(2, 0x04030201)", (2, V4)), ('ntop(10, pton("1.2.3.4"))', (10, V4)),
        ("ntop(pid - 4319, 0x04030201)", (2, V4)),
        ('ntop(pton("1:203:405:607:809:a0b:c0d:e0f"))', (10, V6)),
    ],
)  # fmt: skip
def test_addresses(call: str, wanted: tuple[int, bytes]) -> None:
    (value,) = printed(f"print({call});")
    assert value == struct.pack("<I16s", wanted[0], wanted[1])


@pytest.mark.parametrize(("family", "length"), [(2, 4), (10, 16)])
def test_the_family_decides_how_much_is_read(family: int, length: int) -> None:
    found = machine(f"kprobe:vfs_read {{ print(ntop({family} + pid - 4321, (uint8 *)arg0)); }}")
    context = bytearray(168)
    context[112:120] = found.region(V6).to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [struct.pack("<I16s", family, V6[:length])]


def test_addresses_of_devices_and_interfaces() -> None:
    found = machine("kprobe:vfs_read { print(macaddr(arg0)); }")
    context = bytearray(168)
    context[112:120] = found.region(V6).to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed()[0][:6] == V6[:6]
    assert printed("print(ifname(pid));")[0][:8] == (4321).to_bytes(8, "little")
    assert ran("fentry:tcp_sendmsg { print(socket_cookie(args.sk)); }").printed() == [77]


# -------------------------------------------------------------------------------------------------------- output family

def test_strings_of_an_argument_vector() -> None:
    found = machine("kprobe:vfs_read { join(kptr(arg0)); }")
    texts = [found.region(text + b"\0") for text in (b"ls", b"-l", b"")]
    vector = b"".join(place.to_bytes(8, "little") for place in [*texts, 0])
    context = bytearray(168)
    context[112:120] = found.region(vector + bytes(64)).to_bytes(8, "little")
    found.run(context=bytes(context))
    ((kind, (count, *strings)),) = found.values()
    assert (kind, count, strings[:3]) == ("join", 3, [b"ls", b"-l", b""])


@pytest.mark.parametrize(
    ("call", "text", "values"),
    [
        ('debugf("plain");', b"plain\0", ()), ('debugf("%d %x", pid, 5);', b"%d %x\0", (4321, 5)),
        ('debugf("%d %d %d", 1, 2, 3);', b"%d %d %d\0", (1, 2, 3)),
    ],
)  # fmt: skip
def test_debug_messages(call: str, text: bytes, values: tuple[int, ...]) -> None:
    found = machine(f"begin {{ {call} }}")
    seen = []
    found.helpers[6] = lambda at, size, *given: seen.append((found.read(at, size), given[: len(values)])) or 0
    found.run()
    assert seen == [(text, values)]


def test_requests_to_the_tracer() -> None:
    found = ran('begin { @m[1] = 1; print(@m); time(); cat("f%d", pid); exit(); }')
    assert [kind for kind, _ in found.values()] == ["print_map", "time", "cat", "exit"]
    assert 6 not in helpers(found)


# ------------------------------------------------------------------------------------------------------- process family

PROCESS_FAMILY_VALUES = [
    ("print(pid);", 4321),
    ("print(tid);", 4322),
    ("print(uid);", 1000),
    ("print(gid);", 100),
    ("print(comm);", b"task"),
    ("print(cgroup);", 99),
    ("print(cpu);", 0),
    ("print(numaid);", 3),
    ("print(rand);", 7),
    ("print(ncpus);", 4),
    ("print(has_cpid);", False),
    ("print(ppid);", 0),
]


@pytest.mark.parametrize(("body", "wanted"), PROCESS_FAMILY_VALUES)
def test_process_family_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_numbers_and_names_of_related_processes() -> None:
    found = ran("begin { print((ppid, 1)); print(pcomm); }")
    parent = bytearray(4096)
    parent[0:8] = (5).to_bytes(4, "little") + (6).to_bytes(4, "little")
    parent[8:12] = b"init"
    found.write(found.current + 24, found.region(parent).to_bytes(8, "little"))
    found.events.clear()
    found.run()
    ((ppid, _),) = [item for item in found.printed() if isinstance(item, tuple)]
    assert ppid == 6
    assert b"init" in found.printed()


def test_identities_of_the_process() -> None:
    for name, number in (("cpu", 8), ("uid", 15), ("cgroup", 80), ("numaid", 42), ("rand", 7), ("comm", 16)):
        assert number in helpers(ran(f"begin {{ print({name}); }}")), name
    (value,) = printed('print(cgroup_path(99, "a*"));')
    assert value[:8] == (99).to_bytes(8, "little")
    body = "/pyint(args.n) > 2/ { for ($i : 0..3) { @[$i, pystr(args.name, 8)] = sum(pyint(args.n)); } }"
    assert calls_compiled(f"python:a.py:f {body}").elf


# -------------------------------------------------------------------------------------------------------- python family

# --------------------------------------------------------------------------------------------------------- stack family

@pytest.mark.parametrize(
    ("call", "frames", "flags"),
    [
        ("kstack", 127, 0),
        ("kstack(3)", 3, 0),
        ("ustack", 127, 1 << 8),
        ("ustack(5)", 5, 1 << 8),
        ("ustack(build_id, 2)", 2, 1 << 8 | 1 << 11),
    ],
)
def test_requests(call: str, frames: int, flags: int) -> None:
    (given,) = [given for number, given in ran(f"kprobe:vfs_read {{ @[{call}] = 1; }}").calls if number == 67]
    entry = 32 if "build_id" in call else 8
    assert (given[2] & 0xFFFFFFFF, given[3]) == (frames * entry, flags)


@pytest.mark.parametrize(("answer", "frames"), [(24, 3), (8, 1), (0, 0), (-14, 0)])
def test_frames_are_counted(answer: int, frames: int) -> None:
    """The kernel answers in bytes, or with an error, which is a stack without frames."""
    assert printed("@s = kstack; print(len(@s));", helpers={67: lambda *_: answer})[-1] == frames


@pytest.mark.parametrize(
    ("frames", "most", "skipped", "count"),
    [
        *((126, 127, 0, 126), (127, 127, 0, 128), (127, 200, 0, 127), (128, 200, 0, 128), (200, 200, 0, 128)),
        *((49, 50, 0, 49), (50, 50, 0, 128), (124, 127, 2, 124), (125, 127, 2, 128), (126, 128, 2, 128)),
        *((126, 129, 2, 126), (127, 200, 2, 127), (128, 200, 2, 128)),
    ],
)
def test_a_full_stack_is_asked_for_one_more_frame(frames: int, most: int, skipped: int, count: int) -> None:
    """Of a kernel that walks at most *most* frames, of which it skips some."""
    found = machine(f"{'rawtracepoint:sched_switch' if skipped else 'kprobe:vfs_read'} {{ @s[kstack] = count(); }}")
    (depth,) = found.script.manifest.stack_depths
    found.write(found.section(depth.section) + depth.offset, struct.pack("<QQ", min(most, depth.limit), most))

    def get_stack(_context: int, target: int, size: int, *_: int) -> int:
        got = min(frames, most - skipped, (size & 0xFFFFFFFF) // 8)
        found.write(target, struct.pack(f"<{got}Q", *range(1, got + 1)))
        return 8 * got

    found.helpers[GET_STACK] = get_stack
    found.run()
    (key,) = found.entries("@s")
    assert isinstance(key, bytes)
    assert int.from_bytes(key[:4], "little") == count


def test_each_frame_is_kept() -> None:
    found = machine("begin { print(kstack(3)); }")
    found.helpers[67] = lambda _ctx, place, *_: found.write(place, struct.pack("<2Q", 5, 6)) or 16
    found.run()
    ((value,),) = (arguments for _, arguments in found.values())
    assert struct.pack("<2Q", 5, 6) in value


@pytest.mark.parametrize(
    ("probe", "skipped"),
    [("kprobe:vfs_read", 0), ("fentry:vfs_read", 2), ("fexit:vfs_read", 2), ("rawtracepoint:sched_switch", 2)],
)
def test_frames_of_the_tracer_are_left_out(probe: str, skipped: int) -> None:
    (given,) = [given for number, given in ran(f"{probe} {{ @[kstack(5)] = 1; }}").calls if number == 67]
    assert (given[2] & 0xFFFFFFFF, given[3]) == (40, skipped)


GET_STACK, READ_USER = 67, 112
CS, SP = 136, 152
"""Offsets in ``struct pt_regs``."""
TOP, RETURN = 1 << 32, 500
"""Where the stack pointer is, and what lies there."""


def run(probe: str, limit: int, walked: list[int], *, segment: int = CODE_64, readable: bool = True) -> Machine:
    """A machine whose kernel finds the frames *walked*."""
    context = bytearray(168)
    struct.pack_into("<Q", context, CS, segment)
    struct.pack_into("<Q", context, SP, TOP)
    found = machine(f"{probe} {{ @[ustack({limit})] = count(); }}", Kernel())

    def read(target: int, size: int, source: int, *_: int) -> int:
        if source != TOP or not readable:
            found.write(target, bytes(size & 0xFFFFFFFF))
            return FAULT
        found.write(target, struct.pack("<Q", RETURN))
        return 0

    def get_stack(_context: int, target: int, size: int, *_: int) -> int:
        size &= 0xFFFFFFFF
        data = struct.pack(f"<{len(walked)}Q", *walked)[:size]
        found.write(target, data.ljust(size, b"\0"))
        return len(data)

    found.helpers[READ_USER], found.helpers[GET_STACK] = read, get_stack
    found.run(context=bytes(context))
    return found


ENTRY = "uprobe:/bin/true:main"


@pytest.mark.parametrize("limit", [2, 3, 4, 9, 127])
@pytest.mark.parametrize("walked", [[7], [7, 8], [7, 8, 9, 10]])
def test_the_caller_is_added(walked: list[int], limit: int) -> None:
    assert stack(run(ENTRY, limit, walked)) == [7, RETURN, *walked[1:]][:limit]


@pytest.mark.parametrize("limit", [2, 3, 9])
def test_a_kernel_that_has_found_it(limit: int) -> None:
    assert stack(run(ENTRY, limit, [7, RETURN, 8, 9])) == [7, RETURN, 8, 9][:limit]


@pytest.mark.parametrize("options", [{"segment": 0x23}, {"readable": False}])
def test_what_cannot_be_known_is_not_added(options: dict[str, int]) -> None:
    """A program of 32 bits, a stack that cannot be read."""
    assert stack(run(ENTRY, 5, [7, 8, 9], **options)) == [7, 8, 9]


@pytest.mark.parametrize("probe", ["uprobe:/bin/true:main+4", "uretprobe:/bin/true:main"])
def test_inside_of_a_function_the_frames_are_those_of_the_kernel(probe: str) -> None:
    assert stack(run(probe, 5, [7, 8, 9])) == [7, 8, 9]


def test_one_frame_is_the_function() -> None:
    assert stack(run(ENTRY, 1, [7, 8, 9])) == [7]


# -------------------------------------------------------------------------------------------------------- string family

STRING_FAMILY_VALUES = [
    ("print(strlen(comm));", 4),
    ('print(strlen("ab"));', 2),
    ('print(strcontains(comm, "as"));', True),
    ('print(strcontains(comm, "x"));', False),
    ('print(strstr(comm, "sk"));', 2),
    ('print(strstr(comm, ""));', 0),
    ('print(strstr(comm, "task"));', 0),
    ('print(strstr(comm, "tasks"));', -1),
    ('$n = comm; print(strstr("a task here", $n));', 2),
    ('print(strncmp(comm, "taxi", 2));', 0),
    ('print(strncmp(comm, "taxi", 3) == 0);', False),
    ('print(strncmp(comm, "task", 16));', 0),
    ('print(str_concat(comm, "-x"));', b"task-x"),
    ('print(str_concat("a", str_concat(comm, "b")));', b"ataskb"),
    ("print(str(comm, 2));", b"ta"),
    ("print(str(comm, 0));", b""),
    ("$n = 3; print(str(comm, $n));", b"tas"),
    ("print(buf(comm, 3));", b"tas"),
    ("$n = pid - 4319; print(buf(comm, $n));", b"ta"),
    ('print(memcmp(comm, "task", 4));', 0),
    ('print(memcmp(comm, "tasa", 4) > 0);', True),
    ('print(memcmp(comm, "tasz", 4) < 0);', True),
    ('$n = 3; print(memcmp(comm, "tasz", $n));', 0),
    ("print(bswap((uint16)pid));", 57616),
    ("print(bswap((uint32)pid));", 3775922176),
    ("print(bswap((uint64)pid));", 16217462258161156096),
    ("print(signal_name(pid - 4312));", b"Killed"),
    ("print(strerror(pid - 4319));", b"No such file or directory"),
    ("print(strerror(4319 - pid));", b"No such file or directory"),
    ("print(syscall_name(pid - 4321));", b"read"),
]


@pytest.mark.parametrize(("body", "wanted"), STRING_FAMILY_VALUES)
def test_string_family_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


@pytest.mark.parametrize("needle", ["n" * 5, "n" * 40, "n" * 300])
@pytest.mark.parametrize("known", [True, False])
def test_needles_of_all_lengths(needle: str, known: bool) -> None:
    begins = min(len(needle) - 1, 40)
    hay = "ab" + "n" * begins + "x" + needle + "cd"
    term = f'"{needle}"' if known else "$n"
    body = f'$n = "{needle}"; $h = "{hay}"; if (pid == 0) {{ $n = "q"; $h = "q"; }}'
    assert printed(f"{body} print(strstr($h, {term}));") == [3 + begins]


def user(script: str, text: bytes) -> list[object]:
    found = machine(script)
    context = bytearray(168)
    context[112:120] = found.region(text).to_bytes(8, "little")
    found.run(context=bytes(context))
    return found.printed()


def test_text_of_pointers() -> None:
    assert user("kprobe:vfs_read { print(str(kptr(arg0))); }", b"hello\0rest") == [b"hello"]
    assert user("kprobe:vfs_read { print(str(kptr(arg0), 2)); }", b"hello\0rest") == [b"he"]
    assert user("kprobe:vfs_read { print(strlen(kptr((int8 *)arg0))); }", b"hello\0") == [5]
    assert user("kprobe:vfs_read { print(buf(kptr(arg0), 4)); }", b"a\0bcdef") == [b"a\0bc"]


@pytest.mark.parametrize("number", [-5, 100000])
def test_unknown_numbers_have_a_name(number: int) -> None:
    assert printed(f"print(signal_name({number} + pid - 4321));")[0]



# -------------------------------------------------------------------------------------------------------- string search

@pytest.mark.parametrize(
    ("needle", "loops"),
    [
        ('"sh"', 1),
        ("comm", 1),
        ('"' + "x" * (NEEDLE_FOLLOWED - 1) + '"', 1),
        ('"' + "x" * NEEDLE_FOLLOWED + '"', 2),
        ("str(nsecs)", 2),
    ],
)
def test_long_needles_have_a_loop_of_their_own(needle: str, loops: int) -> None:
    found = functions(program_compiled(f"begin {{ $hay = str(pid); print(strstr($hay, {needle})); }}"))
    assert len(found) == 1 + loops


@pytest.mark.parametrize("builtin", ["strstr", "strcontains"])
def test_both_builtins_search(builtin: str) -> None:
    assert len(functions(program_compiled(f'begin {{ print({builtin}(comm, "sh")); }}'))) == 2



# -------------------------------------------------------------------------------------------------------- symbol family

@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("print(is_err(0 - pid + 200));", False),
        ("print(is_err(4320 - pid));", True),
        ("print(is_err(226 - pid));", True),
        ("print(is_err(225 - pid));", False),
        ("print((uint64)kptr(pid));", 4321),
        ("print((uint64)uptr(pid));", 4321),
        ('print(kaddr("vfs_read"));', SYMBOLS["vfs_read"]),
    ],
)
def test_symbol_family_values(body: str, wanted: object) -> None:
    assert printed(body) == [wanted]


def test_symbols_are_sent_as_addresses() -> None:
    assert printed("print(ksym(pid));") == [struct.pack("<Q", 4321)]
    assert printed("print(usym(5));") == [struct.pack("<QII", 5, 4321, 0)]


@pytest.mark.parametrize(("cpu", "wanted"), [(0, 1005), (3, 1008), (4, 0), (-1, 0)])
def test_variables_of_each_cpu(cpu: int, wanted: int) -> None:
    # The table lies in the region that comes after those of the program.
    probe = machine(f'begin {{ print(percpu_kaddr("jiffies_64", {cpu} + pid - 4321)); }}', WithTable())
    table = probe.region(struct.pack("<4Q", 5, 6, 7, 8))
    found = machine(f'begin {{ print(percpu_kaddr("jiffies_64", {cpu} + pid - 4321)); }}', WithTable(table))
    assert found.region(struct.pack("<4Q", 5, 6, 7, 8)) == table
    found.run()
    assert found.printed() == [wanted]


class WithTable(Facts):
    def __init__(self, table: int = 0x1000) -> None:
        super().__init__()
        self.table = table

    def kernel_symbol(self, name: str) -> int | None:
        return {"__per_cpu_offset": self.table, "jiffies_64": 1000}.get(name)


def test_addresses_of_symbols() -> None:
    with pytest.raises(TraceError, match="__per_cpu_offset"):
        compiled('begin { print(percpu_kaddr("jiffies_64")); }')
    # By as much as the probe is elsewhere than in the file.
    found = ran(
        'uprobe:/bin/true:main { print((uint64)uaddr("counter")); }', helpers={173: lambda *_: 0x555000 + 0x1000}
    )
    assert found.printed() == [0x555000 + 0x4000]


def test_the_number_of_a_goroutine() -> None:
    """Read through r14, which has the goroutine's address in functions of Go."""
    found = machine("uprobe:/bin/app:work { print(goid); }", RecordedKernel(goroutines={"/bin/app": 24}))
    context = bytearray(168)
    context[8:16] = found.region(bytes(24) + (17).to_bytes(8, "little") + bytes(8)).to_bytes(8, "little")
    found.run(context=bytes(context))
    assert found.printed() == [17]


def test_goroutines_of_different_versions() -> None:
    kernel = RecordedKernel(goroutines={"/bin/app": 24, "/bin/other": 32}, files={"*": ["/bin/app", "/bin/other"]})
    kernel.symbols["/bin/other"] = kernel.symbols["/bin/app"]
    (message,) = messages("uprobe:*:work { print(goid); }", kernel)
    assert message == "goid is at different places in the binaries of this probe"



# ---------------------------------------------------------------------------------------------------------- time family

@pytest.mark.parametrize(
    ("clock", "number", "value"),
    [
        ("nsecs", 125, NOW + 10**9),
        ("nsecs(monotonic)", 5, NOW),
        ("nsecs(boot)", 125, NOW + 10**9),
        ("nsecs(tai)", 208, NOW + 2 * 10**9),
        ("jiffies", 118, 55),
    ],
)
def test_clocks(clock: str, number: int, value: int) -> None:
    found = ran(f"begin {{ print({clock}); }}")
    assert found.printed() == [value]
    assert number in helpers(found)


@pytest.mark.parametrize(("call", "member", "sign"), [("elapsed", "start", -1), ("nsecs(sw_tai)", "tai", 1)])
def test_what_the_session_knows(call: str, member: str, sign: int) -> None:
    found = ran(f"begin {{ print({call}); }}")
    session = found.script.manifest.session
    assert session is not None
    found.write(found.section(session.section) + getattr(session, member), struct.pack("<Q", 1000))
    found.events.clear()
    found.run()
    assert found.printed() == [NOW + 10**9 + sign * 1000]


def test_dates_of_all_clocks() -> None:
    (value,) = printed('print(strftime("%F", pid));')
    assert struct.unpack("<QII", value) == (4321, 0, 0)
    assert printed("print(nsecs);", options=CompileOptions(ahead=True)) == [NOW + 10**9]
