"""pytrace.runtime.abi.zstd: a frame made by hand, damage, and a machine without the library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytrace.base import fast_ctypes as ctypes
from pytrace.runtime.abi import zstd

TEXT = b"not compressed"
FRAME = (
    b"\x28\xb5\x2f\xfd\x20" + bytes((len(TEXT),)) + (len(TEXT) << 3 | 1).to_bytes(3, "little") + TEXT
)
"""One frame (RFC 8878) of one raw block, which is the last."""


@pytest.fixture
def library() -> Iterator[None]:
    """Looked for anew."""
    zstd._library.cache_clear()
    yield
    zstd._library.cache_clear()


def _needs_it() -> None:
    try:
        ctypes.CDLL("libzstd.so.1")
    except OSError:
        pytest.skip("libzstd.so.1 is not installed")


@pytest.mark.parametrize("room", [len(TEXT), len(TEXT) + 10])
def test_what_a_frame_holds(room: int) -> None:
    _needs_it()
    assert zstd.decompress(FRAME, room) == TEXT


@pytest.mark.parametrize(("data", "size"), [(FRAME[:-1], 14), (b"text", 14), (FRAME, 13), (FRAME, 0)])
def test_damage_is_an_error_with_a_reason(data: bytes, size: int) -> None:
    _needs_it()
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        zstd.decompress(data, size)


def test_a_machine_without_the_library(library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(ValueError, match=r"compressed with zstd, and libzstd.so.1 is not installed"):
        zstd.decompress(FRAME, 14)
