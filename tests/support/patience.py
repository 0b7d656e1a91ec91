"""How long tests wait for what should end by itself. Limits only end what hangs: nothing is measured by them."""

from __future__ import annotations

import os

EMULATED = bool(os.environ.get("PYTRACE_TEST_VM"))
"""The tests run in the test machine, whose processors are emulated one after the other by one that may be shared."""

_SLOWNESS = 24 if EMULATED else 2
LONGEST = 480.0 if EMULATED else 120.0
"""No run of a program takes longer than this, however slow the machine."""
LIMIT = int(LONGEST) + 30
"""Seconds that one test may take, so that one that hangs does not stall the run (soak tests may take longer)."""

PAUSE = 0.05 if EMULATED else 0.01
"""Seconds between two looks whether something has happened; a look takes ten times as long on an emulated processor."""


def patience(seconds: float) -> float:
    """Seconds to wait here for what a quick machine does well within *seconds*."""
    return min(seconds * _SLOWNESS, LONGEST)
