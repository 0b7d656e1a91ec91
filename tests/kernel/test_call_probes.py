"""Probes of calls: pairs of entries and returns, compared with what the traced program counts itself."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest

import pytrace
from pytrace import TraceWarning
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.failures import CallTotals
from pytrace.core.source import Source
from pytrace.frontend.syntax import call_suggestions
from tests.support.compile import SOURCES, compiled
from tests.support.machine import need
from tests.support.server import Server


@pytest.mark.skipif(platform.machine() != "x86_64", reason="code of x86-64")
@pytest.mark.parametrize("rounds", [200, pytest.param(4990, marks=pytest.mark.soak, id="a_million_calls")])
def test_no_call_is_paired_wrongly(server: Server, tmp_path: Path, rounds: int) -> None:
    """Threads, 200 calls deep, some left by longjmp; a second probe of the same function, and ordinary ones."""
    need("uprobe")
    program = compiled(tmp_path, "nested", SOURCES / "nested_calls.c", "-O1", "-pthread")
    script = (
        "call:./nested:work { @returns = count(); @time = sum(duration); "
        "if (retval != ((int64)arg0 ^ 0x5a5a)) { @wrong = count(); } } "
        "call:./nested:work /arg1 == 199/ { @deepest = count(); @depth = max(depth); } "
        "uprobe:./nested:work { @entries = count(); }"
    )
    result = server.run(("-v", "-e", script, "-c", f"{program} 2 {rounds}"), cwd=tmp_path, timeout=100 + rounds)
    assert result.status == 0, result
    own = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.stdout)}
    seen = {name: int(value) for name, value in re.findall(r"^@(\w+): (\d+)$", result.stdout, re.MULTILINE)}
    whole, rest = divmod(rounds, 200)
    assert own["entries"] > own["returns"] == 2 * (whole * 200 * 201 // 2 + rest * (rest + 1) // 2)
    assert seen["entries"] == own["entries"], result
    assert seen["returns"] == own["returns"], result
    assert "wrong" not in seen
    assert seen["deepest"] == 2 * whole
    assert seen["depth"] == 0
    # The time of a call as the program sees it from inside is shorter, from outside longer.
    assert own["inside"] < seen["time"] < own["outside"], (own, seen)
    told = re.search(r"^call:\./nested:work: (\d+) calls, (\d+) returned, (\d+) left", result.stderr, re.MULTILINE)
    assert told is not None, result
    entered, returned, left = map(int, told.groups())
    assert (entered, returned) == (own["entries"], own["returns"]), result
    assert entered == returned + left


@pytest.mark.parametrize("thread", ["", " thread"])
def test_depth_begins_anew_in_each_program(server: Server, tmp_path: Path, thread: str) -> None:
    """An execve in the midst of calls, of another thread than the first one, too, whose number that one takes."""
    need("uprobe")
    need("tracepoint")
    program = compiled(
        tmp_path, "executing", SOURCES / "executing_calls.c", "-O1", "-pthread", "-fno-optimize-sibling-calls"
    )
    names = ("inner", "outer", "dive", "waits")
    script = (
        ",".join(f"call:./executing:{name}" for name in names) + " { @[func, depth] = count(); } "
        "syscall:execve /pid == cpid && retval == 0/ { @executed = count(); @took = sum(duration > 0); } "
    )
    result = server.run(("-v", "-e", script, "-c", f"{program} 3{thread}"), cwd=tmp_path)
    assert result.status == 0, result
    calls = dict(re.findall(r"^@\[(\w+, \d+)\]: (\d+)$", result.stdout, re.MULTILINE))
    assert {key for key in calls if key.startswith(("inner", "outer"))} == {"inner, 1", "outer, 0"}, result
    # The kernel binds probes to the first thread, which is gone with the first execve of another one.
    assert calls["outer, 0"] == ("2" if thread else "9"), result
    # That of pytrace, which starts the command, is one of them.
    assert "@executed: 4\n@took: 4\n" in result.stdout, result
    assert "syscall:execve: 4 calls, 4 returned\n" in result.stderr, result


@pytest.mark.skipif(platform.machine() != "x86_64", reason="code of x86-64")
def test_functions_that_begin_with_a_mark_are_what_they_are_without(server: Server, tmp_path: Path) -> None:
    """They are probed at the instruction after ``endbr64``."""
    need("uprobe")
    results = []
    for marks in ("none", "branch"):
        (tmp_path / marks).mkdir()
        flags = ("-O1", "-pthread", "-fno-optimize-sibling-calls", f"-fcf-protection={marks}")
        compiled(tmp_path / marks, "executing", SOURCES / "executing_calls.c", *flags)
        script = (
            "call:./executing:dive,call:./executing:outer { @[func, depth, arg0, retval] = count(); } "
            "uprobe:./executing:dive { @entered[func, arg0] = count(); @from[usym(reg(\"ip\"))] = count(); }"
        )
        result = server.run(("-v", "-e", script, "-c", "./executing 0"), cwd=tmp_path / marks)
        assert result.status == 0, result
        results.append(sorted(line for line in result.stdout.splitlines() if line.startswith("@")))
    assert results[0] == results[1]
    assert "@entered[dive, 3]: 1" in results[0]
    assert "@[dive, 3, 0, 0]: 1" in results[0], results


def test_calls_of_threads_that_end_make_room(server: Server, tmp_path: Path) -> None:
    """More calls than there is room for are left by the ends of threads and processes, also by SIGKILL."""
    need("uprobe")
    program = compiled(
        tmp_path, "ending", SOURCES / "ending_calls.c", "-O1", "-pthread", "-fno-optimize-sibling-calls"
    )
    script = "config = { max_map_keys = 600 } call:./ending:within { @[depth] = count(); }"
    result = server.run(("-v", "--follow", "-e", script, "-c", f"{program} 200"), cwd=tmp_path)
    assert result.status == 0, result
    told = re.search(r"within: (\d+) calls, 3 returned, (\d+) left without a return(?:, (\d+) lost)?", result.stderr)
    assert told is not None, result
    calls, left, lost = (int(number or 0) for number in told.groups())
    assert calls == 200 * 12 + 3 == left + lost + 3, result
    assert "@[0]: 1\n@[1]: 1\n@[2]: 1\n" in result.stdout, result


def test_calls_of_the_system_and_pairs_of_static_probes(server: Server, programs: Path, tmp_path: Path) -> None:
    need("tracepoint")
    script = (
        "syscall:openat /retval < 0/ { printf(\"%s %s\\n\", str(args.filename), strerror(-retval)); } "
        "syscall:read,write /args.fd == 1 && args.count == 3/ { @[probe, probetype, retval] = count(); } "
        "call:usdt:./usdt:sample:one,four { @pair = count(); @ok = sum(duration > 0); } "
        "call:usdt:./usdt:sample:one,four /same(tid) && arg0 >= 4/ { @some = count(); }"
    )
    command = f"sh -c 'cat {tmp_path}/no; ./usdt 10; echo ab'"
    result = server.run(("--follow", "-e", script, "-c", command), cwd=programs)
    assert result.status == 0, result
    assert f"{tmp_path}/no No such file or directory" in result.stdout
    assert "@[syscall:write, call, 3]: 1\n" in result.stdout
    assert "@pair: 10\n" in result.stdout
    assert "@ok: 10\n" in result.stdout
    assert "@some: 6\n" in result.stdout


def test_suggested_calls_store_what_the_pairs_do(server: Server, tmp_path: Path) -> None:
    """Both forms in one run: the suggested one stores in maps of its own."""
    need("tracepoint")
    pairs = (
        "tracepoint:syscalls:sys_enter_read,tracepoint:syscalls:sys_enter_write /pid == cpid/ "
        "{ @start[tid] = nsecs; @fd[tid] = args.fd; @wanted[tid] = args.count } "
        "tracepoint:syscalls:sys_exit_read,tracepoint:syscalls:sys_exit_write /@start[tid] && args.ret > 0/ "
        "{ @bytes[@fd[tid], @wanted[tid]] = sum(args.ret); @timed = sum((nsecs - @start[tid]) / 1000 >= 0); "
        "delete(@start[tid]); delete(@fd[tid]); delete(@wanted, tid); } "
        "tracepoint:syscalls:sys_enter_openat { @path[tid] = args.filename } "
        "tracepoint:syscalls:sys_exit_openat /@path[tid] && pid == cpid/ "
        "{ @opened[str(@path[tid])] = sum(args.ret); delete(@path[tid]); } "
        "end { clear(@start); clear(@fd); clear(@wanted); clear(@path); }"
    )
    calls, found = call_suggestions.suggest(Source("script", pairs), Diagnostics())
    assert [pair.reason for pair in found] == ["", ""]
    calls = re.sub(r"@(bytes|timed|opened)", r"@new_\1", calls)
    result = server.run(("-e", f"{pairs} {calls}", "-c", f"cat /etc/hostname {tmp_path}/none"), cwd=tmp_path)
    assert result.status == 0, result
    maps = [line for line in result.stdout.splitlines() if line.startswith("@")]
    old = [line for line in maps if not line.startswith("@new_")]
    assert len(old) > 4, result
    assert [line.removeprefix("@new_") for line in maps if line not in old] == [line.removeprefix("@") for line in old]


_PYTHON = """
import time
time.sleep(0.5)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def steps():
    for i in range(3):
        time.sleep(0.001)
        yield i
print(fib(8), list(steps()))
"""


def test_calls_of_python_by_frame(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    (tmp_path / "app.py").write_text(_PYTHON)
    script = (
        "call:python:app.fib { @calls = count(); @sum = sum(pyint(args.n)); @depth = max(depth); } "
        "call:python:app.py:steps { @whole = sum(duration > 3000000); @steps = count(); } "
        "python:app:fibb { @misspelt = count(); } pythonret:ap:fib { @misspelt = count(); }"
    )
    result = server.run(("-e", script, "-c", f"/usr/bin/python3 {tmp_path}/app.py"), cwd=tmp_path, timeout=60)
    if "runs no CPython that is known" in result.stderr:
        pytest.skip("no CPython that is known")
    assert result.status == 0, result
    for line in ("@calls: 67", "@depth: 7", "@whole: 1", "@steps: 1"):
        assert f"{line}\n" in result.stdout, result
    # Names that nothing has are said, with those that are like them; names that were called are not.
    told = [line for line in result.stderr.splitlines() if line.startswith("no function")]
    assert len(told) == 2, told
    assert told[0].startswith("no function 'fibb' of app.py was called; called were fib")
    assert re.fullmatch(r"no function of ap\.py was called; \d+ other files? ran: app\.py.*", told[1])


_HANGS = """
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>
static jmp_buf back;
static void jump(int signal) { (void)signal; longjmp(back, 1); }
int main(void) {
    usleep(20000);
    signal(SIGALRM, jump);
    if (!setjmp(back)) {
        ualarm(30000, 0);
        usleep(900000);
    }
    usleep(100000000);
    return 0;
}
"""


def test_calls_that_do_not_return(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    program = compiled(tmp_path, "hangs", _HANGS)
    script = (
        'call:libc:usleep { printf("%s %s %s\\n", comm, probe, unfinished ? "unfinished" : "done"); } '
        "uprobe:libc:usleep /arg0 == 100000000/ { exit(); }"
    )
    result = server.run(("-v", "-e", script, "-c", str(program)), timeout=60)
    assert result.status == 0, result
    lines = [line for line in result.stdout.splitlines() if line.startswith("hangs ")]
    assert [line.split()[-1] for line in lines] == ["done", "unfinished"], result
    assert all("call:" in line for line in lines)
    told = "call:libc:usleep: 3 calls, 1 returned, 1 under way at the end, 1 left without a return"
    assert told in result.stderr, result


_LEFT = """
#include <pthread.h>
#include <setjmp.h>
static __thread jmp_buf back;
__attribute__((noinline)) int down(int level, int last, int jump) {
    volatile char some[32];
    some[0] = level;
    if (level == jump) longjmp(back, 1);
    return level == last ? level : down(level + 1, last, jump) + some[0] - level;
}
__attribute__((noinline)) int outer(void) {
    volatile char some[200];
    some[0] = 0;
    if (!setjmp(back)) down(1, 60, 50);
    return down(1, 3, -1) + some[0];
}
static void *run(void *unused) {
    for (int i = 0; i < 100; i++) {
        if (!setjmp(back)) down(0, 50, i % 40 + 1);
        down(0, i % 7, -1);
    }
    outer();
    return unused;
}
int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(threads + i, 0, run, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
"""


def test_depth_is_right_after_calls_that_were_left(server: Server, tmp_path: Path) -> None:
    """By longjmp, at other places of the stack than the calls after it; the first argument is the depth."""
    need("uprobe")
    program = compiled(tmp_path, "left", _LEFT, "-O1", "-pthread")
    script = (
        f"call:{program}:down, call:{program}:outer {{ @levels[depth] = count(); }} "
        f"call:{program}:down {{ @own[arg0] = count(); }}"
    )
    result = server.run(("-f", "json", "-e", script, "-c", str(program)), timeout=60)
    assert result.status == 0, result
    items = [json.loads(line) for line in result.stdout.splitlines()]
    maps = {name: value for item in items if item["type"] == "map" for name, value in item["data"].items()}
    levels, own = maps["@levels"], maps["@own"]
    assert levels == own | {"0": own["0"] + 2}  # outer() has depth 0
    assert own["0"] == 200


def test_what_a_probe_has_seen_is_data() -> None:
    need("tracepoint")
    names = ("exit_group", "close")
    script = " ".join(f"syscall:{name} /pid == cpid/ {{ @{name} = sum(duration); }}" for name in names)
    with pytest.warns(TraceWarning, match="none of 1 call"), pytrace.open(script, command="true") as trace:
        assert trace.wait(60)
    closed, ends = sorted(trace.calls, key=lambda row: row.probe)
    assert ends == CallTotals("syscall:exit_group", entered=1, left=1)
    assert closed.entered == closed.returned > 0


def test_calls_that_find_no_room_are_lost(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    program = compiled(tmp_path, "nested", SOURCES / "nested_calls.c", "-O1", "-pthread")
    script = "config = { max_map_keys = 50 } call:./nested:work { @ = count(); @sum = sum(duration); }"
    result = server.run(("-v", "-e", script, "-c", f"{program} 1 200"), cwd=tmp_path, timeout=60)
    assert result.status == 0, result
    entries, returns = (int(re.findall(rf"{name}=(\d+)", result.stdout)[0]) for name in ("entries", "returns"))
    seen = int(re.findall(r"^@: (\d+)$", result.stdout, re.MULTILINE)[0])
    told = re.search(r"work: (\d+) calls, (\d+) returned, .*?(\d+) lost", result.stderr)
    assert told is not None, result
    entered, returned, lost = map(int, told.groups())
    assert entered == entries
    assert returned == seen < returns
    assert returns <= seen + lost <= entries
    assert "calls of call:./nested:work are under way: this one is lost" in result.stderr


_FIRST = """
struct a { int x; };
static __attribute__((noinline)) int work(struct a *a, int n) { __asm__ volatile(""); return a->x + n; }
int first(void) { struct a a = {4}; return work(&a, 1); }
"""
_SECOND = """
int first(void);
static __attribute__((noinline)) int work(const char *text) { __asm__ volatile(""); return *text; }
int main(void) { for (int i = 0; i < 3; i++) first(); return work("") != 0; }
"""


@pytest.mark.core
def test_all_functions_of_a_name_in_the_kernel_are_probed(server: Server) -> None:
    """The drivers of networks and of performance counters each have a static ``type_show``."""
    need("kprobe")
    script = (
        "kprobe:type_show /pid == cpid/ { @one = count(); } kretprobe:type_sho* /pid == cpid/ { @pattern = count(); } "
        "kprobe:type_show,kprobe:vfs_read /pid == cpid && probe == \"kprobe:type_show\"/ { @list = count(); } "
        "call:kernel:type_show /pid == cpid/ { @call = count(); @took = sum(duration > 0); } "
        "call:kernel:type_sho* /pid == cpid/ { @calls = count(); }"
    )
    files = "/sys/class/net/lo/type /sys/bus/event_source/devices/software/type"
    result = server.run(("-e", script, "-c", f"cat {files}"), timeout=200)
    assert result.status == 0, result
    seen = dict(re.findall(r"^@(\w+): (\d+)$", result.stdout, re.MULTILINE))
    assert seen == dict.fromkeys(("one", "pattern", "list", "call", "took", "calls"), "2"), result


@pytest.mark.skipif(platform.machine() != "x86_64", reason="where x86-64 keeps arguments")
def test_all_functions_of_one_name_are_probed(server: Server, tmp_path: Path) -> None:
    """Static ones of two files, and two versions in a library; each with its own arguments."""
    need("uprobe")
    (tmp_path / "second.c").write_text(_SECOND)
    program = compiled(tmp_path, "both", _FIRST, str(tmp_path / "second.c"), "-g", "-O1")
    script = (
        "uprobe:./both:work { @entered = count(); } uretprobe:./both:work { @returned[retval] = count(); } "
        "uprobe:./both:w*k { @matched = count(); } call:./both:work { @called[retval] = count(); }"
    )
    result = server.run(("-q", "-e", script, "-c", str(program)), cwd=tmp_path)
    assert result.stdout.split() == [
        "@called[0]:", "1", "@called[5]:", "3", "@entered:", "4", "@matched:", "4", "@returned[0]:", "1",
        "@returned[5]:", "3",
    ], result  # fmt: skip
    result = server.run(("calls", "-c", str(program), "./both:work"), cwd=tmp_path)
    shown = [line.partition(" <")[0].split() for line in result.stdout.splitlines()]
    assert shown[:3] == [["work(a={x=4},", "n=1)", "=", "5"]] * 3, result
    exponents = 'uprobe:libm:pow { @versions = count(); }'
    source = "#include <math.h>\nint main(int c, char **v) { return pow(c, c + .5) < 0; }"
    program = compiled(tmp_path, "exponents", source, "-fno-builtin", "-lm")
    result = server.run(("-q", "-e", exponents, "-c", str(program)), cwd=tmp_path)
    assert result.stdout.split() == ["@versions:", "1"], result
