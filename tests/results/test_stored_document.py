from __future__ import annotations

import hashlib
from contextlib import ExitStack
from io import BytesIO

import pytest
import zstandard

from pytrace.core.diagnostics import TraceError
from pytrace.results import stored_document
from pytrace.results.stored_document import Block, Blocks, BlocksWriter


def opened(document: bytes, size: int | None = None, *, digest: bytes | None = None, after: bytes = b"") -> bytes:
    data = zstandard.ZstdCompressor().compress(document) + after
    known = hashlib.sha256(data).digest() if digest is None else digest
    with ExitStack() as stack:
        found = stored_document.unpacked(BytesIO(data), len(document) if size is None else size, known, stack)
        found.seek(0)
        return found.read()


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


def test_blocks_are_read_again_and_again() -> None:
    writer = BlocksWriter(3)
    blocks = [*writer.blocks(["a", "b"], list), *writer.blocks(["c"], list)]
    with ExitStack() as stack:
        data = writer.compressed()
        document = stored_document.unpacked(BytesIO(data), writer.size, hashlib.sha256(data).digest(), stack)
        found = Blocks("x.pts", "map @", document, 0, blocks, list[str])
        assert found.rows == 3
        for _ in range(2):
            assert list(found.read(lambda part, count: [f"{part}{count}"])) == [["['a', 'b']2"], ["['c']1"]]
        numbers = Blocks("x.pts", "map @", document, blocks[0].size, blocks[1:], list[int])
        message = r"'x.pts' is damaged or truncated: map @, block 1: Expected `int`, got `str` - at `\$\[0\]`"
        with pytest.raises(TraceError, match=message):
            list(numbers.read(lambda part, _count: part))
        with pytest.raises(TraceError, match="block 1: Input data was truncated"):
            list(Blocks("x.pts", "map @", document, writer.size, [Block(1, 9)], int).read(lambda part, _count: [part]))


def test_large_blocks_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_document, "BLOCK_BYTES", 20)
    writer = BlocksWriter(3)
    blocks = list(writer.blocks(["x"] * 40 + ["y" * 100], list))
    assert sum(block.rows for block in blocks) == 41
    assert all(block.size <= 20 or block.rows == 1 for block in blocks)
    assert sum(block.size for block in blocks) == writer.size
