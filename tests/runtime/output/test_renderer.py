"""Handlers of all event kinds, and what the session hears and says."""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path

import pytest

from pytrace.core.config import Config
from pytrace.core.diagnostics import InternalError, TraceError
from pytrace.core.event_layout import EventSpec, Exit, NoStaticPart
from pytrace.core.manifest import Manifest, MapSpec, ProgramSpec, Target
from pytrace.core.probes.targets import NoTarget
from pytrace.core.types import INT32, INT64, UINT8, UINT32, UINT64, Buffer, Count, String
from pytrace.runtime.host.clocks import Clock
from pytrace.runtime.output import messages
from pytrace.runtime.output.handlers import HANDLERS
from pytrace.runtime.output.renderer import Renderer, RenderOptions
from pytrace.runtime.output.streams import Flush, Output
from tests.support.encode import PLACE, FakeReader, Run, Symbols


def documented_kinds() -> set[str]:
    import pytrace.core.event_layout

    rows = re.findall(r"^([a-z_, ]+?)  +\S", pytrace.core.event_layout.__doc__ or "", re.MULTILINE)
    names = {name.strip() for row in rows for name in row.split(",")}
    return names - {"kind", "debugf", ""}


def test_every_documented_kind_has_a_handler() -> None:
    assert documented_kinds() == set(HANDLERS)


def test_unknown_kinds_and_misplaced_ids_are_bugs() -> None:
    for spec in (EventSpec(0, "nonsense", (), NoStaticPart(), PLACE), EventSpec(3, "exit", (), Exit(), PLACE)):
        manifest = Manifest((), (), (spec,), (), Config())
        with pytest.raises(InternalError):
            Renderer(manifest, Output(), Symbols(), FakeReader(), Clock())


def both(**config: int) -> tuple[Run, Run]:
    return Run(config=Config(**config)), Run(config=Config(**config), json=True)


# ---------------------------------------------------------------------------------------------- text kinds


def test_join() -> None:
    for run in both():
        identity = run.event("join", [UINT32, *[String(1024)] * 16], separator=",")
        run.send(identity, 3, b"ls", b"-l", b"/tmp", *[b""] * 13)
        run.send(identity, 0, *[b""] * 16)
        if run.json:
            assert run.printed() == b'{"type": "join", "data": "ls,-l,/tmp"}\n{"type": "join", "data": ""}\n'
        else:
            assert run.printed() == b"ls,-l,/tmp\n\n"


def test_time() -> None:
    for run in both():
        run.send(run.event("time", format="%H:%M:%S\n"))
        pattern = rb'\{"type": "time", "data": "..:..:..\\n"\}\n' if run.json else rb"\d\d:\d\d:\d\d\n"
        assert re.fullmatch(pattern, run.printed())


def test_cat_is_cut_and_reports_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789\xff")
    for run in both(max_cat_bytes=11):
        good = run.event("cat", [String(200)], format=f"{tmp_path}/%s")
        run.send(good, b"f")
        text = b'{"type": "cat", "data": "0123456789\\uffffffff"}\n' if run.json else b"0123456789\xff"
        assert run.printed() == text
        run.send(good, b"missing")
        assert run.printed() == b""
        assert b"missing" in run.messages
        assert run.messages.startswith(b"stdin:1:9-26: WARNING: ")
    run = Run(config=Config(max_cat_bytes=3))
    run.send(run.event("cat", format=f"{tmp_path}/f"))
    assert run.printed() == b"012"


def test_system_output_that_is_no_text() -> None:
    for run in both():
        run.send(run.event("system", [UINT8], format="printf 'a\\377b%d'"), 7)
        expected = b'{"type": "syscall", "data": "a\\uffffffffb7"}\n' if run.json else b"a\xffb7\n"
        assert run.printed() == expected


# ---------------------------------------------------------------------------------------------- messages


def test_errorf_and_warnf() -> None:
    run = Run()
    error, warning = run.event("errorf", [UINT8], format="e %d"), run.event("warnf", format="w")
    run.send(error, 5)
    run.send(warning)
    assert run.messages.decode() == (
        'stdin:1:9-26: ERROR: e 5\nbegin { errorf("e %d", 5); }\n        ~~~~~~~~~~~~~~~~~\n'
        'stdin:1:9-26: WARNING: w\nbegin { errorf("e %d", 5); }\n        ~~~~~~~~~~~~~~~~~\n'
    )
    assert run.renderer.state.errors == 1
    assert run.printed() == b""


def test_no_warnings_silences_all_but_errorf() -> None:
    for as_json in (False, True):
        run = Run(options=RenderOptions(warnings=False), json=as_json)
        error, warning = run.event("errorf", format="e"), run.event("warnf", format="w")
        helper = run.event("helper_error", [INT32], helper="bpf_map_update_elem", map="@m")
        division = run.event("runtime_error", kind="division_by_zero")
        run.send(warning)
        run.send(helper, -7)
        run.send(division)
        assert run.messages + run.printed() == b""
        run.send(error)
        assert b"e" in run.messages + run.printed()


def test_a_full_map_is_told_once() -> None:
    """Each CPU reports its first dropped update, and the map may be written at several places."""
    run = Run()
    helper = run.event("helper_error", [INT32], helper="bpf_map_update_elem", map="@m")
    for _ in range(3):
        run.send(helper, -7)
    assert run.messages.decode().count("is full") == 1
    run.send(helper, -12)
    assert run.messages.decode().count("WARNING") == 2


def test_expansion_is_told_innermost_first() -> None:
    found = messages.located("ERROR", "broken", PLACE, (PLACE, PLACE), colour=True)
    assert found.count("NOTE: expanded from here") == 2
    assert found.startswith("\x1b[31mstdin:1:9-26: ERROR: broken\x1b[0m\n")


@pytest.mark.parametrize(
    ("helper", "code", "said"),
    [
        ("bpf_map_update_elem", -7, "@m is full (4096 keys)"),
        ("bpf_map_update_elem", -12, "Cannot allocate memory"),
        ("bpf_map_delete_elem", -2, "@m has no such key to delete"),
        ("bpf_map_lookup_elem", 0, "@m has no such key"),
        ("bpf_probe_read_user", -14, "Bad address"),
    ],
)
def test_helper_errors(helper: str, code: int, said: str) -> None:
    for run in both():
        run.keyed("@m", INT64, INT64, {})
        run.send(run.event("helper_error", [INT32], helper=helper, map="@m"), code)
        if run.json:
            found = json.loads(run.printed())
            assert found["type"] == "helper_error"
            assert said in found["msg"]
            assert "returned" not in found["msg"], "the number is in retcode"
            assert list(found)[2:] == ["helper", "retcode", "filename", "line", "col"]
            assert (found["helper"], found["retcode"]) == (helper.removeprefix("bpf_"), code)
            assert (found["filename"], found["line"], found["col"]) == ("stdin", 1, 9)
        else:
            assert said.encode() in run.messages
            assert f"({helper} returned {code})".encode() in run.messages
            assert (b"HINT" in run.messages) == (code == -7)


@pytest.mark.parametrize("kind", sorted(messages.RUNTIME_ERRORS))
def test_runtime_errors(kind: str) -> None:
    for run in both():
        run.send(run.event("runtime_error", kind=kind))
        text = run.messages + run.printed()
        assert messages.RUNTIME_ERRORS[kind].encode() in text
    assert json.loads(text)["type"] == "runtime_error"


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


def test_exit_code_is_that_of_a_process() -> None:
    run = Run()
    run.send(run.event("exit", [INT64]), -1)
    assert run.renderer.state.exit_code == 255


def test_unwatch() -> None:
    run = Run()
    run.send(run.event("unwatch", [UINT64]), 0x1234)
    assert run.renderer.state.unwatched == [0x1234]


# ---------------------------------------------------------------------------------------------- pcap


def test_skboutput_writes_a_pcap_file(tmp_path: Path) -> None:
    path = tmp_path / "out.pcap"
    run = Run()
    one = run.event("skboutput", [UINT64, UINT32, Buffer(1024)], path=str(path))
    two = run.event("skboutput", [UINT64, UINT32, Buffer(1024)], path=str(path))
    run.send(one, 1_000, 60, b"E" * 40)
    run.send(two, 2_000, 40, b"F" * 40)
    run.renderer.close()
    data = path.read_bytes()
    magic, major, minor, _, _, _, link = struct.unpack_from("=IHHiIII", data)
    assert (magic, major, minor, link) == (0xA1B23C4D, 2, 4, 101)
    seconds, rest, captured, length = struct.unpack_from("=IIII", data, 24)
    assert (captured, length) == (40, 60)
    assert abs(seconds * 10**9 + rest - Clock().wall(1_000)) < 10**8
    assert data[40:80] == b"E" * 40
    assert struct.unpack_from("=II", data, 88) == (40, 40)
    assert len(data) == 24 + 2 * (16 + 40)


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
    assert not {"pwd", "ctypes", "llvmlite", "ply", "subprocess", "socket", "decimal", "fractions"} & set(loaded)
