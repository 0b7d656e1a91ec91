"""User stacks that programs walk themselves are those of the kernel (pytrace.codegen.walkers.frame_pointers)."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.compile import compiled
from tests.support.machine import need
from tests.support.server import Server

PROBE = "tracepoint:syscalls:sys_enter_getsid /args.pid >= 1000000 && pid == cpid/"
CHAINS = 42
"""Chains of frames that tests/programs/chains makes."""
KERNELS_WALK = ("--no-feature", "current_task_btf")

BODIES = {
    "keys": "".join(f"@l{n}[args.pid, ustack(raw, {n})] = count(); " for n in (1, 2, 3, 9, 10, 17, 18, 126, 127)),
    "both": "@[args.pid, ustack(raw), kstack(raw, 1) == kstack(raw, 1)] = count();",
    "two": "@[ustack(raw), args.pid, ustack(raw, 5)] = hist(args.pid);",
    "variable": "$s = ustack(raw, 12); @v[args.pid] = $s; @[args.pid, $s] = count(); "
    "if ($s == ustack(raw, 12)) { @same++; }",
    "value": "@[args.pid] = ustack(raw, 16); if (args.pid > 1000005) { print(@[args.pid]); }",
    "loop": "for ($i : 0..2) { @[$i, args.pid, ustack(raw, 14)] = count(); }",
    "event": 'printf("%d %s|\\n", args.pid, ustack(raw, 20));',
    "events": 'printf("%d %s %s|\\n", args.pid, ustack(raw), ustack(raw, 4)); @[len(ustack)] = count();',
}


def chains(programs: Path, rounds: int = 2) -> str:
    """The command; what it prints would be between the lines of the run."""
    return f"/bin/sh -c 'exec {programs / 'chains'} {rounds} > /dev/null'"


def traced(server: Server, script: str, command: str, *words: str, environment: dict[str, str] | None = None) -> str:
    done = server.run(("-q", "--no-cache", *words, "-e", script, "-c", command), timeout=60, environment=environment)
    assert done.status == 0, done.stderr
    # Some chains are longer than what is kept.
    lines = [line for line in done.stderr.splitlines() if "stacks truncated after" not in line]
    assert not any("WARNING" in line for line in lines), done.stderr
    return done.stdout


@pytest.mark.parametrize("stack", ["", "0", "200"])
@pytest.mark.parametrize("name", BODIES)
def test_chains_of_frames_of_all_kinds(server: Server, programs: Path, name: str, stack: str) -> None:
    need("bpf_loop")
    environment = {"PYTRACE_ON_STACK_LIMIT": stack} if stack else {}
    script, command = f"{PROBE} {{ {BODIES[name]} }}", chains(programs)
    ours = traced(server, script, command, environment=environment)
    assert ours.count("1000041") >= 1
    assert ours == traced(server, script, command, *KERNELS_WALK, environment=environment)


REGISTERS = "((struct pt_regs *)arg0).di"
PROBES = {
    "tracepoint": ("tracepoint:raw_syscalls:sys_enter /args.id == 124/", "args.args[0]"),
    "rawtracepoint": ("rawtracepoint:sys_enter /args.id == 124/", "args.regs.di"),
    "kprobe": ("kprobe:__x64_sys_getsid", REGISTERS),
    "fentry": ("fentry:__x64_sys_getsid", "args.regs.di"),
    "fexit": ("fexit:__x64_sys_getsid", "args.regs.di"),
}


@pytest.mark.parametrize("kind", PROBES)
def test_probes_of_all_kinds(server: Server, programs: Path, kind: str) -> None:
    need("bpf_loop", "fentry" if kind == "fexit" else kind)
    if platform.machine() != "x86_64":
        pytest.skip("the names of functions and registers are those of x86-64")
    probe, number = PROBES[kind]
    script = f'{probe} {{ if (pid == cpid) {{ @[{number}, ustack(raw)] = count(); }} }}'
    ours = traced(server, script, chains(programs, 1))
    assert ours.count("@[") == CHAINS
    assert ours == traced(server, script, chains(programs, 1), *KERNELS_WALK)


def test_the_longest_chain_has_all_frames(server: Server, programs: Path) -> None:
    need("bpf_loop")
    if platform.machine() != "x86_64":
        pytest.skip("the program has no chains on this machine")
    printed = traced(server, f'{PROBE} {{ printf("%d %d\\n", args.pid, len(ustack)); }}', chains(programs, 1))
    lengths = dict(map(int, line.split()) for line in printed.splitlines() if line)
    assert len(lengths) == CHAINS
    assert lengths[1000000] == lengths[1000001] == 6
    assert max(lengths.values()) == 127


THREADS = """
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(depth):
    if depth:
        call(depth - 1)
    else:
        libc.getsid(1000000)
threads = [threading.Thread(target=call, args=(n * 20,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
call(50)
"""


def test_stacks_of_an_ordinary_program(server: Server, tmp_path: Path) -> None:
    """Without frame pointers a walk goes anywhere. Symbols, because addresses differ from run to run."""
    need("bpf_loop")
    (tmp_path / "threads.py").write_text(THREADS)
    script = f"{PROBE} {{ @ = count(); @[1, ustack(1)] = count(); }}"
    for words in ((), KERNELS_WALK):
        printed = traced(server, script.replace("@ =", "@n ="), f"/usr/bin/env python3 {tmp_path}/threads.py", *words)
        assert "@n: 5" in printed
        assert "getsid" in printed


PROGRAM32 = """
static void call(long number) { __asm__ volatile("int $0x80" : : "a"(number), "b"(0) : "memory"); }
static void deeper(int depth) { if (depth) deeper(depth - 1); else call(147); __asm__ volatile(""); }
void _start(void) { deeper(3); call(1); }
"""


def test_32_bit_programs(server: Server, tmp_path: Path) -> None:
    """Their frames are half as large: the kernel walks them."""
    need("bpf_loop")
    (tmp_path / "small.c").write_text(PROGRAM32)
    command = ["gcc", "-m32", "-nostdlib", "-static", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls",
               "-fno-stack-protector", "-o", f"{tmp_path}/small", f"{tmp_path}/small.c"]  # fmt: skip
    if not shutil.which("gcc") or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no compiler for 32-bit programs")
    try:
        subprocess.run([f"{tmp_path}/small"], check=False)
    except OSError:
        pytest.skip("this kernel runs no 32-bit programs")
    script = 'tracepoint:raw_syscalls:sys_enter /comm == "small" && args.id == 147/ { @[ustack(raw)] = count(); }'
    ours = traced(server, script, f"{tmp_path}/small")
    assert len(ours.split("@[")[1].splitlines()) > 4
    assert ours == traced(server, script, f"{tmp_path}/small", *KERNELS_WALK)


def test_return_addresses_that_a_uretprobe_replaced(server: Server, programs: Path) -> None:
    need("bpf_loop", "uprobe")
    path = programs / "nested"
    script = (
        f"uretprobe:{path}:* {{ @r = count(); }} tracepoint:syscalls:sys_enter_clock_nanosleep "
        "/pid == cpid/ { @[ustack] = count(); }"
    )
    ours = traced(server, script, str(path))
    kernels = traced(server, script, str(path), *KERNELS_WALK)
    # Before Linux 6.12 the kernel's walk gives the trampoline's address for them.
    assert "clock_nanosleep" in ours
    # The first line has times.
    assert ours[ours.index("@[") :] == kernels[kernels.index("@[") :]


ENTRIES = """
__attribute__((noinline)) int leaf(int n) { __asm__ volatile("nop"); return n + 1; }
__attribute__((noinline)) int pushes(int n) { __asm__ volatile("nop"); return leaf(n) + 1; }
__attribute__((noinline)) int middle(int n) { return pushes(leaf(n)) + 1; }
int main(void) { return middle(3) == 0; }
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="return addresses are on the stack on x86-64")
def test_the_first_instruction_of_a_function_has_its_caller(server: Server, tmp_path: Path) -> None:
    """Whether or not the function begins with ``push %rbp``, which newer kernels look for."""
    program = compiled(tmp_path, "entries", ENTRIES, "-O1", "-fno-omit-frame-pointer", "-momit-leaf-frame-pointer")
    script = f"uprobe:{program}:leaf,uprobe:{program}:pushes {{ @[ustack(3)] = count(); @two[ustack(2)] = count(); }}"
    words = traced(server, f"config = {{ show_debug_info = false }} {script}", str(program)).split()
    functions = [word.partition("+")[0] for word in words if "+" in word]
    found = {tuple(functions[at : at + 3]) for at in range(0, 9, 3)}
    assert found == {("leaf", "middle", "main"), ("leaf", "pushes", "middle"), ("pushes", "middle", "main")}
    assert {tuple(functions[at : at + 2]) for at in range(9, 15, 2)} == {stack[:2] for stack in found}
