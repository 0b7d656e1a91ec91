"""The event ring on this kernel: nothing lost that was not counted, order, limits, failing handlers."""

from __future__ import annotations

import os
import struct
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from pytrace.core.diagnostics import InternalError
from pytrace.core.probes.targets import TracepointTarget
from pytrace.render.events import each
from pytrace.runtime.load import attachments
from pytrace.runtime.load.attachments import AttachOptions
from pytrace.runtime.output.batches import Handlers
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.session import child
from pytrace.runtime.session.consumer import EventLoop
from pytrace.runtime.session.services import CounterReader
from tests.support.loading import Loaded, program, target

pytestmark = pytest.mark.usefixtures("no_leaks")


def flood(stack: ExitStack, programs: Path, times: int, **config: int) -> tuple[Loaded, child.Child]:
    process = child.start(f"{programs / 'flood'} {times}", stack)
    spec = program("event_tracepoint", "tracepoint", target(TracepointTarget("syscalls", "sys_enter_getppid"), 77))
    loaded = Loaded(stack, spec, pid=process.pid, **config)
    attachments.attach_all(loaded.loaded, [spec], AttachOptions(), stack)
    return loaded, process


def test_received_and_lost_make_all(programs: Path) -> None:
    with ExitStack() as stack:
        loaded, process = flood(stack, programs, 300_000)
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        loop = EventLoop(reader, stack)
        numbers: list[int] = []

        def take(data: bytes, offset: int, length: int, stride: int, count: int) -> None:
            assert length == 32
            for place in range(offset, offset + count * stride, stride):
                number, pid, cookie = struct.unpack_from("=8xQQQ", data, place)
                assert (pid, cookie) == (process.pid, 77)
                numbers.append(number)

        process.release()
        drained = 0
        while process.poll() is None or reader.pending:
            loop.wait(0.05, drained)
            drained = reader.drain(Handlers([take]), 10_000)
        lost = CounterReader(loaded.loaded).totals().get(("lost", 0), 0)
        assert len(numbers) + lost == loaded.hits == 300_000
        assert lost < 3_000


def test_small_ring_loses_and_counts(programs: Path) -> None:
    with ExitStack() as stack:
        loaded, process = flood(stack, programs, 50_000, perf_rb_pages=1)
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        counters = CounterReader(loaded.loaded)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        got = reader.drain(Handlers([lambda data, offset, length, stride, count: None]))
        assert 0 < got < 200
        assert counters.totals() == {("lost", 0): 50_000 - got}


def test_limit_and_failing_handler(programs: Path) -> None:
    with ExitStack() as stack:
        loaded, process = flood(stack, programs, 1000)
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        seen: list[int] = []
        handler = each(lambda _data, offset: seen.append(offset))
        assert reader.drain(Handlers([handler]), 100) == 100
        assert [later - first for first, later in pairwise(seen)] == [40] * 99

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            reader.drain(Handlers([fail]), 100)
        assert reader.drain(Handlers([handler])) == 800
        assert not reader.pending


def test_unknown_event_id(programs: Path) -> None:
    with ExitStack() as stack:
        loaded, process = flood(stack, programs, 3)
        reader = RingReader(loaded.loaded.map_fd("events"), stack)
        process.release()
        os.waitid(os.P_PIDFD, process.descriptors[0], os.WEXITED | os.WNOWAIT)
        with pytest.raises(InternalError, match="unknown id 0"):
            reader.drain(Handlers([]))
