"""What a session does beside tracing, in its own thread and between its steps: saving snapshots, serving metrics."""

from __future__ import annotations

from typing import Protocol


class Service(Protocol):
    """Something that a session has time for after it has handled events."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Become readable when there is something for :meth:`work` to do."""

    def begin(self) -> None:
        """The probes are attached."""

    def pause(self, longest: float) -> float:
        """How long to wait for events before :meth:`work` is called, at most *longest* seconds."""

    def work(self) -> None:
        """Do what there is to do; called at each step."""
