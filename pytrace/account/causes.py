"""Why a thread was blocked: the cause of a place, by its system call, what that is about, and its stacks."""

from __future__ import annotations

import platform
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import TypeVar

import msgspec

from pytrace.account.frames import ring_operation, scheduling_frames, waiting_function
from pytrace.core import system_calls
from pytrace.results.snapshot import GO_SCHEDULER, Frame

Key = TypeVar("Key", bound=Hashable)
Unit = TypeVar("Unit", bound=Hashable)

DESCRIPTORS = (
    "read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 recvfrom recvmsg recvmmsg sendto sendmsg "
    "sendmmsg accept accept4 connect fsync fdatasync sync_file_range ftruncate fallocate flock fcntl ioctl getdents64 "
    "sendfile64 splice tee close mq_timedreceive mq_timedsend"
)
"""System calls whose first argument is a file descriptor."""
POLLS = "poll ppoll select pselect6"
"""System calls that wait for any of some descriptors; their second argument says how many, or which."""
EPOLLS = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})

_WRITES = frozenset(
    {"write", "pwrite64", "writev", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "sendfile64"}
)
_FUTEX_CALLS = frozenset({"futex", "futex_wait", "futex_waitv", "restart_syscall"})
"""After a signal or a stop the number is that of ``restart_syscall``."""

PIPE, CHARACTERS, DIRECTORY, BLOCKS, FILE, LINK, SOCKET = 1, 2, 4, 6, 8, 10, 12
"""Kinds of files: ``S_IFMT >> 12``. Anonymous files (epoll, eventfd, timers) have 0."""
INET, UNIX = 2, 1
_UNINTERRUPTIBLE = 0x10000
_TIMED = 0x100


class Cause(msgspec.Struct, frozen=True):
    """A cause of waiting."""

    name: str
    """For programs, and as key: ``lock``, ``file-sync`` …"""
    title: str
    """For people: ``waiting for a lock``."""
    relation: str = "woken by"
    """How whoever ended the wait is related to it."""
    idle: str = ""
    """Where waiting so may mean that there is nothing to do: what the thread is in (``accept``)."""
    always_idle: bool = False
    """Waiting so never makes anything slow."""
    tool: str = "offwaketime"
    """The tool that looks deeper, with its options."""
    about: str = ""
    """What it is about where the object does not say."""


LOCK = Cause("lock", "waiting for a lock", "released by", tool="futexwait -a -s")
GIL = Cause("gil", "waiting for Python's GIL", "released by", tool="futexwait --python -a")
CONDITION = Cause("condition", "waiting for a condition", "signalled by", "a condition", tool="offwaketime")
FULL = Cause("queue-full", "adding to a full queue", "emptied by")
SEMAPHORE = Cause("semaphore", "waiting for a semaphore", "signalled by", "a semaphore", tool="futexwait -a -s")
JOIN = Cause("join", "waiting for a thread's end", "ended with", "join", always_idle=True, tool="threadsnoop")
SAFEPOINT = Cause("safepoint", "stopped at a safepoint", "resumed by")
FUTEX = Cause("futex", "waiting for another thread", "woken by", "a futex", tool="futexwait -a -s")
BARRIER = Cause("barrier", "waiting at a barrier", "released by", tool="futexwait -a -s")
SLEEP = Cause("sleep", "sleeping by itself", "woken by", tool="offcputime")
CHILD = Cause("child", "waiting for a child", "ended with", "wait", tool="execsnoop")
SIGNAL = Cause("signal", "waiting for a signal", "sent by", "sigwait", tool="killsnoop")
ACCEPT = Cause("accept", "waiting for connections", "woken by", "accept", always_idle=True, tool="tcpaccept")
EVENTS = Cause("events", "waiting for events", "woken by", "epoll_wait", tool="offwaketime")
PIPE_READ = Cause("pipe-read", "reading from a pipe", "written by", tool="offwaketime")
PIPE_WRITE = Cause("pipe-write", "writing to a full pipe", "read by", tool="offwaketime")
NET_READ = Cause("net-read", "reading from the network", "sent by", tool="offwaketime")
NET_WRITE = Cause("net-write", "writing to the network", "taken by", tool="tcptop")
CONNECT = Cause("connect", "connecting", "answered by", tool="tcpconnlat")
UNIX_READ = Cause("unix-read", "reading from a socket", "sent by", tool="offwaketime")
UNIX_WRITE = Cause("unix-write", "writing to a socket", "taken by", tool="offwaketime")
FILE_READ = Cause("file-read", "reading a file", tool="fileslower 1")
FILE_WRITE = Cause("file-write", "writing a file", tool="fileslower 1")
FILE_SYNC = Cause("file-sync", "syncing a file to disk", tool="syncsnoop")
FILE_LOCK = Cause("file-lock", "waiting for a file lock", "released by", tool="offwaketime")
TERMINAL = Cause("terminal", "reading from a terminal", "typed through", "a terminal")
MESSAGE_READ = Cause("message-read", "waiting for a message", "sent by", "a message queue")
MESSAGE_WRITE = Cause("message-write", "sending to a full queue", "received by")
DEVICE = Cause("device", "waiting for a device", tool="offcputime")
FAULT = Cause("page-fault", "page faults", tool="pagefaults")
DISK = Cause("disk", "waiting for a disk", tool="biosnoop")
KERNEL_LOCK = Cause("kernel-lock", "waiting for a lock of the kernel", "released by", tool="offcputime -K")
EXIT = Cause("exit", "ending", tool="offcputime")
OTHER = Cause("other", "waiting in the kernel", tool="offcputime -K")
RING_WORK = Cause("ring-work", "waiting for work", idle="a worker of io_uring", always_idle=True)
KERNEL_WORK = Cause("kernel-work", "waiting for work", idle="a kernel thread", always_idle=True, tool="offcputime -K")


_COMPAT = 0x10000
"""Calls of 32-bit programs have their number and this."""
_COMPAT_NAMES = {
    "waitpid": "wait4", "_newselect": "select", "fcntl64": "fcntl", "ftruncate64": "ftruncate",
    "sendfile": "sendfile64", "ipc": "", "socketcall": "",
}  # fmt: skip
"""What they are called here; the last two stand for several calls."""


@cache
def call_names() -> dict[int, str]:
    """Names of this machine's system calls by number."""
    found = {number: name for name, number in system_calls.numbers(platform.machine()).items()}
    if platform.machine() == "x86_64":
        for number_, name in system_calls.compat_names().items():
            found[number_ | _COMPAT] = _COMPAT_NAMES.get(name, name.removesuffix("_time64"))
    return found


def numbers(names: str) -> str:
    """The numbers of system calls of this machine, with commas."""
    wanted = frozenset(names.split())
    return ",".join(str(number_) for number_, name in call_names().items() if name in wanted)


def number(name: str) -> int:
    """The number of a system call; one that no call has where this machine lacks it."""
    return system_calls.numbers(platform.machine()).get(name, 0xFFFFFF)


OUTSIDE = 0xFFFFFFFF
"""In place of a system call outside of one."""


def cause_of(call: int, kind: int, user: Sequence[Frame], kernel: Sequence[Frame]) -> Cause:
    """The cause of a wait.

    Args:
        call: number of the system call; :data:`OUTSIDE` in page faults and threads of the kernel's own.
        kind: what the call is about: the operation of a futex, the kind of a file or socket, no descriptors of a poll.
        user, kernel: the stacks, innermost frame first.
    """
    if call == OUTSIDE and not user and _is_main(kernel):
        return KERNEL_WORK
    functions = {frame.function.partition(".")[0] for frame in kernel}
    if operation := ring_operation(kernel):
        return _of_ring(operation, functions)
    name = call_names().get(call, "")
    uninterruptible = bool(kind & _UNINTERRUPTIBLE)
    kind &= _UNINTERRUPTIBLE - 1
    if name in _FUTEX_CALLS and any(function.startswith(("futex_", "__futex_")) for function in functions):
        return _futex(kind, user)
    if functions & _FAULTS and not name:
        return FAULT
    if functions & {"do_nanosleep", "timerfd_read_iter", "timerfd_read"} or (name in POLLS.split() and kind == 1):
        return SCHEDULER if is_scheduler(user) else SLEEP
    if "wait_for_vfork_done" in functions or (name in _FORKS and waiting_function(kernel) == "kernel_clone"):
        return CHILD
    if name in _BY_CALL:
        return _BY_CALL[name]
    if name == "fcntl" and functions & {"fcntl_setlk", "do_lock_file_wait"}:
        return FILE_LOCK
    if name in EPOLLS and (inside := _database(user)) is not None:
        return inside
    if name in EPOLLS or name in POLLS.split() or name == "io_uring_enter":
        return msgspec.structs.replace(EVENTS, idle=name)
    return _by_file(name, kind, functions, uninterruptible=uninterruptible)


def _of_ring(operation: str, functions: set[str]) -> Cause:
    """What a worker of io_uring waits for: it has the system call of the thread that it was made for."""
    if operation in ("ret_from_fork_asm", "ret_from_fork", "io_wq_worker"):
        return RING_WORK
    if "fsync" in operation or operation == "io_sync_file_range":
        return FILE_SYNC
    writes = "write" in operation or "send" in operation
    network = any(function.startswith(("sock_", "tcp_", "inet_")) for function in functions)
    if functions & {"pipe_read", "anon_pipe_read", "pipe_write", "anon_pipe_write"}:
        return PIPE_WRITE if writes else PIPE_READ
    if network or "send" in operation or "recv" in operation:
        return NET_WRITE if writes else NET_READ
    if writes or "read" in operation:
        return FILE_WRITE if writes else FILE_READ
    return _by_file("", 0, functions, uninterruptible=True)


def _is_main(kernel: Sequence[Frame]) -> bool:
    """Whether a thread of the kernel's own waits in its main function, as those do that have nothing to do."""
    outside = kernel[scheduling_frames(kernel) :]
    return len(outside) > 1 and outside[1].function.startswith(("kthread", "ret_from_fork"))


_FORKS = frozenset({"vfork", "clone", "clone3"})
"""They wait until the child has executed a program, where it borrows their memory."""
_CALLS = (
    ("wait4 waitid", CHILD),
    ("fsync fdatasync sync_file_range sync syncfs msync", FILE_SYNC),
    ("flock", FILE_LOCK),
    ("accept accept4", ACCEPT),
    ("mq_timedreceive msgrcv", MESSAGE_READ),
    ("mq_timedsend msgsnd", MESSAGE_WRITE),
    ("semop semtimedop", SEMAPHORE),
    ("io_getevents", DISK),
    ("pause rt_sigsuspend rt_sigtimedwait signalfd", SIGNAL),
    ("exit exit_group", EXIT),
)
_BY_CALL = {name: cause for names, cause in _CALLS for name in names.split()}
"""System calls that wait for one thing only."""


def _database(user: Sequence[Frame]) -> Cause | None:
    """What a latch of PostgreSQL stands for, on which a backend waits by epoll as it waits for its client."""
    for frame in user[:16]:
        if frame.function in ("ProcSleep", "WaitOnLock", "LockAcquireExtended"):
            return LOCK
        if frame.function == "pg_sleep":
            return SLEEP
    return None


_FAULTS = frozenset({"exc_page_fault", "asm_exc_page_fault", "do_user_addr_fault", "handle_mm_fault", "do_page_fault"})
_DISKS = re.compile(
    r"^(?:io_schedule|blk_|bio_|submit_bio|folio_wait_|wait_on_page|filemap_|jbd2_|xfs_log|balance_dirty)"
)


def _by_file(name: str, kind: int, functions: set[str], *, uninterruptible: bool) -> Cause:
    writes = name in _WRITES
    if kind & 0x100:
        family = kind & 0xFF
        if name == "connect":
            return CONNECT
        if family == UNIX:
            return UNIX_WRITE if writes else UNIX_READ
        return NET_WRITE if writes else NET_READ
    if kind == PIPE:
        return PIPE_WRITE if writes else PIPE_READ
    if kind == CHARACTERS:
        return TERMINAL if any("tty" in function for function in functions) else DEVICE
    if kind in (FILE, BLOCKS, DIRECTORY):
        return FILE_WRITE if writes or name in ("ftruncate", "fallocate") else FILE_READ
    if any(function.startswith(("rwsem_", "__mutex_", "__down", "percpu_rwsem")) for function in functions):
        return KERNEL_LOCK
    if any(_DISKS.match(function) for function in functions):
        return DISK
    if functions & _FAULTS:
        return FAULT
    if name in ("read", "eventfd2") and not uninterruptible:
        return msgspec.structs.replace(EVENTS, idle="eventfd")
    return OTHER


def _futex(kind: int, user: Sequence[Frame]) -> Cause:
    """What a futex stands for, by the functions that wait with it."""
    names = " ".join(frame.function for frame in user[:24])
    operation = kind & 0x7F
    if "pthread_cond_" in names and _under_python(user, "pthread_cond_"):
        # Whoever gave it up waits by another condition until somebody has taken it.
        return GIL
    if operation in _PRIORITY_INHERITANCE:
        return LOCK
    if "sem_" in names and _under_python(user, "sem_"):
        return _python_lock(user)
    for pattern, cause in _FUTEXES:
        if pattern.search(names):
            return FULL if cause is CONDITION and _needs_room(user) else cause
    return LOCK if operation == 0 and not kind & _TIMED else FUTEX


_PRODUCERS = re.compile(
    r"(?<![A-Za-z])(?:put|push|enqueue|produce|offer|submit|send)(?:[_A-Z0-9]\w*|r|All)?\b"
    r"|(?<=[a-z0-9])(?:Put|Push|Enqueue|Produce|Offer|Submit|Send)(?:[_A-Z0-9]\w*)?\b"
)
"""Functions that wait for room where others wait for work: a condition alone does not say which it stands for."""
_CONSUMERS = re.compile(r"(?i)(?:pop|take|get|pull|dequeue|consume|receive|recv|next|work)")
_INSIDE = re.compile(
    r"^_*pthread_|^_*futex|^_*syscall|condition_variable|[Cc]ondvar|^Unsafe_|^Parker::|LockSupport|AbstractQueued|ForkJoinPool"
    r"|^std::sys|^parking_lot|^uv_cond|^std::_V2"
)


def _needs_room(user: Sequence[Frame]) -> bool:
    """Whether a thread waits with a condition to add to something, by the first two functions outside of it."""
    callers = [frame.function for frame in user if frame.function and not _INSIDE.search(frame.function)][:2]
    for name in callers:
        if _PRODUCERS.search(name):
            return True
        if _CONSUMERS.search(name):
            return False
    return False


def _python_lock(user: Sequence[Frame]) -> Cause:
    """What a lock of CPython stands for, which is a semaphore, by the Python functions that wait for it."""
    functions = [frame.function for frame in user if frame.file.endswith(".py")]
    waits = " ".join(functions[:4])
    if re.search(r"\b(?:Thread\.join|Thread\._wait_for\w+|_wait_for_tstate_lock|_shutdown)\b", waits):
        return JOIN
    if re.search(r"\bQueue\.put\b", waits):
        return FULL
    if re.search(r"\b(?:Condition\.wait|Event\.wait|Queue\.get|Barrier\.wait)\b", waits):
        return CONDITION
    if functions and _WAITS.search(functions[0]):
        # A queue in C has no frame of its own: its caller's name says what it is for.
        return CONDITION
    return LOCK


_WAITS = re.compile(r"(?:^|\.)_?(?:wait|sleep)(?:_for_\w+|_until\w*)?$")
_PRIORITY_INHERITANCE = (6, 13)
"""``FUTEX_LOCK_PI`` and ``FUTEX_LOCK_PI2``: the word is the owner's thread id."""
_FUTEXES = (
    (re.compile(r"\b(?:take_gil|PyEval_(?:Restore|Acquire)Thread|PyEval_AcquireLock|PyGILState_Ensure)\b"), GIL),
    (re.compile(r"\bObjectMonitor::[Ee]nter|\bJavaThread::enter"), LOCK),
    (re.compile(r"\bJVM_Sleep\b|\bJavaThread::sleep\b"), SLEEP),
    (re.compile(r"\bSafepointSynchronize::block\b"), SAFEPOINT),
    (re.compile(r"\b_*pthread_(?:clockjoin|timedjoin|join)\w*|\bstd::thread::join\b"), JOIN),
    (re.compile(r"\b_*pthread_barrier_wait\b|\bstd::barrier|\bgomp_\w*barrier"), BARRIER),
    (re.compile(r"\b_*pthread_mutex_cond_lock|\bLWLockAcquire"), LOCK),
    (re.compile(
        r"\b(?:_*pthread_cond_\w+|Unsafe_Park|ObjectMonitor::wait|uv_cond_\w+|std::condition_variable::wait"
        r"|std::sys::\S*condvar\S*|std::thread::park\w*)"
    ), CONDITION),
    (re.compile(
        r"\b(?:_*lll_lock_wait\w*|_*pthread_mutex_\w*lock\w*|\w*rwlock_\w+|std::sys::\S*(?:mutex|rwlock)\S*|parking_lot\S*"
        r"|runtime\.lock\w*|\S*lock_contended|\S*[Ss]pin[Ll]ock\S*)"
    ), LOCK),
    (re.compile(r"\b_*(?:new_)?sem_(?:wait|timedwait|clockwait)\w*|\b_*do_futex_wait\b"), SEMAPHORE),
    (re.compile(r"\bruntime\.(?:notesleep|notetsleep\w*|stopm|mPark|futexsleep|sysmon|findRunnable)\b"),
     msgspec.structs.replace(FUTEX, idle="the runtime's scheduler", always_idle=True)),
)  # fmt: skip
"""What functions in a stack say about a futex, the first that matches."""
_PYTHON = re.compile(r"/(?:lib)?python\d?[\d.]*(?:\.so[\d.]*)?$")


def _under_python(user: Sequence[Frame], prefix: str) -> bool:
    """Whether CPython itself calls a function whose name begins so."""
    for number_, frame in enumerate(user):
        if frame.function.lstrip("_").removeprefix("new_").startswith(prefix):
            callers = (caller for caller in user[number_ + 1 :] if "libc" not in caller.module.rpartition("/")[2])
            caller = next(callers, None)
            return caller is not None and bool(_PYTHON.search(caller.module) or caller.file.endswith(".py"))
    return False


# ------------------------------------------------------------------------------------------------------ waits for work


IDLE_SHARE = 0.8
"""Who spends more than this share of its life, but for waiting for a CPU, waiting for work waits for work."""


def idle_waits(
    waits: Mapping[Key, tuple[Unit, Cause, int]],
    lives: Mapping[Unit, int],
    never_slow: Callable[[Unit, Cause], bool],
    may_idle: Callable[[Unit, Cause], bool],
) -> tuple[dict[Key, str], list[tuple[str, int, int]]]:
    """Which waits are idle: those that never make anything slow, and those for work of who does little but wait for it.

    Args:
        waits: who waits (a thread, a goroutine), why, and how many nanoseconds.
        lives: nanoseconds of each, without those in which it waited for a CPU, which says nothing of how busy it is.
        never_slow: whether a wait is none that makes anything slow.
        may_idle: whether somebody may have nothing to do while it waits so.

    Returns:
        What each idle wait is in; and for each of these how many are in it, and nanoseconds, the longest first.
    """
    aside: Counter[Unit] = Counter()
    may: Counter[Unit] = Counter()
    for unit, cause, ns in waits.values():
        if never_slow(unit, cause):
            aside[unit] += ns
        elif may_idle(unit, cause):
            may[unit] += ns
    idle: dict[Key, str] = {}
    units: dict[str, set[Unit]] = defaultdict(set)
    sums: Counter[str] = Counter()
    for key, (unit, cause, ns) in waits.items():
        for_work = may_idle(unit, cause) and may[unit] >= IDLE_SHARE * (lives[unit] - aside[unit])
        if for_work or never_slow(unit, cause):
            label = idle[key] = cause.idle or cause.about or cause.title
            units[label].add(unit)
            sums[label] += ns
    rows = ((label, len(members), sums[label]) for label, members in units.items())
    return idle, sorted(rows, key=lambda row: -row[2])


# ---------------------------------------------------------------------------------------------------------- goroutines


RECEIVE = Cause("channel-receive", "receiving from a channel", "sent by", "chan receive")
SEND = Cause("channel-send", "sending to a channel", "received by")
SELECT = Cause("select", "waiting in a select", "woken by", "select")
GROUP = Cause("wait-group", "waiting for goroutines", "ended with", "WaitGroup.Wait", always_idle=True)
COLLECTOR = Cause("gc", "waiting for Go's collector")
RUNTIME = Cause("go-runtime", "of Go's runtime", idle="the runtime", always_idle=True)
RUNNABLE = Cause("runnable", "waiting to be scheduled", tool="flame")
SCHEDULER = Cause("go-scheduler", "in Go's scheduler", idle="the runtime's scheduler", always_idle=True)


def is_scheduler(user: Sequence[Frame]) -> bool:
    """Whether a thread runs no goroutine."""
    return any(GO_SCHEDULER.match(frame.function) for frame in user)


def within_go(user: Sequence[Frame]) -> str:
    """Who in Go's runtime makes a goroutine runnable."""
    names = {frame.function for frame in user}
    if names & {"runtime.goroutineReady", "time.goFunc", "time.sendTime"}:
        return "a timer"
    return "the collector" if any(name.startswith("runtime.gc") for name in names) else "the runtime"


_HELPERS = re.compile(
    r"^(?:net/http\.\(\*(?:connReader\)\.backgroundRead|persistConn\)\.(?:readLoop|writeLoop))"
    r"|database/sql\.\(\*DB\)\.connectionOpener|os/signal\.(?:loop|signal_recv)|runtime\.(?:block|gcenable)(?:\.func\d+)?)$"
)
"""Goroutines that libraries keep, whose waiting is nobody's, and those that wait for ever (``select {}``)."""
_PARKED = (
    (re.compile(r"^runtime\.netpollblock$"), NET_READ),
    (re.compile(r"^(?:time\.Sleep|runtime\.timeSleep)$"), SLEEP),
    (re.compile(r"^runtime\.(?:gcParkAssist|gcAssistAlloc\w*|gcWaitOnMark|stopTheWorld\w*|semacquire)$"), COLLECTOR),
    (re.compile(r"^sync\.\(\*WaitGroup\)\.Wait$"), GROUP),
    (re.compile(r"^sync\.\(\*Cond\)\.Wait$|^(?:runtime|sync)\.(?:runtime_)?notifyListWait$"), CONDITION),
    (re.compile(r"^(?:internal/)?sync\.(?:\(\*(?:RW)?Mutex\)\.|runtime_Semacquire(?:RW)?(?:R?)Mutex)"), LOCK),
    (re.compile(r"^(?:sync\.runtime_Semacquire|runtime\.semacquire1|internal/poll\.runtime_Semacquire)$"), SEMAPHORE),
    (re.compile(r"^runtime\.chansend"), SEND),
    (re.compile(r"^runtime\.selectgo$"), SELECT),
    (re.compile(r"^runtime\.chanrecv"), RECEIVE),
)  # fmt: skip
"""What functions in the stack of a goroutine say, the first that matches. Their names are those of 1.17 to 1.27, where
numbers of reasons and the members of ``runtime.g`` differ."""


def of_goroutine(user: Sequence[Frame]) -> Cause:
    """Why a goroutine waits that called ``runtime.gopark``."""
    names = [frame.function for frame in user]
    own = [name for name in names if not name.startswith("runtime.goexit")]
    if own and own[-1].startswith("runtime.") and own[-1] != "runtime.main":
        return RUNTIME
    if any(_HELPERS.match(name) for name in names):
        return RUNTIME
    cause = next((cause for pattern, cause in _PARKED if any(map(pattern.match, names))), OTHER)
    if cause is NET_READ:
        cause = _polled(names)
    elif cause is SELECT and "net/http.(*persistConn).roundTrip" in names:
        cause = NET_READ
    return msgspec.structs.replace(cause, tool="why --goroutines --html why.html")


def _polled(names: Sequence[str]) -> Cause:
    """What a goroutine does that waits for a descriptor, by the functions that called it."""
    inside = " ".join(names)
    if "(*FD).Accept" in inside:
        return ACCEPT
    if "(*netFD).connect" in inside:
        return CONNECT
    if "net/http.(*conn).serve" in names and "net/http.serverHandler.ServeHTTP" not in names:
        return msgspec.structs.replace(EVENTS, idle="waiting for requests", always_idle=True)
    writes = "(*FD).Write" in inside
    if "os.(*File)" in inside:
        return PIPE_WRITE if writes else PIPE_READ
    return NET_WRITE if writes else NET_READ


# -------------------------------------------------------------------------------------------------------------- wakers


_INTERRUPT = re.compile(
    r"^(?:asm_)?(?:run_ksoftirqd$|sysvec_|common_interrupt|exc_nmi|el\d+t?_\d+_irq|irq_exit|handle_irq|gic_handle_irq)"
)
_DEVICES = (
    ("timer", re.compile(r"^(?:_*hrtimer_\w+|process_timeout|call_timer_fn|run_timer_\w+|it_real_fn|alarm\w*)$")),
    ("disk", re.compile(r"^(?:blk_|bio_|__?end_bio|nvme_|virtblk_|scsi_|ata_|mpt3|megasas|dm_|clone_endio)")),
    ("network", re.compile(r"^(?:net_rx_action|__?napi_|netif_|tcp_|ip_rcv|sock_def_)")),
)


def interrupt(kernel: Sequence[Frame]) -> str:
    """The device whose interrupt a waker's stack is of: ``timer``, ``disk``, ``network``, ``interrupt``; or empty."""
    names = [frame.function for frame in kernel]
    if not any(_INTERRUPT.match(name) for name in names):
        return ""
    for device, pattern in _DEVICES:
        if any(pattern.match(name) for name in names):
            return device
    return "interrupt"


def is_end(kernel: Sequence[Frame]) -> bool:
    """Whether a waker's stack is of a thread that ends, which has no user stack any more when it tells its parent."""
    return any(frame.function.partition(".")[0] == "do_exit" for frame in kernel)


def ends_thread(user: Sequence[Frame]) -> bool:
    """Whether a waker is a thread of Java that ends: those that join it wait as for any other condition."""
    return any(frame.function.startswith("JavaThread::exit(") for frame in user)


def is_signal(kernel: Sequence[Frame]) -> bool:
    """Whether a waker's stack sends a signal: it interrupts a wait, but does not release, write or answer anything."""
    return any(frame.function.partition(".")[0] in _SENDS for frame in kernel)


_SENDS = frozenset({"signal_wake_up_state", "complete_signal", "zap_other_threads"})
"""Not what a signal for a signalfd comes through."""
