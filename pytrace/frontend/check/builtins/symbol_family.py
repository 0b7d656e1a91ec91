"""Builtins about addresses, symbols and registers."""

from __future__ import annotations

from collections.abc import Callable

from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.core.probes.targets import FileTarget
from pytrace.core.types import BOOL, UINT64, AddressSpace, Int, KSym, Pointer, String, Type, USym
from pytrace.frontend.check.inference.argument_checks import (
    expression,
    integer_argument,
    literal_text,
    pointer_argument,
)
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, is_integer, settle
from pytrace.frontend.syntax.typed_program import GoroutineNumber, KernelVariable, RegisterName, UserSymbol

_X86 = {
    name: name
    for name in (
        *("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di"),
        *("orig_ax", "ip", "cs", "flags", "sp", "ss"),
    )
}
_X86 |= {"orig_rax": "orig_ax", "pc": "ip"}
_ARM64 = {f"r{number}": f"r{number}" for number in range(31)} | {"sp": "sp", "pc": "pc", "pstate": "pstate"}

REGISTERS: dict[str, dict[str, str]] = {"x86_64": _X86, "aarch64": _ARM64}
"""By machine: register names of reg(), with the member of ``struct pt_regs`` (as in ``RegisterLocation``)."""

_ANY_VARIABLE = "jiffies"
"""A variable that every kernel has."""
_FUNCTIONS_ONLY = "/proc/kallsyms has functions only, no variables: this kernel was built without CONFIG_KALLSYMS_ALL"


def kaddr(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``kaddr("symbol")``."""
    name = literal_text(checker, arguments[0], "the symbol of kaddr()")
    if name is None:
        return UNKNOWN
    address = _kernel_address(checker, node, name)
    if address is not None:
        checker.set_fact(node, address, "kaddr", name)
    return UINT64


def _kernel_address(checker: Checker, node: Node, name: str) -> int | None:
    try:
        address = checker.kernel.kernel_symbol(name)
    except TraceError as error:
        checker.error(error.message, node.span, hints=error.hints)
        return None
    if address is None:
        hints = () if checker.kernel.kernel_symbol(_ANY_VARIABLE) is not None else (_FUNCTIONS_ONLY,)
        checker.error(f"the kernel has no symbol {name!r}", node.span, hints=hints, kernel=True)
    return address


def percpu_kaddr(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``percpu_kaddr("symbol"[, cpu])``."""
    name = literal_text(checker, arguments[0], "the symbol of percpu_kaddr()")
    if len(arguments) > 1:
        integer_argument(checker, node, arguments[1], "the CPU number")
    if name is None:
        return UNKNOWN
    address = _kernel_address(checker, node, name)
    checker.program.facts[node] = KernelVariable(name, address or 0)
    return UINT64


def uaddr(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``uaddr("symbol")``: a pointer to an unsigned integer of the symbol's size."""
    text = literal_text(checker, arguments[0], "the symbol of uaddr()")
    place = None if checker.unit is None else checker.unit.targets[0].place
    if text is None or not isinstance(place, FileTarget):
        return UNKNOWN
    binary = place.path
    function = next((item for item in checker.kernel.user_symbols(binary, text) if item.name == text), None)
    address = function.address if function is not None else checker.kernel.user_address(binary, text)
    if address is None:
        return checker.error(f"{binary} has no symbol {text!r}", node.span)
    if function is None and checker.kernel.user_thread_local(binary, text):
        message = f"{text} is a thread-local variable: each thread has its own, at no fixed address"
        hints = ["pass its address to a traced function, or trace where it is read"]
        return checker.error(message, node.span, hints=hints)
    checker.program.facts[node] = UserSymbol(text, binary, address)
    size = function.size if function is not None else checker.kernel.user_size(binary, text)
    return Pointer(Int(size if size in (1, 2, 4, 8) else 8, False), AddressSpace.USER)


SYMBOL_LENGTH = 64
"""Capacity of the result of ``ksym_name()``; longer names are truncated."""


def ksym_name(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``ksym_name(address)``."""
    pointer_argument(checker, node, arguments[0], "the address of ksym_name()")
    if not checker.kernel.feature("snprintf"):
        hints = ("Linux 5.13 does; ksym() prints the name of an address",)
        message = "this kernel cannot give names of symbols to programs"
        return checker.error(message, node.span, hints=hints, kernel=True)
    return String(SYMBOL_LENGTH)


def _of_address(result: Type, what: str) -> Callable[[Checker, Node, Arguments], Type]:
    """The check of a function of one address: ``ksym``, ``usym``, ``is_err``."""

    def check(checker: Checker, node: Node, arguments: Arguments) -> Type:
        pointer_argument(checker, node, arguments[0], f"the {what} of {node.name}()")
        return result

    return check


ksym = _of_address(KSym(), "address")
usym = _of_address(USym(), "address")
is_err = _of_address(BOOL, "argument")


def marked(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``kptr(p)`` and ``uptr(p)``; an integer stays one."""
    type_ = checker.value(expression(checker, arguments[0]))
    if isinstance(type_, Pointer):
        return Pointer(type_.target, AddressSpace.KERNEL if node.name == "kptr" else AddressSpace.USER)
    if is_integer(type_):
        return settle(type_)
    if isinstance(type_, Unknown):
        return UNKNOWN
    return checker.error(f"{node.name}() takes a pointer or an integer, not {settle(type_)}", node.span)


def goid(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``goid``."""
    if checker.kernel.arch != "x86_64" or checker.unit is None:
        where = "in a function" if checker.unit is None else f"on {checker.kernel.arch}"
        return checker.error(f"goid is not available {where}", node.span)
    offsets = set()
    for target in checker.unit.targets:
        place = target.of(FileTarget)
        offset = checker.kernel.user_goid(place.path, place.offset)
        if offset is None:
            hints = ["programs of Go 1.17 and later have goroutines whose place is known, others by their DWARF"]
            return checker.error(f"goid is not available: {target.probe} is not in code of Go", node.span, hints=hints)
        offsets.add(offset)
    if len(offsets) > 1:
        hints = ["write a probe for each binary"]
        return checker.error("goid is at different places in the binaries of this probe", node.span, hints=hints)
    paths = dict.fromkeys(target.of(FileTarget).path for target in checker.unit.targets)
    checker.program.facts[node] = GoroutineNumber(offsets.pop(), tuple(paths))
    return UINT64


def reg(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``reg("name")``."""
    text = literal_text(checker, arguments[0], "the register of reg()")
    if text is None:
        return UNKNOWN
    known = REGISTERS.get(checker.kernel.arch, {})
    if text not in known:
        hints = did_you_mean(text, known) or (f"there are {', '.join(known)}",)
        return checker.error(f"there is no register {text!r}", node.span, hints=hints)
    checker.program.facts[node] = RegisterName(known[text])
    return UINT64
