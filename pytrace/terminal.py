"""Whether messages are coloured."""

from __future__ import annotations

import os
import sys


def colour() -> bool:
    """What ``PYTRACE_COLOR`` (or ``BPFTRACE_COLOR``) says, else whether a terminal shows standard error."""
    wanted = os.environ.get("PYTRACE_COLOR", os.environ.get("BPFTRACE_COLOR", "auto")).lower()
    if wanted in ("always", "never"):
        return wanted == "always"
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
