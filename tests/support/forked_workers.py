"""Runs tests in processes that are forked after collection: ``-p tests.support.forked_workers --forks N``.

In the test machine a process that imports pytest, the tests and pytrace takes half a minute, and one processor emulates
all. Workers of xdist import and collect each for itself, beside a process that only waits for them; and each starts
another process that its runs of pytrace are forked from. Here everything is imported and collected once.

The first process hands out tests and shows results, as xdist's does. Each worker has the origin of its forked starts
(:mod:`tests.support.forked`) as a child, forked from it before its first test.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import traceback
from collections import deque
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support import compile_guest, forked, server

_SHARES = 4
"""So many more times would all workers be given what one is given now: many tests at first, single ones in the end."""


class Shared:
    """What the workers of this session have in common."""

    folder: Path | None = None
    """A folder; None where tests are not run by workers of this kind."""


class _Worker:
    """A forked process, and the tests that it was given, of which the first runs."""

    def __init__(self, session: pytest.Session, others: list[_Worker]) -> None:
        self.given: deque[int] = deque()
        self.told_last = False
        self.channel, other = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            for worker in (*others, self):
                worker.channel.close()
            _work(session, other)
        other.close()

    def hand(self, tests: deque[int], workers: int) -> None:
        """Give it tests of those that wait. It has to know the next one when it runs one: fixtures may be of both."""
        if len(self.given) > 1 or self.told_last:
            return
        with suppress(BrokenPipeError, ConnectionResetError):  # it has died: seen when its end is read
            for _ in range(min(len(tests), max(2, len(tests) // (workers * _SHARES)))):
                self.given.append(tests.popleft())
                self.channel.send(self.given[-1])
            if not tests and len(self.given) < 2:
                self.channel.send(None)
                self.told_last = True

    def end(self) -> int:
        """Wait for its end; the exit status."""
        self.channel.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ForkedWorkers:
    """The plugin of the first process."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests in workers."""
        if session.config.option.collectonly or session.testsfailed or not session.items:
            return None
        server.import_all()
        compile_guest.prepare()
        gc.collect()
        gc.freeze()
        tests = deque(range(len(session.items)))
        workers: list[_Worker] = []
        shared = tempfile.TemporaryDirectory()
        Shared.folder = Path(shared.name)
        try:
            for _ in range(min(self._count, len(tests))):
                workers.append(_Worker(session, workers))
            for worker in workers:
                worker.hand(tests, self._count)
            while workers:
                for channel in wait([worker.channel for worker in workers]):
                    worker = next(worker for worker in workers if worker.channel is channel)
                    if not self._heard(session, worker):
                        workers.remove(worker)
                        self._ended(session, worker, tests, workers)
                    elif not worker.given or len(worker.given) == 1:
                        worker.hand(tests, self._count)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            for worker in workers:
                os.kill(worker.pid, signal.SIGINT)
                worker.end()
            shared.cleanup()
        return True

    @staticmethod
    def _heard(session: pytest.Session, worker: _Worker) -> bool:
        """Pass on what a worker says; whether it goes on."""
        hook = session.config.hook
        try:
            kind, *values = worker.channel.recv()
        except (EOFError, ConnectionResetError):
            return False
        if kind == "start":
            hook.pytest_runtest_logstart(nodeid=values[0], location=values[1])
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=values[0])
            hook.pytest_runtest_logreport(report=report)
        elif kind == "finish":
            hook.pytest_runtest_logfinish(nodeid=values[0], location=values[1])
        elif kind == "done":
            worker.given.popleft()
        return True

    def _ended(self, session: pytest.Session, worker: _Worker, tests: deque[int], workers: list[_Worker]) -> None:
        """Report what a worker that died was running as failed; another one runs what it had not begun."""
        status = worker.end()
        if not worker.given:
            return
        item = session.items[worker.given.popleft()]
        report = pytest.TestReport(
            item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed",
            f"the process that ran it ended with status {status}", "call",
        )  # fmt: skip
        session.config.hook.pytest_runtest_logreport(report=report)
        tests.extendleft(reversed(worker.given))
        if tests:
            workers.append(_Worker(session, workers))
            workers[-1].hand(tests, self._count)


# ------------------------------------------------------------------------------------------------ a worker


class _Sender:
    """Tells the first process what the terminal would show."""

    def __init__(self, config: pytest.Config, channel: Connection) -> None:
        self._config, self._channel = config, channel

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._channel.send(("start", nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data: Any = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(("report", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._channel.send(("finish", nodeid, location))


def _work(session: pytest.Session, channel: Connection) -> NoReturn:
    """Run tests until there is none."""
    status = 1
    config = session.config
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for name in ("terminalreporter", "pytrace-report"):
            config.pluginmanager.unregister(name=name)
        # What is captured goes into files, whose places would be shared.
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()
        config.pluginmanager.register(_Sender(config, channel))
        forked.fork_origin()
        number = channel.recv()
        while number is not None:
            following = channel.recv()
            item, after = session.items[number], None if following is None else session.items[following]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            channel.send(("done",))
            number = following
        status = 0
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
    except BaseException:  # noqa: BLE001 - shown, and the child must not run on as a second first process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--forks N``."""
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run tests in N forked processes")


def pytest_configure(config: pytest.Config) -> None:
    """Run tests in workers where so asked."""
    count = config.getoption("--forks")
    if count:
        config.pluginmanager.register(ForkedWorkers(count), "pytrace-forked-workers")
