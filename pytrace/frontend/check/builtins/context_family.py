"""Builtins that read the probe's context: arguments, result, registers, names of the probe, stacks."""

from __future__ import annotations

from pytrace.core.diagnostics import counted
from pytrace.core.probes.kinds import BEGIN, END, PYTHON_KINDS, SELF, Context
from pytrace.core.probes.targets import IteratorTarget
from pytrace.core.stacks.chunk_format import DEEPEST
from pytrace.core.types import (
    UINT8,
    UINT64,
    VOID,
    AddressSpace,
    Float,
    KSym,
    Pointer,
    Stack,
    StackMode,
    String,
    Type,
    USym,
)
from pytrace.frontend.check.inference.argument_checks import report_lost, require_args, unstable
from pytrace.frontend.check.inference.checker import Arguments, Checker, Node
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.typed_program import ArgumentIndex

PYTHON_NAME = 256
"""Most bytes of the qualified name of a Python function."""


def args(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``args`` as a whole."""
    if not isinstance(node, nodes.Identifier) or not require_args(checker, node) or checker.unit is None:
        return UNKNOWN
    type_ = checker.unit.context.args_type
    return type_ if type_ is not None else checker.error("args cannot be used as a whole here", node.span)


def arg_n(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``arg0`` …"""
    number = int(node.name.removeprefix("arg"))
    context = checker.unit.context if checker.unit is not None else None
    count = len(context.positional) or context.slots if context is not None else 0
    if count and number >= count:
        message = f"the probe has {counted(count, 'argument')}, so there is no {node.name}"
        return checker.error(message, node.span, kernel=bool(context and context.positional))
    checker.program.facts[node] = ArgumentIndex(number)
    place = context.positional[number] if context is not None and context.positional else None
    return Float(place.size) if place is not None and place.fraction else UINT64


def ctx(checker: Checker, _node: Node, _arguments: Arguments) -> Type:
    """``ctx``."""
    type_ = checker.unit.context.ctx_type if checker.unit is not None else None
    return type_ if type_ is not None else Pointer(VOID, AddressSpace.BPF)


def func(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``func``."""
    kind = None if checker.unit is None else checker.unit.kind
    if kind is not None and kind.name in PYTHON_KINDS:
        return String(min(checker.config.max_strlen, PYTHON_NAME))
    if kind is not None and kind.user:
        return USym()
    at_entry = kind is not None and kind.context is Context.REGISTERS and not kind.returns
    if not at_entry and not checker.kernel.feature("get_func_ip"):
        hints = ["Linux 5.15 can (bpf_get_func_ip); kprobe has it here, and probe names a probe everywhere"]
        name = "a function" if kind is None else kind.name
        checker.error(f"this kernel cannot tell {name} which function is traced", node.span, hints=hints, kernel=True)
    return KSym()


def probe(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``probe``."""
    if checker.unit is None:
        return checker.error("a function does not know which probe called it", node.span)
    names = [target.probe.encode("utf-8", "surrogateescape") for target in checker.unit.targets]
    if len(names) == 1:
        checker.set_constant(node, names[0])
    return String(max((len(name) for name in names), default=0) + 1)


def probetype(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``probetype``."""
    if checker.unit is None:
        return checker.error("a function does not know which probe called it", node.span)
    kind = checker.unit.kind
    name = b"special" if kind.name in (BEGIN, END, SELF) else kind.name.encode()
    checker.set_constant(node, name)
    return String(len(name) + 1)


def retval(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``retval``."""
    if report_lost(checker, node):
        return UNKNOWN
    result = checker.unit.context.result if checker.unit is not None else None
    return result.type if result is not None else UINT64


def usermode(checker: Checker, node: Node, _arguments: Arguments) -> Type:
    """``usermode``."""
    if checker.kernel.arch != "x86_64":
        return checker.error(f"usermode is not available on {checker.kernel.arch}", node.span)
    return UINT8


# ---------------------------------------------------------------------------------------------- stacks

MAX_FRAMES = Stack(True).limit
"""Default of kernel.perf_event_max_stack, the maximum number of frames that the kernel walks, and of a key."""

_MODES = {mode.value: mode for mode in StackMode}


def kstack(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``kstack``."""
    return _stack(checker, node, arguments, user=False)


def ustack(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``ustack``."""
    return _stack(checker, node, arguments, user=True)


def dw_ustack(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``dw_ustack``."""
    if not unstable(checker, "dw_ustack", node):
        return UNKNOWN
    if checker.kernel.arch != "x86_64":
        return checker.error(f"dw_ustack is not available on {checker.kernel.arch}", node.span)
    type_ = _stack(checker, node, arguments, user=True)
    if isinstance(type_, Stack) and type_.mode is StackMode.BUILD_ID:
        return checker.error(
            "dw_ustack has no build_id mode", node.span, hints=["modes: bpftrace, perf, raw; ustack has build_id"]
        )
    return type_


def pystack(checker: Checker, node: Node, arguments: Arguments) -> Type:
    """``pystack``."""
    if checker.kernel.arch != "x86_64":
        return checker.error(f"pystack is not available on {checker.kernel.arch}", node.span)
    type_ = _stack(checker, node, arguments, user=True)
    if isinstance(type_, Stack) and type_.mode in (StackMode.RAW, StackMode.BUILD_ID):
        hints = ["modes: bpftrace, perf, folded, annotated, inverted; ustack has addresses"]
        return checker.error(f"pystack has no {type_.mode.value} mode", node.span, hints=hints)
    return type_


def _stack(checker: Checker, node: Node, arguments: Arguments, *, user: bool) -> Type:
    mode, limit = _MODES[checker.config.stack_mode], checker.config.max_stack_depth
    if limit > MAX_FRAMES and not checker.kernel.feature("bpf_loop"):
        return checker.error(f"max_stack_depth over {MAX_FRAMES} needs a kernel with bpf_loop (Linux 5.17)", node.span)
    rest = list(arguments)
    if rest and isinstance(rest[0], nodes.Identifier):
        named = _MODES.get(rest[0].name)
        if named is None:
            return checker.error(f"{rest[0].name!r} is not a stack mode: {', '.join(_MODES)}", node.span)
        mode = named
        rest.pop(0)
        if mode is StackMode.BUILD_ID and not user:
            return checker.error("build_id is a mode of user stacks only", node.span)
    elif mode is StackMode.BUILD_ID and not user:
        checker.warn("build_id is a mode of user stacks; this one uses the default mode", node.span)
        mode = StackMode.BPFTRACE
    if len(rest) > 1:
        return checker.error(f"{node.name}() takes a mode and then a number of frames", node.span)
    if rest:
        frames = _limit(checker, node, rest[0])
        if frames is None:
            return UNKNOWN
        limit = frames
    if mode is StackMode.BUILD_ID:
        limit = min(limit, MAX_FRAMES)
    chunked = mode is not StackMode.BUILD_ID and checker.config.max_stack_depth > MAX_FRAMES
    type_ = Stack(user, limit, mode, chunked)
    return _of_visited(checker, node, type_) if _visits_tasks(checker) else type_


def _visits_tasks(checker: Checker) -> bool:
    """Whether the probe is an iterator over tasks, or over what tasks have: the current task is pytrace then."""
    places = [target.place for target in checker.unit.targets] if checker.unit is not None else []
    iterators = {place.iterator for place in places if isinstance(place, IteratorTarget)}
    structs = [checker.kernel.iterators().get(name) for name in iterators]
    return any(struct is not None and struct.find("task") is not None for struct in structs)


def _of_visited(checker: Checker, node: Node, type_: Stack) -> Type:
    """A stack in an iterator over tasks, that of the visited one, where this kernel can read it."""
    if node.name not in ("kstack", "ustack"):
        text = f"{node.name} is not available in iterators: it is a stack of the current task, which is pytrace"
        return checker.error(text, node.span, hints=["ustack and kstack are those of ctx.task"])
    if type_.mode is StackMode.BUILD_ID:
        return checker.error("build_id is a mode of stacks of the current task, not of one that is visited", node.span)
    task = checker.kernel.struct("struct", "task_struct")
    lacks = ""
    if task is None or task.find("on_cpu") is None:
        lacks = "type information with task_struct.on_cpu"
    elif not type_.user and not checker.kernel.feature("get_task_stack"):
        lacks = "the helper bpf_get_task_stack"
    elif type_.user and not checker.kernel.feature("task_memory"):
        lacks = "bpf_copy_from_user_task_str in iterators that may sleep (Linux 6.15)"
    elif type_.user and checker.kernel.arch != "x86_64":
        lacks = "a walker of user stacks of other tasks, which pytrace has for x86-64"
    if lacks:
        text = f"{node.name} of the tasks that an iterator visits needs {lacks}, which this kernel does not have"
        return checker.error(text, node.span, kernel=True)
    return type_


def _limit(checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr) -> int | None:
    type_ = checker.value(arg) if isinstance(arg, nodes.Expr) else UNKNOWN
    value = checker.constant(arg) if isinstance(arg, nodes.Expr) else None
    if isinstance(value, bool) or not isinstance(value, int):
        if not isinstance(type_, Unknown) or isinstance(arg, nodes.TypeExpr):
            checker.error(f"the number of frames of {node.name}() must be an integer literal", node.span)
        return None
    most = max(MAX_FRAMES, checker.config.max_stack_depth)
    if not 1 <= value <= most:
        hints = [f"config = {{ max_stack_depth = {value} }} allows as many"] if most < value <= DEEPEST else []
        checker.error(f"{node.name}() takes 1 to {most} frames, not {value}", node.span, hints=hints)
        return None
    return value
