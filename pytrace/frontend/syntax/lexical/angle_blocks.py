"""Disambiguation of ``< … >`` blocks and the comparisons ``<`` and ``>``; docs/reference/language.md has the rule.

``<`` opens a block where a block is expected or where no operand precedes it.  ``>`` closes the innermost block only
when that block was opened by ``<`` and no bracket is open in it, and only when it cannot be an operator: no operand
precedes it, or what follows cannot be its right operand.
"""

from __future__ import annotations

import re
from enum import Enum

from pytrace.core.probes.kinds import PROBE_KINDS
from pytrace.core.probes.targets import NoTarget
from pytrace.frontend.syntax.lexical.scan import LAYOUT, skip_layout

_OPERAND_CHARS = frozenset('$@("!~{0123456789')
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEHIND_WORD = re.compile(rf"{LAYOUT}(?:(?P<colon>:)|(?P<name>=(?!=))|(?P<open>[{{<])|(?P<list>[/,]))")
_WILD_POINT = re.compile(r"[A-Za-z0-9_]*\*[A-Za-z0-9_*]*:")
_CONDITION_BLOCK = re.compile(
    r"[;{}]|(?<![=!<>])=(?!=)|\+\+|--|\b(?:if|else|for|while|unroll|let|return|break|continue)\b"
)
_BRACKETS = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|[()\[\]]')
_ASSIGNMENT = re.compile(rf"{LAYOUT}(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)")
_TARGET = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*|@[A-Za-z0-9_]*|_(?![A-Za-z0-9_])")

_NO_OPERAND = frozenset(
    {"else", "for", "while", "unroll", "let", "return", "break", "continue", "macro", "fn", "import", "config",
     "struct", "union", "enum"}
)  # fmt: skip
"""Words that can follow only a complete block."""
_OPERAND_WORDS = frozenset({"true", "false", "sizeof", "offsetof", "typeinfo", "comptime"})
_BARE_PROBES = frozenset(kind.name for kind in PROBE_KINDS if kind.target is NoTarget)
"""Probes without a colon, which have no target."""


class BlockContext(Enum):
    """The context of the block that ``>`` may close."""

    ITEM = "item"
    """The body of a probe, macro or function: another root item may follow."""
    STATEMENT = "statement"
    """A nested block: a statement of the enclosing block may follow."""


def may_close(text: str, after: int, context: BlockContext, *, ternary: bool, effect: bool) -> bool:
    """Whether ``>`` closes its block, given that an operand precedes it.

    *after* is the offset after ``>``. *ternary*: a ``?`` of the same statement has no ``:`` yet. *effect*: the
    statement so far is only a call or ``++``/``--``, which is not compared.
    """
    start = skip_layout(text, after)
    if start >= len(text):
        return True
    char = text[start]
    word = _WORD.match(text, start)
    if word is not None:
        return _word_closes(text, word, context, ternary=ternary, effect=effect)
    if char == "*" and not ternary and _WILD_POINT.match(text, start):
        return True
    if char in "+-&":
        operators = ("&&", "-=", "&=", "->")
        operand = text.startswith(char * 2, start) if char == "+" else not text.startswith(operators, start)
        return not operand or (effect and context is BlockContext.STATEMENT and text.startswith(("++", "--"), start))
    if char == "*" or char == "!":
        return text.startswith("=", start + 1)
    if char not in _OPERAND_CHARS:
        return True
    if context is BlockContext.STATEMENT and char in "$@":
        return effect or starts_assignment(text, start)
    return context is BlockContext.STATEMENT and effect and char == "{"


def _word_closes(text: str, match: re.Match[str], context: BlockContext, *, ternary: bool, effect: bool) -> bool:
    word = match.group()
    if word in _NO_OPERAND:
        return True
    if word in _OPERAND_WORDS:
        return False
    if word == "if":
        return context is BlockContext.STATEMENT
    if context is BlockContext.STATEMENT:
        return effect or (word == "_" and starts_assignment(text, match.start()))
    return starts_probe(text, match.start(), ternary=ternary)


def starts_probe(text: str, start: int, *, ternary: bool = False, statement: bool = False) -> bool:
    """Whether a probe starts at the word at offset *start*, where an operand is possible as well.

    *ternary*: a colon may belong to a ``?``. *statement*: a statement may start there as well, so ``name=`` and
    ``end /`` do not start a probe.
    """
    word = _WORD.match(text, start)
    if word is None:
        return False
    if not ternary and _WILD_POINT.match(text, start):
        return True
    following = _BEHIND_WORD.match(text, word.end())
    if following is None:
        return False
    if following.lastgroup == "colon":
        return not ternary
    if statement:
        return following.group("open") == "{"
    if following.lastgroup == "name":
        return True
    if word.group().lower() in _BARE_PROBES:
        return True
    return following.group("open") == "{"


def starts_assignment(text: str, start: int) -> bool:
    """Whether the variable or map at *start*, with its keys, is the target of an assignment."""
    target = _TARGET.match(text, start)
    if target is None:
        return False
    end = skip_layout(text, target.end())
    while text[end : end + 1] == "[":
        end = skip_layout(text, _balanced(text, end))
    return _ASSIGNMENT.match(text, end) is not None


def compares_condition(text: str, after: int) -> bool:
    """Whether the ``<`` after the condition of an ``if`` is a comparison: it is followed by an operand and a ``{``.

    *after* is the offset after ``<``.
    """
    offset = after
    while True:
        bracket = _BRACKETS.search(text, offset)
        end = bracket.start() if bracket else len(text)
        stop = _CONDITION_BLOCK.search(text, offset, end)
        if stop is not None:
            return stop.group() == "{" and bool(text[after : stop.start()].strip())
        if bracket is None or bracket.group() in ")]":
            return False
        offset = _balanced(text, bracket.start()) if bracket.group() in "([" else bracket.end()


def _balanced(text: str, start: int) -> int:
    """The offset after the bracket that closes the one at *start*, or the end of the text."""
    depth = 0
    for match in _BRACKETS.finditer(text, start):
        bracket = match.group()
        if bracket in ("(", "["):
            depth += 1
        elif bracket in (")", "]"):
            depth -= 1
            if depth <= 0:
                return match.end()
    return len(text)
