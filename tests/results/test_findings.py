"""What the terminal says after a picture was written."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytrace.cli.subcommands import scaled
from pytrace.core import types
from pytrace.results.findings import Stacks, changes, duration, findings, readable
from pytrace.results.snapshot import Frame, MapData, StackTrace
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, table

K, U = types.Stack(False), types.Stack(True)
SAMPLES = "profile:hz:100 { @[ustack] = count(); }"


def test_functions_with_share_and_unit() -> None:
    entries = {stack("hot", "serve", "main"): 700, stack("cold", "serve", "main"): 250, stack("main"): 50}
    of = run(script="-e", text=SAMPLES)
    assert findings(snapshot(map_data("@", U, COUNT, entries), of=of)) == [
        "10 s on CPU (1,000 samples), most in:",
        "   70.0 %        7 s  hot", "   25.0 %      2.5 s  cold", "    5.0 %     500 ms  main",
        "functions with what they call:", "  100.0 %       10 s  main", "   95.0 %      9.5 s  serve",
    ]  # fmt: skip
    entries[stack("cold", "serve", "main")] = 690
    assert len(findings(snapshot(map_data("@", U, COUNT, entries), of=of))) == 4, "no function has half of it"


def test_functions_of_a_script_and_who_only_passes_a_call_on() -> None:
    def python(*names: str) -> StackTrace:
        return StackTrace((*stack("eval").frames, *(Frame(name, 1, "", "", "/srv/app.py", 7) for name in names)))

    entries = {python("iterencode", "encode", "dumps", "save", "main", "<module>"): 40, python("parse", "main"): 60}
    lines = findings(snapshot(map_data("@", U, COUNT, entries), of=run(script="-e", text=SAMPLES)))
    at = lines.index("interpreted functions with what they call:")
    assert [line.split()[-1] for line in lines[at + 1 :]] == ["main", "parse", "save"]


def test_waits_are_of_the_programs_function() -> None:
    switch = stack("schedule", "do_wait", user=False)
    entries = {(switch, stack("read", "main")): 3_000_000, (switch, StackTrace(())): 1_000_000}
    data = map_data("@usecs", types.Tuple((K, U)), types.Sum(), entries)
    lines = findings(snapshot(data, of=run(script="offcputime")))
    assert lines[0] == "4 s waited, most in the function:"
    assert [line.split()[-1] for line in lines[1:]] == ["read", "do_wait"]


def test_waits_that_a_script_measures_are_of_the_programs_function_too() -> None:
    switch = stack("__traceiter_sched_switch", "schedule", user=False)
    key = types.Tuple((K, U))
    after = map_data("@us", key, types.Sum(), {(switch, stack("read", "main")): 30})
    before = replace(after, entries={(switch, stack("read", "main")): 10})
    lines = changes(Stacks(after, run(script="-e"), before))
    assert lines[-1] == "      +20 us  read (10 us before, 30 us after)"


SYSTEM = "/usr/lib/libc.so.6"


def test_waits_name_who_called_the_library_and_who_was_preempted() -> None:
    switch, timer = stack("schedule", user=False), stack("schedule", "asm_sysvec_apic_timer_interrupt", user=False)
    sleep = StackTrace((Frame("nanosleep", 1, SYSTEM), Frame("usleep", 1, SYSTEM), *stack("pause", "main").frames))
    entries = {(switch, sleep): 3_000_000, (timer, stack("work", "main")): 1_000_000}
    data = map_data("@usecs", types.Tuple((K, U)), types.Sum(), entries)
    lines = findings(snapshot(data, of=run(script="offcputime")))
    assert [line[22:] for line in lines[1:]] == ["pause → nanosleep", "work (preempted)"]


def test_who_woke_whom() -> None:
    switch, futex = stack("schedule", "futex_wait", user=False), stack("futex_wake", user=False)
    timer, nothing = stack("hrtimer", "asm_sysvec_apic_timer_interrupt", user=False), StackTrace((), user=False)
    by = StackTrace((Frame("wake", 1, SYSTEM), *stack("hold", "main").frames))
    waits = (switch, StackTrace((Frame("wait", 1, SYSTEM), *stack("take").frames)))
    entries = {
        ("waker", "app", by, futex, "--", *waits): 700, ("waker", "idle", StackTrace(()), timer, "--", *waits): 200,
        ("waker", "", StackTrace(()), nothing, "--", *waits): 100,
    }  # fmt: skip
    key = types.Tuple((STRING, STRING, U, K, STRING, K, U))
    data = replace(map_data("@us", key, types.Sum(), entries), key_names=("", "waker comm", "", "", "", "", ""))
    assert findings(snapshot(data, of=run(script="offwaketime"))) == [
        "1 ms waited, woken by:",
        "   70.0 %     700 us  app: hold → wake", "   20.0 %     200 us  a timer",
        "   10.0 %     100 us  nobody: it waited for a CPU",
        "waited in:", "  100.0 %       1 ms  take → wait",
    ]  # fmt: skip


def go(*names: str) -> StackTrace:
    return StackTrace(tuple(Frame(name, 1, "/srv/app") for name in (*names, "runtime.goexit.abi0")))


def test_waits_of_go_are_of_its_functions_and_idle_threads_apart() -> None:
    switch = stack("schedule", "futex_wait", user=False)
    parked = ("runtime.futex.abi0", "runtime.mPark", "runtime.findRunnable", "runtime.schedule", "runtime.mcall")
    entries = {
        (switch, go(*parked, "sync.(*Mutex).Lock", "main.handle")): 500,
        (switch, go("runtime.usleep.abi0", "runtime.sysmon", "runtime.mstart1")): 200,
        (switch, go("runtime.futex.abi0", "runtime.lock2", "main.hash", "main.handle")): 200,
        (switch, go("syscall.Syscall", "main.read", "main.handle")): 100,
    }
    lines = findings(snapshot(map_data("@us", types.Tuple((K, U)), types.Sum(), entries), of=run(script="offcputime")))
    assert [line[22:] for line in lines[1:]] == [
        "no goroutine to run (an idle thread)", "main.hash → runtime.futex.abi0", "main.read → syscall.Syscall",
    ]  # fmt: skip


def test_memory_is_asked_for_by_the_programs_functions() -> None:
    entries = {
        (go("runtime.mallocgc", "runtime.growslice", "main.hash", "main.handle"), "app"): 700,
        (StackTrace((Frame("qsort_r", 1, SYSTEM), *stack("sort", "main").frames)), "app"): 200,
        (go("runtime.mallocgc", "runtime.newproc1"), "app"): 50,
        (go("runtime.mallocgc", "runtime.schedinit"), "app"): 50,
    }
    data = map_data("@bytes", types.Tuple((U, STRING)), types.Sum(), entries)
    lines = findings(snapshot(data, of=run(script="mallocs")))
    assert lines[0] == "1 kB allocated, most by:"
    assert [line[22:] for line in lines[1:4]] == ["main.hash", "sort → qsort_r", "the runtime of Go itself"]


def test_who_calls_a_function_that_several_call() -> None:
    entries = {stack("spin", "merge", "work"): 80, stack("spin", "score", "work"): 15, stack("copy", "pack", "work"): 5}
    lines = findings(snapshot(map_data("@", U, COUNT, entries), of=run(script="-e", text=SAMPLES)))
    at = lines.index("functions with what they call:")
    assert [line.split()[-1] for line in lines[at + 1 :]] == ["work", "merge", "score"], "pack alone calls copy"


def test_functions_through_which_everything_goes_are_no_answer() -> None:
    entries = {go("main.a", "main.handle"): 5, go("main.b", "main.handle"): 4, go("main.a", "main.other"): 1}
    found = Stacks(map_data("@", U, COUNT, entries), run(script="-e", text=SAMPLES))
    assert [found.items[one].name for one in found.callers[1]] == ["main.handle", "main.other"]


def test_calls_are_of_who_called_the_event() -> None:
    entered = ("sys_read", "entry")
    entries = {
        (stack(*entered, user=False), StackTrace((Frame("read", 1, SYSTEM), *stack(name, "main").frames))): count
        for name, count in (("load", 9), ("poll", 1))
    }
    data = map_data("@", types.Tuple((K, U)), COUNT, entries)
    lines = findings(snapshot(data, of=run(script="stackcount")))
    assert lines == ["10 calls, most from:", "   90.0 %          9  load", "   10.0 %          1  poll"]


def test_functions_of_a_script_have_the_native_code_that_they_call() -> None:
    script = Frame("total", 1, "", "", "/srv/app.py", 7)
    entries = {StackTrace((Frame(name, 1), script, *stack("eval").frames)): 50 for name in ("add", "mul")}
    lines = findings(snapshot(map_data("@", U, COUNT, entries), of=run(script="-e", text=SAMPLES)))
    assert lines[:2] == [
        "1 s on CPU (100 samples), most in the function and native code that it calls:",
        "  100.0 %        1 s  total",
    ]


def test_histograms() -> None:
    entries = {"a": {8: 90, 12: 9}, "b": {20: 1}}
    (line,) = findings(snapshot(map_data("@lat_us", STRING, types.Hist(0), entries)))
    assert line == "@lat_us: 100 values: p50 <= 127 us, p90 <= 127 us, p99 <= 2.05 ms, largest <= 524 ms"


@pytest.mark.parametrize(("amounts", "said"), [((0, 100), False), ((5, 95), False), ((60, 40), True)])
def test_code_without_names(amounts: tuple[int, int], said: bool) -> None:
    jit = StackTrace((Frame("", 0, "[JIT]"), *stack("main").frames))
    key = types.Tuple((U, STRING))
    entries = {(jit, "node"): amounts[0], (stack("main"), "node"): amounts[1]}
    entries = {entry: count for entry, count in entries.items() if count}
    text = findings(snapshot(map_data("@", key, COUNT, entries)))[-1]
    hint = "note: 60 % of the stacks hold compiled code without names ([JIT]): node --perf-basic-prof gives names"
    assert (text == hint) is said


@pytest.mark.parametrize(("amounts", "said"), [((5, 95), False), ((26, 74), True)])
def test_functions_without_symbols(amounts: tuple[int, int], said: bool) -> None:
    bare = StackTrace((Frame("", 0x10, "/usr/bin/app"), *stack("main").frames))
    kernel = stack("read", "entry", user=False)
    entries = {(kernel, bare): amounts[0], (kernel, stack("hot", "main")): amounts[1]}
    text = findings(snapshot(map_data("@", types.Tuple((K, U)), COUNT, entries)))[-1]
    hint = "note: 26 % of the stacks end in functions without names (app): "
    assert text.startswith(hint) is said


def test_a_program_that_slept_is_told_where_to_look() -> None:
    slept = snapshot(map_data("@", U, COUNT, {}), of=replace(run(script="-e", text=SAMPLES), target="sleep 1"))
    (line,) = findings(slept)
    said, hint = line.split("; ")
    assert said == "nothing was counted: sleep 1 was on no CPU when samples were taken"
    assert hint == "pytrace flame --off-cpu shows where it waits"


def test_nothing_of_nothing() -> None:
    made = snapshot(map_data("@", U, COUNT, {}), map_data("@h", None, types.Hist(0), {None: {}}))
    assert findings(made) == []
    empty = snapshot(map_data("@", U, COUNT, {}))
    assert findings(empty) == ["nothing was counted"]
    empty.losses["untraced"] = {"7": 2}
    assert findings(empty) == ["nothing was counted: 2 child processes may do the work, --follow traces them, too"]
    assert findings(snapshot(tables=(table(("n",), (types.INT32,), [(1,)]),))) == []


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (5_516_480, "us", "5.52 s"), (999, "us", "999 us"), (0, "ns", "0 ns"), (4_100, "bytes", "4.1 kB"),
        (3, "MB", "3.15 MB"), (2**61, "bytes", "2.31 EB"), (1_234_567, "", "1,234,567"), (5_000, "s", "5,000 s"),
        (12, "calls", "12 calls"),
    ],
)  # fmt: skip
def test_numbers_for_people(number: float, unit: str, text: str) -> None:
    assert readable(number, unit) == text


def test_durations_for_people() -> None:
    assert [duration(seconds) for seconds in (0.000_237, 0.0421, 3.291, 119.6, 125, 3_600, 172_799.9)] == [
        "237 us", "0.0421 s", "3.29 s", "120 s", "2 min 5 s", "1 h 0 min", "48 h 0 min",
    ]  # fmt: skip


def test_numbers_by_stack_are_scaled_to_the_same_total() -> None:
    once = {stack(str(at)): 1 for at in range(7)}
    before = snapshot(map_data("@", U, COUNT, once), map_data("@n", None, COUNT, {None: 7}))
    after = snapshot(map_data("@", U, COUNT, {stack("hot"): 23}), map_data("@n", None, COUNT, {None: 23}))
    found, sentences = scaled(before, after)
    assert sum(found.maps["@"].entries.values()) == 23  # type: ignore[arg-type]
    assert found.maps["@n"].entries == {None: 7}
    assert sentences == {"@": "numbers before are multiplied by 3.286: both have the same total"}
    assert scaled(snapshot(map_data("@", U, COUNT, {})), after)[1] == {}


def test_changes_are_by_function_whatever_the_folder_and_version() -> None:
    def state(folder: str, version: str, **own: int) -> MapData:
        main = Frame("main", 1, f"{folder}/bin/app")
        entries = {
            StackTrace((Frame(name, 1, f"{folder}/lib/libapp.so.{version}"), main)): count
            for name, count in own.items()
        }
        return map_data("@", U, COUNT, entries)

    before, after = state("/venv/old", "1.2", parse=700, store=200), state("/build", "2", parse=900, send=100, store=50)
    of = run(script="-e", text=SAMPLES)
    assert changes(Stacks(after, of, before)) == [
        "9 s (900 samples) before, 10.5 s (1,050 samples) after: +1.5 s (+16.7 %)",
        "grew most:", "        +2 s  parse (7 s before, 9 s after)", "        +1 s  send (0 s before, 1 s after)",
        "shrank most:", "      -1.5 s  store (2 s before, 500 ms after)",
    ]  # fmt: skip
