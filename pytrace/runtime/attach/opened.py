"""What attaching opened, and how it is closed: see :mod:`pytrace.runtime.attach.closing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.runtime.attach.closing import close_all, close_later

if TYPE_CHECKING:
    from collections.abc import Callable


class Opened(msgspec.Struct):
    """Links, perf events and other clean-up steps of attached probes; the owner calls :meth:`close`."""

    links: list[int] = msgspec.field(default_factory=list)
    events: list[int] = msgspec.field(default_factory=list)
    idle_events: list[int] = msgspec.field(default_factory=list)
    """Events of tracepoints that have nothing to do once their links are closed."""
    steps: list[Callable[[], object]] = msgspec.field(default_factory=list)
    """Called last to first, after links and events are closed."""
    traced: dict[str, str] = msgspec.field(default_factory=dict)
    """Kernel probes made through tracefs: name of the event and symbol of the program."""
    watched: dict[int, Opened] = msgspec.field(default_factory=dict)
    """Links and events of watchpoints by address: the script may remove them while others stay."""

    def take(self, other: Opened) -> None:
        """Become the owner of all that *other* holds."""
        self.links += other.links
        self.events += other.events
        self.idle_events += other.idle_events
        self.steps += other.steps
        self.traced.update(other.traced)
        for address, part in other.watched.items():
            self.watchpoint(address).take(part)
        other.links, other.events, other.idle_events = [], [], []
        other.steps, other.traced, other.watched = [], {}, {}

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
        close_later(mine.idle_events)
        for step in reversed(mine.steps):
            step()

