"""The token filter between lexer and grammar: pairs brackets, and marks tokens whose meaning depends on context.

For each item, this module

- pairs brackets and repairs them: a missing or wrong closing bracket is reported once and inserted;
- turns ``<`` and ``>`` into the braces of a block where they delimit one
(:mod:`pytrace.frontend.syntax.structure`);
- marks tokens by context: ``if`` and ``{`` at the start of a statement, ``comptime`` after ``if``, types where an
  expression is possible (casts, operands of sizeof, arguments), the two slashes of a predicate.

So the grammar has no conflicts, and an error inside an item does not affect the items after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

import msgspec

from pytrace.core.builtins import bare_builtin
from pytrace.core.diagnostics import Note
from pytrace.core.probe_kinds import PROBE_KINDS, NoTarget
from pytrace.core.source import Span
from pytrace.frontend.syntax.lexer import LAYOUT, Lexer, skip_layout
from pytrace.frontend.syntax.tokens import KEYWORDS, LITERALS, OPERAND_ENDS, TYPE_NAMES, Token

# ------------------------------------------------------------------------------------------------------------- brackets

# Matching of brackets; a missing or wrong one is reported once and repaired.


_CLOSER = {"(": ("RPAREN", ")"), "[": ("RBRACKET", "]"), "{": ("RBRACE", "}"), "<": ("RBRACE", ">")}
_BODY_STATEMENTS = frozenset({"IF", "FOR", "WHILE", "UNROLL"})

STRUCT_KEYWORDS = frozenset({"struct", "union", "enum"})


class Bracket:
    """One open bracket, or the part of an item that is outside all brackets."""

    __slots__ = ("block", "call", "first", "header", "kind", "opener", "role", "start", "statement", "ternary")

    def __init__(self, kind: str, opener: Token | None, role: str = "") -> None:
        self.kind = kind
        """``( [ { <``, ``head`` (before the body of an item), ``predicate``, or ``loose`` (outside of items)."""
        self.block = kind in ("{", "<")
        """True for a bracket that contains statements."""
        self.opener = opener
        self.role = role
        """Of a block: ``item``, ``body`` (of a header), ``statement`` (a bare block), ``config``, ``operand``; of a
        parenthesis: ``offsetof``."""
        self.start = self.block and role != "config"
        """Of a block: a statement starts here."""
        self.statement = ""
        """Kind of the current statement's first token."""
        self.first = 0
        """Index of the current statement's first token."""
        self.header = ""
        """Kind of the header (``IF`` …) whose block has not started yet."""
        self.ternary = 0
        """Number of ``?`` without their ``:`` so far."""
        self.call = False
        """Of a parenthesis: it contains arguments."""


class Brackets(msgspec.Struct, eq=False):
    """The tokens of one root item so far, and its open brackets."""

    lexer: Lexer
    tokens: list[Token] = []
    depths: list[int] = []
    """For each token, the number of open blocks around it."""
    direct: list[bool] = []
    """For each token, whether the innermost bracket around it is a block."""
    starts: set[int] = set()
    """Indices of the tokens that start a statement."""
    unended: set[int] = set()
    """Statements whose predecessor has no semicolon; set by the parser."""
    roles: dict[int, str] = {}
    """Roles of blocks by the index of the opening token."""
    stack: list[Bracket] = []
    _blocks: int = 0
    _done: bool = False
    _last: str = ""

    def _put(self, token: Token) -> None:
        self.tokens.append(token)
        self.depths.append(self._blocks)
        stack = self.stack
        self.direct.append(stack[-1].block if stack else False)
        self._last = token.type

    def _open(self, kind: str, token: Token, role: str = "") -> Bracket:
        frame = Bracket(kind, token, role)
        if role:
            if role == "body" and not (self.stack[-1].block and self.stack[-1].statement in _BODY_STATEMENTS):
                role = "value"
            self.roles[len(self.tokens)] = role
        self._put(token)
        self.stack.append(frame)
        if frame.block:
            self._blocks += 1
        return frame

    def _predicate_end(self, _frame: Bracket, token: Token) -> None:
        self.lexer.error("the predicate is not closed", before(token), "add '/' before the body")
        self.stack.pop()
        self._put(Token("PREDICATE_CLOSE", "", before(token)))

    def _close_paren(self, frame: Bracket, token: Token) -> None:
        wanted = "(" if token.text == ")" else "["
        if frame.kind == wanted:
            self._pop(token)
            return
        for outer in reversed(self.stack):
            if outer.kind == wanted:
                while self.stack[-1] is not outer:
                    self._close_top(token, report=True)
                self._pop(token)
                return
            if outer.block or outer.opener is None:
                break
        self.lexer.error(f"'{token.text}' without '{wanted}'", token.span)

    def _close_brace(self, frame: Bracket, token: Token) -> None:
        if frame.kind != "{":
            if not any(outer.kind == "{" for outer in self.stack):
                self._stray_brace(frame, token)
                return
            while self.stack[-1].kind != "{":
                self._close_top(token, report=True)
        self._pop(token)

    def _stray_brace(self, _frame: Bracket, token: Token) -> None:
        blocks = [outer for outer in self.stack if outer.kind == "<"]
        if blocks and blocks[-1] is self.stack[-1]:
            opener = blocks[-1].opener
            notes = (Note("the block was opened here", opener.span),) if opener else ()
            self.lexer.diagnostics.error("syntax: expected '>', found '}'", token.span, notes=notes)
            self._pop(token)
            return
        self.lexer.error("'}' without '{'", token.span)
        if self.stack[0].kind == "head" and not blocks:
            self._close_all(token, report=False)
            self._done = True

    def _pop(self, token: Token) -> None:
        """Close the innermost frame with *token*."""
        frame = self.stack.pop()
        if frame.block:
            self._blocks -= 1
            token.type = "RBRACE"
        self._put(token)
        if not self.stack:
            return
        outer = self.stack[-1]
        if not frame.block:
            if outer.kind == "head" and outer.role == "map" and frame.kind == "(":
                self._end_declaration()
        elif outer.kind == "head":
            self._done = True
        elif frame.role == "statement":
            outer.start = True
        elif frame.role == "body" and outer.block and outer.statement in _BODY_STATEMENTS:
            outer.start = self.lexer.peek().type != "ELSE"

    def _end_declaration(self) -> None:
        if self.lexer.peek().type == "SEMI":
            self._put(self.lexer.token())
        self._done = True

    def _close_top(self, token: Token, *, report: bool) -> None:
        """Insert the closing bracket of the innermost frame before *token*."""
        frame = self.stack[-1]
        place = before(token)
        if frame.kind == "predicate":
            self._predicate_end(frame, token)
            return
        if frame.opener is None or frame.kind == "head":
            self.stack.pop()
            return
        kind, closer = _CLOSER[frame.kind]
        if report:
            where = token.span if token.text else place
            what = "the end of the text" if token.type == "EOF" else f"'{token.text}'"
            self.lexer.diagnostics.error(
                f"syntax: expected '{closer}', found {what}", where,
                hints=(f"add '{closer}'",), notes=(Note(f"'{frame.opener.text}' was opened here", frame.opener.span),),
            )  # fmt: skip
        self._pop(Token(kind, "", place))

    def _close_brackets(self, token: Token) -> None:
        """Close parentheses and brackets down to the enclosing block, with one message."""
        report = True
        while self.stack[-1].kind in ("(", "["):
            self._close_top(token, report=report)
            report = False

    def _close_all(self, token: Token, *, report: bool) -> None:
        while self.stack:
            frame = self.stack[-1]
            self._close_top(token, report=report)
            report = report and frame.opener is None


def before(token: Token) -> Span:
    """The empty span before *token*."""
    return Span(token.span.source, token.span.start, token.span.start)


# --------------------------------------------------------------------------------------------------------- angle blocks

# Disambiguation of `< … >` blocks and the comparisons `<` and `>`; docs/reference/language.md has the rule.
#
# `<` opens a block where a block is expected or where no operand precedes it.  `>` closes the innermost block only
# when that block was opened by `<` and no bracket is open in it, and only when it cannot be an operator: no operand
# precedes it, or what follows cannot be its right operand.


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


def _may_close(text: str, after: int, context: BlockContext, *, ternary: bool, effect: bool) -> bool:
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
        return effect or _starts_assignment(text, start)
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
        return effect or (word == "_" and _starts_assignment(text, match.start()))
    return _starts_probe(text, match.start(), ternary=ternary)


def _starts_probe(text: str, start: int, *, ternary: bool = False, statement: bool = False) -> bool:
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


def _starts_assignment(text: str, start: int) -> bool:
    """Whether the variable or map at *start*, with its keys, is the target of an assignment."""
    target = _TARGET.match(text, start)
    if target is None:
        return False
    end = skip_layout(text, target.end())
    while text[end : end + 1] == "[":
        end = skip_layout(text, _balanced(text, end))
    return _ASSIGNMENT.match(text, end) is not None


def _compares_condition(text: str, after: int) -> bool:
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


# ------------------------------------------------------------------------------------------------------- type positions

# Recognises types where expressions are possible: casts, operands of `sizeof` and other queries, arguments of calls.
#
# The functions look ahead and consume no token.


_EXPRESSION_STARTS = frozenset(
    {*LITERALS, *KEYWORDS.values(), "LPAREN", "BNOT", "NOT", "TIMES", "MINUS", "BAND", "INCREMENT"}
)


class _TypeAhead:
    """A possible type: a name or ``struct X``, followed by any number of ``*`` and ``[…]``."""

    __slots__ = ("end", "open_ended", "suffixed", "word")

    def __init__(self, word: str, end: int, *, suffixed: bool, open_ended: bool) -> None:
        self.word = word
        self.end = end
        """Index of the token that follows it."""
        self.suffixed = suffixed
        self.open_ended = open_ended
        """Whether the last suffix is ``*`` or ``[]``."""

    @property
    def certain(self) -> bool:
        """True for text that its first word makes a type regardless of context."""
        return self.word in STRUCT_KEYWORDS or self.word in TYPE_NAMES


def _type_ahead(lexer: Lexer) -> _TypeAhead | None:
    first = lexer.peek()
    if first.type != "IDENT" and first.text not in KEYWORDS:
        return None
    word, start = first.text, 1
    if word in STRUCT_KEYWORDS:
        start = 2
        tag = lexer.peek(1)
        if tag.type != "IDENT" and tag.text not in KEYWORDS:
            return None
    end, open_ended = start, False
    while (kind := lexer.peek(end).type) in ("TIMES", "LBRACKET"):
        if kind == "TIMES":
            end, open_ended = end + 1, True
        else:
            length = _brackets(lexer, end)
            end, open_ended = end + length, length == 2
            if not length:
                return None
    return _TypeAhead(word, end, suffixed=end > start, open_ended=open_ended)


def _brackets(lexer: Lexer, index: int) -> int:
    """Number of tokens of a suffix ``[]`` or ``[N]`` at *index*; 0 if the bracket contains anything else."""
    size = lexer.peek(index + 1)
    if size.type == "RBRACKET":
        return 2
    known = size.type in ("INT", "IDENT") or size.text in KEYWORDS
    return 3 if known and lexer.peek(index + 2).type == "RBRACKET" else 0


def _is_typeof(lexer: Lexer) -> bool:
    return lexer.peek().type == "TYPEOF" and lexer.peek(1).type == "LPAREN"


def _is_cast(lexer: Lexer) -> bool:
    """Whether the parenthesis just opened starts a cast.

    ``(name)`` before an expression is a cast unless the name is a builtin value, so that ``(pid) * 2`` is a product.
    """
    if _is_typeof(lexer):
        return True
    ahead = _type_ahead(lexer)
    if ahead is None or lexer.peek(ahead.end).type != "RPAREN":
        return False
    if ahead.word in STRUCT_KEYWORDS:
        return True
    known = ahead.word in TYPE_NAMES
    if not known and bare_builtin(ahead.word):
        return False
    return (known and ahead.open_ended) or _starts_expression(lexer, ahead.end + 1)


def _starts_expression(lexer: Lexer, index: int) -> bool:
    kind = lexer.peek(index).type
    if kind == "DECREMENT":
        return lexer.peek(index + 1).type in ("VARIABLE", "MAP")
    return kind in _EXPRESSION_STARTS


def _is_type_operand(lexer: Lexer) -> bool:
    """Whether the operand of ``sizeof(`` or the like is a type."""
    if _is_typeof(lexer):
        return True
    ahead = _whole_type(lexer)
    return ahead is not None and (ahead.certain or (ahead.suffixed and not bare_builtin(ahead.word)))


def _is_type_argument(lexer: Lexer) -> bool:
    """Whether an argument of a call is a type."""
    if _is_typeof(lexer):
        return True
    ahead = _whole_type(lexer)
    return ahead is not None and (ahead.certain or ahead.open_ended)


def _whole_type(lexer: Lexer) -> _TypeAhead | None:
    """A type that is the whole operand or argument."""
    ahead = _type_ahead(lexer)
    return ahead if ahead is not None and lexer.peek(ahead.end).type in ("RPAREN", "COMMA") else None


# ------------------------------------------------------------------------------------------------------------ structure


_HEADERS = frozenset({"FOR", "WHILE", "UNROLL"})
_TYPE_CALLS = frozenset({"SIZEOF", "OFFSETOF", "TYPEOF", "TYPEINFO"})


class Structure(Brackets):
    """Collects the tokens of one root item."""

    # ------------------------------------------------------------------------------------------ items

    def item(self, first: Token, role: str = "item") -> list[Token]:
        """The tokens of an item after *first*, which the caller created: up to the end of its body or a semicolon.

        *role* is ``item``, ``config`` or ``map`` (a declaration of a map or option, which ends after its parenthesis).
        """
        self._put(first)
        self._last = ""
        self.stack.append(Bracket("head", first, role))
        return self._run()

    def probe(self, first: Token) -> list[Token]:
        """The tokens of a probe; the lexer is at its predicate or body."""
        self._put(first)
        self._last = ""
        self.stack.append(Bracket("head", first, "item"))
        if self.lexer.peek().text == "/":
            token = self.lexer.token()
            self._put(Token("PREDICATE_OPEN", "/", token.span))
            self.stack.append(Bracket("predicate", token))
        return self._run()

    def statement(self, first: Token) -> list[Token]:
        """The tokens of an item of *first*, one more token and a semicolon."""
        self._put(first)
        for _ in range(2):
            if self.lexer.peek().type not in ("STRING", "SEMI"):
                break
            self._put(self.lexer.token())
        return self.tokens

    def loose(self, first: Token) -> list[Token]:
        """All tokens of a text that is one expression."""
        self._put(first)
        self._last = ""
        self.stack.append(Bracket("loose", None))
        while True:
            token = self.lexer.token()
            if token.type == "EOF":
                self._close_all(token, report=True)
                return self.tokens
            self._take(token)

    def clause(self, first: Token, ends: frozenset[str]) -> list[Token]:
        """The tokens of an expression at the root, up to a token of *ends*, which is not consumed."""
        self._put(first)
        self._last = ""
        self.stack.append(Bracket("loose", None))
        while True:
            token = self.lexer.peek()
            if token.type == "EOF" or (token.type in ends and self._ends_clause(token)):
                self._close_all(token, report=True)
                return self.tokens
            self._take(self.lexer.token())

    def _ends_clause(self, token: Token) -> bool:
        """Whether *token* is outside of all blocks of an expression, even if a parenthesis is missing."""
        if any(frame.block for frame in self.stack):
            return False
        frame = self.stack[-1]
        return token.type != "LBRACE" or len(self.stack) == 1 or (self._last in OPERAND_ENDS and not frame.header)

    def _run(self) -> list[Token]:
        while not self._done:
            self._take(self.lexer.token())
        return self.tokens

    # ------------------------------------------------------------------------------------------ tokens

    def _take(self, token: Token) -> None:
        frame, last = self.stack[-1], self._last
        if last in _BEFORE_MEMBERS and (last != "COMMA" or frame.role == "offsetof") and token.text[:1].isalpha():
            token.type = "IDENT"  # members may be named like keywords
        if frame.start and token.type not in _NO_STATEMENT:
            self._start_statement(frame, token)
            if self._done:
                return
        handler = _HANDLERS.get(token.type)
        if handler is not None:
            handler(self, frame, token)
        else:
            # Inlined `_put`: most tokens take this branch.
            self.tokens.append(token)
            self.depths.append(self._blocks)
            self.direct.append(frame.block)
            self._last = token.type

    def _start_statement(self, frame: Bracket, token: Token) -> None:
        text = self.lexer.source.text
        if token.type == "IDENT" and self.stack[0].kind == "head" and self._is_probe_head(text, token):
            self._close_all(token, report=True)
            self.lexer.seek(token.span.start)
            self._done = True
            return
        frame.start = False
        frame.ternary = 0
        frame.statement = token.type
        frame.first = len(self.tokens)
        self.starts.add(frame.first)

    def _is_probe_head(self, text: str, token: Token) -> bool:
        """Whether a probe and no statement can start here, so that a closing brace is missing."""
        start = token.span.start
        line = text.rfind("\n", 0, start) + 1
        if text[line:start].strip():
            return False
        return _starts_probe(text, start, statement=True)

    # ------------------------------------------------------------------------------------------ brackets

    def _open_block(self, frame: Bracket, token: Token) -> None:
        kind = token.text
        operand = self._last in OPERAND_ENDS
        if frame.kind == "head":
            role = frame.role
        elif frame.block and frame.statement in ("LBRACE", "LT") and frame.first == len(self.tokens):
            role = "statement"
            token.type = "BLOCK_STATEMENT"
        elif (frame.header and operand) or self._last == "ELSE":
            role = "body"
            frame.header = ""
        else:
            role = "operand"
        if token.type != "BLOCK_STATEMENT":
            token.type = "LBRACE"
        self._open(kind, token, role)

    def _brace(self, frame: Bracket, token: Token) -> None:
        if frame.kind == "predicate" and self._last in OPERAND_ENDS:
            self._predicate_end(frame, token)
            frame = self.stack[-1]
        elif (
            frame.kind in ("(", "[")
            and self._last in OPERAND_ENDS
            and not frame.header
            and self.stack[0].kind == "head"
        ):
            self._close_brackets(token)
            frame = self.stack[-1]
        self._open_block(frame, token)

    def _paren(self, frame: Bracket, token: Token) -> None:
        last = self._last
        opened = self._open("(", token)
        if frame.kind == "head":
            return
        after = token.span.end
        if last == "IDENT":
            opened.call = True
            if self.tokens[-2].text == "member_exist":
                opened.role = "offsetof"
            self._mark(_is_type_argument(self.lexer), after)
        elif last in _TYPE_CALLS:
            opened.role = "offsetof" if last == "OFFSETOF" else ""
            self._mark(_is_type_operand(self.lexer), after)
        elif last not in _HEADERS and last not in ("IF", "IF_STATEMENT", "IF_COMPTIME"):
            self._mark(_is_cast(self.lexer), after)

    def _mark(self, wanted: bool, offset: int) -> None:
        if wanted:
            self._put(Token("TYPE_MARK", "", Span(self.lexer.source, offset, offset)))

    def _bracket(self, _frame: Bracket, token: Token) -> None:
        self._open("[", token)

    def _comma(self, frame: Bracket, token: Token) -> None:
        self._put(token)
        if frame.call:
            self._mark(_is_type_argument(self.lexer), token.span.end)

    # ------------------------------------------------------------------------------------------ context

    def _semicolon(self, frame: Bracket, token: Token) -> None:
        if frame.kind in ("(", "["):
            self._close_brackets(token)
            frame = self.stack[-1]
        if frame.kind == "predicate":
            frame = self._without_body(token)
        self._put(token)
        if frame.block and frame.role != "config":
            frame.start = True
            frame.header = ""
        elif frame.kind == "head":
            self.stack.pop()
            self._done = True

    def _end(self, _frame: Bracket, token: Token) -> None:
        self._close_all(token, report=True)
        self._done = True

    def _header(self, frame: Bracket, token: Token) -> None:
        frame.header = token.type
        if token.type == "IF" and frame.block and frame.first == len(self.tokens) and frame.statement == "IF":
            token.type = "IF_STATEMENT"
        self._put(token)

    def _comptime(self, _frame: Bracket, token: Token) -> None:
        if self._last in ("IF", "IF_STATEMENT"):
            token.type = "IF_COMPTIME"
        self._put(token)

    def _question(self, frame: Bracket, token: Token) -> None:
        frame.ternary += 1
        self._put(token)

    def _colon(self, frame: Bracket, token: Token) -> None:
        frame.ternary = max(0, frame.ternary - 1)
        self._put(token)

    def _slash(self, frame: Bracket, token: Token) -> None:
        if frame.kind == "predicate":
            if self.lexer.peek().type in ("LBRACE", "LT"):
                self.stack.pop()
                token.type = "PREDICATE_CLOSE"
        self._put(token)

    def _without_body(self, token: Token) -> Bracket:
        """Insert the end of the predicate and the opening brace where statements follow a predicate without a brace."""
        self.lexer.error("expected a block after the predicate, found ';'", token.span, "write /condition/ { … }")
        self.stack.pop()
        place = before(token)
        self._put(Token("PREDICATE_CLOSE", "", place))
        return self._open("{", Token("LBRACE", "", place), "item")

    # ------------------------------------------------------------------------------------------ angle blocks

    def _less(self, frame: Bracket, token: Token) -> None:
        if self._opens_block(frame, token):
            self._open_block(frame, token)
        else:
            self._put(token)

    def _opens_block(self, frame: Bracket, token: Token) -> bool:
        if frame.kind == "head" or self._last not in OPERAND_ENDS:
            return True
        if frame.block and frame.first == len(self.tokens):
            return True
        if not frame.header:
            return False
        if frame.header in _HEADERS:
            return True
        return not _compares_condition(self.lexer.source.text, token.span.end)

    def _greater(self, frame: Bracket, token: Token) -> None:
        if frame.kind == "<" and self._closes_block(frame, token.span.end):
            self._pop(token)
        else:
            self._put(token)

    def _closes_block(self, frame: Bracket, after: int, *, levels: int = 1) -> bool:
        if frame.start or self._last not in OPERAND_ENDS:
            return True
        if frame.header:
            return False
        outer = self.stack[-levels - 1]
        context = BlockContext.ITEM if outer.kind == "head" else BlockContext.STATEMENT
        return _may_close(
            self.lexer.source.text, after, context, ternary=frame.ternary > 0, effect=self._has_effect_only(frame)
        )

    def _has_effect_only(self, frame: Bracket) -> bool:
        """Whether the statement so far is a single call, or ends in ``++`` or ``--``."""
        if self._last in ("INCREMENT", "DECREMENT"):
            return True
        if self._last != "RPAREN" or frame.statement != "IDENT":
            return False
        depth = 0
        for token in self.tokens[frame.first + 1 :]:
            depth += (token.type in ("LPAREN", "LBRACKET", "LBRACE")) - (token.type in ("RPAREN", "RBRACKET", "RBRACE"))
            if depth == 0 and token is not self.tokens[-1]:
                return False
        return True

    def _shift_right(self, frame: Bracket, token: Token) -> None:
        levels = 2 if len(self.stack) > 2 and self.stack[-2].kind == "<" else 1
        if frame.kind != "<" or not self._closes_block(frame, token.span.end, levels=levels):
            self._put(token)
            return
        middle = token.span.start + 1
        source = self.lexer.source
        self.lexer.push(Token("GT", ">", Span(source, middle, token.span.end)))
        self._pop(Token("GT", ">", Span(source, token.span.start, middle)))


_BEFORE_MEMBERS = frozenset({"DOT", "ARROW", "COMMA"})
_NO_STATEMENT = frozenset({"SEMI", "RBRACE", "GT", "RSHIFT", "EOF"})

_HANDLERS: dict[str, Callable[[Structure, Bracket, Token], None]] = {
    "LPAREN": Structure._paren,
    "LBRACKET": Structure._bracket,
    "LBRACE": Structure._brace,
    "RPAREN": Structure._close_paren,
    "RBRACKET": Structure._close_paren,
    "RBRACE": Structure._close_brace,
    "COMMA": Structure._comma,
    "SEMI": Structure._semicolon,
    "EOF": Structure._end,
    "IF": Structure._header,
    "FOR": Structure._header,
    "WHILE": Structure._header,
    "UNROLL": Structure._header,
    "COMPTIME": Structure._comptime,
    "QUESTION": Structure._question,
    "COLON": Structure._colon,
    "DIVIDE": Structure._slash,
    "LT": Structure._less,
    "GT": Structure._greater,
    "RSHIFT": Structure._shift_right,
}
