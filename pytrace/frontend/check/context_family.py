"""Checks of builtins that read the probe's context: arguments, registers, names, stacks; addresses and symbols."""

from __future__ import annotations

from collections.abc import Mapping

from pytrace.base.dispatch import handles_names
from pytrace.core.diagnostics import TraceError, counted, did_you_mean
from pytrace.core.probe_kinds import BEGIN, CALL, END, PYTHON_KINDS, SELF, Context, FileTarget, IteratorTarget
from pytrace.core.types import (
    BOOL,
    DEEPEST_STACK,
    UINT8,
    UINT64,
    VOID,
    AddressSpace,
    Float,
    Int,
    KSym,
    Pointer,
    Stack,
    StackMode,
    String,
    Type,
    USym,
)
from pytrace.frontend.check.checker import Arguments, Node
from pytrace.frontend.check.conversions import UNKNOWN, Unknown, is_integer, settle
from pytrace.frontend.check.expressions import BuiltinChecks
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import (
    ArgumentIndex,
    GoroutineNumber,
    KernelVariable,
    RegisterName,
    UserSymbol,
)

_PYTHON_NAME = 256
"""Most bytes of the qualified name of a Python function."""


_MAX_FRAMES = Stack(True).limit
"""Default of kernel.perf_event_max_stack, the maximum number of frames that the kernel walks, and of a key."""
_MODES = {mode.value: mode for mode in StackMode}
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
_SYMBOL_LENGTH = 64
"""Capacity of the result of ``ksym_name()``; longer names are truncated."""
_OF_ADDRESS: Mapping[str, tuple[Type, str]] = {
    "ksym": (KSym(), "address"), "usym": (USym(), "address"), "is_err": (BOOL, "argument"),
}  # fmt: skip
"""Results of functions of one address, and a word for it."""


class ContextChecks(BuiltinChecks):
    """Checks of builtins that read the probe's context, and of stacks."""

    @handles_names("args")
    def args(self, node: Node, _arguments: Arguments) -> Type:
        """``args`` as a whole."""
        if not isinstance(node, nodes.Identifier) or not self.checks.require_args(node) or self.checker.unit is None:
            return UNKNOWN
        type_ = self.checker.unit.context.args_type
        return type_ if type_ is not None else self.checker.error("args cannot be used as a whole here", node.span)

    @handles_names("argN")
    def arg_n(self, node: Node, _arguments: Arguments) -> Type:
        """``arg0`` …"""
        number = int(node.name.removeprefix("arg"))
        context = self.checker.unit.context if self.checker.unit is not None else None
        count = len(context.positional) or context.slots if context is not None else 0
        if count and number >= count:
            message = f"the probe has {counted(count, 'argument')}, so there is no {node.name}"
            return self.checker.error(message, node.span, kernel=bool(context and context.positional))
        self.checker.program.facts[node] = ArgumentIndex(number)
        place = context.positional[number] if context is not None and context.positional else None
        return Float(place.size) if place is not None and place.fraction else UINT64

    @handles_names("ctx")
    def ctx(self, _node: Node, _arguments: Arguments) -> Type:
        """``ctx``."""
        type_ = self.checker.unit.context.ctx_type if self.checker.unit is not None else None
        return type_ if type_ is not None else Pointer(VOID, AddressSpace.BPF)

    @handles_names("func")
    def func(self, node: Node, _arguments: Arguments) -> Type:
        """``func``."""
        kind = None if self.checker.unit is None else self.checker.unit.kind
        if kind is not None and kind.name in PYTHON_KINDS:
            return String(min(self.checker.config.max_strlen, _PYTHON_NAME))
        if kind is not None and kind.user:
            return USym()
        at_entry = kind is not None and kind.context is Context.REGISTERS and not kind.returns
        if not at_entry and not self.checker.kernel.feature("get_func_ip"):
            hints = ["Linux 5.15 can (bpf_get_func_ip); kprobe has it here, and probe names a probe everywhere"]
            name = "a function" if kind is None else kind.name
            self.checker.error(
                f"this kernel cannot tell {name} which function is traced", node.span, hints=hints, kernel=True
            )
        return KSym()

    @handles_names("probe")
    def probe(self, node: Node, _arguments: Arguments) -> Type:
        """``probe``."""
        if self.checker.unit is None:
            return self.checker.error("a function does not know which probe called it", node.span)
        names = [name.encode("utf-8", "surrogateescape") for name in self.checker.unit.names]
        if len(names) == 1:
            self.checker.set_constant(node, names[0])
        return String(max((len(name) for name in names), default=0) + 1)

    @handles_names("probetype")
    def probetype(self, node: Node, _arguments: Arguments) -> Type:
        """``probetype``."""
        if self.checker.unit is None:
            return self.checker.error("a function does not know which probe called it", node.span)
        kind = self.checker.unit.kind
        name = b"special" if kind.name in (BEGIN, END, SELF) else kind.name.encode()
        if self.checker.unit.role:
            name = CALL.encode()
        self.checker.set_constant(node, name)
        return String(len(name) + 1)

    @handles_names("retval")
    def retval(self, node: Node, _arguments: Arguments) -> Type:
        """``retval``."""
        if self.checks.report_lost(node):
            return UNKNOWN
        result = self.checker.unit.context.result if self.checker.unit is not None else None
        return result.type if result is not None else UINT64

    @handles_names("usermode")
    def usermode(self, node: Node, _arguments: Arguments) -> Type:
        """``usermode``."""
        if self.checker.kernel.arch != "x86_64":
            return self.checker.error(f"usermode is not available on {self.checker.kernel.arch}", node.span)
        return UINT8

    @handles_names("kstack")
    def kstack(self, node: Node, arguments: Arguments) -> Type:
        """``kstack``."""
        return self._stack(node, arguments, user=False)

    @handles_names("ustack")
    def ustack(self, node: Node, arguments: Arguments) -> Type:
        """``ustack``."""
        return self._stack(node, arguments, user=True)

    @handles_names("dw_ustack")
    def dw_ustack(self, node: Node, arguments: Arguments) -> Type:
        """``dw_ustack``."""
        if not self.checks.unstable("dw_ustack", node):
            return UNKNOWN
        if self.checker.kernel.arch != "x86_64":
            return self.checker.error(f"dw_ustack is not available on {self.checker.kernel.arch}", node.span)
        type_ = self._stack(node, arguments, user=True)
        if isinstance(type_, Stack) and type_.mode is StackMode.BUILD_ID:
            return self.checker.error(
                "dw_ustack has no build_id mode", node.span, hints=["modes: bpftrace, perf, raw; ustack has build_id"]
            )
        return type_

    @handles_names("pystack")
    def pystack(self, node: Node, arguments: Arguments) -> Type:
        """``pystack``."""
        if self.checker.kernel.arch != "x86_64":
            return self.checker.error(f"pystack is not available on {self.checker.kernel.arch}", node.span)
        type_ = self._stack(node, arguments, user=True)
        if isinstance(type_, Stack) and type_.mode in (StackMode.RAW, StackMode.BUILD_ID):
            hints = ["modes: bpftrace, perf, folded, annotated, inverted; ustack has addresses"]
            return self.checker.error(f"pystack has no {type_.mode.value} mode", node.span, hints=hints)
        return type_

    def _stack(self, node: Node, arguments: Arguments, *, user: bool) -> Type:
        mode, limit = _MODES[self.checker.config.stack_mode], self.checker.config.max_stack_depth
        if limit > _MAX_FRAMES and not self.checker.kernel.feature("bpf_loop"):
            return self.checker.error(
                f"max_stack_depth over {_MAX_FRAMES} needs a kernel with bpf_loop (Linux 5.17)", node.span
            )
        rest = list(arguments)
        if rest and isinstance(rest[0], nodes.Identifier):
            named = _MODES.get(rest[0].name)
            if named is None:
                return self.checker.error(f"{rest[0].name!r} is not a stack mode: {', '.join(_MODES)}", node.span)
            mode = named
            rest.pop(0)
            if mode is StackMode.BUILD_ID and not user:
                return self.checker.error("build_id is a mode of user stacks only", node.span)
        elif mode is StackMode.BUILD_ID and not user:
            self.checker.warn("build_id is a mode of user stacks; this one uses the default mode", node.span)
            mode = StackMode.BPFTRACE
        if len(rest) > 1:
            return self.checker.error(f"{node.name}() takes a mode and then a number of frames", node.span)
        if rest:
            frames = self._frame_limit(node, rest[0])
            if frames is None:
                return UNKNOWN
            limit = frames
        if mode is StackMode.BUILD_ID:
            limit = min(limit, _MAX_FRAMES)
        chunked = mode is not StackMode.BUILD_ID and self.checker.config.max_stack_depth > _MAX_FRAMES
        type_ = Stack(user, limit, mode, chunked)
        return self._visited_stack(node, type_) if self._visits_tasks() else type_

    def _visits_tasks(self) -> bool:
        """Whether the probe is an iterator over tasks, or over what tasks have: the current task is pytrace then."""
        places = [target.place for target in self.checker.unit.targets] if self.checker.unit is not None else []
        iterators = {place.iterator for place in places if isinstance(place, IteratorTarget)}
        structs = [self.checker.kernel.iterators().get(name) for name in iterators]
        return any(struct is not None and struct.find("task") is not None for struct in structs)

    def _visited_stack(self, node: Node, type_: Stack) -> Type:
        """A stack in an iterator over tasks, that of the visited one, where this kernel can read it."""
        if node.name not in ("kstack", "ustack"):
            text = f"{node.name} is not available in iterators: it is a stack of the current task, which is pytrace"
            return self.checker.error(text, node.span, hints=["ustack and kstack are those of ctx.task"])
        if type_.mode is StackMode.BUILD_ID:
            return self.checker.error(
                "build_id is a mode of stacks of the current task, not of one that is visited", node.span
            )
        task = self.checker.kernel.struct("struct", "task_struct")
        lacks = ""
        if task is None or task.find("on_cpu") is None:
            lacks = "type information with task_struct.on_cpu"
        elif not type_.user and not self.checker.kernel.feature("get_task_stack"):
            lacks = "the helper bpf_get_task_stack"
        elif type_.user and not self.checker.kernel.feature("task_memory"):
            lacks = "bpf_copy_from_user_task_str in iterators that may sleep (Linux 6.15)"
        elif type_.user and self.checker.kernel.arch != "x86_64":
            lacks = "a walker of user stacks of other tasks, which pytrace has for x86-64"
        if lacks:
            text = f"{node.name} of the tasks that an iterator visits needs {lacks}, which this kernel does not have"
            return self.checker.error(text, node.span, kernel=True)
        return type_

    def _frame_limit(self, node: Node, arg: nodes.Expr | nodes.TypeExpr) -> int | None:
        type_ = self.checker.value(arg) if isinstance(arg, nodes.Expr) else UNKNOWN
        value = self.checker.constant(arg) if isinstance(arg, nodes.Expr) else None
        if isinstance(value, bool) or not isinstance(value, int):
            if not isinstance(type_, Unknown) or isinstance(arg, nodes.TypeExpr):
                self.checker.error(f"the number of frames of {node.name}() must be an integer literal", node.span)
            return None
        most = max(_MAX_FRAMES, self.checker.config.max_stack_depth)
        if not 1 <= value <= most:
            allowed = most < value <= DEEPEST_STACK
            hints = [f"config = {{ max_stack_depth = {value} }} allows as many"] if allowed else []
            self.checker.error(f"{node.name}() takes 1 to {most} frames, not {value}", node.span, hints=hints)
            return None
        return value


class SymbolChecks(BuiltinChecks):
    """Checks of builtins about addresses, symbols and registers."""

    @handles_names("kaddr")
    def kaddr(self, node: Node, arguments: Arguments) -> Type:
        """``kaddr("symbol")``."""
        name = self.checks.literal_text(arguments[0], "the symbol of kaddr()")
        if name is None:
            return UNKNOWN
        address = self._kernel_address(node, name)
        if address is not None:
            self.checker.set_fact(node, address, "kaddr", name)
        return UINT64

    def _kernel_address(self, node: Node, name: str) -> int | None:
        try:
            address = self.checker.kernel.kernel_symbol(name)
        except TraceError as error:
            self.checker.error(error.message, node.span, hints=error.hints)
            return None
        if address is None:
            hints = () if self.checker.kernel.kernel_symbol(_ANY_VARIABLE) is not None else (_FUNCTIONS_ONLY,)
            self.checker.error(f"the kernel has no symbol {name!r}", node.span, hints=hints, kernel=True)
        return address

    @handles_names("percpu_kaddr")
    def percpu_kaddr(self, node: Node, arguments: Arguments) -> Type:
        """``percpu_kaddr("symbol"[, cpu])``."""
        name = self.checks.literal_text(arguments[0], "the symbol of percpu_kaddr()")
        if len(arguments) > 1:
            self.checks.integer(node, arguments[1], "the CPU number")
        if name is None:
            return UNKNOWN
        address = self._kernel_address(node, name)
        self.checker.program.facts[node] = KernelVariable(name, address or 0)
        return UINT64

    @handles_names("uaddr")
    def uaddr(self, node: Node, arguments: Arguments) -> Type:
        """``uaddr("symbol")``: a pointer to an unsigned integer of the symbol's size."""
        text = self.checks.literal_text(arguments[0], "the symbol of uaddr()")
        place = None if self.checker.unit is None else self.checker.unit.targets[0].place
        if text is None or not isinstance(place, FileTarget):
            return UNKNOWN
        binary = place.path
        function = next((item for item in self.checker.kernel.user_symbols(binary, text) if item.name == text), None)
        address = function.address if function is not None else self.checker.kernel.user_address(binary, text)
        if address is None:
            return self.checker.error(f"{binary} has no symbol {text!r}", node.span)
        if function is None and self.checker.kernel.user_thread_local(binary, text):
            message = f"{text} is a thread-local variable: each thread has its own, at no fixed address"
            hints = ["pass its address to a traced function, or trace where it is read"]
            return self.checker.error(message, node.span, hints=hints)
        self.checker.program.facts[node] = UserSymbol(text, binary, address)
        size = function.size if function is not None else self.checker.kernel.user_size(binary, text)
        return Pointer(Int(size if size in (1, 2, 4, 8) else 8, False), AddressSpace.USER)

    @handles_names("ksym_name")
    def ksym_name(self, node: Node, arguments: Arguments) -> Type:
        """``ksym_name(address)``."""
        self.checks.pointer(node, arguments[0], "the address of ksym_name()")
        if not self.checker.kernel.feature("snprintf"):
            hints = ("Linux 5.13 does; ksym() prints the name of an address",)
            message = "this kernel cannot give names of symbols to programs"
            return self.checker.error(message, node.span, hints=hints, kernel=True)
        return String(_SYMBOL_LENGTH)

    @handles_names("ksym", "usym", "is_err")
    def of_address(self, node: Node, arguments: Arguments) -> Type:
        """``ksym(address)``, ``usym(address)`` and ``is_err(p)``."""
        result, what = _OF_ADDRESS[node.name]
        self.checks.pointer(node, arguments[0], f"the {what} of {node.name}()")
        return result

    @handles_names("kptr", "uptr")
    def marked(self, node: Node, arguments: Arguments) -> Type:
        """``kptr(p)`` and ``uptr(p)``; an integer stays one."""
        type_ = self.checker.value(self.checks.expression(arguments[0]))
        if isinstance(type_, Pointer):
            return Pointer(type_.target, AddressSpace.KERNEL if node.name == "kptr" else AddressSpace.USER)
        if is_integer(type_):
            return settle(type_)
        if isinstance(type_, Unknown):
            return UNKNOWN
        return self.checker.error(f"{node.name}() takes a pointer or an integer, not {settle(type_)}", node.span)

    @handles_names("goid")
    def goid(self, node: Node, _arguments: Arguments) -> Type:
        """``goid``."""
        if self.checker.kernel.arch != "x86_64" or self.checker.unit is None:
            where = "in a function" if self.checker.unit is None else f"on {self.checker.kernel.arch}"
            return self.checker.error(f"goid is not available {where}", node.span)
        offsets = set()
        for target in self.checker.unit.targets:
            place = target.of(FileTarget)
            offset = self.checker.kernel.user_goid(place.path, place.offset)
            if offset is None:
                hints = ["programs of Go 1.17 and later have goroutines whose place is known, others by their DWARF"]
                return self.checker.error(
                    f"goid is not available: {target.probe} is not in code of Go", node.span, hints=hints
                )
            offsets.add(offset)
        if len(offsets) > 1:
            hints = ["write a probe for each binary"]
            return self.checker.error(
                "goid is at different places in the binaries of this probe", node.span, hints=hints
            )
        paths = dict.fromkeys(target.of(FileTarget).path for target in self.checker.unit.targets)
        self.checker.program.facts[node] = GoroutineNumber(offsets.pop(), tuple(paths))
        return UINT64

    @handles_names("reg")
    def reg(self, node: Node, arguments: Arguments) -> Type:
        """``reg("name")``."""
        text = self.checks.literal_text(arguments[0], "the register of reg()")
        if text is None:
            return UNKNOWN
        known = REGISTERS.get(self.checker.kernel.arch, {})
        if text not in known:
            hints = did_you_mean(text, known) or (f"there are {', '.join(known)}",)
            return self.checker.error(f"there is no register {text!r}", node.span, hints=hints)
        self.checker.program.facts[node] = RegisterName(known[text])
        return UINT64


FAMILIES = (ContextChecks, SymbolChecks)
