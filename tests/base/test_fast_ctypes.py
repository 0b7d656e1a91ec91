"""The few parts of ctypes do what those of the standard library do."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys

import pytest

from pytrace.base import fast_ctypes

NUMBERS = ["c_bool", "c_char", "c_int", "c_long", "c_size_t", "c_uint", "c_uint32", "c_uint64", "c_ulong"]


def test_all_names_are_there() -> None:
    assert all(hasattr(ctypes, name) and hasattr(fast_ctypes, name) for name in fast_ctypes.__all__)


@pytest.mark.parametrize("name", [*NUMBERS, "c_char_p", "c_void_p"])
def test_types_have_the_size_of_those_of_ctypes(name: str) -> None:
    assert ctypes.sizeof(getattr(fast_ctypes, name)) == ctypes.sizeof(getattr(ctypes, name))
    assert getattr(fast_ctypes, name)._type_ in (getattr(ctypes, name)._type_, "L")


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in ("c_bool", "c_char")])
@pytest.mark.parametrize("value", [-1, 0, 1, 1 << 31, (1 << 64) - 1])
def test_numbers_keep_the_same_bits(name: str, value: int) -> None:
    assert getattr(fast_ctypes, name)(value).value == getattr(ctypes, name)(value).value


def test_functions_of_a_library_and_errno() -> None:
    libc = fast_ctypes.CDLL(None, use_errno=True)
    libc.strlen.argtypes = (fast_ctypes.c_char_p,)
    libc.strlen.restype = fast_ctypes.c_size_t
    assert libc.strlen(b"four") == 4
    assert libc.strlen is libc.strlen
    assert libc.close.__name__ == "close"
    fast_ctypes.set_errno(0)
    assert libc.close(-1) == -1
    assert fast_ctypes.get_errno() == errno.EBADF
    with pytest.raises(AttributeError, match="pytrace_none"):
        libc.pytrace_none
    with pytest.raises(OSError, match=os.strerror(errno.ENOENT)):
        fast_ctypes.CDLL("libpytrace-none.so")


def test_names_of_c_may_begin_with_underscores() -> None:
    assert fast_ctypes.CDLL(None).__errno_location.__name__ == "__errno_location"
    with pytest.raises(AttributeError):
        fast_ctypes.CDLL(None).__wrapped__


def test_a_function_that_c_calls() -> None:
    order = fast_ctypes.CFUNCTYPE(fast_ctypes.c_int, fast_ctypes.c_void_p, fast_ctypes.c_void_p)
    called: list[int] = []

    def compare(left: int, right: int) -> int:
        called.append(left)
        numbers = [fast_ctypes.c_int.from_address(address).value for address in (left, right)]
        return numbers[0] - numbers[1]

    numbers = (fast_ctypes.c_int * 3)(3, 1, 2)
    fast_ctypes.CDLL(None).qsort(
        fast_ctypes.byref(numbers), fast_ctypes.c_size_t(3), fast_ctypes.c_size_t(4), order(compare)
    )
    assert list(numbers) == [1, 2, 3]
    assert called


def test_memory() -> None:
    buffer = fast_ctypes.create_string_buffer(8)
    assert buffer.raw == bytes(8)
    buffer.value = b"abc"
    address = fast_ctypes.addressof(buffer)
    assert fast_ctypes.string_at(address) == b"abc"
    assert fast_ctypes.string_at(address, 5) == b"abc\0\0"
    assert fast_ctypes.cast(buffer, fast_ctypes.c_void_p).value == address
    assert fast_ctypes.cast(buffer, fast_ctypes.c_char_p).value == b"abc"
    number = fast_ctypes.c_void_p(7)
    assert fast_ctypes.POINTER(fast_ctypes.c_void_p)(number)[0] == 7


def test_structures() -> None:
    class Pair(fast_ctypes.Structure):
        _fields_ = (("first", fast_ctypes.c_uint32), ("second", fast_ctypes.c_char_p))

    pair = Pair(first=3, second=b"x")
    assert (pair.first, pair.second, fast_ctypes.sizeof(Pair)) == (3, b"x", 16)


def test_ctypes_is_not_imported() -> None:
    text = "import sys; from pytrace.base import fast_ctypes; print('ctypes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_types_of_functions_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    plain = fast_ctypes._of_python
    monkeypatch.setattr(fast_ctypes, "_of_python", lambda *words: made.append(words) or plain(*words))
    monkeypatch.setattr(fast_ctypes, "_made", {})
    buffer = fast_ctypes.create_string_buffer(8)
    for _ in range(3):
        assert fast_ctypes.string_at(fast_ctypes.addressof(buffer), 2) == b"\0\0"
        assert fast_ctypes.cast(fast_ctypes.addressof(buffer), fast_ctypes.c_char_p).value == b""
    assert len(made) == 2
