"""The pass that turns each ``call:`` probe into one program for the entry and one for the return of a call.

Both are ordinary probes. They share a hidden map, from the call to what the script needs of its entry: the time, and
the arguments that its body or predicate reads. What identifies a call (``nodes.CallPart``)
is a place that is the same at entry and return and that no other call has meanwhile: of a user function the stack
pointer and the function in its process (of Go the distance from the top of the goroutine's stack, which may move), of a
kernel function the trampoline's frame, of a Python function its frame, of a system call the thread. So recursion,
coroutines, signal handlers on another stack and calls that were left by ``longjmp`` or an exception cannot be confused,
and no depth has to be counted.

A body that needs nothing of the entry has no entry program.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from pytrace.core.builtins import argument_number, builtin, is_argument
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import CompileOptions
from pytrace.core.probe_kinds import (
    CALL,
    CALL_FAMILIES,
    CALL_FRAMES,
    CALL_LEVELS,
    END,
    FENTRY,
    FEXIT,
    KPROBE,
    KRETPROBE,
    PROGRAM_CALL,
    PYTHON,
    PYTHONRET,
    SYSCALL,
    TRACEPOINT,
    UPROBE,
    URETPROBE,
    USDT,
    is_call,
)
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import CALL_ENTRY, CALL_RETURN, HYGIENE

KERNEL = "kernel"

_SAME_STACK = 8 << 20
"""Frames that are further apart are on different stacks: those of signal handlers, of coroutines."""
_MOST_LEFT = 4096
"""Calls that are left at a time, whose levels are found; the rest is found by the next ones."""
_LONGEST_NAME = 160
"""Characters of an attach point in the name of its map; some take three characters in BTF."""

_RECORD = f"call{HYGIENE}record"
_DEPTH = f"call{HYGIENE}depth"
_VALUE = f"call{HYGIENE}value"
_STEP = f"call{HYGIENE}step"
_WORDS = ("duration", "depth", "entry_ustack", "entry_kstack", "unfinished")
_OF_RETURN = frozenset({"ustack", "kstack", "dw_ustack", "pystack", "ctx", "reg", "usermode"})
"""Builtins that an unfinished call does not have."""
_OF_CALL = frozenset({"pid", "tid", "comm", "uid", "gid", "cgroup", "username", "probe", "func"})
"""Builtins that are kept of a call for the end of the run, which the tracer's own process is at."""
_COLUMNS = ("start", "took_ns", "pid", "tid", "comm", "name")
"""Columns of ``span()``; the formats of spans know their meaning (``results.formats.perfetto``)."""
_SPAN = "span((path = str(args.filename)))"
_BEGAN, _THREAD, _FIRST = 0, 1, 2
"""Members of a record: when the call began, its thread, and the first value that the script needs."""
_WILD = re.compile(r"[*?\[]")
_PAIR = "{0} needs two probes with a comma between them: {1}"


class Target(msgspec.Struct, frozen=True):
    """An attach point after ``call:``, as those of entry and return.

    *parts* identify a call. *pair*: two static probes, without a result. *result*: what ``retval`` is. *whole*: the
    return has the arguments, too. *numbered*: names of the arguments that scripts may number, but the probes do not.
    """

    family: str
    entries: tuple[str, ...]
    returns: tuple[str, ...]
    parts: tuple[str, ...] = ()
    pair: bool = False
    result: str = "retval"
    whole: bool = False
    numbered: tuple[str, ...] = ()


def expand(
    program: nodes.Program, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics
) -> nodes.Program:
    """*program* with two probes in place of each ``call:`` probe.

    Args:
        program: the AST with macros expanded.
        options: options of the compilation.
        kernel: facts about the machine, which decide how functions of the kernel are traced.
        diagnostics: receives errors.
    """
    calls = {probe for probe in program.probes if any(is_call(point.text) for point in probe.attach_points)}
    if not calls:
        return program
    expansion = _Expansion(options, kernel, diagnostics)
    items: list[nodes.RootItem] = []
    for item in program.items:
        if isinstance(item, nodes.Probe) and item in calls:
            items.extend(expansion.probes(item))
        else:
            items.append(item)
    return replace(program, items=tuple(items))


def pairs(
    text: str, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics
) -> tuple[tuple[str, str], ...]:
    """The attach points of entries and returns that a ``call:`` attach point stands for, for ``probe_exist()``.

    Args:
        text: the attach point as in a script.
        options: options of the compilation.
        kernel: facts about the machine.
        diagnostics: receives mistakes in *text*.
    """
    head, _, rest = text.partition(":")
    lists = head.lower() == SYSCALL or rest.startswith((f"{SYSCALL}:", f"{USDT}:", f"{TRACEPOINT}:"))
    source = Source("probe_exist()", text)
    span = Span(source, 0, len(text))
    points = [nodes.AttachPoint(span, name) for name in (text.split(",") if lists else [text])]
    target = _Expansion(options, kernel, diagnostics).target(points)
    return () if target is None else tuple(zip(target.entries, target.returns, strict=True))


class _Expansion:
    def __init__(self, options: CompileOptions, kernel: KernelInfo, diagnostics: Diagnostics) -> None:
        self._options = options
        self._kernel = kernel
        self._diagnostics = diagnostics
        self._names: set[str] = set()

    def probes(self, probe: nodes.Probe) -> Iterator[nodes.Probe]:
        """The probes in place of *probe*: its ordinary attach points, and two for each call."""
        ordinary: list[nodes.AttachPoint] = []
        calls: list[list[nodes.AttachPoint]] = []
        after_call = False
        shared = not any(map(_is_of_one, nodes.walk(probe)))
        for point in probe.attach_points:
            if is_call(point.text):
                if shared and calls and _joins(calls[-1][0], point):
                    calls[-1].append(point)
                else:
                    calls.append([point])
                after_call = True
            elif after_call and ":" not in point.text:
                calls[-1].append(point)
            else:
                ordinary.append(point)
                after_call = False
        if ordinary:
            yield replace(probe, attach_points=tuple(ordinary))
        for number, points in enumerate(calls):
            target = self.target(points)
            if target is not None:
                own = probe if not number and not ordinary else nodes.copy(probe)
                yield from self._pair(own, points, target)

    def _error(self, message: str, span: Span, *hints: str) -> None:
        self._diagnostics.error(message, span, hints=hints)

    # ------------------------------------------------------------------------------------------ attach points

    def target(self, points: list[nodes.AttachPoint]) -> Target | None:
        """The attach points of a call's entry and return; None after an error."""
        first = points[0]
        head, _, rest = first.text.partition(":")
        family = SYSCALL
        if head.lower() == CALL:
            word, _, after = rest.partition(":")
            if word in CALL_FAMILIES:
                family, rest = word, after
            else:
                family = UPROBE
        names = [rest, *(point.text for point in points[1:])]
        if not rest or not all(names):
            self._error(f"{head}: needs a target", first.span, f"write {_EXAMPLES[family]}")
            return None
        if family == UPROBE and all(is_call(name) for name in names[1:]):
            return self._user_functions([rest, *(name.partition(":")[2] for name in names[1:])])
        if family not in (SYSCALL, USDT, TRACEPOINT) and len(names) > 1:
            self._error(
                f"{names[1]!r} is no attach point", points[1].span,
                f"each function has its own: {first.text}, {first.text.rpartition(':')[0]}:{names[1]}",
            )  # fmt: skip
            return None
        return self._FAMILIES[family](self, first, names)

    def _system_call(self, first: nodes.AttachPoint, names: list[str]) -> Target | None:
        for name in names:
            if ":" in name:
                self._error(
                    f"{name!r} is no system call", first.span, "write syscall:openat, or syscall:open*, or syscall:*"
                )
                return None
        entries = tuple(f"tracepoint:syscalls:sys_enter_{name}" for name in names)
        returns = tuple(f"tracepoint:syscalls:sys_exit_{name}" for name in names)
        return Target(SYSCALL, entries, returns, ("thread",), result="ret")

    def _kernel_function(self, first: nodes.AttachPoint, names: list[str]) -> Target | None:
        """A single function is traced by fentry, which costs least; several, also of one name, by kprobes, which attach
        at once.
        """
        del first
        name = names[0]
        module, _, function = name.rpartition(":")
        typed = self._kernel.feature("fentry") and "fentry" not in self._options.no_features
        if typed and self._kernel.feature("kprobe") and not _WILD.search(name):
            typed = all(item.number == 1 for item in self._kernel.kernel_functions(function, module))
        prototype = self._kernel.function(function, module) if typed and not _WILD.search(name) else None
        if not self._kernel.feature("kprobe") or (prototype is not None and not prototype.variadic):
            numbered = () if prototype is None else tuple(parameter for parameter, _ in prototype.parameters)
            return Target(
                KERNEL, (f"{FENTRY}:{name}",), (f"{FEXIT}:{name}",), ("frame",), whole=True, numbered=numbered
            )
        return Target(KERNEL, (f"{KPROBE}:{name}",), (f"{KRETPROBE}:{name}",), ("frame", "function"))

    def _user_function(self, first: nodes.AttachPoint, names: list[str]) -> Target | None:
        del first
        return self._user_functions(names[:1])

    @staticmethod
    def _user_functions(names: list[str]) -> Target:
        texts = []
        for item in names:
            binary, _, function = item.partition(":")
            if "::" in function and not function.startswith(('"', 'cpp:"')):
                name = function.removeprefix("cpp:")
                function = f'cpp:"{name}"'
            texts.append(f"{binary}:{function}" if function else binary)
        entries, returns = (tuple(f"{kind}:{text}" for text in texts) for kind in (UPROBE, URETPROBE))
        return Target(UPROBE, entries, returns, PROGRAM_CALL)

    def _python_function(self, first: nodes.AttachPoint, names: list[str]) -> Target | None:
        text = names[0]
        if ":" not in text:
            module, _, function = text.rpartition(".")
            if not module or not function:
                self._error(f"{text!r} names no function of a module", first.span, f"write {_EXAMPLES[PYTHON]}")
                return None
            text = f"{module}:{function}"
        return Target(PYTHON, (f"{PYTHON}:{text}",), (f"{PYTHONRET}:{text}",), ("owner", "frame"))

    def _static_pair(self, first: nodes.AttachPoint, names: list[str]) -> Target | None:
        return self._two(USDT, first, names)

    def _tracepoint_pair(self, first: nodes.AttachPoint, names: list[str]) -> Target | None:
        return self._two(TRACEPOINT, first, names)

    def _two(self, kind: str, first: nodes.AttachPoint, names: list[str]) -> Target | None:
        if len(names) != 2:
            self._error(_PAIR.format(f"call:{kind}", _EXAMPLES[kind]), first.span)
            return None
        place, colon, _ = names[0].rpartition(":")
        return Target(
            kind, (f"{kind}:{names[0]}",), (f"{kind}:{place}{colon}{names[1]}",), ("thread",), pair=True, result=""
        )

    _FAMILIES: ClassVar[dict[str, Callable[[_Expansion, nodes.AttachPoint, list[str]], Target | None]]] = {
        SYSCALL: _system_call,
        KERNEL: _kernel_function,
        UPROBE: _user_function,
        PYTHON: _python_function,
        USDT: _static_pair,
        TRACEPOINT: _tracepoint_pair,
    }

    # ------------------------------------------------------------------------------------------ the two programs

    def _pair(
        self, probe: nodes.Probe, points: list[nodes.AttachPoint], target: Target
    ) -> Iterator[nodes.Probe]:
        if target.numbered:
            probe = _named_arguments(probe, target.numbered)
        if target.whole and any(map(_asks, nodes.walk(probe))):
            target = replace(target, whole=False)
        words = _Words(target, self._diagnostics, named=probe.span if self._options.live else None)
        same, conditions = self._conditions(probe, target)
        early = [part for part in conditions if words.decided_at_entry(part)]
        late = [part for part in conditions if part not in early]
        body = words.body_at_return(probe.body)
        decided = [words.condition_at_return(part) for part in late]
        ending: tuple[nodes.Block, nodes.Expr | None] | None = None
        if words.asks:
            words.at_end = True
            ending = words.body_at_return(probe.body), _joined([words.condition_at_return(part) for part in late])
        text = points[0].text
        if len(points) > 1 and is_call(points[1].text):
            text += f" and {len(points) - 1} more"
        elif len(points) > 1:
            text = ",".join(point.text for point in points)
        span = points[0].span

        def attached(texts: Iterable[str]) -> tuple[nodes.AttachPoint, ...]:
            items = list(texts)
            of = points if len(points) == len(items) else points[:1] * len(items)
            return tuple(
                nodes.AttachPoint(point.span, item, point.name, point.options)
                for point, item in zip(of, items, strict=True)
            )

        if not words.needs_entry and not same and not early:
            whole = _joined(decided)
            yield replace(probe, attach_points=attached(target.returns), predicate=whole, body=body, role=CALL_RETURN)
            return
        if target.whole and not words.kept_value and not same:
            # The return has the arguments: no record is needed.
            whole = _joined([words.without_entry(part) for part in early] + decided)
            yield replace(probe, attach_points=attached(target.returns), predicate=whole, body=body, role=CALL_RETURN)
            return
        key = words.key(same, span)
        table = self._table(text, span)
        entry = words.entry_body(table, key, span)
        condition = _joined([words.without_entry(part) for part in early])
        if condition is not None and target.family in (UPROBE, PYTHON):
            # A call that was left at this place has a record, which the return of this one would find.
            forget = nodes.Discard(span, nodes.Call(span, "delete", (_element(table, words.key(same, span)),)))
            choice = nodes.If(condition.span, condition, entry, nodes.Block(span, (forget,)))
            entry, condition = nodes.Block(span, (nodes.ExprStmt(span, choice),)), None
        yield nodes.Probe(
            probe.span, attached(target.entries), condition, entry, probe.head, off=probe.off, role=CALL_ENTRY
        )  # fmt: skip
        leaving = words.return_body(table, key, body, _joined(decided), span, conditional=bool(early))
        yield replace(probe, attach_points=attached(target.returns), predicate=None, body=leaving, role=CALL_RETURN)
        own = target.parts == ("thread",) and not same
        executes = own and any(map(_may_execute, target.entries))
        yield from self._probe(probe, _END_OF_THREAD, words.end_of_thread(table, span, own=own and ending is None))
        yield from self._probe(probe, _EXECUTION, words.execution(table, span, own=executes))
        if ending is not None:
            last, condition = ending
            last = words.end_body(table, nodes.copy(last), None if condition is None else nodes.copy(condition), span)
            yield nodes.Probe(probe.span, (nodes.AttachPoint(span, END),), None, last, probe.head, off=probe.off)

    def _probe(
        self, probe: nodes.Probe, event: tuple[str, str], statements: list[nodes.Stmt]
    ) -> Iterator[nodes.Probe]:
        """A probe of a tracepoint, if there is something to do at it, and this kernel has it."""
        if statements and self._kernel.tracepoint_fields(*event) is not None:
            span = statements[0].span
            point = nodes.AttachPoint(span, f"{TRACEPOINT}:{':'.join(event)}")
            code = nodes.Block(span, tuple(statements))
            yield nodes.Probe(probe.span, (point,), None, code, probe.head, off=probe.off)

    def _table(self, text: str, span: Span) -> nodes.MapRef:
        """The hidden map of a probe. The kernel refuses names in BTF of 512 characters (``KSYM_NAME_LEN``)."""
        text = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
        name, number = f"@{text}" if ":" in text else f"@call:{text}", 1
        while name in self._names:
            number += 1
            name = f"@{text}#{number}"
        self._names.add(name)
        return nodes.MapRef(span, name)

    def _conditions(self, probe: nodes.Probe, target: Target) -> tuple[tuple[nodes.Expr, ...], list[nodes.Expr]]:
        """The expressions of ``same()``, and the other parts of a predicate that all have to hold."""
        same: tuple[nodes.Expr, ...] = ()
        rest: list[nodes.Expr] = []
        for part in nodes.conjuncts(probe.predicate):
            if isinstance(part, nodes.Call) and part.name == "same":
                arguments = tuple(item for item in part.args if isinstance(item, nodes.Expr))
                if not target.pair:
                    self._error(
                        "same() is for pairs of probes: this one knows which return belongs to which entry", part.span
                    )
                elif same or not arguments:
                    self._error("same() is used once, with the expressions that both probes share", part.span)
                else:
                    same = arguments
            else:
                rest.append(part)
        return same, rest


_EXAMPLES = {
    SYSCALL: "syscall:openat",
    KERNEL: "call:kernel:vfs_read",
    UPROBE: "call:libc:getaddrinfo",
    PYTHON: "call:python:app.handlers:*",
    USDT: "call:usdt:./server:request__start,request__end",
    TRACEPOINT: "call:tracepoint:block:block_rq_issue,block_rq_complete",
}


def _named_arguments(probe: nodes.Probe, names: tuple[str, ...]) -> nodes.Probe:
    """``arg0`` as ``(uint64)args.NAME``, for fentry and fexit."""

    def inner(node: nodes.Node) -> nodes.Node:
        number = argument_number(node.name) if isinstance(node, nodes.Identifier) else None
        if number is None or number >= len(names):
            return node
        span = node.span
        value = nodes.FieldAccess(span, nodes.Identifier(span, "args"), names[number])
        return nodes.Cast(span, nodes.NamedType(span, "uint64"), value)

    result = nodes.rebuild(probe, inner)
    assert isinstance(result, nodes.Probe)
    return result


def _joined(conditions: list[nodes.Expr]) -> nodes.Expr | None:
    whole: nodes.Expr | None = None
    for part in conditions:
        whole = part if whole is None else nodes.Binary(whole.span.to(part.span), "&&", whole, part)
    return whole


_END_OF_THREAD, _EXECUTION = ("sched", "sched_process_exit"), ("sched", "sched_process_exec")

_OF_TASK = frozenset({"pid", "tid", "comm", "uid", "gid", "cgroup", "cpid", "curtask"})
"""Builtins that are the same at entry and return."""
_SIMPLE = (
    nodes.IntLiteral, nodes.BoolLiteral, nodes.StringLiteral, nodes.Binary, nodes.Unary, nodes.Ternary, nodes.Cast,
    nodes.FieldAccess, nodes.Index, nodes.TypeExpr, nodes.Sizeof, nodes.Offsetof, nodes.Variable, nodes.Let,
    nodes.Assign, nodes.If, nodes.Block, nodes.BlockExpr, nodes.ExprStmt, nodes.TupleLiteral, nodes.TupleAccess,
)  # fmt: skip
_PURE = frozenset({"one_of", "strcontains", "strncmp", "strlen", "syscall_name"})
"""Calls that depend on their arguments only."""


class _Words:
    """The words of one ``call:`` probe: what they are at the return, and what has to be kept for them at the entry.

    *named*: the place in the script of a call whose name is kept, too, for the live view.
    """

    def __init__(self, target: Target, diagnostics: Diagnostics, *, named: Span | None = None) -> None:
        self._target = target
        self._diagnostics = diagnostics
        self._kept: list[nodes.Expr] = []
        self._timed = False
        self._deep = False
        self.asks = False
        """Whether the script asks for calls that are unfinished at the end of the run."""
        self.at_end = False
        """Set while the body for these is rewritten."""
        if named is not None:
            # The first of the values: see `Manifest.calls_named`.
            self._keep(nodes.Identifier(named, "func" if target.family == PYTHON else "probe"))

    @property
    def needs_entry(self) -> bool:
        """Whether the return needs a record of the entry."""
        return bool(self._kept or self._timed or self._deep or self.asks)

    kept_value = needs_entry

    def decided_at_entry(self, part: nodes.Expr) -> bool:
        """Whether a condition is about arguments and the thread only, so that the entry decides it."""
        waiting: list[nodes.Node] = [part]
        while waiting:
            node = waiting.pop()
            if _is_entry(node):
                continue
            if isinstance(node, nodes.Identifier):
                if node.name not in _OF_TASK and not is_argument(node.name) and (
                    node.name in _WORDS or builtin(node.name) is not None
                ):
                    return False
            elif isinstance(node, nodes.Call):
                if node.name not in _PURE:
                    return False
            elif not isinstance(node, _SIMPLE) or (isinstance(node, nodes.Unary) and node.operator in ("++", "--")):
                return False
            waiting += nodes.children(node)
        return True

    @staticmethod
    def without_entry(node: nodes.Expr) -> nodes.Expr:
        """*node* as the entry evaluates it: ``entry(e)`` is e."""

        def inner(item: nodes.Node) -> nodes.Node:
            return item.args[0] if isinstance(item, nodes.Call) and _is_entry(item) else item

        result = nodes.rebuild(node, inner)
        assert isinstance(result, nodes.Expr)
        return result

    def condition_at_return(self, part: nodes.Expr) -> nodes.Expr:
        """A part of the predicate as the return evaluates it."""
        result = self._rewritten(part)
        assert isinstance(result, nodes.Expr)
        return result

    def body_at_return(self, body: nodes.Block) -> nodes.Block:
        """The body as the return runs it."""
        result = self._rewritten(body)
        assert isinstance(result, nodes.Block)
        return result

    def _rewritten(self, node: nodes.Node) -> nodes.Node:
        """Top down, as what ``entry()`` contains stays as it is."""
        replacement = self._replacement(node)
        if replacement is not None:
            return replacement
        below = nodes.children(node)
        changed = {id(item): self._rewritten(item) for item in below}
        if all(changed[id(item)] is item for item in below):
            return node
        return nodes.with_children(node, [changed[id(item)] for item in below])

    def _replacement(self, node: nodes.Node) -> nodes.Node | None:
        """What stands at the return in place of *node* and all below it; None where it stays."""
        if isinstance(node, nodes.FieldAccess) and _is_args(node.base):
            return None if self._target.whole else self._keep(node)
        if isinstance(node, nodes.FieldAccess) and self._target.pair and _is_result(node.base):
            return self._second(node)
        if _is_entry(node):
            assert isinstance(node, nodes.Call)
            inner = node.args[0]
            assert isinstance(inner, nodes.Expr)
            return self._keep(inner)
        if not isinstance(node, nodes.Identifier | nodes.Call):
            return None
        if node.name in ("entry_ustack", "entry_kstack"):
            stack = node.name.removeprefix("entry_")
            arguments = node.args if isinstance(node, nodes.Call) else ()
            whole = nodes.Call(node.span, stack, arguments) if arguments else nodes.Identifier(node.span, stack)
            return self._keep(whole)
        if self.at_end and node.name in _OF_RETURN:
            hints = ["entry_ustack and entry_kstack are stacks of the entry"]
            self._diagnostics.error(f"{node.name} is not known of a call that is unfinished", node.span, hints=hints)
            return None
        if self.at_end and node.name in _OF_CALL:
            return self._keep(node)
        if isinstance(node, nodes.Identifier):
            return self._value(node)
        if node.name == "span":
            return self._span(node)
        if node.name == "entry":
            self._diagnostics.error("entry() takes one expression", node.span)
        return None

    def _span(self, node: nodes.Call) -> nodes.Expr | None:
        """``span()``: the call as a row that formats show as a span of its thread; a record adds columns."""
        extra = node.args[0] if node.args else nodes.RecordLiteral(node.span, (), ())
        if len(node.args) > 1 or not isinstance(extra, nodes.RecordLiteral):
            self._diagnostics.error("span() takes nothing, or a record of columns", node.span, hints=[_SPAN])
            return None
        taken = [name for name in extra.names if name in _COLUMNS]
        if taken:
            self._diagnostics.error(f"span() has a column {taken[0]} already", extra.span, hints=[_SPAN])
            return None
        span = node.span
        self._timed = True
        name = "func" if self._target.family in (UPROBE, KERNEL, PYTHON) else "probe"
        values = [nodes.Identifier(span, word) for word in ("duration", "pid", "tid", "comm", name)]
        members = [self._member(span, _BEGAN), *map(self._rewritten, [*values, *extra.members])]
        whole = tuple(member for member in members if isinstance(member, nodes.Expr))
        return nodes.Call(span, "row", (nodes.RecordLiteral(span, (*_COLUMNS, *extra.names), whole),))

    def _second(self, node: nodes.FieldAccess) -> nodes.Expr:
        """``retval.NAME`` of a pair: an argument of its second probe."""
        if self.at_end:
            return nodes.IntLiteral(node.span, 0)
        if argument_number(node.name) is not None:
            return nodes.Identifier(node.span, node.name)
        return nodes.FieldAccess(node.span, nodes.Identifier(node.span, "args"), node.name)

    def _value(self, node: nodes.Identifier) -> nodes.Expr | None:
        """What stands at the return in place of a word; None where it stays."""
        target, span = self._target, node.span
        if node.name == "duration":
            self._timed = True
            return nodes.Binary(span, "-", nodes.Identifier(span, "nsecs"), self._member(span, _BEGAN))
        if node.name == "depth":
            self._deep = True
            return nodes.Variable(span, _DEPTH)
        if node.name == "unfinished":
            self.asks = True
            return nodes.IntLiteral(span, int(self.at_end))
        if node.name == "retval" and self.at_end:
            return nodes.IntLiteral(span, 0)
        if node.name == "retval" and target.result != "retval":
            if not target.result:
                hints = ["retval.NAME and retval.arg0 are arguments of its second probe"]
                self._diagnostics.error("a pair of probes has no retval", span, hints=hints)
                return None
            return nodes.FieldAccess(span, nodes.Identifier(span, "args"), target.result)
        if argument_number(node.name) is not None and not target.whole:
            return self._keep(node)
        if node.name == "args" and not target.whole:
            hints = ["name the arguments that the script needs: args.NAME"]
            self._diagnostics.error("args as a whole is not kept until the call returns", span, hints=hints)
        return None

    def _keep(self, value: nodes.Expr) -> nodes.Expr:
        """A value of the entry, in the record."""
        for number, known in enumerate(self._kept):
            if nodes.same(known, value):
                return self._member(value.span, _FIRST + number)
        self._kept.append(nodes.copy(value))
        return self._member(value.span, _FIRST - 1 + len(self._kept))

    @staticmethod
    def _member(span: Span, index: int) -> nodes.Expr:
        return nodes.TupleAccess(span, nodes.Variable(span, _RECORD), index)

    # ------------------------------------------------------------------------------------------ code

    def key(self, same: tuple[nodes.Expr, ...], span: Span) -> tuple[nodes.Expr, ...]:
        """What identifies a call."""
        return same or tuple(nodes.CallPart(span, part) for part in self._target.parts)

    def entry_body(self, table: nodes.MapRef, key: tuple[nodes.Expr, ...], span: Span) -> nodes.Block:
        """``@table[key] = (nsecs, thread, values…)``."""
        statements: list[nodes.Stmt] = []
        members: list[nodes.Expr] = [nodes.Identifier(span, "nsecs"), nodes.CallPart(span, "thread"), *self._kept]
        if self._deep and self._target.family == UPROBE:
            statements += self._levels_left(table, span)
            members.append(nodes.Variable(span, _DEPTH))
        elif self._deep:
            # A record that is there already is of a call that was left, and so were all that it had called.
            old = nodes.TupleAccess(span, _element(table, key), _FIRST + len(self._kept))
            began = nodes.TupleAccess(span, _element(table, key), _BEGAN)
            level = nodes.Ternary(span, began, old, self._level(table, span))
            counted = nodes.Binary(span, "+", nodes.Variable(span, _DEPTH), nodes.IntLiteral(span, 1))
            statements += [
                nodes.Let(span, nodes.Variable(span, _DEPTH), None, level),
                nodes.Assign(span, self._level(table, span), "=", counted),
            ]
            members.append(nodes.Variable(span, _DEPTH))
        statements.append(nodes.Assign(span, _element(table, key), "=", nodes.TupleLiteral(span, tuple(members))))
        return nodes.Block(span, (*statements, _count(table, "call_entered")))

    def _levels_left(self, table: nodes.MapRef, span: Span) -> list[nodes.Stmt]:
        """The depth of a call of a user function: that of the thread, without those calls which it has left
        (``longjmp``, an exception), as their frames are not further out than that of this call.

        ``let $d = @levels[thread];``
        ``for ($i : 0..MOST_LEFT) { if (!$d || inner - @frames[thread, $d - 1] >= SAME_STACK) { break } $d -= 1; }``
        ``@frames[thread, $d] = inner; @levels[thread] = $d + 1;``
        """

        def depth() -> nodes.Variable:
            return nodes.Variable(span, _DEPTH)

        def moved(operator: str) -> nodes.Expr:
            return nodes.Binary(span, operator, depth(), nodes.IntLiteral(span, 1))

        inner = nodes.CallPart(span, "inner")
        # Unsigned: the frames of calls that are under way are further out, and the difference is a very large number.
        above: nodes.Expr = nodes.Binary(span, "-", inner, self._frame(table, moved("-"), span))
        above, far = (
            nodes.Cast(span, nodes.NamedType(span, "uint64"), value)
            for value in (above, nodes.IntLiteral(span, _SAME_STACK))
        )
        goes_on = nodes.Binary(span, ">=", above, far)
        none = nodes.Binary(span, "==", depth(), nodes.IntLiteral(span, 0))
        done = nodes.Binary(span, "||", none, goes_on)
        step = nodes.If(span, done, nodes.Block(span, (nodes.Break(span),)), None)
        fewer = nodes.Assign(span, depth(), "=", moved("-"))
        steps = nodes.Range(span, nodes.IntLiteral(span, 0), nodes.IntLiteral(span, _MOST_LEFT))
        body = nodes.Block(span, (nodes.ExprStmt(span, step), fewer))
        return [
            nodes.Let(span, depth(), None, self._level(table, span)),
            nodes.For(span, nodes.Variable(span, _STEP), steps, body),
            nodes.Assign(span, self._frame(table, depth(), span), "=", nodes.CallPart(span, "inner")),
            nodes.Assign(span, self._level(table, span), "=", moved("+")),
        ]

    def end_of_thread(self, table: nodes.MapRef, span: Span, *, own: bool) -> list[nodes.Stmt]:
        """What a thread does that ends in calls: its number, and with it what is kept, may become another one's.

        *own*: records are those of threads.
        """
        thread = nodes.CallPart(span, "thread")
        return self._forgotten_levels(table, thread, span) + ([_removed(_element(table, (thread,)))] if own else [])

    def execution(self, table: nodes.MapRef, span: Span, *, own: bool) -> list[nodes.Stmt]:
        """What a thread does that executes a program. Its calls of functions are gone. It takes the number of the
        first thread of its process, and what is kept of it (``de_thread`` of fs/exec.c), in the system call, with
        *own*, and in functions of the kernel.
        """
        thread = nodes.CallPart(span, "thread")
        old: nodes.Expr = nodes.FieldAccess(span, nodes.Identifier(span, "args"), "old_pid")
        old = nodes.Cast(span, nodes.NamedType(span, "uint64"), old)
        levels = nodes.MapRef(span, f"{table.name}{CALL_LEVELS}")
        moved: list[nodes.Stmt] = []
        for map_ in ([table] if own else []) + ([levels] if self._deep and self._target.family == KERNEL else []):
            moved.append(nodes.Assign(span, _element(map_, (thread,)), "=", _element(map_, (old,))))
            moved.append(_removed(_element(map_, (old,))))
        statements: list[nodes.Stmt] = []
        if self._target.family in (UPROBE, PYTHON):
            statements = self._forgotten_levels(table, thread, span)
            moved += self._forgotten_levels(table, old, span)
        if moved:
            other = nodes.Binary(span, "!=", nodes.copy(old), nodes.CallPart(span, "thread"))
            code = nodes.If(span, other, nodes.Block(span, tuple(moved)), None)
            statements.append(nodes.ExprStmt(span, code))
        return statements

    def _forgotten_levels(self, table: nodes.MapRef, thread: nodes.Expr, span: Span) -> list[nodes.Stmt]:
        """``for ($i : 0..MOST_LEFT) { if ($i >= @levels[thread]) { break } delete(@frames[thread, $i]); }
        delete(@levels[thread]);``
        """
        if not self._deep or self._target.family == SYSCALL:
            return []
        statements: list[nodes.Stmt] = []
        level = _element(nodes.MapRef(span, f"{table.name}{CALL_LEVELS}"), (thread,))
        if self._target.family == UPROBE:
            step = nodes.Variable(span, _STEP)
            done = nodes.Binary(span, ">=", step, nodes.copy(level))
            end = nodes.If(span, done, nodes.Block(span, (nodes.Break(span),)), None)
            frames = nodes.MapRef(span, f"{table.name}{CALL_FRAMES}")
            frame = nodes.MapIndex(span, frames, (nodes.copy(thread), nodes.copy(step)))
            steps = nodes.Range(span, nodes.IntLiteral(span, 0), nodes.IntLiteral(span, _MOST_LEFT))
            body = nodes.Block(span, (nodes.ExprStmt(span, end), _removed(frame)))
            statements.append(nodes.For(span, nodes.copy(step), steps, body))
        return [*statements, _removed(level)]

    @staticmethod
    def _frame(table: nodes.MapRef, level: nodes.Expr, span: Span) -> nodes.MapIndex:
        """Where the call of a level is."""
        key = (nodes.CallPart(span, "thread"), level)
        return nodes.MapIndex(span, nodes.MapRef(span, f"{table.name}{CALL_FRAMES}"), key)

    def return_body(
        self, table: nodes.MapRef, key: tuple[nodes.Expr, ...], body: nodes.Block, condition: nodes.Expr | None,
        span: Span, *, conditional: bool,
    ) -> nodes.Block:  # fmt: skip
        """``let $r = @table[key]; if ($r.0) { delete(@table[key]); if (condition) { body } }``."""
        record = nodes.Variable(span, _RECORD)
        statements: list[nodes.Stmt] = [
            nodes.ExprStmt(span, nodes.Call(span, "delete", (_element(table, key),))),
            _count(table, "call_returned"),
        ]
        if self._deep:
            depth = nodes.Variable(span, _DEPTH)
            # Threads and goroutines that are in no call leave nothing behind.
            done = nodes.Discard(span, nodes.Call(span, "delete", (self._level(table, span),)))
            less = nodes.Assign(span, self._level(table, span), "=", nodes.Variable(span, _DEPTH))
            outermost = nodes.Binary(span, "==", nodes.Variable(span, _DEPTH), nodes.IntLiteral(span, 0))
            fewer = nodes.If(span, outermost, nodes.Block(span, (done,)), nodes.Block(span, (less,)))
            statements += [
                nodes.Let(span, depth, None, self._member(span, _FIRST + len(self._kept))),
                nodes.ExprStmt(span, fewer),
            ]
            if self._target.family == UPROBE:
                gone = nodes.Call(span, "delete", (self._frame(table, nodes.Variable(span, _DEPTH), span),))
                statements.append(nodes.Discard(span, gone))
        chosen: nodes.Expr = nodes.BlockExpr(body.span, body)
        if condition is not None:
            chosen = nodes.If(condition.span, condition, body, None)
        statements.append(nodes.ExprStmt(body.span, chosen))
        began = nodes.Binary(span, "!=", self._member(span, _BEGAN), nodes.IntLiteral(span, 0))
        # With conditions at the entry, most calls without a record are those that they left out.
        unknown = None if conditional else nodes.Block(span, (_count(table, "call_begun"),))
        known = nodes.If(span, began, nodes.Block(span, tuple(statements)), unknown)
        return nodes.Block(span, (nodes.Let(span, record, None, _element(table, key)), nodes.ExprStmt(span, known)))

    def end_body(
        self, table: nodes.MapRef, body: nodes.Block, condition: nodes.Expr | None, span: Span
    ) -> nodes.Block:
        """``for ($value : @table) { let $r = $value.1; if (condition) { body } }``."""
        value = nodes.Variable(span, _VALUE)
        statements: list[nodes.Stmt] = [
            nodes.Let(span, nodes.Variable(span, _RECORD), None, nodes.TupleAccess(span, value, 1))
        ]
        if self._deep:
            level = self._member(span, _FIRST + len(self._kept))
            statements.append(nodes.Let(span, nodes.Variable(span, _DEPTH), None, level))
        chosen: nodes.Expr = nodes.BlockExpr(body.span, body)
        if condition is not None:
            chosen = nodes.If(condition.span, condition, body, None)
        statements.append(nodes.ExprStmt(body.span, chosen))
        loop = nodes.For(span, nodes.Variable(span, _VALUE), nodes.copy(table), nodes.Block(span, tuple(statements)))
        return nodes.Block(span, (loop,))

    @staticmethod
    def _level(table: nodes.MapRef, span: Span) -> nodes.MapIndex:
        """How many calls of the thread or goroutine are under way."""
        return nodes.MapIndex(span, nodes.MapRef(span, f"{table.name}{CALL_LEVELS}"), (nodes.CallPart(span, "thread"),))


def _count(table: nodes.MapRef, what: str) -> nodes.Stmt:
    return nodes.CallCount(table.span, table.name, what)


def _element(table: nodes.MapRef, key: tuple[nodes.Expr, ...]) -> nodes.MapIndex:
    return nodes.MapIndex(table.span, nodes.copy(table), tuple(map(nodes.copy, key)))


def _removed(element: nodes.MapIndex) -> nodes.Stmt:
    return nodes.Discard(element.span, nodes.Call(element.span, "delete", (element,)))


def _may_execute(point: str) -> bool:
    """Whether calls of an attach point may execute a program."""
    pattern = point.rpartition(":")[2].removeprefix("sys_enter_")
    return any(fnmatch.fnmatchcase(name, pattern) for name in ("execve", "execveat"))


def _is_entry(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Call) and node.name == "entry" and len(node.args) == 1


def _asks(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Identifier) and node.name == "unfinished"


def _joins(first: nodes.AttachPoint, point: nodes.AttachPoint) -> bool:
    """True for two attach points of functions of programs: those of a probe share its programs and its table."""
    return _of_program(first.text) and _of_program(point.text) and first.options == point.options


def _of_program(text: str) -> bool:
    head, _, rest = text.partition(":")
    return head.lower() == CALL and rest.partition(":")[0] not in CALL_FAMILIES


def _is_of_one(node: nodes.Node) -> bool:
    """True for what is another thing in each call of a list: its parameters."""
    return isinstance(node, nodes.Identifier) and node.name == "args"


def _is_args(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Identifier) and node.name == "args"


def _is_result(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Identifier) and node.name == "retval"
