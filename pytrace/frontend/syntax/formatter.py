"""The formatter of ``--fmt``.

It works on tokens, so that numbers, strings, parentheses and comments stay as written, and changes only the white
space between them:

- four spaces for each block; one statement per line; a block's opening brace is at the end of its header's line;
- a value's block (``$a = if (c) { 1 } else { 2 }``) stays on one line when it was on one;
- blanks around binary operators, after commas, after ``if`` and similar keywords; none after unary operators and inside
  brackets;
- a line break inside a statement stays where it was, with one level of indentation more;
- up to one empty line stays; probes, macros and functions have one around them;
- attach points share a line of up to 100 columns, else each has its own; a long predicate has its own as well;
- ``;`` is put between statements, and after assignments, declarations and jumps that lack it.

Comments stay where they were: alone on a line, or after what they follow.  C parts stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pytrace.core.diagnostics import Diagnostics, InternalError
from pytrace.core.probe_kinds import is_call
from pytrace.core.source import Source
from pytrace.frontend.syntax import nodes, parser
from pytrace.frontend.syntax.parser import Branch, ParsedItem
from pytrace.frontend.syntax.structure import Structure
from pytrace.frontend.syntax.tokens import BLOCK_OPENERS, OPERAND_ENDS, Token

# ---------------------------------------------------------------------------------------------------------------- lines

# Output lines of the formatter, and the comments between tokens.


_INDENT = "    "


class Lines:
    """The output so far, and the comments that are not written yet."""

    def __init__(self, source: str, comments: list[tuple[int, int]]) -> None:
        self.source = source
        self._comments = comments
        self._next = 0
        self._done: list[str] = []
        self._line = ""
        self._position = 0
        """Source offset after the last token written."""

    # ------------------------------------------------------------------------------------------ writing

    def write(self, text: str) -> None:
        """Add *text* to the line."""
        self._line += text

    def write_verbatim(self, text: str, end: int) -> None:
        """Add text unchanged, including its comments; *end* is the source offset after it."""
        self._line += text
        self.passed(end)

    def passed(self, position: int) -> None:
        """Record that the output covers the source up to the offset *position*, including comments before it."""
        self._position = position
        while self._next < len(self._comments) and self._comments[self._next][0] < position:
            self._next += 1

    def reached(self, position: int) -> None:
        """Like :meth:`passed` for a token, which contains no comments."""
        self._position = position

    def space(self) -> None:
        """Write a blank unless the line is empty or ends in one."""
        if self._line and not self._line.endswith((" ", "\n")):
            self._line += " "

    def break_line(self, indent: str = "") -> None:
        """End the line; the next one starts with *indent*."""
        if self._line.strip():
            self._done.append(self._line.rstrip())
        self._line = indent

    def empty_line(self) -> None:
        """Write an empty line unless there is one or nothing was written."""
        if self._done and self._done[-1] != "":
            self._done.append("")

    def drop_empty(self) -> None:
        """Remove empty lines at the end."""
        while self._done and self._done[-1] == "":
            self._done.pop()

    @property
    def column(self) -> int:
        """Number of characters on the current line."""
        return len(self._line)

    @property
    def fresh(self) -> bool:
        """Whether the current line is empty."""
        return not self._line.strip()

    def text(self) -> str:
        """The whole output, ending in a newline unless empty."""
        self.break_line()
        while self._done and self._done[-1] == "":
            self._done.pop()
        return "".join(f"{line}\n" for line in self._done)

    # ------------------------------------------------------------------------------------------ gaps

    def gap(self, position: int) -> str:
        """The source between the last token written and *position*."""
        return self.source[self._position : position]

    def comment_before(self, position: int) -> bool:
        """Whether there is an unwritten comment before *position*."""
        return self._next < len(self._comments) and self._comments[self._next][0] < position

    def trailing_comments(self, position: int, indent: str = "") -> None:
        """Write the comments before *position* that are on the source line of the last token written."""
        while self.comment_before(position):
            start, end = self._comments[self._next]
            if "\n" in self.source[self._position : start]:
                return
            self.space()
            self._comment(start, end)
            if self.source.startswith("//", start):
                self.break_line(indent)
                return

    def comments_to(self, position: int, level: int) -> None:
        """Write all comments before *position*, those on lines of their own at *level*, and keep an empty line."""
        indent = _INDENT * level
        while self.comment_before(position):
            start, end = self._comments[self._next]
            gap = self.source[self._position : start]
            if "\n" in gap and not self.fresh:
                self.break_line(indent)
            if gap.count("\n") > 1 and self.fresh:
                self.break_line(indent)
                self.empty_line()
            elif not self.fresh:
                self.space()
            self._comment(start, end)
            if self.source.startswith("//", start) or "\n" in self._tail(position):
                self.break_line(indent)
        if self.gap(position).count("\n") > 1 and self.fresh:
            self.break_line(indent)
            self.empty_line()
        elif not self.fresh and not self._line.endswith(" ") and self._line.endswith("*/"):
            self.space()

    def between(self, position: int, *, blank: bool, end: bool = False, level: int = 0) -> None:
        """Move from one root item to the next one at *position*; *blank*: write an empty line between them.

        *end*: no item follows. *level* is the number of ``if comptime`` around the items.
        """
        indent = _INDENT * level
        self.trailing_comments(position, indent)
        self.break_line(indent)
        if blank:
            self.empty_line()
        if end and not self.comment_before(position):
            return
        self.comments_to(position, level)

    def _tail(self, position: int) -> str:
        """The source between the last token written and the next comment or *position*."""
        following = self._comments[self._next][0] if self.comment_before(position) else position
        return self.source[self._position : following]

    def _comment(self, start: int, end: int) -> None:
        lines = self.source[start:end].split("\n")
        self._line += "\n".join(line.rstrip() for line in lines)
        self._next += 1
        self._position = end


# --------------------------------------------------------------------------------------------------------- item printer

# The printer of one item's tokens, for the formatter.


_TIGHT_BEFORE = frozenset({"COMMA", "SEMI", "RPAREN", "RBRACKET", "DOT", "ARROW", "RANGE", "LBRACKET"})
_TIGHT_BEHIND = frozenset({"LPAREN", "LBRACKET", "DOT", "ARROW", "RANGE", "NOT", "BNOT", "PREDICATE_OPEN"})
_CALLERS = frozenset({"IDENT", "OPTION_ITEM", "SIZEOF", "OFFSETOF", "TYPEOF", "TYPEINFO"})
_PREFIXES = frozenset({"MINUS", "TIMES", "BAND", "INCREMENT", "DECREMENT"})
_STEPS = frozenset({"INCREMENT", "DECREMENT"})
_ASSIGNS = frozenset({"ASSIGN", "OP_ASSIGN", "TIMES_ASSIGN"})
_JUMPS = frozenset({"LET", "BREAK", "CONTINUE", "RETURN", "IMPORT"})


class ItemPrinter:
    """Prints the tokens of one item; :mod:`pytrace.frontend.syntax.formatter` has written its head."""

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
        indent = _INDENT * self.level
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
            self._join_brace(token)
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

    def _join_brace(self, token: Token) -> None:
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
        inner = _INDENT * (self.level + 1)
        lines.trailing_comments(token.span.start, inner)
        if not lines.fresh:
            lines.break_line(inner)
        while lines.comment_before(token.span.start):
            lines.comments_to(token.span.start, self.level + 1)
        lines.break_line()
        lines.drop_empty()
        lines.break_line(_INDENT * self.level)

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
            lines.break_line(_INDENT * level)
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


# ------------------------------------------------------------------------------------------------------------ formatter


_WIDTH = 100
_BODIES = (nodes.Probe, nodes.Macro, nodes.Function, nodes.RootIf)


def format_source(source: Source, diagnostics: Diagnostics) -> str:
    """The formatted script, with ``\\n`` line ends; unchanged when it has syntax errors, which are recorded.

    Raises:
        InternalError: the formatted script parses to a different AST.
    """
    known = len(diagnostics.errors)
    if "\r\n" in source.text:
        text = format_source(Source(source.name, source.text.replace("\r\n", "\n")), diagnostics)
        return source.text if len(diagnostics.errors) > known else text
    program, parsed_items, comments = parser.parse_with_tokens(source, diagnostics)
    if len(diagnostics.errors) > known:
        return source.text
    ended = _with_semicolons(source, parsed_items)
    if ended is not None:
        # With these semicolons more missing ones can be found.
        return format_source(ended, Diagnostics())
    text = _Formatter(source, program, comments).run(parsed_items)
    again = Diagnostics()
    if not nodes.same(parser.parse(Source(source.name, text), again), program) or again.items:
        raise InternalError("the formatted script does not mean the same")
    return text


def _with_semicolons(source: Source, parsed_items: list[ParsedItem]) -> Source | None:
    """The script with missing semicolons between statements added; None when none is missing."""
    structures = [parsed.structure for parsed in _all_items(parsed_items) if parsed.structure is not None]
    before = [structure.tokens[index - 1] for structure in structures for index in sorted(structure.unended)]
    if not before:
        return None
    # A closing brace ends a statement that needs no semicolon, or a value; which of them is known once the other
    # semicolons have been added.
    places = [token.span.end for token in before if token.type != "RBRACE"] or [token.span.end for token in before]
    bounds = [0, *places, len(source.text)]
    return Source(source.name, ";".join(source.text[a:b] for a, b in pairwise(bounds)))


def _all_items(parsed_items: list[ParsedItem]) -> Iterator[ParsedItem]:
    """*parsed_items*, and those inside them."""
    for parsed in parsed_items:
        yield parsed
        for branch in parsed.branches:
            yield from _all_items(branch.parsed_items)


class _Formatter:
    """Formats one script."""

    def __init__(self, source: Source, program: nodes.Program, comments: dict[int, int]) -> None:
        self.source = source
        self.program = program
        self.lines = Lines(source.text, sorted(comments.items()))
        self.level = 0
        """Number of ``if comptime`` around the current item."""

    def run(self, parsed_items: list[ParsedItem]) -> str:
        self._parsed_items(parsed_items)
        self.lines.between(len(self.source.text), blank=False, end=True)
        return self.lines.text()

    def _parsed_items(self, parsed_items: list[ParsedItem]) -> None:
        before: ParsedItem | None = None
        for parsed in parsed_items:
            start = parsed.head.start
            apart = before is not None and (isinstance(before.node, _BODIES) or isinstance(parsed.node, _BODIES))
            opened = before is None and self.level > 0
            self.lines.between(start, blank=apart, end=opened, level=self.level)
            self._parsed_item(parsed)
            before = parsed

    def _branch(self, branch: Branch, *, first: bool) -> None:
        lines = self.lines
        lines.comments_to(branch.head.start, self.level)
        lines.space()
        word = "if comptime" if first else "else"
        lines.write(word if first or branch.structure is None else "else if comptime")
        lines.reached(branch.head.end)
        if branch.structure is not None:
            start = branch.structure.tokens[1].span.start
            if not lines.comment_before(start):
                lines.reached(start)  # drops a line break before the condition
            ItemPrinter(lines, branch.structure, self.level).run()
        lines.comments_to(branch.opener.start, self.level + 1)
        lines.space()
        lines.write("{")
        lines.reached(branch.opener.end)
        self.level += 1
        self._parsed_items(branch.parsed_items)
        lines.between(branch.end.start, blank=False, end=True, level=self.level)
        self.level -= 1
        lines.break_line()
        lines.drop_empty()
        lines.break_line(_INDENT * self.level)
        lines.write("}")
        lines.reached(branch.end.end)

    def _parsed_item(self, parsed: ParsedItem) -> None:
        lines = self.lines
        node = parsed.node
        if isinstance(node, nodes.CPart):
            lines.write_verbatim(node.text, node.span.end)
            return
        if parsed.branches:
            for index, branch in enumerate(parsed.branches):
                self._branch(branch, first=index == 0)
            return
        assert parsed.structure is not None
        if isinstance(node, nodes.Probe):
            self._attach_points(node)
            self._predicate_line(node)
        else:
            lines.write(parsed.head.text)
            lines.passed(parsed.head.end)
        ItemPrinter(lines, parsed.structure, self.level).run()
        if isinstance(node, nodes.RootFail):
            lines.write(";")

    def _predicate_line(self, node: nodes.Probe) -> None:
        """Start a new line when the predicate does not fit after the last attach point."""
        if node.predicate is None:
            return
        width = len("".join(node.predicate.span.text.split()))
        if self.lines.column + width > _WIDTH:
            self.lines.trailing_comments(node.predicate.span.start)
            self.lines.break_line(_INDENT * self.level)

    def _attach_points(self, node: nodes.Probe) -> None:
        lines = self.lines
        texts = [f"{point.name}={point.text}" if point.name else point.text for point in node.attach_points]
        commented = lines.comment_before(node.attach_points[-1].span.start)
        split = commented or len(", ".join(texts)) > _WIDTH
        for index, (point, text) in enumerate(zip(node.attach_points, texts, strict=True)):
            last = index == len(texts) - 1
            lines.comments_to(point.span.start, self.level)
            lines.write(text if last else text + ",")
            lines.passed(point.span.end)
            if not last and split:
                lines.trailing_comments(node.attach_points[index + 1].span.start, _INDENT * self.level)
                lines.break_line(_INDENT * self.level)
            elif not last and not (is_call(texts[0]) and ":" not in texts[index + 1]):
                lines.space()
