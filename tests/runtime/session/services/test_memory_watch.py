"""The memory of a run: whether its maps fit, and when it ends because of its limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytrace.base import cgroups
from pytrace.base.cgroups import MemoryLimit
from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest, MapSpec
from pytrace.core.types import INT64
from pytrace.runtime.session.services import memory_watch as module
from pytrace.runtime.session.services.memory_watch import MemoryWatch
from pytrace.runtime.session.services.service import EndOfRun

M = 1 << 20
MAPS = (
    MapSpec("@a", "map_a", "hash", INT64, INT64, 1000),
    MapSpec("@large", "map_large", "hash", INT64, INT64, 2000, keys="keys_large"),
    MapSpec("@n", "", "hash", None, INT64, 1),
)


class Machine:
    """A machine with so much memory, and a run on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: str = "100M", *, embedded: bool = False) -> None:
        self.own, self.backlog, self.charged, self.now = 10 * M, 0, dict[str, int](), 100.0
        self.said: list[str] = []
        monkeypatch.setattr(module, "machine_memory", lambda: (1000 * M, "this machine"))
        monkeypatch.setattr(module, "own_memory", lambda: self.own)
        monkeypatch.setattr(module.map_memory, "of_loaded", lambda _fds: self.charged)
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.watch = MemoryWatch(wanted, Manifest((), MAPS, (), (), Config()), embedded=embedded)

    def load(self, **planned: int) -> None:
        self.watch.admit(planned)
        script = SimpleNamespace(fds_by_symbol=dict)
        self.watch.loaded(cast(Any, script), cast(Any, self), self.said.append, self.said.append)

    def look(self) -> bool:
        self.now += module.EVERY
        self.watch.woken([])
        return self.watch.over


@pytest.mark.parametrize(
    ("wanted", "total", "limit", "origin"),
    [
        ("", 8000 * M, 800 * M, "the default is a tenth of the memory of this machine"),
        ("", 1000 * M, 256 * M, "the default is a tenth of the memory of this machine"),
        ("", 100 * M, 50 * M, "the default is a tenth of the memory of this machine"),
        ("30M", 1000 * M, 30 * M, "max_memory is 30M"),
        ("50%", 1000 * M, 500 * M, "max_memory is 50%"),
        ("2G", 1000 * M, 1000 * M, "max_memory is 2G, but this machine has 1000 MiB"),
    ],
)
def test_limits(wanted: str, total: int, limit: int, origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "machine_memory", lambda: (total, "this machine"))
    assert module.limit(wanted) == (limit, origin)


def test_the_least_of_machine_and_cgroup_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, whole in ((None, "this machine"), (1 << 60, "this machine"), (7 * M, "this memory cgroup")):
        limit = None if allowed is None else MemoryLimit(allowed, "/a")
        monkeypatch.setattr(cgroups, "memory_limit", lambda limit=limit: limit)
        total, name = module.machine_memory()
        assert name == whole
        assert (total == 7 * M) is (allowed == 7 * M)


def test_maps_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    with pytest.raises(TraceError) as found:
        machine.watch.admit({"map_a": 5 * M, "map_large": 60 * M, "keys_large": 30 * M, "events": 16 * M, ".data": M})
    assert found.value.message == (
        "the script needs 122 MiB of memory, more than 100 MiB (max_memory is 100M): @large 90.0 MiB, "
        "the event ring 16.0 MiB, pytrace itself with its symbol caches 10.0 MiB, others 6.0 MiB"
    )
    (hint,) = found.value.hints
    assert hint.startswith("@large has room for 2000 keys: lower max_map_keys, declare it with fewer, or allow more")


def test_a_ring_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError) as found:
        Machine(monkeypatch).watch.admit({"events": 128 * M})
    assert found.value.hints[0].startswith("lower perf_rb_pages, or allow more")


@pytest.mark.parametrize(("size", "told"), [(200, False), (300, True)])
def test_much_memory_of_maps_is_told_before_attaching(
    size: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, "900M")
    machine.charged = {"map_a": size * M + M}
    machine.load(map_a=size * M)
    assert bool(machine.said) is told
    if told:
        assert machine.said == ["Maps take 301 MiB of kernel memory: @a 301 MiB\n"]


def test_a_run_that_passes_its_limit_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.load(map_a=50 * M)
    assert not machine.look()
    machine.own, machine.backlog = 70 * M, 30 * M
    assert machine.look()
    (said,) = machine.said
    assert said == (
        "the run ends, as it takes 120 MiB of memory, more than 100 MiB (max_memory is 100M): @a 50.0 MiB, "
        "pytrace itself with its symbol caches 40.0 MiB, events that wait to be printed 30.0 MiB"
    )
    machine.look()
    assert len(machine.said) == 1
    end = EndOfRun(print_maps=True)
    machine.watch.finish(end)
    assert end.print_maps
    assert end.errors == ["the run was ended at its memory limit of 100 MiB (--max-memory)"]


def test_memory_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.load()
    machine.look()
    machine.own = 200 * M
    machine.watch.woken([])
    assert not machine.watch.over
    assert machine.look()


def test_a_run_below_its_limit_has_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.load(map_a=M)
    machine.look()
    end = EndOfRun(print_maps=True)
    machine.watch.finish(end)
    assert end.errors == []


def test_memory_of_a_program_that_embeds_the_run_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, embedded=True)
    machine.own = 500 * M
    machine.load(map_a=50 * M)
    assert not machine.look()
    machine.backlog = 60 * M
    assert machine.look()


def test_own_memory_is_what_this_process_has_allocated() -> None:
    before = module.own_memory()
    data = bytearray(64 * M)
    data[::4096] = b"x" * (len(data) // 4096)
    assert 60 * M < module.own_memory() - before < 80 * M
