"""The parser: from text to AST.

:func:`parse` reads a script item by item: the lexer's first token determines the kind of item,
:mod:`pytrace.frontend.syntax.structure` collects its tokens, and PLY's parser builds its AST.  Syntax errors
are recorded as diagnostics; the result contains what could be parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
from ply.yacc import LRParser, LRTable

from pytrace.core.diagnostics import Diagnostics, Note, either
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax import grammar, grammar_tables, nodes
from pytrace.frontend.syntax.lexer import ROOT, SCRIPT, Lexer
from pytrace.frontend.syntax.nodes import Node, children
from pytrace.frontend.syntax.structure import Structure
from pytrace.frontend.syntax.tokens import BLOCK_OPENERS, KEYWORDS, OPERAND_ENDS, OPERATORS, Token

# ------------------------------------------------------------------------------------------------------------- recovery

# Recovery from syntax errors: the message, hints about habits of other languages, and where parsing resumes.
#
# Semicolons between statements are optional, but the grammar requires them: missing ones are inserted here.  After an
# error in a statement, the parser resumes after its semicolon or closing brace.  After an error in an item's head, the
# whole item is dropped.


_STATEMENT_WORDS = frozenset({"IF_STATEMENT", "FOR", "WHILE", "UNROLL", "LET", "RETURN", "BREAK", "CONTINUE", "IMPORT"})
_STATEMENT_STARTS = _STATEMENT_WORDS | {"IDENT", "VARIABLE", "MAP", "INCREMENT", "DECREMENT", "BLOCK_STATEMENT"}
_NEW_STATEMENT = _STATEMENT_STARTS | {"IF", "SIZEOF"}
_OPERATORS = frozenset({"PLUS", "TIMES", "EQ", "LAND"})
_ENDINGS = ("SEMI", "RPAREN", "RBRACKET", "COMMA", "COLON", "LBRACE", "PREDICATE_CLOSE", "ASSIGN", "RANGE")
_CANDIDATES = (
    "IDENT", "INT", "FLOAT", "STRING", "VARIABLE", "MAP", "LPAREN", "LBRACKET", "LBRACE", "RPAREN", "RBRACKET",
    "RBRACE",
    "COMMA", "SEMI", "COLON", "ASSIGN", "RANGE", "PLUS", "TIMES", "EQ", "LAND", "LET", "IF", "ELSE", "PREDICATE_CLOSE",
)  # fmt: skip
_MOST_NAMED = 4
_WORD_OPERATORS = {"and": "LAND", "or": "LOR"}

_SPELLING = {kind: text for text, kind in reversed(OPERATORS.items())} | {kind: word for word, kind in KEYWORDS.items()}

_NAMES = {
    "IDENT": "a name", "INT": "a number", "FLOAT": "a fraction", "STRING": "a string", "VARIABLE": "a variable",
    "MAP": "a map",
    "RESYNC": "the end of the statement", "PREDICATE_CLOSE": "'/'", "PREDICATE_OPEN": "'/'", "IF_STATEMENT": "'if'",
    "IF_COMPTIME": "'comptime'", "BLOCK_STATEMENT": "'{'",
}  # fmt: skip


class AbandonedItem(Exception):
    """Parsing of the item cannot continue; the error was recorded."""


def kind_name(kind: str) -> str:
    """The name of an expected kind of token, for messages."""
    return _NAMES.get(kind) or f"'{_SPELLING.get(kind, kind)}'"


def found_name(token: Token) -> str:
    """The name of an actual token, for messages."""
    if not token.text:
        return "the end of the text" if token.type == "EOF" else kind_name(token.type)
    text = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    return f"string {text}" if token.type == "STRING" else f"'{text}'"


class Item:
    """The tokens of one root item as PLY reads them, and the handler of its syntax errors."""

    def __init__(
        self, parser: LRParser, structure: Structure, head: Span, points: tuple[nodes.AttachPoint, ...] = ()
    ) -> None:
        self.lexer = structure.lexer
        self.source: Source = structure.lexer.source
        self.head = head
        self.points = points
        self.tokens = structure.tokens
        self.depths = structure.depths
        self.direct = structure.direct
        self.unended = structure.unended
        self.index = 0
        self.parser = parser
        self._again: list[Token] = []
        self._repaired: set[tuple[str, int]] = set()
        """Repairs attempted, with the index of the token. No repair is attempted twice for one token and tokens are
        never read backwards, so parsing terminates."""

    def token(self) -> Token | None:
        """The next token; None at the end."""
        if self._again:
            return self._again.pop()
        if self.index >= len(self.tokens):
            return None
        self.index += 1
        return self.tokens[self.index - 1]

    def error(self, message: str, span: Span, *hints: str) -> None:
        """Record a syntax error."""
        self.lexer.error(message, span, *hints)

    # ------------------------------------------------------------------------------------------ errors

    def handle(self, token: Token | None) -> Token | None:
        """PLY's error function: report the error and return the token to continue with."""
        if token is None:
            self._report_end()
            raise AbandonedItem
        if token.type == "RESYNC":
            return None  # PLY now discards the symbols of this statement
        index = self.index - 1
        before = self.tokens[index - 1] if index else None
        meant = _WORD_OPERATORS.get(token.text) if token.type == "IDENT" else None
        if meant is not None and self._accepts(meant):
            self.error(f"unexpected '{token.text}'", token.span, *_hints(self.tokens, index, ""))
            return self._go_on(Token(meant, token.text, token.span), None)
        if before is not None and self._misses_semicolon(before, token, index) and self._first_time("semicolon", index):
            self.unended.add(index)
            return self._go_on(Token("SEMI", "", _span_after(before)), token)
        if token.text:  # an inserted bracket has been reported
            self._report(token, index)
        opened = sum(symbol.type in BLOCK_OPENERS for symbol in self.parser.symstack)
        if not opened or not self._first_time("resync", index):
            raise AbandonedItem
        self._skip(index, opened)
        return self._go_on(Token("RESYNC", "", token.span), None)

    def _first_time(self, repair: str, index: int) -> bool:
        """Whether *repair* is tried for the first time at the token with index *at*; records the attempt."""
        done = (repair, index)
        if done in self._repaired:
            return False
        self._repaired.add(done)
        return True

    def _go_on(self, token: Token, again: Token | None) -> Token:
        if again is not None:
            self._again.append(again)
        self.parser.errok()
        return token

    def _misses_semicolon(self, before: Token, token: Token, index: int) -> bool:
        if not self.direct[index] or token.type not in _NEW_STATEMENT:
            return False
        return before.type in OPERAND_ENDS | {"BREAK", "CONTINUE"} and self._accepts("SEMI", token.type)

    def _skip(self, start: int, depth: int) -> None:
        """Move past the statement with an error at index *at*, in a block of *depth*."""
        tokens, depths = self.tokens, self.depths
        index = start
        while index < len(tokens):
            kind, level = tokens[index].type, depths[index]
            if level < depth:
                break  # the end of the block
            if level == depth:
                if kind == "SEMI":
                    index += 1
                    break
                if index > start and kind in _STATEMENT_WORDS and self.direct[index]:
                    break
                if kind == "RBRACE" and index + 1 < len(tokens) and tokens[index + 1].type in _STATEMENT_STARTS:
                    index += 1
                    break
            index += 1
        self.index = index

    def _accepts(self, *kinds: str) -> bool:
        """Whether PLY's parser, in its current state, accepts tokens of these *kinds* in sequence."""
        actions, goto, productions = self.parser.action, self.parser.goto, self.parser.productions
        states = list(self.parser.statestack)
        for kind in kinds:
            while True:
                action = actions[states[-1]].get(kind)
                if action is None:
                    return False
                if action >= 0:
                    break
                rule = productions[-action]
                if rule.len:
                    del states[-rule.len :]
                states.append(goto[states[-1]][rule.name])
            states.append(action)
        return True

    def _expected(self) -> str:
        kinds = [kind for kind in _CANDIDATES if self._accepts(kind)]
        if "LET" in kinds:
            return "a statement or '}'" if "RBRACE" in kinds else "a statement"
        if {"IDENT", "INT", "LPAREN"} <= set(kinds):
            return "an expression"
        if kinds and set(kinds) >= _OPERATORS:
            kinds = [kind for kind in _ENDINGS if kind in kinds] or kinds
        return either([kind_name(kind) for kind in kinds[:_MOST_NAMED]])

    def _report(self, token: Token, index: int) -> None:
        expected = self._expected()
        message = f"unexpected {found_name(token)}" + (f", expected {expected}" if expected else "")
        self.error(message, token.span, *_hints(self.tokens, index, expected))

    def _report_end(self) -> None:
        end = self.tokens[-1]
        if end.type == "RBRACE" and not end.text:
            return  # reported when it was inserted
        place = _span_after(end)
        expected = self._expected()
        self.error(f"expected {expected or 'more'}", place, *_hints(self.tokens, len(self.tokens), expected))


def _span_after(token: Token) -> Span:
    """The empty span after *token*."""
    return Span(token.span.source, token.span.end, token.span.end)


# ---------------------------------------------------------------------------------------------- hints


_WORDS = {
    "elif": "write 'else if'",
    "elsif": "write 'else if'",
    "elseif": "write 'else if'",
    "and": "write '&&'",
    "or": "write '||'",
    "not": "write '!'",
    "unless": "there is no 'unless': write if (!(condition)) { … }",
    "foreach": "write for ($kv : @map) { … }",
    "switch": "there is no 'switch': write if … else if … else",
    "do": "there is no 'do': write while (condition) { … }",
    "in": "write ':' between the variable and what is looped over",
    "var": "write 'let $name = value', or '$name = value'",
    "function": "functions are written 'fn name($a : type) : type { … }' outside of probes",
    "def": "functions are written 'fn name($a : type) : type { … }' outside of probes",
    "None": "there is no null value: compare with 0",
    "NULL": "there is no null value: compare with 0",
}


_LOOPS = "a loop goes over a range or a map: for ($i : 0..10) { … }, for ($kv : @map) { … }; while (condition) { … }"


def _hints(tokens: Sequence[Token], index: int, expected: str) -> tuple[str, ...]:
    """Hints for an error at index *at* of an item's tokens; *expected* says what was expected."""
    token = tokens[index] if index < len(tokens) else None
    before = tokens[index - 1] if index else None
    if expected == "'{'" and token is not None and before is not None and before.type == "RPAREN":
        return ("the body of if, else, for and while stands in braces: { … }",)
    for word in (token, before, _statement_start(tokens, index)):
        if word is not None and word.type == "IDENT" and word.text in _WORDS:
            return (_WORDS[word.text],)
    if (token is not None and token.type == "ASSIGN" and expected == "':'") or _starts_like_c(tokens, index):
        return (_LOOPS,)
    if token is None:
        return ()
    rule = _RULES.get(token.type)
    hints = rule(tokens, index) if rule is not None else ()
    if not hints and token.type in _OPERANDS:
        if "','" in expected:
            return ("add ',' before it",)
        if expected == "a variable" and token.type == "IDENT":
            return _name_of_variable(tokens, index)
    return hints


def _starts_like_c(tokens: Sequence[Token], index: int) -> bool:
    """Whether the error is at the name in ``for (name = …``."""
    kinds = [token.type for token in tokens[max(0, index - 2) : index + 2]]
    return kinds == ["FOR", "LPAREN", "IDENT", "ASSIGN"]


def _statement_start(tokens: Sequence[Token], error: int) -> Token | None:
    for index in range(error - 1, max(-1, error - 200), -1):
        if tokens[index].type in ("SEMI", "LBRACE", "RBRACE", "BLOCK_STATEMENT"):
            return tokens[index + 1] if index + 1 < len(tokens) else None
    return None


def _assign(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index and tokens[index - 1].type == "ASSIGN":
        return ("'==' is written without a space",)
    if index > 2 and tokens[index - 2].type == "LPAREN" and tokens[index - 3].text == "row":
        return ("row() takes a record: write row((name=value, …)), with two pairs of parentheses",)
    return ("use '==' to compare",)


def _not(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index and tokens[index - 1].type == "IDENT":
        return (f"macros are called without '!': {tokens[index - 1].text}(…)",)
    return ()


def _string(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index and tokens[index - 1].type == "STRING":
        return ("strings next to each other are not joined: write one string",)
    return ()


def _variable(tokens: Sequence[Token], _at: int) -> tuple[str, ...]:
    if tokens[0].type == "MAP_ITEM":
        return ("outside of probes, 'let' declares maps only: let @name = hash(100);",)
    return ()


def _else(_tokens: Sequence[Token], _at: int) -> tuple[str, ...]:
    return ("'else' must directly follow the '}' of an 'if'",)


def _name_of_variable(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index + 1 < len(tokens) and tokens[index + 1].type in ("IDENT", "VARIABLE"):  # a type
        return ("a type does not come first: for ($i : 0..10) and let $name: type = value",)
    return (f"variables are written with '$': ${tokens[index].text}",)


def _brace(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index >= 2 and tokens[0].type == "MACRO_ITEM" and tokens[index - 1].type == "IDENT":
        return (f"a macro without parameters is written 'macro {tokens[index - 1].text}() {{ … }}'",)
    return ()


def _map(tokens: Sequence[Token], index: int) -> tuple[str, ...]:
    if index and tokens[index - 1].type == "LET":
        return ("maps are declared outside of probes: let @name = hash(100);",)
    return ()


def _type_word(_tokens: Sequence[Token], _at: int) -> tuple[str, ...]:
    return ("a type stands in parentheses, as in (struct name *)value",)


_OPERANDS = frozenset({"IDENT", "INT", "FLOAT", "STRING", "VARIABLE", "MAP", "PARAM"})

_RULES: dict[str, Callable[[Sequence[Token], int], tuple[str, ...]]] = {
    "ASSIGN": _assign,
    "NOT": _not,
    "STRING": _string,
    "VARIABLE": _variable,
    "MAP": _map,
    "ELSE": _else,
    "LBRACE": _brace,
    "STRUCT": _type_word,
    "UNION": _type_word,
    "ENUM": _type_word,
}


# --------------------------------------------------------------------------------------------------------------- parser


_SHEBANG = re.compile(r"#![^\n]*")
_BODY = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|[{};]')
_MAX_ERRORS = 100
_MAX_DEPTH = 5000
"""Maximum nesting that the passes after the parser support."""
_MAX_NESTED = 50
"""Maximum nesting of ``if comptime`` around items."""
_OPTION = re.compile(r"getopt\s*\(")
_CLAUSE_ENDS = frozenset({"SEMI", "LBRACE", "RBRACE"})


def parse(source: Source, diagnostics: Diagnostics) -> nodes.Program:
    """Parse a script.

    Args:
        source: the script.
        diagnostics: receives syntax errors, in source order.

    Returns:
        The AST, without the statements and items that could not be parsed.
    """
    return parse_with_tokens(source, diagnostics)[0]


def parse_expression(source: Source, diagnostics: Diagnostics, *, in_c: bool = False) -> nodes.Expr | None:
    """The AST of a text that is one expression; None when it is empty or has an error, which is recorded.

    *in_c*: the text is the body of a C macro, whose numbers may have C's suffixes (``0x10UL``).
    """
    if not source.text.strip():
        return None
    known = len(diagnostics.errors)
    structure = Structure(Lexer(source, diagnostics, in_c=in_c))
    place = Span(source, 0, 0)
    structure.loose(Token("EXPRESSION_ITEM", "", place))
    node = _run_grammar(structure, place)
    return node if isinstance(node, nodes.Expr) and len(diagnostics.errors) == known else None


def _run_grammar(structure: Structure, head: Span, points: tuple[nodes.AttachPoint, ...] = ()) -> nodes.Node | None:
    """The node of one item, or None when it could not be parsed."""
    parser = _parser()
    item = Item(parser, structure, head, points)
    parser.errorfunc = item.handle
    try:
        node: nodes.Node | None = parser.parse(lexer=item)
    except AbandonedItem:
        return None
    return node


@cache
def _parser() -> LRParser:
    """PLY's parser from the shipped tables, created on first use."""
    table = LRTable()
    table.read_table(grammar_tables)
    table.bind_callables(grammar.names())
    return LRParser(table, grammar.p_error)


class ParsedItem(msgspec.Struct):
    """A root item or C part with its tokens, for the formatter; *head* is its first token or its attach points."""

    head: Span
    node: nodes.RootItem | nodes.CPart
    structure: Structure | None
    branches: tuple[Branch, ...] = ()
    """Of an ``if comptime``: its branches in order; *structure* is None."""


class Branch(msgspec.Struct):
    """One branch of an ``if comptime`` at the root; without *structure* and *condition* it is the last ``else``.

    *head* is ``if`` or ``else``, *opener* and *end* are the braces.
    """

    head: Span
    structure: Structure | None
    condition: nodes.Expr | None
    opener: Span
    end: Span
    items: list[nodes.RootItem]
    parsed_items: list[ParsedItem]


def parse_with_tokens(
    source: Source, diagnostics: Diagnostics
) -> tuple[nodes.Program, list[ParsedItem], dict[int, int]]:
    """Parse a script. Returns its AST, its items in source order with their tokens, and the spans of its comments."""
    known = len(diagnostics.items)
    run = _ProgramParser(source, diagnostics)
    program = run.run()
    diagnostics.items[known:] = sorted(diagnostics.items[known:], key=lambda item: item.span.start)
    return program, run.parsed_items, run.lexer.comments


def deeper_than(node: Node, levels: int) -> Node | None:
    """A node more than *levels* below *node*, if there is one."""
    waiting = [(node, 0)]
    while waiting:
        current, level = waiting.pop()
        if level > levels:
            return current
        waiting.extend((child, level + 1) for child in children(current))
    return None


class _ProgramParser:
    """Parses one script."""

    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self.source = source
        self.text = source.text
        self.diagnostics = diagnostics
        self.lexer = Lexer(source, diagnostics, state=ROOT)
        self.c_parts: list[nodes.CPart] = []
        self.items: list[nodes.RootItem] = []
        self.body: Span | None = None
        """The first item after the preamble."""
        self.parsed_items: list[ParsedItem] = []
        self.nested = 0
        """Number of ``if comptime`` around the current item."""
        self.abandoned = False
        """Whether the rest of the script is skipped, because a branch is not closed."""

    def run(self) -> nodes.Program:
        shebang = self._shebang()
        while True:
            start = self.lexer.here()
            if start >= len(self.text):
                break
            if len(self.diagnostics.errors) >= _MAX_ERRORS:
                span = Span(self.source, start, start)
                self.lexer.error("too many errors, the rest of the script was not read", span)
                break
            self._item(self.lexer.token())
            self.lexer.root()
        return nodes.Program(
            Span(self.source, 0, len(self.text)),
            shebang,
            tuple(self.c_parts),
            tuple(self.items),
        )

    def _shebang(self) -> str | None:
        """The ``#!`` line, which blank lines and comments may precede."""
        start = self.lexer.here()
        match = _SHEBANG.match(self.text, start)
        if match is None:
            return None
        text = match.group().rstrip()
        span = Span(self.source, start, start + len(text))
        self.parsed_items.append(ParsedItem(span, nodes.CPart(span, text), None))
        self.lexer.seek(span.end)
        return text

    def _item(self, token: Token) -> None:
        _ITEMS.get(token.type, _ProgramParser._probe)(self, token)

    def _check_early(self, what: str, place: Span) -> None:
        if self.body is not None:
            self.diagnostics.error(
                f"syntax: {what} must stand before the first probe, macro, function or map declaration", place,
                hints=("move it to the top of the script",), notes=(Note("the first one is here", self.body),),
            )  # fmt: skip

    def _add(self, structure: Structure, head: Span, points: tuple[nodes.AttachPoint, ...] = ()) -> None:
        node = _run_grammar(structure, head, points)
        if not isinstance(node, nodes.RootItem):
            return
        if len(structure.tokens) <= _MAX_DEPTH or self._check_depth(node):
            self.items.append(node)
            self.parsed_items.append(ParsedItem(head, node, structure))

    def _check_depth(self, node: nodes.RootItem) -> bool:
        deep = deeper_than(node, _MAX_DEPTH)
        if deep is not None:
            self.lexer.error(f"nested more than {_MAX_DEPTH} levels deep", deep.span, "use variables for parts of it")
        return deep is None

    # ------------------------------------------------------------------------------------------ kinds

    def _c_part(self, token: Token) -> None:
        part = nodes.CPart(token.span, token.text)
        self.c_parts.append(part)
        first_line = token.text.split("{")[0].split("\n")[0].rstrip()
        self._check_early("C definitions", Span(self.source, token.span.start, token.span.start + len(first_line)))
        self.parsed_items.append(ParsedItem(part.span, part, None))

    def _config(self, token: Token) -> None:
        self._check_early("the config block", token.span)
        structure = Structure(self.lexer)
        structure.item(token, "config")
        self._add(structure, token.span)

    def _import(self, token: Token) -> None:
        self._check_early("imports", token.span)
        structure = Structure(self.lexer)
        structure.statement(token)
        self._add(structure, token.span)

    def _body_item(self, token: Token) -> None:
        """A macro, a function, or the declaration of a map."""
        self.body = self.body or token.span
        structure = Structure(self.lexer)
        structure.item(token, "map" if token.type == "MAP_ITEM" else "item")
        self._add(structure, token.span)

    def _option(self, token: Token) -> None:
        """A declaration of an option, allowed before and after imports and the C part."""
        structure = Structure(self.lexer)
        structure.item(token, "map")
        self._add(structure, token.span)

    # ------------------------------------------------------------------------------------------ conditions

    def _conditional(self, token: Token) -> None:
        """``if comptime``, with all its ``else if`` and ``else``."""
        self.body = self.body or token.span
        branches = [self._branch(token.span, self._condition(token))]
        while branches[-1] is not None and self.lexer.peek().text == "else":
            word = self.lexer.peek()
            if branches[-1].condition is None:
                self.lexer.error("'else' after the last 'else'", word.span, "only one branch has no condition")
            self.lexer.seek(word.span.end)
            following = self.lexer.peek()
            structure = self._condition(self.lexer.token()) if following.type == "IF_ITEM" else None
            branches.append(self._branch(word.span, structure))
        whole = tuple(item for item in branches if item is not None)
        if len(whole) == len(branches) and (whole[0].condition is not None):
            node = _root_if(whole)
            self.items.append(node)
            self.parsed_items.append(ParsedItem(token.span, node, None, whole))

    def _condition(self, token: Token) -> Structure:
        """The tokens of a condition after ``if``, up to its brace."""
        if self.lexer.peek().type == "COMPTIME":
            self.lexer.token()
        else:
            self.lexer.error(
                "expected 'comptime' after 'if'", token.span,
                "at the root of a script, conditions are decided at compile time: if comptime (…) { … }",
            )  # fmt: skip
        structure = Structure(self.lexer)
        structure.clause(Token("EXPRESSION_ITEM", "", token.span), frozenset({"LBRACE", "SEMI"}))
        return structure

    def _branch(self, head: Span, structure: Structure | None) -> Branch | None:
        """Parse a branch, starting at its condition; None if it has no braces."""
        node = _run_grammar(structure, head) if structure is not None else None
        opener = self.lexer.token()
        if opener.text != "{":
            what = "the condition" if structure is not None else "'else'"
            self.lexer.error(f"expected '{{' after {what}, found {found_name(opener)}", opener.span)
            return None
        condition = node if isinstance(node, nodes.Expr) else None
        if structure is not None and condition is None:
            condition = nodes.BoolLiteral(head, False)  # its error is reported
        kept = self.items, self.parsed_items
        self.items, self.parsed_items = [], []
        end = self._branch_items(opener)
        items, parsed_items = self.items, self.parsed_items
        self.items, self.parsed_items = kept
        return Branch(head, structure, condition, opener.span, end, items, parsed_items)

    def _branch_items(self, opener: Token) -> Span:
        """Parse items up to the closing brace. Returns the span of the brace."""
        self.nested += 1
        self.lexer.seek(opener.span.end)
        while True:
            token = self.lexer.peek()
            if self._ends_early(token, opener):
                self.lexer.seek(len(self.text))
                break
            if token.text == "}":
                self.lexer.seek(token.span.end)
                break
            if _OPTION.match(self.text, token.span.start):
                self._option_inside(token)
            else:
                self._item(self.lexer.token())
            self.lexer.root()
        self.nested -= 1
        return token.span

    def _ends_early(self, token: Token, opener: Token) -> bool:
        """Whether a branch ends without its brace; reported once."""
        if len(self.diagnostics.errors) >= _MAX_ERRORS:
            return True
        if self.nested > _MAX_NESTED:
            self.lexer.error(f"conditions are nested more than {_MAX_NESTED} levels deep", opener.span)
            self.abandoned = True
        elif token.type == "EOF" and not self.abandoned:
            self.lexer.error("the branch is not closed", opener.span, "add '}' at its end")
            self.abandoned = True
        return token.type == "EOF" or self.abandoned

    def _option_inside(self, token: Token) -> None:
        """Report a declaration of an option in a branch, and skip it."""
        self.lexer.seek(token.span.start, SCRIPT)
        place = self.lexer.peek().span
        self.lexer.error(
            "an option cannot be declared inside 'if comptime'", place,
            "declare it at the root of the script: its value may decide the condition",
        )  # fmt: skip
        Structure(self.lexer).clause(Token("EXPRESSION_ITEM", "", place), _CLAUSE_ENDS)
        if self.lexer.peek().type == "SEMI":
            self.lexer.token()

    def _fail(self, token: Token) -> None:
        """``fail(…);``."""
        self.body = self.body or token.span
        structure = Structure(self.lexer)
        structure.clause(Token("EXPRESSION_ITEM", "", token.span), _CLAUSE_ENDS)
        call = _run_grammar(structure, token.span)
        end = self.lexer.peek()
        if end.type == "SEMI":
            self.lexer.token()
        elif call is not None:
            self.lexer.error(f"expected ';' after fail(), found {found_name(end)}", end.span)
        if isinstance(call, nodes.Expr):
            node = nodes.RootFail(call.span, call)
            self.items.append(node)
            self.parsed_items.append(ParsedItem(token.span, node, structure))

    # ------------------------------------------------------------------------------------------ probes

    def _probe(self, token: Token) -> None:
        points, token = self._attach_points(token)
        if points:
            self.body = self.body or points[0].span
        elif not self._report_no_points(token):
            return
        if token.type != "BODY" and not self._find_body(token, points):
            return
        head = points[0].span if points else token.span
        structure = Structure(self.lexer)
        structure.probe(Token("PROBE_ITEM", "", head))
        if points:
            self._add(structure, head, points)

    def _attach_points(self, token: Token) -> tuple[tuple[nodes.AttachPoint, ...], Token]:
        """The attach points from *token* on, and the token after them; a trailing comma is allowed."""
        points: list[nodes.AttachPoint] = []
        while isinstance(token.data, nodes.AttachPoint):
            points.append(token.data)
            token = self.lexer.token()
            if token.type != "COMMA":
                break
            token = self.lexer.token()
        return tuple(points), token

    def _report_no_points(self, token: Token) -> bool:
        """Report that no probe starts at *token*. Returns whether a body follows, which can be skipped."""
        if token.text == "{":
            self.lexer.error("expected an attach point before '{'", token.span, "write, for example, begin { … }")
            return True
        self.lexer.error(f"expected a probe, found '{_shown(token.text)}'", token.span)
        self.lexer.seek(token.span.end)
        return False

    def _skip_stray(self, token: Token) -> None:
        """Report characters that cannot start a probe, and skip them."""
        quote = ("remove the shell's quotes: they are not part of the script",) if "'" in token.text else ()
        self.lexer.error(f"expected a probe, found {_quoted(token.text)}", token.span, *quote)

    def _find_body(self, token: Token, points: tuple[nodes.AttachPoint, ...]) -> bool:
        """Report unexpected text between the attach points and the body, and continue at the body if there is one."""
        if token.type == "EOF":
            end = points[-1].span.end if points else token.span.end
            place = Span(self.source, end, end)
            self.lexer.error("expected '{' after the attach points, found the end of the text", place)
            return False
        ended = token.text in (";", "}", ")")
        hints = () if ended else ('an attach point with spaces must be quoted: kprobe:"a b"',)
        if token.text.startswith("@") or _CALL.match(self.text, token.span.start):
            hints = ("put the statements in { }",)
        if points and "\n" in self.text[points[-1].span.end : token.span.start]:
            hints = ("several attach points of one block are separated by commas; each block is { … }",)
        self.lexer.error(
            f"expected '{{', '/' or ',' after the attach point, found '{_shown(token.text)}'", token.span, *hints
        )
        body = _next_brace(self.text, token.span.start)
        if body is None:
            return False
        self.lexer.seek(body, SCRIPT)
        return True


def _root_if(branches: tuple[Branch, ...]) -> nodes.RootIf:
    """The node of an ``if comptime`` from its branches."""
    other: tuple[nodes.RootItem, ...] = ()
    end = branches[-1].end
    for branch in reversed(branches):
        if branch.condition is None:
            other = tuple(branch.items)
        else:
            other = (nodes.RootIf(branch.head.to(end), branch.condition, tuple(branch.items), other, branch.head),)
    outermost = other[0]
    assert isinstance(outermost, nodes.RootIf)
    return outermost


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{_shown(text)}'"


def _shown(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


_CALL = re.compile(r"\w+\s*\(")
"""What a statement begins with that is no map."""


def _next_brace(text: str, offset: int) -> int | None:
    """The offset of the next ``{`` unless a ``;`` or ``}`` comes before it."""
    for match in _BODY.finditer(text, offset):
        if match.group() == "{":
            return match.start()
        if match.group() in (";", "}"):
            return None
    return None


_ITEMS = {
    "C_PART": _ProgramParser._c_part,
    "CONFIG_ITEM": _ProgramParser._config,
    "IMPORT_ITEM": _ProgramParser._import,
    "MACRO_ITEM": _ProgramParser._body_item,
    "FUNCTION_ITEM": _ProgramParser._body_item,
    "MAP_ITEM": _ProgramParser._body_item,
    "IF_ITEM": _ProgramParser._conditional,
    "FAIL_ITEM": _ProgramParser._fail,
    "OPTION_ITEM": _ProgramParser._option,
    "STRAY": _ProgramParser._skip_stray,
}
"""Parser methods of items, by first token; all other tokens start probes."""
