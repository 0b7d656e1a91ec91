"""The process that answers questions about other processes, for a live view whose run has given up its privileges.

It is forked before the run confines itself, and keeps what the user had. It answers a fixed set of questions
(:data:`pytrace.live.messages.Question`) about a process that is named by number and start, and nothing else: from
``/proc``, or by a run of pytrace of some seconds. While nobody asks it waits, and costs nothing.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import IO, NoReturn

import msgspec

from pytrace.core.manifest import Manifest
from pytrace.live import messages, processes
from pytrace.live.inquiry import QUESTIONS, SECONDS
from pytrace.live.messages import Answer, Command, Message
from pytrace.live.view_process import close_others
from pytrace.results.findings import readable

_HERTZ = 99
"""Samples each second, for the flame graph."""
_BLOCK = 1 << 16
_LONGEST_LINE = 1 << 12
_LONGEST = 60.0
"""Seconds that a run may take altogether: it compiles, and names functions of large binaries."""
_NOBODY = "the process that answers has ended"
_PATIENCE = 10.0
"""Seconds that the run waits for the end of the process."""
_MOST_OUTPUT = 32 << 20
"""Bytes that are read of what it prints."""
_MOST_STACKS = 20_000
_CALLS = """
tracepoint:raw_syscalls:sys_enter { @start[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit / @start[tid] / {
  $call = syscall_name(args.id);
  @calls_ns[$call] = stats(nsecs - @start[tid]);
  if (args.ret < 0 && args.ret > -4096) { @errors[$call] = count(); }
  delete(@start, tid);
}
end { clear(@start); }
"""
_COMMANDS = {
    "calls": ["-q", "-f", "json", "--duration", str(SECONDS), "-e", _CALLS],
    "flame": ["profile", "-q", "-F", str(_HERTZ), "-f", "folded", "--duration", str(SECONDS)],
}
"""The words of the runs; ``-p`` and the process follow."""
_WHOLE_STACKS = {"PYTRACE_STACK_UNWINDING": "auto", "PYTRACE_PYTHON_FRAMES": "true"}

_AS_ROOT = "only root, or its user, may read it"


def answers_for(manifest: Manifest) -> bool:
    """Whether rows of a run's maps, or calls under way, are of processes, so that there is something to ask about."""
    return bool(manifest.call_maps) or any(name in ("pid", "tid") for spec in manifest.maps for name in spec.key_names)


class Inspector:
    """The process, as the run sees it."""

    def __init__(self, stack: ExitStack) -> None:
        self._channel, theirs = socket.socketpair()
        self._incoming = messages.Incoming()
        self._unanswered: list[Message] = []
        self.pid = os.fork()
        if not self.pid:
            _become(theirs)
        theirs.close()
        self._channel.setblocking(False)
        stack.callback(self.close)

    def ask(self, command: Command) -> None:
        """Ask the question of a command; it takes the place of one that is still being answered."""
        try:
            self._channel.send(messages.line(command))
        except OSError:
            question = msgspec.convert(command.name, messages.Question)
            self._unanswered.append(Answer(question, command.pid, command.start, error=_NOBODY))

    def answers(self) -> list[Message]:
        """Answers that have come."""
        unanswered, self._unanswered = self._unanswered, []
        try:
            data = self._channel.recv(1 << 20)
        except OSError:
            data = b""
        return [*unanswered, *self._incoming.add(data)]

    def close(self) -> None:
        """End it, and what it has started."""
        if self.pid:
            pid, self.pid = self.pid, 0
            self._channel.close()
            until = time.monotonic() + _PATIENCE
            while not os.waitpid(pid, os.WNOHANG)[0]:
                # It hangs in a read of /proc, which nothing ends; it ends itself afterwards.
                if time.monotonic() > until:
                    return
                time.sleep(0.005)


# ---------------------------------------------------------------------------------------------- in the process


def _become(channel: socket.socket) -> NoReturn:
    """In the child: answer until the run closes the channel."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        close_others(channel.fileno())
        _Answering(channel).serve()
        status = 0
    finally:
        os._exit(status)


def refused(error: OSError, pid: int) -> str:
    """Why a process cannot be read, as a sentence."""
    if isinstance(error, PermissionError):
        return f"process {pid} belongs to another user: {_AS_ROOT}"
    return f"process {pid} has ended"


class _Answering:
    """Answers questions one at a time; a new one ends what an older one has started."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._received = b""
        self._commands: list[Command] = []
        self._over = False

    def serve(self) -> None:
        """Answer until the channel is closed."""
        while not self._over:
            if not self._commands:
                self._receive()
                continue
            command = self._commands[-1]
            self._commands.clear()
            answer = self._answer(command)
            if answer is not None:
                self._channel.sendall(messages.packed(answer))

    def _receive(self) -> None:
        data = self._channel.recv(_BLOCK)
        if not data or len(self._received) > _LONGEST_LINE:
            self._over = True
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            with suppress(msgspec.DecodeError):
                command = messages.command(line)
                if command.name in QUESTIONS:
                    self._commands.append(command)

    def _answer(self, command: Command) -> Answer | None:
        """The answer; None where another question has come."""
        question, pid = msgspec.convert(command.name, messages.Question), command.pid
        empty = Answer(question, pid, command.start)
        process = processes.read(pid)
        if process is None or process.start != command.start:
            return msgspec.structs.replace(empty, error=f"process {pid} has ended")
        try:
            if question in _COMMANDS:
                answer = self._trace(empty, command)
            else:
                read: Callable[[int], list[tuple[str, ...]]] = getattr(processes, question)
                rows = read(pid)
                what = question.removesuffix("s") if len(rows) == 1 else question
                answer = msgspec.structs.replace(empty, rows=rows, note=f"{len(rows)} {what}")
        except OSError as error:
            return msgspec.structs.replace(empty, error=refused(error, pid))
        after = processes.read(pid)
        if answer is not None and (after is None or after.start != command.start):
            answer = msgspec.structs.replace(answer, note=f"{answer.note}; it has ended meanwhile".lstrip("; "))
        return answer

    def _trace(self, empty: Answer, command: Command) -> Answer | None:
        # Modules come from where those of this process do, and not from the working directory.
        code = (
            f"import sys; sys.path[:] = {list(filter(None, sys.path))!r}; sys.argv[0] = 'pytrace'; "
            "from pytrace.cli.entry import command; command()"
        )
        words = [*_COMMANDS[command.name], "-p", str(command.pid)]
        environment = {**os.environ, **_WHOLE_STACKS, "NO_COLOR": "1"}
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            run = subprocess.Popen(
                [sys.executable, "-P", "-c", code, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                env=environment, start_new_session=True,
            )  # fmt: skip
            self._channel.sendall(messages.packed(msgspec.structs.replace(empty, own=(run.pid,), begun=True)))
            try:
                if not self._ended(run):
                    return None
            finally:
                _end(run)
            output.seek(0)
            data = output.read(_MOST_OUTPUT)
            if run.returncode:
                return msgspec.structs.replace(empty, error=_reason(errors))
        made = _calls(data) if command.name == "calls" else _stacks(data)
        return msgspec.structs.replace(empty, rows=made[0], stacks=made[1], note=made[2])

    def _ended(self, run: subprocess.Popen[bytes]) -> bool:
        """Wait for a run. Returns False where another question comes first."""
        until = time.monotonic() + _LONGEST
        while run.poll() is None:
            if select.select([self._channel], [], [], 0.05)[0]:
                self._receive()
            if self._commands or self._over or time.monotonic() > until:
                return False
        return True


def _end(run: subprocess.Popen[bytes]) -> None:
    """End a run that is not wanted any more: it detaches its probes."""
    if run.poll() is None:
        run.terminate()
        try:
            run.wait(5)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()


def _reason(errors: IO[bytes]) -> str:
    """The first error that a run reports."""
    errors.seek(0)
    text = errors.read(1 << 16).decode("utf-8", "replace")
    lines = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR: ")]
    return lines[0] if lines else (text.strip().splitlines() or ["it cannot be traced"])[-1]


class _Stats(msgspec.Struct):
    count: int
    average: int
    total: int


class _Printed(msgspec.Struct):
    data: dict[str, dict[str, _Stats | int]] | str | int | None = None


Made = tuple[list[tuple[str, ...]], list[tuple[tuple[str, ...], int]], str]


def _calls(data: bytes) -> Made:
    """Rows of system calls, by time."""
    counted: dict[str, _Stats] = {}
    errors: dict[str, int] = {}
    for line in data.splitlines():
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            printed = msgspec.json.decode(line, type=_Printed).data
            for name, values in printed.items() if isinstance(printed, dict) else ():
                for call, value in values.items():
                    if isinstance(value, _Stats):
                        counted[call] = value
                    elif name == "@errors":
                        errors[call] = value
    rows: list[tuple[str, ...]] = [
        (
            f"{item.count:,}", readable(item.total, "ns"), readable(item.average, "ns"),
            f"{errors[call]:,}" if call in errors else "", call,
        )
        for call, item in sorted(counted.items(), key=lambda pair: -pair[1].total)
    ]  # fmt: skip
    total = sum(item.count for item in counted.values())
    return rows, [], f"{total:,} calls in {SECONDS} s, {total / SECONDS:,.0f}/s" if rows else f"none in {SECONDS} s"


def _stacks(data: bytes) -> Made:
    """Stacks of functions, without the members of the key that precede them."""
    stacks: list[tuple[tuple[str, ...], int]] = []
    for line in data.decode("utf-8", "replace").splitlines()[:_MOST_STACKS]:
        frames, _, count = line.rpartition(" ")
        if count.isdecimal():
            stacks.append((tuple(frames.split(";")[_KEYS:]), int(count)))
    samples = sum(count for _, count in stacks)
    if not samples:
        return [], [], f"it was not on a CPU in {SECONDS} s: its system calls say what it waits for"
    share = 100 * samples / (SECONDS * _HERTZ)
    return [], stacks, f"{readable(samples / _HERTZ, 's')} on CPU in {SECONDS} s ({share:.0f} %), {samples:,} samples"


_KEYS = 2
"""Members of the keys of ``pytrace profile`` before the stacks: command and process."""
