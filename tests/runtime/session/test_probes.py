"""Probes of a run: attached with the options of the run, and detached once. The kernel is a fake."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.core.config import Config
from pytrace.core.manifest import Manifest, ProgramSpec
from pytrace.core.options.process_filters import ProcessFilters
from pytrace.core.options.run_options import RunOptions
from pytrace.runtime.load import attachments, kernel_probes, probe_links
from pytrace.runtime.load.attachments import Attached, Attachments, AttachOptions, Failure
from pytrace.runtime.load.probe_links import CpuEvents, Opened
from pytrace.runtime.machine import perf
from pytrace.runtime.session.probes import Probes
from pytrace.runtime.session.services import NoHeartbeat
from tests.support.fake_run import program

PROBE = program("kprobe")


class Kernel:
    """Attaches what it is asked to; *missed* is what it has left out."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[AttachOptions] = []
        self.opened = Opened()
        self.failures: tuple[Failure, ...] = ()
        self.services: tuple[Attached, ...] = ()
        self.closed = 0
        self.missed = 0
        self.said: list[str] = []
        self.unwound: list[int] = []
        self.stack = ExitStack()
        patch.setattr(attachments, "attach_all", self.attach_all)
        patch.setattr(probe_links, "MissReader", lambda *_: self)

    def attach_all(self, _loaded: Any, programs: Any, options: AttachOptions, stack: ExitStack) -> Attachments:
        self.asked.append(options)
        stack.callback(self.close)
        attached = tuple(Attached(spec, target) for spec in programs for target in spec.targets)
        return Attachments(attached, self.failures, self.opened, self.services)

    def close(self) -> None:
        self.closed += 1

    def totals(self) -> dict[tuple[str, int], int]:
        return {("recursion", 0): self.missed}

    def warn(self, text: str, hints: tuple[str, ...] = ()) -> None:
        self.said += [text, *hints]

    def probes(
        self, *programs: ProgramSpec, command: int | None = None, follow_map: str = "", **options: Any
    ) -> Probes:
        manifest = Manifest(programs, (), (), (), Config(missing_probes="warn"), follow_map=follow_map)
        loaded = SimpleNamespace(manifest=manifest, map_fd=lambda _: 5, stop_programs=lambda: None)
        processes = SimpleNamespace(add=self.unwound.append)
        made = Probes(
            cast(Any, loaded), RunOptions(**options), command, cast(Any, processes), cast(Any, self), NoHeartbeat()
        )
        self.stack.enter_context(made.links)
        return made


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    made = Kernel(monkeypatch)
    with made.stack:
        yield made


def test_programs_that_are_run_by_hand_need_no_kernel(kernel: Kernel) -> None:
    assert kernel.probes(program("begin"), program("end")).attach() == []
    assert kernel.asked == []


@pytest.mark.parametrize(
    ("options", "command", "pids"),
    [({}, None, ()), ({"filters": ProcessFilters((7, 8))}, None, (7, 8)), ({}, 9, (9,)), ({"follow": True}, 9, (9,)),
     ({"filters": ProcessFilters(comms=("x",))}, 9, ())],
)
def test_probes_of_processes(
    options: dict[str, Any], command: int | None, pids: tuple[int, ...], kernel: Kernel
) -> None:
    (attached,) = kernel.probes(PROBE, command=command, **options).attach()
    assert attached.spec is PROBE
    (asked,) = kernel.asked
    assert (asked.pids, asked.child) == (pids, command)


def test_what_could_not_be_attached_is_a_warning(kernel: Kernel) -> None:
    kernel.failures = (Failure(PROBE.targets[0], "no such function", ("look",)),)
    kernel.probes(PROBE).attach()
    assert "no such function" in kernel.said[0]
    assert kernel.said[1:] == ["look"]


def test_misses_are_those_at_the_moment_of_detaching(kernel: Kernel) -> None:
    probes = kernel.probes(PROBE)
    assert probes.missed() == {}
    probes.attach()
    kernel.missed = 3
    assert probes.missed() == {("recursion", 0): 3}
    kernel.missed = 4
    probes.detach()
    kernel.missed = 9
    assert probes.missed() == {("recursion", 0): 4}


def test_probes_are_detached_once(kernel: Kernel) -> None:
    probes = kernel.probes(PROBE)
    probes.attach()
    before = probes.period()
    probes.detach()
    after = probes.period()
    probes.detach()
    assert kernel.closed == 1
    assert before[0] == after[0]
    assert probes.period() == after


def test_the_stack_detaches_too(kernel: Kernel) -> None:
    kernel.probes(PROBE).attach()
    kernel.stack.close()
    assert kernel.closed == 1


def test_watchpoints_that_are_to_go(kernel: Kernel) -> None:
    probes = kernel.probes(PROBE)
    probes.attach()
    for address in (1, 2, 3):
        kernel.opened.watchpoint(address)
    probes.unwatch(1)
    probes.unwatch(2)
    assert list(kernel.opened.watched) == [3]


def test_descendants_need_an_iterator(kernel: Kernel) -> None:
    kernel.probes(PROBE, follow_map="f", filters=ProcessFilters((7,)), follow=True).attach()
    assert kernel.said == ["processes that 7 forked earlier are not followed: the kernel has no task iterator"]


def test_descendants_are_followed_and_unwound(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_probes, "include_descendants", lambda *_: ([21, 22], 1))
    kernel.services = (Attached(PROBE, PROBE.targets[0], iterator=4),)
    kernel.probes(PROBE, follow_map="f", filters=ProcessFilters((7,)), follow=True).attach()
    assert kernel.unwound == [21, 22]
    assert kernel.said == ["1 processes that 7 forked earlier are not followed: there are too many"]


def test_events_of_cpus_are_attached_again(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each CPU that comes online; of a timer on one CPU only when that one goes."""
    asked: list[tuple[str, int]] = []

    def attach(name: str) -> Callable[[int, Opened], None]:
        def attached(cpu: int, _part: Opened) -> None:
            asked.append((name, cpu))
            if cpu == 7:
                raise OSError(errno.EBUSY, "Device or resource busy")

        return attached

    monkeypatch.setattr(perf, "online_cpus", lambda: [0])
    every, single = CpuEvents("profile:hz:1", attach("p")), CpuEvents("interval:s:1", attach("i"), one=True)
    for cpu in (0, 1):
        every.add(cpu)
    single.add(1)
    asked.clear()
    kernel.opened.cpu_events += [every, single]
    probes = kernel.probes(PROBE)
    probes.attach()
    assert probes.renew(1, online=False) == (["interval:s:1"], [])
    assert (asked, list(every.parts), list(single.parts)) == ([("i", 0)], [0], [0])
    assert probes.renew(1, online=True) == (["profile:hz:1"], [])
    assert (asked[1:], sorted(every.parts), list(single.parts)) == ([("p", 1)], [0, 1], [0])
    # Offline and online again before anybody looked.
    assert probes.renew(0, online=True) == (["profile:hz:1", "interval:s:1"], [])
    failure = "profile:hz:1 does not observe it: Device or resource busy"
    assert probes.renew(7, online=True) == ([], [failure])


def test_which_probes_depend_on_cpus(kernel: Kernel) -> None:
    probes = kernel.probes(PROBE)
    probes.attach()
    assert not probes.depend_on({0, 1})
    events = kernel.opened.cpu_events
    events.append(CpuEvents("interval:s:1", lambda *_: None, one=True, parts={0: Opened()}))
    assert [probes.depend_on(cpus) for cpus in ({1}, {0, 1}, set())] == [False, True, False]
    events.append(CpuEvents("profile:hz:1", lambda *_: None, parts={0: Opened(), 1: Opened()}))
    assert [probes.depend_on(cpus) for cpus in ({1}, set())] == [True, False]
