"""Output of maps and heat maps, in each form."""

from __future__ import annotations

import json
import os
import pty
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.event_layout import EventSpec, Exit, NoStaticPart
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec, Target
from pytrace.core.options import Config
from pytrace.core.probe_kinds import NoTarget
from pytrace.core.types import INT64, UINT8, UINT32, UINT64, Buffer, Count, Hist, LHist
from pytrace.render.text import Bars
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.output.renderer import Renderer, RenderOptions
from pytrace.runtime.output.streams import Flush, Output
from pytrace.runtime.session.live_view import CoveredOutput
from pytrace.runtime.session.services import histograms, unprinted
from tests.support.encode import PLACE, FakeReader, Run, Symbols, encode

# ---------------------------------------------------------------------------------------------- renderer
# pytrace.runtime.output.renderer: handlers by id, what is told of losses, and the end of output.


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
    assert "forms" not in vars(run.renderer)


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


# ---------------------------------------------------------------------------------------------- map output
# Views of maps; their text is tested where maps are printed.


def test_a_view_is_created_once() -> None:
    run = Run()
    run.keyed("@m", INT64, INT64, {1: 5})
    maps = run.renderer.maps
    assert maps.view("@m") is maps.view("@m")
    with pytest.raises(InternalError, match="an event names @other, a map that the script does not have"):
        maps.view("@other")


def test_what_grew_is_among_the_greatest() -> None:
    """The live view shows what is busy now, not only what was busy once."""
    run = Run()
    old = {key: 1000 + key for key in range(100)}
    run.keyed("@m", INT64, Count(), {**old, 500: 1, 501: 2})
    view = run.renderer.maps.view("@m")
    first, total = view.greatest(10, lambda: None)
    assert (len(first), total) == (10, 102)
    run.keyed("@m", INT64, Count(), {**old, 500: 7, 501: 2, 502: 3})
    again, total = view.greatest(10, lambda: None)
    assert (len(again), total) == (10, 103)
    assert {key for key, _ in again} >= {500, 502, 99, 98, 97, 96, 95}


# ---------------------------------------------------------------------------------------------- covered output
# .


class Terminal:
    """A terminal, and an output that goes to it or to a file."""

    def __init__(self, path: Path | None = None) -> None:
        self._theirs, self._ours = pty.openpty()
        os.set_blocking(self._theirs, False)
        self.output = CoveredOutput(
            self._ours if path is None else os.open(path, os.O_WRONLY | os.O_CREAT), messages=self._ours,
            flush=Flush.LINE, json=False, csv=False, colour=False, raw=False, requests=EndRequests(),
            owned=path is not None,
        )  # fmt: skip

    def shown(self) -> str:
        data = b""
        with suppress(BlockingIOError):
            while True:
                data += os.read(self._theirs, 1 << 16)
        return data.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.output.close()
        os.close(self._theirs)
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_the_terminal_gets_what_nobody_has_seen_and_all_messages(terminal: Terminal) -> None:
    output = terminal.output
    output.write(b"before\n")
    output.flush()
    output.cover()
    output.write(b"one\n")
    output.message("WARNING: first\n")
    output.end_batch()
    assert terminal.shown() == "before\n"
    assert output.take() == (b"before\none\nWARNING: first\n", 0)
    assert output.take() == (b"", 0)
    output.seen(1)
    output.write(b"two\n")
    output.end_batch()
    assert output.take() == (b"two\n", 0)
    output.collect(b"of a child\n")
    output.message("WARNING: second\n")
    output.end_batch()
    output.uncover()
    assert terminal.shown() == "two\nof a child\nWARNING: first\nWARNING: second\n"
    output.uncover()
    output.write(b"after\n")
    output.flush()
    assert terminal.shown() == "after\n"
    assert output.accepted == 5, "each part counts once, and what was not seen again"


def test_a_message_waits_for_the_end_of_a_line(terminal: Terminal) -> None:
    output = terminal.output
    output.cover()
    output.write(b"half ")
    output.message("WARNING: x\n")
    output.write(b"whole\n")
    output.flush()
    assert output.take() == (b"half whole\nWARNING: x\n", 0)


def test_the_log_begins_with_what_was_printed_before(terminal: Terminal) -> None:
    output = terminal.output
    output.write(b"PID COMM\n")
    output.message("Attached 1 probe\n")
    output.message("WARNING: x\n")
    output.flush()
    output.cover()
    assert terminal.shown() == "PID COMM\nAttached 1 probe\nWARNING: x\n"
    assert output.take() == (b"PID COMM\nWARNING: x\n", 0)
    output.uncover()
    assert terminal.shown() == "", "it has been printed"


def test_the_log_is_bounded(terminal: Terminal) -> None:
    output = terminal.output
    output.cover()
    for _ in range(100):
        output.write(b"x" * 9_999 + b"\n")
        output.flush()
    data, dropped = output.take()
    assert len(data) + dropped == 1_000_000
    assert len(data) <= 1 << 17


def test_a_file_gets_its_output_while_the_terminal_is_covered(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "out")
    terminal.output.cover()
    terminal.output.write(b"line\n")
    terminal.output.message("WARNING: x\n")
    terminal.output.flush()
    terminal.output.collect(b"of the command\n")
    assert terminal.shown() == ""
    terminal.output.uncover()
    assert terminal.shown() == "of the command\nWARNING: x\n"
    assert (tmp_path / "out").read_text() == "line\n"
    terminal.close()


# ---------------------------------------------------------------------------------------------- heat output
# ``--heat``: changes of histograms as lines, whoever empties the map.


def heated(bars: Bars = Bars.SIGNS) -> Run:
    return Run(options=RenderOptions(heat=bars))


def buckets(**counts: int) -> tuple[int, ...]:
    """The buckets of a ``hist``: ``b3=5`` for five values in the third."""
    return tuple(counts.get(f"b{number}", 0) for number in range(Hist().buckets))


def update(run: Run, name: str, counts: tuple[int, ...]) -> None:
    run.reader.slots[name] = (True, encode(Hist(), counts))


def lines(run: Run) -> list[str]:
    """The printed lines without the time."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in run.printed_text().splitlines()]


def test_each_line_is_the_change_since_the_last() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=1))
    run.renderer.print_heat(["@h"])
    assert lines(run) == ["@h: .1 :4 -16 =64 +256 *1K #4K %16K @64K", "TIME     |2        TOTAL", "....          1"]
    update(run, "@h", buckets(b3=6))
    run.renderer.print_heat(["@h"])
    run.renderer.print_heat(["@h"])
    run.renderer.print_heat(["@h"], rest=True)
    assert lines(run) == ["::::          5", "              0"], "the rest is nothing, and is not printed"


def test_a_wider_range_has_a_new_heading() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=1))
    run.renderer.print_heat(["@h"])
    update(run, "@h", buckets(b3=1, b5=4))
    run.renderer.print_heat(["@h"])
    assert lines(run)[3:] == [
        "@h: .1 :4 -16 =64 +256 *1K #4K %16K @64K", "TIME     |2  |4  |8  |16 |32       TOTAL",
        "        ::::                  4",
    ]  # fmt: skip
    update(run, "@h", buckets(b3=1, b4=1, b5=4))
    run.renderer.print_heat(["@h"])
    assert lines(run) == ["    ....                      1"]


def test_a_map_that_counts_nothing_has_no_line() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets())
    run.renderer.print_heat(["@h"])
    assert lines(run) == []


def test_keys_are_one_histogram() -> None:
    run = heated()
    run.bucketed("@h", INT64, LHist(0, 40, 10), {1: {1: 3, 2: 1}, 2: {2: 9}})
    run.renderer.print_heat(["@h"])
    assert lines(run)[1:] == ["TIME     |0  |10       TOTAL", "....::::         13"]


def test_prints_of_the_script_are_lines_until_the_run_ends() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=2))
    run.scalar("@n", Count(), 5)
    show, other = run.event("print_map", map="@h"), run.event("print_map", map="@n")
    empty, divided = run.event("clear", map="@h"), run.event("print_map", map="@h", div=2)
    run.send(show)
    run.send(other)
    assert lines(run)[2:] == ["....          2", "@n: 5"]
    run.send(empty)
    update(run, "@h", buckets(b3=3))
    # The baseline of what was emptied is subtracted, so one value is left.
    run.send(show)
    assert lines(run) == ["....          1"]
    update(run, "@h", buckets(b3=11))
    run.send(divided)
    assert lines(run) == ["::::          4"]
    run.renderer.resume()
    run.send(show)
    assert lines(run)[:2] == ["@h:", "[2, 4)                 9 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|"]


def test_print_and_clear_in_one_step() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=2))
    show = run.event("print_map", map="@h", clear=True)
    run.send(show)
    update(run, "@h", buckets(b3=7))
    run.send(show)
    assert lines(run)[2:] == ["....          2", "::::          5"]


def test_a_map_that_a_program_emptied_begins_anew() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=9))
    run.renderer.print_heat(["@h"])
    update(run, "@h", buckets(b3=4))
    run.renderer.print_heat(["@h"])
    assert lines(run)[2:] == ["::::          9", "::::          4"]


def test_zeroed_maps_begin_anew() -> None:
    run = heated()
    run.scalar("@h", Hist(), buckets(b3=4))
    zero = run.event("zero", map="@h")
    run.renderer.print_heat(["@h"])
    run.send(zero)
    update(run, "@h", buckets(b3=9))
    run.renderer.print_heat(["@h"])
    assert lines(run)[2:] == ["::::          4", "::::          5"]


def test_two_maps_have_headings_in_turn() -> None:
    run = heated(Bars.COLOUR)
    run.scalar("@a", Hist(), buckets(b3=1))
    run.scalar("@b", Hist(), buckets(b3=1))
    run.renderer.print_heat(["@a", "@b"])
    text = run.printed_text()
    assert [line[:3] for line in text.splitlines()[::3]] == ["@a:", "@b:"]
    assert "\x1b[48;5;53m    \x1b[0m" in text


def test_which_maps_are_printed_at_an_interval_of_their_own() -> None:
    run = heated()
    run.scalar("@a", Hist(), buckets())
    run.scalar("@b", LHist(0, 10, 1), (0,) * 12)
    run.scalar("@n", Count(), 1)
    run.event("print_map", map="@b")
    program = ProgramSpec("p", "interval", 0, (Target("interval:s:1", 0, NoTarget()),), PLACE)

    def manifest(*programs: ProgramSpec) -> Manifest:
        return Manifest(programs, tuple(run.maps), tuple(run.specs), (), Config())

    assert histograms(manifest()) == ["@a", "@b"]
    assert unprinted(manifest()) == ["@a", "@b"], "its print() is at the end"
    assert unprinted(manifest(program)) == ["@a"]
