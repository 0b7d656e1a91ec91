"""Whose code a stack is in: the innermost frame of the user's own, below libraries, runtimes and the kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

import msgspec

from pytrace.results.snapshot import GO_SCHEDULER, Frame

_GO = (
    "(?:archive|bufio|bytes|compress|container|context|crypto|database|debug|encoding|errors|expvar|flag|fmt|hash|html|image"
    "|internal|io|iter|log|maps|math|mime|net|os|path|plugin|reflect|regexp|runtime|slices|sort|strconv|strings|sync|syscall"
    "|testing|text|time|unicode|unique|vendor)/"
)
"""Packages of Go's own library."""

_LIBRARY_FILE = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|<frozen |/node_modules/|^node:|/rustc/|/\.cargo/registry/"
    # A folder of Go's library; one whose name begins so, or GOPATH, may be the user's own.
    rf"|/go(?:lang)?[^/]*/src/{_GO}|/go(?:lang)?[^/]*/pkg/mod/|/gocode/src/|/vendor/[^/]+\.[^/]+/|/usr/include/|/sysdeps/"
    # The library of Go in programs that are built with -trimpath.
    rf"|^{_GO}[\w./-]+\.go$|^[^/]+\.[^/]+/[^@]*@v\d"
)
"""Source files of libraries and runtimes."""

_LIBRARY_MODULE = re.compile(
    r"^\[|^/(?:usr/(?:local/)?)?lib(?:32|64|x32|exec)?/(?!.*/s?bin/)|\.so(?:\.[\d.]+)?$"
    r"|/(?:lib)?(?:python\d?[\d.]*|node|java|ruby[\d.]*|perl[\d.]*|php[\d.]*|dotnet|mono|lua[\d.]*)$"
)
"""Binaries that are libraries or interpreters."""

_LIBRARY_FUNCTION = re.compile(
    r"^(?:_start|__libc_start_.*|_?start_thread|clone3?|__clone3?|std::|core::|alloc::|tokio::|runtime\.|internal/|syscall\.|sync\."
    r"|WaitEventSet|WaitLatch|ProcSleep|WaitOnLock|LockAcquire|PGSemaphore|LWLockAcquire|SetLatch|ProcLockWakeup"
    r"|java\.|javax\.|jdk\.|sun\.|__GI_|\[)"
)
"""Functions of runtimes that are linked into the program."""

_C_LIBRARY = re.compile(r"/(?:libc|libpthread|ld-linux[^/]*|ld-musl[^/]*|libc\.musl[^/]*)[-.][^/]*$|^\[")

_INTERPRETED = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".php", ".pl", ".lua", ".java", ".groovy", ".kt", ".scala")


class Place(msgspec.Struct, frozen=True):
    """A function, and a line of it where known."""

    function: str
    file: str = ""
    """Source file without directories, else the binary's."""
    line: int = 0

    @property
    def text(self) -> str:
        """``function (file:line)``."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.function} ({where})" if where else self.function


def is_library(frame: Frame) -> bool:
    """Whether a user frame is one of a library, a runtime or an interpreter."""
    if _LIBRARY_FUNCTION.match(frame.function):
        return True
    if frame.file and _LIBRARY_FILE.search(frame.file):
        return True
    if frame.file.endswith(_INTERPRETED):
        return False
    return _LIBRARY_MODULE.search(frame.module) is not None


def own_place(frames: Iterable[Frame]) -> Place | None:
    """The innermost frame of the user's own code; None where all are of libraries."""
    own = next((frame for frame in frames if frame.function and not is_library(frame)), None)
    if own is None:
        return None
    return _place(own)


def own_places(frames: Iterable[Frame]) -> tuple[Place, ...]:
    """All frames of the user's own code, the innermost first."""
    return tuple(_place(frame) for frame in frames if frame.function and not is_library(frame))


def place_of(user: Sequence[Frame], kernel: Sequence[Frame], name: str = "") -> Place:
    """Where a thread is: its own code, else a function of a library, else the kernel's.

    Where nothing is known but the C library, as of a program that ended before its unwind tables were read, the
    thread's *name* says more, if it is given.
    """
    own = own_place(user)
    if own is not None:
        return own
    stripped = next((frame for frame in user if not frame.function and frame.module and not is_library(frame)), None)
    if stripped is not None:
        # A program without symbols: its own name says more than the library's function that it called.
        return Place(os.path.basename(stripped.module))
    named = [frame for frame in user if frame.function and not frame.function.startswith("[")]
    entry = ("_start", "clone", "clone3", "__clone3", "start_thread", "__libc_start_main", "__libc_start_call_main")
    inner = [frame for frame in named if frame.function not in entry]
    if inner:
        interpreted = [frame for frame in inner if frame.file.endswith(_INTERPRETED)]
        others = [frame for frame in inner if not _C_LIBRARY.search(frame.module)]
        if name and not interpreted and not others:
            return Place(name)
        return _place((interpreted or others or inner)[0])
    waiting = ring_operation(kernel) or waiting_function(kernel)
    return Place(waiting, "kernel") if waiting else Place(name or "?")


def sleeping_library(user: Sequence[Frame]) -> str:
    """The library that sleeps in a stack, not the program: it polls, as SQLite does for a lock. Else nothing."""
    caller = next((frame for frame in user if frame.module and not _C_LIBRARY.search(frame.module)), None)
    if caller is None or not _POLLS.search(caller.module):
        return ""
    return os.path.basename(caller.module)


_POLLS = re.compile(r"/lib(?!python|jvm|ruby|perl|php|node|coreclr|mono|stdc\+\+|c\+\+|go\.)[^/]*\.so(?:\.[\d.]+)?$")
"""Libraries that are no runtimes, which sleep where the program says so."""


def _place(frame: Frame) -> Place:
    name = os.path.basename(frame.file or frame.module)
    return Place(frame.function or "?", name, frame.line if frame.file else 0)


def event_loop(user: Sequence[Frame]) -> str:
    """The event loop that a user stack is in: ``asyncio``, ``Node``, ``libuv``, or the scheduler of ``Go``."""
    for frame in user:
        if _is_loop_step(frame) or _is_uvloop(frame):
            return "asyncio"
        if frame.function == "uv_run":
            return "Node" if frame.module.endswith("/node") else "libuv"
        if frame.function == "runtime.mcall" or GO_SCHEDULER.match(frame.function):
            return "Go"
    return "asyncio" if task_of(user) is not None else ""


def task_of(user: Sequence[Frame]) -> Place | None:
    """The task of asyncio (or the callback) that runs in a stack, by its outermost function: what the loop called.

    None outside of one.
    """
    is_boundary = _is_call if any(map(_is_loop_step, user)) else _runs_loop
    calls = next((number for number, frame in enumerate(user) if is_boundary(frame)), None)
    if calls is None:
        return None
    # Tasks of libraries, as those of a server, are told by the innermost function that is the user's.
    inside = [frame for frame in user[:calls] if frame.file.endswith(".py")]
    own = [frame for frame in inside if not is_library(frame)]
    if is_boundary is _runs_loop and not own:
        return None
    return _place((own or inside)[-1]) if inside else None


def _is_loop_step(frame: Frame) -> bool:
    """Whether a frame is of a loop of asyncio that runs: its modules are imported outside of any."""
    return "/asyncio/" in frame.file and bool(_STEPS.search(frame.function))


_STEPS = re.compile(r"(?:^|\.)(?:_run|_run_once|run_forever)$")


def _is_uvloop(frame: Frame) -> bool:
    """Whether a frame is of uvloop: the loop is compiled, and its steps are no frames of Python."""
    return "/uvloop/loop." in frame.module


def _runs_loop(frame: Frame) -> bool:
    """Whether a frame is of uvloop, or of who runs a loop, inside of which are no frames of asyncio's own."""
    return _is_uvloop(frame) or (frame.file.endswith("/asyncio/runners.py") and frame.function in ("run", "Runner.run"))


def _is_call(frame: Frame) -> bool:
    """Whether a frame is the loop's that calls what was handed to it."""
    return _is_loop_step(frame) and frame.function.endswith("_run")


_SCHEDULING = re.compile(
    r"^(?:__traceiter_\w+|__bpf_trace_\w+|bpf_\w+|__schedule|schedule\w*|preempt_schedule\w*|io_schedule\w*|do_wait_for_common|__?cond_resched"
    r"|wait_for_completion\w*|__wait_for_common|_cond_resched|perf_\w+|trace_\w+|try_to_wake_up|default_wake_function|autoremove_wake_function"
    r"|__wake_up\w*|ttwu_\w+|wake_up_\w+|bit_wait\w*|out_of_line_wait\w*|__wait_on_bit\w*|rwsem_\w+|mutex_\w+|__mutex_\w+)(?:\.\w+)*$"
)


def waiting_function(kernel: Sequence[Frame]) -> str:
    """The kernel's function that waits: the innermost one that is not of the scheduler."""
    found = next((frame.function for frame in kernel if frame.function and not _SCHEDULING.match(frame.function)), "")
    return found.partition(".")[0]


def ring_operation(kernel: Sequence[Frame]) -> str:
    """The kernel's function for the request that a worker of io_uring serves (``io_fsync``); empty for other threads.

    A worker without a request waits in ``io_wq_worker`` (io_uring/io-wq.c).
    """
    names = [frame.function.partition(".")[0] for frame in kernel]
    if "io_wq_worker" not in names:
        return ""
    inside = names[: names.index("io_wq_submit_work")] if "io_wq_submit_work" in names else names
    return next((name for name in reversed(inside) if name not in ("io_issue_sqe", "__io_issue_sqe")), "io_wq_worker")


def scheduling_frames(kernel: Sequence[Frame]) -> int:
    """How many of the innermost frames are the scheduler's."""
    named = (number for number, frame in enumerate(kernel) if frame.function and not _SCHEDULING.match(frame.function))
    return next(named, 0)
