"""Names of C++ and Rust functions as their programmers wrote them.

C++ goes through ``__cxa_demangle`` of the C++ runtime library, which is on every system that has a C++ program; Rust
through the ``rust_demangler`` package.  Names that are not mangled come back as they are.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1")
_RUST_HASH = re.compile(r"17h[0-9a-f]{16}E")
_RUST_HASH_TEXT = re.compile(r"::h[0-9a-f]{16}$")


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
    # The compiler splits functions and marks the parts (.cold, .part.0, .isra.0); keep the mark readable.
    base, dot, suffix = name.partition(".")
    demangler = _cxx() if len(base) <= LONGEST and expanded_size(base) <= MOST_EXPANDED else None
    text = demangler(base.encode(errors="surrogateescape")) if demangler else None
    if text is None:
        return name
    return f"{text} [clone {dot}{suffix}]" if dot else text


_TOKEN = re.compile(r"S[0-9A-Z]*_|T[0-9]*_|[0-9]+|.", re.DOTALL)
_SUBSTITUTION = re.compile(r"[ST][0-9A-Z]*_")
_LISTS = frozenset("INFXJZ")
_FEW = 16
MOST_EXPANDED = 1 << 27
"""Largest :func:`expanded_size` that is demangled; of 123,000 names of LLVM, Arrow and libstdc++ none exceeds it."""


def expanded_size(name: str) -> int:
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
        if sizes[-1] > MOST_EXPANDED:
            return sizes[-1]
    return sum(sizes)


# ---------------------------------------------------------------------------------------------- Rust

LONGEST = 1 << 14
"""Characters of the longest mangled name that is demangled."""
MOST_REFERENCES = 500
"""References to earlier parts that are followed in one Rust name; each may contain others."""


def _rust(name: str) -> str | None:
    from rust_demangler import rust_legacy, rust_v0

    refused = (rust_legacy.UnableToLegacyDemangle, rust_v0.UnableTov0Demangle)
    try:
        text = rust_legacy.LegacyDemangler().demangle(name) if name.startswith("_ZN") else _rust_v0(name)
    except (*refused, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        # Not Rust after all, or newer than the package, which checks little: the caller tries C++.
        return None
    return _RUST_HASH_TEXT.sub("", str(text))


def _rust_v0(name: str) -> str:
    """As ``V0Demangler.demangle``, which follows any number of references, and prints what it does not know."""
    from rust_demangler import rust_v0

    # The package has no annotations, so its class is of no known type.
    class Printer(rust_v0.Printer):  # type: ignore[misc]
        """Counts the references that are followed."""

        left = [MOST_REFERENCES]

        def backref_printer(self) -> Printer:
            self.left[0] -= 1
            if self.left[0] < 0:
                raise rust_v0.UnableTov0Demangle(name)
            return Printer(self.parser_mut().backref(), self.out, self.bound_lifetime_depth)

        def invalid(self) -> None:
            raise rust_v0.UnableTov0Demangle(name)

    demangler = rust_v0.V0Demangler()
    text, dot, suffix = name[2:].partition(".")
    demangler.sanity_check(text)
    parser = rust_v0.Parser(text, 0)
    parser.skip_path()
    if parser.next_val < len(text) and text[parser.next_val].isupper():
        parser.skip_path()
    printer = Printer(rust_v0.Parser(text, 0), "", 0)
    printer.print_path(True)
    return f"{printer.out}{'' if suffix.startswith('llvm.') else dot + suffix}"


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
