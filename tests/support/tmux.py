"""Terminals of tmux, for programs that take the whole screen."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = ROOT / ".venv" / "bin" / "pytrace"


class Terminal:
    """A terminal with a shell."""

    def __init__(self, folder: Path, width: int, height: int, variables: dict[str, str]) -> None:
        self._socket = f"pytrace-{os.getpid()}-{folder.name}"
        self.folder = folder
        settings = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        shell = "PS1='ready$ ' exec bash --norc --noprofile -i"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), *settings,
                   "-c", str(folder), shell)  # fmt: skip
        until(lambda: "ready$" in self.screen())

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._socket, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def type(self, text: str) -> None:
        """Type a line."""
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._tmux("send-keys", *keys)

    def turn_wheel(self, step: int, column: int = 5, line: int = 5) -> None:
        """Turn the mouse's wheel up (-1) or down (1), as terminals report it (SGR)."""
        self._tmux("send-keys", "-l", f"\x1b[<{64 if step < 0 else 65};{column};{line}M")

    def screen(self, *, styles: bool = False) -> str:
        """What the terminal shows; with *styles* as escape sequences."""
        return self._tmux("capture-pane", "-p", *(["-e"] if styles else []))

    def history(self) -> str:
        """The same with what has scrolled away."""
        return self._tmux("capture-pane", "-p", "-S", "-")

    def settings(self) -> str:
        """The terminal's settings, as a command in it sees them."""
        path = self.folder / "settings"
        path.unlink(missing_ok=True)
        self.type(f"stty -a > {shlex.quote(str(path))}.new; mv {shlex.quote(str(path))}.new {shlex.quote(str(path))}")
        until(path.exists)
        return path.read_text()

    def modes(self) -> str:
        """Whether the alternate screen, the cursor and modes of keys are on."""
        names = ("alternate_on", "cursor_flag", "keypad_cursor_flag", "mouse_any_flag", "wrap_flag")
        return self._tmux("display-message", "-p", " ".join(f"{name}=#{{{name}}}" for name in names)).strip()

    def run(self, *words: str | Path, also: str = "") -> None:
        """Run pytrace; its exit status is in :meth:`status` after its end."""
        (self.folder / "status").unlink(missing_ok=True)
        command = shlex.join(map(str, (COMMAND, *words)))
        self.type(f"{command}{also}; echo $? > status.new; mv status.new status")

    def status(self) -> int:
        """Wait for the end of the command. Returns its exit status."""
        until((self.folder / "status").exists, 30)
        return int((self.folder / "status").read_text())

    def shows(self, *texts: str) -> None:
        """Wait until the screen shows all of these."""
        try:
            until(lambda: all(text in self.screen() for text in texts), 30)
        except AssertionError:
            raise AssertionError(f"{texts} are not all on the screen:\n{self.screen()}") from None

    def close(self) -> None:
        """End the shell, and what runs in it."""
        self._tmux("kill-server")


@contextmanager
def terminal(folder: Path, width: int = 80, height: int = 24, **variables: str) -> Iterator[Terminal]:
    """A terminal that starts in a folder."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    made = Terminal(folder, width, height, {"LC_ALL": "C.UTF-8", **variables})
    try:
        yield made
    finally:
        made.close()
