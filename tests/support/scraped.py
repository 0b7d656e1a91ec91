"""Runs of pytrace that serve metrics, and what a monitoring system reads there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import TextIO

from prometheus_client import Metric
from prometheus_client import parser as classic
from prometheus_client.openmetrics import parser as openmetrics

from tests.support import saved
from tests.support.patience import patience
from tests.support.waiting import until

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"

Labels = tuple[tuple[str, str], ...]


@dataclass
class Scraped:
    """A run, what it has printed by now, and requests to it."""

    process: subprocess.Popen[str]
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    readers: list[Thread] = field(default_factory=list)
    last: float = float("-inf")
    """When something was asked for."""

    def read(self) -> None:
        """Start to take in what it prints."""
        for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err)):
            assert stream is not None
            self.readers.append(Thread(target=_collect, args=(stream, lines), daemon=True))
            self.readers[-1].start()

    def wait_for(self, part: str) -> str:
        """The line of standard error that has *part*, once it is there."""
        until(lambda: any(part in line for line in self.err) or self.process.poll() is not None, 60)
        return next(line for line in self.err if part in line)

    @property
    def url(self) -> str:
        return self.wait_for("Metrics at ").split()[-1]

    def get(self, accept: str = OPENMETRICS) -> tuple[int, str, str]:
        """Status, content type and text of now: what was read within the last second would be answered again."""
        pause = self.last + 1.05 - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        try:
            return self._get(accept)
        finally:
            self.last = time.monotonic()

    def _get(self, accept: str) -> tuple[int, str, str]:
        request = urllib.request.Request(self.url, headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=patience(30)) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def families(self) -> dict[str, Metric]:
        """What there is now, by name."""
        status, _, text = self.get()
        assert status == 200, text
        # The parser has no annotations.
        found = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        return {metric.name: metric for metric in found}

    def values(self) -> dict[tuple[str, Labels], float]:
        """All samples."""
        return flat(self.families().values())

    def end(self, number: int = signal.SIGINT) -> int:
        """Ask it to end; gives its status."""
        self.process.send_signal(number)
        return self.over()

    def over(self) -> int:
        """Wait for its end; gives its status."""
        status = self.process.wait(patience(60))
        for reader in self.readers:
            reader.join(patience(20))
        return status


def _collect(stream: TextIO, lines: list[str]) -> None:
    # One line after another: extend() shows them as they come.
    lines.extend(stream)


def flat(metrics: object) -> dict[tuple[str, Labels], float]:
    """Samples by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in metrics  # type: ignore[attr-defined]
        for sample in metric.samples
    }


def classic_values(text: str) -> dict[tuple[str, Labels], float]:
    """Samples of the older text format."""
    return flat(classic.text_string_to_metric_families(text))


@contextmanager
def serving(*arguments: str, address: str = "127.0.0.1:0", first: Sequence[str] = ()) -> Iterator[Scraped]:
    """A run with ``--metrics``, which is over at the end of the block. *first* are words before that."""
    made = Scraped(saved.start(*first, "--metrics", address, *arguments))
    made.read()
    try:
        yield made
    finally:
        if made.process.poll() is None:
            os.killpg(made.process.pid, signal.SIGKILL)
        made.over()


CALLER = """
import os, sys
with open("/proc/self/comm", "w") as name:
    name.write("python3")
for line in sys.stdin:
    for _ in range(int(line)):
        os.getppid()
    print("done", flush=True)
"""


class Caller:
    """A process that calls getppid when it is told to."""

    def __init__(self) -> None:
        # Not "python3": where that is a shell script, its shell asks for its parent, too.
        command = [sys.executable, "-c", CALLER]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, times: int) -> None:
        """Returns when it has called."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{times}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(patience(20))
        assert self._process.stdout is not None
        self._process.stdout.close()
