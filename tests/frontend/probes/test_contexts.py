"""What a probe offers its body: contexts, fields, arguments."""

from __future__ import annotations

import pytest

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import UserParameter
from pytrace.core.probe_kinds import TracepointTarget
from pytrace.core.source import Source
from pytrace.core.types import (
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    VOID,
    AddressSpace,
    Array,
    Bool,
    Enum,
    Pointer,
    String,
    Struct,
    Type,
)
from pytrace.frontend.probes import attach_points, contexts, functions, providers, tracepoints, uprobes
from pytrace.frontend.syntax import parser
from pytrace.frontend.syntax.typed_program import Argument, ContextField, DataLoc, RegisterLocation, ReturnValue, Slot
from tests.support.facts import FILE, REGISTERS, TASK, RecordedKernel, event, function, tracepoint_field

KERNEL = RecordedKernel()
BIG = Struct("struct", "big", 12, (), origin="vmlinux", alignment=4)
TARGET = TracepointTarget("a", "b")


def test_fields_that_programs_may_not_read_are_left_out() -> None:
    found = tracepoints.tracepoint(TARGET, event(tracepoint_field("x", INT32, 7), tracepoint_field("y", INT32, 8)), 64)
    assert [item.name for item in found.arguments] == ["y"]
    assert str(found.args_type) == "struct args(tracepoint:a:b)"


@pytest.mark.parametrize(
    ("type_", "data_loc", "wanted"),
    [
        (Array(INT8, 16), False, String(16)),
        (Array(UINT8, 16), False, Array(UINT8, 16)),
        (Array(INT8, 0), True, String(64)),
        (String(0), True, String(64)),
        (Array(UINT8, 0), True, Pointer(UINT8, AddressSpace.KERNEL)),
        (Array(INT64, 0), True, Pointer(INT64, AddressSpace.KERNEL)),
    ],
)
def test_types_of_fields(type_: Type, data_loc: bool, wanted: Type) -> None:
    (argument,) = tracepoints.tracepoint(TARGET, [tracepoint_field("x", type_, 8, data_loc=data_loc)], 64).arguments
    assert argument.type == wanted
    assert argument.place == (DataLoc(8, False) if data_loc else ContextField(8))


def test_arguments_in_slots_of_8_bytes() -> None:
    prototype = function("f", ("a", INT8), ("", BIG), ("c", Pointer(TASK)), result=INT64)
    found = contexts.slots("f", prototype, returns=True)
    assert [(item.name, item.place) for item in found.arguments] == [("a", Slot(0)), ("arg1", Slot(1)), ("c", Slot(3))]
    assert found.result is not None
    assert (found.result.place, found.slots) == (Slot(4), 4)
    assert contexts.slots("f", prototype, returns=False).result is None
    assert contexts.slots("f", function("f", result=VOID), returns=True).result is None


def test_what_the_verifier_lets_programs_follow() -> None:
    for type_, known, trusted in (
        (Pointer(TASK), True, True),
        (Pointer(TASK), False, False),
        (Pointer(INT8), True, False),
        (Pointer(TASK, AddressSpace.USER), True, False),
    ):
        (argument,) = contexts.slots("f", function("f", ("p", type_)), returns=False, known=known).arguments
        assert isinstance(argument.type, Pointer)
        assert argument.type.trusted is trusted
        wanted = AddressSpace.USER if type_.space is AddressSpace.USER else AddressSpace.KERNEL
        assert argument.type.space is wanted


def test_structs_by_value_end_the_arguments_of_a_kprobe() -> None:
    found = functions.entry("f", function("f", ("a", INT32), ("b", BIG), ("c", INT32)), KERNEL)
    assert [(item.name, item.place) for item in found.arguments] == [("a", Argument(0))]
    assert functions.entry("f", None, KERNEL).args_type is None
    assert functions.entry("f", function("f", ("b", BIG)), KERNEL).args_type is None


@pytest.mark.parametrize(
    ("type_", "typed"),
    [
        (INT32, True),
        (Bool(), True),
        (Enum("e", 4, False, ()), True),
        (Pointer(TASK), False),
        (VOID, False),
        (BIG, False),
    ],
)
def test_return_values_are_typed_when_they_are_numbers(type_: Type, typed: bool) -> None:
    for found in (contexts.returning(type_, KERNEL),):
        assert (found.result is not None) is typed
        if found.result is not None:
            assert (found.result.type, found.result.place) == (type_, ReturnValue())


@pytest.mark.parametrize(
    ("text", "type_", "place"),
    [
        ("di", INT32, RegisterLocation("di", 0, False, 4, True)),
        ("sp+16", UINT32, RegisterLocation("sp", 16, True, 4, False)),
        ("bp-0x8", Pointer(INT8), RegisterLocation("bp", -8, True, 8, False)),
        ("si", BIG, RegisterLocation("si", 0, False, 8, False)),
    ],
)
def test_where_parameters_of_binaries_are(text: str, type_: Type, place: RegisterLocation) -> None:
    assert contexts.location(UserParameter("x", type_, text)) == place


def test_parameters_that_are_not_known_say_why() -> None:
    found = uprobes.user_entry("f", None, KERNEL, 64, ["no debug information"])
    assert (found.args_type, found.missing) == (None, ("no debug information",))
    assert uprobes.user_entry("f", (), KERNEL, 64).args_type is not None


def test_perf_events_have_a_context_without_the_kernels_description() -> None:
    found = providers.perf_event(KERNEL)
    assert isinstance(found, Pointer)
    assert isinstance(found.target, Struct)
    assert [(item.name, item.offset) for item in found.target.fields] == [
        ("regs", 0),
        ("sample_period", 168),
        ("addr", 176),
    ]
    assert providers.perf_event(RecordedKernel(structs={})) == Pointer(VOID, AddressSpace.BPF)
    assert contexts.registers(KERNEL) == Pointer(REGISTERS, AddressSpace.BPF)
    assert contexts.registers(RecordedKernel(structs={})) == Pointer(VOID, AddressSpace.BPF)


def test_args_as_a_whole_are_laid_out_like_a_struct() -> None:
    found = contexts.slots("f", function("f", ("a", INT8), ("b", INT16), ("c", UINT64), ("d", INT8)), returns=False)
    assert isinstance(found.args_type, Struct)
    assert [item.offset for item in found.args_type.fields] == [0, 2, 8, 16]
    assert (found.args_type.size, found.args_type.align) == (24, 8)


def test_spaces() -> None:
    assert contexts.in_space(Pointer(FILE)) == Pointer(FILE, AddressSpace.KERNEL)
    assert contexts.in_space(Pointer(FILE, AddressSpace.USER)) == Pointer(FILE, AddressSpace.USER)
    assert contexts.in_space(INT32) == INT32


# ------------------------------------------------------------------------------------------------------------ body uses


def uses(text: str) -> providers.Uses:
    program = parser.parse(Source("stdin", text), Diagnostics())
    return attach_points.uses_of([part for probe in program.probes for part in (probe.predicate, probe.body)])


@pytest.mark.parametrize(
    ("body", "fields", "whole"),
    [
        ("print(1);", set(), False),
        ("print(args.a);", {"a"}, False),
        ("print(args->a.b);", {"a"}, False),
        ("print(args);", set(), True),
        ("print(args.a); print(args);", {"a"}, True),
        ("@[args] = 1;", set(), True),
    ],
)
def test_args(body: str, fields: set[str], whole: bool) -> None:
    found = uses(f"kprobe:f {{ {body} }}")
    assert (found.fields, found.whole, found.args) == (fields, whole, bool(fields) or whole)


def test_what_a_body_uses() -> None:
    assert uses("kprobe:f /args.a/ { }").fields == {"a"}
    assert uses("kprobe:f { print(arg12); print((arg0, arg3)); print((arg, argx, arg0)); }").positional == (0, 3, 12)
    found = uses("kprobe:f { printf(retval); { @x = comm; } }")
    assert {"printf", "retval", "comm"} <= found.names
    assert "retval" in found
    assert "pid" not in found
