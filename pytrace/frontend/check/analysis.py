"""Semantic analysis, the last pass of the front end: scopes, types, checks, resources.

See :mod:`pytrace.frontend.check.inference.checker` for how it works, and :mod:`pytrace.frontend.syntax.typed_program`
for its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pytrace.base.dispatch import by_class, on
from pytrace.core.builtins import builtin
from pytrace.core.config import Config
from pytrace.core.diagnostics import Diagnostics, InternalError
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.compile_options import CompileOptions
from pytrace.core.probes.targets import FileTarget
from pytrace.core.source import Source, Span
from pytrace.core.types import INT64, VOID, Type
from pytrace.frontend.check.builtins.table import CHECKS
from pytrace.frontend.check.inference import removed_code, type_names
from pytrace.frontend.check.inference.checker import Checker, Rules
from pytrace.frontend.check.inference.conversions import UNKNOWN, Unknown, contains_unknown, settle
from pytrace.frontend.check.inference.removed_code import look
from pytrace.frontend.check.inference.resources import declare_map, finish_maps, join_prints
from pytrace.frontend.check.inference.slots import Scope, Slot, VariableState
from pytrace.frontend.check.rules import calls, casts, expressions, members, operators
from pytrace.frontend.check.rules.statements import check_block, check_body, check_if
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.probes import attach_points
from pytrace.frontend.probes.attach_points import left_out
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import run_deep
from pytrace.frontend.syntax.typed_program import CheckedProgram, FunctionInfo, ProbeUnit, VariableInfo

MAX_PASSES = 60

EXPRESSIONS: Mapping[type[nodes.Expr], Callable[[Checker, nodes.Expr], Type]] = by_class(
    on(nodes.IntLiteral, expressions.integer),
    on(nodes.FloatLiteral, expressions.fraction),
    on(nodes.BoolLiteral, expressions.boolean),
    on(nodes.StringLiteral, expressions.string),
    on(nodes.OpenParameter, expressions.parameter),
    on(nodes.PositionalParam, expressions.unreplaced_parameter),
    on(nodes.ParamCount, expressions.unreplaced_parameter),
    on(nodes.Identifier, expressions.identifier),
    on(nodes.Variable, expressions.variable),
    on(nodes.MapRef, expressions.map_value),
    on(nodes.MapIndex, expressions.map_index),
    on(nodes.Unary, operators.unary),
    on(nodes.Binary, operators.binary),
    on(nodes.Ternary, expressions.ternary),
    on(nodes.Cast, casts.cast),
    on(nodes.FieldAccess, members.field_access),
    on(nodes.TupleAccess, members.tuple_access),
    on(nodes.Index, members.index),
    on(nodes.Call, calls.call),
    on(nodes.Sizeof, members.size_of),
    on(nodes.Offsetof, members.offset_of),
    on(nodes.TypeInfo, members.type_info),
    on(nodes.Comptime, expressions.comptime),
    on(nodes.TupleLiteral, expressions.tuple_literal),
    on(nodes.RecordLiteral, expressions.record_literal),
    on(nodes.If, expressions.if_value),
    on(nodes.BlockExpr, expressions.block_value),
)
"""Typing rules by class of expression."""


def _probe_exists(checker: Checker, text: str, span: Span) -> bool:
    problems = Diagnostics()
    exists = attach_points.exists(text, checker.options, checker.kernel, checker.config, problems)
    for problem in problems.errors:
        checker.error(problem.message, span, hints=problem.hints)
    return exists


RULES = Rules(EXPRESSIONS, CHECKS, check_if, check_block, _probe_exists)


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
    places = (target.place for unit in units for target in unit.targets)
    definitions.binaries = tuple(dict.fromkeys(place.path for place in places if isinstance(place, FileTarget)))
    checker = Checker(RULES, options, kernel, definitions, config, diagnostics)
    return run_deep(lambda: _analyse(checker, units, program), checker.program, diagnostics, program.span)


def _analyse(checker: Checker, units: list[ProbeUnit], program: nodes.Program) -> CheckedProgram:
    checker.program.units = list(units)
    calls.read_imports(checker, program)
    functions = _functions(checker, program)
    declarations = [item for item in program.items if isinstance(item, nodes.MapDecl)]
    for _ in range(MAX_PASSES):
        if not checker.begin_pass():
            break
        if checker.searching and checker.left_out is None:
            checker.left_out = left_out(program, units, checker.options, checker.kernel, checker.config)
        _check_all(checker, functions, declarations)
    else:
        checker.make_final()
        _endless(checker)
        return checker.program
    checker.make_final()
    _report_functions(checker, program)
    _check_all(checker, functions, declarations)
    return _finish(checker, program)


def _endless(checker: Checker) -> None:
    """Report the slots whose types grow with each pass: ``@a = (@a, 1)``."""
    named = [(name, state.slots, state.span) for name, state in checker.maps.items()]
    named += [(f"${state.name}", (state.slot, state.slot), state.span) for state in checker.variables.values()]
    # Types that contain each other may grow alternately.
    growing = [(name, span) for name, slots, span in named if any(slot.changed > MAX_PASSES // 2 for slot in slots)]
    if not growing:
        raise InternalError("type inference does not converge")
    for name, span in growing:
        if span is not None:
            checker.error(f"the type of {name} contains itself", span)


# ---------------------------------------------------------------------------------------------- functions

_Functions = list[tuple[FunctionInfo, nodes.Function, list[VariableState]]]


def _functions(checker: Checker, program: nodes.Program) -> _Functions:
    functions: _Functions = []
    for node in program.items:
        if isinstance(node, nodes.Function) and node.name not in checker.functions:
            info, states = _function(checker, node)
            checker.functions[node.name] = info
            functions.append((info, node, states))
    return functions


def _function(checker: Checker, node: nodes.Function) -> tuple[FunctionInfo, list[VariableState]]:
    states = []
    for parameter in node.parameters:
        type_ = type_names.resolve(checker, parameter.type)
        info = VariableInfo(parameter.variable.name, type_, parameter.span)
        states.append(
            VariableState(info.name, parameter.variable, Slot(fixed=type_), info, parameter.span, assigned=True)
        )
    result = type_names.resolve(checker, node.result) if node.result is not None else VOID
    parameters = tuple(state.info for state in states)
    return FunctionInfo(node.name, f"fn_{node.name}", parameters, result, node.body, node.head), states


def _report_functions(checker: Checker, program: nodes.Program) -> None:
    """Report errors in function signatures."""
    seen: dict[str, Span] = {}
    for node in program.items:
        if not isinstance(node, nodes.Function):
            continue
        if node.name in seen:
            notes = [("first defined here", seen[node.name])]
            checker.error(f"the function {node.name!r} is already defined", node.head, notes=notes)
        row = builtin(node.name)
        if row is not None and not row.yields:
            checker.error(f"{node.name!r} is the name of a builtin", node.head)
        seen.setdefault(node.name, node.head)
        for parameter in node.parameters:
            _check_passed(checker, type_names.resolve(checker, parameter.type), parameter.span, "a parameter")
        if node.result is not None:
            _check_passed(checker, type_names.resolve(checker, node.result), node.result.span, "a result")


def _check_passed(checker: Checker, type_: Type, span: Span, what: str) -> None:
    if not isinstance(type_, Unknown) and type_ != VOID and not type_.scalar:
        checker.error(f"{what} of a function must be an integer, bool, enum or pointer, not {type_}", span)


def _check_function(checker: Checker, info: FunctionInfo, node: nodes.Function, states: list[VariableState]) -> None:
    checker.function, checker.unit = info, None
    checker.scope = Scope(None)
    for state in states:
        state.assigned = True
        if state.name in checker.scope.names:
            checker.error(f"${state.name} is already a parameter", state.span)
        checker.scope.names[state.name] = state
        checker.variables[state.node] = state
        checker.bind(state.node, state)
    with checker.block():
        check_body(checker, node.body, wanted=False)
    checker.function = None


def _check_recursion(checker: Checker, calls: dict[str, list[tuple[FunctionInfo, Span]]]) -> None:
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
                    checker.error(f"a function cannot call itself: {chain}", span)
            elif callee.name not in done:
                visit(callee.name, (*path, callee.name))
        done.add(name)

    for name in calls:
        visit(name, (name,))


# ---------------------------------------------------------------------------------------------- passes


def _check_all(checker: Checker, functions: _Functions, declarations: list[nodes.MapDecl]) -> None:
    checker.scope = Scope(None)
    for declaration in declarations:
        declare_map(checker, declaration)
    called: dict[str, list[tuple[FunctionInfo, Span]]] = {}
    for info, node, states in functions:
        checker.callees = []
        _check_function(checker, info, node, states)
        called[info.name] = checker.callees
    for unit in checker.program.units:
        _check_unit(checker, unit)
    for unit in checker.left_out or ():
        look(checker, removed_code.left_out(unit.span), partial(_check_unit, checker, unit))
    if checker.final:
        _check_recursion(checker, called)


def _check_unit(checker: Checker, unit: ProbeUnit) -> None:
    checker.unit, checker.function = unit, None
    checker.callees = []
    checker.scope = Scope(None)
    with checker.block():
        check_body(checker, unit.body, wanted=False)
    checker.unit = None


def _finish(checker: Checker, program: nodes.Program) -> CheckedProgram:
    join_prints(checker.program)
    checked = checker.program
    finish_maps(checker)
    for state in checker.variables.values():
        type_ = settle(state.slot.type)
        state.info.type = INT64 if isinstance(type_, Unknown) else type_
    for variable, info in checked.variables.items():
        checked.types[variable] = info.type
    if not checker.diagnostics.failed:
        _check_complete(checker)
    checked.types = {node: settle(type_) for node, type_ in checked.types.items()}
    checked.types.update(checker.retyped)
    checked.functions = list(checker.functions.values())
    checked.objects = [item.data for item in program.objects]
    checked.decided = program.decided
    checked.config = checker.config
    checked.sources = _sources(program)
    return checked


def _check_complete(checker: Checker) -> None:
    """Check that every unknown type has an error that explains it."""
    for node, kind in checker.program.types.items():
        if contains_unknown(kind) and node not in checker.program.constants and kind is UNKNOWN:
            checker.error("the type of this expression cannot be inferred", node.span)
            return


def _sources(program: nodes.Program) -> list[Source]:
    sources = [program.span.source]
    for item in program.items:
        if item.span.source not in sources:
            sources.append(item.span.source)
    return sources
