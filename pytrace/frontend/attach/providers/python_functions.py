"""python and pythonret: functions of Python programs."""

from __future__ import annotations

import re

from pytrace.core.probes.targets import PythonTarget
from pytrace.core.types import AddressSpace, Pointer, Struct
from pytrace.frontend.attach.points import contexts
from pytrace.frontend.attach.points.body_uses import Uses
from pytrace.frontend.attach.points.parts import Point
from pytrace.frontend.attach.providers.base import BinaryProvider, Match, Scope
from pytrace.frontend.syntax.typed_program import ProbeArgument, ProbeContext, PythonValue

OBJECT = Pointer(Struct("struct", "PyObject", 0, (), origin="python"), AddressSpace.USER)
"""The type of arguments and results, which ``pystr()`` and ``pyint()`` read."""
LONGEST = 256
"""Most characters of a pattern."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class PythonFunction(BinaryProvider):
    """``python:FILE_OR_MODULE:FUNCTION``; both may be patterns."""

    shape = "{0}:FILE:FUNCTION or {0}:MODULE:FUNCTION"
    counts = range(2, 3)
    single = True  # which function it is, the program decides: targets have nothing that they could share

    def expand(self, point: Point, scope: Scope) -> list[Match]:
        parts = point.parts
        if not self.fit(point) or not all(part.text for part in parts) or any(part.before == "@" for part in parts):
            return self.bad_shape(point, scope)
        if scope.attaching and not self._selected(point, scope):
            return []
        for part in parts:
            if len(part.text) > LONGEST:
                return scope.error(f"the pattern has more than {LONGEST} characters", part.span)
        place = PythonTarget(files(parts[0].text), parts[1].text)
        return [Match(point.kind, point.name, place, point.span, wild=any(part.wild for part in parts))]

    def _selected(self, point: Point, scope: Scope) -> bool:
        """Whether it is known which processes are probed, and the machine can."""
        options = scope.options
        if scope.kernel.arch != "x86_64":
            scope.error(f"{point.kind.name} probes are for x86-64, not {scope.kernel.arch}", point.span)
        elif not scope.feature("bpf_loop"):
            scope.error(f"{point.kind.name} probes need a kernel with bpf_loop (Linux 5.17)", point.span)
        elif options.ahead or not (options.filters.pids or options.child):
            hints = ["-p PID probes a process, -c COMMAND one that is started; other programs are not slowed down"]
            scope.error(f"{point.kind.name} probes need a process", point.span, hints)
        else:
            return True
        return False

    def context(self, match: Match, uses: Uses, scope: Scope) -> ProbeContext:
        """Any name may be that of an argument: the functions are not known yet."""
        arguments = tuple(
            ProbeArgument(name, OBJECT, PythonValue(index)) for index, name in enumerate(sorted(uses.fields))
        )
        result = ProbeArgument("retval", OBJECT, PythonValue(len(arguments))) if match.kind.returns else None
        ctx = contexts.registers(scope.kernel) if "ctx" in uses else None
        missing = ("args.NAME is the argument of that name",)
        return ProbeContext(arguments, result=result, ctx_type=ctx, missing=missing)


def files(text: str) -> tuple[str, ...]:
    """The patterns of file names that a file or module stands for.

    A file with a folder is one; without, it is in any folder. A module may be a file, a package, or in the interpreter.
    """
    if "/" in text or text == "*" or text.startswith("<"):
        return (text,)
    if text.endswith(".py") or not _MODULE.fullmatch(text.replace("*", "x")):
        return text, f"*/{text}"
    path = text.replace(".", "/")
    return f"{path}.py", f"*/{path}.py", f"{path}/__init__.py", f"*/{path}/__init__.py", f"<frozen {text}>"
