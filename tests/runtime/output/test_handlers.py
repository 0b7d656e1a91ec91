"""Events that are handled as they arrive: prints, messages, marks, the state of a run."""

from __future__ import annotations

import errno
import json
import re
import struct
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.core.event_layout import EventSpec, Location, NoStaticPart
from pytrace.core.failures import FAILURES
from pytrace.core.manifest import Counters, Manifest, MapSpec, ProgramSpec, Site, Target
from pytrace.core.options import Config
from pytrace.core.probe_kinds import TimerTarget
from pytrace.core.types import INT32, INT64, UINT8, UINT32, UINT64, Buffer, Count, String, Type
from pytrace.runtime.machine.clocks import Clock
from pytrace.runtime.output import handlers, messages
from pytrace.runtime.output.handlers import HANDLERS, PcapWriter
from pytrace.runtime.output.renderer import Renderer, RenderOptions, RunState
from tests.support.encode import PLACE, Run
from tests.support.end_requests import ScriptedRequests, asked
from tests.support.rows import each_row

# ---------------------------------------------------------------------------------------------- handlers
# pytrace.runtime.output.handlers: what each kind of event prints, says and asks of the session.


def documented_kinds() -> set[str]:
    import pytrace.core.event_layout

    rows = re.findall(r"^([a-z_, ]+?)  +\S", pytrace.core.event_layout.__doc__ or "", re.MULTILINE)
    names = {name.strip() for row in rows for name in row.split(",")}
    return names - {"kind", "debugf", ""}


def test_every_documented_kind_has_a_handler() -> None:
    assert documented_kinds() == {*HANDLERS, "exit"}


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


def test_a_command_with_a_nul_is_not_run() -> None:
    run = Run()
    run.send(run.event("system", [UINT8], format="echo %c"), 0)
    assert run.printed() == b""
    assert b"system: cannot run 'echo \\x00': embedded null byte" in run.messages


def test_system_without_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> tuple[bytes, bool]:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(handlers, "run_command", full)
    run = Run()
    run.send(run.event("system", format="true"))
    assert run.printed() == b""
    assert b"system: cannot run 'true': Resource temporarily unavailable" in run.messages


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


def test_exit_code_is_that_of_a_process() -> None:
    run = Run()
    run.send(run.event("exit", [INT64]), -1)
    assert run.renderer.state.exit_code == 255


def test_unwatch() -> None:
    unwatched: list[int] = []
    run = Run(unwatch=unwatched.append)
    run.send(run.event("unwatch", [UINT64]), 0x1234)
    assert unwatched == [0x1234]


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


# ---------------------------------------------------------------------------------------------- edges


def test_a_cat_that_is_too_long_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123")
    run = Run(config=Config(max_cat_bytes=3))
    identity = run.event("cat", format=f"{tmp_path}/f")
    for _ in range(2):
        run.send(identity)
    assert run.printed() == b"012012"
    assert run.messages.count(b"is longer than 3 bytes (max_cat_bytes); output truncated") == 1
    exact = Run(config=Config(max_cat_bytes=4))
    exact.send(exact.event("cat", format=f"{tmp_path}/f"))
    assert (exact.printed(), exact.messages) == (b"0123", b"")


def test_a_path_that_is_none() -> None:
    run = Run()
    run.send(run.event("cat", format="a\0b"))
    assert b"cat: cannot read 'a\\x00b': open: embedded null" in run.messages


def test_commands_are_left_out_when_the_user_wants_the_end() -> None:
    run = Run()
    identity = run.event("system", format="echo x")
    run.requests.ending = True
    run.send(identity)
    run.send(identity)
    assert run.printed() == b""
    assert run.renderer.state.not_run == 2


def test_a_command_that_was_killed_is_told() -> None:
    run = Run()
    identity = run.event("system", format="echo begun; sleep 600")
    requests = iter([0])
    run.requests = ScriptedRequests(lambda: next(requests, 1))
    run.send(identity)
    assert run.printed() in (b"begun\n\n", b"\n"), "what it wrote before is printed"
    assert b"system: 'echo begun; sleep 600' killed because of the interrupt" in run.messages


@pytest.mark.parametrize(("known", "told"), [(False, True), (True, False)])
def test_a_status_that_does_not_fit_is_told_unless_the_compiler_did(known: bool, told: bool) -> None:
    run = Run()
    run.send(run.event("exit", [INT64], known=known), 256 + 7)
    assert run.renderer.state.exit_code == 7
    assert (b"WARNING" in run.messages) is told


def test_an_assertion_that_fails() -> None:
    run = Run()
    run.send(run.event("errorf", format="no", assertion=True))
    assert run.renderer.state.assertion_failed
    assert run.renderer.state.errors == 1


def test_a_delete_without_a_key_is_told_once_for_each_place() -> None:
    run = Run()
    first, second = (run.event("helper_error", [INT32], helper="bpf_map_delete_elem", map="@m") for _ in range(2))
    run.move(second, 30)
    for identity in (first, first, second, first):
        run.send(identity, -2)
    assert run.messages.count(b"WARNING") == 2


def test_dropped_updates_are_told_once_for_each_reason() -> None:
    run = Run()
    identity = run.event("helper_error", [INT32], helper="bpf_map_update_elem", map="@m")
    for code in (-7, -12, -7, -12):
        run.send(identity, code)
    assert run.messages.count(b"WARNING") == 2


@pytest.mark.parametrize(("kind", "left"), [("clear", b""), ("zero", b"@m[1]: 0\n")])
def test_clear_and_zero(kind: str, left: bytes) -> None:
    run = Run()
    run.keyed("@m", INT64, INT64, {1: 5})
    printing, emptying = run.event("print_map", map="@m"), run.event(kind, map="@m")
    run.send(printing)
    assert run.printed() == b"@m[1]: 5\n"
    run.send(emptying)
    run.send(printing)
    assert run.printed().strip() == left.strip()


def test_packets_to_one_file_have_one_writer(tmp_path: Path) -> None:
    run = Run()
    kinds = [UINT64, UINT32, Buffer(4)]
    first = run.event("skboutput", kinds, path=str(tmp_path / "a"))
    second = run.event("skboutput", kinds, path=str(tmp_path / "a"))
    run.send(first, 0, 4, b"abcd")
    run.send(second, 0, 4, b"efgh")
    run.renderer.close()
    assert (tmp_path / "a").read_bytes().count(b"abcd") == (tmp_path / "a").read_bytes().count(b"efgh") == 1
    assert len(run.renderer.writers) == 1


def test_headings_are_for_people() -> None:
    for form, printed in (({}, b"CPU 3:\n"), ({"json": True}, b""), ({"csv": True}, b"")):
        run = Run(**form)
        run.send(run.event("heading", [UINT8], format="CPU %d:\n"), 3)
        assert run.printed() == printed


# ---------------------------------------------------------------------------------------------- packets

HEADER = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 101)
"""Magic number of nanoseconds, version 2.4, longest packet, raw IP."""


def test_a_file_without_packets(tmp_path: Path) -> None:
    PcapWriter(str(tmp_path / "p")).close()
    assert (tmp_path / "p").read_bytes() == HEADER


@pytest.mark.parametrize(
    ("wall", "length", "head"),
    [
        (5_000_000_007, 4, (5, 7, 4, 4)),
        (5_000_000_007, 1500, (5, 7, 4, 1500)),
        # More was captured than the packet says that it has.
        (999_999_999, 3, (0, 999_999_999, 4, 4)),
        ((1 << 32) * 1_000_000_000 + 9, 4, (0, 9, 4, 4)),
        (-1, 4, (0xFFFFFFFF, 999_999_999, 4, 4)),
    ],
)
def test_a_packet(tmp_path: Path, wall: int, length: int, head: tuple[int, ...]) -> None:
    writer = PcapWriter(str(tmp_path / "p"))
    writer.packet(wall, length, b"data")
    writer.close()
    assert (tmp_path / "p").read_bytes() == HEADER + struct.pack("=4I", *head) + b"data"


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"^cannot write packets to '{tmp_path}': Is a directory$"):
        PcapWriter(str(tmp_path))


def test_messages_on_a_terminal_have_no_line_ends_of_traced_data() -> None:
    """They could pass for other messages."""
    for escapes, expected in ((True, b"a\\x0aERROR: b\\x1b[0m"), (False, b"a\nERROR: b\x1b[0m")):
        run = Run()
        identity = run.event("errorf", [String(32)], format="%s")
        _renderer = run.renderer
        vars(run.output)["escapes"] = escapes
        run.send(identity, b"a\nERROR: b\x1b[0m")
        assert expected in run.messages


@pytest.mark.parametrize(("tool", "told"), [(False, 1), (True, 0)])
def test_stacks_that_could_not_be_read_are_told_once(tool: bool, told: int) -> None:
    run = Run(options=RenderOptions(tool=tool))
    run.send_many(run.event("runtime_error", kind="user_stack"), [()] * 27)
    assert run.messages.count(b"the user stack could not be read") == told
    run.renderer.summary({("user_stack", 0): 27})
    assert run.messages.count(b"27 user stacks could not be unwound") == 1


# ---------------------------------------------------------------------------------------------- messages
# Messages about losses: one for each kind, with numbers, locations and hints.


MESSAGES_PLACE = Location("x.bt", 3, 7)
TARGETS = tuple(Target(f"interval:s:{n}", n, TimerTarget(period_ns=n * 10**9)) for n in range(1, 15))
PROGRAMS = tuple(ProgramSpec(f"p{at}", "interval", at, TARGETS[: at + 1], MESSAGES_PLACE) for at in range(14))
MAPS = (
    MapSpec("@a", "a", "hash", INT64, INT64, 10),
    MapSpec("@b", "b", "hash", INT64, INT64, 20),
)
MANIFEST = Manifest(
    PROGRAMS, MAPS, (), (), Config(max_strlen=99),
    counters=Counters(
        ".data", 0, 1, 8, (), (Site("bpf_get_stack", MESSAGES_PLACE), Site("bpf_probe_read", MESSAGES_PLACE))
    ),
)  # fmt: skip


@each_row("kind", sorted(FAILURES))
def test_each_kind_has_a_sentence(kind: str) -> None:
    row = FAILURES[kind]
    (one,) = messages.summary_lines(MANIFEST, {(kind, 0): 1})
    assert one.startswith(f"1 {row.one}")
    (many,) = messages.summary_lines(MANIFEST, {(kind, 0): 2, (kind, 1): 3}, told=[kind])
    assert many.startswith(f"in total, 5 {row.many}")
    names = {"program": ("interval:s:1 ", "interval:s:1 and 1 more "), "map": ("@a ", "@b ")}.get(row.subject)
    if row.subject == "site":
        names = ("bpf_get_stack at x.bt:3:7 ", "bpf_probe_read at x.bt:3:7 ")
    if names is not None:
        assert f"({names[1]}3, {names[0]}2)" in many
    else:
        assert many == f"in total, 5 {row.many}"


@pytest.mark.parametrize(
    ("kind", "value", "declared"),
    [("hash", INT64, "hash"), ("percpuhash", Count(), "percpuhash"), ("hash", Count(), "percpuhash")],
)
def test_a_full_map_is_to_be_declared_as_what_takes_its_values(kind: str, value: Type, declared: str) -> None:
    spec = MapSpec("@a", "a", kind, INT64, value, 10)
    text, hint = handlers.helper_failure("bpf_map_update_elem", -errno.E2BIG, spec, Config())
    assert text == "@a is full (10 keys): the update was dropped"
    assert hint.endswith(f"let @a = {declared}(N);")


def test_what_helps_is_named() -> None:
    (ring,) = messages.summary_lines(MANIFEST, {("lost", 0): 5})
    assert "perf_rb_pages" in ring
    (full,) = messages.summary_lines(MANIFEST, {("map_full", 0): 5, ("map_full", 1): 6})
    assert "@b holds 20 keys, @a holds 10 keys" in full
    assert "max_map_keys" in full
    (cut,) = messages.summary_lines(MANIFEST, {("cut", 0): 5})
    assert cut.endswith("max_strlen is 99")


def test_many_probes_are_not_all_named() -> None:
    (line,) = messages.summary_lines(MANIFEST, {("lost", at): at + 1 for at in range(14)})
    assert line.startswith("105 events lost (interval:s:1 and 13 more 14, ")
    assert "4 others 10)" in line
    assert sum(messages.by_kind(MANIFEST, {("lost", at): at + 1 for at in range(14)})["lost"].values()) == 105


def test_numbers_of_one_name_are_added() -> None:
    """Two programs of one probe are told as one; what did not happen is not told."""
    twice = Manifest((PROGRAMS[0], PROGRAMS[0]), MAPS, (), (), Config())
    totals = {("lost", 0): 2, ("lost", 1): 5, ("missed", 0): 0}
    assert messages.by_kind(twice, totals) == {"lost": {"interval:s:1": 7}}
    assert len(messages.summary_lines(twice, totals)) == 1


def test_underlined_places() -> None:
    place = Location("x.bt", 3, 2, 6, "\tcall(1);")
    assert messages.located("ERROR", "bad", place) == "x.bt:3:2-6: ERROR: bad\n    call(1);\n    ~~~~\n"
    coloured = messages.located("WARNING", "odd", place, (MESSAGES_PLACE,), colour=True)
    assert coloured.startswith("\x1b[33mx.bt:3:2-6: WARNING: odd\x1b[0m\n")
    assert coloured.endswith("NOTE: expanded from here\x1b[0m\n")


def test_the_limit_of_loops_is_named() -> None:
    config = Config(max_loop_iterations=1234)
    text, hint = handlers.helper_failure("bpf_loop", -errno.ELOOP, None, config)
    assert "at most 1234 iterations" in text
    assert "max_loop_iterations" in hint


# ---------------------------------------------------------------------------------------------- messages
# Messages about places in the script.


SPEC = EventSpec(0, "unwatch", (), NoStaticPart(), PLACE)


def renderer(*, as_json: bool = False, warnings: bool = True) -> tuple[Run, Renderer]:
    run = Run(json=as_json, options=RenderOptions(warnings=warnings))
    run.keyed("@m", INT64, INT64, {1: 5})
    return run, run.renderer


def test_a_message_as_text() -> None:
    run, made = renderer()
    made.located("WARNING", "helper_error", b"why \xff", SPEC, [("helper", b'"x"')], "do that")
    made.located("WARNING", "helper_error", b"plain", SPEC)
    said, _, plain = run.messages.decode("utf-8", "surrogateescape").partition("stdin:1:9-26: WARNING: plain\n")
    assert "HINT" not in plain
    assert said.startswith("stdin:1:9-26: WARNING: why \udcff\n")
    assert said.endswith("HINT: do that\n")
    assert run.printed() == b""


@pytest.mark.parametrize(("kind", "place"), [("warnf", ""), ("helper_error", "stdin:1:9-26: ")])
def test_what_a_tool_says_has_no_place_in_its_script(kind: str, place: str) -> None:
    run = Run(options=RenderOptions(tool=True))
    run.renderer.located("WARNING", kind, b"less is shown", SPEC)
    assert run.messages.decode().startswith(f"{place}WARNING: less is shown\n")
    assert ("~~~" in run.messages.decode()) is bool(place)


def test_a_message_as_json() -> None:
    run, made = renderer(as_json=True)
    made.located("WARNING", "helper_error", b"why", SPEC, [("retcode", b"-2")], "do that")
    found = json.loads(run.printed())
    assert (found["type"], found["msg"], found["retcode"]) == ("helper_error", "why", -2)
    assert (found["filename"], found["line"], found["col"]) == ("stdin", 1, 9)
    assert run.messages == b""


@pytest.mark.parametrize("warnings", [True, False])
def test_warnings_of_the_runtime_itself(warnings: bool) -> None:
    run, made = renderer(as_json=True, warnings=warnings)
    made.warn(SPEC, "careful")
    assert (b"stdin:1:9-26: WARNING: careful\n" in run.messages) is warnings, "on standard error, in JSON too"


# ---------------------------------------------------------------------------------------------- run state
# Requests to end the run, as events see them.


def test_end_probes_are_waited_for_although_the_user_has_asked_for_the_end() -> None:
    assert not RunState().hurry
    assert RunState(requests=asked()).hurry
    assert not RunState(requests=asked(), resumed=True).hurry
