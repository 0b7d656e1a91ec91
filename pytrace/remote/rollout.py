"""Stages of a roll-out: a script runs on a few hosts first, and on more of them after it did no harm there."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from pytrace.core.diagnostics import TraceError, counted
from pytrace.remote.hosts import OVER, Host, State

ALL = "all"
SOAK = 10.0
"""Seconds that a stage is watched."""


def stages(text: str, hosts: int) -> list[int]:
    """The numbers of hosts of ``1,10,all``, each with those of the stages before; the last one is *hosts*.

    Raises:
        TraceError: it is no such list.
    """
    words = text.split(",")
    numbers = [int(word) for word in words[:-1] if word.isascii() and word.isdecimal() and len(word) < 10]
    if words != [*map(str, sorted({*numbers} - {0})), ALL]:
        hints = ("for example --stage 1,10,all: one host, then nine more, then all others",)
        raise TraceError(f"--stage takes rising numbers of hosts and 'all' at the end, not {text!r}", hints=hints)
    return [*(number for number in numbers if number < hosts), hosts]


class Rollout:
    """Which hosts are to be asked, and when."""

    def __init__(self, names: Sequence[str], sizes: Sequence[int], soak: float = SOAK, losses: int = 0) -> None:
        """*losses*: the most that a host may report without stopping it."""
        self._names, self._sizes, self._soak, self._losses = names, sizes, soak, losses
        self.stage = 0
        """Number of stages that were begun."""
        self.asked: Sequence[str] = ()
        """The hosts of all stages that were begun."""
        self.stopped = ""
        """Why no further stage is begun."""
        self._told = 0
        """Stages of which it was told that the script is attached."""

    @property
    def over(self) -> bool:
        """Whether no further host will be asked."""
        return bool(self.stopped) or self.stage == len(self._sizes)

    @property
    def title(self) -> str:
        """The stage in messages; empty if there is one only."""
        return f"stage {self.stage} of {len(self._sizes)}: " if len(self._sizes) > 1 else ""

    def news(self, attached: int | None, noun: str) -> str:
        """The line that the script is attached on all hosts of the stage on which it can be; empty if it was told.

        *attached* is :attr:`pytrace.remote.controller.Controller.attached`.
        """
        if attached is None or self._told == self.stage or self.stopped:
            return ""
        self._told = self.stage
        return f"{self.title}attached on {attached} of {counted(len(self.asked), noun)}"

    def due(self, hosts: Mapping[str, Host]) -> Sequence[str]:
        """The hosts to be asked now: those of the next stage, if the one before did no harm."""
        if self.over:
            return ()
        asked = [hosts[name] for name in self.asked]
        self.stopped = self._harm(asked)
        if self.stopped or not all(map(self._watched, asked)):
            return ()
        before, after = len(self.asked), self._sizes[self.stage]
        self.asked = self._names[:after]
        self.stage += 1
        return self._names[before:after]

    def _watched(self, host: Host) -> bool:
        return host.state in OVER or (host.watched is not None and host.watched >= self._soak)

    def _harm(self, asked: Sequence[Host]) -> str:
        """Why the roll-out stops; empty if it does not."""
        for host in asked:
            if harm := self._harm_of(host):
                return f"{host.name}: {harm}"
        before = self._sizes[self.stage - 2] if self.stage > 1 else 0
        if asked and all(host.state is State.FAILED for host in asked[before:]):
            return f"no host of stage {self.stage} could be asked"
        return ""

    def _harm_of(self, host: Host) -> str:
        if host.over_budget:
            return "tracing took more than --budget"
        if host.lost > self._losses:
            return f"it lost {counted(host.lost, 'event')}, more than {self._losses}"
        if host.state in (State.REFUSED, State.CUT_SHORT, State.LOST, State.SILENT):
            return host.text
        return f"its script ended with status {host.status}" if host.status else ""


class Relayed:
    """The hosts that the controller of a gateway has asked for; it decides about stages."""

    stopped = ""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: list[str] = []
        self.asked: list[str] = []
        """All that were asked for."""
        self.over = False
        """Whether no further host will be asked."""

    def add(self, names: Sequence[str]) -> None:
        """Hosts are to be asked."""
        with self._condition:
            self.asked += names
            self._waiting += names
            self._condition.notify()

    def close(self) -> None:
        """No others will be."""
        with self._condition:
            self.over = True
            self._condition.notify()

    def wait(self) -> bool:
        """Wait for hosts to be asked. Returns whether there are any."""
        with self._condition:
            self._condition.wait_for(lambda: self.over or self._waiting)
            return bool(self._waiting)

    def due(self, hosts: Mapping[str, Host]) -> Sequence[str]:  # noqa: ARG002
        """The hosts to be asked now."""
        with self._condition:
            names, self._waiting = self._waiting, []
            return names

    def news(self, attached: int | None, noun: str) -> str:  # noqa: ARG002
        """Nothing is told here."""
        return ""
