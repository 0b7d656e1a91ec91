"""Sorting of records of equal size by the C library: their bytes are compared, and no object is made of any."""

from __future__ import annotations

import ctypes
from functools import cache

from pytrace.runtime.abi.syscalls import libc


@cache
def available() -> bool:
    """True if the C library has what :func:`sort_records` needs (glibc; musl from 1.2.3 on)."""
    return hasattr(libc(), "qsort_r")


def sort_records(data: bytearray, size: int) -> None:
    """Sort records of *size* bytes in place, as :func:`memcmp` compares them."""
    if not data:
        return
    library = libc()
    array = (ctypes.c_char * len(data)).from_buffer(data)
    function = library.qsort_r
    function.restype = None
    # The comparison gets the last argument as its third one: the number of bytes that memcmp compares.
    compare = ctypes.cast(library.memcmp, ctypes.c_void_p)
    function(
        ctypes.byref(array), ctypes.c_size_t(len(data) // size), ctypes.c_size_t(size), compare, ctypes.c_size_t(size)
    )
