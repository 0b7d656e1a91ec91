"""Arguments, results and registers of a probe; the current task and others."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from pytrace.codegen.walkers.program_filters import FOLLOWED
from pytrace.core.diagnostics import ScriptError, TraceError
from pytrace.core.kernel_info import FunctionPrototype, TracepointField, UserParameter
from pytrace.core.manifest import MapType
from pytrace.core.options import NOT_YET, CompileOptions, FilterShape, ProcessFilters
from pytrace.core.types import INT8, INT16, INT32, UINT8, UINT32, UINT64, VOID, Array, Field, Pointer, String, Struct
from tests.codegen.running import compiled, helpers, machine, ran
from tests.codegen.test_generator import EXECS
from tests.codegen.walkers.test_system_calls import Calls
from tests.frontend.probes.test_tracepoints import KERNEL
from tests.support.bpf_machine import PID, TID, BpfMap, Machine
from tests.support.facts import RecordedKernel
from tests.support.recorded import Facts

X86 = (
    *("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di"),
    *("orig_ax", "ip", "cs", "flags", "sp", "ss"),
)
"""Members of struct pt_regs (arch/x86/include/uapi/asm/ptrace.h), 8 bytes each."""


def registers(**values: int) -> bytes:
    return struct.pack("<21Q", *(values.get(name, 0) & (2**64 - 1) for name in X86))


@pytest.mark.parametrize(
    ("argument", "register"),
    [("arg0", "di"), ("arg1", "si"), ("arg2", "dx"), ("arg3", "cx"), ("arg4", "r8"), ("arg5", "r9")],
)
def test_arguments_in_registers(argument: str, register: str) -> None:
    found = machine(f"kprobe:vfs_read {{ print({argument}); }}")
    found.run(context=registers(**{register: 0x1122334455667788}))
    assert found.printed() == [0x1122334455667788]


@pytest.mark.parametrize(("number", "place"), [(6, 8), (7, 16), (9, 32)])
def test_further_arguments_are_on_the_stack(number: int, place: int) -> None:
    found = machine(f"kprobe:vfs_read {{ print(arg{number}); }}")
    stack = found.region(bytes(place) + struct.pack("<Q", 42) + bytes(8))
    found.run(context=registers(sp=stack))
    assert found.printed() == [42]


def test_results_and_registers() -> None:
    found = machine("kretprobe:vfs_read { print(retval); }")
    found.run(context=registers(ax=-5))
    assert found.printed() == [-5]
    found = machine('kprobe:vfs_read { print(reg("ip")); print(reg("sp")); }')
    found.run(context=registers(ip=7, sp=8))
    assert found.printed() == [7, 8]


def test_typed_arguments_have_their_width_and_sign() -> None:
    kernel = RecordedKernel(
        prototypes=(FunctionPrototype("vfs_read", "vmlinux", (("a", INT8), ("b", INT16), ("c", UINT8)), INT32),)
    )
    found = machine("kprobe:vfs_read { print((args.a, args.b, args.c)); }", kernel)
    found.run(context=registers(di=0xFFFF_FF80, si=0x1_FFFF, dx=0x1FF))
    assert found.printed() == [(-128, -1, 255)]


FIELDS = (
    TracepointField("common_pid", INT32, 4, 4, "int common_pid"),
    TracepointField("number", INT32, 8, 4, "int number"),
    TracepointField("odd", INT32, 13, 4, "int odd"),
    TracepointField("name", Array(INT8, 8), 20, 8, "char name[8]"),
    TracepointField("text", Array(INT8, 0), 28, 4, "__data_loc char[] text", data_loc=True),
    TracepointField("near", Array(INT8, 0), 32, 4, "__rel_loc char[] near", data_loc=True, relative=True),
)


def tracepoint(expression: str) -> Machine:
    found = machine(f"tracepoint:a:b {{ print({expression}); }}", RecordedKernel(events={("a", "b"): FIELDS}))
    record = bytearray(64)
    record[8:12] = struct.pack("<i", -7)
    record[13:17] = struct.pack("<i", 99)
    record[20:28] = b"eightchr"
    record[28:32] = struct.pack("<I", 5 << 16 | 40)
    record[40:45] = b"text\0"
    record[32:36] = struct.pack("<I", 5 << 16 | 12)
    record[48:53] = b"near\0"
    found.run(context=bytes(record))
    return found


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [("args.number", -7), ("args.odd", 99), ("args.name", b"eightchr"), ("args.text", b"text"), ("args.near", b"near")],
)
def test_fields_of_tracepoints(expression: str, wanted: object) -> None:
    assert tracepoint(expression).printed() == [wanted]


def test_args_as_a_whole() -> None:
    (whole,) = tracepoint("args").printed()
    assert struct.unpack_from("<i", whole, 0) == (-7,)
    assert b"text\0" in whole
    assert b"near\0" in whole


def test_slots_of_typed_probes() -> None:
    found = machine("rawtracepoint:sched_switch { print(arg0); print(args.preempt); print(arg2); }")
    found.run(context=struct.pack("<3Q", 1 << 33 | 5, 6, 7))
    assert found.printed() == [1 << 33 | 5, 5, 7]
    found = machine("fexit:vfs_read { print(retval); }")
    found.run(context=struct.pack("<4Q", 1, 2, 3, 2**64 - 9))
    assert found.printed() == [-9]


@pytest.mark.parametrize(("location", "context", "wanted"), [("di", {"di": 2**40 + 5}, 5), ("sp+8", {"sp": 0}, -3)])
def test_parameters_of_user_functions(location: str, context: dict[str, int], wanted: int) -> None:
    kernel = RecordedKernel(parameters={("/bin/app", "work"): (UserParameter("n", INT32, location),)})
    found = machine("uprobe:/bin/app:work { print(args.n); }", kernel)
    if "sp" in context:
        context = {"sp": found.region(bytes(8) + struct.pack("<i", -3) + bytes(8))}
    found.run(context=registers(**context))
    assert found.printed() == [wanted]


def test_arguments_of_usdt_probes() -> None:
    found = machine("usdt:/bin/app:one:start { print(arg0); print(arg1); }", RecordedKernel())
    frame = found.region(struct.pack("<Q", 11) + bytes(24))
    found.run(context=registers(di=2**32 - 2, bp=frame + 24))
    assert found.printed() == [2**64 - 2, 11]


def test_where_the_function_is() -> None:
    """Kernels before 6.7 give 0 for uprobes; then it is where the program stopped."""
    for told, wanted in ((0x1234, 0x1234), (0, 0x77)):
        found = machine(
            "uprobe:/bin/app:work { print(func); }", RecordedKernel(), helpers={173: lambda *_, told=told: told}
        )
        found.run(context=registers(ip=0x77))
        assert struct.unpack_from("<Q", found.printed()[0]) == (wanted,)
    found = machine("kprobe:vfs_read { print(func); }")
    found.run()
    assert struct.unpack("<Q", found.printed()[0]) == (0x1234,)
    assert 173 in helpers(found)


STACK, CALLER = 0x7000, 0x77


def returning_kernel(*more: Field) -> RecordedKernel:
    """One with the structs of 6.1, as far as they matter, with *more* members of an instance."""
    pointer = Pointer(VOID)
    structs = {
        "task_struct": (Field("pid", UINT64, 0), Field("utask", pointer, 96)),
        "uprobe_task": (Field("state", UINT64, 0), Field("return_instances", pointer, 56)),
        "return_instance": (Field("func", UINT64, 8), Field("stack", UINT64, 16), Field("next", pointer, 40), *more),
    }
    made = RecordedKernel()
    made.structs = {
        **made.structs,
        **{("struct", name): Struct("struct", name, 104, fields, origin="vmlinux") for name, fields in structs.items()},
    }
    return made


def returning(told: int, *instances: tuple[int, int], facts: RecordedKernel | None = None) -> Machine:
    """A machine in which the function returned whose return address was at ``STACK``; instances are function, stack."""
    script = "uretprobe:/bin/app:work { print(func); }"
    found = machine(script, facts or returning_kernel(), helpers={173: lambda *_: told})
    following = 0
    for function, stack in reversed(instances):
        following = found.region(struct.pack("<6Q", 0, function, stack, 0, 0, following))
    tasks = found.region(bytes(56) + struct.pack("<Q", following))
    found.write(found.current + 96, struct.pack("<Q", tasks))
    found.run(context=registers(ip=CALLER, sp=STACK + 8))
    return found


def address(found: Machine) -> int:
    return int(struct.unpack_from("<Q", found.printed()[0])[0])


@pytest.mark.parametrize(
    ("told", "instances", "wanted"),
    [
        (0, [(0x1234, STACK)], 0x1234),
        (0, [(0x1111, STACK - 64), (0x2222, STACK - 32), (0x1234, STACK), (0x3333, STACK + 64)], 0x1234),
        (0, [], CALLER),
        (0, [(0x1111, STACK - 64)], CALLER),
        (0x4321, [(0x1234, STACK)], 0x4321),
    ],
    ids=["the only one", "after others that were left", "none", "another one", "the helper tells"],
)
def test_the_instance_of_the_return_address(told: int, instances: list[tuple[int, int]], wanted: int) -> None:
    assert address(returning(told, *instances)) == wanted


def test_kernels_that_always_tell() -> None:
    """Instances have other members since 6.13: no code for what cannot happen."""
    found = returning(0x4321, facts=returning_kernel(Field("cons_cnt", UINT64, 24)))
    assert address(found) == 0x4321
    assert 35 not in helpers(found)
    without_types = returning(0, facts=RecordedKernel())
    assert address(without_types) == CALLER


# ------------------------------------------------------------------------------------------------------ raw tracepoints


def printed(body: str) -> list[Any]:
    found = machine(f"t:sched:sched_waking {{ {body} }}", KERNEL)
    (spec,) = found.script.manifest.programs
    assert spec.multi == "raw_tracepoint"
    task = found.region(struct.pack("<ii16si", 1234, 120, b"short\0garbage", -1).ljust(64, b"\0"))
    found.run(spec.symbol, struct.pack("<Q", task))
    return found.printed()


def test_raw_fields_and_the_name_of_their_probe() -> None:
    assert printed("print(args.pid); print(args.target_cpu); print(args.comm);") == [1234, -1, b"short"]
    assert printed("print(probe);") == [b"tracepoint:sched:sched_waking"]


@pytest.mark.parametrize(
    ("arguments", "printed"), [((0xFFFFFFFF_FFFFFF9C, 0x1000), (-100, 0x1000)), ((1 << 32 | 5, 2**63), (5, 2**63))]
)
def test_arguments_have_the_width_of_their_types(arguments: tuple[int, int], printed: tuple[int, int]) -> None:
    """The upper half of a register is not part of an ``int``."""
    calls = Calls("t:syscalls:sys_enter_openat { print(args.dfd); print((uint64)args.filename); }")
    signed = tuple(value - (1 << 64) if value >= 1 << 63 else value for value in arguments)
    assert calls.enter(257, *signed) == list(printed)


def test_fields_in_loops_and_results() -> None:
    calls = Calls("t:syscalls:sys_enter_openat { for ($i : 0..2) { print(args.dfd + $i); } }")
    assert calls.enter(257, 10) == [10, 11]
    calls = Calls("t:syscalls:sys_exit_openat { print(args.ret); }")
    assert [calls.leave(257, result) for result in (-1, 2**40)] == [[-1], [2**40]]


def test_the_name_of_the_probe_is_that_of_the_call() -> None:
    calls = Calls("t:syscalls:sys_enter_* { print(probe); }")
    found = {number: calls.enter(number) for number in (0, 257, 322, 437)}
    assert found == {
        0: [b"tracepoint:syscalls:sys_enter_read"],
        257: [b"tracepoint:syscalls:sys_enter_openat"],
        322: [b"tracepoint:syscalls:sys_enter_execveat"],
        437: [b"tracepoint:syscalls:sys_enter_openat2"],
    }


# --------------------------------------------------------------------------------------------------------- current task


def in_a_namespace() -> Facts:
    kernel = Facts()
    kernel.pid_namespace = (4, 4026531999)
    return kernel


def test_namespaces_of_processes() -> None:
    found = ran("begin { print((pid, tid, pid(init), tid(init))); }")
    assert found.printed() == [(PID, TID, PID, TID)]
    assert 120 not in helpers(found)
    found = ran("begin { print((pid, tid, pid(init), tid(curr_ns))); }", in_a_namespace())
    assert found.printed() == [(21, 22, PID, 22)]
    assert (120, (4, 4026531999)) in [(number, given[:2]) for number, given in found.calls]
    script = compiled("begin { print(pid); }", options=CompileOptions(ahead=True))
    assert script.manifest.ahead is not None
    assert {(item.what, item.parts) for item in script.manifest.ahead.values} == {
        ("namespace", ("inode",)), ("namespace", ("device",)),
    }  # fmt: skip


def test_the_network_namespace() -> None:
    found = ran("begin { print(netns); }")
    assert found.printed() == [bytes(8)], "a task that exits has no namespaces"
    found.events.clear()
    net = found.region(bytes(8 + 16) + struct.pack("<I", 4026531840) + bytes(16))
    nsproxy = found.region(bytes(40) + struct.pack("<Q", net) + bytes(8))
    found.write(found.current + 96, struct.pack("<Q", nsproxy))
    found.run()
    assert struct.unpack("<Q", found.printed()[0]) == (4026531840,)


def test_kernels_whose_tasks_are_different() -> None:
    kernel = Facts()
    kernel.structs = {**kernel.structs, ("struct", "task_struct"): Struct("struct", "task_struct", 8, ())}
    with pytest.raises(TraceError, match=r"type information \(BTF\) of struct task_struct"):
        compiled("begin { print(netns); }", kernel)


# ---------------------------------------------------------------------------------------------- plain loads

_TYPED = Struct(
    "struct", "task_struct", 200,
    (
        Field("comm", String(16), 120), Field("pid", INT32, 136), Field("tgid", INT32, 140), Field("cred", UINT64, 144),
    ),
    origin="vmlinux",
)  # fmt: skip
_CREDENTIALS = Struct("struct", "cred", 32, (Field("uid", UINT32, 8), Field("gid", UINT32, 12)), origin="vmlinux")


def with_types() -> Facts:
    """A kernel whose current task can be read by plain loads."""
    kernel = Facts()
    kernel.structs = {**kernel.structs, ("struct", "task_struct"): _TYPED, ("struct", "cred"): _CREDENTIALS}
    return kernel


def task(found: Machine, name: bytes = b"name", process: int = 21, thread: int = 22) -> None:
    """Make this the current task."""
    credentials = found.region(struct.pack("<8xII", 1000, 100) + bytes(16))
    parts = (name.ljust(16, b"\0"), thread, process, credentials)
    found.current = found.region(struct.pack("<120x16siiQ48x", *parts))


def test_one_helper_serves_all_members() -> None:
    found = machine("begin { print((pid, tid, uid, gid, comm)); }", with_types())
    task(found)
    found.run()
    assert found.printed() == [(21, 22, 1000, 100, b"name")]
    assert [number for number in helpers(found) if number < 100 or number == 158] == [158]


@pytest.mark.parametrize("name", [b"", b"a", b"seven_7", b"eight__8", b"nine___9_", b"fifteen_letters", b"\x80\xff"])
@pytest.mark.parametrize("rest", [b"\0", b"\x01\x80\xff\x7f", b"\xff\0\x01\0", b"zzzzzzzzzzzzzzz"])
def test_what_follows_the_end_of_the_name_is_left_out(name: bytes, rest: bytes) -> None:
    """Before Linux 5.17 a shorter name leaves the end of the longer one before."""
    found = machine('begin { @[comm] = 1; print((comm, comm == "a", comm == "eight__8")); }', with_types())
    task(found, (name + b"\0" + (rest * 16)[:16])[:16])
    found.run()
    assert found.printed() == [(name, name == b"a", name == b"eight__8")]
    assert {key for key, _ in found.maps[found.names["map_"]].entries} == {name.ljust(16, b"\0")}


def test_a_process_namespace_is_asked_by_its_helper() -> None:
    kernel = with_types()
    kernel.pid_namespace = (4, 4026531999)
    found = machine("begin { print((pid, uid)); }", kernel)
    task(found)
    found.run()
    assert found.printed() == [(21, 1000)]
    assert 120 in helpers(found)


def test_kernels_without_the_helper_or_a_member() -> None:
    without = with_types()
    without.missing = frozenset({"current_task_btf"})
    other = with_types()
    other.structs = {**other.structs, ("struct", "cred"): Struct("struct", "cred", 8, ())}
    for kernel in (without, other):
        assert {14, 16} <= set(helpers(ran("begin { print((pid, comm)); }", kernel)))


# ---------------------------------------------------------------------------------------------------------------- tasks

GET_CURRENT_COMM, PROBE_READ_KERNEL_STR = 16, 115


def calls(text: str, shape: FilterShape) -> set[int]:
    """Numbers of the helpers that the program calls (``call`` is 0x85, with the number as immediate value)."""
    elf = compiled(text, RecordedKernel(), CompileOptions(filters=shape)).elf
    found = set()
    for section in ELFFile(io.BytesIO(elf)).iter_sections():
        if section.name.startswith("pytrace/"):
            code = section.data()
            found |= {
                int.from_bytes(code[at + 4 : at + 8], "little")
                for at in range(0, len(code), 8)
                if code[at] == 0x85 and code[at + 1] == 0
            }
    return found


def test_other_tasks() -> None:
    shape = ProcessFilters(comms=("x",))
    assert GET_CURRENT_COMM in calls("tracepoint:sched:sched_switch /in_scope/ { @n++; }", shape)
    found = calls("tracepoint:sched:sched_switch /in_scope(curtask)/ { @n++; }", shape)
    assert PROBE_READ_KERNEL_STR in found
    assert GET_CURRENT_COMM not in found
    with pytest.raises((ScriptError, TraceError), match="type information"):
        calls("tracepoint:sched:sched_switch /in_scope(curtask)/ { @n++; }", ProcessFilters(cgroups=((1, 2),)))


@pytest.mark.parametrize(("name", "root"), [(b"task", PID), (b"tas", NOT_YET), (b"task2", NOT_YET)])
def test_the_first_process_with_the_name_is_followed(name: bytes, root: int) -> None:
    filters = ProcessFilters(exec_wait=name.decode())
    options = CompileOptions(follow=True, filters=ProcessFilters(exec_wait="x"))
    found = machine("tracepoint:sched:sched_switch { @n++; }", EXECS, options)
    found.maps[found.names[FOLLOWED]] = BpfMap(MapType.HASH, 4, 4, 16)
    session = found.script.manifest.session
    assert session is not None
    memory = bytearray(16)
    filters.pack(memory, 0)
    start = found.section(session.section)
    found.write(start + session.filters, bytes(memory))
    found.write(start + session.root, struct.pack("<Q", NOT_YET))
    found.run()
    assert found.slot("@n") == 0
    found.run("follow_sched_process_exec")
    assert struct.unpack("<Q", found.read(start + session.root, 8)) == (root,)
    found.run()
    assert found.slot("@n") == (root == PID)
    # Another one that executes it later is not.
    found.write(start + session.root, struct.pack("<Q", 1))
    found.run("follow_sched_process_exec")
    assert struct.unpack("<Q", found.read(start + session.root, 8)) == (1,)
