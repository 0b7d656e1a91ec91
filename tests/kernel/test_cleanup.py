"""Nothing stays in the kernel: killed tracers, and many sessions in a row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from pytrace.core.manifest import MapType
from pytrace.core.probes.targets import TimerTarget, TracepointTarget
from pytrace.runtime.load import attachments, legacy_probes, probe_links
from pytrace.runtime.load.attachments import AttachOptions
from pytrace.runtime.machine import bpf, tracefs
from tests.support import leaks
from tests.support.loading import Loaded, program, target
from tests.support.patience import patience
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

TRACER = """
import signal
import time
from contextlib import ExitStack
from tests.kernel.test_cleanup import session
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
with ExitStack() as stack:
    session(stack)
    print("attached", flush=True)
    time.sleep(99)
"""


def session(stack: ExitStack) -> Loaded:
    """A loaded script with a tracepoint and a timer attached."""
    specs = (
        program("count_tracepoint", "tracepoint", target(TracepointTarget("syscalls", "sys_enter_getppid"), 1)),
        program("count_perf", "profile", target(TimerTarget(frequency=99), 2)),
    )
    loaded = Loaded(stack, *specs, pid=os.getpid())
    attachments.attach_all(loaded.loaded, specs, AttachOptions(), stack)
    return loaded


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_signalled_tracer_leaves_nothing(number: signal.Signals) -> None:
    tracer = subprocess.Popen(
        [sys.executable, "-c", TRACER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert tracer.stdout is not None
    assert tracer.stdout.readline() == "attached\n"
    tracer.send_signal(number)
    tracer.communicate(timeout=patience(20))
    assert tracer.returncode != 0


def test_sessions_in_a_row_keep_no_descriptors() -> None:
    """And no threads."""
    with ExitStack() as stack:
        session(stack)
    before, threads = sorted(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for _ in range(10):
        with ExitStack() as stack:
            session(stack)
    assert sorted(os.listdir("/proc/self/fd")) == before
    until(lambda: len(os.listdir("/proc/self/task")) <= threads)


def test_what_stays_is_found() -> None:
    """The fixture that all of these tests have sees a map, and a probe in tracefs of a process that is gone."""
    watch = leaks.Watch()
    descriptor = bpf.map_create(MapType.HASH, 8, 8, 1)
    assert len(watch.leaked(0.1)) == 1
    os.close(descriptor)
    assert not watch.leaked()
    ended = subprocess.Popen(["true"])
    ended.wait()
    path, name = f"{tracefs.root()}/uprobe_events", f"pytrace_{ended.pid}/p{ended.pid}_0"
    legacy_probes._write(path, f"p:{name} /bin/true:0x1000\n")
    try:
        assert name in leaks.definitions()
    finally:
        legacy_probes._write(path, f"-:{name}\n")
    assert name not in leaks.definitions()


@pytest.mark.parametrize("more", [0, 12])
def test_tracepoints_end_without_waiting_for_each(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would wait for the kernel, one after the other; what must be done at once is that programs do not run."""
    with os.scandir(f"{tracefs.root()}/events/syscalls") as folder:
        names = sorted(item.name for item in folder if item.name.startswith("sys_enter_"))
    wanted = {"sys_enter_getppid", *names[:more]}
    targets = [target(TracepointTarget("syscalls", name), index) for index, name in enumerate(sorted(wanted))]
    specs = (program("count_tracepoint", "tracepoint", *targets),)
    closed: list[int] = []
    close_all = probe_links.close_all

    def close(descriptors: Sequence[int]) -> None:
        closed.extend(descriptors)
        close_all(descriptors)

    monkeypatch.setattr(probe_links, "close_all", close)
    with ExitStack() as stack:
        loaded = Loaded(stack, *specs, pid=os.getpid())
        done = attachments.attach_all(loaded.loaded, specs, AttachOptions(), stack)
        events = [event for part in done.opened.parts() for event in part.idle_events]
        assert len(events) == len(targets)
        os.getppid()
        mine = sorted(wanted).index("sys_enter_getppid")
        assert loaded.counts[mine] == 1
        done.opened.close()
        assert not [event for event in events if os.path.exists(f"/proc/self/fd/{event}")]
        os.getppid()
        assert loaded.counts[mine] == 1
    assert not set(closed) & set(events), "the kernel closes them"
