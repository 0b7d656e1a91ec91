"""pytrace as a child of the test, forked from a process that has imported it already.

:class:`Popen` and :func:`run` take the place of those of :mod:`subprocess` for the words ``[sys.executable, "-m",
"pytrace", …]``: a start takes 30 milliseconds of a processor in place of 130. The child has the streams, the folder,
the environment and the parent of the process that it replaces, and calls the same function. What only a process of its
own has (other first words, ``preexec_fn``, a variable that Python reads when it starts) gets one.

Tests of starting itself, of what is imported once files or memory are limited, and of the command line that others see
in ``/proc`` use :mod:`subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
SERVER = "tests.support.server"
MODULES = ("pytrace", SERVER)
_READ_AT_START = ("PYTHONUTF8", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "LANG", "LC_ALL", "LC_CTYPE")
_OF_THE_KERNEL = ("preexec_fn", "uid", "gid", "gids", "umask", "shell")
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class Popen(subprocess.Popen[Any]):
    """As :class:`subprocess.Popen`."""

    def _execute_child(self, *values: Any) -> None:
        usual = super()._execute_child  # type: ignore[misc]
        given = dict(zip(inspect.signature(usual).parameters, values, strict=True))
        words = [os.fsdecode(word) for word in given["args"]] if not isinstance(given["args"], str) else []
        environment = dict(os.environ if given["env"] is None else given["env"])
        if not _can(words, environment, given):
            usual(*values)
            return
        if words[2] != SERVER:
            sys.audit("pytrace.tests.run", environment)  # counted by tests.support.profile
        request = {
            "module": words[2], "argv": words[3:], "environment": environment,
            "cwd": os.path.abspath(given["cwd"] or "."), "session": given["start_new_session"],
            "group": given.get("process_group", -1), "passed": list(given["pass_fds"]),
        }  # fmt: skip
        streams = [0, 1, 2]
        for at, name in enumerate(("p2cread", "c2pwrite", "errwrite")):
            if given[name] != -1:
                streams[at] = given[name]
        self.pid = _Origin.get().start(request, [*streams, *given["pass_fds"]])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]


def run(
    words: Sequence[Any], *, input: Any = None, capture_output: bool = False, timeout: float | None = None,  # noqa: A002
    check: bool = False, **named: Any,
) -> subprocess.CompletedProcess[Any]:  # fmt: skip
    """As :func:`subprocess.run`."""
    if input is not None:
        named["stdin"] = subprocess.PIPE
    if capture_output:
        named |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(words, **named) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _can(words: list[str], environment: Mapping[str, str], given: Mapping[str, Any]) -> bool:
    differs = any(environment.get(name) != os.environ.get(name) for name in _READ_AT_START)
    package = environment.get("PYTHONPATH", "")
    special = any(given.get(name) not in (None, -1, False) for name in _OF_THE_KERNEL)
    forks = words[:2] == [sys.executable, "-m"] and any(word in MODULES for word in words[2:3])
    return forks and os.path.abspath(package or ROOT) == str(ROOT) and not (differs or special)


class _Origin:
    """The process that starts are forked from; one for each process of tests."""

    _one: _Origin | None = None

    def __init__(self, start: Callable[[socket.socket], Callable[[], object]]) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        """Of the socket: tests of clusters start agents in several threads."""
        self._socket, other = socket.socketpair()
        with other:
            self._wait = start(other)
        atexit.register(self._close)
        assert self._socket.recv(1) == b"r"

    @classmethod
    def get(cls) -> _Origin:
        if cls._one is None or cls._one._owner != os.getpid():
            cls._one = cls(_executed)
        return cls._one

    @classmethod
    def fork(cls) -> None:
        cls._one = cls(_forked)

    def start(self, request: Mapping[str, Any], descriptors: list[int]) -> int:
        """The process of a new run, which is a child of this one."""
        data = json.dumps(request).encode()
        # The new process is forked twice, so that it is an orphan, and this one adopts it.
        with self._lock:
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [len(data).to_bytes(8, "little")], descriptors)
                self._socket.sendall(data)
                answer = self._socket.recv(8)
            finally:
                _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert answer, "the process that starts are forked from has ended"
        return int.from_bytes(answer, "little")

    def _close(self) -> None:
        if self._owner == os.getpid():
            self._socket.close()
            self._wait()


def _executed(channel: socket.socket) -> Callable[[], object]:
    """Start an origin that imports everything itself; how to wait for its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", str(channel.fileno())], pass_fds=[channel.fileno()],
        stdin=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return process.wait


def _forked(channel: socket.socket) -> Callable[[], object]:
    """Fork an origin; how to wait for its end."""
    pid = os.fork()
    if pid:
        return lambda: os.waitpid(pid, 0)
    try:
        # It has nothing in common with the tests but what they have imported.
        number = channel.fileno()
        os.closerange(3, number)
        os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(ROOT)
        sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
        serve(channel)
    except BaseException:  # noqa: BLE001 - shown, and the child must not run tests
        import traceback

        traceback.print_exc()
    finally:
        os._exit(0)


def fork_origin() -> None:
    """Fork the process that starts are forked from, from this one, which has imported everything (``import_all``)."""
    _Origin.fork()


# ------------------------------------------------------------------------------------------------ the other side


def serve(channel: socket.socket) -> None:
    """Fork for each request until the other side ends."""
    from tests.support.server import make_ready

    make_ready()
    channel.send(b"r")
    while True:
        head, descriptors, _, _ = socket.recv_fds(channel, 8, 64)
        if not head:
            return
        size, data = int.from_bytes(head, "little"), b""
        while len(data) < size:
            data += channel.recv(size - len(data))
        channel.send(_start(json.loads(data), descriptors).to_bytes(8, "little"))
        for descriptor in descriptors:
            os.close(descriptor)


def _start(request: dict[str, Any], descriptors: list[int]) -> int:
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        parent, child = os.getpid(), os.fork()
        if child == 0:
            while os.getppid() == parent:
                time.sleep(0)
            _child(request, descriptors)
        os.write(writing, child.to_bytes(8, "little"))
        os._exit(0)
    os.waitpid(between, 0)
    pid = int.from_bytes(os.read(reading, 8), "little")
    os.close(reading)
    os.close(writing)
    return pid


def _child(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    try:
        gc.disable()
        if request["session"]:
            os.setsid()
        if request["group"] >= 0:
            os.setpgid(0, request["group"])
        # None of those that arrived may be overwritten by the copy of another.
        high = [_above(descriptor, 200 + max([2, *request["passed"]])) for descriptor in descriptors]
        wanted = [0, 1, 2, *request["passed"]]
        for target, source in zip(wanted, high, strict=True):
            os.dup2(source, target, inheritable=True)
        last = -1
        for kept in [*sorted(wanted), os.sysconf("SC_OPEN_MAX")]:
            if last + 1 < kept:  # an empty range would be one without end
                os.closerange(last + 1, kept)
            last = kept
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        from pytrace.cli.entry import command
        from tests.support import server

        signal.signal(signal.SIGINT, signal.default_int_handler)
        if request["module"] == SERVER:
            server.begin([], "server")
            server.serve()
            os._exit(0)
        server.begin(request["argv"], str(ROOT / "pytrace/__main__.py"))
        command()
    except BaseException:  # noqa: BLE001 - reported, and the child must not run on
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def _above(descriptor: int, least: int) -> int:
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
