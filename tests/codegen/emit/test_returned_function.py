"""The function that a uretprobe returns from, where ``bpf_get_func_ip`` does not tell: from the kernel's instances."""

from __future__ import annotations

import struct

import pytest

from pytrace.core.types import UINT64, VOID, Field, Pointer, Struct
from tests.codegen.emit.test_contexts import registers
from tests.codegen.running import helpers, machine
from tests.support.bpf_machine import Machine
from tests.support.facts import RecordedKernel

STACK, CALLER = 0x7000, 0x77


def kernel(*more: Field) -> RecordedKernel:
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
    found = machine(script, facts or kernel(), helpers={173: lambda *_: told})
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
    found = returning(0x4321, facts=kernel(Field("cons_cnt", UINT64, 24)))
    assert address(found) == 0x4321
    assert 35 not in helpers(found)
    without_types = returning(0, facts=RecordedKernel())
    assert address(without_types) == CALLER
