"""``--fmt --suggest``: pairs of an entry and a return that keep values in maps by thread, as ``call:`` probes.

A pair is rewritten where the new probe certainly stores and prints the same: the entry does nothing but keep values in
maps with the key ``tid``, the return is the only one that reads them, asks whether there is one, and deletes all of
them as its last statements. Whatever else uses these maps, or makes a difference between both forms, is a reason to
leave the pair as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytrace.core.builtins import builtin, is_argument
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.probe_kinds import (
    CALL,
    END,
    FENTRY,
    FEXIT,
    KPROBE,
    KRETPROBE,
    SYSCALL,
    TRACEPOINT,
    UPROBE,
    URETPROBE,
    probe_kind,
)
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import nodes, parser

_RETURNS = {KPROBE: KRETPROBE, UPROBE: URETPROBE, FENTRY: FEXIT}
_ENTER, _EXIT = "syscalls:sys_enter_", "syscalls:sys_exit_"
_CALL_WORDS = frozenset({"duration", "depth", "entry", "same", "unfinished", "span", "entry_ustack", "entry_kstack"})
_STACKS = ("ustack", "kstack")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_OF_THREAD = frozenset({"pid", "tid", "comm", "uid", "gid", "cgroup", "cpid"})
"""Builtins that a ``call:`` decides at the entry."""
_CONSTANT = frozenset({"pid", "tid", "cpid"})
"""Those of them that no call changes."""
_OTHER_IN_CALLS = frozenset({"probe", "probetype", "ctx"})
"""Builtins that are something else in a ``call:`` probe."""


_OF_MAPS = frozenset({"print", "print_clear", "delete", "clear", "zero", "has_key", "find", "len"})
"""Builtins to which an element of a map is not just its value."""


class Pair(msgspec.Struct, frozen=True):
    """A pair that was found: its entry, the name of the ``call:``, and why it stays; empty if it was rewritten."""

    entry: Span
    call: str
    reason: str = ""


class _Uncertain(Exception):  # noqa: N818 - a reason, not an error
    """Why a pair stays as it is."""


class _Kept(msgspec.Struct, frozen=True):
    """A value that the entry keeps in a map: its expression, and the text of it."""

    value: nodes.Expr
    text: str


def suggest(source: Source, diagnostics: Diagnostics) -> tuple[str, list[Pair]]:
    """The script with ``call:`` probes in place of pairs, and all pairs.

    Args:
        source: the script.
        diagnostics: receives syntax errors; the text is unchanged then.
    """
    known = len(diagnostics.errors)
    program = parser.parse(source, diagnostics)
    if len(diagnostics.errors) > known:
        return source.text, []
    pairs: list[Pair] = []
    edits: list[tuple[int, int, str]] = []
    taken: set[int] = set()
    for entry in program.probes:
        names, stored = _entries(entry), _by_thread(entry)
        if not names or not stored:
            continue
        for leave in program.probes:
            if id(leave) in taken or _returns(leave) != names or not stored & _by_thread(leave):
                continue
            call = ", ".join(names) if names[0].startswith(f"{CALL}:") else f"{SYSCALL}:{','.join(names)}"
            try:
                edits += _Rewriting(source, program, entry, leave).edits(call)
            except _Uncertain as reason:
                pairs.append(Pair(entry.head, call, str(reason)))
            else:
                taken.add(id(leave))
                pairs.append(Pair(entry.head, call))
            break
    return _without_empty_ends(Source(source.name, _edited(source.text, edits)), program), pairs


def _without_empty_ends(source: Source, before: nodes.Program) -> str:
    """The text without ``end`` probes that were left empty."""
    if any(map(_is_empty_end, before.probes)):
        return source.text
    items = filter(_is_empty_end, parser.parse(source, Diagnostics()).probes)
    return _edited(source.text, [(item.span.start, item.span.end, "") for item in items])


def _is_empty_end(probe: nodes.Probe) -> bool:
    return [_kind(point) for point in probe.attach_points] == [END] and not _statements(probe.body)


def _by_thread(probe: nodes.Probe) -> set[str]:
    """The maps that a probe uses with the key ``tid``."""
    return {node.map.name for node in nodes.walk(probe) if isinstance(node, nodes.MapIndex) and _is_thread(node)}


def _entries(probe: nodes.Probe) -> list[str]:
    """The calls that a probe is the entry of: names of system calls, or ``call:`` attach points; empty for others."""
    return _calls(probe, tuple(_RETURNS), _ENTER)


def _returns(probe: nodes.Probe) -> list[str]:
    """The calls that a probe is the return of, as :func:`_entries` has them."""
    return _calls(probe, tuple(_RETURNS.values()), _EXIT)


def _calls(probe: nodes.Probe, kinds: tuple[str, ...], event: str) -> list[str]:
    names: list[str] = []
    families = set()
    for point in probe.attach_points:
        word, _, rest = point.text.partition(":")
        kind = probe_kind(word)
        if kind is None or point.name is not None or "$" in point.text:
            return []
        families.add(kind.name)
        if kind.name == TRACEPOINT and rest.startswith(event):
            names.append(rest.removeprefix(event))
        elif kind.name in kinds and "+" not in rest:
            names.append(f"{CALL}:{rest}" if kind.name in (UPROBE, URETPROBE) else f"{CALL}:kernel:{rest}")
        else:
            return []
    return names if len(families) == 1 else []


class _Rewriting:
    """The edits that make one probe of an entry and a return."""

    def __init__(self, source: Source, program: nodes.Program, entry: nodes.Probe, leave: nodes.Probe) -> None:
        self.source = source
        self.program = program
        self.entry = entry
        self.leave = leave
        self.kept: dict[str, _Kept] = {}
        self._kind = _kind(leave.attach_points[0])

    def edits(self, call: str) -> list[tuple[int, int, str]]:
        """Edits of the text.

        Raises:
            _Uncertain: the ``call:`` form may mean something else.
        """
        self._check_words()
        self._read_entry()
        deletes = self._deletes()
        elsewhere = self._uses_elsewhere()
        conditions = self._conditions()
        body = self._body(deletes)
        predicate = f" /{' && '.join(conditions)}/" if conditions else ""
        start, end = self.entry.span.start, self.entry.span.end
        line = re.compile(r"[ \t]*\r?\n").match(self.source.text, end)
        if line is not None:
            end = line.end()
        leave = self.leave.span
        return [(start, end, ""), (leave.start, leave.end, f"{call}{predicate} {body}"), *elsewhere]

    def _text(self, node: nodes.Node) -> str:
        start, end = self._place(node)
        return self.source.text[start:end]

    def _place(self, node: nodes.Node) -> tuple[int, int]:
        """Where a node begins and ends, with parentheses of its first and last part: spans begin and end within."""
        start, end, text = node.span.start, node.span.end, self.source.text
        depth = least = 0
        for character in _STRING.sub("", text[start:end]):
            depth += (character == "(") - (character == ")")
            least = min(least, depth)
        for _ in range(-least):
            start = text.rindex("(", 0, start)
        for _ in range(depth - least):
            end = text.index(")", end) + 1
        return start, end

    def _check_words(self) -> None:
        """The words of ``call:`` probes must not be names of this script."""
        own = {item.name: item for item in self.program.items if isinstance(item, nodes.Macro | nodes.Function)}
        waiting: list[tuple[nodes.Node, str]] = [(self.entry.body, ""), (self.leave.body, "")]
        waiting += [(part, "") for probe in (self.entry, self.leave) for part in nodes.conjuncts(probe.predicate)]
        while waiting:
            body, caller = waiting.pop()
            for node in nodes.walk(body):
                name = node.name if isinstance(node, nodes.Identifier | nodes.Call) else ""
                if name in _CALL_WORDS:
                    raise _Uncertain(f"{name} is a word of call: probes")
                if name in _OTHER_IN_CALLS or (caller and is_argument(name)):
                    raise _Uncertain(f"{name} is something else in a call: probe")
                if name in own and name not in _CALL_WORDS:
                    waiting.append((own.pop(name).body, name))
        if any(isinstance(item, nodes.Import | nodes.RootIf) for item in self.program.items):
            raise _Uncertain("what is imported or chosen at compile time may use its maps")

    def _read_entry(self) -> None:
        """What the entry keeps."""
        body = self.entry.body
        for statement in body.statements:
            target = statement.target if isinstance(statement, nodes.Assign) else None
            if not isinstance(statement, nodes.Assign) or statement.operator != "=" or not isinstance(
                target, nodes.MapIndex
            ) or not _is_thread(target):
                raise _Uncertain("the entry does more than to keep values by tid")
            value = statement.value
            for node in nodes.walk(value):
                row = builtin(node.name) if isinstance(node, nodes.Identifier | nodes.Call) else None
                if isinstance(node, nodes.MapIndex | nodes.MapRef | nodes.Variable | nodes.BlockExpr | nodes.If) or (
                    isinstance(node, nodes.Unary) and node.operator in ("++", "--")
                ):
                    raise _Uncertain("a value of the entry depends on maps or variables")
                if isinstance(node, nodes.Call) and (row is None or row.unsafe):
                    raise _Uncertain(f"{node.name}() at the entry may do more than to return a value")
                if isinstance(node, nodes.Identifier) and node.name == "args" and node is value:
                    raise _Uncertain("args as a whole is not kept")
            if target.map.name in self.kept:
                raise _Uncertain(f"{target.map.name} is stored twice")
            self.kept[target.map.name] = _Kept(value, self._text(value))
        if body.value is not None or not self.kept:
            raise _Uncertain("the entry does more than to keep values by tid")

    def _deletes(self) -> list[nodes.Stmt]:
        """The statements at the end of the return that delete what was kept."""
        statements = list(self.leave.body.statements)
        if self.leave.body.value is not None:
            statements.append(nodes.ExprStmt(self.leave.body.value.span, self.leave.body.value))
        deletes: list[nodes.Stmt] = []
        names: set[str] = set()
        while statements and (name := self._deleted(statements[-1])):
            names.add(name)
            deletes.append(statements.pop())
        missing = sorted(set(self.kept) - names)
        if missing:
            raise _Uncertain(f"the return does not delete {missing[0]} as its last statement")
        if any(isinstance(node, nodes.Return) for node in nodes.walk(self.leave.body)):
            raise _Uncertain("the return may end before it deletes what was kept")
        return deletes

    def _deleted(self, statement: nodes.Stmt) -> str:
        value = statement.value if isinstance(statement, nodes.ExprStmt | nodes.Discard) else None
        if not isinstance(value, nodes.Call) or value.name != "delete":
            return ""
        target = value.args[0]
        if len(value.args) == 1 and isinstance(target, nodes.MapIndex) and _is_thread(target):
            name = target.map.name
        elif len(value.args) == 2 and isinstance(target, nodes.MapRef) and _is_tid(value.args[1]):
            name = target.name
        else:
            return ""
        return name if name in self.kept else ""

    def _uses_elsewhere(self) -> list[tuple[int, int, str]]:
        """Edits that take the maps out of ``end`` and of declarations."""
        edits: list[tuple[int, int, str]] = []
        for item in self.program.items:
            if item is self.entry or item is self.leave:
                continue
            used = {name for node in nodes.walk(item) if (name := _map_name(node)) in self.kept}
            if not used:
                continue
            name = min(used)
            if isinstance(item, nodes.MapDecl):
                edits.append((*self._with_semicolon(item.span), ""))
                continue
            is_end = isinstance(item, nodes.Probe) and [_kind(point) for point in item.attach_points] == [END]
            if not isinstance(item, nodes.Probe) or not is_end or item.predicate is not None:
                where = item.attach_points[0].text if isinstance(item, nodes.Probe) else "a function or macro"
                raise _Uncertain(f"{name} is also used in {where}")
            cleared = [
                statement for statement in _statements(item.body)
                if isinstance(statement, nodes.ExprStmt) and _cleared(statement.value) in used
            ]  # fmt: skip
            rest = sum(_map_name(node) in self.kept for node in nodes.walk(item)) - len(cleared)
            if rest:
                raise _Uncertain(f"{name} is also used in end")
            edits += [(*self._with_semicolon(statement.span), "") for statement in cleared]
        return edits

    def _conditions(self) -> list[str]:
        """The parts of the new predicate: those of the entry, then those of the return."""
        early = nodes.conjuncts(self.entry.predicate)
        for part in early:
            for node in nodes.walk(part):
                if isinstance(node, nodes.Identifier) and node.name not in _OF_THREAD and not is_argument(node.name):
                    raise _Uncertain(f"the entry's predicate depends on {node.name}")
                if not isinstance(node, (nodes.Identifier, nodes.FieldAccess, nodes.Binary, nodes.Unary,
                                         nodes.IntLiteral, nodes.StringLiteral, nodes.BoolLiteral)):
                    raise _Uncertain("the entry's predicate is not one of arguments and the thread alone")
        texts = [_grouped(part, self._text(part)) for part in early]
        asked = False
        for part in nodes.conjuncts(self.leave.predicate):
            kept = self._asks(part)
            if kept is not None:
                asked = True
                if not _is_time(kept.value):
                    texts.append(self._shown(kept))
                continue
            if any(nodes.same(part, other) for other in early):
                continue
            words = {node.name for node in nodes.walk(part) if isinstance(node, nodes.Identifier)}
            changing = words & (_OF_THREAD - _CONSTANT)
            if changing and not words - _OF_THREAD:
                raise _Uncertain(f"{min(changing)} is compared at the return, by call: at the entry")
            texts.append(self._rewritten(part, grouped=True))
        if not asked:
            raise _Uncertain("the return does not ask whether there was an entry")
        return texts

    def _asks(self, part: nodes.Expr) -> _Kept | None:
        """The value that a condition asks for: ``@start[tid]``, ``@start[tid] != 0``, ``@start[tid] > 0``."""
        if isinstance(part, nodes.Binary) and part.operator in ("!=", ">") and isinstance(part.right, nodes.IntLiteral):
            if part.right.value != 0 or (part.operator == ">" and not self._is_start(part.left)):
                return None
            part = part.left
        if isinstance(part, nodes.Call) and part.name == "has_key" and len(part.args) == 2 and _is_tid(part.args[1]):
            target = part.args[0]
            kept = self.kept.get(target.name) if isinstance(target, nodes.MapRef) else None
            return None if kept is None else _Kept(nodes.Identifier(part.span, "nsecs"), "")
        if isinstance(part, nodes.MapIndex) and _is_thread(part):
            kept = self.kept.get(part.map.name)
            if kept is not None and isinstance(kept.value, nodes.Call):
                raise _Uncertain(f"{part.map.name} may be empty in a call that is to be seen")
            return kept
        return None

    def _is_start(self, node: nodes.Expr) -> bool:
        kept = self.kept.get(node.map.name) if isinstance(node, nodes.MapIndex) and _is_thread(node) else None
        return kept is not None and _is_time(kept.value)

    # ------------------------------------------------------------------------------------------ text

    def _body(self, deletes: list[nodes.Stmt]) -> str:
        edits = [(*self._with_semicolon(statement.span), "") for statement in deletes]
        body = self.leave.body
        inside = [item for item in _statements(body) if not any(item.span == gone.span for gone in deletes)]
        for statement in inside:
            edits += self._replacements(statement)
        return _edited(self.source.text, edits, body.span.start, body.span.end)

    def _rewritten(self, node: nodes.Expr, *, grouped: bool) -> str:
        text = _edited(self.source.text, list(self._replacements(node)), *self._place(node))
        return _grouped(node, text) if grouped else text

    def _replacements(self, node: nodes.Node) -> Iterator[tuple[int, int, str]]:
        """Edits of what stands otherwise in a ``call:``, top down."""
        if isinstance(node, nodes.Binary) and node.operator == "-" and _is_time(node.left) and self._is_start(
            node.right
        ):
            start, end = node.span.start, node.span.end
            text = self.source.text
            before, after = text[:start].rstrip(), text[end:].lstrip()
            if before.endswith("(") and after.startswith(")") and not re.search(r"[\w)\]]\s*\($", before):
                start, end = len(before) - 1, len(text) - len(after) + 1
            yield start, end, "duration"
            return
        self._check_use(node)
        if isinstance(node, nodes.MapIndex) and node.map.name in self.kept:
            yield node.span.start, node.span.end, self._shown(self.kept[node.map.name])
            return
        if isinstance(node, nodes.FieldAccess) and isinstance(node.base, nodes.Identifier) and node.base.name == "args":
            if self._kind == TRACEPOINT:
                if node.name != "ret":
                    raise _Uncertain(f"args.{node.name} of the return is another one in a call: probe")
                yield node.span.start, node.span.end, "retval"
                return
        for inner in nodes.children(node):
            yield from self._replacements(inner)

    def _check_use(self, node: nodes.Node) -> None:
        """Refuse what the return may not do with the maps, and arguments of its own."""
        stored = _stored(node)
        if isinstance(stored, nodes.MapIndex) and stored.map.name in self.kept:
            raise _Uncertain(f"the return stores into {stored.map.name}")
        if isinstance(node, nodes.Call) and node.name in _OF_MAPS:
            for argument in node.args[:1]:
                name = _map_name(argument.map if isinstance(argument, nodes.MapIndex) else argument)
                if name in self.kept:
                    raise _Uncertain(f"{name} is an argument of {node.name}()")
        if isinstance(node, nodes.MapIndex) and node.map.name in self.kept and not _is_thread(node):
            raise _Uncertain(f"{node.map.name} is read with another key than tid")
        if _map_name(node) in self.kept:
            raise _Uncertain(f"{_map_name(node)} is used as a whole")
        if isinstance(node, nodes.Identifier) and is_argument(node.name) and self._kind != FEXIT:
            raise _Uncertain(f"{node.name} of the return is that of the entry in a call: probe")

    def _shown(self, kept: _Kept) -> str:
        """The text for a value of the entry."""
        value = kept.value
        if isinstance(value, nodes.Identifier | nodes.Call) and value.name in _STACKS:
            return f"entry_{kept.text}"
        plain = value.base if isinstance(value, nodes.FieldAccess) else value
        if isinstance(plain, nodes.Identifier) and is_argument(plain.name):
            return kept.text
        return f"entry({kept.text})"

    def _with_semicolon(self, span: Span) -> tuple[int, int]:
        after = re.compile(r"[ \t]*;[ \t]*").match(self.source.text, span.end)
        return span.start, after.end() if after is not None else span.end


def _edited(text: str, edits: list[tuple[int, int, str]], begin: int = 0, end: int | None = None) -> str:
    """The text from *begin* to *end* with *edits*, which do not overlap."""
    parts: list[str] = []
    position = begin
    for start, stop, replacement in sorted(edits):
        parts += [text[position:start], replacement]
        position = stop
    return "".join([*parts, text[position : len(text) if end is None else end]])


def _grouped(node: nodes.Expr, text: str) -> str:
    """The text of an expression as a part of a conjunction: what binds less is in parentheses."""
    loose = isinstance(node, nodes.Ternary) or (isinstance(node, nodes.Binary) and node.operator == "||")
    return f"({text})" if loose else text


def _statements(body: nodes.Block) -> list[nodes.Stmt]:
    value = [] if body.value is None else [nodes.ExprStmt(body.value.span, body.value)]
    return [*body.statements, *value]


def _cleared(value: nodes.Expr) -> str:
    """The map of ``clear(@m)``."""
    known = isinstance(value, nodes.Call) and value.name == "clear" and len(value.args) == 1
    return _map_name(value.args[0]) if known and isinstance(value, nodes.Call) else ""


def _stored(node: nodes.Node) -> nodes.Node | None:
    """What a node stores into."""
    if isinstance(node, nodes.Assign):
        return node.target
    return node.operand if isinstance(node, nodes.Unary) and node.operator in ("++", "--") else None


def _map_name(node: nodes.Node) -> str:
    return node.name if isinstance(node, nodes.MapRef) else ""


def _kind(point: nodes.AttachPoint) -> str:
    kind = probe_kind(point.text.partition(":")[0])
    return "" if kind is None else kind.name


def _is_time(node: nodes.Expr) -> bool:
    return isinstance(node, nodes.Identifier) and node.name == "nsecs"


def _is_tid(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Identifier) and node.name == "tid"


def _is_thread(node: nodes.MapIndex) -> bool:
    return len(node.keys) == 1 and _is_tid(node.keys[0])
