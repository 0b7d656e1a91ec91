"""``pytrace calls``: records the calls of processes, and prints each, or a summary."""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import re
import struct
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TextIO

import msgspec

from pytrace.base import whole_files
from pytrace.base.interruption import interruptions
from pytrace.calls import capture
from pytrace.calls.descriptors import Descriptors
from pytrace.calls.recorder import Exit, Fork, Item, Recorder, Signal
from pytrace.calls.signatures import by_number, call_names
from pytrace.calls.values import Recorded, Texts, signal_name, signed, socket_address
from pytrace.core.diagnostics import TraceError, similar
from pytrace.interface import tracing
from pytrace.interface.errors import TraceWarning
from pytrace.render.histogram import Histogram


class Options(msgspec.Struct, kw_only=True):
    """What ``pytrace calls`` was asked for; times are in nanoseconds."""

    targets: tuple[str, ...] = ("syscall:*",)
    pids: tuple[int, ...] = ()
    command: tuple[str, ...] = ()
    follow: bool = False
    slow: int = 0
    failed: bool = False
    summary: bool = False
    longest: int = 32
    stamp: str = ""
    """Empty, ``time`` (of the day) or ``relative`` (since the first call)."""
    names: bool = True
    """Descriptors are shown with their files."""
    format: str = "text"
    output: str | None = None
    duration: float | None = None


def run_calls(options: Options) -> int:
    """Record and print. Returns the exit status.

    Raises:
        TraceError: a target names nothing, a process does not exist, or the kernel refuses.
    """
    machine = os.uname().machine
    chosen = selected(options.targets, machine)
    for pid in options.pids:
        if not os.path.exists(f"/proc/{pid}"):
            raise TraceError(f"there is no process {pid}", hints=("ps -e lists processes and their ids",))
    if not options.pids and not options.command:
        raise TraceError(
            "pytrace calls needs a process or a command",
            hints=("pytrace calls -p PID, or pytrace calls -c 'COMMAND'",),
        )
    if options.output in (None, "-"):
        return _Run(options, machine, chosen).go(sys.stdout)
    with whole_files.replacing(options.output) as file:
        return _Run(options, machine, chosen).go(_text_file(file.fileno()))


def _text_file(descriptor: int) -> TextIO:
    return open(os.dup(descriptor), "w", encoding="utf-8", errors="surrogateescape")


def selected(targets: Sequence[str], machine: str) -> frozenset[int]:
    """The numbers of the system calls that patterns such as ``syscall:open*`` name.

    Raises:
        TraceError: a pattern names none.
    """
    names = call_names(machine)
    found: set[int] = set()
    for target in targets:
        kind, _, pattern = target.rpartition(":")
        if kind not in ("", "syscall"):
            raise TraceError(f"pytrace calls traces system calls: {target!r} is none", hints=("as 'syscall:open*'",))
        matching = {number for number, name in names.items() if fnmatch.fnmatchcase(name, pattern)}
        if not matching:
            near = similar(pattern.strip("*"), sorted(names.values()))
            hint = f"names like it: {', '.join(near)}" if near else "'syscall:*' is all of them"
            raise TraceError(f"no system call is named {pattern!r}", hints=(hint,))
        found |= matching
    return frozenset(found)


class _Run:
    """A run of ``pytrace calls``."""

    def __init__(self, options: Options, machine: str, chosen: frozenset[int]) -> None:
        self._options, self._machine, self._chosen = options, machine, chosen
        self._names = call_names(machine)
        decoded = {number: row for number, row in by_number(machine).items() if number in chosen}
        plans = {number: capture.plan(row, machine, options.longest) for number, row in decoded.items()}
        self._recorder = Recorder(decoded, plans)
        self._descriptors = Descriptors()
        self._texts = Texts(machine, options.longest, self._descriptors if options.names else None)
        only_command, everything = bool(options.command) and not options.follow, len(chosen) == len(self._names)
        if options.summary:
            condition = capture.condition(slow=options.slow, failed=options.failed)
            self._scripts = [
                capture.summary_script(chosen, only_command=only_command, everything=everything, condition=condition)
            ]
        else:
            self._scripts = [
                capture.script(
                    decoded, chosen, machine, longest=options.longest, only_command=only_command,
                    everything=everything, simple=simple,
                )
                for simple in ((True, False) if _kernel() < _PRUNES else (False, True))
            ]
        self._stop = False
        self._first: int | None = None
        self._offset = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._with_thread = options.follow or len(options.pids) > 1 or any(map(_threads, options.pids))

    def go(self, out: TextIO) -> int:
        """Trace to the end, and write to *out*."""
        self._out = out
        with interruptions(self._ended), warnings.catch_warnings():
            warnings.simplefilter("ignore", TraceWarning)
            return self._traced()

    def _ended(self) -> None:
        self._stop = True
        trace = getattr(self, "_trace", None)
        if trace is not None:
            trace.request_end()

    def _traced(self) -> int:
        options = self._options
        command = list(options.command) or None
        with self._opened(command) as trace:
            self._trace = trace
            self._seed(trace.child_pid)
            if self._stop:
                trace.request_end()
            while True:
                events = trace.batch(0.2)
                for event in events:
                    for item in self._recorder.add(event.values):
                        self._take(item)
                self._out.flush()
                if not events and trace.ended:
                    break
            for item in self._recorder.rest():
                self._take(item)
            if options.summary:
                self._summary(trace)
            else:
                self._unfinished(trace.maps["@calls"])
                self._report(int(trace.maps["@returned"].value or 0))
            self._out.flush()
            return trace.exit_code

    def _opened(self, command: list[str] | None) -> tracing.Trace:
        """The run, by the script that the kernel's verifier follows to its end."""
        options = self._options
        for script in self._scripts:
            try:
                return tracing.open(
                    script, command=command, pids=options.pids, follow=options.follow, duration=options.duration,
                    own_threads=False,
                )
            except TraceError as error:
                if script is self._scripts[-1] or "verifier" not in str(error):
                    raise
        raise AssertionError

    def _seed(self, child: int | None) -> None:
        """Names of the descriptors that a command inherits, or that processes have."""
        for pid in (*self._options.pids, *(() if child is None else (child,))):
            folder = f"/proc/{'self' if pid == child else pid}/fd"
            try:
                numbers = [int(name) for name in os.listdir(folder)]
            except OSError:
                continue
            for number in numbers:
                if pid == child and number > 2:
                    continue
                try:
                    self._descriptors.opened(pid, number, os.readlink(f"{folder}/{number}"))
                except OSError:
                    continue
            if pid == child:
                self._descriptors.moved(pid, os.getcwd())

    # ---- items

    def _take(self, item: Item) -> None:
        if isinstance(item, Recorded):
            self._call(item)
        elif isinstance(item, Signal):
            self._line(item.tid, item.pid, item.time, f"--- {signal_name(item.number)} ---")
        elif isinstance(item, Exit):
            status = item.status
            text = f"+++ killed by {signal_name(status & 0x7F)} +++" if status & 0x7F else (
                f"+++ exited with {status >> 8 & 0xFF} +++"
            )
            self._line(item.tid, item.pid, item.time, text)
            if item.tid == item.pid:
                self._descriptors.ended(item.pid)
        elif isinstance(item, Fork):
            self._descriptors.forked(item.pid, item.child)

    def _call(self, call: Recorded) -> None:
        options = self._options
        self._made(call)
        wanted = not options.slow or call.duration >= options.slow
        if options.failed:
            wanted = wanted and -4096 < call.result < 0 and call.finished
        if wanted:
            self._print(call)
        self._changed(call)

    def _name(self, call: Recorded) -> str:
        if call.number < 0:
            return f"32-bit:{-1 - call.number}"
        return self._names.get(call.number, f"syscall_{call.number:#x}")

    def _print(self, call: Recorded) -> None:
        arguments = self._texts.arguments(call)
        result = self._texts.result(call)
        name = self._name(call)
        if self._options.format == "json":
            row = {
                "time": call.start + self._offset, "pid": call.pid, "tid": call.tid, "call": name, "args": arguments,
                "result": call.result if call.finished else None, "text": result, "duration_ns": call.duration,
            }
            self._out.write(json.dumps(row) + "\n")
            return
        head = f"{name}({', '.join(arguments)})"
        took = f" <{call.duration / 1e9:.6f}>" if call.finished else ""
        self._line(call.tid, call.pid, call.start, f"{head:<39} = {result}{took}")

    def _line(self, tid: int, pid: int, moment: int, text: str) -> None:
        if self._options.format == "json":
            return
        parts = []
        if self._with_thread or tid != pid:
            parts.append(f"[{tid}]")
        if self._options.stamp == "time":
            nanoseconds = moment + self._offset
            clock = time.strftime("%H:%M:%S", time.localtime(nanoseconds // 10**9))
            parts.append(f"{clock}.{nanoseconds // 1000 % 10**6:06d}")
        elif self._options.stamp == "relative":
            self._first = moment if self._first is None else self._first
            parts.append(f"{(moment - self._first) / 1e9:11.6f}")
        self._out.write(" ".join([*parts, text]) + "\n")

    def _unfinished(self, entries: Mapping[object, object]) -> None:
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        for call in self._recorder.under_way(dict(entries.items())):
            if self._options.format == "json" or self._options.failed:
                continue
            arguments = ", ".join(self._texts.arguments(call))
            age = (now - call.start) / 1e9
            self._line(call.tid, call.pid, call.start, f"{self._name(call)}({arguments} <unfinished, for {age:.3f} s>")

    # ---- descriptors

    def _made(self, call: Recorded) -> None:
        """Keep the name of a descriptor that a call has made."""
        row = call.signature
        if row is None or not call.finished or call.result < 0:
            return
        pid, known = call.pid, self._descriptors
        closing = row.name in ("pidfd_open", "pidfd_getfd")
        if row.name in _CLOSING:
            given = dict(zip(row.names, call.arguments, strict=False))
            closing = bool(given.get("type", given.get("flags", 0)) & _CLOEXEC.get(row.name, 0x80000))
        if row.name == "openat2":
            closing = bool(int.from_bytes(call.before.get(2, b"")[:8], "little") & 0x80000)
        if row.name in ("pipe", "pipe2", "socketpair"):
            data = call.after.get(3 if row.name == "socketpair" else 0, b"")
            for number in struct.unpack("=ii", data[:8]) if len(data) >= 8 else ():
                known.opened(pid, number, "socket:UNIX" if row.name == "socketpair" else "pipe", closing=closing)
        elif row.result == "fd" or (row.name == "fcntl" and call.arguments[1] in (_F_DUPFD, _F_DUPFD_CLOEXEC)):
            name = self._name_of_made(call)
            known.closed(pid, call.result)
            if name is not None:
                known.opened(pid, call.result, name, closing=closing or call.arguments[1] == _F_DUPFD_CLOEXEC)

    def _name_of_made(self, call: Recorded) -> str | None:
        """The name of the descriptor that a call has made."""
        assert call.signature is not None
        name, arguments, pid = call.signature.name, call.arguments, call.pid
        if name in _ANONYMOUS:
            return f"anon_inode:{_ANONYMOUS[name]}"
        if name in ("open", "creat", "openat", "openat2"):
            index = 0 if name in ("open", "creat") else 1
            path = os.fsdecode(call.before.get(index, b""))
            folder = None if index == 0 or signed(arguments[0]) == AT_FDCWD else signed(arguments[0])
            return self._descriptors.path(pid, folder, path) if path else None
        if name in ("dup", "dup2", "dup3", "fcntl"):
            return self._descriptors.name(pid, signed(arguments[0]))
        if name == "memfd_create":
            return f"/memfd:{os.fsdecode(call.before.get(0, b''))}"
        if name == "socket":
            return f"socket:{_socket_kind(arguments)}"
        if name in ("accept", "accept4"):
            data, size = call.after.get(1, b""), call.after.get(2)
            length = struct.unpack("=i", size[:4])[0] if size else 0
            return f"socket:{_peer(data[:length])}" if length > 2 else "socket"
        return None

    def _changed(self, call: Recorded) -> None:
        """Keep what a call has changed about descriptors, after it was shown."""
        row = call.signature
        if row is None or not call.finished:
            return
        arguments, pid, known = call.arguments, call.pid, self._descriptors
        if row.name == "connect" and call.result in (0, -errno.EINPROGRESS):
            known.opened(pid, signed(arguments[0]), f"socket:{_peer(call.before.get(1, b''))}")
        elif call.result < 0:
            return
        elif row.name == "close":
            known.closed(pid, signed(arguments[0]))
        elif row.name == "close_range" and not arguments[2] & _CLOSE_RANGE_CLOEXEC:
            known.closed_range(pid, arguments[0] & 0xFFFFFFFF, arguments[1] & 0xFFFFFFFF)
        elif row.name == "fcntl" and arguments[1] == _F_SETFD:
            known.close_on_exec(pid, signed(arguments[0]), closing=bool(arguments[2] & 1))
        elif row.name == "chdir":
            path = os.fsdecode(call.before.get(0, b""))
            known.moved(pid, known.path(pid, None, path) if path else None)
        elif row.name == "fchdir":
            known.moved(pid, known.name(pid, signed(arguments[0])))
        elif row.name in ("execve", "execveat"):
            known.executed(pid)

    # ---- the end

    def _summary(self, trace: tracing.Trace) -> None:
        """The table of what the kernel has counted."""
        totals, times, errors = (dict(trace.maps[name].items()) for name in ("@total", "@times", "@errors"))
        rows = []
        for number, total in totals.items():
            times_of_call = times[number]
            assert isinstance(times_of_call, Histogram)
            name = self._names.get(number, f"syscall_{number:#x}")
            worst = times_of_call.quantile(0.99) or 0
            rows.append((total, times_of_call.count, errors.get(number, 0), worst, name))
        rows.sort(reverse=True)
        whole = sum(row[0] for row in rows)
        if self._options.format == "json":
            for total, count, failed, worst, name in rows:
                row = {"call": name, "calls": count, "errors": failed, "total_ns": total, "p99_ns": worst}
                self._out.write(json.dumps(row) + "\n")
            return
        self._out.write("  %TIME   TOTAL(ms)    CALLS   ERRORS   AVG(us)    P99(us) CALL\n")
        for total, count, failed, worst, name in rows:
            self._out.write(
                f"{total * 100 / max(whole, 1):7.2f} {total / 1e6:11.3f} {count:8d} {failed or '':8} "
                f"{total / count / 1e3:9.1f} {worst / 1e3:10.1f} {name}\n"
            )
        count, failed = sum(row[1] for row in rows), sum(row[2] for row in rows)
        self._out.write(f"{100.0:7.2f} {whole / 1e6:11.3f} {count:8d} {failed or '':8} {'':9} {'':10} total\n")

    def _report(self, returned: int) -> None:
        missing = max(0, returned - self._recorder.calls)
        if missing:
            sys.stderr.write(
                f"WARNING: {missing} calls are missing ({missing * 100 / returned:.1f}% of {returned}): they came "
                "faster than they were printed\nHINT: choose calls ('syscall:open*'), or --summary\n"
            )
        if self._recorder.incomplete:
            sys.stderr.write(f"WARNING: of {self._recorder.incomplete} calls what they read is missing: <lost>\n")
        if self._texts.unreadable:
            sys.stderr.write(f"WARNING: {self._texts.unreadable} values could not be read: <unreadable>\n")


_ANONYMOUS = {
    "epoll_create": "[eventpoll]", "epoll_create1": "[eventpoll]", "eventfd": "[eventfd]", "eventfd2": "[eventfd]",
    "timerfd_create": "[timerfd]", "signalfd": "[signalfd]", "signalfd4": "[signalfd]", "inotify_init": "inotify",
    "inotify_init1": "inotify", "pidfd_open": "[pidfd]", "userfaultfd": "[userfaultfd]",
    "perf_event_open": "[perf_event]", "fanotify_init": "[fanotify]", "io_uring_setup": "[io_uring]",
}  # fmt: skip
"""Names of what calls make that is no file."""
_CLOSING = frozenset({
    "open", "openat", "socket", "accept4", "socketpair", "pipe2", "dup3", "epoll_create1", "eventfd2", "timerfd_create",
    "signalfd4", "inotify_init1", "memfd_create", "perf_event_open", "userfaultfd", "fanotify_init",
})  # fmt: skip
"""Calls with a flag that has the descriptor closed when the process executes another program."""
_CLOEXEC = {"memfd_create": 1, "perf_event_open": 8, "fanotify_init": 1}
"""That flag, where it is not O_CLOEXEC."""
_F_DUPFD, _F_SETFD, _F_DUPFD_CLOEXEC = 0, 2, 1030
_CLOSE_RANGE_CLOEXEC = 4
AT_FDCWD = -100


_PRUNES = (6, 4)
"""From this kernel on the verifier sees that what it follows is like what it has followed, and a map in between costs
more than it saves."""


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found is not None else _PRUNES


def _threads(pid: int) -> bool:
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _socket_kind(arguments: Sequence[int]) -> str:
    family, kind = arguments[0] & 0xFFFF, arguments[1] & 0xF
    if family in (2, 10):
        name = {1: "TCP", 2: "UDP", 3: "RAW"}.get(kind, "INET")
        return f"{name}v6" if family == 10 else name
    return {1: "UNIX", 16: "NETLINK", 17: "PACKET"}.get(family, "socket")


def _peer(data: bytes) -> str:
    """A peer's address, short."""
    text = socket_address(data)
    for start, end in (('sin_addr=inet_addr("', '"'), ('inet_pton(AF_INET6, "', '"'), ("sun_path=", "}")):
        if start in text:
            address = text.partition(start)[2].partition(end)[0].strip('"')
            port = text.partition("port=htons(")[2].partition(")")[0]
            return f"{address}:{port}" if port and ":" not in address else f"[{address}]:{port}" if port else address
    return "socket"
