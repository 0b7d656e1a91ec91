"""The pattern operand of ``funccount``, ``funclatency``, ``functime`` and ``stackcount``."""

from __future__ import annotations

import msgspec

from pytrace.core.kernel_info import KernelInfo
from pytrace.multitools.multitool import Options
from pytrace.multitools.script_parts import Naming, literal
from pytrace.multitools.specs import trace_targets
from pytrace.multitools.specs.problems import SpecText
from pytrace.multitools.specs.trace_targets import Attachment, TraceTarget


class Pattern(msgspec.Struct, frozen=True):
    """A pattern as attach points.

    *naming* distinguishes its functions in the output, *filter* is for ``--probe-filter``.
    """

    target: TraceTarget
    attachment: Attachment
    naming: Naming
    filter: str = ""

    @property
    def point(self) -> str:
        """The attach point of the requested event."""
        return self.attachment.leave if self.target.returns and self.attachment.leave else self.attachment.entry


def parse(options: Options, kernel: KernelInfo) -> Pattern:
    """The pattern of a command line, with ``-r`` as a regular expression.

    Raises:
        TraceError: the pattern is invalid, or this kernel cannot trace its functions or events.
    """
    regexp = options.flag("regexp")
    target = trace_targets.parse(SpecText.of(options.text("pattern")), regexp=regexp)
    filter_ = ""
    if regexp:
        target, filter_ = trace_targets.by_regexp(target)
    target = trace_targets.resolve(target, kernel, options.only_pid())
    attachment = trace_targets.attach(target, kernel, options.only_pid())
    naming = Naming.of(target, attachment)
    if not target.wild and not target.mangled and target.family != trace_targets.KERNEL:
        naming = Naming(literal(target.name))
    return Pattern(target, attachment, naming, filter_)


def functions(options: Options, kernel: KernelInfo) -> Pattern:
    """As :func:`parse`, for tools that need functions with an entry and a return.

    Raises:
        TraceError: also if the pattern names events.
    """
    pattern = parse(options, kernel)
    if not pattern.attachment.leave:
        what = "tracepoints" if pattern.target.family == trace_targets.TRACEPOINT else "events"
        hints = ("name functions: vfs_read, c:malloc, /path/program:FUNCTION", "funccount counts events")
        raise pattern.target.spec.error(f"functions have a latency, {what} have none", hints=hints)
    if "+" in pattern.target.name and pattern.target.name != "*":
        raise pattern.target.spec.error("a latency is that of whole functions: leave the offset out")
    return pattern
