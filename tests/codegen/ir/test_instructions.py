"""Methods of the builder: LLVM takes what they write, and mypy takes no value of another type."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import get_type_hints

import pytest

from pytrace.codegen.ir import helpers, target
from pytrace.codegen.ir.builder import AT_ONCE, Builder, FunctionText
from pytrace.codegen.ir.module import Module
from pytrace.codegen.ir.values import CONTEXT, NULL, TRUE, number_parameter
from pytrace.core.diagnostics import InternalError

ROOT = Path(__file__).resolve().parents[3]


def function(module: Module, *parameters: str) -> Builder:
    return module.function("main", parameters, None, section="pytrace/main")


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


WRONG = """\
    b.branch(b.load(p), block, block)
    b.branch(p, block, block)
    b.branch("true", block, block)
    b.load(b.truth(n))
    b.load(n)
    b.store(b.truth(n), p)
    b.store("0", p)
    b.offset(n, 8)
    b.offset(p, p)
    b.add(n, "1")
    b.number(n)
    b.select(n, 1, 2)
    b.icmp("lt", n, 0)
    b.op("sdiv", n, 2)
    b.helper(helpers.MAP_LOOKUP_ELEM, p, n)
    b.helper(helpers.GET_CURRENT_COMM, p)
    b.load(b.helper(helpers.GET_CURRENT_TASK))
    b.call("f", [n])
"""
RIGHT = """\
    b.branch(b.truth(b.load(p)), block, block)
    b.store(b.number(b.truth(n)), b.offset(p, n))
    b.load(b.helper(helpers.MAP_LOOKUP_ELEM, p, b.offset(p, 8)))
    b.call("f", [p], [n, 1])
"""


def test_mypy_tells_truth_values_numbers_and_addresses_apart(tmp_path: Path) -> None:
    if shutil.which("mypy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("mypy is not installed (scripts/check installs it)")
    head = textwrap.dedent(
        """\
        from pytrace.codegen.ir import helpers
        from pytrace.codegen.ir.builder import Block, Builder
        from pytrace.codegen.ir.values import I64, Ptr

        def use(b: Builder, n: I64, p: Ptr, block: Block) -> None:
        """
    )
    path = tmp_path / "uses.py"
    path.write_text(head + WRONG + RIGHT)
    # With the cache of scripts/check, which has the package.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    first = head.count("\n") + 1
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if "error:" in line and "uses.py" in line}
    assert found == set(range(first, first + WRONG.count("\n"))), done.stdout


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
