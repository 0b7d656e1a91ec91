"""pytrace.runtime.output.renderer: handlers by id, what is told of losses, and the end of output."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from pytrace.core.config import Config
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.event_layout import EventSpec, Exit, NoStaticPart
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec, Target
from pytrace.core.probes.targets import NoTarget
from pytrace.core.types import INT64, UINT8, UINT32, UINT64, Buffer, Count
from pytrace.runtime.host.clocks import Clock
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.run_state import RenderOptions
from pytrace.runtime.output.streams import Flush, Output
from tests.support.encode import PLACE, FakeReader, Run, Symbols


def test_unknown_kinds_and_misplaced_ids_are_bugs() -> None:
    for spec in (EventSpec(0, "nonsense", (), NoStaticPart(), PLACE), EventSpec(3, "exit", (), Exit(), PLACE)):
        manifest = Manifest((), (), (spec,), (), Config())
        with pytest.raises(InternalError):
            Renderer(manifest, Output(), Symbols(), FakeReader(), Clock())


# ---------------------------------------------------------------------------------------------- exit, unwatch


def test_exit_ends_output_until_it_is_resumed() -> None:
    run = Run()
    say, leave, leave_with = run.event("printf", format="hit\n"), run.event("exit"), run.event("exit", [INT64])
    run.send(say)
    run.send_many(leave_with, [(7,), (9,)])
    run.send(say)
    run.send(leave)
    assert run.printed() == b"hit\n"
    state = run.renderer.state
    assert (state.exit_requested, state.exit_code) == (True, 7)
    assert run.renderer.ignored == 1, "a further exit() is nothing lost"
    run.renderer.resume()
    run.send(say)
    assert run.printed() == b"hit\n"


@pytest.mark.parametrize(("commands", "printed", "ignored"), [(False, b"hit\n", 0), (True, b"", 1)])
def test_what_comes_after_a_timer_called_exit(commands: bool, printed: bytes, ignored: int) -> None:
    """Programs have stopped then, but for those that had begun; in scripts with commands they go on, which is told."""
    run = Run()
    say, leave = run.event("printf", format="hit\n"), run.event("exit", timed=True)
    if commands:
        run.event("system", format="true")
    run.send(leave)
    run.send(say)
    run.send(leave)
    assert run.printed() == printed
    assert run.renderer.ignored == ignored


@pytest.mark.parametrize(("code", "status"), [(0, 0), (7, 7), (255, 255), (256, 0), (-1, 255)])
def test_the_status_of_exit(code: int, status: int) -> None:
    run = Run()
    run.renderer.exit(code)
    assert (run.renderer.state.exit_requested, run.renderer.state.exit_code) == (True, status)


def test_a_run_that_prints_nothing_needs_no_forms_of_values() -> None:
    run = Run()
    leave = run.event("exit")
    run.send(leave)
    run.renderer.print_rows()
    run.renderer.close()
    assert run.renderer._used is None


def test_the_list_of_handlers_stays_the_same_object() -> None:
    run = Run()
    leave = run.event("exit")
    handlers = run.renderer.handlers
    run.send(leave)
    run.renderer.resume()
    assert run.renderer.handlers is handlers


def test_a_handler_is_made_once_and_kept() -> None:
    run = Run()
    say = run.event("printf", [UINT8], format="%d\n")
    run.send(say, 1)
    kept = run.renderer.handlers[say]
    run.send(say, 2)
    assert run.renderer.handlers[say] is kept
    run.send(say, 3)
    assert run.printed() == b"1\n2\n3\n"


def test_a_pcap_file_that_cannot_be_written_is_known_at_the_start() -> None:
    run = Run()
    run.event("skboutput", [UINT64, UINT32, Buffer(1024)], path="/no/where.pcap")
    with pytest.raises(TraceError, match=r"where\.pcap"):
        run.renderer


def test_packets_are_kept_when_the_output_is_full(tmp_path: Path) -> None:
    path = tmp_path / "out.pcap"
    run = Run()
    run.send(run.event("skboutput", [UINT64, UINT32, Buffer(1024)], path=str(path)), 1_000, 60, b"E" * 40)
    with open("/dev/full", "wb") as full:
        run.output.descriptor = full.fileno()
        run.output.captured = None
        run.output.write(b"text")
        with pytest.raises(TraceError, match="No space left"):
            run.renderer.close()
    assert path.stat().st_size == 24 + 16 + 40


# ---------------------------------------------------------------------------------------------- notices and losses

PROGRAMS = (
    ProgramSpec("p0", "tracepoint", 0, (Target("tracepoint:a:b", 0, NoTarget()),), PLACE),
    ProgramSpec("p1", "kprobe", 1, (Target("kprobe:x", 0, NoTarget()), Target("kprobe:y", 1, NoTarget())), PLACE),
)
MAPS = (MapSpec("@m", "m", "hash", INT64, Count(), 4096),)


class Kept(Output):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__(flush=Flush.FULL, json=as_json)
        self.said = ""
        self.capture()

    def message(self, text: str) -> None:
        self.said += text


def made(*, as_json: bool, options: RenderOptions | None = None) -> tuple[Renderer, Kept]:
    output = Kept(as_json=as_json)
    manifest = Manifest(PROGRAMS, MAPS, (), (), Config())
    return Renderer(manifest, output, Symbols(), FakeReader(), Clock(), options), output


def test_attach_notice() -> None:
    renderer, output = made(as_json=False)
    renderer.attached(1)
    renderer.attached(3)
    assert output.said == "Attached 1 probe\nAttached 3 probes\n"
    renderer, output = made(as_json=True)
    renderer.attached(2)
    assert output.release() == b'{"type": "attached_probes", "count": 2, "data": {"probes": 2}}\n'
    for as_json in (False, True):
        renderer, output = made(as_json=as_json, options=RenderOptions(quiet=True))
        renderer.attached(2)
        assert output.said == ""
        assert output.release() == b""


def test_losses_are_told_as_they_grow_and_summed_up() -> None:
    renderer, output = made(as_json=False)
    renderer.losses({("lost", 0): 0, ("lost", 1): 0, ("map_full", 0): 0})
    assert output.said == ""
    renderer.losses({("lost", 0): 2, ("lost", 1): 3, ("missed", 0): 0})
    renderer.losses({("lost", 0): 2, ("lost", 1): 4, ("map_full", 0): 1, ("missed", 0): 2})
    # A map tells its first dropped update itself, by an event.
    assert output.said == "Lost 5 events\nLost 1 events\nWARNING: 2 probe hits missed (tracepoint:a:b 2)\n"
    output.said = ""
    renderer.summary({("lost", 0): 2, ("lost", 1): 4, ("map_full", 0): 1})
    first, second = output.said.splitlines()
    assert first.startswith(
        "WARNING: in total, 6 events lost (kprobe:x and 1 more 4, tracepoint:a:b 2); increase perf_rb_pages"
    )
    assert second.startswith("WARNING: 1 map update dropped (@m 1); @m holds 4096 keys: increase ")


def test_gaps_are_told_with_what_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", time.gmtime)
    renderer, output = made(as_json=False)
    renderer.gaps([(86_399_250_000_000, 1_500_000_000)], {("skipped", 0): 2, ("skipped", 1): 1})
    first, second = output.said.splitlines()
    assert first == "WARNING: pytrace did not run for a while: probes did nothing for 1.500 s from 23:59:59.250"
    assert second.startswith("WARNING: 3 probe hits skipped while pytrace did not run (")
    output.said = ""
    renderer.losses({("skipped", 0): 2, ("skipped", 1): 1})
    assert output.said == "", "it was said"
    renderer.summary({("skipped", 0): 2, ("skipped", 1): 1})
    assert output.said.startswith("WARNING: in total, 3 probe hits skipped")


def test_gaps_in_json() -> None:
    renderer, output = made(as_json=True)
    renderer.gaps([(5, 7), (20, 1)], {("skipped", 0): 2})
    assert json.loads(output.release()) == {
        "type": "gap", "data": [{"start": 5, "duration": 7}, {"start": 20, "duration": 1}],
        "skipped": {"tracepoint:a:b": 2},
    }  # fmt: skip


def test_what_only_the_end_tells_is_told_once() -> None:
    renderer, output = made(as_json=False)
    totals = {("lost", 0): 2, ("missed", 0): 3}
    renderer.losses(totals, ended=True)
    renderer.summary(totals)
    first, second, third = output.said.splitlines()
    assert first == "Lost 2 events"
    assert second.startswith("WARNING: in total, 2 events lost (tracepoint:a:b 2); ")
    assert third == "WARNING: 3 probe hits missed (tracepoint:a:b 3)"


def test_sums_of_what_was_told_before_say_so() -> None:
    renderer, output = made(as_json=False)
    renderer.losses({("missed", 0): 1})
    renderer.losses({("missed", 0): 3}, ended=True)
    renderer.summary({("missed", 0): 3})
    assert output.said.splitlines() == [
        "WARNING: 1 probe hit missed (tracepoint:a:b 1)",
        "WARNING: in total, 3 probe hits missed (tracepoint:a:b 3)",
    ]


def test_losses_in_json() -> None:
    renderer, output = made(as_json=True)
    renderer.losses({("lost", 0): 2, ("map_full", 0): 1, ("missed", 1): 3})
    renderer.summary({("lost", 0): 2, ("map_full", 0): 1})
    lines = [json.loads(line) for line in output.release().splitlines()]
    assert lines == [
        {"type": "lost_events", "count": 2, "data": {"events": 2}},
        {"type": "failures", "data": {"missed": {"kprobe:x and 1 more": 3}}},
        {"type": "losses", "data": {"lost": {"tracepoint:a:b": 2}, "map_full": {"@m": 1}}, "sizes": {"@m": 4096}},
    ]


def test_nothing_lost_says_nothing() -> None:
    renderer, output = made(as_json=False)
    renderer.summary({("lost", 0): 0})
    assert output.said == ""


def test_starting_is_light() -> None:
    """What a run without users, commands or C libraries does not need is not imported."""
    import subprocess

    code = "import pytrace.runtime.output.renderer, sys; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pwd", "ctypes", "llvmlite", "ply", "subprocess", "socket", "fractions"} & set(loaded)
