"""Names of C++ and Rust functions as their programmers wrote them.

C++ goes through ``__cxa_demangle`` of the C++ runtime library, which is on every system that has a C++ program. Both
manglings of Rust are read here: ``legacy``, and ``v0``, the default since Rust 1.90, shown as ``std::backtrace`` does,
without hashes of crates and types of constants; source: RFC 2603, and the chapter "v0 Symbol Format" of The rustc book.
Names that are not mangled come back as they are.
"""

from __future__ import annotations

import ctypes
import re
import string
from collections.abc import Callable
from functools import cache, lru_cache

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1")
_RUST_HASH = re.compile(r"17h[0-9a-f]{16}E")
_RUST_HASH_PART = re.compile(r"h[0-9a-f]{16}")


@cache
def _cxx() -> Callable[[bytes], str | None] | None:
    """The C++ runtime's demangler; None where there is no such library."""
    for name in _LIBRARIES:
        try:
            return _bind(ctypes.CDLL(name))
        except OSError:
            continue
    return None


def _bind(library: ctypes.CDLL) -> Callable[[bytes], str | None]:
    function = library.__cxa_demangle
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free = ctypes.CDLL(None).free
    free.restype, free.argtypes = None, [ctypes.c_void_p]
    string_at = ctypes.string_at

    def demangler(text: bytes) -> str | None:
        address = function(text, None, None, None)
        if not address:
            return None
        try:
            return string_at(address).decode(errors="replace")
        finally:
            free(address)

    return demangler


def mangled(name: str) -> bool:
    """True if a name has the form of a mangled C++ or Rust name."""
    return name.startswith(("_Z", "_R", "__Z", "___Z"))


def available() -> bool:
    """True if C++ names can be demangled here (a C++ runtime library was found)."""
    return _cxx() is not None


@lru_cache(maxsize=65536)
def demangle(name: str) -> str:
    """The readable form of a mangled name; the name itself when it is none."""
    if not mangled(name):
        return name
    if name.startswith("_R") or ("17h" in name and name.startswith("_ZN") and _RUST_HASH.search(name)):
        rust = _rust(name)
        if rust is not None:
            return rust
    # The compiler splits functions and marks the parts (.cold, .part.0, .isra.0); keep the marks readable. Identifiers
    # may have dots, too (those of frames of GCC's coroutines).
    marks = _MARKS.search(name)
    for base in dict.fromkeys((name[: marks.start()] if marks else name, name.partition(".")[0])):
        demangler = _cxx() if len(base) <= LONGEST and _expanded_size(base) <= _MOST_EXPANDED else None
        text = demangler(base.encode(errors="surrogateescape")) if demangler else None
        if text is not None:
            break
    else:
        return name
    return "".join([text, *(f" [clone {mark}]" for mark in _MARK.findall(name[len(base) :]))])


_MARKS = re.compile(r"(?:\.[a-z0-9_]+)+\Z")
_MARK = re.compile(r"\.[^.]*(?:\.\d+(?![^.]))*")
_TOKEN = re.compile(r"S[0-9A-Z]*_|T[0-9]*_|[0-9]+|.", re.DOTALL)
_SUBSTITUTION = re.compile(r"[ST][0-9A-Z]*_")
_LISTS = frozenset("INFXJZ")
_FEW = 16
_MOST_EXPANDED = 1 << 27
"""Largest :func:`_expanded_size` that is demangled; of 123,000 names of LLVM, Arrow and libstdc++ none exceeds it."""


def _expanded_size(name: str) -> int:
    """An estimate, rather too large, of the characters of a demangled C++ name.

    A substitution (``S_``, ``T_``) stands for an earlier part, which may contain substitutions: 200 characters can
    stand for gigabytes, which the C++ runtime would write. Each is taken for the largest part before it. A *few*
    substitutions cannot do that, whatever they stand for.
    """
    if len(_SUBSTITUTION.findall(name)) < _FEW:
        return 0
    place, largest, sizes, nested = 2, 16, [0], [False]
    while place < len(name):
        token = _TOKEN.match(name, place)
        assert token is not None
        text, place = token[0], token.end()
        if text[0].isdigit():
            length = int(text) if len(text) < 6 else 0
            place += length
            sizes[-1] += length + 2
        elif len(text) > 1:
            sizes[-1] += max(largest, *(size for size, name_ in zip(sizes, nested, strict=True) if name_), 0)
        elif text in _LISTS:
            sizes.append(0)
            nested.append(text in "NZ")
        elif text == "E" and len(sizes) > 1:
            nested.pop()
            size = sizes.pop() + 16
            largest = max(largest, size)
            sizes[-1] += size
        else:
            sizes[-1] += 8
        if sizes[-1] > _MOST_EXPANDED:
            return sizes[-1]
    return sum(sizes)


# ---------------------------------------------------------------------------------------------- Rust

LONGEST = 1 << 14
"""Characters of the longest mangled name that is demangled."""


def _rust(name: str) -> str | None:
    """The readable form of a name; None when it is not Rust after all: the caller tries C++."""
    if name.startswith("_R"):
        try:
            return demangle_rust_v0(name)
        except MalformedNameError:
            return None
    return _rust_legacy(name)


_ESCAPES = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}
_ESCAPED = re.compile(r"\.\.|\$(?P<escape>[^$]*)\$?")
_LENGTH = re.compile(r"[0-9]{1,5}")


def _rust_legacy(name: str) -> str | None:
    """The path of a name in the older mangling: components with their lengths, the last of them a hash.

    The escapes are those of rustc's ``legacy`` symbol names (``rustc_symbol_mangling::legacy``).
    """
    at = name.index("ZN") + 2 if "ZN" in name else len(name)
    parts: list[str] = []
    while match := _LENGTH.match(name, at):
        at = match.end() + int(match[0])
        parts.append(name[match.end() : at])
    if len(parts) < 2 or not name.isascii() or name[at : at + 1] != "E" or not _RUST_HASH_PART.fullmatch(parts.pop()):
        return None
    try:
        path = "::".join(
            _ESCAPED.sub(_unescaped, part.removeprefix("_") if part[:2] == "_$" else part) for part in parts
        )
    except ValueError:
        return None
    suffix = name[at + 1 :].partition(".llvm.")[0]
    return path + suffix if suffix.startswith(".") else path


def _unescaped(match: re.Match[str]) -> str:
    escape = match["escape"]
    if escape is None:
        return "::"
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if re.fullmatch("u[0-9a-f]{1,6}", escape) and (text := chr(int(escape[1:], 16))).isprintable():
        return text
    raise ValueError(f"no escape of Rust: {escape!r}")


_CLOSURE = re.compile(r"\{closure#\d+\}|\{\{closure\}\}")
_WRITTEN = re.compile(r"\{([a-z_]+?)(?:_env)?(#\d+)\}")
_COMPONENT = re.compile(r"(?:\w+|\{\{?[^{}]*\}\}?)\Z")


def with_bodies(name: str, written: str) -> str:
    """The demangled name of a function of Rust with the bodies of async functions and blocks named as DWARF has them.

    To symbols they are closures: ``app::handle::{closure#0}`` is *written* ``app::handle::{async_fn#0}`` in DWARF.
    Those in arguments of a generic function are there, too, as types (``{async_fn_env#0}``).
    """
    bodies = _bodies(written, numbered="{closure#" in name) if "closure" in name else {}
    parts: list[str] = []
    end = 0
    for match in _CLOSURE.finditer(name) if bodies else ():
        path = _path(name, match.end())
        body = max((known for known in bodies if f"::{path}".endswith(f"::{known}")), key=len, default="")
        if bodies.get(body):
            parts += [name[end : match.start()], bodies[body]]
            end = match.end()
    return "".join([*parts, name[end:]])


def _bodies(written: str, *, numbered: bool) -> dict[str, str]:
    """Names of bodies by the path of what is a closure to symbols; empty for closures, and where paths are equal."""
    bodies: dict[str, str] = {}
    for match in _WRITTEN.finditer(written):
        kind, number = match[1], match[2]
        path = _WRITTEN.sub(r"{closure\2}" if numbered else "{{closure}}", _path(written, match.end()))
        body = "" if kind == "closure" else f"{{{kind}{number}}}"
        bodies[path] = body if bodies.get(path, body) == body else ""
    return bodies


def _path(text: str, end: int) -> str:
    """The path that ends there, without arguments of generics; of a method, from the method's name on."""
    parts: list[str] = []
    at = end
    while at:
        if text[at - 1] == ">":
            opened = _opening(text, at)
            if not opened or not (text[opened - 1].isalnum() or text[opened - 1] in "_:}"):
                break  # the type that a method is of
            at = opened - 2 * text.startswith("::", opened - 2)
        component = _COMPONENT.search(text, 0, at)
        if component is None or component[0].startswith("{impl#"):
            break
        parts.append(component[0])
        at = component.start()
        if not text.endswith("::", 0, at):
            break
        at -= 2
    return "::".join(reversed(parts))


def _opening(text: str, at: int) -> int:
    """Where the angle bracket is that the one before *at* closes; 0 if there is none, or nothing before it."""
    depth = 0
    for place in range(at - 1, -1, -1):
        if text[place] == "<":
            depth -= 1
        elif text[place] == ">" and text[place - 1] != "-":
            depth += 1
        if not depth:
            return place
    return 0


# ---------------------------------------------------------------------------------------------- parts of names

_OPERATOR = re.compile(r"\boperator(?:\(\)|<=>|<<=|>>=|<<|>>|->\*?|<=|>=|<|>|[^\w\s(]+| [^(]+)(?: (?=<))?")
_SCOPE = re.compile(r"(?: const)?::")


def qualified_name(demangled: str) -> str:
    """A demangled function without result type and parameters, template arguments kept: ``ns::Class<int>::method``."""
    depth = start = at = 0
    while at < len(demangled):
        character = demangled[at]
        operator = _OPERATOR.match(demangled, at) if character == "o" else None
        if operator:
            at = operator.end()
            continue
        if character == "(" and not depth:
            end = _closing(demangled, at)
            # What follows a namespace without a name, or a function that has others inside, belongs to the name.
            scope = _SCOPE.match(demangled, end)
            if scope is None:
                break
            at = scope.end()
            continue
        if character in "<{(":
            depth += 1
        elif character in ">})":
            depth -= 1
        elif character == " " and not depth:
            start = at + 1
        at += 1
    return demangled[start:at]


def _closing(text: str, at: int) -> int:
    """Where the parenthesis that opens at *at* has closed."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place + 1
    return len(text)


_CLOSING = {">": "<", ")": "(", "]": "[", "}": "{"}


def short_name(name: str) -> str:
    """As :func:`demangle`, with ``<…>`` for the arguments of generic functions and types (templates)."""
    text = demangle(name)
    return _shortened(text) if text != name and "<" in text else text


def _shortened(text: str) -> str:
    """A readable name without arguments in angle brackets; those of Rust's ``<Type as Trait>`` stay."""
    parts: list[str] = []
    at = start = named = 0
    while at < len(text):
        operator = _OPERATOR.match(text, at) if text[at] == "o" else None
        if operator:
            at = named = operator.end()
        elif text[at] == "<" and at and (at == named or text[at - 1].isalnum() or text[at - 1] in "_:"):
            end = _end_of_arguments(text, at)
            if not end:
                return text
            parts += [text[start:at], "<…>"]
            at = start = end
        else:
            at += 1
    return "".join([*parts, text[start:]])


def _end_of_arguments(text: str, at: int) -> int:
    """Where the arguments end whose bracket is *at*; 0 if that is not known."""
    opened: list[str] = []
    for place in range(at, len(text)):
        character = text[place]
        if character in "<([{":
            opened.append(character)
        elif character == ">" and (opened[-1] != "<" or text[place - 1] == "-"):
            continue  # of an arrow, or a comparison, which stands in parentheses
        elif character in _CLOSING:
            while opened and opened.pop() != _CLOSING[character]:
                pass
            if not opened:
                return place + 1
    return 0


# ---------------------------------------------------------------------------------------------- Rust's v0 mangling

_MOST_STEPS = 20_000
"""Parts of a name that are printed; references to earlier parts let short names be of any length."""
_MOST_NESTED = 150
_MOST_LIFETIMES = 100
"""Lifetimes of one ``for<…>``."""
_BASE_62 = string.digits + string.ascii_lowercase + string.ascii_uppercase
_RUST_TYPES = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8", "i": "isize", "j": "usize",
    "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_", "s": "i16", "t": "u16", "u": "()", "v": "...",
    "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_RUST_NAMESPACES = {"C": "closure", "S": "shim"}


class MalformedNameError(ValueError):
    """A name is none of this mangling, or its text would be too long."""


def demangle_rust_v0(name: str) -> str:
    """The readable form of a name that begins with ``_R``.

    Raises:
        MalformedNameError: it is not mangled like that.
    """
    text, dot, suffix = name.removeprefix("_R").partition(".")
    if not text.isascii():
        raise MalformedNameError(name)
    reader = _RustReader(text)
    reader.path(in_value=True)
    shown = reader.text
    if not reader.ended:
        reader.path(in_value=False)  # the crate that made the instance
    if not reader.ended:
        raise MalformedNameError(name)
    return f"{shown}{'' if suffix.startswith('llvm.') else dot + suffix}"


class _RustReader:
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
            digit = _BASE_62.find(character)
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
        if self._steps > _MOST_STEPS or self._nested > _MOST_NESTED:
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
            kind = _RUST_NAMESPACES.get(namespace, namespace)
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
        if tag in _RUST_TYPES:
            self._put(_RUST_TYPES[tag])
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
        if count > _MOST_LIFETIMES:
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


_TYPES: dict[str, Callable[[_RustReader], None]] = {
    "R": _RustReader._reference,
    "Q": lambda reader: reader._reference("mut "),
    "P": lambda reader: reader._prefixed("*const "),
    "O": lambda reader: reader._prefixed("*mut "),
    "A": _RustReader._array,
    "S": _RustReader._slice,
    "T": _RustReader._tuple,
    "F": _RustReader._function,
    "D": _RustReader._dynamic,
    "B": lambda reader: reader._back(reader._type),
}
