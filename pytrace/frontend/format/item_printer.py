"""The printer of one item's tokens, for the formatter."""

from __future__ import annotations

from pytrace.frontend.format.lines import INDENT, Lines
from pytrace.frontend.syntax.lexical.structure import Structure
from pytrace.frontend.syntax.lexical.tokens import BLOCK_OPENERS, OPERAND_ENDS, Token

_TIGHT_BEFORE = frozenset({"COMMA", "SEMI", "RPAREN", "RBRACKET", "DOT", "ARROW", "RANGE", "LBRACKET"})
_TIGHT_BEHIND = frozenset({"LPAREN", "LBRACKET", "DOT", "ARROW", "RANGE", "NOT", "BNOT", "PREDICATE_OPEN"})
_CALLERS = frozenset({"IDENT", "OPTION_ITEM", "SIZEOF", "OFFSETOF", "TYPEOF", "TYPEINFO"})
_PREFIXES = frozenset({"MINUS", "TIMES", "BAND", "INCREMENT", "DECREMENT"})
_STEPS = frozenset({"INCREMENT", "DECREMENT"})
_ASSIGNS = frozenset({"ASSIGN", "OP_ASSIGN", "TIMES_ASSIGN"})
_JUMPS = frozenset({"LET", "BREAK", "CONTINUE", "RETURN", "IMPORT"})


class ItemPrinter:
    """Prints the tokens of one item; :mod:`pytrace.frontend.format.formatter` has written its head."""

    def __init__(self, lines: Lines, structure: Structure, level: int = 0) -> None:
        self.lines = lines
        self.tokens = structure.tokens
        self.starts = structure.starts
        self.roles = structure.roles
        self.level = level
        self.blocks: list[bool] = []
        """For each open block, whether it is on one line."""
        self.casts: list[bool] = []
        """For each open parenthesis, whether it belongs to a cast."""
        self.type_depth: int | None = None
        """Number of open brackets at the start of the current type."""
        self.brackets = 0
        self.assigned = False
        self.statement: Token | None = None
        self.last: Token | None = None
        self.unary = False
        """The last token was a unary operator."""
        self.cast_end = False
        """The last token closed the parenthesis of a cast."""
        self.config = False
        self.closers = _pair(self.tokens)

    def run(self) -> None:
        self.config = self.tokens[0].type == "CONFIG_ITEM"
        self.last = self.tokens[0]
        for index in range(1, len(self.tokens)):
            self._token(index)
        if self.tokens[0].type in ("MAP_ITEM", "OPTION_ITEM") and self.tokens[-1].type != "SEMI":
            self.lines.write(";")

    # ------------------------------------------------------------------------------------------ tokens

    def _token(self, index: int) -> None:
        token = self.tokens[index]
        if token.type == "TYPE_MARK":
            self.type_depth = self.brackets
            return
        if token.type == "SEMI" and self._is_stray():
            return
        if token.type == "RBRACE":
            self._close_block(token)
        elif token.type in BLOCK_OPENERS:
            self._open_block(index, token)
        else:
            self._plain(index, token)
        self.last = token

    def _is_stray(self) -> bool:
        return self.last is not None and (self.last.type == "SEMI" or self.last.type in BLOCK_OPENERS)

    def _plain(self, index: int, token: Token) -> None:
        if index in self.starts or (self.config and token.type == "IDENT" and self._entry_starts()):
            self._start_statement(token)
        else:
            self._separate(token)
        binary = self._is_binary()
        self.lines.write(token.text)
        self.lines.reached(token.span.end)
        self._track(index, token, binary)
        if token.type == "SEMI":
            self._end_statement()

    def _entry_starts(self) -> bool:
        return self.last is not None and self.last.type != "ASSIGN"

    def _start_statement(self, token: Token) -> None:
        """Start a statement on a new line, or after a blank in a single-line block."""
        if self.config and self.last is not None and self.last.type not in ("SEMI", "LBRACE"):
            self.lines.write(";")
        self.type_depth = None
        self._boundary(token)
        self.assigned = False
        self.statement = token
        self.unary = False
        self.cast_end = False
        self.last = None

    def _boundary(self, token: Token) -> None:
        lines = self.lines
        indent = INDENT * self.level
        if self.blocks and self.blocks[-1]:
            lines.space()
            lines.comments_to(token.span.start, self.level)
            return
        lines.trailing_comments(token.span.start, indent)
        if not lines.fresh:
            lines.break_line(indent)
        opened = self.last is not None and self.last.type in BLOCK_OPENERS
        if opened and not lines.comment_before(token.span.start):
            return
        lines.comments_to(token.span.start, self.level)

    def _end_statement(self) -> None:
        self.statement = None
        self.type_depth = None

    # ------------------------------------------------------------------------------------------ blocks

    def _open_block(self, index: int, token: Token) -> None:
        if index in self.starts:
            self._start_statement(token)
        else:
            self._joined(token)
        closer = self.closers[index]
        role = self.roles.get(index, "")
        inline = role in ("operand", "value") and "\n" not in self.lines.source[token.span.start : closer.span.end]
        inline = inline or (bool(self.blocks) and self.blocks[-1])
        self.lines.write(token.text)
        self.lines.reached(token.span.end)
        self.blocks.append(inline)
        self.level += 1
        self.brackets += 1
        self.type_depth = None
        self.unary = self.cast_end = False

    def _joined(self, token: Token) -> None:
        """Move to a brace on the line of its header; comments in between are written before it."""
        last = self.last
        self.lines.comments_to(token.span.start, self.level + 1)
        if last is None or last.type not in ("LPAREN", "LBRACKET"):
            self.lines.space()

    def _close_block(self, token: Token) -> None:
        inline = self.blocks.pop()
        empty = self.last is not None and self.last.type in BLOCK_OPENERS
        if not inline and self._lacks_semicolon():
            self.lines.write(";")
        self.level -= 1
        self.brackets -= 1
        comment = self.lines.comment_before(token.span.start)
        if inline:
            self.lines.comments_to(token.span.start, self.level)
            self.lines.space()
        elif comment or not empty:
            self._end_lines(token)
        self.lines.write(token.text)
        self.lines.reached(token.span.end)
        self.statement = None
        self.assigned = False
        self.type_depth = None
        self.unary = self.cast_end = False

    def _end_lines(self, token: Token) -> None:
        lines = self.lines
        inner = INDENT * (self.level + 1)
        lines.trailing_comments(token.span.start, inner)
        if not lines.fresh:
            lines.break_line(inner)
        while lines.comment_before(token.span.start):
            lines.comments_to(token.span.start, self.level + 1)
        lines.break_line()
        lines.drop_empty()
        lines.break_line(INDENT * self.level)

    def _lacks_semicolon(self) -> bool:
        last = self.last
        if last is None or last.type in ("SEMI", "RBRACE") or last.type in BLOCK_OPENERS:
            return bool(last is not None and last.type == "RBRACE" and self.assigned and self.statement is not None)
        if self.config:
            return True
        return self.statement is not None and (self.assigned or self.statement.type in _JUMPS)

    # ------------------------------------------------------------------------------------------ blanks

    def _separate(self, token: Token) -> None:
        """Write the white space between the last token and this one of the same statement."""
        lines = self.lines
        last = self.last
        level = self.level + 1
        start = token.span.start
        broken = "\n" in lines.gap(start) and self._may_break(token)
        if lines.comment_before(start):
            lines.comments_to(start, level)
            if lines.fresh or not self._is_tight(last, token):
                if not lines.fresh:
                    lines.space()
                return
            return
        if broken:
            lines.break_line(INDENT * level)
        elif not self._is_tight(last, token):
            lines.space()

    def _may_break(self, token: Token) -> bool:
        return token.type not in ("SEMI", "ELSE", "COMMA", "PREDICATE_OPEN", "PREDICATE_CLOSE")

    def _is_tight(self, last: Token | None, token: Token) -> bool:
        if last is None:
            return True
        if self.unary:
            return not (last.type in _PREFIXES and token.text[:1] == last.text[:1] and last.type != "TIMES")
        if self.cast_end or last.type in _TIGHT_BEHIND:
            return True
        kind = token.type
        if kind in _TIGHT_BEFORE or kind == "PREDICATE_CLOSE":
            return True
        if kind == "LPAREN":
            return last.type in _CALLERS
        if kind in _STEPS:
            return last.type in OPERAND_ENDS
        if kind == "COLON":
            return self._is_annotation() or last.type == "QUESTION"
        return self.type_depth is not None and kind == "TIMES" and last.type == "TIMES"

    def _is_annotation(self) -> bool:
        """Whether a colon here stands before a type."""
        if self.statement is not None:
            return self.statement.type == "LET" and not self.assigned
        return self.tokens[0].type == "FUNCTION_ITEM" and not self.blocks

    def _is_binary(self) -> bool:
        last = self.last
        return last is not None and last.type in OPERAND_ENDS and not self.cast_end

    def _track(self, index: int, token: Token, binary: bool) -> None:
        """Update the state that blanks depend on."""
        kind = token.type
        in_type = self.type_depth is not None
        self.unary = kind in ("NOT", "BNOT") or (kind in _PREFIXES and not binary and not in_type)
        self.cast_end = False
        if kind in ("LPAREN", "LBRACKET"):
            self.brackets += 1
            marked = index + 1 < len(self.tokens) and self.tokens[index + 1].type == "TYPE_MARK"
            self.casts.append(kind == "LPAREN" and marked and (self.last is None or self.last.type not in _CALLERS))
        elif kind in ("RPAREN", "RBRACKET"):
            self.brackets -= 1
            self.cast_end = self.casts.pop() if self.casts else False
        elif kind in _ASSIGNS and self.brackets == len(self.blocks):
            self.assigned = True
        self._track_type(kind)

    def _track_type(self, kind: str) -> None:
        if self.type_depth is None:
            if kind == "COLON" and self._is_annotation():
                self.type_depth = self.brackets
        elif (
            kind in _ASSIGNS
            or self.brackets < self.type_depth
            or (kind in ("COMMA", "SEMI") and self.brackets == self.type_depth)
        ):
            self.type_depth = None


def _pair(tokens: list[Token]) -> dict[int, Token]:
    """The closing token of each block, by the index of its opening one."""
    closers: dict[int, Token] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.type in BLOCK_OPENERS:
            opened.append(index)
        elif token.type == "RBRACE":
            closers[opened.pop()] = token
    return closers
