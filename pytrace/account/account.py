"""The account as data: lines by cause, threads, chains of waits, requests."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pytrace.account.causes import Cause
from pytrace.account.frames import Place
from pytrace.render import json


class Who(msgspec.Struct, frozen=True):
    """Who ended waits, or held what was waited for."""

    relation: str
    """``held by``, ``released by``, ``signalled by``, ``woken by`` …"""
    who: str
    """A thread's own code, a process, a kernel thread, or the device of an interrupt."""
    ns: int
    """Of the waits that it concerns."""
    pid: int = 0
    doing: str = ""
    """What a holder was doing when the wait began."""
    stack: tuple[Place, ...] = ()
    """Where a holder that was blocked was then: its functions outside of libraries, the innermost first."""


class Part(msgspec.Struct, frozen=True):
    """A function of a line."""

    place: Place
    ns: int
    threads: int = 0


class Hop(msgspec.Struct, frozen=True):
    """A thread that waits for the next one of a chain."""

    thread: str
    place: Place
    cause: str
    """Its cause's title."""
    relation: str
    """Of the next one to it: ``released by`` …"""


class Step(msgspec.Struct, frozen=True):
    """What chains of waits end in: the time of a cause at a place, and who waited for it."""

    cause: Cause
    place: Place
    ns: int
    about: str = ""
    thread: str = ""
    chain: tuple[Hop, ...] = ()
    """The outermost first; empty on a path of the command's own."""


class Line(msgspec.Struct, frozen=True):
    """Time of one cause."""

    cause: Cause
    ns: int
    share: float
    """Of the time of threads that are not idle, 0 to 1."""
    count: int = 0
    most: int = 0
    """The longest wait in nanoseconds."""
    p99: int = 0
    """At most an eighth too large; 0 where unknown."""
    about: str = ""
    """A file, an address, a process."""
    parts: tuple[Part, ...] = ()
    """By function of the user's own code, the largest first."""
    by: tuple[Who, ...] = ()
    """The largest first."""
    threads: int = 0
    user_ns: int = 0
    """On CPU: of it in user mode, by samples."""
    samples: int = 0
    error: float = 0.0
    """Of a share by samples: its standard error, 0 to 1."""
    behind: tuple[Step, ...] = ()
    """What those did meanwhile who ended the waits, the largest first: chains of waits to where they end."""
    loop: str = ""
    """The event loop whose callbacks wait so: all of its other tasks wait, too."""
    task: str = ""
    """Of asyncio the task that waits so most of the time, by its outermost function."""


class Task(msgspec.Struct, frozen=True):
    """Tasks (and callbacks) of asyncio that begin with one function: their turns on the loop's thread."""

    place: Place
    """The outermost function of the task, with the line that it was at most."""
    cpu: int
    """Nanoseconds on a CPU, by samples."""
    blocked: int
    """Nanoseconds that it blocked the loop."""


class Thread(msgspec.Struct):
    """One thread, from its start (or the trace's) to its end (or the trace's)."""

    tid: int
    pid: int
    name: str
    begin: int
    end: int
    """Nanoseconds since boot, as *begin*."""
    cpu: int = 0
    ready: int = 0
    blocked: int = 0
    idle: int = 0
    """Of *blocked*: waiting for work."""
    idle_in: str = ""
    kernel_cpu: int = -1
    """The kernel's own account of time on CPU (``se.sum_exec_runtime``), from where it is complete first, mostly the
    thread's beginning, to when the thread last left a CPU; -1 where unknown."""
    kernel_delay: int = -1
    """The same of waiting for one (``sched_info.run_delay``)."""
    compared: int = 0
    """What the account has of both in the same stretch."""

    @property
    def life(self) -> int:
        """Nanoseconds that it was watched."""
        return self.end - self.begin

    @property
    def accounted(self) -> int:
        """Nanoseconds in any state."""
        return self.cpu + self.ready + self.blocked


class RequestPart(msgspec.Struct, frozen=True):
    """What requests spend on one cause at one place."""

    cause: Cause
    place: Place
    about: str
    share: float
    """Of the time of all requests, 0 to 1."""
    typical: int
    """Nanoseconds of a request around the median."""
    slow: int
    """The same of one of the slowest."""
    behind: tuple[Step, ...] = ()
    """Of waits of the slowest: what whoever ended them did meanwhile."""

    @property
    def more(self) -> int:
        """Nanoseconds that a slow request spends more than one around the median."""
        return self.slow - self.typical


class Requests(msgspec.Struct, frozen=True):
    """Requests of a run."""

    target: str
    count: int
    ns: int
    """Of all of them together."""
    median: int
    p90: int
    p99: int
    most: int
    slow_count: int
    """How many are the slowest."""
    typical: int
    """Nanoseconds of a request around the median, on average."""
    slow: int
    """The same of the slowest."""
    parts: tuple[RequestPart, ...]
    """By what the slowest spend more."""

    def share(self, name: str) -> float:
        """The share of a cause in the time of all requests."""
        return sum(part.share for part in self.parts if part.cause.name == name)


class Goroutines(msgspec.Struct, frozen=True):
    """Goroutines of a run: each moment of each is in one of three states."""

    count: int
    ns: int
    """Nanoseconds of all together, by their starts and ends."""
    running: int
    """Of it on a thread, which the lines divide into its states."""
    runnable: int
    waiting: int
    idle: int
    """Of *waiting*: for work, or in the runtime."""

    def share(self, ns: int) -> str:
        """Nanoseconds as a percentage."""
        return f"{ns / (self.ns or 1):.0%}"

    @property
    def accounted(self) -> float:
        """The share of their time that is in a state."""
        return (self.running + self.runnable + self.waiting) / self.ns if self.ns else 1.0


class Account(msgspec.Struct):
    """Where the time of all threads went."""

    target: str
    """The command, or the processes."""
    options: str
    """Options that select the same for another tool."""
    wall: int
    threads: tuple[Thread, ...]
    lines: tuple[Line, ...]
    """By time, the largest first."""
    idle: tuple[tuple[str, int, int], ...]
    """Threads that wait for work: what in, how many, nanoseconds."""
    losses: Mapping[str, int]
    """What was lost, and how often."""
    unknown: int = 0
    """Nanoseconds whose cause was not kept."""
    runtimes: tuple[tuple[str, int], ...] = ()
    """Runtimes with a scheduler of their own, and the nanoseconds that their threads waited for events: what waits
    inside them, as goroutines and tasks, is not seen."""
    path: tuple[Step, ...] = ()
    """The critical path of a command, the largest first: what its time went to, each wait replaced by what who ended it
    did meanwhile. Empty for processes that ran already."""
    limit: int = 0
    """Waits of fewer nanoseconds are no part of *path* and of :attr:`Line.behind`."""
    left_out: int = 0
    """Nanoseconds of chains that were not followed, as there were too many waits."""
    requests: Requests | None = None
    """With a target of requests: where their time went."""
    tasks: tuple[Task, ...] = ()
    """Tasks of asyncio, those first that held the loop longest."""
    idle_by: tuple[Who, ...] = ()
    """Who ended waits for events in idle threads: of a server, clients, and those that it asks. The largest first."""
    stolen: int = 0
    """Nanoseconds that the hypervisor took from the machine's CPUs meanwhile (``/proc/stat``): time on a CPU, and
    waiting for one, contains those that it took from these threads."""
    goroutines: Goroutines | None = None
    """Where these were asked for: their waits are lines then, and what threads do inside Go's scheduler is idle."""

    @property
    def thread_time(self) -> int:
        """Nanoseconds of all threads together, by their starts and ends."""
        return sum(thread.life for thread in self.threads)

    @property
    def accounted(self) -> float:
        """The share of it that is in a state."""
        total = self.thread_time
        return sum(thread.accounted for thread in self.threads) / total if total else 1.0

    @property
    def kernel_difference(self) -> float:
        """How far time on and waiting for a CPU is from the kernel's own account, as a share of all threads' time."""
        known = [thread for thread in self.threads if thread.kernel_cpu >= 0]
        total = sum(thread.life for thread in known)
        ours = sum(thread.compared for thread in known)
        kernels = sum(thread.kernel_cpu + thread.kernel_delay for thread in known)
        return abs(ours - kernels) / total if total else 0.0

    @property
    def idle_time(self) -> int:
        """Nanoseconds of waiting for work."""
        return sum(ns for _, _, ns in self.idle)

    def line(self, name: str) -> Line | None:
        """The largest line of a cause."""
        return next((line for line in self.lines if line.cause.name == name), None)

    def share(self, name: str) -> float:
        """The share of a cause, all its lines together."""
        return sum(line.share for line in self.lines if line.cause.name == name)


def json_text(account: Account) -> bytes:
    """The account as JSON."""
    return json.document(
        msgspec.to_builtins({
            "target": account.target, "wall_ns": account.wall, "thread_time_ns": account.thread_time,
            "accounted": account.accounted, "kernel_difference": account.kernel_difference,
            "idle_ns": account.idle_time, "stolen_ns": account.stolen,
            "lines": account.lines, "idle": account.idle, "idle_by": account.idle_by,
            "threads": account.threads, "losses": account.losses,
            "path": account.path, "path_limit_ns": account.limit, "requests": account.requests,
            "tasks": account.tasks, "goroutines": account.goroutines,
        })
    ).encode() + b"\n"  # fmt: skip

