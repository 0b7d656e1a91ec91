"""Instructions of the intermediate form: builder, operands, helpers, registers."""

from __future__ import annotations

import inspect
import io
import os
import re
from pathlib import Path
from typing import get_type_hints

import pytest
from elftools.elf.elffile import ELFFile

from pytrace.codegen.ir import helpers, machine, target
from pytrace.codegen.ir.builder import AT_ONCE, Builder, FunctionText
from pytrace.codegen.ir.helpers import HELPERS, LOOP, Helper
from pytrace.codegen.ir.machine import registers_of
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.target import callees
from pytrace.codegen.ir.values import (
    CONTEXT,
    NULL,
    TRUE,
    Late,
    LateInstruction,
    Location,
    global_pointer,
    number_parameter,
    ordering,
    signed_constant,
)
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.frontend.check.context_family import REGISTERS
from tests.codegen.running import compiled, printed


def instructions(script: str) -> int:
    found = compiled(script)
    section = ELFFile(io.BytesIO(found.elf)).get_section_by_name(f"pytrace/{found.manifest.programs[0].symbol}")
    return section["sh_size"] // 8


def test_what_cannot_be_reached_is_left_out() -> None:
    assert instructions("begin { return; @a[1] = 5; print(nsecs); }") == instructions("begin { }")


@pytest.mark.parametrize(
    ("type_", "wanted"), [("int8", -31), ("uint8", 225), ("int16", 4321), ("uint32", 4321), ("bool", True)]
)
def test_values_are_extended_as_their_type_says(type_: str, wanted: int) -> None:
    assert printed(f"let $x: {type_} = ({type_})pid; $y = $x; print($y);") == [wanted]
    assert printed(f"@m[1] = ({type_})pid; print(@m[1]);") == [wanted]


@pytest.mark.parametrize(("type_", "before", "after"), [("int32", 2**31 - 1, -(2**31)), ("uint32", 2**32 - 1, 0)])
def test_atomic_steps_have_the_width_of_the_map(type_: str, before: int, after: int) -> None:
    """A map that is only stepped has 64 bits; a cast keeps others at their width."""
    assert printed(f"@m[1] = ({type_}){before}; print(@m[1]++); print(({type_})@m[1]);") == [before, after]


def test_copies_and_branches_are_short() -> None:
    def size(words: int) -> int:
        members = ", ".join(f"(int64)pid + {at}" for at in range(words))
        return instructions(f"begin {{ $t = ({members}); @m[1] = $t; @m[2] = $t; }}")
    assert size(30) - size(20) <= 10 * 2 * 6
    # A map that is full is handled at the end of the program, where the fast way does not pass.
    assert instructions("begin { @m[1] = 1; }") < 60


# --------------------------------------------------------------------------------------------------------- instructions

ROOT = Path(__file__).resolve().parents[3]


def function(module: Module, *parameters: str) -> Builder:
    return module.function("main", parameters, None, entry=True)


def accepted(module: Module) -> str:
    """The text of a module, which LLVM has read and verified."""
    text = module.text(0, 0)
    target.parse(text, verify=True)
    return text


def body(module: Module) -> list[str]:
    """The instructions of the function, which LLVM takes."""
    lines = accepted(module).partition("\ndefine ")[2].partition("\n}")[0].splitlines()
    return [line.strip() for line in lines[1:] if line.startswith("  ")]


def test_integers_of_every_width_are_valid() -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    count = number_parameter("count")
    for width in (8, 16, 32, 64):
        for signed in (False, True):
            value = b.load(CONTEXT, width, signed)
            b.store(b.fit(value, width, signed), b.alloca(8), width)
            b.store(b.low_bits(count, width), b.alloca(8), width)
    for bits in (16, 32, 64):
        b.store(b.swap_bytes(count, bits), b.alloca(8))
    for bits in (32, 64):
        b.fetch_bits("xor", b.alloca(8), count, bits, signed=True)
    b.atomic_add(b.alloca(8), b.exchange_if(b.alloca(8), 0, b.leading_zeros(b.op("or", count, 1))))
    b.ret(b.at_most(b.through(count, b.alloca(8)), 7))
    accepted(module)


def test_truth_values_and_addresses_are_valid() -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    count = number_parameter("count")
    small, same = b.icmp("ult", count, 7), b.is_null(CONTEXT)
    one, other, done = b.block(), b.block(), b.block()
    b.branch(b.either(b.both(small, same), b.differ(small, TRUE)), one, other, likely=True)
    b.start(one)
    place = b.pointer(b.address(b.unfolded(CONTEXT)))
    b.store_pointer(place, b.alloca(8))
    b.jump(done)
    b.start(other)
    b.jump(done)
    b.start(done)
    joined = b.phi_pointer([(place, one), (NULL, other)])
    number = b.phi([(count, one), (3, other)])
    b.ret(b.select(b.truth(b.there(joined)), b.number(small), b.sub(number, -1)))
    accepted(module)


def test_an_offset_of_nothing_is_the_address_itself() -> None:
    b = function(Module(None, "GPL"), "*ctx")
    assert b.offset(CONTEXT, 0) == CONTEXT


def test_copies_are_made_of_few_moves() -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx")
    b.copy(b.alloca(64), b.alloca(64), 64)
    b.clear(b.alloca(8), 0)
    b.ret(0)
    copies = [line for line in body(module) if "memcpy" in line]
    assert len(copies) == -(-64 // (8 * AT_ONCE))
    assert not [line for line in body(module) if "memset" in line]


def test_nothing_follows_the_end_of_a_block() -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx")
    b.ret(0)
    b.store(1, b.alloca(8))
    b.mul(3, module.late("size"))
    b.ret(1)
    assert [line for line in body(module) if "alloca" not in line] == ["br label %b1", "ret i64 0"]


@pytest.mark.parametrize("when", [True, False])
def test_the_prologue_may_end_the_function(when: bool) -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx")
    place = b.alloca(8)
    with b.at_prologue():
        condition = b.is_null(CONTEXT)
        with b.unlikely(condition, "context", when=when):
            b.store(5, place)
    b.ret(b.load(place))
    lines = body(module)
    branch = next(line for line in lines if line.startswith("br i1"))
    rare, on = "label %no_context", "label %on_context"
    first, second, weights = (rare, on, "!1") if when else (on, rare, "!0")
    assert branch == f"br i1 {condition}, {first}, {second}, !prof {weights}"
    assert lines.index("ret i64 0") == lines.index("store i64 5, ptr %v2, align 8") + 1


def test_late_operands_get_their_value_when_it_is_known() -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    place = b.offset(b.alloca(8), module.late("place"))
    b.ret(b.mul(b.load(place), module.late("stride")))
    with pytest.raises(InternalError, match="place"):
        module.text(0, 0)
    module.settle("place", 24)
    module.settle("stride", 4096)
    lines = body(module)
    assert lines[-4].endswith("i64 24")
    assert lines[-2].endswith(", 4096")


def test_each_helper_can_be_called() -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx")
    for number, row in helpers.HELPERS.items():
        b.helper(row, *(CONTEXT if kind == "ptr" else 0 for kind in row.parameters))
        assert row.symbol == f"bpf_{number}"
    for count in range(4):
        b.trace_printk(CONTEXT, 8, [1] * count)
    b.ret(0)
    assert len([line for line in body(module) if "inttoptr (i64" in line]) == len(helpers.HELPERS) + 4


def test_a_helper_takes_as_many_arguments_as_its_row_has() -> None:
    b = function(Module(None, "GPL"), "*ctx")
    with pytest.raises(ValueError, match="zip"):
        b.helper(helpers.GET_CURRENT_COMM, CONTEXT)  # type: ignore[call-arg]


def test_calls_of_functions_are_valid() -> None:
    module = Module(None, "GPL")
    module.function("part", ("*frame", "a", "b"), None).ret(0)
    module.kernel_function("bpf_session_is_return", (), "int")
    module.kernel_function("bpf_task_from_pid", ("int",), "task_struct")
    module.kernel_function("bpf_task_release", ("task_struct",), "void")
    b = function(module, "*ctx")
    b.release("bpf_task_release", b.kernel_object("bpf_task_from_pid", b.kernel_call("bpf_session_is_return", [])))
    b.ret(b.call("part", [CONTEXT], [1, 2]))
    accepted(module)


NAMES = {"name", "what"}
"""Parameters that are names of functions and of places."""


def test_builders_take_no_text() -> None:
    """Whoever emits instructions hands over values: there is no way for a piece of IR to come from elsewhere."""
    for name, method in inspect.getmembers(Builder, inspect.isfunction):
        if name.startswith("_"):
            continue
        hints = get_type_hints(method)
        text = {item for item, kind in hints.items() if kind is str} - NAMES
        assert not text, f"{name} takes text: {text}"


def test_the_text_of_a_function_names_its_blocks_in_order() -> None:
    b = Builder(FunctionText("f", "internal i64 @f()"))
    later = b.block()
    b.jump(later)
    b.start(later)
    b.ret(0)
    assert b.function.text().splitlines() == [
        "define internal i64 @f() {",
        "entry:",
        "  br label %b1",
        "b1:",
        "  br label %b2",
        "b2:",
        "  ret i64 0",
        "}",
    ]


def test_atomic_operations_of_kernels_before_5_12() -> None:
    """Only an addition without result is one instruction there: nothing else is atomic."""
    module = Module(None, "GPL", atomics=False)
    b = function(module, "*ctx")
    place = b.alloca(8)
    b.store(b.fetch("add", place, 3), place)
    b.store(b.fetch("or", place, 4), place)
    b.store(b.fetch_bits("add", place, 1, 32, True), place)
    b.store(b.fetch_bits("xor", place, 1, 32, False), place)
    b.store(b.exchange_if(place, 5, 6), place)
    b.ret(0)
    accepted(module)
    lines = body(module)
    assert not [line for line in lines if "cmpxchg" in line or "seq_cst" in line]
    added = [line.partition("= ")[2] for line in lines if "atomicrmw" in line]
    assert added == ["atomicrmw add ptr %v2, i64 3 monotonic", added[1]]
    assert " i32 " in added[1]


# --------------------------------------------------------------------------------------------------------- control flow


@pytest.mark.parametrize(("method", "targets"), [("when", "label %b5, label %b4"), ("unless", "label %b4, label %b5")])
def test_code_under_a_condition(method: str, targets: str) -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    cell = b.alloca(8)
    with getattr(b, method)(b.icmp("eq", number_parameter("count"), 5), likely=False):
        b.store(1, cell)
    b.ret(0)
    lines = body(module)
    (branch,) = [line for line in lines if line.startswith("br i1")]
    assert branch.startswith(f"br i1 %v3, {targets}, !prof !1")
    assert "br label %b4" in lines


@pytest.mark.parametrize(
    ("method", "value"), [("jump_if", "label %b2, label %b4"), ("jump_unless", "label %b4, label %b2")]
)
def test_conditional_jumps_continue_after_them(method: str, value: str) -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    target = b.block()
    getattr(b, method)(b.icmp("eq", number_parameter("count"), 5), target)
    b.ret(1)
    b.start(target)
    b.ret(0)
    (branch,) = [line for line in body(module) if line.startswith("br i1")]
    assert branch.startswith(f"br i1 %v3, {value}")


def test_a_closed_branch_is_not_joined() -> None:
    module = Module(None, "GPL")
    b = function(module, "*ctx", "count")
    with b.when(b.truth(number_parameter("count"))):
        b.ret(1)
    b.ret(0)
    assert [line for line in body(module) if line.startswith("ret")] == ["ret i64 1", "ret i64 0"]


# -------------------------------------------------------------------------------------------------------------- helpers

HEADER = Path("/usr/include/linux/bpf.h")


def numbers() -> dict[str, int]:
    """Numbers of helpers, as the header has them."""
    if not HEADER.exists():
        pytest.skip("the kernel's headers for programs are not installed")
    found = re.findall(r"\bFN\((\w+)(?:, (\d+))?", HEADER.read_text())
    # Older headers number them by their order.
    return {name: int(number or at) for at, (name, number) in enumerate(found)}


@pytest.mark.parametrize("row", HELPERS.values(), ids=lambda row: row.name)
def test_numbers(row: Helper) -> None:
    known = numbers()
    name = re.sub(r"_\d$", "", row.name)
    assert row.number == known.get(name, row.number)


@pytest.mark.parametrize("row", HELPERS.values(), ids=lambda row: row.name)
def test_a_helper_has_at_most_five_arguments(row: Helper) -> None:
    assert len(row.parameters) <= 5
    assert set(row.parameters) <= {"ptr", "i64"}
    assert row.result in {"ptr", "i64", "void"}


def test_variants_of_one_helper_differ_in_their_arguments() -> None:
    variants = [row for name, row in HELPERS.items() if name.startswith("trace_printk_")]
    assert {row.number for row in variants} == {6}
    assert sorted(len(row.parameters) for row in variants) == [2, 3, 4, 5]


# ------------------------------------------------------------------------------------------------------------ registers


def test_x86_offsets() -> None:
    # arch/x86/include/asm/ptrace.h
    table = registers_of("x86_64")
    expected = {"r15": 0, "bp": 32, "ax": 80, "di": 112, "orig_rax": 120, "orig_ax": 120, "ip": 128, "sp": 152}
    assert {name: table.offset(name) for name in expected} == expected
    assert table.arguments == ("di", "si", "dx", "cx", "r8", "r9")


@pytest.mark.parametrize("machine", sorted(REGISTERS))
def test_every_register_that_scripts_may_name_has_a_place(machine: str) -> None:
    table = registers_of(machine)
    for name in REGISTERS[machine].values():
        assert table.offset(name) >= 0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TraceError, match="no register"):
        registers_of("x86_64").offset("x7")
    with pytest.raises(TraceError, match="not known"):
        registers_of("vax")


# ------------------------------------------------------------------------------------------------------------ ir values


def test_numbers_and_addresses_in_instructions() -> None:
    assert signed_constant(0) == 0
    assert signed_constant((1 << 63) - 1) == (1 << 63) - 1
    assert signed_constant(1 << 63) == -(1 << 63)
    assert signed_constant((1 << 64) - 1) == -1
    assert [ordering(order, signed=True) for order in ("lt", "le", "gt", "ge")] == ["slt", "sle", "sgt", "sge"]
    assert [ordering(order, signed=False) for order in ("lt", "le", "gt", "ge")] == ["ult", "ule", "ugt", "uge"]
    assert global_pointer("events") == "@events"
    assert global_pointer("constants", 0) == "getelementptr (i8, ptr @constants, i64 0)"


def test_a_late_operand_is_written_when_its_value_is_known() -> None:
    late = Late("stride")
    instruction = LateInstruction("  %v1 = mul i64 %v0, ", late, Location(", !dbg !7"))
    with pytest.raises(InternalError, match="stride has no value"):
        str(instruction)
    late.value = 128
    assert str(instruction) == "  %v1 = mul i64 %v0, 128, !dbg !7"


# -------------------------------------------------------------------------------------------------------- function text


def test_callees_are_functions_that_are_called_or_handed_over() -> None:
    module = Module(None, "GPL")
    module.function("leaf", (), None).ret(0)
    module.function("round", ("index", "*frame"), None).ret(0)
    b = module.function("main", ("*ctx",), None, entry=True)
    b.helper(LOOP, 3, global_pointer("round"), CONTEXT, 0)
    b.load(global_pointer("events"))
    b.ret(b.call("leaf"))
    found = callees(module.text(0, 0), {"leaf", "round", "main"})
    assert found == {"leaf": set(), "round": set(), "main": {"leaf", "round"}}


def test_callees_of_other_functions_are_left_out() -> None:
    module = Module(None, "GPL")
    module.function("leaf", (), None).ret(0)
    b = module.function("main", ("*ctx",), None, entry=True)
    b.ret(b.call("leaf"))
    assert callees(module.text(0, 0), {"main"}) == {"main": set()}


# ---------------------------------------------------------------------------------------------------------- name tables

NAME_TABLES_HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


def test_errors_and_signals() -> None:
    assert machine.errors()[2].decode() == os.strerror(2)
    assert machine.signals()[9] == b"Killed"
    assert machine.signals()[-1] == b"N/A"
    assert machine.signals()[0] == b"Unknown signal 0"
    assert machine.errors()[5] == b"I/O error"
    assert machine.errors()[-1] == b"Unknown error"
    assert machine.syscalls("x86_64")[-1] == b"Unknown syscall"


def test_system_calls() -> None:
    rows = machine.syscalls("x86_64")
    assert (rows[0], rows[39], rows[257]) == (b"read", b"getpid", b"openat")
    assert machine.syscalls("aarch64")[63] == b"read"


@pytest.mark.skipif(not NAME_TABLES_HEADER.exists(), reason="no kernel headers for user space")
def test_system_calls_agree_with_the_header() -> None:
    rows = machine.syscalls("x86_64")
    newest = max(number for number, row in enumerate(rows) if row != b"Unknown syscall")
    for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", NAME_TABLES_HEADER.read_text(), re.MULTILINE):
        assert int(number) > newest or rows[int(number)].decode() == name  # headers of a later kernel have more


def test_every_name_fits_its_string() -> None:
    for table in (machine.errors(), machine.signals(), machine.syscalls("x86_64")):
        assert max(map(len, table)) < 64
