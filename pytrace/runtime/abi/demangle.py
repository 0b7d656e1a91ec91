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
    demangler = _cxx()
    text = demangler(base.encode(errors="surrogateescape")) if demangler else None
    if text is None:
        return name
    return f"{text} [clone {dot}{suffix}]" if dot else text


def _rust(name: str) -> str | None:
    from rust_demangler import demangle as rust_demangle
    from rust_demangler.rust import TypeNotFoundError
    from rust_demangler.rust_legacy import UnableToLegacyDemangle
    from rust_demangler.rust_v0 import UnableTov0Demangle

    try:
        text = rust_demangle(name)
    except (TypeNotFoundError, UnableToLegacyDemangle, UnableTov0Demangle, ValueError, IndexError):
        # Not Rust after all, or newer than the package: the caller tries C++.
        return None
    return _RUST_HASH_TEXT.sub("", str(text))


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
