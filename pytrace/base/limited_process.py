"""Processes that may be ended: what others wrote is read in them, within limits of memory and time.

Reading may take memory that there is not, never end, or wait for a file system that does not answer (FUSE), which no
signal ends. A process of its own can be killed or left behind; it costs what it was asked.

:class:`LimitedProcess` is a fork of this process that answers requests: it starts in some milliseconds, has all
that was imported, and can be started where ``execve`` is refused (``runtime/session/confinement``). :class:`Program` is
a new interpreter with one task, for processes with threads, whose locks a fork would inherit.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import select
import signal
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import msgspec

from pytrace.base import kernel_files
from pytrace.base.interruption import held

if TYPE_CHECKING:
    import socket

_MIB = 1 << 20
_LOOK_EVERY = 0.05
"""Seconds between two looks at whether the process gets on."""
_REQUEST, _ANSWER = struct.Struct("=QdI"), struct.Struct("=QdIB")
"""Length, seconds of processor time (that it may take, that it took), descriptors; and whether it failed."""
_DONE, _FAILED, _NO_MEMORY = 0, 1, 2
_MOST_DESCRIPTORS = 8
_LONGEST_REASON = 200
_LEAST_SECONDS = 0.01
_BLOCK = 1 << 20


Serve = Callable[[bytes, list[int]], tuple[bytes, list[int]]]
"""Bytes and descriptors of an answer, by those of a request."""


class LimitError(Exception):
    """A limited process did not answer; the text says why, as ``it takes …``."""


class LostError(Exception):
    """What a limited process knew is gone, as it was ended for another request."""


class Limits(msgspec.Struct, frozen=True):
    """What a process may take.

    Attributes:
        memory: bytes that it may add to its address space.
        patience: seconds in which it neither computes nor answers, as it waits for a file.
        total: seconds that all its answers may be waited for.
    """

    memory: int
    patience: float
    total: float = float("inf")


class Pending:
    """A request whose answer has not come yet."""

    def __init__(self) -> None:
        self.answer: tuple[bytes, list[int]] | None = None
        self.error: Exception | None = None
        self.cpu = 0.0
        """Seconds of processor time that it took."""

    @property
    def over(self) -> bool:
        """Whether it was answered, or failed."""
        return self.answer is not None or self.error is not None


class LimitedProcess:
    """A child of this process that answers requests by *serve*, one after the other.

    *serve* gets the bytes and descriptors of a request and returns those of the answer; it runs in the child, where
    what it changes stays. An error that it raises fails the request. The child is started when it is first asked, and
    again after it was ended. *wanted* says whether the answer is still waited for.
    """

    def __init__(
        self,
        serve: Serve,
        limits: Limits,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._serve = serve
        self._limits = limits
        self._wanted = wanted
        self._pid = 0
        self._owner = 0
        self._socket: socket.socket | None = None
        self._pending: Pending | None = None
        self._left: list[int] = []
        """Processes that were killed and have not ended yet."""
        self.generation = 0
        """How often it was started: each time it knows nothing."""
        self.waited = 0.0
        """Seconds that answers were waited for."""

    @property
    def running(self) -> bool:
        """Whether it knows what it was asked before."""
        return self._socket is not None and self._owner == os.getpid()

    def call(self, request: bytes, descriptors: Sequence[int] = (), seconds: float = 2.0) -> tuple[bytes, list[int]]:
        """The answer to a request that may take some seconds of processor time.

        Raises:
            LimitError: it takes more, or *serve* failed.
            LostError: the process was ended for a request before.
        """
        return self.result(self.start(request, descriptors, seconds))

    def start(self, request: bytes, descriptors: Sequence[int] = (), seconds: float = 2.0) -> Pending:
        """Send a request; one that was sent before is finished first."""
        if self._pending is not None:
            self._wait(self._pending, None)
        pending = Pending()
        if self.waited >= self._limits.total:
            pending.error = LimitError(f"reading files of others took {self._limits.total:g} s already")
            return pending
        if self._owner != os.getpid():
            self._forget()
        if self._socket is None:
            try:
                self._fork()
            except OSError as error:
                # As with the pids.max of a service, or without descriptors.
                pending.error = LimitError(f"no process can be started for it: {error.strerror}")
                return pending
        assert self._socket is not None
        self._pending = pending
        head = _REQUEST.pack(len(request), max(_LEAST_SECONDS, seconds), len(descriptors))
        try:
            _send(self._socket, head, request, descriptors)
        except OSError:
            self._fail(pending)
        return pending

    def ready(self, pending: Pending, longest: float) -> bool:
        """Wait at most some seconds for an answer; whether it is there, or never comes."""
        if not pending.over:
            self._wait(pending, longest)
        return pending.over

    def result(self, pending: Pending) -> tuple[bytes, list[int]]:
        """The answer to a request. Errors: :meth:`call`."""
        if not pending.over:
            self._wait(pending, None)
        if pending.error is not None:
            raise pending.error
        assert pending.answer is not None
        return pending.answer

    def _wait(self, pending: Pending, longest: float | None) -> None:
        assert self._socket is not None
        begun = stuck = time.monotonic()
        ticks = -1
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        try:
            while not poll.poll(1000 * (_LOOK_EVERY if longest is None else min(_LOOK_EVERY, longest))):
                now = time.monotonic()
                if longest is not None and now - begun >= longest:
                    return
                if self.waited + now - begun >= self._limits.total:
                    self._end(pending, f"reading files of others took {self._limits.total:g} s")
                    return
                if not self._wanted():
                    self._end(pending, "the end of the run did not wait for it")
                    return
                running, before = _progress(self._pid), ticks
                ticks = running[1]
                if running[0] or ticks != before:
                    stuck = now
                elif now - stuck >= self._limits.patience:
                    self._end(pending, f"a file system has not answered for {self._limits.patience:g} s")
                    return
            self._receive(pending)
        except BaseException:
            # The user asks again: nothing more is waited for.
            self._end(pending, "it was interrupted")
            raise
        finally:
            self.waited += time.monotonic() - begun

    def _receive(self, pending: Pending) -> None:
        assert self._socket is not None
        try:
            head, descriptors = _receive(self._socket, _ANSWER.size)
            length, cpu, _, failed = _ANSWER.unpack(head)
            # A process that was taken over could send anything; what it may have is bounded.
            if length > self._limits.memory:
                self._end(pending, "its answer is too long")
                return
            data, _ = _receive(self._socket, length)
        except (OSError, EOFError):
            self._fail(pending)
            return
        self._pending, pending.cpu = None, cpu
        if failed == _DONE:
            pending.answer = data, descriptors
        elif failed == _NO_MEMORY:
            self._end(pending, self._too_much())
        else:
            pending.error = LimitError(data.decode("utf-8", "replace"))

    def _too_much(self) -> str:
        return f"it takes more than {self._limits.memory // _MIB} MiB of memory"

    def _fail(self, pending: Pending) -> None:
        """The process has ended by itself: by the timer, or by the system when memory was short."""
        status = 0
        with suppress(ChildProcessError):
            _, status = os.waitpid(self._pid, 0)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self._pid = 0
        if number == signal.SIGPROF:
            why = "it takes more processor time than a file may"
        elif number == signal.SIGKILL:
            why = self._too_much()
        elif number == signal.SIGBUS:
            why = "it was truncated while it was read"
        else:
            why = f"the process that read it ended with status {status}"
        self._end(pending, why)

    def _end(self, pending: Pending, why: str) -> None:
        pending.error = LimitError(why)
        self._pending = None
        self.close()

    def close(self) -> None:
        """End the process. One that waits for a file system cannot be ended, and is left behind."""
        if self._pending is not None:
            self._pending.error = LostError("the process was ended")
            self._pending = None
        pid = self._pid if self._owner == os.getpid() else 0
        self._forget()
        if pid:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            self._left.append(pid)
        self._reap()

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._pid, self._pending = None, 0, None

    def _reap(self) -> None:
        self._left[:] = [pid for pid in self._left if not _has_ended(pid)]

    def _fork(self) -> None:
        import socket

        self._reap()
        ours, theirs = socket.socketpair()
        try:
            # A signal in between would be handled in the child, too, by what this process would do.
            with held(), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of programs with threads
                pid = os.fork()
                if not pid:
                    _become(theirs, self._serve, self._limits)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket, self._pid, self._owner = ours, pid, os.getpid()
        self.generation += 1


_MOMENT, _ENDING = 0.02, 2.0
"""Seconds in which a process ends that was killed: one that waits for a file system, and one that waits for a CPU."""


def _has_ended(pid: int) -> bool:
    """Wait for a process that was killed; what cannot end is init's, once this process has."""
    begun = time.monotonic()
    with suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            waited = time.monotonic() - begun
            if waited > _ENDING or (waited > _MOMENT and kernel_files.process_state(pid) == "D"):
                return False
            time.sleep(0.001)
    return True


class LimitedTasks:
    """Tasks of which each has a process of its own; the *limits* of time are those of all together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waited = 0.0

    def run(self, task: Callable[[list[int]], bytes], descriptors: Sequence[int], seconds: float = 2.0) -> bytes:
        """What *task* returns in the process, by the descriptors that it has there.

        Raises:
            LimitError: it takes more processor time or memory than it may, or fails.
        """
        limits = msgspec.structs.replace(self._limits, total=self._limits.total - self._waited)
        process = LimitedProcess(lambda _request, passed: (task(passed), []), limits)
        try:
            return process.call(b"", descriptors, seconds)[0]
        finally:
            self._waited += process.waited
            process.close()


@contextmanager
def limited_block(seconds: float, memory: int) -> Iterator[None]:
    """Stop what a block of this process does when it has taken some seconds of processor time, or would add more than
    *memory* bytes to the address space of the process.

    It costs no process, but ends nothing that waits for a file, and threads other than the first one are not stopped:
    Python handles signals in that one. A block within another one is stopped with that.

    Raises:
        LimitError: it takes more.
    """
    if _State.inside or _State.timed or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: object) -> NoReturn:
        raise LimitError(f"it takes more than {seconds:g} seconds of processor time")

    before, _State.timed = signal.signal(signal.SIGPROF, stop), True
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _address_space() + memory
    try:
        if soft == resource.RLIM_INFINITY or most < soft:
            resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
        signal.setitimer(signal.ITIMER_PROF, max(_LEAST_SECONDS, seconds))
        yield
    except MemoryError:
        raise LimitError(f"it takes more than {memory // _MIB} MiB of memory") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        _State.timed = False
        signal.signal(signal.SIGPROF, before if before is not None else signal.SIG_DFL)


class _State:
    inside = False
    timed = False


def inside() -> bool:
    """True in a limited process: it may wait for files, as somebody watches it."""
    return _State.inside


def allow(size: int) -> None:
    """In a limited process: that many bytes of address space do not count, as they are a file's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (soft + size if hard < 0 else min(soft + size, hard), hard))


# ---------------------------------------------------------------------------------------------- in the child


def _become(own: socket.socket, serve: Serve, limits: Limits) -> NoReturn:
    """Answer requests until nobody asks any more."""
    try:
        _State.inside = True
        # Ctrl-C and a service manager's SIGTERM are for the tracer, which goes on to ask until it has printed.
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        # What ends it is seen by its parent, and by no handler that this process had.
        for number in (signal.SIGPROF, signal.SIGBUS, signal.SIGSEGV):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _close_others(own.fileno())
        gc.freeze()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        size = _address_space() + limits.memory
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (size if hard < 0 else min(size, hard), hard))
        while True:
            _answer(own, serve)
    except (OSError, EOFError):
        pass
    finally:
        os._exit(0)


def _answer(own: socket.socket, serve: Serve) -> None:
    head, descriptors = _receive(own, _REQUEST.size)
    length, seconds, _ = _REQUEST.unpack(head)
    request, _ = _receive(own, length)
    begun, failed, answer, passed = time.process_time(), _DONE, b"", list[int]()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        answer, passed = serve(request, descriptors)
    except MemoryError:
        failed = _NO_MEMORY
    except RecursionError:
        failed, answer = _FAILED, b"it is nested too deeply"
    except Exception as error:  # noqa: BLE001 - whatever it is, it costs the one that asked for this
        failed, answer = _FAILED, f"{type(error).__name__}: {error}"[:_LONGEST_REASON].encode("utf-8", "replace")
    signal.setitimer(signal.ITIMER_PROF, 0)
    try:
        head = _ANSWER.pack(len(answer), time.process_time() - begun, len(passed), failed)
        _send(own, head, answer, passed)
    finally:
        for descriptor in (*descriptors, *passed):
            with suppress(OSError):
                os.close(descriptor)


def _close_others(kept: int) -> None:
    """Close all files: links of probes would outlive a tracer that is killed, pipes would not end."""
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        descriptors = list(range(4096))
    for descriptor in descriptors:
        if descriptor != kept:
            with suppress(OSError):
                os.close(descriptor)
    for _ in range(3):
        os.open(os.devnull, os.O_RDONLY)  # a filter may refuse to open files to write


def _address_space() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


# ---------------------------------------------------------------------------------------------- between them


def _send(own: socket.socket, head: bytes, data: bytes, descriptors: Sequence[int]) -> None:
    import socket

    if descriptors:
        socket.send_fds(own, [head], descriptors)
    else:
        own.sendall(head)
    own.sendall(data)


def _receive(own: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """So many bytes, and the descriptors that came with them.

    Raises:
        EOFError: the other side has ended.
    """
    import socket

    parts, descriptors = [], list[int]()
    while size:
        part, passed, _, _ = socket.recv_fds(own, min(size, _BLOCK), _MOST_DESCRIPTORS)
        descriptors += passed
        if not part:
            for descriptor in descriptors:
                os.close(descriptor)
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts), descriptors


def _progress(pid: int) -> tuple[bool, int]:
    """Whether a process runs, and what it has used of the processor; of one that has ended that it runs."""
    statistics = kernel_files.statistics(pid)
    return (statistics.state not in ("S", "D"), statistics.ticks) if statistics else (True, 0)


# ---------------------------------------------------------------------------------------------- a program


class Program:
    """A new interpreter that calls a function of bytes, with limits of its address space and processor time.

    *memory* is in bytes, *seconds* are those of the processor, *longest* those until it is killed.
    """

    def __init__(self, function: Callable[[bytes], bytes], *, memory: int, seconds: int, longest: float) -> None:
        import subprocess

        # Modules come from where those of this process do, and not from the working directory.
        code = (
            f"import sys; sys.path[:] = {list(filter(None, sys.path))!r}; "
            f"from {__name__} import run; run({function.__module__!r}, {function.__name__!r}, {memory}, {seconds})"
        )
        self._longest = longest
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def result(self, data: bytes) -> bytes:
        """What the function returns.

        Raises:
            LimitError: it takes more than it may, or fails; the text is the last line of its error, if it has one.
        """
        import subprocess

        try:
            output, errors = self._process.communicate(data, timeout=self._longest)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.communicate()
            raise LimitError(f"it takes more than {self._longest:g} seconds") from None
        if self._process.returncode:
            last = errors.decode("utf-8", "replace").rstrip().rpartition("\n")[2]
            raise LimitError(last[-_LONGEST_REASON:] or f"it ended with status {self._process.returncode}")
        return output

    def kill(self) -> None:
        """End it."""
        self._process.kill()


def run(module: str, function: str, memory: int, seconds: int) -> None:
    """The program: from the data on standard input to the result on standard output."""
    import importlib

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    result = getattr(importlib.import_module(module), function)(sys.stdin.buffer.read())
    sys.stdout.buffer.write(result)
