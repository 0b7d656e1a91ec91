"""The process of ``-c``: started at once, held until all probes are attached, watched until it ends.

It is forked and waits on a pipe before it executes the command, so even its first instruction is traced. Uprobes and
USDT probes are bound to files and need no process yet; what needs the new program's memory (unwind tables,
semaphores that are raised by hand) calls :meth:`Child.stop_after_exec`: then the child stands still, by ptrace(2), with
the new program mapped and before its first instruction.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shlex
import shutil
import signal
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from threading import Lock, get_native_id
from typing import NoReturn

from pytrace.base import kernel_files
from pytrace.base.interruption import deliver, postponed
from pytrace.core.diagnostics import NO_PROCESSES, TraceError
from pytrace.core.options import Surroundings
from pytrace.runtime.machine import procfs, syscalls
from pytrace.runtime.machine.host_names import CLONE_NEWNET

_PTRACE_TRACEME = 0
_PTRACE_PEEKUSER = 3
_PTRACE_POKEUSER = 6
_PTRACE_CONT = 7
_PTRACE_DETACH = 17
_PTRACE_SETOPTIONS = 0x4200
_PTRACE_O_TRACEEXEC = 0x10
_PTRACE_O_TRACEFORKS = 0xE
"""fork, vfork and clone: what they make is traced, too, and begins with a SIGSTOP."""
_PTRACE_EVENT_EXEC = 4
_PTRACE_FORK_EVENTS = (1, 2, 3)
_WALL = 0x40000000
"""Wait for threads, too (``__WALL``)."""
_RIP = 16 * 8
"""Offset of the program counter in ``struct user`` (x86-64)."""
_BREAKPOINT = b"\xcc"
_AT_ENTRY = 9
_NOT_ENTERED = "namespace "
"""Prefix of the error number when the child could not enter its network namespace."""
_UNKNOWN = 0
"""The status of a process that somebody else has waited for, as in ``subprocess``."""
_FORKING = Lock()
_PATIENCE = 2.0
"""Seconds that the child gets to end after SIGTERM, and to start its libraries when it sleeps meanwhile."""
EXEC_PATIENCE = 10.0
"""Seconds in which a wrapper executes the next program."""
_MOST_PROGRAMS = 32
"""Programs that a command executes one after another, in one process, before its interpreter."""
_MOST_PATIENCE = 60.0
"""Seconds that it gets to start its libraries when it is at work, or waits for a disk or a CPU."""


class Child:
    """A started command. *pid* is its process id, the value of ``cpid``."""

    def __init__(self, pid: int, gate: int, report: int, command: list[str]) -> None:
        self.pid = pid
        self.command = command
        self._gate = gate
        self._report = report
        self._pidfd = os.pidfd_open(pid)
        self._stopped = False
        self._descent: _Descent | None = None
        self._status: int | None = None
        self.interpreter: int | None = None
        """The process that the command has started and whose CPython is probed, where that is not the command."""
        self.had_children = False
        """Once it has ended: whether it has started processes, and waited for one."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """A descriptor that is readable once the process has ended (a pidfd)."""
        return (self._pidfd,)

    def stop_after_exec(self) -> None:
        """Let the child become its program, and hold it there; nothing if it is held already, or was and has ended.

        Raises:
            TraceError: the program could not be executed.
        """
        if self._stopped or self._gate < 0:
            return
        self._open_gate(b"t")
        self._check_exec()
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._status = os.waitstatus_to_exitcode(status)
            raise TraceError(f"{self.command[0]} exited before it could be traced")
        self._stopped = True

    def run_to_entry(self) -> bool:
        """Let the stopped program run until its dynamic loader has mapped and started its libraries; hold it there.

        False when it did not get there (it ended, or waits for something in a library's constructor).
        """
        if not self._stopped or self._descent is not None:
            return False
        try:
            return self._run_to_entry()
        except OSError:
            # Somebody killed it: its memory is gone, and ptrace(2) knows it no more.
            if not self._killed():
                raise
            return False

    def run_to_next_program(self) -> bool:
        """Let the stopped program run until it executes another one; hold that before its first instruction.

        False when it does not within :data:`EXEC_PATIENCE`, or has ended.
        """
        if not self._stopped:
            return False
        try:
            syscalls.ptrace(_PTRACE_SETOPTIONS, self.pid, 0, _PTRACE_O_TRACEEXEC)
            return self._continue_until(lambda status: status >> 16 == _PTRACE_EVENT_EXEC, self._no_exec)
        except OSError:
            if not self._killed():
                raise
            return False

    def run_to_descendant(self, wanted: Callable[[int], bool]) -> int | None:
        """Let the stopped program, and what it starts, run until one has a program that is *wanted*; hold that one.

        Each program is looked at when it is executed, and when its libraries are mapped. The others run to the next
        program that they execute. None when there is no such within :data:`EXEC_PATIENCE`: then they run on untraced,
        or have ended.
        """
        if not self._stopped:
            return None
        self._descent = _Descent(self.pid)
        found = self._descent.run(wanted)
        if found is None:
            self._leave_descent(self._descent)
        return found

    def run_to_interpreter(self, *, follow: bool, strict: bool) -> None:
        """Let the command, which may be a chain of wrappers (env, a version manager), run until it executes a CPython.

        With *follow* that may be one of the processes that it starts (a script of a shell, make): ``interpreter``.
        Functions are probed in the interpreter's file: a library, which the dynamic loader has to map first.

        Raises:
            TraceError: it has executed none, as it has ended or does something else, and *strict* is set.
        """
        from pytrace.runtime.stacks.python_processes import runs_python  # few scripts probe functions of Python

        self.stop_after_exec()
        if runs_python(self.pid):
            return
        if follow:
            found = self.run_to_descendant(runs_python)
            if found is not None:
                self.interpreter = found
                return
        else:
            for _ in range(_MOST_PROGRAMS):
                if self.run_to_entry() and runs_python(self.pid):
                    return
                if not self.run_to_next_program():
                    break
        if not strict:
            return
        if self.poll() is None:
            text = f"process {self.pid} ({procfs.executable(self.pid)}) has executed none in {EXEC_PATIENCE:g} s"
        else:
            text = f"process {self.pid} has ended, and executed none"
        hints = ["give the interpreter itself in place of a wrapper, or its process with -p"]
        if not follow:
            hints.append("--follow also traces an interpreter that the command starts as another process")
        raise TraceError(f"the command runs no CPython that is known: {text}", hints=tuple(hints))

    def _leave_descent(self, descent: _Descent) -> None:
        """Take no more part in what the command starts: all run on untraced."""
        descent.release()
        self._stopped, self._descent = False, None
        if descent.status is not None:
            self._status = os.waitstatus_to_exitcode(descent.status)

    def _no_exec(self, waited: float) -> bool:
        return waited > EXEC_PATIENCE

    def _killed(self) -> bool:
        """Wait for the end of a child that gives up its memory; False for one that still runs."""
        if not select.select([self._pidfd], [], [], _PATIENCE)[0]:
            return False
        self._stopped = False
        return self.poll() is not None

    def _run_to_entry(self) -> bool:
        with closing(_EntryStop(self.pid)) as stop:
            if not stop.placed:
                return False

            def reached(status: int) -> bool:
                return os.WSTOPSIG(status) == signal.SIGTRAP and stop.reached()

            found = self._continue_until(reached, self._starts_no_more)
            if self._status is None:
                stop.remove()
        return found

    def _starts_no_more(self, waited: float) -> bool:
        return waited > _PATIENCE and (waited > _MOST_PATIENCE or _sleeps(self.pid))

    def _continue_until(self, reached: Callable[[int], bool], late: Callable[[float], bool]) -> bool:
        """Continue to a stop whose status *reached* knows. *late* tells after how many seconds to wait no longer."""
        syscalls.ptrace(_PTRACE_CONT, self.pid)
        begun = time.monotonic()
        interrupted = False
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                if not interrupted and late(time.monotonic() - begun):
                    interrupted = True
                    os.kill(self.pid, signal.SIGSTOP)
                deliver()
                time.sleep(0.0005)
                continue
            if not os.WIFSTOPPED(status):
                self._status = os.waitstatus_to_exitcode(status)
                self._stopped = False
                return False
            if reached(status):
                return True
            number = os.WSTOPSIG(status)
            if number == signal.SIGSTOP and interrupted:
                return False
            syscalls.ptrace(_PTRACE_CONT, self.pid, 0, 0 if number == signal.SIGTRAP else number)

    def release(self) -> None:
        """Let the program run.

        Raises:
            TraceError: it could not be executed.
        """
        if self._descent is not None:
            self._leave_descent(self._descent)
        elif self._stopped:
            self._stopped = False
            with suppress(ProcessLookupError):  # somebody killed it
                syscalls.ptrace(_PTRACE_DETACH, self.pid)
        elif self._gate >= 0:
            self._open_gate(b"g")
            self._check_exec()

    def poll(self) -> int | None:
        """None while the program runs; then its exit status, or minus the number of the signal that ended it."""
        if self._status is None and self._descent is None:  # which waits for its stops
            try:
                if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    self.had_children = procfs.waited_for_children(self.pid)
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # A program that embeds the tracer ignores SIGCHLD, or waited for all its children itself.
                self._status = _UNKNOWN
                return self._status
            if pid and not os.WIFSTOPPED(status):
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    @postponed()
    def close(self) -> None:
        """End the program if it still runs, by SIGTERM, later by SIGKILL."""
        for descriptor in (self._gate, self._report):
            if descriptor >= 0:
                os.close(descriptor)
        self._gate = self._report = -1
        if self.poll() is None:
            self._end()
        os.close(self._pidfd)

    def _end(self) -> None:
        if self._descent is not None:
            self._descent.kill()
            self._descent = None
        with suppress(ProcessLookupError):
            # A process that ptrace stopped would only see the signal later.
            os.kill(self.pid, signal.SIGKILL if self._stopped else signal.SIGTERM)
        if not select.select([self._pidfd], [], [], _PATIENCE)[0]:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        while self.poll() is None:
            time.sleep(0.001)

    def _open_gate(self, word: bytes) -> None:
        os.write(self._gate, word)
        os.close(self._gate)
        self._gate = -1

    def _check_exec(self) -> None:
        """Read the report pipe, which is closed by a successful exec, or has the reason why that failed."""
        text = os.read(self._report, 64)
        os.close(self._report)
        self._report = -1
        if text:
            if text.startswith(_NOT_ENTERED.encode()):
                reason = os.strerror(int(text.removeprefix(_NOT_ENTERED.encode())))
                raise TraceError(f"cannot run {self.command[0]} in the network namespace of --netns: {reason}")
            number = int(text)
            raise TraceError(f"cannot run {self.command[0]}: {os.strerror(number)}")


class _EntryStop:
    """A breakpoint at the entry of the program of a traced process, which its dynamic loader jumps to at last."""

    def __init__(self, pid: int) -> None:
        """Set it.

        Raises:
            OSError: somebody killed the process.
        """
        self._pid = pid
        self._entry = _entry_point(pid)
        # It stays that of this program when the process executes another one.
        self._memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)  # noqa: SIM115 - closed by close
        try:
            self._memory.seek(self._entry)
            self._code = self._memory.read(1)
            self.placed = bool(self._entry and self._code) and self._code != _BREAKPOINT
            """Whether there is one now: not where the entry is unknown, or somebody else's is there."""
            if self.placed:
                self._write(_BREAKPOINT)
        except OSError:
            self.close()
            raise

    def reached(self) -> bool:
        """Whether the process has just run into it; its program counter is set back then.

        Raises:
            OSError: somebody killed the process.
        """
        if syscalls.ptrace(_PTRACE_PEEKUSER, self._pid, _RIP) != self._entry + 1:
            return False
        syscalls.ptrace(_PTRACE_POKEUSER, self._pid, _RIP, self._entry)
        return True

    def remove(self) -> None:
        """Put back what stood there.

        Raises:
            OSError: somebody killed the process.
        """
        self._write(self._code)

    def close(self) -> None:
        """Close the process's memory."""
        self._memory.close()

    def _write(self, code: bytes) -> None:
        self._memory.seek(self._entry)
        self._memory.write(code)


class _Descent:
    """A command and all that it starts, under ptrace(2): wrappers that start an interpreter as another process."""

    def __init__(self, root: int) -> None:
        """Trace *root*, which stands still at its first instruction, and what it will start."""
        self._traced: set[int] = {root}
        """Threads; the one that was found stands still, the others run until the kernel stops them for us."""
        self._found = 0
        self._root = root
        self.status: int | None = None
        """The wait status of the root, once it has ended."""
        self._new: set[int] = set()
        """Threads whose first stop is to come."""
        self._asked: set[int] = set()
        """Threads that were sent a SIGSTOP, which no other stop stands for."""
        self._stops: dict[int, _EntryStop] = {}
        """By process, as long as its program has not come to its entry."""
        syscalls.ptrace(_PTRACE_SETOPTIONS, root, 0, _PTRACE_O_TRACEEXEC | _PTRACE_O_TRACEFORKS)
        self._break_at_entry(root)
        self._go_on(root)

    def run(self, wanted: Callable[[int], bool]) -> int | None:
        """The first process whose program is *wanted*, which stands still; None when there is none in time."""
        end = time.monotonic() + EXEC_PATIENCE
        while self._traced and time.monotonic() < end:
            self._look(wanted)
            if self._found:
                return self._found
        return None

    def release(self) -> None:
        """Let all run on untraced: each where it stops next, at the latest by a SIGSTOP that it does not see."""
        self._look(None)
        if self._found:
            self._detach(self._found)
        end = time.monotonic() + _MOST_PATIENCE
        while self._traced and time.monotonic() < end:
            for thread in self._traced - self._asked - self._new:
                self._asked.add(thread)
                with suppress(OSError):  # it has ended: the kernel says so next
                    syscalls.stop_thread(procfs.leader(thread) or thread, thread)
            self._look(None)

    def kill(self) -> None:
        """End all; the root's status is left for whoever waits for it."""
        for thread in self._traced:
            with suppress(ProcessLookupError):
                os.kill(thread, signal.SIGKILL)
        for thread in self._traced - {self._root}:
            with suppress(ChildProcessError):
                os.waitpid(thread, _WALL)
        for thread in tuple(self._stops):
            self._drop_stop(thread)

    def _look(self, wanted: Callable[[int], bool] | None) -> None:
        """Handle the stops of all threads once. With *wanted*, until one is found; without, let them go untraced."""
        stops = 0
        for thread in self._traced - {self._found}:
            try:
                pid, status = os.waitpid(thread, os.WNOHANG | _WALL)
            except ChildProcessError:  # another thread of its process has executed a program
                self._forget(thread)
                continue
            if not pid:
                continue
            stops += 1
            if not os.WIFSTOPPED(status):
                self._forget(thread)
                if thread == self._root:
                    self.status = status
            elif wanted is None and os.WSTOPSIG(status) == signal.SIGSTOP and thread in self._new | self._asked:
                self._detach(thread)
            else:
                passed, program = self._stopped(thread, status)
                if program and wanted is not None and wanted(thread):
                    self._found = thread
                    return
                if status >> 16 == _PTRACE_EVENT_EXEC and wanted is not None:
                    self._break_at_entry(thread)
                self._go_on(thread, passed)
        if not stops:
            deliver()
            time.sleep(0.0005)

    def _stopped(self, thread: int, status: int) -> tuple[int, bool]:
        """The signal to pass on after a stop, and whether the thread stands at the start of a program."""
        event, number = status >> 16, os.WSTOPSIG(status)
        if event in _PTRACE_FORK_EVENTS:
            with suppress(OSError):  # somebody killed it
                started = syscalls.ptrace_event_message(thread)
                self._traced.add(started)
                self._new.add(started)
            return 0, False
        if event == _PTRACE_EVENT_EXEC:
            self._drop_stop(thread)
            return 0, True
        if number == signal.SIGTRAP:
            return 0, self._reached_entry(thread)
        if number == signal.SIGSTOP and thread in self._new:
            self._new.discard(thread)
            return 0, False
        return number, False

    def _detach(self, thread: int) -> None:
        if (stop := self._stops.get(thread)) is not None:
            with suppress(OSError):  # somebody killed it
                stop.remove()
        with suppress(OSError):
            syscalls.ptrace(_PTRACE_DETACH, thread)
        self._forget(thread)

    def _go_on(self, thread: int, number: int = 0) -> None:
        with suppress(OSError):  # somebody killed it: the kernel says so next
            syscalls.ptrace(_PTRACE_CONT, thread, 0, number)

    def _forget(self, thread: int) -> None:
        for known in (self._traced, self._new, self._asked):
            known.discard(thread)
        self._drop_stop(thread)

    def _break_at_entry(self, pid: int) -> None:
        """Stop a program that stands at its start once more when its libraries are mapped."""
        with suppress(OSError):  # somebody killed it
            stop = _EntryStop(pid)
            if stop.placed:
                self._stops[pid] = stop
            else:
                stop.close()

    def _reached_entry(self, thread: int) -> bool:
        stop = self._stops.get(thread)
        with suppress(OSError):  # somebody killed it
            if stop is not None and stop.reached():
                stop.remove()
                self._drop_stop(thread)
                return True
        return False

    def _drop_stop(self, thread: int) -> None:
        if (stop := self._stops.pop(thread, None)) is not None:
            stop.close()


def _sleeps(pid: int) -> bool:
    """Whether a process is in an interruptible sleep, unlike one that runs or waits for a disk."""
    return kernel_files.process_state(pid) == "S"


def start(
    command: str, stack: ExitStack, namespace: int | None = None, surroundings: Surroundings | None = None
) -> Child:
    """Fork a child that will run *command* (words as in a shell, without expansions); the stack ends it.

    *namespace* is an open network namespace, which the child enters before it becomes its program. The program is
    looked for on the tracer's PATH, from the tracer's working directory, whatever the *surroundings*.

    Raises:
        TraceError: the command is empty, is not well quoted, or names no program; or no process can be started.
    """
    words = words_of(command)
    try:
        path = _program(words[0])
    except TraceError as error:
        if shell_syntax(command) or words[0] in _BUILTINS or re.match(r"[A-Za-z_]\w*=", words[0]):
            raise TraceError(error.message, hints=(*error.hints, in_shell(command))) from None
        raise
    # Of several threads that fork at once, no child may inherit the pipes of another, whose end would stay unnoticed.
    with _FORKING:
        gate_read, gate = os.pipe()
        report, report_write = os.pipe()
        # The signal comes when the *thread* that forked ends; only the first one lives as long as the process.
        bound = get_native_id() == os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            for descriptor in (gate_read, gate, report, report_write):
                os.close(descriptor)
            hints = (f"see {NO_PROCESSES}",) if error.errno == errno.EAGAIN else ()
            raise TraceError(f"cannot run {words[0]}: {error.strerror}", hints=hints) from None
        if pid == 0:
            _become(path, words, gate_read, report_write, [gate, report], namespace, bound, surroundings)
        os.close(gate_read)
        os.close(report_write)
    child = Child(pid, gate, report, words)
    stack.callback(child.close)
    return child


_SHELL = r"""
    \\. | '[^']*' | "(?:\\.|[^"\\])*"           # quoted: programs get it as it is
    | (?P<shell> \|\|? | && | &(?!\S) | ;(?!\S) | (?<!\S)[12]?[<>]+(?:&\d)? | `[^`]*`? | \$\( | \$\{?[A-Za-z_]\w*\}? )
"""
_BUILTINS = frozenset({".", "alias", "cd", "eval", "exec", "export", "set", "source", "ulimit", "umask", "unset"})


def shell_syntax(command: str) -> str:
    """The first operator, redirection or expansion of *command* that only a shell understands; empty if none.

    Words are split as a shell does, but no shell runs: the program gets ``|`` as an argument.
    """
    matches = re.finditer(_SHELL, command, re.VERBOSE | re.DOTALL)
    return next((found for match in matches if (found := match["shell"])), "")


def in_shell(command: str) -> str:
    """A hint: how *command* is run by a shell."""
    plain = command if not set(command) & set("'\"$`\\!") else "COMMAND"
    return f"-c \"sh -c '{plain}'\" runs it in a shell"


def words_of(command: str) -> list[str]:
    """The words of a ``-c`` command, quoted as for a shell.

    Raises:
        TraceError: the quoting is wrong, or there is no word.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise TraceError(f"the quoting of the -c command is wrong: {error}") from None
    if not words:
        raise TraceError("the -c command is empty")
    return words


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is not None:
        return path
    if "/" not in name:
        raise TraceError(f"cannot run {name}: no such program in PATH")
    if os.path.isdir(name):
        raise TraceError(f"cannot run {name}: it is a directory")
    missing = not os.path.exists(name)
    raise TraceError(f"cannot run {name}: " + ("no such file" if missing else "it is not executable"))


def _become(
    path: str,
    words: list[str],
    gate: int,
    report: int,
    others: list[int],
    namespace: int | None,
    bound: bool,
    surroundings: Surroundings | None,
) -> NoReturn:
    """In the child: wait for the gate, then execute the program. *bound*: the child ends with the tracer."""
    try:
        # A signal must not reach the event loop of the forked program, which has the same pipe.
        signal.set_wakeup_fd(-1)
        for descriptor in others:
            os.close(descriptor)
        # A tracer that is killed outright cannot send the signal itself.
        if bound:
            syscalls.die_with_parent(signal.SIGTERM)
        # Handlers of Python would run in here; and what it ignores would stay ignored in the program.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        word = os.read(gate, 1)
        if not word:
            os._exit(0)
        if namespace is not None:
            _enter(namespace, report)
        path, environment = os.path.abspath(path), _surround(surroundings)
        if word == b"t":
            syscalls.ptrace(_PTRACE_TRACEME, 0)
        os.execve(path, words, environment)
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _surround(surroundings: Surroundings | None) -> Mapping[str, str]:
    """Give the child its working directory and its streams. Returns its environment."""
    if surroundings is None:
        return os.environ
    if surroundings.folder:
        os.chdir(surroundings.folder)
    for number, descriptor in ((1, surroundings.output), (2, surroundings.errors)):
        if descriptor >= 0:
            os.dup2(descriptor, number)
    return os.environ if surroundings.environment is None else dict(surroundings.environment)


def _enter(namespace: int, report: int) -> None:
    """Move the child to a network namespace; an error of that is reported as another one than that of exec."""
    try:
        syscalls.enter_namespace(namespace, CLONE_NEWNET)
    except OSError as error:
        os.write(report, f"{_NOT_ENTERED}{error.errno}".encode())
        os._exit(127)


def _entry_point(pid: int) -> int:
    """Entry point of the program of a process, which its dynamic loader jumps to; 0 if unknown (``getauxval(3)``)."""
    with open(f"/proc/{pid}/auxv", "rb") as file:
        data = file.read()
    with open(f"/proc/{pid}/exe", "rb") as file:
        narrow = file.read(5)[4:] == b"\x01"  # ELFCLASS32
    return next((value for key, value in struct.iter_unpack("=II" if narrow else "=QQ", data) if key == _AT_ENTRY), 0)
