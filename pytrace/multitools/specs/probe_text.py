"""The first part of a probe specification: the target, and the signature that follows it."""

from __future__ import annotations

import msgspec

from pytrace.core.kernel_info import KernelInfo
from pytrace.core.types import Pointer
from pytrace.multitools.specs import trace_targets
from pytrace.multitools.specs.c_types import Parameter, signature
from pytrace.multitools.specs.problems import SpecText
from pytrace.multitools.specs.scope import Scope
from pytrace.multitools.specs.trace_targets import KERNEL, TRACEPOINT, USDT, USER, Attachment, TraceTarget


class ProbeText(msgspec.Struct, frozen=True):
    """A target with its signature, and the *rest* of the text."""

    target: TraceTarget
    attachment: Attachment
    parameters: tuple[Parameter, ...]
    rest: SpecText

    @property
    def point(self) -> str:
        """The attach point."""
        return self.attachment.leave if self.target.returns else self.attachment.entry

    def scope(self, size: int) -> Scope:
        """Names that are available to expressions at the event; *size* is the length of strings."""
        family, returns = self.target.family, self.target.returns
        typed_return = returns and bool(self.attachment.arguments)
        return Scope(
            arguments=self.attachment.arguments,
            numbered=family != TRACEPOINT and (not returns or typed_return),
            fields=family == TRACEPOINT or (family in (KERNEL, USER) and not returns) or typed_return,
            returns=returns and self.attachment.result,
            parameters=self.parameters,
            size=size,
        )

    def event_name(self) -> str:
        """The script's expression for the name of the event."""
        if self.target.family in (KERNEL, USER):
            return "func"
        if self.target.wild:
            return "probe"
        return trace_targets.in_quotes(self.target.name)

    def array_field(self, expression: str, kernel: KernelInfo) -> bool:
        """Whether an expression is a tracepoint field that contains its text, so that it needs no ``str``."""
        for arrow in ("args->", "args."):
            if self.target.family == TRACEPOINT and expression.startswith(arrow):
                name = expression[len(arrow) :]
                fields = kernel.tracepoint_fields(self.target.container, self.target.name) or ()
                return any(field.name == name and not isinstance(field.type, Pointer) for field in fields)
        return False


def parse(spec: SpecText, kernel: KernelInfo, pid: int | None, *, stop: str) -> ProbeText:
    """Parse a target and its signature at the start of *spec*; the target ends before ``(`` or a character of *stop*.

    Raises:
        TraceError: the target is missing, or the signature has no end.
    """
    end = 0
    text = spec.text
    while end < len(text) and text[end] not in f"({stop}":
        end += 1
    place_text = spec.part(0, end)
    if not place_text.text:
        raise spec.error("a probe is expected, such as p::vfs_read or t:sched:sched_switch", length=1)
    parameters: tuple[Parameter, ...] = ()
    if end < len(text) and text[end] == "(":
        close = text.find(")", end)
        if close < 0:
            raise spec.error("the signature has no end: ) is missing", at=end)
        parameters = signature(spec.part(end + 1, close))
        end = close + 1
    target = trace_targets.resolve(trace_targets.parse(place_text), kernel, pid)
    if parameters and target.family not in (KERNEL, USER, USDT):
        raise place_text.error("tracepoints have no signature: their fields are args->NAME")
    return ProbeText(target, _attachment(target, kernel, pid), parameters, spec.part(end, len(text)))


def _attachment(target: TraceTarget, kernel: KernelInfo, pid: int | None) -> Attachment:
    attachment = trace_targets.attach(target, kernel, pid)
    if target.returns and not attachment.leave:
        raise target.spec.error("events have no return")
    return attachment
