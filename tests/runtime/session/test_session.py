"""pytrace.runtime.session.session: the order of a run, and what ends it. tests/kernel runs whole sessions."""

from __future__ import annotations

import os
import struct
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.core.config import Config
from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import Location
from pytrace.core.manifest import CompiledScript, Manifest, ProgramSpec, SessionData, Target
from pytrace.core.options.run_options import RunOptions
from pytrace.core.probes.targets import NoTarget
from pytrace.runtime.attach.attachments import Attached
from pytrace.runtime.session import session as module
from pytrace.runtime.session.session import Session

HERE = Location("script.bt", 1, 1)


def program(kind: str, symbol: str = "", *, service: bool = False, targets: int = 1) -> ProgramSpec:
    places = tuple(Target(f"{kind}:{at}", at, NoTarget()) for at in range(targets))
    return ProgramSpec(symbol or f"{kind}_0", kind, 0, places, HERE, service=service)


class Bare(Session):
    """A session whose parts only note that they were called."""

    def __init__(self, *programs: ProgramSpec, **options: Any) -> None:
        self.order: list[str] = []
        self.options = RunOptions(**options)
        self._by_kind = module._by_kind(programs)
        self.told: list[str] = []
        self.state = SimpleNamespace(exit_requested=False, exit_code=0, assertion_failed=False)
        self.ring = SimpleNamespace(noticed=False, discard=lambda: self.order.append("discard"))
        parts: dict[str, Any] = {
            "loaded": SimpleNamespace(
                run=self.order.append, manifest=SimpleNamespace(session=None, maps=(1,), config=Config(), follow_map="")
            ),
            "output": SimpleNamespace(
                message=self.told.append, flush=lambda: self.order.append("flush"), broken=False, json=False,
                csv=False, terminal=False,
                gave_up=False, events_over=False, drop=lambda: self.order.append("drop"),
            ),
            "renderer": SimpleNamespace(
                state=self.state, printed_nothing=True, attached=lambda count: self.order.append(f"attached {count}"),
                print_rows=lambda: self.order.append("rows"), print_maps=lambda: self.order.append("maps"),
                summary=lambda _: self.order.append("summary"),
                losses=lambda *_, **__: self.order.append("losses"), resume=lambda: self.order.append("resume"),
                exit=lambda status: self.order.append(f"exit {status}"),
                broken_off=lambda totals: self.order.append(f"broken off {sorted(totals)}"),
            ),
            "_consumer": SimpleNamespace(
                finish=lambda: self.order.append("finish"), drain=lambda: self.order.append("drain"),
                totals=lambda: {("unprinted", 0): 1}, break_off=lambda: self.order.append("break"),
            ),
            "_symbols": SimpleNamespace(hurry=lambda _: None, notices=lambda: ["no lines of x"], descriptors=[]),
            "_counters": SimpleNamespace(totals=lambda: {("lost", 0): 2}),
            "_links": SimpleNamespace(close=lambda: self.order.append("detach")),
            "_requests": EndRequests(), "_signals": SimpleNamespace(take=list, fileno=lambda: 3), "_ring": self.ring,
            "_loop": SimpleNamespace(watch=lambda _: None), "_end_reached": False,
            "_end": SimpleNamespace(
                start=lambda _: None, pause=lambda longest: longest, reached=lambda ready: 9 in ready,
            ),
            "_embedding": None, "_saving": None, "_missed": {}, "_detached": None,
            "_misses": None, "_child": None, "_ahead": None, "_unwinder": None, "_summed_up": False,
            "_services": [],
        }  # fmt: skip
        for name, value in parts.items():
            setattr(self, name, value)

    def _attach(self) -> list[Attached]:
        self.order.append("attach")
        return [Attached(spec, target) for spec in self.programs("kprobe") for target in spec.targets]

    def step(self, longest: float = 1.0) -> bool:
        if not self.options.dry_run and not self._ended:
            self.order.append("wait")
        return False


BEGIN, END, PROBE = program("begin"), program("end"), program("kprobe")


def test_the_order_of_a_run() -> None:
    made = Bare(BEGIN, PROBE, END)
    assert made.run() == 0
    assert made.order == [
        "begin_0", "attach", "attached 3", "drain", "wait", "detach", "finish", "resume", "end_0", "drain", "finish",
        "rows", "losses", "flush", "maps", "summary",
    ]  # fmt: skip
    assert made.told == ["WARNING: no lines of x\n"]


def test_a_dry_run_runs_nothing() -> None:
    made = Bare(BEGIN, PROBE, END, dry_run=True)
    made.run()
    assert made.order == ["attach", "attached 3", "detach", "discard", "losses", "flush", "summary"]


def test_an_exit_in_a_begin_probe_waits_for_nothing() -> None:
    made = Bare(BEGIN, PROBE, END)
    made.state.exit_requested, made.state.exit_code = True, 7
    assert made.run() == 7
    assert "wait" not in made.order
    assert "end_0" in made.order
    assert "maps" in made.order


def test_an_assertion_that_failed_prints_no_maps() -> None:
    made = Bare(PROBE)
    made.state.assertion_failed = True
    made.run()
    assert "maps" not in made.order
    assert "summary" in made.order


@pytest.mark.parametrize(
    ("programs", "count"),
    [
        ((PROBE,), 1),
        ((program("kprobe", targets=3),), 3),
        ((BEGIN, END, program("self")), 3),
        ((PROBE, program("tracepoint", service=True)), 1),
    ],
)
def test_probes_are_counted(programs: tuple[ProgramSpec, ...], count: int) -> None:
    made = Bare(*programs)
    made.run()
    assert f"attached {count}" in made.order


def test_a_probe_with_several_places_counts_once() -> None:
    places = tuple(Target("usdt:x:y", at, NoTarget()) for at in range(3))
    made = Bare(ProgramSpec("p", "kprobe", 0, places, HERE))
    made.run()
    assert "attached 1" in made.order


@pytest.mark.parametrize(("kinds", "hints"), [((), ()), (("test", "bench"), ("--test", "--bench"))])
def test_nothing_to_attach(kinds: tuple[str, ...], hints: tuple[str, ...]) -> None:
    with pytest.raises(TraceError, match="no probe could be attached") as raised:
        Bare(*map(program, kinds)).run()
    assert len(raised.value.hints) == len(hints)
    assert all(option in hint for option, hint in zip(hints, raised.value.hints, strict=True))


def test_a_second_signal_tells_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = Bare(PROBE)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert made.order[-3:] == ["detach", "break", "broken off [('lost', 0), ('unprinted', 0)]"]


def test_a_second_signal_while_maps_print(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = Bare(PROBE)

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(made.renderer, "print_maps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert "drop" in made.order
    assert made.told == ["WARNING: not all maps were printed because of the interrupt\n"]


def test_nothing_printed_is_told_at_a_terminal_only() -> None:
    told = {}
    for name, facts in {
        "terminal": {"terminal": True}, "file": {}, "json": {"terminal": True, "json": True},
        "csv": {"terminal": True, "csv": True},
    }.items():  # fmt: skip
        made = Bare(PROBE)
        for key, value in facts.items():
            setattr(made.output, key, value)
        made.run()
        told[name] = [line for line in made.told if line.startswith("No event in")]
    assert [len(lines) for lines in told.values()] == [1, 0, 0, 0]


def test_warnings_can_be_left_out() -> None:
    made = Bare(PROBE, warnings=False)
    made.run()
    assert made.told == []


@pytest.mark.parametrize(
    ("programs", "command", "over"),
    [((BEGIN, END), None, True), ((BEGIN, program("iter")), None, True), ((BEGIN, PROBE), None, False),
     ((BEGIN,), "sleep 1", False), ((program("self"),), None, False)],
)  # fmt: skip
def test_runs_that_are_over_once_all_is_attached(
    programs: tuple[ProgramSpec, ...], command: str | None, over: bool
) -> None:
    assert Bare(*programs, command=command)._over_at_once is over


def test_a_step_waits_and_handles_what_came() -> None:
    made: Any = Bare(PROBE)
    waited: list[float] = []
    made._consumer.wait = lambda _loop, longest: waited.append(longest) or []
    made._consumer.turn = lambda: 1
    made._symbols.poll = lambda: made.order.append("poll")
    made._next_report = float("inf")
    assert Session.step(made, 0.25) is True
    assert (waited, made.order) == ([0.25], ["poll"])


def test_a_step_after_the_end_of_the_traced_process_is_none() -> None:
    made: Any = Bare(PROBE)
    made._consumer.wait = lambda _loop, _longest: [9]
    made._consumer.turn = lambda: 0
    made._symbols.poll = lambda: None
    made._next_report = float("inf")
    assert [Session.step(made), Session.step(made)] == [False, False]
    made._end_reached = False
    made.state.exit_requested = True
    assert Session.step(made) is False


def test_an_exit_for_whose_event_there_was_no_room() -> None:
    made: Any = Bare(PROBE)
    made._look_for_exit()
    memory = bytearray(48)
    made.loaded.manifest.session = SessionData("session", 0, 8, 16, 24, 32, 40, 64)
    made.loaded.section = lambda name: memoryview(memory)
    made._look_for_exit()
    assert made.order == []
    # 1 more than the status.
    struct.pack_into("=Q", memory, 40, 8)
    made._look_for_exit()
    assert made.order == ["exit 7"]


@pytest.mark.parametrize(
    ("status", "text"), [(0, "exited with status 0"), (3, "exited with status 3"), (-9, "was killed by signal 9")]
)
def test_how_a_command_ended(status: int, text: str) -> None:
    made: Any = Bare(PROBE, verbose=True)
    made._child = SimpleNamespace(poll=lambda: status)
    made._tell_child()
    assert made.told == [f"the command {text}\n"]
    quiet: Any = Bare(PROBE)
    quiet._child = made._child
    quiet._tell_child()
    assert quiet.told == []


def test_watchpoints_that_are_to_go() -> None:
    made: Any = Bare(PROBE)
    gone: list[int] = []
    made._opened = SimpleNamespace(unwatch=gone.append)
    addresses = [1, 2]
    made._unwatch(addresses)
    assert (sorted(gone), addresses) == ([1, 2], [])


@pytest.mark.parametrize(("mode", "by_hand"), [("run", False), ("test", True), ("bench", True)])
def test_modes(mode: str, by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytrace.runtime.session import test_runs

    def make(script: CompiledScript, options: RunOptions, stack: ExitStack) -> Any:
        return SimpleNamespace(run=lambda: 1)

    monkeypatch.setattr(module, "Session", make)
    monkeypatch.setattr(test_runs, "run", lambda _: 2)
    script = CompiledScript(b"", Manifest((), (), (), (), Config()))
    assert module.run(script, RunOptions(mode=mode)) == (2 if by_hand else 1)


@pytest.mark.parametrize(("name", "waits"), [("NOTIFY_SOCKET", True), ("__PYTRACE_NOTIFY_PROBES_ATTACHED", True)])
def test_somebody_waits(name: str, waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in list(os.environ):
        if "NOTIFY" in known:
            monkeypatch.delenv(known)
    assert not module._somebody_waits()
    monkeypatch.setenv(name, "x")
    assert module._somebody_waits() is waits
