"""Symbols on the running kernel: exited processes, kernel functions, BPF programs."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.machine.kernel_functions import Kallsyms
from pytrace.runtime.stacks.address_space import MappingRecorder
from pytrace.runtime.stacks.symbolizer import Symbolizer
from tests.runtime.binaries.test_debug_files import Site
from tests.support import fuse_server
from tests.support.compile import SOURCES, compiled, tool
from tests.support.machine import need
from tests.support.patience import patience
from tests.support.server import Server
from tests.support.waiting import open_descriptors


@contextmanager
def recording(*limits: list[int]) -> Iterator[Symbolizer]:
    """Names of processes from now on."""
    symbols = Symbolizer()
    symbols.start(*limits)
    try:
        yield symbols
    finally:
        symbols.close()


def _short_lived(folder: Path) -> Path:
    text = "#include <stdio.h>\nint place(int n) { return n; }\n"
    text += 'int main(void) { printf("%p\\n", (void *)place); return 0; }\n'
    return compiled(folder, "short", text, "-O0")


def test_exited_processes_are_symbolised(tmp_path: Path) -> None:
    path = _short_lived(tmp_path)
    with recording([]) as symbols:
        ended = []
        for _ in range(5):
            child = subprocess.Popen([str(path)], stdout=subprocess.PIPE, text=True)
            output, _ = child.communicate()
            ended.append((child.pid, int(output, 16)))
        symbols.poll()
        for pid, address in ended:
            assert not os.path.exists(f"/proc/{pid}")
            (frame,) = symbols.user(pid, address + 4)
            assert (frame.name, frame.offset, frame.module) == ("place", 4, str(path))
        assert symbols.notices() == []


def test_a_snapshot_covers_what_ran_before(tmp_path: Path) -> None:
    text = "#include <stdio.h>\nint place(int n) { return n; }\n"
    text += 'int main(void) { printf("%p\\n", (void *)place); fflush(stdout); return getchar(); }\n'
    path = compiled(tmp_path, "before", text, "-O0")
    child = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    address = int(child.stdout.readline(), 16)
    with recording() as symbols:
        child.communicate("\n")
        symbols.poll()
        assert symbols.user(child.pid, address)[0].name == "place"


def test_forked_children_have_the_mappings_of_their_parent(tmp_path: Path) -> None:
    text = """
    #include <stdio.h>
    #include <unistd.h>
    #include <sys/wait.h>
    int place(int n) { return n; }
    int main(void) { int pid = fork(); if (!pid) _exit(0); waitpid(pid, 0, 0); printf("%d %p\\n", pid, (void *)place); }
    """
    path = compiled(tmp_path, "forking", text, "-O0")
    with recording([]) as symbols:
        run = subprocess.run([str(path)], capture_output=True, text=True, check=True)
        pid, address = run.stdout.split()
        symbols.poll()
        assert symbols.user(int(pid), int(address, 16))[0].name == "place"


def test_many_short_processes(tmp_path: Path) -> None:
    path = _short_lived(tmp_path)
    place = Binary.open(str(path)).address_of("place")
    assert place is not None
    with recording([]) as symbols:
        script = f"for i in $(seq 300); do {path}; done"
        child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        addresses = []
        for line in child.stdout:
            addresses.append(int(line, 16))
            symbols.poll()
        child.wait()
        symbols.poll()
        assert symbols._recorder is not None
        spaces = [
            space for space in symbols._recorder.spaces.values() if space.program and space.program.path == str(path)
        ]
        assert len(addresses) == 300
        assert len(spaces) == 300
        assert all(space.ended for space in spaces)
        starts = {row.start for space in spaces for row in [space.program] if row}
        assert {address & ~0xFFF for address in addresses} <= starts


IN_A_NAMESPACE = """
mount -t tmpfs none /usr/lib/debug && cp vanishing.debug /usr/lib/debug || exit 77
i=0
while [ $i -lt 150 ]; do ./vanishing $((i % 30)) & ./vanishing $((i % 7)); i=$((i + 1)); done; wait
"""
"""Each process is reached below a root of its own, debug files included, and ends within 3 milliseconds."""


@pytest.mark.parametrize("script", ["@[ustack] = count();", 'printf("%s", ustack);'])
def test_processes_that_end_while_they_are_looked_at(server: Server, tmp_path: Path, script: str) -> None:
    path = compiled(tmp_path, "vanishing", SOURCES / "vanishing.c", "-g", "-O1", "-fno-omit-frame-pointer")
    os.makedirs("/usr/lib/debug", exist_ok=True)
    tool("objcopy", "--only-keep-debug", path, f"{path}.debug")
    tool("objcopy", "--strip-all", f"--add-gnu-debuglink={path}.debug", path)
    (tmp_path / "run").write_text(f"cd {tmp_path}\n{IN_A_NAMESPACE}")
    program = f'profile:hz:1999 /comm == "vanishing"/ {{ {script} }}'
    result = server.run(("-q", "--follow", "-e", program, "-c", f"unshare -m sh {tmp_path}/run"), timeout=60)
    assert result.status == 0, result.stderr
    assert "BUG" not in result.stderr
    assert "Traceback" not in result.stderr
    assert "spin" in result.stdout


IN_A_CONTAINER = """#include <unistd.h>
__attribute__((noinline)) int waits(char *place) { return (int)read(0, place, 1); }
int main(void) { char letter; write(1, "ready\\n", 6); return waits(&letter) < 0; }
"""


@contextmanager
def in_a_container(folder: Path) -> Iterator[tuple[int, int]]:
    """A process of the program in a root of its own, which is gone with it: its number, and where it waits."""
    path, root = compiled(folder, "inside", IN_A_CONTAINER, "-static", "-O1"), folder / "root"
    root.mkdir()
    steps = f"mount -t tmpfs none {root} && mkdir {root}/bin && cp {path} {root}/bin && exec chroot {root} /bin/inside"
    (symbol,) = Binary.open(str(path)).functions("waits")
    command = ["unshare", "-m", "sh", "-c", steps]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid, symbol.address
        process.communicate(b"x")
    assert not os.listdir(root)


def test_names_of_a_container_that_lived_for_a_moment(tmp_path: Path) -> None:
    """Its files are opened at the next look at what processes have mapped, ten times a second, and are gone with it."""
    assert Symbolizer().pause(1.0) == 1.0
    with recording() as symbols:
        assert symbols.pause(1.0) < 0.2
        with in_a_container(tmp_path) as (pid, address):
            symbols.poll()
        (frame,) = symbols.user(pid, address)
        assert (frame.name, frame.module) == ("waits", "/bin/inside")


def test_files_of_processes_that_are_not_traced_are_not_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are opened while they last, as they may be wanted; who is not traced does not write into our warnings."""

    def refused(*_arguments: object) -> None:
        raise TraceError("it is damaged")

    with recording() as symbols:
        with in_a_container(tmp_path) as (pid, address):
            monkeypatch.setattr(symbols._images, "any_binary", refused)
            symbols.poll()
            assert not symbols.notices()
        symbols.user(pid, address)
        assert symbols.notices() == ["no symbols of /bin/inside: it is damaged"]


COMPILES = """import ctypes, mmap, os, sys
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
with open(f"/tmp/perf-{os.getpid()}.map", "w") as file: file.write(f"{start:x} 40 compiled\\n")
print(start, flush=True)
sys.stdin.read(1)
os.unlink(file.name)
"""


def test_names_of_code_that_a_brief_process_compiled(tmp_path: Path) -> None:
    """It removes them at its end, and its /tmp is gone with it."""
    program = tmp_path / "compiles.py"
    program.write_text(COMPILES)
    with recording() as symbols:
        steps = f"cp {program} /run && mount -t tmpfs none /tmp && exec {sys.executable} -S /run/compiles.py"
        inside = f"mount -t tmpfs none /run && {steps}"
        with subprocess.Popen(
            ["unshare", "-m", "sh", "-c", inside], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            start = int(process.stdout.readline())
            symbols.poll()
            process.communicate(b"x")
        (frame,) = symbols.user(process.pid, start + 4)
        assert (frame.name, frame.offset) == ("compiled", 4)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    before = len(open_descriptors())
    symbols = Symbolizer()
    symbols.start([])
    assert len(symbols.descriptors) >= 1
    symbols.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_records_of_a_build_wait_for_a_tracer_that_gets_no_processor() -> None:
    """Processes whose records were lost have numbers in place of names."""
    recorder = MappingRecorder([])
    try:
        subprocess.run(["sh", "-c", "i=0; while [ $i -lt 600 ]; do /bin/true; i=$((i + 1)); done"], check=True)
        recorder.drain()
        assert recorder.lost == 0
        assert sum(space.ended for space in recorder.spaces.values()) >= 600
    finally:
        recorder.close()


def test_kernel_functions() -> None:
    kallsyms = Kallsyms()
    address = kallsyms.address("vfs_read")
    assert address is not None
    (frame,) = Symbolizer().kernel(address + 3)
    assert (frame.name, frame.offset, frame.module) == ("vfs_read", 3, "")
    (unknown,) = Symbolizer().kernel(0xFFFFFFFFFFFFFF00)
    assert unknown.name == ""


def test_arguments_of_a_function_that_is_inlined_elsewhere(server: Server, tmp_path: Path) -> None:
    """Its entry in the DWARF has names and types by way of DW_AT_abstract_origin."""
    need("uprobe")
    path = compiled(tmp_path, "inlined", SOURCES / "inlined_elsewhere.c", "-g", "-O2")
    program = f"uprobe:{path}:twice {{ print((args.amount, args.where->x)); }}"
    result = server.run(("-q", "-e", program, "-c", f"{path} more"), timeout=30)
    assert (result.status, result.stdout.strip(), result.stderr) == (0, "(2, 42)", ""), result


STRIPPED = """#include <unistd.h>
__attribute__((noinline)) void hidden(int n) { getsid(n); __asm__ volatile(""); }
static inline __attribute__((always_inline)) void within(int n) { hidden(n); __asm__ volatile(""); }
int main(void) { within(1000000); return 0; }
"""
STACKS = (
    "config = { stack_unwinding = auto } uprobe:BIN:hidden { @[func, ustack(3)] = count(); } "
    "tracepoint:syscalls:sys_enter_getsid /pid == cpid && args.pid == 1000000/ { @called[ustack(4)] = count(); }"
)


def test_symbols_of_stripped_programs(server: Server, tmp_path: Path) -> None:
    """MiniDebugInfo in the program, and what a debuginfod server has; one that has something else is named."""
    need("uprobe")
    need("bpf_loop")
    path = compiled(tmp_path, "program", STRIPPED, "-g", "-O2", "-Wl,--build-id")
    tool("objcopy", "--only-keep-debug", path, tmp_path / "full")
    tool("objcopy", "--only-keep-debug", "--strip-debug", path, tmp_path / "mini")
    (tmp_path / "mini.xz").write_bytes(lzma.compress((tmp_path / "mini").read_bytes()))
    small, bare = tmp_path / "with-symbols", tmp_path / "without"
    tool("objcopy", "--strip-all", f"--add-section=.gnu_debugdata={tmp_path}/mini.xz", path, small)
    tool("objcopy", "--strip-all", path, bare)
    build_id = ElfFile.open(str(bare)).build_id
    with Site().running() as site:
        environment = {"DEBUGINFOD_URLS": site.url, "DEBUGINFOD_CACHE_PATH": f"{tmp_path}/cache", "no_proxy": "*"}

        def run(program: Path) -> str:
            words = ("-q", "-e", STACKS.replace("BIN", str(program)), "-c", str(program))
            result = server.run(words, environment=environment, timeout=60)
            return result.stdout + result.stderr

        assert_frames(run(small), ["hidden+", "main+"])
        assert site.asked == []
        site.files[f"/buildid/{build_id}/debuginfo"] = small.read_bytes()[:-1]
        assert f"debuginfod at {site.url} gave no debug information" in run(bare)
        site.files[f"/buildid/{build_id}/debuginfo"] = (tmp_path / "full").read_bytes()
        whole = ["hidden+", "[inlined] within@", "program.c:3", "main+", "program.c:4"]
        assert_frames(run(bare), whole)
        # Without a probe that names a function, stacks ask: at the end, and once for a binary.
        for stored in (tmp_path / "cache").iterdir():
            shutil.rmtree(stored)
        site.asked.clear()
        stacks = STACKS[STACKS.index("tracepoint:") :]
        script = f"config = {{ stack_unwinding = auto }} {stacks}"
        result = server.run(("-e", script, "-c", str(bare)), environment=environment, timeout=60)
        assert_frames(result.stdout, whole, ("@called[",))
        assert site.asked.count(f"/buildid/{build_id}/debuginfo") == 1


def assert_frames(output: str, texts: list[str], keys: tuple[str, ...] = ("@[hidden,", "@called[")) -> None:
    """The stacks are there, with functions in this order."""
    for key in keys:
        assert key in output, output
        _, _, stack = output.partition(key)
        stack = stack.partition("]: ")[0]
        places = [stack.find(text) for text in texts]
        assert -1 not in places, output
        assert places == sorted(places), output


@pytest.mark.skipif(not fuse_server.possible(), reason="/dev/fuse cannot be used here")
def test_a_program_whose_file_system_answers_no_more(tmp_path: Path) -> None:
    """Its server holds up nobody: the run ends in time, and a program elsewhere has its names."""
    need("syscalls")
    path = compiled(tmp_path, "elsewhere", SOURCES / "endless.c", "-g", "-O1", "-fno-omit-frame-pointer")
    (tmp_path / "fuse").mkdir()
    script = "t:syscalls:sys_enter_getppid /PROCESSES/ { @[comm, ustack(4)] = count(); } interval:s:1 { exit(); }"
    # Who waits for it cannot be ended before it is unmounted.
    with ExitStack() as stack, fuse_server.mounted(tmp_path / "fuse", {"hostile": path.read_bytes()}) as served:
        pids = []
        for program in (tmp_path / "fuse" / "hostile", path):
            process = stack.enter_context(subprocess.Popen([program], stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.read(2) == b"xx", "all of its loop is in memory"
            pids.append(process.pid)
        served.silent |= {fuse_server.LOOKUP, fuse_server.GETATTR, fuse_server.OPEN, fuse_server.READ}
        both = script.replace("PROCESSES", " || ".join(f"pid == {pid}" for pid in pids))
        # Not by the server of the tests: the process that waits for ever would have it wait, too.
        command = [sys.executable, "-m", "pytrace", "-e", both]
        result = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
        assert result.returncode == 0, result.stderr
        assert "@[elsewhere" in result.stdout
        assert "@[hostile" in result.stdout
        assert "turns+" in result.stdout
        assert re.search(r"no symbols of \S+/fuse/hostile: it is not read: .*file system", result.stderr), result.stderr
