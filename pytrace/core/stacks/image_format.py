"""Images of processes: their numbers, and the reports of new ones (``codegen.walkers.memory_images``)."""

from __future__ import annotations

from enum import IntEnum

FIRST_IMAGE = 1 << 22
"""The number of the first image; process ids are less (``PID_MAX_LIMIT`` of include/linux/threads.h)."""


class Change(IntEnum):
    """What a new image began with."""

    EXEC = 1
    UNMAP = 2
    MOVE = 3
    MAP = 4
    """Something was mapped over code."""
    OTHER = 5
    """A call of a 32-bit program: what it has unmapped is not known."""


class Report:
    """Offsets in a report: what has happened, the image (0: it has none, as there is no room), the process,
    when the call began (``CLOCK_MONOTONIC``), and what it unmapped, moved or mapped.
    """

    CHANGE = 0
    IMAGE = 8
    PROCESS = 12
    BEGUN = 16
    START = 24
    LENGTH = 32
    RESULT = 40
    NEW_LENGTH = 48


REPORT_SIZE = 56
