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
from pytrace.core.source import Source
from pytrace.frontend.ast import nodes, visitor
from pytrace.frontend.format.item_printer import ItemPrinter
from pytrace.frontend.format.lines import INDENT, Lines
from pytrace.frontend.syntax import parser
from pytrace.frontend.syntax.parser import Branch, ParsedItem

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
    ended = _ended(source, parsed_items)
    if ended is not None:
        # With these semicolons more missing ones can be found.
        return format_source(ended, Diagnostics())
    text = _Formatter(source, program, comments).run(parsed_items)
    again = Diagnostics()
    if not visitor.same(parser.parse(Source(source.name, text), again), program) or again.items:
        raise InternalError("the formatted script does not mean the same")
    return text


def _ended(source: Source, parsed_items: list[ParsedItem]) -> Source | None:
    """The script with missing semicolons between statements added; None when none is missing."""
    structures = [parsed.structure for parsed in _all(parsed_items) if parsed.structure is not None]
    before = [structure.tokens[index - 1] for structure in structures for index in sorted(structure.unended)]
    if not before:
        return None
    # A closing brace ends a statement that needs no semicolon, or a value; which of them is known once the other
    # semicolons have been added.
    places = [token.span.end for token in before if token.type != "RBRACE"] or [token.span.end for token in before]
    bounds = [0, *places, len(source.text)]
    return Source(source.name, ";".join(source.text[a:b] for a, b in pairwise(bounds)))


def _all(parsed_items: list[ParsedItem]) -> Iterator[ParsedItem]:
    """*parsed_items*, and those inside them."""
    for parsed in parsed_items:
        yield parsed
        for branch in parsed.branches:
            yield from _all(branch.parsed_items)


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
        lines.break_line(INDENT * self.level)
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
            self.lines.break_line(INDENT * self.level)

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
                lines.trailing_comments(node.attach_points[index + 1].span.start, INDENT * self.level)
                lines.break_line(INDENT * self.level)
            elif not last:
                lines.space()
