"""C types and expressions as users write them in the arguments of multi-purpose tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from pytrace.core.diagnostics import TraceError, did_you_mean


class SpecText(msgspec.Struct, frozen=True):
    """A part of a probe specification: *text* is at offset *start* of the argument *whole*, as written by the user."""

    whole: str
    text: str
    start: int = 0

    @classmethod
    def of(cls, whole: str) -> SpecText:
        """The whole argument."""
        return cls(whole, whole)

    def part(self, start: int, end: int) -> SpecText:
        """The part from *start* to *end*, without surrounding white space."""
        text = self.text[start:end]
        left = len(text) - len(text.lstrip())
        return SpecText(self.whole, text.strip(), self.start + start + left)

    def error(self, message: str, *, at: int = 0, length: int | None = None, hints: tuple[str, ...] = ()) -> TraceError:
        """An error that underlines *length* characters at *at* (all of the piece when it is not given)."""
        width = max(1, len(self.text) - at if length is None else length)
        start = self.start + at
        begin = self.whole.rfind("\n", 0, start) + 1
        end = self.whole.find("\n", start)
        line = self.whole[begin : end if end >= 0 else len(self.whole)]
        column = start - begin
        width = max(1, min(width, len(line) - column))
        return TraceError(f"{message}\n{line}\n{' ' * column}{'~' * width}", hints=hints)


# ---------------------------------------------------------------------------------------------- types


_INTEGERS = {
    "char": "int8", "short": "int16", "int": "int32", "long": "int64", "llong": "int64", "bool": "bool",
    "_Bool": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "__s8": "int8", "__s16": "int16", "__s32": "int32", "__s64": "int64",
    "__u8": "uint8", "__u16": "uint16", "__u32": "uint32", "__u64": "uint64", "__be16": "uint16", "__be32": "uint32",
    "int8_t": "int8", "int16_t": "int16", "int32_t": "int32", "int64_t": "int64", "uint8_t": "uint8",
    "uint16_t": "uint16", "uint32_t": "uint32", "uint64_t": "uint64", "size_t": "uint64", "ssize_t": "int64",
    "uintptr_t": "uint64", "intptr_t": "int64", "off_t": "int64", "loff_t": "int64", "pid_t": "int32",
    "uid_t": "uint32", "gid_t": "uint32", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "uint": "uint32",
    "ulong": "uint64", "float": "float", "double": "double",
    "gfp_t": "uint32", "umode_t": "uint16", "sector_t": "uint64", "dev_t": "uint32",
}  # fmt: skip
_QUALIFIERS = {"const", "volatile", "restrict", "__restrict", "__user", "__kernel", "register"}
_PARTS = {"unsigned", "signed", "char", "short", "int", "long"}
_TAGS = {"struct", "union", "enum"}
_PARAMETER = re.compile(r"(?s)(.*?[\s*])([A-Za-z_]\w*)\s*(\[\s*\d*\s*\])?$")
_WORD = re.compile(r"[A-Za-z_]\w*|\*")


class NoTypeError(ValueError):
    """The text is not a C type."""


def is_type_word(word: str) -> bool:
    """Whether a type may begin with this word."""
    is_listed = word in _INTEGERS or word in _QUALIFIERS or word in _PARTS or word in _TAGS or word == "void"
    return is_listed or word.endswith("_t")


def script_type(text: str) -> str:
    """The type *text* (``const struct sock *``) as scripts write it (``struct sock *``).

    Raises:
        NoTypeError: it is not a C type.
    """
    words = _WORD.findall(text)
    if "".join(words) != "".join(text.split()):
        raise NoTypeError(text)
    stars = words.count("*")
    names = [word for word in words if word != "*" and word not in _QUALIFIERS]
    if names == ["long", "double"]:
        raise NoTypeError(text)
    if not names or ("*" in words[: len(words) - stars] and set(words[words.index("*") :]) - {"*"} - _QUALIFIERS):
        raise NoTypeError(text)
    return _base(names, text) + (" " + "*" * stars if stars else "")


def _base(names: list[str], text: str) -> str:
    if names[0] in _TAGS:
        if len(names) != 2:
            raise NoTypeError(text)
        return " ".join(names)
    if all(name in _PARTS for name in names):
        return _arithmetic(names)
    if len(names) != 1:
        raise NoTypeError(text)
    return _INTEGERS.get(names[0], names[0])


def _arithmetic(names: list[str]) -> str:
    width = "int32"
    for name, type_ in (("char", "int8"), ("short", "int16"), ("long", "int64")):
        if name in names:
            width = type_
    return f"u{width}" if "unsigned" in names else width


def is_text(text: str) -> bool:
    """Whether a C type is text: a pointer to characters."""
    try:
        return script_type(text) == "int8 *"
    except NoTypeError:
        return False


def is_user(text: str) -> bool:
    """Whether a C type is annotated as a pointer into user memory."""
    return "__user" in text.split() or "__user" in _WORD.findall(text)


# ---------------------------------------------------------------------------------------------- signatures


class Parameter(msgspec.Struct, frozen=True):
    """A parameter: its name, its type in scripts, and whether it is text or points into user memory."""

    name: str
    type: str
    text: bool
    user: bool

    @property
    def fraction(self) -> bool:
        """Whether it is passed in a floating-point register, which BPF programs cannot read."""
        return self.type in ("float", "double")

    def value(self, argument: str) -> str:
        """The expression for the parameter; *argument* is that for the argument.

        ``args.NAME`` has the kernel's type, which the declared one overrides: ``struct sockaddr_in *`` for a
        ``struct sockaddr *``.
        """
        if argument.startswith("args.") and self.text:
            return f"uptr({argument})" if self.user else argument
        if self.type == "uint64":
            return argument
        if self.text:
            return f"uptr((int8 *){argument})" if self.user else argument
        value = f"({self.type}){argument}"
        return f"uptr({value})" if self.user and self.type.endswith("*") else value


def signature(spec: SpecText) -> tuple[Parameter, ...]:
    """The parameters of a signature without its parentheses.

    Raises:
        TraceError: a parameter is not a type and a name.
    """
    if not spec.text or spec.text == "void":
        return ()
    parameters: list[Parameter] = []
    start = 0
    for part in spec.text.split(","):
        piece = spec.part(start, start + len(part))
        start += len(part) + 1
        parameter = _parameter(piece)
        if any(parameter.name == other.name for other in parameters):
            raise piece.error(f"the signature has two parameters {parameter.name!r}")
        parameters.append(parameter)
    return tuple(parameters)


def _parameter(piece: SpecText) -> Parameter:
    match = _PARAMETER.match(piece.text)
    hints = ("write a signature as (struct sock *sk, size_t size)",)
    if match is None or (match[1].strip() in ("struct", "union", "enum")):
        raise piece.error(f"{piece.text!r} is not a parameter: a type and a name are expected", hints=hints)
    declared = match[1] + ("*" if match[3] else "")
    try:
        type_ = script_type(declared)
    except NoTypeError:
        raise piece.error(f"{match[1].strip()!r} is not a C type", length=len(match[1].rstrip()), hints=hints) from None
    return Parameter(match[2], type_, is_text(declared), is_user(declared))


# ---------------------------------------------------------------------------------------------- expressions


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
