"""Zstandard through ``libzstd.so.1``, which the package manager of nearly every distribution depends on.

Source: ``zstd.h``; the functions here are part of its stable interface.
"""

from __future__ import annotations

from functools import cache

from pytrace.base import fast_ctypes as ctypes


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError as error:
        raise ValueError("it is compressed with zstd, and libzstd.so.1 is not installed") from error
    library.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    library.ZSTD_isError.restype = ctypes.c_uint
    library.ZSTD_getErrorName.argtypes = [ctypes.c_size_t]
    library.ZSTD_getErrorName.restype = ctypes.c_char_p
    return library


def decompress(data: bytes, size: int) -> bytes:
    """The *size* bytes that one frame holds.

    Raises:
        ValueError: the data are damaged, or the library is not there.
    """
    library = _library()
    made = ctypes.create_string_buffer(max(size, 1))
    found = library.ZSTD_decompress(made, size, data, len(data))
    if library.ZSTD_isError(found):
        raise ValueError(library.ZSTD_getErrorName(found).decode())
    return made.raw[:found]
