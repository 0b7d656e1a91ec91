"""The token filter between lexer and grammar: pairs brackets, and marks tokens whose meaning depends on context.

For each item, this module

- pairs brackets and repairs them: a missing or wrong closing bracket is reported once and inserted;
- turns ``<`` and ``>`` into the braces of a block where they delimit one
(:mod:`pytrace.frontend.syntax.lexical.angle_blocks`);
- marks tokens by context: ``if`` and ``{`` at the start of a statement, ``comptime`` after ``if``, types where an
  expression is possible (casts, operands of sizeof, arguments), the two slashes of a predicate.

So the grammar has no conflicts, and an error inside an item does not affect the items after it.
"""

from __future__ import annotations

from collections.abc import Callable

from pytrace.core.source import Span
from pytrace.frontend.syntax.lexical import angle_blocks
from pytrace.frontend.syntax.lexical.brackets import Brackets, Frame, before
from pytrace.frontend.syntax.lexical.tokens import OPERAND_ENDS, Token
from pytrace.frontend.syntax.lexical.type_positions import is_cast, is_type_argument, is_type_operand

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
        self.stack.append(Frame("head", first, role))
        return self._run()

    def probe(self, first: Token) -> list[Token]:
        """The tokens of a probe; the lexer is at its predicate or body."""
        self._put(first)
        self._last = ""
        self.stack.append(Frame("head", first, "item"))
        if self.lexer.peek().text == "/":
            token = self.lexer.token()
            self._put(Token("PREDICATE_OPEN", "/", token.span))
            self.stack.append(Frame("predicate", token))
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
        self.stack.append(Frame("loose", None))
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
        self.stack.append(Frame("loose", None))
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

    def _start_statement(self, frame: Frame, token: Token) -> None:
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
        return angle_blocks.starts_probe(text, start, statement=True)

    # ------------------------------------------------------------------------------------------ brackets

    def _open_block(self, frame: Frame, token: Token) -> None:
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

    def _brace(self, frame: Frame, token: Token) -> None:
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

    def _paren(self, frame: Frame, token: Token) -> None:
        last = self._last
        opened = self._open("(", token)
        if frame.kind == "head":
            return
        after = token.span.end
        if last == "IDENT":
            opened.call = True
            if self.tokens[-2].text == "member_exist":
                opened.role = "offsetof"
            self._mark(is_type_argument(self.lexer), after)
        elif last in _TYPE_CALLS:
            opened.role = "offsetof" if last == "OFFSETOF" else ""
            self._mark(is_type_operand(self.lexer), after)
        elif last not in _HEADERS and last not in ("IF", "IF_STATEMENT", "IF_COMPTIME"):
            self._mark(is_cast(self.lexer), after)

    def _mark(self, wanted: bool, offset: int) -> None:
        if wanted:
            self._put(Token("TYPE_MARK", "", Span(self.lexer.source, offset, offset)))

    def _bracket(self, _frame: Frame, token: Token) -> None:
        self._open("[", token)

    def _comma(self, frame: Frame, token: Token) -> None:
        self._put(token)
        if frame.call:
            self._mark(is_type_argument(self.lexer), token.span.end)

    # ------------------------------------------------------------------------------------------ context

    def _semicolon(self, frame: Frame, token: Token) -> None:
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

    def _end(self, _frame: Frame, token: Token) -> None:
        self._close_all(token, report=True)
        self._done = True

    def _header(self, frame: Frame, token: Token) -> None:
        frame.header = token.type
        if token.type == "IF" and frame.block and frame.first == len(self.tokens) and frame.statement == "IF":
            token.type = "IF_STATEMENT"
        self._put(token)

    def _comptime(self, _frame: Frame, token: Token) -> None:
        if self._last in ("IF", "IF_STATEMENT"):
            token.type = "IF_COMPTIME"
        self._put(token)

    def _question(self, frame: Frame, token: Token) -> None:
        frame.ternary += 1
        self._put(token)

    def _colon(self, frame: Frame, token: Token) -> None:
        frame.ternary = max(0, frame.ternary - 1)
        self._put(token)

    def _slash(self, frame: Frame, token: Token) -> None:
        if frame.kind == "predicate":
            if self.lexer.peek().type in ("LBRACE", "LT"):
                self.stack.pop()
                token.type = "PREDICATE_CLOSE"
        self._put(token)

    def _without_body(self, token: Token) -> Frame:
        """Insert the end of the predicate and the opening brace where statements follow a predicate without a brace."""
        self.lexer.error("expected a block after the predicate, found ';'", token.span, "write /condition/ { … }")
        self.stack.pop()
        place = before(token)
        self._put(Token("PREDICATE_CLOSE", "", place))
        return self._open("{", Token("LBRACE", "", place), "item")

    # ------------------------------------------------------------------------------------------ angle blocks

    def _less(self, frame: Frame, token: Token) -> None:
        if self._opens_block(frame, token):
            self._open_block(frame, token)
        else:
            self._put(token)

    def _opens_block(self, frame: Frame, token: Token) -> bool:
        if frame.kind == "head" or self._last not in OPERAND_ENDS:
            return True
        if frame.block and frame.first == len(self.tokens):
            return True
        if not frame.header:
            return False
        if frame.header in _HEADERS:
            return True
        return not angle_blocks.compares_condition(self.lexer.source.text, token.span.end)

    def _greater(self, frame: Frame, token: Token) -> None:
        if frame.kind == "<" and self._closes(frame, token.span.end):
            self._pop(token)
        else:
            self._put(token)

    def _closes(self, frame: Frame, after: int, *, levels: int = 1) -> bool:
        if frame.start or self._last not in OPERAND_ENDS:
            return True
        if frame.header:
            return False
        outer = self.stack[-levels - 1]
        context = angle_blocks.BlockContext.ITEM if outer.kind == "head" else angle_blocks.BlockContext.STATEMENT
        return angle_blocks.may_close(
            self.lexer.source.text, after, context, ternary=frame.ternary > 0, effect=self._has_effect_only(frame)
        )

    def _has_effect_only(self, frame: Frame) -> bool:
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

    def _shift_right(self, frame: Frame, token: Token) -> None:
        levels = 2 if len(self.stack) > 2 and self.stack[-2].kind == "<" else 1
        if frame.kind != "<" or not self._closes(frame, token.span.end, levels=levels):
            self._put(token)
            return
        middle = token.span.start + 1
        source = self.lexer.source
        self.lexer.push(Token("GT", ">", Span(source, middle, token.span.end)))
        self._pop(Token("GT", ">", Span(source, token.span.start, middle)))


_BEFORE_MEMBERS = frozenset({"DOT", "ARROW", "COMMA"})
_NO_STATEMENT = frozenset({"SEMI", "RBRACE", "GT", "RSHIFT", "EOF"})

_HANDLERS: dict[str, Callable[[Structure, Frame, Token], None]] = {
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
