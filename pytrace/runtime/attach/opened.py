"""What attaching opened, and closing it fast.

When a program leaves a perf event the kernel waits for all programs that may still run (``perf_event_detach_bpf_prog``
since 6.13, ``perf_trace_event_unreg``), about a tenth of a second each time, but one wait serves all who wait at that
moment.  So links are closed by many threads at once, and then events likewise.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from pytrace.dataclass import dataclass, field

_THREADS = 256
_STACK = 128 << 10
"""Bytes of stack of a thread that only closes files."""


@dataclass(slots=True)
class Opened:
    """Links, perf events and other clean-up steps of attached probes; the owner calls :meth:`close`."""

    links: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    steps: list[Callable[[], object]] = field(default_factory=list)
    """Called last to first, after links and events are closed."""
    traced: dict[str, str] = field(default_factory=dict)
    """Kernel probes made through tracefs: name of the event and symbol of the program."""
    watched: dict[int, Opened] = field(default_factory=dict)
    """Links and events of watchpoints by address: the script may remove them while others stay."""

    def take(self, other: Opened) -> None:
        """Become the owner of all that *other* holds."""
        self.links += other.links
        self.events += other.events
        self.steps += other.steps
        self.traced.update(other.traced)
        for address, part in other.watched.items():
            self.watchpoint(address).take(part)
        other.links, other.events, other.steps, other.traced, other.watched = [], [], [], {}, {}

    def watchpoint(self, address: int) -> Opened:
        """What belongs to the watchpoints on an address."""
        return self.watched.setdefault(address, Opened())

    def unwatch(self, address: int) -> None:
        """Detach the watchpoints on an address, if there are any."""
        part = self.watched.pop(address, None)
        if part is not None:
            part.close()

    def close(self) -> None:
        """Detach: programs first leave their events, then the events go, then the other steps follow."""
        mine = Opened()
        mine.take(self)
        for part in mine.watched.values():
            mine.take(part)
        close_all(mine.links)
        close_all(mine.events)
        for step in reversed(mine.steps):
            step()


def close_all(descriptors: list[int]) -> None:
    """Close descriptors, side by side when there are several."""
    if len(descriptors) < 2:
        for descriptor in descriptors:
            os.close(descriptor)
        return
    import threading

    waiting = deque(reversed(descriptors))
    before = threading.stack_size(_STACK)
    try:
        threads = [threading.Thread(target=_close_some, args=(waiting,)) for _ in descriptors[:_THREADS]]
        for thread in threads:
            thread.start()
    finally:
        threading.stack_size(before)
    for thread in threads:
        thread.join()


def _close_some(waiting: deque[int]) -> None:
    while True:
        try:
            descriptor = waiting.popleft()
        except IndexError:
            return
        os.close(descriptor)
