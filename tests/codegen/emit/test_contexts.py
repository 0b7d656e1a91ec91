"""Arguments, results and registers of a probe, by the kind of its context."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.kernel_info import FunctionPrototype, TracepointField, UserParameter
from pytrace.core.types import INT8, INT16, INT32, UINT8, UINT64, VOID, Array, Field, Pointer, Struct
from tests.codegen.running import helpers, machine
from tests.support.bpf_machine import Machine
from tests.support.facts import RecordedKernel

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


def test_slots() -> None:
    found = machine("rawtracepoint:sched_switch { print(arg0); print(args.preempt); print(arg2); }")
    found.run(context=struct.pack("<3Q", 1 << 33 | 5, 6, 7))
    assert found.printed() == [1 << 33 | 5, 5, 7]


def test_results_are_behind_the_arguments_of_a_trampoline() -> None:
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
