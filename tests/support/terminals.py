"""Programs on a terminal of their own."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from collections.abc import Callable

from tests.support.patience import patience

FAST = (
    "import time\nfrom pytrace.base import terminal; terminal.DELAY, terminal._EVERY = 0.0, 0.002\n"
    "def shown(text):\n"
    "    while text not in terminal._LINE._shown: time.sleep(0.002)\n"
)
"""Makes the line of progress appear at once, and ``shown`` wait until it says something."""


def on_terminal(program: str, act: Callable[[int, int, str], object] | None = None) -> tuple[str, int]:
    """What a Python program writes to a terminal, and how it ends; *act* is called with the process, the terminal and
    the text so far after each piece of output."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm", NO_COLOR="1", PYTHONWARNINGS="ignore")
        os.execv(sys.executable, [sys.executable, "-c", FAST + program])
    text, deadline = b"", time.monotonic() + patience(60)
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
            if act is not None:
                act(child, terminal, text.decode())
        _, status = os.waitpid(child, 0)
    finally:
        os.close(terminal)
    return text.decode(), status
