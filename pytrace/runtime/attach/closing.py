"""Closing what attached probes hold, of which each close waits for the kernel.

When a program leaves a perf event the kernel waits for all programs that may still run (``perf_event_detach_bpf_prog``
since 6.13), some hundredths of a second each time, but one wait serves all who wait at that moment. So links are
closed by many threads at once, and then events likewise.

The last event of a tracepoint waits under a global lock (``event_mutex`` in ``perf_trace_destroy``), so threads do not
help. But once its link is closed nothing runs any more and nothing depends on when the event goes. They are therefore
left to the kernel: a BPF map of perf events holds the files (``kernel/bpf/arraymap.c``), and the map's end closes them
in a kernel worker, one after the other, when nobody waits.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from typing import TYPE_CHECKING

from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import MapType
from pytrace.runtime.abi import bpf_maps, perf

if TYPE_CHECKING:
    from collections.abc import Sequence

_THREADS = 256
_STACK = 128 << 10
"""Bytes of stack of a thread that only closes files."""


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors, side by side when there are several."""
    waiting = deque(reversed(descriptors))
    if len(waiting) > 1:
        _close_by_threads(waiting)
    # The only one, or those for which the machine gives no thread.
    _close_some(waiting)


def _close_by_threads(waiting: deque[int]) -> None:
    before = threading.stack_size(_STACK)
    running: list[threading.Thread] = []
    try:
        for _ in range(min(len(waiting), _THREADS)):
            thread = threading.Thread(target=_close_some, args=(waiting,), daemon=True)
            thread.start()
            running.append(thread)
    except RuntimeError:
        # No more threads (ulimit -u, ulimit -v): those that there are do it.
        pass
    finally:
        threading.stack_size(before)
    for thread in running:
        thread.join()


def _close_some(waiting: deque[int]) -> None:
    while True:
        try:
            descriptor = waiting.popleft()
        except IndexError:
            return
        os.close(descriptor)


def close_later(events: Sequence[int]) -> None:
    """Close perf events of tracepoints that no program is on: the kernel's worker does it."""
    holder = _hand_over(events) if events else None
    if holder is None:
        close_all(events)
        return
    for event in events:
        os.close(event)
    os.close(holder)


def _hand_over(events: Sequence[int]) -> int | None:
    """A map that holds *events*, which are switched off; None where the kernel refuses."""
    try:
        holder = bpf_maps.create(MapType.PERF_EVENT_ARRAY, 4, 4, len(events), name="closing")
    except (OSError, TraceError):
        return None
    try:
        for index, event in enumerate(events):
            perf.disable(event)
            bpf_maps.update(holder, struct.pack("=I", index), struct.pack("=I", event))
    except OSError:
        os.close(holder)
        return None
    return holder
