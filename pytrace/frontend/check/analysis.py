"""Semantic analysis, the last pass of the front end: scopes, types, checks, resources.

See :mod:`pytrace.frontend.check.checker` for how it works, and :mod:`pytrace.frontend.syntax.typed_program` for its
result. :func:`choose` is the pass over ``if comptime`` and ``fail`` at the root of a script, which uses the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module

from msgspec.structs import replace

from pytrace.base.dispatch import handlers
from pytrace.core.builtins import JOINED, Builtin, builtin
from pytrace.core.diagnostics import Diagnostics, InternalError
from pytrace.core.event_layout import EmptiedMap, EventSpec, OfMap, PrintedMap
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options import CompileOptions, Config
from pytrace.core.probe_kinds import BEGIN, END, FileTarget
from pytrace.core.source import Span
from pytrace.core.types import INT64, VOID, Type
from pytrace.frontend.check.calls import ArgumentChecks, Calls, Events
from pytrace.frontend.check.checker import Arguments, Checker, Node, Scope, Slot, VariableState, skipped_probe
from pytrace.frontend.check.conversions import UNKNOWN, Unknown, settle
from pytrace.frontend.check.expressions import BuiltinChecks, Expressions, Operators
from pytrace.frontend.check.maps import Maps
from pytrace.frontend.check.members import Casts, Members, TypeNames
from pytrace.frontend.check.statements import Statements
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.probes.attach_points import left_out
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import run_deep, walk
from pytrace.frontend.syntax.typed_program import CheckedProgram, Existence, FunctionInfo, ProbeUnit, VariableInfo

_MAX_PASSES = 60

_MODULES = {**JOINED, "stack": "context", "aggregate": "map"}
"""Families of builtins whose checks are in the module of another one."""

_HARMLESS = frozenset(
    (
        *("print_map", "print_value", "row", "print_rows", "quantiles", "clear", "zero"),
        *("printf", "heading", "time", "cat", "join", "system", "warnf"),
    )
)
"""Events of statements that are allowed between the two."""


def analyse(
    units: list[ProbeUnit],
    program: nodes.Program,
    options: CompileOptions,
    kernel: KernelInfo,
    definitions: Definitions,
    config: Config,
    diagnostics: Diagnostics,
) -> CheckedProgram:
    """Check the whole script and infer all types.

    Args:
        units: the programs with their targets, from the pass over attach points.
        program: the AST with macros expanded; its functions and map declarations are read from here.
        options: options of the compilation.
        kernel: facts about the machine.
        definitions: C types, enumerators and macros.
        config: the script's configuration.
        diagnostics: receives errors and warnings.

    Returns:
        The typed program, which is complete only if no error was reported.
    """
    if any(unit.kind.user for unit in units):
        places = (target.place for unit in units for target in unit.targets)
        definitions.binaries = tuple(dict.fromkeys(place.path for place in places if isinstance(place, FileTarget)))
    checker = Checker(options, kernel, definitions, config, diagnostics)
    analysis = Analysis(checker)
    return run_deep(lambda: analysis.run(units, program), checker.program, diagnostics, program.span)


# ---------------------------------------------------------------------------------------------- functions

_Functions = list[tuple[FunctionInfo, nodes.Function, list[VariableState]]]


def _join_prints(checked: CheckedProgram) -> None:
    """Merge all such pairs in the script, and those of a loop over a map and ``clear()``."""
    for unit in checked.units:
        for node in walk(unit.body):
            if isinstance(node, nodes.Block):
                _join_block(checked, node)
                # What comes after these in an end probe is not to be printed.
                if unit.kind.name not in {BEGIN, END}:
                    _join_loops(checked, node)


class Analysis:
    """Semantic analysis of one script: the collaborators of a checker, and the passes over the script."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.maps = maps = Maps(checker)
        self.type_names = type_names = TypeNames(checker)
        self._events, self._checks = Events(checker), ArgumentChecks(checker)
        self._builtins: dict[str, Callable[[Node, Arguments], Type]] = {}
        members = Members(checker, self._checks, type_names)
        casts = Casts(checker, type_names, members)
        self.calls = calls = Calls(checker, self.check_of)
        expressions = Expressions(checker, calls)
        operators = Operators(checker, maps, members, expressions)
        self.statements = statements = Statements(checker, maps, type_names, calls, expressions, operators)
        for collaborator in (maps, self._checks, members, casts, calls, expressions, operators, statements):
            checker.rules.update(handlers(collaborator))

    def check_of(self, row: Builtin) -> Callable[[Node, Arguments], Type]:
        """The check of a builtin. The module of its family is imported when a script uses one: that starts faster."""
        if row.name not in self._builtins:
            module = import_module(f"pytrace.frontend.check.{_MODULES.get(row.family, row.family)}_family")
            families: tuple[type[BuiltinChecks], ...] = module.FAMILIES
            for family in families:
                checks = family(self.checker, self._events, self._checks, self.maps, self.type_names)
                self._builtins.update(handlers(checks))
        return self._builtins[row.name]

    def run(self, units: list[ProbeUnit], program: nodes.Program) -> CheckedProgram:
        """The typed program of a script."""
        self.checker.program.units = list(units)
        self.calls.read_imports(program)
        functions: _Functions = []
        declarations: list[nodes.MapDecl] = []
        for item in program.items:
            if isinstance(item, nodes.MapDecl):
                declarations.append(item)
            elif isinstance(item, nodes.Function) and item.name not in self.checker.functions:
                info, states = self._function(item)
                self.checker.functions[item.name] = info
                functions.append((info, item, states))
        for _ in range(_MAX_PASSES):
            if not self.checker.begin_pass():
                break
            if self.checker.searching and self.checker.left_out is None:
                self.checker.left_out = left_out(
                    program, units, self.checker.options, self.checker.kernel, self.checker.config
                )
            self._check_all(functions, declarations)
        else:
            self.checker.make_final()
            self._report_endless_types()
            return self.checker.program
        self.checker.make_final()
        if functions:
            self._report_functions(program)
        self._check_all(functions, declarations)
        return self._finish(program)

    def _report_endless_types(self) -> None:
        """Report the slots whose types grow with each pass: ``@a = (@a, 1)``."""
        named = [(name, state.slots, state.span) for name, state in self.checker.maps.items()]
        named += [(f"${state.name}", (state.slot, state.slot), state.span) for state in self.checker.variables.values()]
        # Types that contain each other may grow alternately.
        half = _MAX_PASSES // 2
        growing = [(name, span) for name, slots, span in named if any(slot.changed > half for slot in slots)]
        if not growing:
            raise InternalError("type inference does not converge")
        for name, span in growing:
            if span is not None:
                self.checker.error(f"the type of {name} contains itself", span)

    def _function(self, node: nodes.Function) -> tuple[FunctionInfo, list[VariableState]]:
        states = []
        for parameter in node.parameters:
            type_ = self.type_names.resolve(parameter.type)
            info = VariableInfo(parameter.variable.name, type_, parameter.span)
            states.append(
                VariableState(info.name, parameter.variable, Slot(fixed=type_), info, parameter.span, assigned=True)
            )
        result = self.type_names.resolve(node.result) if node.result is not None else VOID
        parameters = tuple(state.info for state in states)
        return FunctionInfo(node.name, f"fn_{node.name}", parameters, result, node.body, node.head), states

    def _report_functions(self, program: nodes.Program) -> None:
        """Report errors in function signatures."""
        seen: dict[str, Span] = {}
        for node in program.items:
            if not isinstance(node, nodes.Function):
                continue
            if node.name in seen:
                notes = [("first defined here", seen[node.name])]
                self.checker.error(f"the function {node.name!r} is already defined", node.head, notes=notes)
            row = builtin(node.name)
            if row is not None and not row.yields:
                self.checker.error(f"{node.name!r} is the name of a builtin", node.head)
            seen.setdefault(node.name, node.head)
            for parameter in node.parameters:
                self._check_scalar(self.type_names.resolve(parameter.type), parameter.span, "a parameter")
            if node.result is not None:
                self._check_scalar(self.type_names.resolve(node.result), node.result.span, "a result")

    def _check_scalar(self, type_: Type, span: Span, what: str) -> None:
        if not isinstance(type_, Unknown) and type_ != VOID and not type_.scalar:
            self.checker.error(f"{what} of a function must be an integer, bool, enum or pointer, not {type_}", span)

    def _check_function(self, info: FunctionInfo, node: nodes.Function, states: list[VariableState]) -> None:
        self.checker.function, self.checker.unit = info, None
        self.checker.scope = Scope(None)
        for state in states:
            state.assigned = True
            if state.name in self.checker.scope.names:
                self.checker.error(f"${state.name} is already a parameter", state.span)
            self.checker.scope.names[state.name] = state
            self.checker.variables[state.node] = state
            self.checker.bind(state.node, state)
        with self.checker.block():
            self.statements.check_body(node.body, wanted=False)
        self.checker.function = None

    def _check_recursion(self, calls: dict[str, list[tuple[FunctionInfo, Span]]]) -> None:
        """Report recursion: the stack of BPF programs is limited, and the verifier rejects recursion."""
        reported: set[frozenset[str]] = set()
        done: set[str] = set()

        def visit(name: str, path: tuple[str, ...]) -> None:
            for callee, span in calls.get(name, []):
                if callee.name in path:
                    cycle = path[path.index(callee.name) :]
                    if frozenset(cycle) not in reported:
                        reported.add(frozenset(cycle))
                        chain = " → ".join((*cycle, callee.name))
                        self.checker.error(f"a function cannot call itself: {chain}", span)
                elif callee.name not in done:
                    visit(callee.name, (*path, callee.name))
            done.add(name)

        for name in calls:
            visit(name, (name,))

    # ------------------------------------------------------------------------------------------ passes

    def _check_all(self, functions: _Functions, declarations: list[nodes.MapDecl]) -> None:
        self.checker.scope = Scope(None)
        for declaration in declarations:
            self.maps.declare(declaration)
        called: dict[str, list[tuple[FunctionInfo, Span]]] = {}
        for info, node, states in functions:
            self.checker.callees = []
            self._check_function(info, node, states)
            called[info.name] = self.checker.callees
        for unit in self.checker.program.units:
            self._check_unit(unit)
        for unit in self.checker.left_out or ():
            self.checker.check_removed(skipped_probe(unit.span), partial(self._check_unit, unit))
        if self.checker.final and called:
            self._check_recursion(called)

    def _check_unit(self, unit: ProbeUnit) -> None:
        self.checker.unit, self.checker.function = unit, None
        self.checker.callees = []
        self.checker.scope = Scope(None)
        with self.checker.block():
            self.statements.check_body(unit.body, wanted=False)
        self.checker.unit = None

    def _finish(self, program: nodes.Program) -> CheckedProgram:
        checked = self.checker.program
        checked.functions = list(self.checker.functions.values())
        if checked.events:
            _join_prints(checked)
        self.maps.finish()
        for state in self.checker.variables.values():
            type_ = settle(state.slot.type)
            state.info.type = INT64 if isinstance(type_, Unknown) else type_
        for variable, info in checked.variables.items():
            checked.types[variable] = info.type
        if not self.checker.diagnostics.failed:
            # Every unknown type has an error that explains it.
            for node, type_ in checked.types.items():
                if type_ is UNKNOWN and node not in checked.constants:
                    self.checker.error("the type of this expression cannot be inferred", node.span)
                    break
        checked.types = {node: settle(type_) for node, type_ in checked.types.items()}
        checked.types.update(self.checker.retyped)
        checked.objects = [item.data for item in program.objects]
        checked.decided = program.decided
        checked.config = self.checker.config
        for item in (program, *program.items):
            if item.span.source not in checked.sources:
                checked.sources.append(item.span.source)
        return checked


# ---------------------------------------------------------------------------------------------- items at the root

QUESTIONS = (
    "kfunc_exist", "probe_exist", "type_exist", "constant_exist", "symbol_exist", "one_of", "config", "kfunc_allowed",
)  # fmt: skip
"""Builtins that a condition at the root may call, other than ``member_exist``."""

_OPERATORS = frozenset({"!", "-", "~"})
_PARTS = (
    nodes.IntLiteral,
    nodes.BoolLiteral,
    nodes.StringLiteral,
    nodes.OpenParameter,
    nodes.Binary,
    nodes.Ternary,
    nodes.Comptime,
)
_HINT = (
    "possible are literals, $1, getopt(), operators, and calls of kfunc_exist, kfunc_allowed, probe_exist, type_exist, "
    "member_exist, constant_exist, symbol_exist, one_of and config, "
    "and has_filter"
)


def choose(
    program: nodes.Program,
    options: CompileOptions,
    kernel: KernelInfo,
    definitions: Definitions,
    config: Config,
    diagnostics: Diagnostics,
) -> nodes.Program:
    """*program* with each ``if comptime`` replaced by the items of the branch taken.

    Args:
        program: the AST with parameters replaced by their values.
        options: options of the compilation.
        kernel: facts about the machine.
        definitions: C types, enumerators and macros.
        config: the script's configuration.
        diagnostics: receives errors in conditions, and the messages of ``fail``.
    """
    if not any(isinstance(item, nodes.RootIf | nodes.RootFail) for item in program.items):
        return program
    checker = Checker(options, kernel, definitions, config, diagnostics)
    Analysis(checker)
    checker.make_final()
    chooser = _Chooser(checker)
    none: list[nodes.RootItem] = []
    items = run_deep(lambda: chooser.items(program.items), none, diagnostics, program.span)
    rows = tuple(fact.row for fact in checker.program.facts.values() if isinstance(fact, Existence))
    return replace(program, items=tuple(items), decided=rows)


def _sender(item: nodes.Node) -> nodes.Node:
    """The expression of a statement that may send an event."""
    return item.value if isinstance(item, nodes.ExprStmt) else item


def _event(checked: CheckedProgram, item: nodes.Stmt | nodes.Expr) -> EventSpec | None:
    """The event of a statement that only sends an event."""
    node = _sender(item)
    if item in checked.dead or not isinstance(node, nodes.Call):
        return None
    return checked.events.get(node)


def _following_events(
    checked: CheckedProgram, items: list[nodes.Stmt | nodes.Expr], name: str
) -> Iterator[tuple[nodes.Node, EventSpec]]:
    """The following events on the map *name*, up to the first statement that could use the map."""
    for item in items:
        if item in checked.dead:
            continue
        spec = _event(checked, item)
        if spec is None or spec.kind not in _HARMLESS:
            return
        if isinstance(spec.static, OfMap) and spec.static.map == name:
            yield item, spec
            if spec.kind != "clear":
                return
        elif any(isinstance(node, nodes.MapRef) and node.name == name for node in walk(item)):
            return


def _join_block(checked: CheckedProgram, block: nodes.Block) -> None:
    items: list[nodes.Stmt | nodes.Expr] = [*block.statements, *([] if block.value is None else [block.value])]
    for index, item in enumerate(items):
        spec = _event(checked, item)
        if spec is None or not isinstance(spec.static, PrintedMap) or spec.static.clear:
            continue
        for later, other in _following_events(checked, items[index + 1 :], spec.static.map):
            if other.kind == "clear":
                checked.amend(_sender(item), replace(spec.static, clear=True))
                checked.amend(_sender(later), replace(other.static_part(EmptiedMap), joined=True))
                checked.dead.add(later)
                break


def _leaves(node: nodes.Node) -> bool:
    """Whether a node may end what follows it in its block."""
    return isinstance(node, nodes.Break | nodes.Continue | nodes.Return) or (
        isinstance(node, nodes.Call) and node.name == "exit"
    )


def _join_loops(checked: CheckedProgram, block: nodes.Block) -> None:
    """Let loops over maps that the block clears afterwards delete what they read.

    What other CPUs add after that would be lost with ``clear()``, or be read twice if that is late. Maps that are
    cleared without a loop of their own may be read beside the others: then all are cleared as before, as averages of
    two maps would be wrong.
    """
    items: list[nodes.Stmt | nodes.Expr] = [*block.statements, *([] if block.value is None else [block.value])]
    functions = {info.name for info in checked.functions}
    loops: dict[str, nodes.For] = {}
    pairs: list[tuple[nodes.For, nodes.Stmt | nodes.Expr]] = []
    for item in items:
        spec = _event(checked, item)
        if spec is not None and spec.kind == "clear":
            loop = loops.pop(spec.static_part(EmptiedMap).map, None)
            if loop is None:
                return
            pairs.append((loop, item))
            continue
        below = list(walk(item))
        # Functions of the script may read any map.
        calls = any(isinstance(node, nodes.Call) and node.name in functions for node in below)
        if calls or any(map(_leaves, below)):
            loops.clear()
        names = [node.name for node in below if isinstance(node, nodes.MapRef)]
        for name in names:
            loops.pop(name, None)
        if isinstance(item, nodes.For) and isinstance(item.source, nodes.MapRef) and names.count(item.source.name) == 1:
            if not calls and not any(_leaves(node) and not isinstance(node, nodes.Continue) for node in below):
                loops[item.source.name] = item
    for loop, item in pairs:
        spec = checked.events[_sender(item)]
        checked.taking.add(loop)
        checked.amend(_sender(item), replace(spec.static_part(EmptiedMap), joined=True))
        checked.dead.add(item)


class _Chooser:
    """Traverses the items of a script."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker

    def items(self, items: Iterable[nodes.RootItem]) -> list[nodes.RootItem]:
        """The items that are chosen."""
        return [chosen for item in items for chosen in self._item(item)]

    def _item(self, item: nodes.RootItem) -> list[nodes.RootItem]:
        while isinstance(item, nodes.RootIf):
            holds = self._truth(item.condition)
            if holds is None:
                return []
            branch, left = (item.then, item.other) if holds else (item.other, item.then)
            for other in left:
                self.checker.diagnostics.drop_warnings(other.span)
            if len(branch) != 1:
                return self.items(branch)
            item = branch[0]
        if isinstance(item, nodes.RootFail):
            self._report_failure(item.call)
            return []
        return [item]

    def _report_failure(self, call: nodes.Expr) -> None:
        if isinstance(call, nodes.Call) and call.name == "fail":
            self.checker.rules[nodes.Call](call)
        else:
            self.checker.error("only fail() can stand here", call.span)

    def _truth(self, condition: nodes.Expr) -> bool | None:
        """Whether a condition is true; None after an error."""
        checker = self.checker
        if not self._check_parts(condition):
            return None
        known = len(checker.diagnostics.errors)
        holds = checker.condition(condition)
        if holds is None and len(checker.diagnostics.errors) == known:
            hints = checker.constant_hints(condition)
            checker.error("this condition cannot be decided at compile time", condition.span, hints=hints)
        return holds

    def _check_parts(self, node: nodes.Expr) -> bool:
        """Whether a condition consists only of expressions known at this point; reports the first one that is not."""
        if isinstance(node, nodes.Call) and node.name == "member_exist":
            return True
        fine = isinstance(node, _PARTS)
        if isinstance(node, nodes.Unary):
            fine = node.operator in _OPERATORS
        elif isinstance(node, nodes.Identifier):
            fine = node.name == "has_filter"
        elif isinstance(node, nodes.Call):
            fine = node.name in QUESTIONS
            if node.name == "type_exist":
                return True
        if not fine:
            self.checker.error("this is not known where items are chosen", node.span, hints=[_HINT])
            return False
        return all(self._check_parts(part) for part in nodes.children(node) if isinstance(part, nodes.Expr))
