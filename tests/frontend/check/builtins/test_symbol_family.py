"""Builtins about addresses and registers: symbols that exist, and the memory that pointers point into."""
# ruff: noqa: E501 - one script a line

from __future__ import annotations

import pytest

from pytrace.core.types import AddressSpace, Pointer
from pytrace.frontend.syntax.typed_program import RegisterName
from tests.frontend.checking import last_value, refusals, values
from tests.support.front import analyse
from tests.support.recorded import Facts

# fmt: off
REFUSED = [
    ("kprobe:vfs_read { print(reg(\"foo\")); }", "1:25-35", "there is no register 'foo'"),
    ("begin { print(kaddr(\"nosuch_symbol\")); }", "1:15-37", "the kernel has no symbol 'nosuch_symbol'"),
    ("begin { kaddr($1); }", "1:15-17", "the symbol of kaddr() must be a string literal"),
    ("begin { print(is_err(\"x\")); }",
     "1:15-26", "the argument of is_err() must be a pointer or an integer, not string[2]"),
    ("begin { print(kaddr(comm)); }", "1:21-25", "the symbol of kaddr() must be a string literal"),
    ("begin { print(kptr(\"x\")); }", "1:15-24", "kptr() takes a pointer or an integer, not string[2]"),
    ("begin { print(uptr((1, 2))); }", "1:15-27", "uptr() takes a pointer or an integer, not (int8,int8)"),
    ("begin { print(ksym(\"x\")); }",
     "1:15-24", "the address of ksym() must be a pointer or an integer, not string[2]"),
    ("begin { print(usym(\"x\")); }",
     "1:15-24", "the address of usym() must be a pointer or an integer, not string[2]"),
    ("begin { print(percpu_kaddr(5)); }", "1:28-29", "the symbol of percpu_kaddr() must be a string literal"),
    ("begin { print(percpu_kaddr(\"runqueues\", \"x\")); }",
     "1:15-45", "the CPU number must be an integer, not string[2]"),
    ("kprobe:vfs_read { print(reg(5)); }", "1:29-30", "the register of reg() must be a string literal"),
    ("uprobe:/bin/true:main { print(uaddr(\"nothing\")); }", "1:31-47", "/bin/true has no symbol 'nothing'"),
    ("kprobe:vfs_read { print(reg(\"r0\")); }", "1:25-34", "there is no register 'r0'"),
    ("uprobe:/bin/true:main { print(goid); }", "1:31-35",
     "goid is not available: uprobe:/bin/true:main is not in code of Go"),
    ("begin { print(percpu_kaddr(\"nothing\")); }", "1:15-38", "the kernel has no symbol 'nothing'"),
]
VALUES = [
    ("begin { print(kaddr(\"vfs_read\")); }", "uint64", 18446744071581156704),
    ("begin { print(percpu_kaddr(\"jiffies_64\")); }", "uint64", None),
    ("begin { print(percpu_kaddr(\"jiffies_64\", 1)); }", "uint64", None),
    ("uprobe:/bin/true:main { print(uaddr(\"counter\")); }", "uint32 *", None),
    ("uprobe:/bin/true:main { print(uaddr(\"main\")); }", "uint64 *", None),
    ("uprobe:/bin/true:main { print(uaddr(\"table\")); }", "uint64 *", None),
    ("begin { print(ksym(5)); }", "ksym_t", None),
    ("begin { print(usym(5)); }", "usym_t", None),
    ("begin { print(kptr(5)); }", "int8", None),
    ("begin { print(uptr(nsecs) + 1); }", "uint64", None),
    ("begin { print(kptr((int8 *)5)); }", "int8 *", None),
    ("begin { print(uptr(curtask)); }", "struct task_struct *", None),
    ("begin { print(is_err(curtask)); }", "bool", None),
    ("kprobe:vfs_read { print(reg(\"ip\")); }", "uint64", None),
]
# fmt: on

test_refused = refusals(REFUSED)
test_values = values(VALUES)


def arm() -> Facts:
    kernel = Facts()
    kernel.arch = "aarch64"
    return kernel


@pytest.mark.parametrize(
    ("name", "register", "kernel"),
    [("ip", "ip", Facts()), ("pc", "ip", Facts()), ("orig_rax", "orig_ax", Facts()), ("pc", "pc", arm()), ("r30", "r30", arm())],
)
def test_registers_by_machine(name: str, register: str, kernel: Facts) -> None:
    program, node = last_value(f'kprobe:vfs_read {{ print(reg("{name}")); }}', kernel)
    assert program.fact(node, RegisterName).register == register


@pytest.mark.parametrize(
    ("call", "space"),
    [
        ("kptr((int8 *)5)", AddressSpace.KERNEL),
        ("uptr((int8 *)5)", AddressSpace.USER),
        ("uptr(curtask)", AddressSpace.USER),
    ],
)
def test_pointers_get_their_memory(call: str, space: AddressSpace) -> None:
    program, node = last_value(f"begin {{ print({call}); }}")
    type_ = program.types[node]
    assert isinstance(type_, Pointer)
    assert (type_.space, type_.trusted) == (space, False)


def hints(kernel: Facts) -> list[str]:
    (error,) = analyse('begin { print(kaddr("nosuch_symbol")); }', kernel=kernel).diagnostics.errors
    return list(error.hints)


def test_kernels_that_list_functions_only_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hints(Facts()) == []
    functions = Facts()
    monkeypatch.setattr(functions, "kernel_symbol", lambda name: None)
    assert hints(functions) == [
        "/proc/kallsyms has functions only, no variables: this kernel was built without CONFIG_KALLSYMS_ALL"
    ]
