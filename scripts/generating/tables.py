"""Generates the text of the shipped tables, for ``scripts/generate-tables`` and the tests.

:mod:`pytrace.frontend.syntax.grammar_tables` are the LALR tables of the grammar,
:mod:`pytrace.frontend.syntax.lexer_tables` the regular expressions of the lexer, one for each of its states.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from ply import lex, yacc

from pytrace.frontend.syntax import grammar, lexer

LexRule = tuple[object, str] | None
"""A rule of the lexer (its function or its name) and the kind of its tokens; None for other groups."""


class Generated(msgspec.Struct):
    """A module's text, and problems of the rules (conflicts, unused tokens and rules)."""

    text: str = ""
    messages: list[str] = msgspec.field(default_factory=list)


class _Collector:
    """The logger that collects PLY's messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def _note(self, message: str, *arguments: object) -> None:
        self.messages.append(message % arguments if arguments else message)

    error = warning = critical = _note


def generate_lexer() -> Generated:
    """Build the tables of the lexer."""
    log = _Collector()
    try:
        ply_lexer = lex.lex(module=lexer, reflags=int(re.DOTALL), errorlog=log)
    except SyntaxError:  # the error was logged
        return Generated(messages=log.messages)
    return Generated("" if log.messages else _lexer_text(ply_lexer), log.messages)


def _lexer_text(lexer: lex.Lexer) -> str:
    lines = [
        '"""The tables of the lexer, written by scripts/generate-tables. Do not edit."""',
        "",
        '_tabversion = "3.10"',
        f"_lextokens = set({sorted(lexer.lextokens)!r})",
        f"_lexreflags = {lexer.lexreflags!r}",
        f"_lexliterals = {lexer.lexliterals!r}",
        f"_lexstateinfo = {lexer.lexstateinfo!r}",
        f"_lexstateignore = {dict(sorted(lexer.lexstateignore.items()))!r}",
        f"_lexstateerrorf = {_names(lexer.lexstateerrorf)!r}",
        f"_lexstateeoff = {_names(lexer.lexstateeoff)!r}",
        "_lexstatere = {",
    ]
    for state, expressions in lexer.lexstatere.items():
        texts, names = lexer.lexstateretext[state], lexer.lexstaterenames[state]
        table = [
            (text, _rule_names(rules, named)) for (_, rules), text, named in zip(expressions, texts, names, strict=True)
        ]
        lines.append(f"{state!r}: {table!r},")
    return "\n".join([*lines, "}", ""])


def _rule_names(rules: list[LexRule], names: list[str | None]) -> list[LexRule]:
    """PLY's entries for the groups of a regular expression, with rule functions replaced by their names."""
    return [(name, rule[1]) if rule and rule[0] else rule for rule, name in zip(rules, names, strict=True)]


def _names(functions: dict[str, Callable[..., object]]) -> dict[str, str]:
    """The names of rules, by state."""
    return {state: rule.__name__ for state, rule in sorted(functions.items())}


def generate() -> Generated:
    """Build the tables of the grammar."""
    log = _Collector()
    reflected = yacc.ParserReflect(vars(grammar), log=log)
    reflected.get_all()
    rules = yacc.Grammar(reflected.tokens)
    reflected.validate_tokens()
    reflected.validate_precedence()
    reflected.validate_pfunctions()
    for term, side, level in reflected.preclist:
        rules.set_precedence(term, side, level)
    for function, (file, line, name, symbols) in sorted(reflected.grammar, key=_order):
        rules.add_production(name, symbols, function, file, line)
    rules.set_start(reflected.start)
    log.messages.extend(_complaints(rules))
    if log.messages:
        return Generated(messages=log.messages)
    table = yacc.LRGeneratedTable(rules, "LALR", yacc.NullLogger())
    conflicts = [*_shift_reduce(table), *_reduce_reduce(table)]
    return Generated(_text(table, "pytrace"), conflicts)


def _order(entry: tuple[str, tuple[str, int, str, list[str]]]) -> tuple[str, str, list[str]]:
    """Sort key of rules that does not depend on their position in the source."""
    function, (_, _, name, symbols) = entry
    return (name, function, symbols)


def _complaints(rules: yacc.Grammar) -> list[str]:
    problems = [f"{rule.file}:{rule.line}: symbol {name!r} is not defined" for name, rule in rules.undefined_symbols()]
    if problems:
        return problems
    problems += [f"token {name!r} is not used" for name in rules.unused_terminals()]
    problems += [f"rule {rule.name!r} is not used" for rule in rules.unused_rules()]
    problems += [f"symbol {name!r} cannot be reached" for name in rules.find_unreachable()]
    problems += [f"symbol {name!r} never ends" for name in rules.infinite_cycles()]
    return problems + [f"precedence of unknown symbol {name!r}" for name, _ in rules.unused_precedence()]


def _shift_reduce(table: yacc.LRGeneratedTable) -> list[str]:
    return [f"shift/reduce conflict for {token} in state {state}" for state, token, _ in table.sr_conflicts]


def _reduce_reduce(table: yacc.LRGeneratedTable) -> list[str]:
    return [
        f"reduce/reduce conflict in state {state}: {kept} / {dropped}" for state, kept, dropped in table.rr_conflicts
    ]


def _text(table: yacc.LRGeneratedTable, signature: str) -> str:
    rows: dict[tuple[tuple[str, int], ...], int] = {}
    states = []
    for state in sorted(table.lr_action):
        row = tuple(sorted(table.lr_action[state].items()))
        states.append((state, rows.setdefault(row, len(rows))))
    lines = [
        '"""The LALR tables of the grammar, written by scripts/generate-tables. Do not edit."""',
        "",
        '_tabversion = "3.10"',
        '_lr_method = "LALR"',
        f"_lr_signature = {signature!r}",
        "_rows = [",
        *(f"{dict(row)!r}," for row in rows),
        "]",
        "_lr_action = {",
        *(f"{state}: _rows[{row}]," for state, row in states),
        "}",
        "_lr_goto = {",
        *(f"{state}: {dict(sorted(table.lr_goto[state].items()))!r}," for state in sorted(table.lr_goto)),
        "}",
        "_lr_productions = [",
    ]
    lines.extend(
        f"({str(rule)!r}, {rule.name!r}, {rule.len}, {rule.func!r}, None, None)," for rule in table.lr_productions
    )
    return "\n".join([*lines, "]", ""])
