"""What a start needs of ``ctypes``, whose package defines dozens of types: 1.5 ms.

Type checkers see the original; its documentation holds. The types here are others than those of ``ctypes``: pass none
from one to the other.
"""

from __future__ import annotations

from pytrace.base.fast_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import (
        CDLL,
        CFUNCTYPE,
        POINTER,
        Structure,
        addressof,
        byref,
        c_bool,
        c_char,
        c_char_p,
        c_int,
        c_long,
        c_size_t,
        c_uint,
        c_uint32,
        c_uint64,
        c_ulong,
        c_void_p,
        cast,
        create_string_buffer,
        get_errno,
        set_errno,
        sizeof,
        string_at,
    )
else:
    from _ctypes import (
        FUNCFLAG_CDECL,
        FUNCFLAG_PYTHONAPI,
        FUNCFLAG_USE_ERRNO,
        CFuncPtr,
        Structure,
        _cast_addr,
        _SimpleCData,
        _string_at_addr,
        addressof,
        byref,
        dlopen,
        get_errno,
        set_errno,
        sizeof,
    )

    try:
        from _ctypes import POINTER
    except ImportError:  # Python 3.14
        from ctypes import POINTER

    class c_bool(_SimpleCData):  # noqa: D101, N801  (these are the names of ctypes)
        _type_ = "?"

    class c_char(_SimpleCData):  # noqa: D101, N801
        _type_ = "c"

    class c_char_p(_SimpleCData):  # noqa: D101, N801
        _type_ = "z"

    class c_void_p(_SimpleCData):  # noqa: D101, N801
        _type_ = "P"

    class c_int(_SimpleCData):  # noqa: D101, N801
        _type_ = "i"

    class c_uint(_SimpleCData):  # noqa: D101, N801
        _type_ = "I"

    class c_long(_SimpleCData):  # noqa: D101, N801
        _type_ = "l"

    class c_ulong(_SimpleCData):  # noqa: D101, N801
        _type_ = "L"

    c_uint32, c_size_t = c_uint, c_ulong
    if sizeof(c_ulong) == 8:
        c_uint64 = c_ulong
    else:

        class c_uint64(_SimpleCData):  # noqa: D101, N801
            _type_ = "Q"

    def CFUNCTYPE(result, *arguments):  # noqa: N802
        """The type of functions of C."""
        return _function(result, arguments, FUNCFLAG_CDECL)

    def _function(result, arguments, flags):
        return type("Function", (CFuncPtr,), {"_argtypes_": arguments, "_restype_": result, "_flags_": flags})

    class CDLL:
        """A shared library; its functions are attributes."""

        def __init__(self, name, mode=0, use_errno=False):
            flags = FUNCFLAG_CDECL | (FUNCFLAG_USE_ERRNO if use_errno else 0)
            self._function = type("Function", (CFuncPtr,), {"_flags_": flags, "_restype_": c_int})
            self._handle = dlopen(name, mode)

        def __getattr__(self, name):
            if name.startswith("__") and name.endswith("__"):
                raise AttributeError(name)
            found = self._function((name, self))
            found.__name__ = name
            setattr(self, name, found)
            return found

    def create_string_buffer(size):
        """That many zero bytes, which C code may change."""
        return (c_char * size)()

    def cast(value, kind):
        """The value as a pointer of another type."""
        made = _made.get("cast")
        if made is None:
            made = _made["cast"] = _of_python(_cast_addr, c_void_p, _object(), _object())
        return made(value, value, kind)

    def string_at(address, size=-1):
        """The bytes at an address; without a size up to the first NUL."""
        made = _made.get("string_at")
        if made is None:
            made = _made["string_at"] = _of_python(_string_at_addr, c_void_p, c_int)
        return made(address, size)

    # Functions of Python by name; few starts need them, and making their types takes as long as many calls.
    _made = {}

    def _of_python(address, *arguments):
        return _function(_object(), arguments, FUNCFLAG_CDECL | FUNCFLAG_PYTHONAPI)(address)

    def _object():
        return type("py_object", (_SimpleCData,), {"_type_": "O"})


__all__ = [
    "CDLL", "CFUNCTYPE", "POINTER", "Structure", "addressof", "byref", "c_bool", "c_char", "c_char_p", "c_int",
    "c_long", "c_size_t", "c_uint", "c_uint32", "c_uint64", "c_ulong", "c_void_p", "cast", "create_string_buffer",
    "get_errno", "set_errno", "sizeof", "string_at",
]  # fmt: skip
