"""Causes of waiting by system call and stacks, whose code a stack is in, and what the first screen says of them."""

from __future__ import annotations

import shlex

import msgspec
import pytest

from pytrace.account import causes, reading
from pytrace.account.account import Account, Line, Part, Thread, Who
from pytrace.account.causes import Cause
from pytrace.account.frames import Place, event_loop, place_of, sleeping_library, task_of, waiting_function
from pytrace.account.screen import screen
from pytrace.cli import request
from pytrace.cli.commands import COMMANDS
from pytrace.cli.options import read
from pytrace.core.types import UINT64
from pytrace.results.snapshot import Frame, MapData, Portable, SnapshotData, StackTrace

LIBC, PYTHON, APP = "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3.12", "/opt/app/server"


def stack(text: str, module: str = LIBC) -> tuple[Frame, ...]:
    """Frames from ``function`` or ``function@file:line`` with blanks between them; ``/`` begins the program's own."""
    frames = []
    for word in text.split():
        if word.startswith("/"):
            module, word = APP, word[1:]
        name, _, where = word.partition("@")
        file, _, line = where.partition(":")
        frames.append(Frame(name, 0, PYTHON if file.endswith(".py") else module, "", file, int(line or 0)))
    return tuple(frames)


GOROUTINES = [
    ("runtime.gopark runtime.chanrecv runtime.chanrecv1 /main.work", "channel-receive"),
    ("runtime.gopark runtime.chansend runtime.chansend1 /main.work", "channel-send"),
    ("runtime.gopark runtime.selectgo /main.work", "select"),
    ("runtime.gopark runtime.selectgo net/http.(*persistConn).roundTrip /main.fetch", "net-read"),
    ("runtime.gopark runtime.semacquire1 sync.runtime_SemacquireMutex sync.(*Mutex).lockSlow /main.work", "lock"),
    ("runtime.gopark internal/sync.runtime_SemacquireMutex internal/sync.(*Mutex).lockSlow /main.work", "lock"),
    ("runtime.gopark runtime.semacquire1 sync.runtime_SemacquireRWMutexR sync.(*RWMutex).RLock /main.work", "lock"),
    ("runtime.gopark runtime.semacquire1 sync.runtime_Semacquire sync.(*WaitGroup).Wait /main.main", "wait-group"),
    ("runtime.gopark sync.runtime_notifyListWait sync.(*Cond).Wait /main.work", "condition"),
    ("runtime.gopark time.Sleep /main.work", "sleep"),
    ("runtime.gopark runtime.netpollblock internal/poll.(*FD).Read net.(*conn).Read /main.ask", "net-read"),
    ("runtime.gopark runtime.netpollblock internal/poll.(*FD).Write net.(*conn).Write /main.ask", "net-write"),
    ("runtime.gopark runtime.netpollblock internal/poll.(*FD).Accept net.(*netFD).accept /main.main", "accept"),
    ("runtime.gopark runtime.netpollblock net.(*netFD).connect net.Dial /main.ask", "connect"),
    ("runtime.gopark runtime.netpollblock internal/poll.(*FD).Read os.(*File).Read /main.copy", "pipe-read"),
    ("runtime.gopark runtime.netpollblock bufio.(*Reader).Peek net/http.(*conn).serve", "events"),
    ("runtime.netpollblock /main.f net/http.serverHandler.ServeHTTP net/http.(*conn).serve", "net-read"),
    ("runtime.gopark runtime.netpollblock net/http.(*connReader).backgroundRead", "go-runtime"),
    ("runtime.gopark runtime.bgsweep runtime.gcenable.func1", "go-runtime"),
    ("runtime.gopark runtime.gcBgMarkWorker", "go-runtime"),
    ("runtime.gopark runtime.block /main.main runtime.main", "go-runtime"),
    ("runtime.gopark runtime.gcParkAssist runtime.gcAssistAlloc runtime.mallocgc /main.work", "gc"),
]  # fmt: skip


@pytest.mark.parametrize(("frames", "name"), GOROUTINES)
def test_a_goroutine_waits_for_what_its_stack_says(frames: str, name: str) -> None:
    assert causes.of_goroutine(stack(f"{frames} runtime.goexit.abi0")).name == name


def test_threads_of_go_that_run_no_goroutine() -> None:
    # Frame pointers lead from the scheduler's stack on to that of the goroutine that ran before.
    parked = stack("runtime.futex runtime.stopm runtime.findRunnable runtime.schedule runtime.mcall /main.f")
    assert causes.is_scheduler(parked)
    assert not causes.is_scheduler(stack("syscall.Syscall os.(*File).Read /main.f runtime.main"))
    assert causes.within_go(stack("runtime.ready runtime.goroutineReady runtime.schedule")) == "a timer"


FUTEX_STACK = "futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex"

RING = "__io_issue_sqe io_issue_sqe io_wq_submit_work io_worker_handle_work io_wq_worker ret_from_fork"
CASES = [
    ("futex", 0, "__lll_lock_wait pthread_mutex_lock /work", FUTEX_STACK, "lock"),
    ("futex", 6, "__pthread_mutex_lock_full /work", FUTEX_STACK, "lock"),
    ("futex", 9, "__futex_abstimed_wait_common pthread_cond_wait /take", FUTEX_STACK, "condition"),
    ("futex", 9, "__futex_abstimed_wait_common pthread_cond_wait /queue_push /produce", FUTEX_STACK, "queue-full"),
    ("futex", 9, "pthread_cond_wait std::condition_variable::wait /Queue::put(int)", FUTEX_STACK, "queue-full"),
    ("futex", 9, "pthread_cond_wait Unsafe_Park /java.util.ArrayBlockingQueue.put", FUTEX_STACK, "queue-full"),
    ("futex", 9, "__futex_abstimed_wait_common pthread_cond_wait /compute_output", FUTEX_STACK, "condition"),
    ("futex", 9, "__futex_abstimed_wait_common pthread_cond_wait /queue_pop /send_all /run", FUTEX_STACK, "condition"),
    ("futex", 9, "__futex_abstimed_wait_common __pthread_clockjoin_ex /main", FUTEX_STACK, "join"),
    ("futex", 9, "__new_sem_wait_slow64 sem_wait /work", FUTEX_STACK, "semaphore"),
    ("futex", 9, "pthread_barrier_wait /work", FUTEX_STACK, "barrier"),
    ("futex", 9, "pthread_rwlock_rdlock /work", FUTEX_STACK, "lock"),
    ("futex", 9, "pthread_cond_wait ObjectMonitor::EnterI /run", FUTEX_STACK, "lock"),
    ("futex", 9, "pthread_cond_wait Unsafe_Park /run", FUTEX_STACK, "condition"),
    ("futex", 0, "/runtime.futex runtime.futexsleep runtime.notesleep runtime.stopm", FUTEX_STACK, "futex"),
    ("futex", 9, "pthread_cond_timedwait PyEval_RestoreThread f@/srv/app.py:3", FUTEX_STACK, "gil"),
    ("futex", 9, "pthread_cond_wait _PyEval_EvalFrameDefault f@/srv/app.py:3", FUTEX_STACK, "gil"),
    ("futex", 9, "do_futex_wait sem_wait f@/srv/app.py:3", FUTEX_STACK, "lock"),
    ("futex", 9, "sem_wait Event.wait@/usr/lib/python3.12/threading.py:1 f@/srv/app.py:3", FUTEX_STACK, "condition"),
    ("futex", 9, "sem_wait Condition.wait@/usr/lib/python3/threading.py:1 Queue.put@q.py:1", FUTEX_STACK, "queue-full"),
    ("futex", 9, "sem_wait Condition.wait@/usr/lib/python3/threading.py:1 Queue.get@q.py:1", FUTEX_STACK, "condition"),
    ("futex", 9, "sem_wait Arbiter.wait_for_signals@/usr/lib/python3/dist-packages/a.py:1", FUTEX_STACK, "condition"),
    ("futex", 9, "sem_wait f@/srv/app.py:3 wait@/srv/app.py:9", FUTEX_STACK, "lock"),
    ("futex", 9, "sem_wait Thread.join@/usr/lib/python3.12/threading.py:1 f@/srv/app.py:3", FUTEX_STACK, "join"),
    ("read", causes.PIPE, "/work", "pipe_read vfs_read ksys_read", "pipe-read"),
    ("write", causes.PIPE, "/work", "pipe_write vfs_write", "pipe-write"),
    ("read", 0x102, "/work", "wait_woken sk_wait_data tcp_recvmsg", "net-read"),
    ("recvfrom", 0x101, "/work", "unix_stream_read_generic", "unix-read"),
    ("connect", 0x102, "/work", "inet_stream_connect", "connect"),
    ("pread64", causes.FILE | 0x10000, "/work", "io_schedule filemap_read", "file-read"),
    ("fsync", causes.FILE | 0x10000, "/work", "jbd2_log_wait_commit", "file-sync"),
    ("flock", causes.FILE, "/work", "flock_lock_inode_wait", "file-lock"),
    ("read", causes.CHARACTERS, "/work", "n_tty_read tty_read", "terminal"),
    ("epoll_wait", 0, "/WaitLatch ProcSleep LockAcquireExtended XactLockTableWait", "ep_poll do_epoll_wait", "lock"),
    ("epoll_wait", 0, "/WaitEventSetWait WaitLatch pg_sleep", "ep_poll do_epoll_wait", "sleep"),
    ("futex", 9, "sem_wait /PGSemaphoreLock LWLockAcquire XLogFlush", FUTEX_STACK, "lock"),
    ("epoll_wait", 0, "/work", "ep_poll do_epoll_wait", "events"),
    ("poll", 0, "/work", "do_sys_poll", "events"),
    ("poll", 1, "/work", "do_sys_poll", "sleep"),
    ("clock_nanosleep", 0, "/work", "do_nanosleep", "sleep"),
    ("restart_syscall", 0, "/work", "do_nanosleep hrtimer_nanosleep_restart", "sleep"),
    ("wait4", 0, "/work", "do_wait", "child"),
    ("clone", 0x10000, "/work", "wait_for_vfork_done kernel_clone", "child"),
    ("vfork", 0, "/work", "wait_for_completion_state kernel_clone __do_sys_vfork", "child"),
    ("accept4", 0x102, "/work", "inet_csk_accept", "accept"),
    ("", 0x10000, "/work", "folio_wait_bit_common filemap_fault handle_mm_fault exc_page_fault", "page-fault"),
    ("openat", 0x10000, "/work", "rwsem_down_write_slowpath down_write", "kernel-lock"),
    ("openat", 0x10000, "/work", "io_schedule bit_wait_io ext4_read_bh", "disk"),
    ("mremap", 0, "/work", "some_function", "other"),
    ("mq_timedreceive", causes.FILE, "/work", "wq_sleep do_mq_timedreceive", "message-read"),
    ("msgsnd", 0, "/work", "do_msgsnd ksys_msgsnd", "message-write"),
    ("semtimedop", 0, "/work", "__do_semtimedop", "semaphore"),
    ("io_getevents", 0, "/work", "read_events do_io_getevents", "disk"),
    ("read", 0, "/work", "timerfd_read_iter vfs_read", "sleep"),
    ("", 0, "", "schedule worker_thread kthread ret_from_fork ret_from_fork_asm", "kernel-work"),
    ("", 0, "", "schedule io_schedule bit_wait_io jbd2_commit kjournald2 kthread ret_from_fork", "disk"),
    ("io_uring_enter", 0, "/work", "io_cqring_wait __do_sys_io_uring_enter", "events"),
    ("io_uring_enter", 0, "", f"schedule submit_bio_wait ext4_sync_file io_fsync {RING}", "file-sync"),
    ("io_uring_enter", 0, "", f"io_schedule filemap_read ext4_file_read_iter io_read {RING}", "file-read"),
    ("io_uring_enter", 0, "", f"anon_pipe_write io_write.constprop.0 {RING}", "pipe-write"),
    ("io_uring_enter", 0, "", f"wait_woken sk_wait_data tcp_recvmsg io_recvmsg {RING}", "net-read"),
    ("io_uring_enter", 0, "", f"io_schedule bit_wait_io ext4_read_bh do_filp_open io_openat2 {RING}", "disk"),
    ("io_uring_enter", 0, "", "schedule_timeout io_wq_worker ret_from_fork ret_from_fork_asm", "ring-work"),
    ("futex", 9, "pthread_cond_timedwait os::PlatformEvent::park(long) JavaThread::sleep(long)", FUTEX_STACK, "sleep"),
    ("futex", 0, "syscall LinuxWaitBarrier::wait(int) SafepointSynchronize::block(Thread*)", FUTEX_STACK, "safepoint"),
]


@pytest.mark.parametrize(("call", "kind", "user", "kernel", "name"), CASES)
def test_the_cause_of_a_wait(call: str, kind: int, user: str, kernel: str, name: str) -> None:
    number = causes.number(call) if call else 0xFFFFFFFF
    module = PYTHON if ".py" in user and "sem_" not in user else LIBC
    assert causes.cause_of(number, kind, stack(user, module), stack(kernel, "[kernel]")).name == name


def test_the_library_of_go_is_no_code_of_ones_own() -> None:
    """Where Debian and Go itself install it, and of programs that are built with -trimpath."""
    own = Frame("main.nap", 0, "/srv/app", "", "/srv/app/main.go", 7)
    for file in (
        "/usr/lib/go-1.19/src/time/sleep.go", "/usr/local/go/src/time/sleep.go", "time/sleep.go",
        "/home/ann/golang-1.22/src/time/sleep.go", "/home/ann/go/pkg/mod/example.com/lib@v1.2.0/lib.go",
        "example.com/lib@v1.2.0/lib.go", "/home/ann/app/vendor/example.com/lib/lib.go",
    ):  # fmt: skip
        assert place_of((Frame("time.Sleep", 0, "/srv/app", "", file, 3), own), ()) == Place("main.nap", "main.go", 7)


def test_a_folder_whose_name_begins_as_gos_is_ones_own() -> None:
    for file in ("/home/ann/golang-shop/cart/cart.go", "/home/ann/go/src/shop/cart.go", "/srv/golang/cart.go"):
        place = place_of((Frame("cart.Add", 0, "/srv/app", "", file, 3), Frame("main.main", 0, "/srv/app", "")), ())
        assert place == Place("cart.Add", "cart.go", 3)


def test_the_place_is_in_ones_own_code() -> None:
    native = stack("__lll_lock_wait pthread_mutex_lock /work@work.c:7 main@main.c:1")
    assert place_of(native, ()) == Place("work", "work.c", 7)
    database = stack("epoll_wait /WaitEventSetWait WaitLatch ProcSleep LockAcquireExtended XactLockTableWait")
    assert place_of(database, ()) == Place("XactLockTableWait", "server")
    program = stack("epoll_wait") + stack("heap_update", "/usr/lib/postgresql/15/bin/postgres")
    assert place_of(program, ()) == Place("heap_update", "postgres")
    python = stack("sem_wait get@/usr/lib/python3.12/queue.py:9 take@/srv/site-packages/x/y.py:2 serve@/srv/app.py:3")
    assert place_of(python, ()).text == "serve (app.py:3)"
    libraries = stack("read fill@/usr/lib/python3.12/socket.py:9")
    assert place_of(libraries, ()) == Place("fill", "socket.py", 9)
    runtime = stack("futex_wait pthread_cond_wait") + stack("ObjectMonitor::wait", "/opt/jdk/lib/server/libjvm.so")
    assert place_of(runtime, ()) == Place("ObjectMonitor::wait", "libjvm.so")
    stripped = (Frame("read", 0, LIBC, "", "read.c", 26), Frame("", 0, "/usr/bin/sort", "", "", 0))
    assert place_of(stripped, ()) == Place("sort")
    assert place_of((), stack("__schedule schedule do_nanosleep", "[kernel]")) == Place("do_nanosleep", "kernel")
    assert waiting_function(stack("schedule io_schedule folio_wait_bit.constprop", "[kernel]")) == "folio_wait_bit"


def test_where_only_the_c_library_is_known_the_thread_has_the_name() -> None:
    """As of a program that ended before its unwind tables were read."""
    alone = (Frame("clock_nanosleep", 0, LIBC, "", "clock_nanosleep.c", 71),)
    assert place_of(alone, (), "sleep") == Place("sleep")
    assert place_of(alone, ()) == Place("clock_nanosleep", "clock_nanosleep.c", 71)
    assert place_of(stack("read fill@/usr/lib/python3.12/socket.py:9"), (), "python3").function == "fill"


def test_a_library_that_sleeps_is_named() -> None:
    sqlite, folder = "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6", "/usr/lib/x86_64-linux-gnu/"
    insert = stack("insert@/srv/app.py:3")
    assert sleeping_library(stack("clock_nanosleep usleep") + stack("x", sqlite) + insert) == "libsqlite3.so.0.8.6"
    for other in (PYTHON, APP, f"{folder}libpython3.12.so.1.0", f"{folder}libstdc++.so.6", "/opt/jdk/lib/libjvm.so"):
        assert not sleeping_library(stack("clock_nanosleep") + stack("x", other) + insert), other


def test_where_events_of_idle_threads_came_from_is_told() -> None:
    made = account("app", "-p 7")
    made.idle_by = (Who("woken by", "query of python3 (9)", 950), Who("woken by", "curl (8)", 50))
    rows = list(screen(made))
    at = next(number for number, row in enumerate(rows) if row.startswith("idle threads"))
    assert rows[at + 1] == "        events came from query of python3 (9) 95%, curl (8) 5%"


def test_what_the_hypervisor_took_is_told() -> None:
    for stolen, told in ((0, False), (30_000_000, False), (50_000_000, True)):
        made = account("app", "-p 7")
        made.stolen, made.lines = stolen, ()
        assert any("the hypervisor took" in row for row in screen(made)) == told


def test_a_timer_is_named_unless_another_ended_a_tenth_of_the_wait() -> None:
    for other, name in ((9_000_000, "a timer"), (20_000_000, "main (app.c:8)")):
        by = (Who("woken by", "a timer", 100_000_000 - other), Who("woken by", "main (app.c:8)", other))
        line = Line(causes.SLEEP, 100_000_000, 1.0, 9, 9, parts=(Part(Place("nap"), 100_000_000),), by=by)
        made = account("app", "-p 7")
        made.lines = (line,)
        assert any(f"woken by {name}" in row for row in screen(made)), other


def test_a_task_is_its_outermost_function() -> None:
    run = "Handle._run@/usr/lib/python3.11/asyncio/events.py:80 run_forever@/usr/lib/python3.11/asyncio/base_events.py"
    inside = "sleep helper@/srv/lib.py:2 fetch@/srv/app.py:9 wait_for@/usr/lib/python3.11/asyncio/tasks.py:4"
    assert task_of(stack(f"{inside} {run} main@/srv/app.py:20")) == Place("fetch", "app.py", 9)
    library = "read@/usr/lib/python3.11/socket.py:3 serve@/srv/site-packages/web/server.py:7"
    assert task_of(stack(f"{library} {run}")) == Place("serve", "server.py", 7)
    assert task_of(stack(f"select {run}")) is None
    # uvloop's own frames are of C, and may be missing.
    runner = "Runner.run@/usr/lib/python3.11/asyncio/runners.py:118 run@/usr/lib/python3.11/asyncio/runners.py:190"
    within = stack("sleep nap@/srv/app.py:2 fetch@/srv/app.py:9")
    compiled = stack("uv_run", "/srv/venv/lib/python3.11/site-packages/uvloop/loop.cpython-311-x86_64-linux-gnu.so")
    for between, outside in (((), stack(f"{runner} main@/srv/app.py:20")), (compiled, stack("main@/srv/app.py:20"))):
        assert task_of((*within, *between, *outside)) == Place("fetch", "app.py", 9)
        assert event_loop((*within, *between, *outside)) == "asyncio"
        assert task_of((*stack("epoll_pwait"), *between, *outside)) is None
    assert event_loop((*stack("epoll_pwait"), *compiled)) == "asyncio"
    starts = "open _lazy_init@/usr/lib/python3.11/asyncio/runners.py:60"
    assert event_loop(stack(f"{starts} {runner} main@/srv/app.py:20")) == ""
    assert task_of(stack("sleep fetch@/srv/app.py:9 main@/srv/app.py:20")) is None


@pytest.mark.parametrize(
    ("user", "loop"),
    [
        ("slow@/srv/app.py:3 Handle._run@/usr/lib/python3.11/asyncio/events.py:80 main@/srv/app.py:9", "asyncio"),
        ("<module>@/usr/lib/python3.11/asyncio/__init__.py:8 <module>@/srv/app.py:1", ""),
        ("select@/usr/lib/python3.11/selectors.py:4 _run_once@/usr/lib/python3.11/asyncio/base_events.py:1", "asyncio"),
        ("/uv__io_poll uv_run node::SpinEventLoop", "libuv"),
        ("/runtime.futex runtime.stopm runtime.findRunnable runtime.schedule", "Go"),
        ("/work main", ""),
    ],
)
def test_event_loops_and_schedulers_are_known(user: str, loop: str) -> None:
    assert event_loop(stack(user)) == loop


@pytest.mark.parametrize(
    ("kernel", "device"),
    [
        ("try_to_wake_up hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt", "timer"),
        ("wake_up blk_mq_end_request common_interrupt", "disk"),
        ("complete blk_done_softirq handle_softirqs run_ksoftirqd smpboot_thread_fn kthread", "disk"),
        ("sock_def_readable tcp_rcv net_rx_action irq_exit_rcu common_interrupt", "network"),
        ("wake_up something common_interrupt", "interrupt"),
        ("sock_def_readable tcp_rcv net_rx_action do_softirq __local_bh_enable_ip tcp_sendmsg", ""),
    ],
)
def test_an_interrupt_is_a_waker_of_its_own(kernel: str, device: str) -> None:
    assert causes.interrupt(stack(kernel, "[kernel]")) == device


def account(target: str, options: str, **changes: object) -> Account:
    thread = Thread(7, 7, "app", 0, 4_000_000_000, cpu=1_000_000_000, ready=0, blocked=3_000_000_000)
    thread.kernel_cpu, thread.kernel_delay, thread.compared = 1_000_000_000, 0, 1_000_000_000
    waiting = Line(
        causes.LOCK, 3_000_000_000, 0.75, 5, 900_000_000, 850_000_000,
        parts=(Part(Place("work", "app.c", 31), 3_000_000_000),),
        by=(Who("released by", "other (app.c:18)", 9), Who("held by", "keep (app)", 5, doing="sleeping by itself")),
    )  # fmt: skip
    made = Account(target, options, 4_000_000_000, (thread,), (waiting,), (("accept", 2, 8_000_000_000),), {})
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_first_screen() -> None:
    assert list(screen(account("/opt/app --all", "-c '/opt/app --all'"))) == [
        "app --all: 4.00 s, 1 thread, 4.00 s of thread time, all accounted for",
        "   75 %  waiting for a lock       work (app.c:31)",
        "        held by keep (app), sleeping by itself; 5×, longest 900 ms, p99 850 ms",
        "        pytrace futexwait -a -s --cmd '/opt/app --all'",
        "idle threads (not slow), 8.00 s: 2 in accept",
        "next: pytrace why --all -c '/opt/app --all'",
    ]


def test_the_stack_of_a_holder_when_the_wait_began_is_in_the_whole_account() -> None:
    made = account("app", "-p 7")
    then = (Place("nap", "app.c", 3), Place("keep", "app.c", 7))
    made.lines = (msgspec.structs.replace(made.lines[0], by=(Who("held by", "nap (app)", 5, stack=then),)),)
    row = "        the holder's stack then: nap (app.c:3) ← keep (app.c:7)"
    assert row in list(screen(made, everything=True))
    assert row not in list(screen(made))


def test_waits_that_block_a_loop_and_idle_runtimes_are_said() -> None:
    made = account("app", "-p 7", runtimes=(("asyncio", 900_000_000),))
    made.lines = (msgspec.structs.replace(made.lines[0], loop="asyncio"),)
    lines = list(screen(made))
    assert lines[2].startswith("        blocks the event loop of asyncio; held by keep")
    assert lines[-2] == "idle inside a runtime, where tasks may wait unseen: asyncio (0.90 s)"


def test_what_is_missing_is_said_and_long_commands_fit() -> None:
    long = "app " + "word " * 40
    lines = list(screen(account(long, f"-c '{long}'", unknown=400_000_000, losses={"map_full @time": 3})))
    assert max(map(len, lines)) <= 80
    assert "lost: the causes of 10.0% of the time, as maps were full" in lines
    assert "lost: 3 map updates dropped (@time)" in lines
    assert lines[3] == "        pytrace futexwait -a -s --cmd …"
    off = account("app", "-p 7")
    off.threads[0].blocked -= 400_000_000
    off.threads[0].kernel_cpu = 900_000_000
    head, note, *_ = screen(off)
    assert head.endswith("90.0% accounted for")
    assert note == "  (time on and for a CPU differs from the kernel's schedstat by 2.50% of it)"


def test_commands_that_look_deeper_are_understood() -> None:
    """Whatever selects the processes: tools of bcc have options of their own by some letters."""
    told = [item for module in (causes, reading) for item in vars(module).values() if isinstance(item, Cause)]
    told += reading._HELD_UP.values()
    commands = set()
    for item in told:
        for options in ("-c 'app --all'", "-p 7", "-p 7 -p 8", "--comm app", "--cgroup /a", "--container c", "--uid 7"):
            rows = screen(account("app", options, lines=(Line(item, 3_000_000_000, 0.75, 5),)))
            commands |= {row.removeprefix("next: ").strip() for row in rows if " pytrace " in row}
    assert len(commands) > 100
    for command in sorted(commands):
        words = shlex.split(command)[1:]
        if words[0] == "why":
            COMMANDS["why"].read(words[1:])
            continue
        # A flame graph is that of profile, whose options it takes.
        line = read(["profile" if words[0] == "flame" else words[0], *words[1:]], request.find)
        request.script(line)
        assert line.values.keys() & {"command", "pid", "comm", "cgroup", "container", "uid"}, command


def test_a_thread_of_java_that_ends_ends_waits_for_it() -> None:
    ends = "pthread_cond_signal ObjectMonitor::ExitEpilog(JavaThread*) JavaThread::exit(bool) thread_native_entry()"
    assert causes.ends_thread(stack(ends))
    assert not causes.ends_thread(stack("pthread_cond_signal ObjectMonitor::ExitEpilog(JavaThread*) JVM_MonitorNotify"))


def test_shares_of_little_time_and_of_none_are_said_to_be() -> None:
    """Without a word 90 % on a CPU of a thread that sleeps would be a lie."""
    made = account("kthreadd (2)", "-p 2")
    made.lines = (Line(reading.CPU, 40_000, 0.9, 1, 1),)
    assert "  (shares are of 40 µs: the threads were idle the rest of the time)" in list(screen(made))
    made.lines = (Line(reading.CPU, 400_000_000, 0.9, 1, 1),)
    assert not any("shares are of" in row for row in screen(made))
    made.threads = ()
    first, *_, last = screen(made)
    assert first == "kthreadd (2): no such thread was there"
    assert last.startswith("next: ps -eLo ")


def test_names_of_threads_keep_their_slashes() -> None:
    assert next(screen(account("comm ksoftirqd/0", "--comm ksoftirqd/0"))).startswith("comm ksoftirqd/0: ")
    assert next(screen(account("cgroup /a/b.service", "--cgroup /a/b.service"))).startswith("cgroup b.service: ")
    assert max(map(len, screen(account("comm a", "--comm a " * 20)))) <= 80


def test_of_threads_that_wake_with_one_stack_the_one_is_named_that_ended_most() -> None:
    """A place has the name of the first thread that was seen there, which may not even have had its own yet."""
    none, futex = StackTrace(()), StackTrace(stack("futex_wait do_futex", "[kernel]"), user=False)
    waits, wakes = StackTrace(stack("pthread_mutex_lock /want")), StackTrace(stack("pthread_mutex_unlock", LIBC))
    number = causes.number("futex")
    life = (7, "java", 0, 90_000_000, 0, 0, 0, 0, 0, 0, 0)
    contents: dict[str, dict[Portable, Portable]] = {
        "@life": {7: life, 8: (7, "Thread-0", *life[2:]), 9: (7, "Thread-1", *life[2:])},
        "@place": {100: (7, "java", number, 0, futex, waits), 101: (7, "java", 0xFFFE, 0, none, wakes)},
        "@time": {(7, 100, 0): (2, 40_000_000, 30_000_000)},
        "@woken": {(100, 101): 40_000_000},
        "@wait": {(7, 1): (10_000_001, 100, 0, 101, 9, 0), (7, 20_000_000): (50_000_000, 100, 0, 101, 8, 0)},
    }
    maps = {name: MapData(name, UINT64, UINT64, entries) for name, entries in contents.items()}
    made = reading.Reading(SnapshotData((), maps, (), {}), "app", "-p 7", attached=True, alive={}).account()
    line = made.line("lock")
    assert line is not None
    assert [(who.relation, who.who) for who in line.by] == [("released by", "Thread-0")]
