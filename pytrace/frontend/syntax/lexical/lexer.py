"""Raw tokens of script code: one regular expression, no context.

Contexts (attach points, C parts, which ``<`` is a block, where a type stands) are the business of
:mod:`pytrace.frontend.syntax.lexical.structure`, which asks for tokens one at a time and may look ahead.
"""

from __future__ import annotations

import re

from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source, Span
from pytrace.frontend.syntax.lexical.literals import decode_integer, decode_string
from pytrace.frontend.syntax.lexical.tokens import KEYWORDS, OPERATORS, Token

_OPERATOR = "|".join(re.escape(text) for text in sorted(OPERATORS, key=len, reverse=True))
_MASTER = re.compile(
    rf"""
    [ \t\r\n\f\v]*
    (?:
      (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<variable>\$[A-Za-z_][A-Za-z0-9_]*)
    | (?P<map>@(?:[A-Za-z_][A-Za-z0-9_]*)?)
    | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
    | (?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
    | (?P<open_comment>/\*)
    | (?P<operator>{_OPERATOR})
    | (?P<number>[0-9][0-9A-Za-z_]*)
    | (?P<parameter>\$(?:[0-9]+|\#))
    | (?P<open_string>"[^\n]*)
    | (?P<quoted>'[^'\n]*'?)
    | (?P<end>\Z)
    | (?P<other>\#|[^\x00-\x7f]+|.)
    )""",
    re.VERBOSE | re.DOTALL,
)
LAYOUT = r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+"
"""White space and comments, for the patterns that look ahead."""
_LAYOUT = re.compile(LAYOUT)
_FRACTION = re.compile(r"\.[0-9]+")
_BEHIND_DOT = re.compile(r"\.\s*\Z")
_STRING_TAIL = re.compile(r"\)*[ \t]*(?:[;,][ \t]*)?[})>\] \t\r]*$")
_MAX_PARAMETER = (1 << 31) - 1


class Lexer:
    """Gives the tokens of one source; :attr:`position` is where the next one is looked for."""

    def __init__(self, source: Source, diagnostics: Diagnostics, *, in_c: bool = False) -> None:
        self.source = source
        self.diagnostics = diagnostics
        self.in_c = in_c
        """Whether the text comes from a C macro."""
        self.position = 0
        self.comments: dict[int, int] = {}
        """Start and end offsets of the comments that were passed."""
        self._ahead: list[Token] = []

    # ------------------------------------------------------------------------------------------ reading

    def token(self) -> Token:
        """The next token; of kind EOF, again and again, at the end of the text."""
        if self._ahead:
            return self._ahead.pop()
        match_at, text = _MASTER.match, self.source.text
        while True:
            match = match_at(text, self.position)
            assert match is not None  # the last alternative takes anything
            kind = match.lastgroup
            assert kind is not None
            start, end = match.span(kind)
            self.position = end
            word = text[start:end]
            if kind == "name":
                return Token(KEYWORDS.get(word, "IDENT"), word, Span(self.source, start, end))
            if kind == "operator":
                return Token(OPERATORS[word], word, Span(self.source, start, end))
            if kind == "comment":
                self.comments[start] = end
                continue
            made = _MAKERS[kind](self, word, Span(self.source, start, end))
            if made is not None:
                return made

    def push(self, token: Token) -> None:
        """Put *token* back, so that it comes next."""
        self._ahead.append(token)

    def rewind(self) -> None:
        """Forget tokens that were put back: they are read again."""
        if self._ahead:
            self.seek(min(token.span.start for token in self._ahead))

    def seek(self, position: int) -> None:
        """Go on at another place of the text; tokens that were put back are forgotten."""
        self._ahead.clear()
        self.position = position

    def here(self) -> int:
        """Offset behind the white space and comments at the current place, recording the comments."""
        text = self.source.text
        while True:
            match = _SPACE.match(text, self.position)
            assert match is not None
            self.position = match.end()
            match = _COMMENT.match(text, self.position)
            if match is None:
                if text.startswith("/*", self.position):
                    self._open_comment("/*", Span(self.source, self.position, self.position + 2))
                return self.position
            self.comments[match.start()] = match.end()
            self.position = match.end()

    def error(self, message: str, span: Span, *hints: str) -> None:
        """Record a syntax error."""
        self.diagnostics.error(f"syntax: {message}", span, hints=hints)

    # ------------------------------------------------------------------------------------------ kinds

    def _variable(self, word: str, span: Span) -> Token:
        return Token("VARIABLE", word, span, word[1:])

    def _map(self, word: str, span: Span) -> Token:
        return Token("MAP", word, span, word)

    def _string(self, word: str, span: Span) -> Token:
        return Token("STRING", word, span, decode_string(word[1:-1], span, span.start + 1, self.diagnostics))

    def _number(self, word: str, span: Span) -> Token:
        text = self.source.text
        fraction = _FRACTION.match(text, span.end)
        if fraction is not None and not _BEHIND_DOT.search(text, max(0, span.start - 40), span.start):
            self.position = fraction.end()
            whole = Span(self.source, span.start, self.position)
            self.error("there are no fractions in scripts", whole, "use a smaller unit, such as 1500us for 1.5ms")
            return Token("INT", word, whole, 0)
        return Token("INT", word, span, decode_integer(word, span, self.diagnostics, in_c=self.in_c))

    def _parameter(self, word: str, span: Span) -> Token:
        if word == "$#":
            return Token("PARAM_COUNT", word, span)
        number = int(word[1:]) if len(word) < 12 else _MAX_PARAMETER + 1
        if not 1 <= number <= _MAX_PARAMETER:
            self.error(f"'{word}' is not a parameter: they count from $1", span)
        return Token("PARAM", word, span, number)

    def _open_string(self, word: str, span: Span) -> Token:
        """A string that is not closed on its line: guess where it was meant to end, so that the rest still parses."""
        whole = Span(self.source, span.start, span.start + len(word.rstrip()))
        self.error("the string is not closed on its line", whole, "add '\"' at its end; a line end is written \\n")
        tail = _STRING_TAIL.search(word, 1)
        length = tail.start() if tail else len(word)
        self.position = span.start + length
        short = Span(self.source, span.start, self.position)
        return Token("STRING", word[:length], short, b"")

    def _open_comment(self, _word: str, span: Span) -> None:
        self.error("the comment is not closed", span, "add '*/' at its end")
        self.position = len(self.source.text)
        self.comments[span.start] = self.position

    def _quoted(self, word: str, span: Span) -> Token | None:
        if len(word) == 1:
            self.error('unexpected "\'"', span)
            return None
        self.error("strings are written with double quotes", span, f'write "{word.strip(chr(39))}"')
        return Token("STRING", word, span, b"")

    def _end(self, _word: str, span: Span) -> Token:
        return Token("EOF", "", span)

    def _other(self, word: str, span: Span) -> None:
        if word == "$":
            self.error("'$' without a name", span, "variables are $name, parameters $1 and $#")
        else:
            self.error(*_unexpected(word, span))


def _unexpected(word: str, span: Span) -> tuple[str, Span, str] | tuple[str, Span]:
    if "\udc80" <= word[0] <= "\udcff":  # what the error handler surrogateescape makes of bytes
        return f"unexpected byte 0x{ord(word[0]) - 0xDC00:x}", span, "outside of strings and comments a script is UTF-8"
    return f"unexpected '{word if word.isprintable() else ascii(word)[1:-1]}'", span


_SPACE = re.compile(r"[ \t\r\n\f\v]*")
_COMMENT = re.compile(r"//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/")
_MAKERS = {
    "variable": Lexer._variable,
    "map": Lexer._map,
    "string": Lexer._string,
    "number": Lexer._number,
    "parameter": Lexer._parameter,
    "open_string": Lexer._open_string,
    "open_comment": Lexer._open_comment,
    "quoted": Lexer._quoted,
    "end": Lexer._end,
    "other": Lexer._other,
}


def skip_layout(text: str, position: int) -> int:
    """The offset behind white space and comments at *position*."""
    match = _LAYOUT.match(text, position)
    return match.end() if match else position
