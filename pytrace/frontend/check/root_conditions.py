"""The pass over ``if comptime`` and ``fail`` at the root of a script: chooses items by what is known at compile time.

It runs before macros are expanded, so that each branch may define macros of the same name. Conditions follow the typing
rules of all expressions, but only calls and operators that need no probe are allowed in them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pytrace.core.config import Config
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.compile_options import CompileOptions
from pytrace.frontend.check.analysis import RULES
from pytrace.frontend.check.inference.checker import Checker
from pytrace.frontend.expand.c_definitions import Definitions
from pytrace.frontend.syntax import nodes
from pytrace.frontend.syntax.nodes import run_deep
from pytrace.frontend.syntax.typed_program import Existence

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
    checker = Checker(RULES, options, kernel, definitions, config, diagnostics)
    checker.make_final()
    chooser = _Chooser(checker)
    none: list[nodes.RootItem] = []
    items = run_deep(lambda: chooser.items(program.items), none, diagnostics, program.span)
    rows = tuple(fact.row for fact in checker.program.facts.values() if isinstance(fact, Existence))
    return replace(program, items=tuple(items), decided=rows)


class _Chooser:
    """Traverses the items of a script."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker

    def items(self, items: Iterable[nodes.RootItem]) -> list[nodes.RootItem]:
        """The items that are chosen."""
        return [chosen for item in items for chosen in self._item(item)]

    def _item(self, item: nodes.RootItem) -> list[nodes.RootItem]:
        while isinstance(item, nodes.RootIf):
            holds = self._holds(item.condition)
            if holds is None:
                return []
            branch, left = (item.then, item.other) if holds else (item.other, item.then)
            for other in left:
                self.checker.diagnostics.drop_warnings(other.span)
            if len(branch) != 1:
                return self.items(branch)
            item = branch[0]
        if isinstance(item, nodes.RootFail):
            self._fail(item.call)
            return []
        return [item]

    def _fail(self, call: nodes.Expr) -> None:
        if isinstance(call, nodes.Call) and call.name == "fail":
            self.checker.rules.expressions[nodes.Call](self.checker, call)
        else:
            self.checker.error("only fail() can stand here", call.span)

    def _holds(self, condition: nodes.Expr) -> bool | None:
        """Whether a condition is true; None after an error."""
        checker = self.checker
        if not self._possible(condition):
            return None
        known = len(checker.diagnostics.errors)
        holds = checker.condition(condition)
        if holds is None and len(checker.diagnostics.errors) == known:
            hints = checker.constant_hints(condition)
            checker.error("this condition cannot be decided at compile time", condition.span, hints=hints)
        return holds

    def _possible(self, node: nodes.Expr) -> bool:
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
        return all(self._possible(part) for part in nodes.children(node) if isinstance(part, nodes.Expr))
