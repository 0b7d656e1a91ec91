"""A tracer that runs beside the test, which changes something meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.patience import patience
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
ATTACHED = "__PYTRACE_NOTIFY_PROBES_ATTACHED"


class Tracer:
    """pytrace with *words*, in a ``with`` block that begins once everything is attached; the tracer ends with it.

    *code* is run in place of the command, *environment* is added, *package* is where pytrace is imported from.
    """

    def __init__(
        self,
        *words: str,
        code: str = "",
        environment: Mapping[str, str] | None = None,
        package: Path = ROOT,
        cwd: Path | None = None,
    ) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  (see close)
        command = ["-c", code] if code else ["-m", "pytrace"]
        self.process = subprocess.Popen(
            [sys.executable, *command, *words], stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err,
            cwd=cwd, env={**os.environ, "PYTHONPATH": str(package), ATTACHED: "1", **(environment or {})},
        )  # fmt: skip

    def __enter__(self) -> Tracer:
        try:
            until(lambda: ATTACHED in self.out or self.process.poll() is not None, 30)
            assert self.process.poll() is None, self.err
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._out.close()
        self._err.close()

    @property
    def out(self) -> str:
        """Standard output so far."""
        return os.pread(self._out.fileno(), 1 << 24, 0).decode(errors="replace")

    @property
    def err(self) -> str:
        """Standard error so far."""
        return os.pread(self._err.fileno(), 1 << 24, 0).decode(errors="replace")

    def said(self, text: str) -> None:
        """Wait for a text on standard error."""
        until(lambda: text in self.err)

    def signal(self, name: str) -> None:
        """Send a signal."""
        self.process.send_signal(signal.Signals[name])

    def end(self) -> tuple[int, str, str]:
        """End the run as Ctrl-C does. Returns the exit status, standard output and standard error."""
        self.signal("SIGINT")
        self.process.wait(patience(20))
        return self.process.returncode, self.out.replace(f"{ATTACHED}\n", ""), self.err
