"""C expressions of probe specifications, translated to expressions of scripts.

Operators and their precedence are those of C, so text and parentheses are kept; translated are names (``arg1`` counts
from one, parameters of a signature), casts, ``STRCMP`` and character constants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from pytrace.core.diagnostics import TraceError, did_you_mean
from pytrace.multitools.specs.c_types import NoTypeError, is_type_word, script_type
from pytrace.multitools.specs.problems import SpecText

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*\b)|(?P<name>\$?[A-Za-z_]\w*)"
    r'|(?P<text>"(?:[^"\\]|\\.)*")|(?P<character>\'(?:[^\'\\]|\\.)\')'
    r"|(?P<operator>->|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:().,\[\]@=])"
)
_BINARY = ("||", "&&", "|", "^", "&", "==", "!=", "<=", ">=", "<", ">", "<<", ">>", "+", "-", "*", "/", "%")
_UNARY = ("!", "~", "-", "*", "&", "+")
_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "a": 7, "b": 8}
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_SCRIPT_ESCAPE = re.compile(r'\\(?:[ntr"\\]|[0-3][0-7]{0,2}|[4-7][0-7]?(?![0-7])|[xX][0-9A-Fa-f])')
"""An escape of string literals in scripts (:mod:`pytrace.frontend.syntax.tokens`)."""
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*$")


class Token(msgspec.Struct, frozen=True):
    """A token: its group in the pattern, its text and its offset."""

    group: str
    text: str
    at: int


def tokens(spec: SpecText) -> list[Token]:
    """The tokens of an expression.

    Raises:
        TraceError: a character does not belong to any token.
    """
    result: list[Token] = []
    place = 0
    while place < len(spec.text):
        match = _TOKEN.match(spec.text, place)
        if match is None:
            what = "this text has no end" if spec.text[place] in "\"'" else f"{spec.text[place]!r} is not expected here"
            raise spec.error(what, at=place, length=1)
        group = str(match.lastgroup)
        if group == "text":
            check_escapes(spec, place, match.end())
        if group != "space":
            result.append(Token(group, match[0], place))
        place = match.end()
    return result


Resolve = Callable[[str], str | None]
"""Returns the script's expression for a name, None for an unknown one."""
Call = Callable[["Translator", Token], str | None]
"""Translates a call after the token of its name; the next token is the parenthesis. None: no such function."""


class Names(msgspec.Struct, frozen=True):
    """The meaning of names in an expression.

    Attributes:
        resolve: resolves names of values.
        known: names for suggestions.
        calls: functions with their own translation.
        functions: functions of scripts that are called unchanged.
    """

    resolve: Resolve
    known: tuple[str, ...] = ()
    calls: Callable[[str], Call | None] = lambda _name: None
    functions: frozenset[str] = frozenset()


class Translator:
    """Parses one C expression and translates it to one of scripts."""

    def __init__(self, spec: SpecText, names: Names) -> None:
        self.spec = spec
        self.names = names
        self._tokens = tokens(spec)
        self._place = 0

    # ---- tokens

    @property
    def next(self) -> Token:
        """The next token; an empty one at the end."""
        if self._place < len(self._tokens):
            return self._tokens[self._place]
        return Token("end", "", len(self.spec.text))

    def take(self) -> Token:
        """Consume and return the next token."""
        token = self.next
        self._place += 1
        return token

    def expect(self, text: str) -> None:
        """Consume the token *text*."""
        if self.next.text != text:
            raise self.error(f"{text!r} is expected, {self._shown()} found")
        self._place += 1

    def _shown(self) -> str:
        return repr(self.next.text) if self.next.text else "the end"

    def error(self, message: str, token: Token | None = None, hints: tuple[str, ...] = ()) -> TraceError:
        """An error at a token, by default the next one."""
        wrong = self.next if token is None else token
        return self.spec.error(message, at=wrong.at, length=len(wrong.text) or 1, hints=hints)

    # ---- expressions

    def whole(self) -> str:
        """Translate the whole text as one expression."""
        text = self.expression()
        if self.next.group != "end":
            if self.next.text == "=":
                hints = ("== compares",)
                raise self.error("an assignment is not possible here", hints=hints)
            raise self.error(f"an operator or the end is expected, {self._shown()} found")
        return text

    def every(self) -> list[str]:
        """Translate the whole text as expressions separated by commas."""
        expressions = [self.expression()]
        while self.next.text == ",":
            self.take()
            expressions.append(self.expression())
        if self.next.group != "end":
            raise self.error(f"a comma or the end is expected, {self._shown()} found")
        return expressions

    def expression(self) -> str:
        """Translate a conditional expression."""
        text = self._binary()
        if self.next.text != "?":
            return text
        self.take()
        first = self.expression()
        self.expect(":")
        return f"{text} ? {first} : {self.expression()}"

    def _binary(self) -> str:
        text = self._unary()
        while self.next.group == "operator" and self.next.text in _BINARY:
            operator = self.take().text
            text = f"{text} {operator} {self._unary()}"
        return text

    def _unary(self) -> str:
        if self.next.group == "operator" and self.next.text in _UNARY:
            operator = self.take().text
            operand = self._unary()
            return operand if operator == "+" else f"{operator}{operand}"
        if self.next.text == "(" and (cast := self._cast()) is not None:
            return f"({cast}){self._unary()}"
        return self._postfix(self._primary())

    def _cast(self) -> str | None:
        """Consume a type in parentheses; None if the parentheses contain something else."""
        place = self._place + 1
        if place >= len(self._tokens) or not is_type_word(self._tokens[place].text):
            return None
        if self.names.resolve(self._tokens[place].text) is not None:
            return None
        words: list[str] = []
        while place < len(self._tokens) and (self._tokens[place].group == "name" or self._tokens[place].text == "*"):
            words.append(self._tokens[place].text)
            place += 1
        if place >= len(self._tokens) or self._tokens[place].text != ")":
            return None
        try:
            type_ = script_type(" ".join(words))
        except NoTypeError:
            return None
        self._place = place + 1
        return type_

    def _primary(self) -> str:
        token = self.take()
        if token.text == "(":
            inner = self.expression()
            self.expect(")")
            return f"({inner})"
        if token.group == "number" or token.group == "text":
            return token.text
        if token.group == "character":
            body = token.text[1:-1]
            return str(_ESCAPES.get(body[1], ord(body[1])) if body.startswith("\\") else ord(body))
        if token.group == "name":
            return self._name(token)
        what = repr(token.text) if token.text else "the end"
        raise self.error(f"a value is expected, {what} found", token)

    def _name(self, token: Token) -> str:
        if self.next.text == "(":
            return self._called(token)
        value = self.names.resolve(token.text)
        if value is not None:
            return value
        if _CONSTANT.match(token.text):
            return token.text
        near = did_you_mean(token.text, self.names.known)
        hint = f"known here: {', '.join(self.names.known)}"
        raise self.error(f"unknown name {token.text!r}", token, (*near, hint))

    def _called(self, token: Token) -> str:
        special = self.names.calls(token.text)
        if special is not None and (text := special(self, token)) is not None:
            return text
        if token.text not in self.names.functions:
            raise self.error(f"unknown function {token.text!r}", token, did_you_mean(token.text, self.names.functions))
        return f"{token.text}({', '.join(self.arguments())})"

    def arguments(self) -> list[str]:
        """Translate the arguments of a call, from its opening to its closing parenthesis."""
        self.expect("(")
        expressions: list[str] = []
        while self.next.text != ")":
            if expressions:
                self.expect(",")
            expressions.append(self.expression())
        self.take()
        return expressions

    def type_argument(self) -> str | None:
        """A type in parentheses as the only argument (``sizeof(struct sock)``); None if it is an expression."""
        return self._cast()

    def _postfix(self, text: str) -> str:
        while self.next.group == "operator":
            operator = self.next.text
            if operator in (".", "->"):
                self.take()
                member = self.take()
                if member.group != "name":
                    raise self.error(f"the name of a member is expected after {operator}", member)
                text += f"{operator}{member.text}"
            elif operator == "[":
                self.take()
                text += f"[{self.expression()}]"
                self.expect("]")
            elif operator == "@":
                text = self._space(text)
            else:
                return text
        return text

    def _space(self, text: str) -> str:
        """``VALUE@user``: a pointer into user memory."""
        self.take()
        word = self.take()
        if word.text not in ("user", "kernel"):
            raise self.error("'user' or 'kernel' is expected after @", word)
        return f"{'uptr' if word.text == 'user' else 'kptr'}({text})"


def split(spec: SpecText, separator: str, most: int = 0) -> Iterator[SpecText]:
    """Split *spec* at separators outside of brackets, strings and ``? :``, at most *most* times if not 0."""
    depth = questions = start = place = parts = 0
    text = spec.text
    while place < len(text):
        character = text[place]
        if character in "\"'":
            place = text_end(text, place)
            continue
        depth += (character in "([{") - (character in ")]}")
        if character == "?" and separator == ":":
            questions += 1
        elif character == separator and depth <= 0:
            if questions:
                questions -= 1
            elif not most or parts < most:
                yield spec.part(start, place)
                start, parts = place + 1, parts + 1
        place += 1
    yield spec.part(start, len(text))


def text_end(text: str, place: int) -> int:
    """End of the string literal that begins at *place*, after its closing quote."""
    quote, offset = text[place], place + 1
    while offset < len(text) and text[offset] != quote:
        offset += 2 if text[offset] == "\\" else 1
    return offset + 1


def check_escapes(spec: SpecText, start: int, end: int) -> None:
    """Refuse escapes of a string literal that scripts do not have; the others mean the same in both."""
    for match in _ESCAPE.finditer(spec.text, start, end):
        if not _SCRIPT_ESCAPE.match(spec.text, match.start(), end):
            hints = ('escapes are \\n \\t \\r \\" \\\\ \\NNN (octal) and \\xNN',)
            raise spec.error(f"unknown escape '{match[0]}'", at=match.start(), length=2, hints=hints)
