"""Chunks of deep stacks: :mod:`pytrace.codegen.lower.builtins.stack_family` writes them, decoders read them.

Frames are counted from the root: the outermost :data:`FRAMES` frames are the first chunk, those that they call the
second, and so on; the last one has the innermost frames, of which there may be fewer. So stacks with the same callers
share their chunks. A chunk is the value of a map: the digest of the next outer chunk (zeros: there is none), then
:data:`FRAMES` addresses, innermost first. Its key is a digest of all that. The innermost chunk begins with the
innermost frame, and has zeros, or frames that are in the next chunk as well, after its own.
"""

from __future__ import annotations

FRAMES = 32
"""Frames of a chunk."""
LINK = 16
"""Bytes of a digest."""
CHUNK_SIZE = LINK + 8 * FRAMES

MAP = "stack_chunks"
"""Symbol of the map."""

DEEPEST = 1024
"""Highest limit of a stack."""


def entries(keys: int, limit: int) -> int:
    """Chunks that the map has room for: of each of *keys* stacks of *limit* frames a quarter, as callers are shared."""
    return keys * max(1, limit // FRAMES // 4)
