from __future__ import annotations

import hashlib
from contextlib import ExitStack
from io import BytesIO

import pytest
import zstandard

from pytrace.core.diagnostics import TraceError
from pytrace.results import stored_document
from pytrace.results.message_pack import Memory


def opened(document: bytes, size: int | None = None, *, digest: bytes | None = None, after: bytes = b"") -> bytes:
    data = zstandard.ZstdCompressor().compress(document) + after
    known = hashlib.sha256(data).digest() if digest is None else digest
    with ExitStack() as stack:
        pages = stored_document.unpacked(BytesIO(data), len(document) if size is None else size, known, stack)
        assert isinstance(pages, Memory) == (pages.size <= stored_document.IN_MEMORY)
        return pages.read(0, pages.size)


def test_documents_are_unpacked_to_memory_or_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_document, "IN_MEMORY", 1000)
    for size in (0, 1, 1000, 1001, 5_000_000):
        assert opened(bytes(size)) == bytes(size)


def test_wrong_sizes_and_digests_are_refused() -> None:
    with pytest.raises(ValueError, match="not the 10 bytes"):
        opened(b"x" * 9, 10)
    with pytest.raises(ValueError, match="not the 8 bytes"):
        opened(b"x" * 9, 8)
    with pytest.raises(ValueError, match="digest"):
        opened(b"x", digest=bytes(32))
    with pytest.raises(ValueError, match="zstd"):
        opened(b"x", after=b"and more")


def test_no_more_is_unpacked_than_is_claimed() -> None:
    with pytest.raises(ValueError, match="not the 10 bytes"):
        opened(bytes(1 << 28), 10)


def test_the_size_is_in_proportion_to_the_file_or_what_was_allowed() -> None:
    least, ratio = stored_document.LEAST_LIMIT, stored_document.RATIO
    for size, compressed, limit in ((least, 1, None), (ratio << 20, 1 << 20, None), (1 << 40, 1, 1 << 40)):
        stored_document.check_size(size, compressed, limit, "x.pts")
    for size, compressed, limit in ((least + 1, 1, None), ((ratio << 20) + 1, 1 << 20, None), (11, 10, 10)):
        with pytest.raises(TraceError, match=rf"'x.pts' would unpack {compressed} bytes to {size}") as found:
            stored_document.check_size(size, compressed, limit, "x.pts")
        assert "--limit" in found.value.hints[0]
