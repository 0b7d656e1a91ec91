"""What the compiler knows about a text that is being edited, by position.

An :class:`Analysis` runs the passes of the front end as far as they get; what they found is used where a script has
mistakes, too. Positions are offsets in characters. Nothing is loaded into the kernel.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import overload

import msgspec
from msgspec.structs import replace

from pytrace import pipeline
from pytrace.base.dispatch import handles, methods
from pytrace.core import types
from pytrace.core.builtins import BUILTINS, Builtin, Mode, builtin
from pytrace.core.diagnostics import Diagnostics, PlacedError, ScriptError, TraceError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import CompileOptions, Config
from pytrace.core.source import ExpandedSpan, Source, Span
from pytrace.frontend.expand import imports as imports_pass
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.tokens import KEYWORDS
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo, ImportedFunction, ProbeUnit

_OFF = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
"""Strings and comments."""
_CHAIN = re.compile(
    r"(?P<root>[@$]?[A-Za-z_]\w*|@|\))(?P<rest>(?:\[[^\[\]]*\]|(?:\.|->)\s*\w+)*)\s*(?:\.|->)\s*(?P<typed>\w*)\Z"
)
_STEP = re.compile(r"\[[^\[\]]*\]|(?:\.|->)\s*(\w+)")
_ARGUMENTS = "args;"
_REPAIRS = 4
"""Statements with mistakes that are left out so that the others are understood."""
MOST = 500
"""Names that are offered at most; editors ask again as one types."""


class Candidate(msgspec.Struct, frozen=True):
    """A name that may be typed; *kind* is that of a :class:`Symbol`, or ``keyword``."""

    name: str
    kind: str
    detail: str = ""
    document: str = ""


class Symbol(msgspec.Struct, frozen=True):
    """A name in the text: where it stands, what it is called, and what it means."""

    span: Span
    kind: str
    """``variable``, ``map``, ``builtin``, ``function``, ``macro``, ``member``, ``constant``, ``type``, ``probe``,
    ``setting``, ``import``."""
    name: str
    type: str = ""
    document: str = ""
    definition: Span | None = None
    identity: object = None
    """Equal for all uses of one thing."""


class Analysis:
    """A text, the messages about it, and the names in it.

    *path* is the file that the text is of, for imports; *kernel* answers what a script asks of the machine.
    """

    def __init__(self, text: str, path: str | None, kernel: KernelInfo, options: CompileOptions | None = None) -> None:
        self.source = Source(os.path.basename(path) if path else "stdin", text, path)
        self.failure: TraceError | None = None
        """What is wrong with the machine rather than with the script."""
        self.kernel = kernel
        self.options = options or CompileOptions()
        self.parsed: nodes.Program | None = None
        self.merged: nodes.Program | None = None
        self.units: list[ProbeUnit] = []
        self.checked = CheckedProgram()
        self.basis = self.source
        """The text that is understood: without statements that have mistakes, which are blank in it."""
        self.diagnostics = problems = self._run()
        self.written: nodes.Program | None = self.parsed
        """The whole text's syntax tree, whose parts are complete up to a mistake of syntax."""
        for _ in range(_REPAIRS):
            repaired = self._without_mistake(problems) if problems.failed else None
            if repaired is None:
                break
            self.basis = Source(self.source.name, repaired, path)
            problems = self._run()
        self._known_bases: dict[str, types.Type] | None = None
        self.functions = {item.name: item for item in self.checked.functions}
        self.symbols = sorted(self._symbols(), key=lambda item: (item.span.start, item.span.end))
        self._starts = [item.span.start for item in self.symbols]

    def _run(self) -> Diagnostics:
        """Run the passes on :attr:`basis`. Returns their messages."""
        diagnostics = Diagnostics()
        compilation = pipeline.Compilation(self.basis, self.options, self.kernel, diagnostics, keep=self._keep)
        try:
            pipeline.front_end(compilation)
        except ScriptError:
            pass
        except PlacedError as error:
            diagnostics.error(error.message, error.span, hints=error.hints)
        except TraceError as error:
            self.failure = error
        return diagnostics

    def _keep(self, step: str, result: object) -> None:
        """Keep what a pass found, also where it reported errors."""
        if isinstance(result, nodes.Program):
            if step == "parse":
                self.parsed = self.merged = result
            elif step == "imports":
                self.merged = result
        elif isinstance(result, CheckedProgram):
            self.checked = result
        elif step == "attach_points":
            assert isinstance(result, list)
            self.units = result

    def _without_mistake(self, problems: Diagnostics) -> str | None:
        """The basis with the statement of the first mistake blank; None if that is no statement, or blank already."""
        text = self.basis.text
        for item in problems.errors:
            places = [item.span, *(note.span for note in item.notes)]
            span = next((place for place in places if place.source is self.basis), None)
            if span is None:
                continue
            masked = _OFF.sub(lambda match: "_" * len(match[0]), text)
            start = max(masked.rfind(mark, 0, span.start) for mark in ";{}") + 1
            ends = [at for mark in ";{}" if (at := masked.find(mark, max(span.start, start))) >= 0]
            end = min(ends, default=len(text))
            end += text[end : end + 1] == ";"
            statement = text[start:end]
            if statement.strip():
                blank = re.sub(r"\S", " ", statement)
                # What a probe's arguments are is asked only for a body that reads them.
                again = statement.strip() == _ARGUMENTS
                if re.search(r"\bargs\b", statement) and not again and len(blank) >= len(_ARGUMENTS):
                    blank = blank[: -len(_ARGUMENTS)] + _ARGUMENTS
                elif again and "{" not in masked[:start]:
                    return None
                return _closed(text[:start] + blank + text[end:])
        closed = _closed(text)
        return closed if closed != text else None

    # ------------------------------------------------------------------------------------------ symbols

    def _symbols(self) -> Iterator[Symbol]:
        """The names of this text, each place once."""
        seen: set[tuple[int, int]] = set()
        for symbol in self._all_symbols():
            place = symbol.span.start, symbol.span.end
            if place not in seen and symbol.span.source in (self.basis, self.source) and symbol.span.text:
                seen.add(place)
                yield replace(symbol, span=self._in_source(symbol.span), definition=self._in_source(symbol.definition))

    @overload
    def _in_source(self, span: Span) -> Span: ...
    @overload
    def _in_source(self, span: None) -> None: ...
    def _in_source(self, span: Span | None) -> Span | None:
        """A span of the basis as one of the text: offsets are the same."""
        return Span(self.source, span.start, span.end) if span is not None and span.source is self.basis else span

    def _all_symbols(self) -> Iterator[Symbol]:
        calls = {unit.span.start for unit in self.units if unit.role}
        for unit in self.units:
            if unit.span.start in calls:
                for node in nodes.walk(unit.body):
                    # What a ``call:`` became has places of what it stands for.
                    yield from (item for item in self._typed_symbol(node) if item.span.text == item.name)
        typed: list[nodes.Node] = [unit.body for unit in self.units if unit.span.start not in calls]
        typed += [function.body for function in self.checked.functions]
        for top in typed:
            for node in nodes.walk(top):
                yield from self._typed_symbol(node)
        # What macros replaced, and what was not reached, stands as it was written.
        for program in (self.merged, self.parsed, self.written):
            if program is not None:
                macros = {item.name: item for item in (self.merged or program).items if isinstance(item, nodes.Macro)}
                written = _Written(self, macros)
                for item in program.items:
                    for node in nodes.walk(item):
                        yield from written.symbols(node)

    def _typed_symbol(self, node: nodes.Node) -> Iterator[Symbol]:
        rule = None if isinstance(node.span, ExpandedSpan) else methods(Analysis).get(type(node))
        if rule is not None:
            yield from rule(self, node)

    def _type_of(self, node: nodes.Expr) -> str:
        kind = self.checked.types.get(node)
        return "" if kind is None else str(kind)

    @handles(nodes.Variable)
    def _typed_variable(self, node: nodes.Variable) -> Iterator[Symbol]:
        info = self.checked.variables.get(node)
        if info is not None:
            yield Symbol(_head(node.span, f"${node.shown}"), "variable", f"${node.shown}", str(info.type),
                         definition=info.span, identity=info)  # fmt: skip

    @handles(nodes.MapRef)
    def _typed_map(self, node: nodes.MapRef) -> Iterator[Symbol]:
        yield self.map(node)

    @handles(nodes.FieldAccess)
    def _typed_member(self, node: nodes.FieldAccess) -> Iterator[Symbol]:
        yield Symbol(_tail(node.span, node.name), "member", node.name, self._type_of(node), self._member(node))

    @handles(nodes.Call, nodes.Identifier)
    def _typed_name(self, node: nodes.Call | nodes.Identifier) -> Iterator[Symbol]:
        row, shown = self.checked.calls.get(node), self._type_of(node)
        if isinstance(row, Builtin):
            yield Symbol(_head(node.span, node.name), "builtin", node.name, shown, document(row), identity=row)
        elif isinstance(row, FunctionInfo | ImportedFunction):
            yield self.function(_head(node.span, node.name), row)
        elif node in self.checked.constants:
            value = self.checked.constants[node]
            text = f"{value} ({value:#x})" if isinstance(value, int) and value > 9 else f"{value!r}"
            yield Symbol(node.span, "constant", node.name, shown, f"`{node.name}` = {text}")

    def function(self, place: Span, info: FunctionInfo | ImportedFunction) -> Symbol:
        """A function of the script or of imported C, named at *place*."""
        start = _word(info.span, info.name) if isinstance(info, FunctionInfo) else info.span
        identity = ("function", info.name)
        return Symbol(place, "function", info.name, signature(info), definition=start, identity=identity)

    def map(self, node: nodes.MapRef) -> Symbol:
        """A map, with the types of its key and value."""
        info = self.checked.maps.get(node.name)
        text, place = "", None
        if info is not None:
            key = "" if info.key is None else f"[{info.key}]"
            text, place = f"{info.name}{key}: {info.value}", info.span
        return Symbol(_head(node.span, node.name), "map", node.name, text, info.help if info else "", place,
                      ("map", node.name))  # fmt: skip

    def _member(self, node: nodes.FieldAccess) -> str:
        base = self.checked.types.get(node.base)
        path = self.checked.fields.get(node)
        if path is not None and path.how == "argument":
            return "argument of the probe"
        offset = f", offset {path.offset}" if path is not None and path.how in ("pointer", "memory") else ""
        return f"member of `{base}`{offset}" if base is not None else ""

    def macro(self, place: Span, macro: nodes.Macro) -> Symbol:
        """A macro, named at *place*."""
        head = macro.span.text.partition("{")[0].strip()
        return Symbol(_word(place, macro.name), "macro", macro.name, head, _comment_above(macro.span),
                      _word(macro.head, macro.name), ("macro", macro.name))  # fmt: skip

    def probe(self, node: nodes.AttachPoint) -> str:
        """The targets of a probe, and its arguments."""
        units = [unit for unit in self.units if unit.span.start <= node.span.start < unit.span.end]
        kinds = [unit for unit in units if unit.kind.name == node.text.partition(":")[0]] or units
        if not kinds:
            return ""
        count = sum(len(unit.targets) for unit in kinds)
        lines = [f"{count} {'probe' if count == 1 else 'probes'}"]
        arguments = kinds[0].context.arguments
        if arguments:
            lines += ["", "```c", *(f"{item.type} args.{item.name}" for item in arguments[:40]), "```"]
        return "\n".join(lines)

    def type_text(self, kind: str, name: str) -> str:
        """The definition of a struct, union or enum of the kernel as C, shortened; empty for an unknown one."""
        if kind == "enum":
            enum = self.kernel.enum(name)
            if enum is None:
                return ""
            rows = [f"    {member} = {value}," for member, value in enum.members[:40]]
            return "\n".join(["```c", f"enum {name} {{", *rows, "};", "```"])
        struct = self.kernel.struct(kind, name)
        if struct is None:
            return ""
        rows = [f"    {field.type} {field.name};" for field in struct.fields[:40] if field.name]
        more = ["    …"] if len(struct.fields) > 40 else []
        return "\n".join(["```c", f"{kind} {name} {{  // {struct.size} bytes", *rows, *more, "};", "```"])

    def type_place(self, kind: str, name: str) -> Span | None:
        """Where this text defines a type in C; None if it does not."""
        match = re.search(rf"\b{kind}\s+{re.escape(name)}\s*\{{", self.source.text)
        return Span(self.source, match.start(), match.end() - 1) if match is not None else None

    def typedef(self, name: str) -> str:
        """The type that a typedef of the kernel stands for; empty for an unknown one."""
        known = self.kernel.typedef(name)
        return str(known) if known is not None else ""

    def imported(self, path: str) -> Span | None:
        """The file that an import names; None if there is none."""
        for folder in (os.path.dirname(self.source.path or "."), imports_pass.LIBRARY_FOLDER):
            place = os.path.join(folder, path)
            if os.path.isfile(place):
                return Span(Source(path, "", os.path.abspath(place)), 0, 0)
        return None

    # ------------------------------------------------------------------------------------------ questions

    def symbol(self, offset: int) -> Symbol | None:
        """The innermost name at an offset, or that ends there."""
        found = None
        for index in range(bisect_right(self._starts, offset) - 1, -1, -1):
            item = self.symbols[index]
            if item.span.end >= offset and (found is None or _size(item) < _size(found)):
                found = item
            if offset - item.span.start > 4096 or (found is not None and item.span.start < found.span.start):
                break
        return found

    def uses(self, symbol: Symbol) -> list[Span]:
        """All places of what *symbol* names, in order."""
        if symbol.identity is None:
            return [symbol.span]
        same = (item for item in self.symbols if item.identity is symbol.identity or item.identity == symbol.identity)
        places = {(item.span.start, item.span.end): item.span for item in same if item.kind == symbol.kind}
        return [places[key] for key in sorted(places)]

    def hints(self) -> Iterator[tuple[int, str]]:
        """Offsets after which inferred types are shown, and these."""
        shown: set[int] = set()
        for item in self.symbols:
            if item.kind == "variable" and item.type and item.definition is not None:
                first = item.definition.source is self.source and item.definition.start in (
                    item.span.start, item.span.start - len("let "),
                )  # fmt: skip
                declared = self.source.text[item.span.end :].lstrip().startswith(":")
                if first and not declared and id(item.identity) not in shown:
                    shown.add(id(item.identity))
                    yield item.span.end, f": {item.type}"

    def candidates(self, text: str, offset: int, points: Iterable[str] | None = None) -> list[Candidate]:
        """What may be typed at an offset of *text*, which may be newer than what was analysed.

        *points* are completions of the attach point that stands there, by :func:`attach_point`; None: there is none.
        """
        before = text[max(0, offset - 400) : offset]
        if _inside_off(text, offset):
            return []
        chain = _CHAIN.search(before)
        if chain is not None:
            type_ = self._bases().get(_base(before[: chain.start("rest")] + chain["rest"]))
            type_ = type_ or self._chain_type(before, chain, offset)
            return [item for item in _members(type_) if item.name.startswith(chain["typed"])][:MOST]
        if (kind := re.search(r"\b(struct|union|enum)\s+(\w*)\Z", before)) is not None:
            names = (name for name in self.kernel.type_names(kind[1]) if name.startswith(kind[2]))
            return [Candidate(name, "type") for name, _ in zip(names, range(MOST), strict=False)]
        if (config := re.search(r"\bconfig\s*=\s*\{(?:[^{}]*;)?\s*(\w*)\Z", text[:offset])) is not None:
            keys = (key for key in Config.__struct_fields__ if key.startswith(config[1]))
            return [Candidate(key, "setting", setting(key)) for key in keys]
        if points is not None:
            return [Candidate(name, "probe") for name in points][:MOST]
        word = re.search(r"[@$]?\w*\Z", before)
        return list(self._names(word[0] if word else "", text))

    def _names(self, typed: str, text: str) -> Iterator[Candidate]:
        known: dict[str, Candidate] = {}
        if typed.startswith(("@", "$")):
            yield from self._marked_names(typed, text)
            return
        for item in self.merged.items if self.merged is not None else ():
            if isinstance(item, nodes.Macro | nodes.Function):
                kind = "macro" if isinstance(item, nodes.Macro) else "function"
                known[item.name] = Candidate(item.name, kind, item.head.text.strip())
        for row in BUILTINS:
            if row.name != "argN":
                known.setdefault(row.name, Candidate(row.name, "builtin", row.signature, document(row)))
        for number in range(6):
            known[f"arg{number}"] = Candidate(f"arg{number}", "builtin", "uint64")
        for word in KEYWORDS:
            known.setdefault(word, Candidate(word, "keyword"))
        if typed.isupper() or "_" in typed:
            for symbol in self.symbols:
                if symbol.kind == "constant":
                    known.setdefault(symbol.name, Candidate(symbol.name, "constant", symbol.type))
        yield from (known[name] for name in sorted(known) if name.startswith(typed))

    def _marked_names(self, typed: str, text: str) -> Iterator[Candidate]:
        """Maps or variables: those that were analysed, and those that were typed since."""
        kind = "map" if typed[0] == "@" else "variable"
        known = {item.name: Candidate(item.name, kind, item.type) for item in self.symbols if item.kind == kind}
        for name in re.findall(rf"{re.escape(typed[0])}\w*", _OFF.sub("", text)):
            known.setdefault(name, Candidate(name, kind))
        yield from (known[name] for name in sorted(known) if name.startswith(typed) and name != typed)

    def _chain_type(self, before: str, chain: re.Match[str], offset: int) -> types.Type | None:
        """The type of what stands before the last dot."""
        root = chain["root"]
        if root == "args":
            unit = self._unit(offset)
            members = tuple((item.name, item.type) for item in unit.context.arguments) if unit is not None else ()
            type_: types.Type | None = types.Record(tuple(n for n, _ in members), tuple(t for _, t in members))
        elif root == ")":
            type_ = self._cast(before[: chain.start() + 1])
        else:
            type_ = self._root(root, offset)
        for step in _STEP.finditer(chain["rest"]):
            type_ = _member_type(type_, step[1]) if step[1] else _element(type_)
        return type_

    def _bases(self) -> dict[str, types.Type]:
        """Types of what members were taken of, by their text."""
        if self._known_bases is None:
            self._known_bases = {}
            for body in (*(unit.body for unit in self.units), *(item.body for item in self.checked.functions)):
                for node in nodes.walk(body):
                    if isinstance(node, nodes.FieldAccess) and (type_ := self.checked.types.get(node.base)) is not None:
                        base = re.sub(r"(?:\.|->)\s*\w+\Z", "", node.span.text)
                        self._known_bases.setdefault(re.sub(r"\s+", "", base), type_)
        return self._known_bases

    def _root(self, name: str, offset: int) -> types.Type | None:
        best: types.Type | None = None
        nearest = -1
        for body in (*(unit.body for unit in self.units), *(item.body for item in self.checked.functions)):
            for node in nodes.walk(body):
                named = f"${node.shown}" if isinstance(node, nodes.Variable) else getattr(node, "name", None)
                if isinstance(node, nodes.MapRef) and named == name and name in self.checked.maps:
                    return self.checked.maps[name].value
                if named != name or isinstance(node, nodes.FieldAccess) or not isinstance(node, nodes.Expr):
                    continue
                type_ = self.checked.types.get(node)
                start = node.span.start if node.span.source is self.basis else -1
                if type_ is not None and (best is None or (nearest < start <= offset)):
                    best, nearest = type_, start
        if best is None and name == "curtask":
            struct = self.kernel.struct("struct", "task_struct")
            best = types.Pointer(struct) if struct is not None else None
        if best is None and name == "ctx" and (unit := self._unit(offset)) is not None:
            best = unit.context.ctx_type
        return best

    def _cast(self, text: str) -> types.Type | None:
        """The type of a cast in parentheses that ends *text*: ``((struct sock *)arg0)``."""
        match = re.search(r"\(\s*\(\s*(struct|union)\s+(\w+)\s*\*?\s*\)[^()]*(?:\([^()]*\))?[^()]*\)\Z", text)
        return self.kernel.struct(match[1], match[2]) if match is not None else None

    def _unit(self, offset: int) -> ProbeUnit | None:
        """The probe at an offset; of a ``call:`` its entry, whose arguments the block has."""
        inside = [unit for unit in self.units if unit.span.source is self.basis]
        unit = next(
            (unit for unit in inside if unit.span.start <= offset <= unit.span.end),
            # The text may have grown since it was analysed.
            next((unit for unit in reversed(inside) if unit.span.start <= offset), None),
        )
        halves = [item for item in inside if unit is not None and item.role and item.span.start == unit.span.start]
        return min(halves, key=lambda item: item.role != nodes.CALL_ENTRY, default=unit)


# ---------------------------------------------------------------------------------------------- texts


class _Written(msgspec.Struct, eq=False):
    """Names as a script is written: what macros replaced, and what was not reached."""

    analysis: Analysis
    macros: dict[str, nodes.Macro]

    def symbols(self, node: nodes.Node) -> Iterator[Symbol]:
        """The names of a node, without those of nodes inside."""
        rule = None if isinstance(node.span, ExpandedSpan) else methods(_Written).get(type(node))
        if rule is not None:
            yield from rule(self, node)

    @handles(nodes.Call, nodes.Identifier)
    def _name(self, node: nodes.Call | nodes.Identifier) -> Iterator[Symbol]:
        row = builtin(node.name)
        function = self.analysis.functions.get(node.name)
        if node.name in self.macros:
            yield self.analysis.macro(_head(node.span, node.name), self.macros[node.name])
        elif function is not None:
            yield self.analysis.function(_head(node.span, node.name), function)
        elif row is not None:
            yield Symbol(_head(node.span, node.name), "builtin", node.name, "", document(row), identity=row)

    @handles(nodes.Macro)
    def _macro(self, node: nodes.Macro) -> Iterator[Symbol]:
        yield self.analysis.macro(node.head, node)

    @handles(nodes.Function)
    def _function(self, node: nodes.Function) -> Iterator[Symbol]:
        info = self.analysis.functions.get(node.name)
        if info is not None:
            yield self.analysis.function(_word(node.head, node.name), info)
        for parameter in node.parameters:
            name = f"${parameter.variable.name}"
            known = next((item for item in info.parameters if item.name == name[1:]), None) if info else None
            yield Symbol(_head(parameter.span, name), "variable", name, str(known.type) if known else "",
                         definition=known.span if known else parameter.span, identity=known)  # fmt: skip

    @handles(nodes.MapRef)
    def _map(self, node: nodes.MapRef) -> Iterator[Symbol]:
        yield self.analysis.map(node)

    @handles(nodes.AttachPoint)
    def _probe(self, node: nodes.AttachPoint) -> Iterator[Symbol]:
        yield Symbol(node.span, "probe", node.text, "", self.analysis.probe(node))

    @handles(nodes.ConfigBlock)
    def _config(self, node: nodes.ConfigBlock) -> Iterator[Symbol]:
        for entry in node.entries:
            yield Symbol(entry.key_span, "setting", entry.key, setting(entry.key), "")

    @handles(nodes.StructTypeExpr)
    def _struct(self, node: nodes.StructTypeExpr) -> Iterator[Symbol]:
        yield Symbol(node.span, "type", f"{node.kind} {node.name}", "", self.analysis.type_text(node.kind, node.name),
                     self.analysis.type_place(node.kind, node.name))  # fmt: skip

    @handles(nodes.NamedType)
    def _named_type(self, node: nodes.NamedType) -> Iterator[Symbol]:
        yield Symbol(_head(node.span, node.name), "type", node.name, self.analysis.typedef(node.name), "")

    @handles(nodes.Import)
    def _import(self, node: nodes.Import) -> Iterator[Symbol]:
        place = self.analysis.imported(node.path)
        yield Symbol(node.span, "import", node.path, "", f"imports `{node.path}`", place)


def document(row: Builtin) -> str:
    """What the reference says of a builtin, as Markdown."""
    where = {Mode.KERNEL: "in the kernel", Mode.ASYNC: "when the event is read", Mode.COMPILE: "when compiled"}
    needs = "; needs --unsafe" if row.unsafe else ""
    lines = [f"```\n{row.signature}\n```", row.doc, f"Evaluated {where[row.mode]}{needs}."]
    return "\n\n".join([*lines, *([f"```\n{row.example}\n```"] if row.example else [])])


def signature(info: FunctionInfo | ImportedFunction) -> str:
    """A function's name, parameters and result."""
    if isinstance(info, FunctionInfo):
        parameters = ", ".join(f"${item.name} : {item.type}" for item in info.parameters)
        return f"fn {info.name}({parameters}) : {info.result}"
    return f"{info.result} {info.name}({', '.join(f'{kind} {name}' for name, kind in info.parameters)})"


def setting(key: str) -> str:
    """The default of a key of the configuration; empty for an unknown one."""
    return f"default: {getattr(Config(), key)!r}" if key in Config.__struct_fields__ else ""


def attach_point(text: str, offset: int) -> str | None:
    """The attach point that is typed up to an offset; None in a body, a predicate or elsewhere."""
    before = _OFF.sub(lambda match: " " * len(match[0]), text[:offset])
    depth = before.count("{") - before.count("}")
    if depth > 0:
        return None
    last = re.split(r"[}\n;]|(?<=\s)//", before)[-1] if "}" in before or "\n" in before else before
    if re.search(r"(?:^|\s)/[^/]*\Z", last) and not re.search(r":/[^\s]*\Z", last):
        return None
    return re.split(r"[,\s]", last)[-1]


def _inside_off(text: str, offset: int) -> bool:
    """Whether an offset is inside of a string or comment."""
    return any(
        # A comment up to the end of its line goes on where one types.
        match.start() < offset < match.end() + match[0].startswith("//")
        for match in _OFF.finditer(text[: offset + 4096])
    )


def _base(text: str) -> str:
    """The expression that ends a text, without white space: names, members, calls and elements."""
    at = len(text)
    while at:
        char = text[at - 1]
        if char in ")]":
            depth = 0
            while at:
                at -= 1
                depth += (text[at] in ")]") - (text[at] in "([")
                if not depth:
                    break
        elif char.isalnum() or char in "_$@.":
            at -= 1
        elif char == ">" and text[at - 2 : at] == "->":
            at -= 2
        else:
            break
    return re.sub(r"\s+", "", text[at:])


def _closed(text: str) -> str:
    """A text with the braces that it lacks at its end."""
    plain = _OFF.sub("", text)
    return text + " }" * max(0, plain.count("{") - plain.count("}"))


def _members(type_: types.Type | None) -> Iterator[Candidate]:
    base = type_.target if isinstance(type_, types.Pointer) else type_
    if isinstance(base, types.Struct):
        for name in base.names():
            field = base.find(name)
            yield Candidate(name, "member", str(field.type) if field is not None else "")
    elif isinstance(base, types.Record):
        yield from (Candidate(name, "member", str(kind)) for name, kind in zip(base.names, base.members, strict=True))
    elif isinstance(base, types.Tuple):
        yield from (Candidate(str(index), "member", str(kind)) for index, kind in enumerate(base.members))


def _member_type(type_: types.Type | None, name: str) -> types.Type | None:
    base = type_.target if isinstance(type_, types.Pointer) else type_
    if isinstance(base, types.Struct):
        field = base.find(name)
        return field.type if field is not None else None
    if isinstance(base, types.Record) and name in base.names:
        return base.members[base.names.index(name)]
    if isinstance(base, types.Tuple) and name.isdigit() and int(name) < len(base.members):
        return base.members[int(name)]
    return None


def _element(type_: types.Type | None) -> types.Type | None:
    if isinstance(type_, types.Array):
        return type_.element
    if isinstance(type_, types.Pointer):
        return type_.target
    return type_  # the key of a map: its value


def _head(span: Span, name: str) -> Span:
    """The first part of a span, where the name stands."""
    return Span(span.source, span.start, min(span.end, span.start + len(name)))


def _tail(span: Span, name: str) -> Span:
    return Span(span.source, max(span.start, span.end - len(name)), span.end)


def _word(span: Span, name: str) -> Span:
    """The place of a name within a span."""
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", span.text)
    return Span(span.source, span.start + match.start(), span.start + match.end()) if match is not None else span


def _comment_above(span: Span) -> str:
    """The comment lines right above a definition."""
    lines = span.source.text[: span.start].rstrip(" \t").split("\n")[:-1]
    found: list[str] = []
    while lines and lines[-1].lstrip().startswith("//"):
        found.insert(0, lines.pop().strip().removeprefix("//").strip())
    return "\n".join(found)


def _size(symbol: Symbol) -> int:
    return symbol.span.end - symbol.span.start
