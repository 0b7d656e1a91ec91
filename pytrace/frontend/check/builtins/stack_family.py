"""Builtins that walk stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytrace.core.types import Stack, StackMode, Type
from pytrace.frontend.ast import nodes
from pytrace.frontend.check.inference.argument_checks import Arguments, Node, unstable
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown

if TYPE_CHECKING:
    from pytrace.frontend.check.inference.checker import Checker

MAX_FRAMES = 127
"""Default of kernel.perf_event_max_stack, the maximum number of frames that the kernel walks."""

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


def _stack(checker: Checker, node: Node, arguments: Arguments, *, user: bool) -> Type:
    mode, limit = _MODES[checker.config.stack_mode], MAX_FRAMES
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
    return Stack(user, limit, mode)


def _limit(checker: Checker, node: Node, arg: nodes.Expr | nodes.TypeExpr) -> int | None:
    type_ = checker.value(arg) if isinstance(arg, nodes.Expr) else UNKNOWN
    value = checker.constant(arg) if isinstance(arg, nodes.Expr) else None
    if isinstance(value, bool) or not isinstance(value, int):
        if not isinstance(type_, Unknown) or isinstance(arg, nodes.TypeExpr):
            checker.error(f"the number of frames of {node.name}() must be an integer literal", node.span)
        return None
    if not 1 <= value <= MAX_FRAMES:
        checker.error(f"{node.name}() takes 1 to {MAX_FRAMES} frames, not {value}", node.span)
        return None
    return value
