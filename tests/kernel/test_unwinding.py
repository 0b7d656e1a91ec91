"""Stacks by unwind tables, and debug information outside of programs."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from pytrace.runtime.stacks.address_space import MappingRecorder
from tests.support.compile import SOURCES, compiled, tool
from tests.support.expect import Result
from tests.support.patience import patience
from tests.support.server import Server
from tests.support.waiting import sleeps, until

pytestmark = pytest.mark.usefixtures("started", "no_leaks")

CONFIG = 'config = { unstable_dw_ustack = "enable"; show_debug_info = false } '
OURS = 'comm == "frameless" && (pid == cpid || curtask->real_parent->tgid == cpid)'
"""Another test may trace the same program at the same time."""
CALL = f"t:syscalls:sys_enter_getppid /{OURS}/ "
START = ["__libc_start_call_main", "__libc_start_main", "_start"]
CHAIN = ["leaf", "inner", "visit", "outer", "main"]
WHEN_WHOLE = f"{CALL} {{ if (len(dw_ustack) == {len(CHAIN) + len(START)}) {{ print(dw_ustack); exit(); }} }}"
"""The tracer learns of new mappings while the program goes on: its first stacks may be cut."""


@pytest.fixture
def started(server: Server) -> None:
    """The server runs before processes are counted."""
    server.start()


def names(text: str) -> list[str]:
    """Functions of the frames in a text."""
    return re.findall(r"(?m)^\s+(\S.*?)\+\d+(?: \(\S+\))?$", text)


def run(server: Server, program: str, command: str, *options: str) -> Result:
    result = server.run(("-q", *options, "-e", CONFIG + program, "-c", command), timeout=60)
    assert result.status == 0, result
    return result


@pytest.mark.parametrize(
    ("mode", "chain"),
    [
        ("chain", [*CHAIN, *START]),
        ("deep 30", ["leaf", *["recurse"] * 31, "deep", "main", *START]),
        ("align", ["leaf", "aligned", "main", *START]),
        ("fork", ["leaf", "inner", "visit", "outer", "in_child", "main", *START]),
    ],
)
def test_chain(server: Server, programs: Path, mode: str, chain: list[str]) -> None:
    result = run(server, CALL + "{ print(dw_ustack); }", f"{programs}/frameless {mode}")
    assert names(result.stdout) == chain
    assert result.stderr == ""


def test_frame_pointers_do_not_find_it(server: Server, programs: Path) -> None:
    result = run(server, CALL + "{ print(ustack); }", f"{programs}/frameless chain")
    assert names(result.stdout)[:1] == ["leaf"]
    assert "main" not in names(result.stdout)


def test_through_a_signal(server: Server, programs: Path) -> None:
    result = run(server, CALL + "{ print(dw_ustack); }", f"{programs}/frameless signal")
    found = names(result.stdout)
    assert found[:3] == ["leaf", "handler", "__restore_rt"]
    assert found[found.index("interrupted") :] == ["interrupted", "main", *START]


def test_lines_of_what_a_signal_interrupted(server: Server, programs: Path) -> None:
    """Callers have the line of their call; a function that was interrupted called nothing."""
    program = CONFIG.replace("false", "true") + f"u:{programs}/faults:handled {{ print(dw_ustack(5)); }}"
    result = server.run(("-q", "-e", program, "-c", f"{programs}/faults"), timeout=60)
    found = dict(re.findall(r"(?m)^\s+(\w+)\+\d+@\S*/faults\.c:(\d+)$", result.stdout))
    text = (Path(__file__).resolve().parents[1] / "programs" / "faults.c").read_text().splitlines()

    def line(what: str) -> str:
        return str(next(number for number, row in enumerate(text, 1) if what in row))

    del found["handled"]
    assert found == {"handler": line("    handled();"), "fault": line("/* here */"), "main": line("return fault(")}


def test_library_that_is_opened_later(server: Server, programs: Path, tmp_path: Path) -> None:
    copy = shutil.copy(programs / "libframeless.so", tmp_path / "libcopy.so")
    result = run(server, WHEN_WHOLE, f"{programs}/frameless load {copy}")
    assert names(result.stdout) == ["leaf", "inner", "visit", "load", "main", *START]


def test_classes_and_templates(server: Server, programs: Path) -> None:
    program = f"u:{programs}/frameless_classes:*area* {{ print(dw_ustack); }}"
    found = names(run(server, program, f"{programs}/frameless_classes").stdout)
    assert [item.partition("(")[0].split("<")[0] for item in found] == [
        "Square::area", "int measure", "guarded", "main", *START,
    ]  # fmt: skip


def test_uprobe_on_entry(server: Server, programs: Path) -> None:
    result = run(server, f"u:{programs}/frameless:leaf {{ print(dw_ustack); }}", f"{programs}/frameless")
    assert names(result.stdout) == [*CHAIN, *START]


def test_function_that_returns(server: Server, programs: Path) -> None:
    result = run(server, f"ur:{programs}/frameless:leaf {{ print(dw_ustack); }}", f"{programs}/frameless")
    assert names(result.stdout) == [*CHAIN[1:], *START]


def test_return_addresses_that_uretprobes_have_replaced(server: Server, programs: Path) -> None:
    binary = f"{programs}/frameless"
    program = f"ur:{binary}:recurse, ur:{binary}:deep {{ @returns = count(); }} u:{binary}:leaf {{ print(dw_ustack); }}"
    result = run(server, program, f"{binary} deep 20")
    assert names(result.stdout) == ["leaf", *["recurse"] * 21, "deep", "main", *START]
    assert "@returns: 22" in result.stdout


def test_sampled(server: Server, programs: Path) -> None:
    program = "profile:hz:99 /pid == cpid/ { @[dw_ustack] = count(); }"
    result = run(server, program, f"{programs}/frameless spin 700")
    stacks = [names(text) for text in result.stdout.split("@[") if "busy+" in text]
    assert stacks
    for stack in stacks:
        assert stack[stack.index("busy") :] == ["busy", "visit", "spin", "main", *START]


def test_raw_tracepoint(server: Server, programs: Path) -> None:
    program = f"rt:sys_enter /arg1 == 110 && {OURS}/ {{ print(dw_ustack(3)); }}"
    result = run(server, program, f"{programs}/frameless")
    assert names(result.stdout) == CHAIN[:3]


def test_modes_limits_keys_and_length(server: Server, programs: Path) -> None:
    program = CALL + (
        "{ print(dw_ustack(perf, 2)); @[dw_ustack(raw, 1), 7] = len(dw_ustack(4)); @n = len(dw_ustack); "
        "$s = dw_ustack(2); @s = len($s); }"
    )
    result = run(server, program, f"{programs}/frameless")
    lines = [line for line in result.stdout.splitlines() if line]
    assert re.fullmatch(r"\t[0-9a-f]+ leaf\+\d+ \(\S+/frameless\)", lines[0])
    assert re.fullmatch(r"\t[0-9a-f]+ inner\+\d+ \(\S+/frameless\)", lines[1])
    assert re.search(r"(?m)^[0-9a-f]{8,}\n, 7\]: 4$", result.stdout)
    assert "@n: 8" in lines
    assert "@s: 2" in lines


@pytest.mark.parametrize("option", ["-p", "--dwarf-pid"])
def test_running_process(server: Server, programs: Path, option: str) -> None:
    with subprocess.Popen([programs / "frameless", "wait"], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        until(lambda: sleeps(process.pid, "frameless"))
        program = f"{CONFIG} t:syscalls:sys_enter_getppid /pid == {process.pid}/ {{ print(dw_ustack); exit(); }}"
        act = f"echo > /proc/{process.pid}/fd/0"
        result = server.run(("-e", program, option, str(process.pid)), when_attached=(act,), timeout=30)
        process.stdin.close()
    assert result.status == 0, result
    assert names(result.stdout) == [*CHAIN, *START]


def test_process_without_tables(server: Server, programs: Path) -> None:
    with subprocess.Popen([programs / "frameless", "wait"], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        until(lambda: sleeps(process.pid, "frameless"))
        body = "{ @[dw_ustack] = count(); @n = len(dw_ustack); if (@c++) { exit(); } }"
        program = f"{CONFIG} t:syscalls:sys_enter_getppid /pid == {process.pid}/ {body}"
        act = f"echo > /proc/{process.pid}/fd/0"
        result = server.run(("-e", program), when_attached=(act, act), timeout=30)
        process.stdin.close()
    assert result.status == 0, result
    assert result.stderr.count("there are no unwind tables") == 1
    assert "dw_ustack has no process" in result.stderr
    assert "@n: 0" in result.stdout
    assert names(result.stdout) == []


def test_program_that_a_child_becomes(server: Server, programs: Path) -> None:
    """Its libraries come after execve."""
    result = run(server, WHEN_WHOLE, f"sh -c 'exec {programs}/frameless later'")
    assert names(result.stdout) == [*CHAIN, *START]


def test_nothing_is_left_of_a_dry_run(server: Server, programs: Path) -> None:
    argv = ("-e", CONFIG + CALL + "{ print(dw_ustack); }", "-c", f"{programs}/frameless", "--dry-run")
    result = server.run(argv)
    assert result.status == 0, result
    assert result.left_behind == ()


def test_no_such_process(server: Server) -> None:
    result = server.run(("-e", CONFIG + "begin { print(dw_ustack); }", "--dwarf-pid", "4194303"))
    assert result.status == 1
    assert result.stderr == "ERROR: there is no process 4194303\n"


def test_recorder_tells_what_processes_do() -> None:
    with closing(MappingRecorder([os.getpid()], prompt=True)) as recorder:
        with subprocess.Popen(["sh", "-c", "true & wait"]) as process:
            process.wait()
        assert select.select(recorder.descriptors, [], [], patience(30))[0]
        recorder.drain()
    ours = [item for item in recorder.changes if process.pid in item]
    assert ours[0] == ("fork", process.pid, os.getpid())
    assert ("map", process.pid, 0) in ours
    assert ours[-1] == ("exit", process.pid, 0)
    assert [what for what, pid, parent in ours if parent == process.pid] == ["fork"]


# ---------------------------------------------------------------------------------------------- split dwarf
# Programs compiled with -gsplit-dwarf, traced: arguments by name, results, source lines, inlined functions.


def _program(folder: Path, options: str) -> Path:
    return compiled(folder, "app", SOURCES / "split_dwarf.cpp", *options.split(), language="c++")


@pytest.mark.parametrize("package", [False, pytest.param(True, marks=pytest.mark.needs("dwz"))])
@pytest.mark.parametrize("form", ["-gdwarf-5 -O0", "-gdwarf-5 -O2", "-gdwarf-4 -O0", "-gdwarf-4 -O2"])
def test_arguments(form: str, package: bool, server: Server, tmp_path: Path) -> None:
    path = _program(tmp_path, f"{form} -gsplit-dwarf")
    if package:
        tool("llvm-dwp", "-e", path, "-o", f"{path}.dwp")
        (tmp_path / "app.dwo").unlink()
    program = f"""
    uprobe:{path}:cpp:"app::handle" {{
        printf("%d %s %d ", args.item->weight, args.item->name, args.item->next->weight);
        printf("%d %s\\n", args.depth, str(args.label));
    }}
    uretprobe:{path}:cpp:"app::handle" {{ printf("%d\\n", retval); }}
    uprobe:{path}@app.cpp:9 {{ printf("%s\\n", func); }}
    """
    result = server.run(("-q", "-e", program, "-c", str(path)), timeout=30)
    assert (result.status, result.stderr) == (0, ""), result
    name = "app::handle(app::Item const&, int, char const*)"
    assert sorted(filter(None, result.stdout.split("\n"))) == ["10 first 30 1 app", "44", name]


def test_inlined_functions_in_stacks(server: Server, tmp_path: Path) -> None:
    path = _program(tmp_path, "-g -O2 -gsplit-dwarf -fno-omit-frame-pointer -fno-schedule-insns2")
    # Behind the prologue, where the frame pointer leads to the caller.
    program = f"config = {{ show_debug_info = true }} uprobe:{path}@app.cpp:5 {{ print(ustack(2)); }}"
    result = server.run(("-q", "-e", program, "-c", str(path)), timeout=30)
    assert (result.status, result.stderr) == (0, ""), result
    first, inlined, outer = result.stdout.split("\n")[1:4]
    assert first.strip().startswith("app::touch()+")
    assert inlined.strip().startswith("[inlined] app::sum@")
    assert inlined.endswith("app.cpp:6")
    assert outer.strip().startswith("app::handle(")
    assert outer.endswith("app.cpp:8"), "the place of the call"


def test_missing_file(server: Server, tmp_path: Path) -> None:
    path = _program(tmp_path, "-gdwarf-5 -O2 -gsplit-dwarf")
    shutil.move(tmp_path / "app.dwo", tmp_path / "elsewhere")
    result = server.run(("-q", "-e", f"uprobe:{path}:*handle* {{ print(args.depth); }}", "-c", str(path)))
    assert result.status == 1
    assert "app.dwo, which does not exist" in result.stderr
    result = server.run(("-lv", f"uprobe:{path}:*handle*"))
    assert result.status == 0
    assert "    " not in result.stdout
    assert result.stderr.count("app.dwo") == 1
    program = f'uretprobe:{path}:cpp:"app::handle" {{ printf("%d\\n", (int32)retval); }}'
    for _ in range(2):
        result = server.run(("-q", "-e", program, "-c", str(path)))
        assert (result.status, result.stdout.strip()) == (0, "44"), result
        assert "app.dwo" in result.stderr, "a kept script warns too"
    shutil.move(tmp_path / "elsewhere", tmp_path / "app.dwo")
    result = server.run(("-q", "-e", program, "-c", str(path)))
    assert (result.status, result.stdout.strip(), result.stderr) == (0, "44", ""), "it is found when it comes"
