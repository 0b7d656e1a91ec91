"""The Python interface traces: events of every kind, values of every type, losses, the end, saved scripts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import pytrace
from pytrace.interface.events import Collector
from pytrace.render.aggregations import Average, Stats
from pytrace.render.histogram import Bucket
from tests.support.patience import patience

OPENS = 'tracepoint:syscalls:sys_enter_openat /pid == cpid/ { @[comm] = count(); printf("%s\\n", comm); }'


@pytest.fixture(autouse=True)
def kept_apart(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> None:
    """These tests have a cache of their own, and leave nothing in the kernel."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def events(script: str, **options: Any) -> list[pytrace.Event]:
    with pytrace.open(script, **options) as trace:
        return list(trace)


# ---------------------------------------------------------------------------------------------- events


def test_events_of_a_command() -> None:
    with pytrace.open(OPENS, command=["cat", "/dev/null"]) as trace:
        found = list(trace)
        assert {(event.kind, event.text, event.values, event.probe) for event in found} == {
            ("printf", "cat", ("cat",), "tracepoint:syscalls:sys_enter_openat")
        }
        assert trace.maps["@"].to_dict() == {"cat": len(found)}
        assert list(trace) == []
        assert (trace.ended, trace.exit_code, trace.child_status, trace.lost, trace.losses) == (True, 0, 0, 0, {})
        assert "ended" in repr(trace)
    assert "closed" in repr(trace)


@pytest.mark.parametrize(
    ("statement", "kind", "values", "text"),
    [
        ('printf("%d %s\\n", 3, "x")', "printf", (3, "x"), "3 x"),
        ('printf("no end")', "printf", (), "no end"),
        ("print(-5)", "print", (-5,), "-5"),
        ("print((uint64)18446744073709551615)", "print", (18446744073709551615,), "18446744073709551615"),
        ("print(1 == 1)", "print", (True,), "true"),
        ('print((1, ("x", 2)))', "print", ((1, ("x", 2)),), "(1, (x, 2))"),
        ('print("\\xff")', "print", ("\udcff",), "\udcff"),
        ('print(buf("abc", 3))', "print", (b"abc",), "abc"),
        ("print((void*)16)", "print", (16,), "0x10"),
        ("print(ntop(0x0100007f))", "print", ("127.0.0.1",), "127.0.0.1"),
        ('@a[1] = 20; @a[2] = 40; print(@a)', "map", ({1: 20, 2: 40},), "@a[1]: 20\n@a[2]: 40"),
        ('@a[1] = 20; @a[2] = 40; print(@a, 1, 10)', "map", ({2: 4},), "@a[2]: 4"),
        ('@a[1] = avg(4); print_clear(@a)', "map", ({1: 4},), "@a[1]: 4"),
        ('time("now\\n")', "time", ("now\n",), "now"),
        ('cat("/proc/sys/kernel/ostype")', "cat", ("Linux\n",), "Linux"),
        ('system("echo out")', "system", ("out\n",), "out\n"),
        ('errorf("bad %d", 3)', "errorf", (3,), "bad 3"),
        ('warnf("odd")', "warnf", (), "odd"),
    ],
)  # fmt: skip
def test_each_kind_of_event(statement: str, kind: str, values: tuple[Any, ...], text: str) -> None:
    (event,) = events(f"begin {{ {statement}; exit(); }}", unsafe=True)
    assert (event.kind, event.values, event.text, event.probe) == (kind, values, text, "begin")
    assert event.location.line == 1


def test_sorted_rows_have_titles_and_decimal_numbers() -> None:
    found = events(
        'begin { for ($i : 0..5) { row(("LAT(ms)"=fixed($i * 1500, 1000, 1), at=joined(":", $i, "x")), "-LAT(ms)"); } '
        'print_rows(2); row(("LAT(ms)"=fixed(1, 1, 1), at=joined(":", 1, "y")), "-LAT(ms)"); '
        "print((fixed(5, 2, 1), 1)); exit(); }"
    )
    rows = [event for event in found if event.kind == "row"]
    assert [event.names for event in rows] == [("LAT(ms)", "at")] * 3
    assert [event.values for event in rows] == [(6.0, "4:x"), (4.5, "3:x"), (1.0, "1:y")]
    (printed,) = [event for event in found if event.kind == "print"]
    assert printed.values == ((2.5, 1),)


def test_rows_and_records_have_names() -> None:
    row, record = events('begin { row((pid=1, comm="x")); print((a=1, b=2)); exit(); }')
    assert (row.kind, row.names, row.values) == ("row", ("pid", "comm"), (1, "x"))
    assert (record.names, record.values) == (("a", "b"), ((1, 2),))


def test_quantiles_join_and_iterators() -> None:
    (event,) = events("begin { @h = hist(5); quantiles(@h, 50); exit(); }")
    assert event.kind == "quantiles"
    assert "p50" in event.text
    found = events(
        't:syscalls:sys_enter_execve /pid == cpid/ { join(args.argv, ","); }', command=["env", "true", "a b"]
    )
    assert ("join", ("env,true,a b",)) in {(event.kind, event.values) for event in found}
    tasks = events('iter:task { printf("%d\\n", ctx.task.pid); }')
    assert {event.probe for event in tasks} == {"iter:task"}
    assert all(event.text == str(event.values[0]) for event in tasks)


def test_stacks_can_be_looked_at_when_the_trace_is_closed() -> None:
    found = events(
        't:syscalls:sys_enter_openat /pid == cpid/ { printf("%s", ustack(3)); print(ustack(1)); print(nsecs); }',
        command="cat /dev/null",
    )
    stacks = [event for event in found if event.kind == "printf"]
    frame = stacks[-1].values[0].frames[0]
    assert frame.module
    assert frame.function
    assert frame.function in stacks[-1].text


BOTH = {"sys_enter_openat", "sys_exit_openat"}


@pytest.mark.parametrize(
    ("script", "probes"),
    [
        ("t:syscalls:sys_enter_openat,t:syscalls:sys_exit_openat /pid == cpid/ { P }", BOTH),
        ("t:syscalls:sys_*_openat /pid == cpid/ { P }", BOTH),
        ("fn say() : void { P } t:syscalls:sys_*_openat /pid == cpid/ { say(); }", BOTH),
        ("macro say() { P _ = 0; } t:syscalls:sys_*_openat /pid == cpid/ { say(); }", BOTH),
        ("t:syscalls:sys_*_openat /pid == cpid/ { for $i : 0..2 { P } }", BOTH),
        ("t:syscalls:sys_*_openat /pid == cpid/ { @a[1] = 1; for ($kv : @a) { P } }", BOTH),
        ("uprobe:libc:fclos*,uretprobe:libc:fclose /pid == cpid/ { P }", {"uprobe", "uretprobe"}),
        ("begin,end { P }", {"begin", "end"}),
    ],
)  # fmt: skip
def test_the_probe_that_fired(script: str, probes: set[str]) -> None:
    """It is the one that the script's own ``probe`` tells, however many attach points a program has."""
    statement = 'printf("%s", probe);'
    if "say" in script:
        statement = 'printf("x");'
    found = events(script.replace("P", statement, 1), command="cat /dev/null")
    assert all(event.probe == event.values[0] for event in found if event.values)
    assert all(any(name in event.probe for event in found) for name in probes)
    assert all(any(name in event.probe for name in probes) for event in found)


# ---------------------------------------------------------------------------------------------- results


def test_values_of_maps() -> None:
    script = """begin {
      @count = count(); @sum[1] = sum(-5); @min = min(3); @max = max(-3); @avg["a"] = avg(3); @avg["a"] = avg(4);
      @stats[1, "x"] = stats(3); @hist = hist(10); @linear[1] = lhist(5, 0, 10, 2); @time = tseries(5, 1s, 5);
      @text = "x"; @tuple = (1, "a"); @record[(a=1, b="z")] = 2; @printed[1] = count(); print_clear(@printed); exit(); }
      config = { unstable_tseries=enable }"""
    head, _, config = script.rpartition("config")
    with pytrace.open(f"config{config}\n{head}") as trace:
        list(trace)
        live, maps = trace.maps, trace.snapshot().maps
        assert {name: item.to_dict() for name, item in live.items()} == {n: i.to_dict() for n, i in maps.items()}
    found = {name.removeprefix("@"): item.to_dict() for name, item in maps.items()}
    average = found["avg"]["a"]
    assert (average, average.total, average.count, average.mean) == (3, 7, 2, 3.5)
    assert isinstance(average, Average)
    assert found["stats"] == {(1, "x"): Stats(1, 3, 3)}
    assert list(found["hist"][None]) == [Bucket(8, 16, 1)]
    assert list(found["linear"][1]) == [Bucket(4, 6, 1)]
    assert [point.value for point in found["time"][None] if point.value is not None] == [5]
    plain = {name: found[name] for name in ("count", "sum", "min", "max", "text", "tuple", "record", "printed")}
    assert plain == {
        "count": {None: 1}, "sum": {1: -5}, "min": {None: 3}, "max": {None: -3}, "text": {None: "x"},
        "tuple": {None: (1, "a")}, "record": {(1, "z"): 2}, "printed": {},
    }  # fmt: skip
    assert maps["count"].value == 1
    assert pytrace.Snapshot(trace_data(maps))._repr_html_().count("<b>@") == len(maps)


def test_what_the_end_prints_is_the_result() -> None:
    """Maps that end probes print stay as they are, though they empty them; others are emptied."""
    script = """begin { @a[1] = count(); @b = count(); @c = count(); @d = count(); @e = hist(5);
      print_clear(@d); exit(); }
      end { print_clear(@a); print(@b); clear(@b); clear(@c); print_clear(@e); }"""
    maps = pytrace.run(script).maps
    assert {name: maps[name].to_dict() for name in ("@a", "@b", "@c", "@d")} == {
        "@a": {1: 1}, "@b": {None: 1}, "@c": {}, "@d": {}
    }  # fmt: skip
    assert len(maps["@e"].to_dict()[None]) == 1


@pytest.mark.parametrize("ended", [True, False])
def test_a_closed_trace_has_its_last_state(ended: bool) -> None:
    script = "begin { @a = 1; @b[1] = count(); @c[ustack] = 1; } interval:ms:1 { @n = count(); } end { @a = 2; }"
    with pytrace.open(script) as trace:
        maps = trace.maps
        while maps["n"].value is None and not trace.wait(0.05):
            pass
        if ended:
            trace.stop()
        before = trace.snapshot()
    last = trace.snapshot()
    assert maps["a"].value == trace.maps["a"].value == last.maps["a"].value == (2 if ended else 1)
    assert maps["b"].to_dict() == last.maps["b"].to_dict() == {1: 1}
    assert maps["n"].value == last.maps["n"].value >= before.maps["n"].value > 0
    assert replace(last.data, read={}) == replace(before.data, read={}) or not ended
    assert trace.snapshot() is last
    trace.close()
    assert trace.snapshot() is last


def test_a_trace_that_a_forked_process_closed_has_no_state_there() -> None:
    with pytrace.open("begin { @a = 1; }") as trace:
        trace.wait()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            trace.close()
            try:
                trace.snapshot()
            except pytrace.TraceError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 100) == b"the trace is closed"
        os.close(reader)
        os.close(writer)
        assert trace.maps["a"].value == 1
    assert trace.maps["a"].value == 1


def trace_data(maps: Any) -> Any:
    from tests.support.snapshots import snapshot

    return snapshot(*(item.data for item in maps.values()))


def test_snapshots_merge_and_are_read_back(tmp_path: Path) -> None:
    first, second = (pytrace.run(OPENS, command=["cat", "/dev/null"]) for _ in range(2))
    both = first.merge(second)
    assert both.to_dict("@")["cat"] == first.to_dict("@")["cat"] + second.to_dict("@")["cat"]
    both.save(tmp_path / "both.pts")
    assert pytrace.Snapshot.load(tmp_path / "both.pts").data == both.data
    assert b"@[cat]" in both.format("text")
    with pytest.raises(pytrace.TraceError):
        first.merge(first)


def test_what_is_lost_is_counted_and_warned_of() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytrace.open("let @few = hash(2); begin { for $i : 0..5 { @few[$i] = 1; } }") as trace:
            trace.wait()
            assert trace.losses == {"map_full": {"@few": 3}}
            assert trace.snapshot().losses == trace.losses
        assert trace.losses == {"map_full": {"@few": 3}}
    assert {item.filename for item in caught} == {__file__}  # where the program called, not somewhere within
    assert "@few is full" in trace.warnings[0]
    assert trace.warnings[1].startswith("3 map updates dropped")
    assert [item.category for item in caught] == [pytrace.LossWarning] * 2


def test_unread_events_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Collector.__init__, "__defaults__", (10, 1 << 20))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytrace.open('begin { for $i : 0..100 { printf("%d", $i); } exit(); }') as trace:
            trace.wait()
            assert [event.text for event in trace] == [str(number) for number in range(90, 100)]
            assert (trace.lost, trace.losses) == (90, {"unread": {"events": 90}})
    assert [item.category for item in caught] == [pytrace.LossWarning]
    assert "does not take them" in str(caught[0].message)


# ---------------------------------------------------------------------------------------------- the end


def test_stop_runs_end_probes() -> None:
    with pytrace.open('interval:ms:10 { print(1); } end { print(2); }') as trace:
        next(iter(trace))
        trace.stop()
        assert trace.ended
        assert [event.values for event in trace][-1] == (2,)


def test_wait_and_events() -> None:
    with pytrace.open("interval:ms:10 { print(1); } interval:ms:300 { exit(7); }") as trace:
        assert not trace.wait(0)
        assert trace.wait()
        assert {event.values for event in trace.events()} == {(1,)}
        assert trace.events() == []
        assert trace.exit_code == 7


def test_run_until_and_for_a_time() -> None:
    found: list[object] = []
    script = "interval:ms:10 { @ = count(); print(1); }"
    pytrace.run(script, on_event=lambda event: found.append(event.values), until=lambda _trace: len(found) >= 3)
    assert len(found) >= 3
    assert pytrace.run(script, duration=0.2).maps["@"].value >= 1
    with pytest.raises(ZeroDivisionError):
        pytrace.run(script, on_event=lambda _event: 1 / 0)


def test_unsafe_functions_need_to_be_allowed() -> None:
    script = 'tracepoint:syscalls:sys_enter_openat /pid == cpid/ { signal("TERM"); }'
    with pytest.raises(pytrace.ScriptError, match="unsafe"):
        pytrace.open(script, command="cat /dev/null")
    with pytrace.open(script, command="cat /dev/null", unsafe=True) as trace:
        trace.wait()
        assert trace.child_status == -15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pid": 999_999_999}, "there is no process 999999999"),
        ({"pid": 1, "command": "true"}, "cannot be used together"),
        ({"command": []}, "command is empty"), ({"command": ["/nonexistent"]}, "no such file"),
        ({"follow": True}, "needs pid or command"), ({"netns": "none-of-that"}, "namespace"),
        ({"no_features": ["nope"]}, "unknown feature"),
    ],
)  # fmt: skip
def test_what_cannot_be_opened(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pytrace.TraceError, match=message):
        pytrace.open("interval:s:1 { }", **options)


def test_parameters() -> None:
    script = 'begin { printf("%d %s %s", $1, getopt("name", "none"), getopt("flag") ? "yes" : "no"); exit(); }'
    named = 'begin { printf("%s %s", getopt("name", "none"), getopt("flag") ? "yes" : "no"); exit(); }'
    assert events(script, parameters=[5])[0].text == "5 none no"
    assert events(named, parameters={"name": "x", "flag": True})[0].text == "x yes"
    for given, texts in (([5], ("5",)), ({"name": "x", "flag": True}, ("--name=x", "--flag"))):
        snapshot = pytrace.run(script if given == [5] else named, parameters=given)
        assert snapshot.runs[0].parameters == texts
        assert texts[0] in snapshot._repr_html_()


def test_saved_scripts_run_here_and_by_the_command(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    pytrace.compile('begin { printf("%d\\n", $1); print(probe); exit(); }').save(path)
    opened = pytrace.compile(path, parameters=[7])
    assert (opened.probes, [program.kind for program in opened.programs]) == (("begin",), ["begin"])
    with pytrace.open(opened) as trace:
        assert [(event.text, event.probe) for event in trace] == [("7", "begin"), ("begin", "begin")]
        assert trace.snapshot().runs[0].parameters == ("7",)
    command = [sys.executable, "-m", "pytrace", "-q", str(path), "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=True)
    assert (done.stdout.strip(), done.stderr) == ("8\nbegin", "")


def test_a_second_start_comes_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    assert events("begin,end { print(1); exit(); }")[0].probe == "begin"
    monkeypatch.setattr("pytrace.pipeline.compile_script", None)
    assert [event.probe for event in events("begin,end { print(1); exit(); }")] == ["begin", "end"]


def test_warnings_as_errors_leave_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(pytrace.LossWarning):
            pytrace.run("let @few = hash(2); begin { for $i : 0..5 { @few[$i] = 1; } }")


# ---------------------------------------------------------------------------------------------- threads and event loops


def test_results_are_there_at_once_while_another_thread_waits() -> None:
    """A wait lasts up to a second, and was begun again before anybody else had the trace."""
    script = "begin { @n[1] = 1; } interval:ms:100 { @c = count(); }"
    with pytrace.open(script, command=["sleep", "60"]) as trace:
        waiting = threading.Thread(target=trace.wait)
        waiting.start()
        begun = time.monotonic()
        for _ in range(20):
            assert trace.snapshot().maps["@n"].to_dict() == {1: 1}
            assert trace.maps["@n"][1] == 1
            assert not trace.losses
        took = time.monotonic() - begun
        trace.stop()
        waiting.join()
    # 60 calls; each used to wait for the end of a poll of a second.
    assert took < patience(5)


def test_an_event_loop_goes_on_while_a_trace_is_opened() -> None:
    async def turns(done: asyncio.Event) -> int:
        number = 0
        while not done.is_set():
            number += 1
            await asyncio.sleep(0.001)
        return number

    async def main() -> tuple[int, list[str]]:
        done = asyncio.Event()
        counting = asyncio.create_task(turns(done))
        async with pytrace.open_async('begin { printf("x\\n"); exit(); }') as trace:
            done.set()
            texts = [event.text async for event in trace]
        assert trace.closed
        with pytest.raises(pytrace.ScriptError):
            await pytrace.open_async("begin { nothing }")
        trace = await pytrace.open_async("begin { @ = 1; }")
        assert trace.maps["@"].value == 1
        trace.close()
        return await counting, texts

    number, texts = asyncio.run(main())
    assert texts == ["x"]
    assert number > 5


def test_a_trace_that_is_opened_for_nobody_is_closed() -> None:
    async def main() -> None:
        task = asyncio.create_task(pytrace.open_async("begin { @cancelled = 1; }")._opened())
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.get_running_loop().shutdown_default_executor()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())


def test_a_program_that_traces_itself_leaves_the_trace_out() -> None:
    script = "t:raw_syscalls:sys_enter { @[tid, args.id] = count(); } t:sched:sched_waking { @w[tid] = count(); }"
    seen: dict[bool, set[int]] = {}
    for own in (True, False):
        worked: list[int] = []
        done = threading.Event()

        def work(worked: list[int] = worked, done: threading.Event = done) -> None:
            worked.append(threading.get_native_id())
            while not done.wait(0.01):
                os.getppid()

        thread = threading.Thread(target=work)
        with pytrace.open(script, pid=os.getpid(), own_threads=own) as trace:
            thread.start()
            for _ in range(3):
                trace.wait(0.1)
                assert trace.maps["@"].to_dict()
            trace.stop()
            seen[own] = {tid for tid, _ in trace.maps["@"]} | set(trace.maps["@w"])
            assert worked[0] in seen[own]
            done.set()
            thread.join()
        seen[own] -= {worked[0]}
    assert threading.get_native_id() in seen[True]
    assert not seen[False] - {threading.get_native_id()}
    # What the main thread does between two calls is its own.
    calls = {number for tid, number in trace.maps["@"] if tid == threading.get_native_id()}
    assert not calls & {232, 281, 321}, "epoll_wait, epoll_pwait, bpf (x86-64)"


# ---------------------------------------------------------------------------------------------- maps that are written


WRITTEN = """
begin { @limit = 5; @names["a", 1] = 2; @texts["key"] = "value"; @h = hist(3); }
tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @seen[@limit, @names["b", 7]] = count(); }
"""


def test_maps_are_written_and_emptied() -> None:
    program = "import os,sys\nfor line in sys.stdin: os.getppid()"
    reader, writer = os.pipe()
    with pytrace.open(WRITTEN, command=["sh", "-c", f"exec {sys.executable} -c '{program}' <&{reader}"]) as trace:
        maps = trace.maps
        maps["limit"][None] = 77
        maps["@names"]["b", 7] = -9
        maps["@texts"]["key"] = "other"
        assert (maps["@limit"].value, maps["@names"]["b", 7], maps["@texts"]["key"]) == (77, -9, "other")
        del maps["@names"]["a", 1]
        assert maps["@names"].to_dict() == {("b", 7): -9}
        for wrong in (("a", 1), ("a" * 200, 1), "a"):
            with pytest.raises(KeyError):
                del maps["@names"][wrong]
            with pytest.raises(KeyError):
                maps["@names"][wrong]
        maps["@h"].clear()
        assert maps["@h"].value is None
        with pytest.raises(TypeError, match="@seen is count_t, which only the script updates"):
            maps["@seen"][1, 1] = 5
        for key, value in ((("b", 7), "text"), ("b", 1), ((1, 1), 1), (("b", 7), 1 << 40)):
            with pytest.raises(TypeError, match=r"@names\[\(string\[2\],int8\)\] holds int8"):
                maps["@names"][key] = value
        with pytest.raises(KeyError, match="there is no map 'nams'; did you mean"):
            trace.maps["nams"]
        snapshot = trace.snapshot()
        with pytest.raises(TypeError, match="is of a snapshot, which does not change"):
            snapshot.maps["@limit"][None] = 1
    os.close(reader)
    os.close(writer)
    with pytest.raises(pytrace.TraceError, match="the trace is closed"):
        trace.maps["@limit"][None] = 1


def test_what_is_written_is_what_programs_read() -> None:
    script = "begin { @limit = 1; } interval:ms:1 /@limit > 1/ { print(@limit); exit(); }"
    with pytrace.open(script) as trace:
        trace.maps["@limit"][None] = 123
        assert [event.text for event in trace if event.text] == ["@limit: 123"]


def test_a_full_map_says_so() -> None:
    with pytrace.open("let @m = hash(2); begin { @m[1] = 1; @m[2] = 2; }") as trace:
        with pytest.raises(pytrace.TraceError, match=r"@m cannot be changed: it is full \(2 keys\)"):
            trace.maps["@m"][3] = 3
        trace.maps["@m"].clear()
        trace.maps["@m"][3] = 3
        assert trace.maps["@m"].to_dict() == {3: 3}


# ---------------------------------------------------------------------------------------------- the command


def test_surroundings_of_the_command(tmp_path: Path) -> None:
    """The caller may close its file before the command writes to it."""
    with (tmp_path / "out").open("wb") as file:
        trace = pytrace.open(
            "begin { }", command=["sh", "-c", "pwd; echo $A; echo lost >&2; env | grep -c HOME"], cwd=tmp_path,
            env={"A": "b", "PATH": "/usr/bin:/bin"}, stdout=file, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    with trace:
        trace.wait()
        assert trace.child_status == 1
    assert (tmp_path / "out").read_text() == f"{tmp_path}\nb\n0\n"
    with pytest.raises(ValueError, match=r"os\.pipe"):
        pytrace.open("begin { }", command=["true"], stdout=subprocess.PIPE)
    with pytest.raises(pytrace.TraceError, match="no working directory"):
        pytrace.open("begin { }", command=["true"], cwd=tmp_path / "none")
