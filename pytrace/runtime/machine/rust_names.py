"""Rust names of the newer mangling (``v0``, the default since Rust 1.90), as ``std::backtrace`` shows them.

Source: RFC 2603, and the chapter "v0 Symbol Format" of The rustc book. Hashes of crates and types of constants are left
out.
"""

from __future__ import annotations

import string
from collections.abc import Callable

MOST_STEPS = 20_000
"""Parts of a name that are printed; references to earlier parts let short names be of any length."""
MOST_NESTED = 150
MOST_LIFETIMES = 100
"""Lifetimes of one ``for<…>``."""
_DIGITS = string.digits + string.ascii_lowercase + string.ascii_uppercase
_BASIC = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8", "i": "isize", "j": "usize",
    "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_", "s": "i16", "t": "u16", "u": "()", "v": "...",
    "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_NAMESPACES = {"C": "closure", "S": "shim"}


class MalformedNameError(ValueError):
    """A name is none of this mangling, or its text would be too long."""


def demangle(name: str) -> str:
    """The readable form of a name that begins with ``_R``.

    Raises:
        MalformedNameError: it is not mangled like that.
    """
    text, dot, suffix = name.removeprefix("_R").partition(".")
    if not text.isascii():
        raise MalformedNameError(name)
    reader = _Reader(text)
    reader.path(in_value=True)
    shown = reader.text
    if not reader.ended:
        reader.path(in_value=False)  # the crate that made the instance
    if not reader.ended:
        raise MalformedNameError(name)
    return f"{shown}{'' if suffix.startswith('llvm.') else dot + suffix}"


class _Reader:
    """Reads the parts of a name, and appends their text."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._place = 0
        self._out: list[str] = []
        self._lifetimes = self._nested = self._steps = 0

    @property
    def ended(self) -> bool:
        return self._place == len(self._name)

    @property
    def text(self) -> str:
        return "".join(self._out)

    # ---- characters and numbers

    def _next(self) -> str:
        if self._place >= len(self._name):
            raise MalformedNameError(self._name)
        self._place += 1
        return self._name[self._place - 1]

    def _eat(self, character: str) -> bool:
        found = self._name.startswith(character, self._place)
        self._place += found
        return found

    def _number(self) -> int:
        """``_`` is 0, ``0_`` is 1, …"""
        if self._eat("_"):
            return 0
        value = 0
        while (character := self._next()) != "_":
            digit = _DIGITS.find(character)
            if digit < 0 or value >> 64:
                raise MalformedNameError(self._name)
            value = value * 62 + digit
        return value + 1

    def _tagged(self, tag: str) -> int:
        return self._number() + 1 if self._eat(tag) else 0

    def _identifier(self) -> str:
        encoded = self._eat("u")
        start = self._place
        while self._name[self._place : self._place + 1].isdigit():
            self._place += 1
            if self._name[start] == "0":
                break
        if not start < self._place < start + 6:
            raise MalformedNameError(self._name)
        length = int(self._name[start : self._place])
        self._eat("_")
        text = self._name[self._place : self._place + length]
        self._place += length
        if len(text) < length:
            raise MalformedNameError(self._name)
        if not encoded:
            return text
        plain, _, rest = text.rpartition("_")
        try:
            return (f"{plain}-{rest}" if plain else rest).encode().decode("punycode")
        except UnicodeError as error:
            raise MalformedNameError(self._name) from error

    # ---- steps

    def _put(self, text: str) -> None:
        self._out.append(text)

    def _step(self, part: Callable[[], object]) -> None:
        """Read a part, if the name is not too long or too deep."""
        self._steps += 1
        self._nested += 1
        if self._steps > MOST_STEPS or self._nested > MOST_NESTED:
            raise MalformedNameError(self._name)
        part()
        self._nested -= 1

    def _back(self, part: Callable[[], object]) -> None:
        """Read a part again that stands earlier in the name."""
        here = self._place - 1
        target = self._number()
        if target >= here:
            raise MalformedNameError(self._name)
        end, self._place = self._place, target
        self._step(part)
        self._place = end

    def _list(self, part: Callable[[], object], separator: str = ", ") -> int:
        count = 0
        while not self._eat("E"):
            if count:
                self._put(separator)
            self._step(part)
            count += 1
        return count

    def _silent(self, part: Callable[[], object]) -> None:
        """Read a part without its text."""
        out, self._out = self._out, []
        self._step(part)
        self._out = out

    # ---- paths

    def path(self, *, in_value: bool) -> None:
        """A path; *in_value*: generic arguments have ``::`` before them."""
        self._step(lambda: self._path(in_value))

    def _type_path(self) -> None:
        self.path(in_value=False)

    def _path(self, in_value: bool) -> None:
        tag = self._next()
        if tag == "C":
            self._tagged("s")
            self._put(self._identifier())
        elif tag == "N":
            self._member(in_value)
        elif tag in "MXY":
            if tag != "Y":
                self._tagged("s")
                self._silent(self._type_path)
            self._put("<")
            self._step(self._type)
            if tag != "M":
                self._put(" as ")
                self._type_path()
            self._put(">")
        elif tag == "I":
            self.path(in_value=in_value)
            self._put("::<" if in_value else "<")
            self._list(self._argument)
            self._put(">")
        elif tag == "B":
            self._back(lambda: self._path(in_value))
        else:
            raise MalformedNameError(self._name)

    def _member(self, in_value: bool) -> None:
        namespace = self._next()
        if not namespace.isalpha():
            raise MalformedNameError(self._name)
        self.path(in_value=in_value)
        number, name = self._tagged("s"), self._identifier()
        if namespace.isupper():
            kind = _NAMESPACES.get(namespace, namespace)
            self._put(f"::{{{kind}{':' if name else ''}{name}#{number}}}")
        elif name:
            self._put(f"::{name}")

    def _argument(self) -> None:
        if self._eat("L"):
            self._put(self._lifetime(self._number()))
        elif self._eat("K"):
            self._constant()
        else:
            self._type()

    def _lifetime(self, index: int) -> str:
        if not index:
            return "'_"
        depth = self._lifetimes - index
        if depth < 0:
            raise MalformedNameError(self._name)
        return f"'{string.ascii_lowercase[depth]}" if depth < 26 else f"'_{depth}"

    # ---- types

    def _type(self) -> None:
        tag = self._next()
        if tag in _BASIC:
            self._put(_BASIC[tag])
        elif tag in _TYPES:
            _TYPES[tag](self)
        else:
            self._place -= 1
            self._type_path()

    def _reference(self, changeable: str = "") -> None:
        self._put("&")
        if self._eat("L") and (index := self._number()):
            self._put(f"{self._lifetime(index)} ")
        self._prefixed(changeable)

    def _prefixed(self, prefix: str) -> None:
        self._put(prefix)
        self._step(self._type)

    def _array(self) -> None:
        self._prefixed("[")
        self._put("; ")
        self._step(self._constant)
        self._put("]")

    def _slice(self) -> None:
        self._prefixed("[")
        self._put("]")

    def _tuple(self) -> None:
        self._put("(")
        self._put(",)" if self._list(self._type) == 1 else ")")

    def _function(self) -> None:
        with_lifetimes = self._begin_binder()
        self._put("unsafe " if self._eat("U") else "")
        if self._eat("K"):
            convention = "C" if self._eat("C") else self._identifier().replace("_", "-")
            self._put(f'extern "{convention}" ')
        self._put("fn(")
        self._list(self._type)
        self._put(")")
        if not self._eat("u"):
            self._prefixed(" -> ")
        self._lifetimes -= with_lifetimes

    def _dynamic(self) -> None:
        self._put("dyn ")
        with_lifetimes = self._begin_binder()
        self._list(self._trait, " + ")
        self._lifetimes -= with_lifetimes
        if not self._eat("L"):
            raise MalformedNameError(self._name)
        if index := self._number():
            self._put(f" + {self._lifetime(index)}")

    def _begin_binder(self) -> int:
        count = self._tagged("G")
        if count > MOST_LIFETIMES:
            raise MalformedNameError(self._name)
        self._lifetimes += count
        if count:
            self._put(f"for<{', '.join(self._lifetime(count - number) for number in range(count))}> ")
        return count

    def _trait(self) -> None:
        is_open = self._open_path()
        while self._eat("p"):
            self._put(", " if is_open else "<")
            is_open = True
            self._put(f"{self._identifier()} = ")
            self._step(self._type)
        if is_open:
            self._put(">")

    def _open_path(self) -> bool:
        """A path whose generic arguments are not closed, as others follow; False when it has none."""
        if self._eat("B"):
            is_open = False

            def again() -> None:
                nonlocal is_open
                is_open = self._open_path()

            self._back(again)
            return is_open
        if not self._eat("I"):
            self._type_path()
            return False
        self._type_path()
        self._put("<")
        self._list(self._argument)
        return True

    # ---- constants

    def _constant(self) -> None:
        tag = self._next()
        if tag == "B":
            self._back(self._constant)
        elif tag == "p":
            self._put("_")
        elif tag in "hmotyj":
            self._put(str(self._hexadecimal()))
        elif tag in "aslxni":
            self._put("-" if self._eat("n") else "")
            self._put(str(self._hexadecimal()))
        elif tag == "b":
            self._put("true" if self._hexadecimal() else "false")
        elif tag == "c":
            self._put(repr(chr(min(self._hexadecimal(), 0x10FFFF))))
        else:
            raise MalformedNameError(self._name)  # constants that no stable Rust allows as arguments

    def _hexadecimal(self) -> int:
        start = self._place
        while self._next() in "0123456789abcdef":
            pass
        if self._name[self._place - 1] != "_" or self._place - start > 33:
            raise MalformedNameError(self._name)
        return int(self._name[start : self._place - 1] or "0", 16)


_TYPES: dict[str, Callable[[_Reader], None]] = {
    "R": _Reader._reference,
    "Q": lambda reader: reader._reference("mut "),
    "P": lambda reader: reader._prefixed("*const "),
    "O": lambda reader: reader._prefixed("*mut "),
    "A": _Reader._array,
    "S": _Reader._slice,
    "T": _Reader._tuple,
    "F": _Reader._function,
    "D": _Reader._dynamic,
    "B": lambda reader: reader._back(reader._type),
}
