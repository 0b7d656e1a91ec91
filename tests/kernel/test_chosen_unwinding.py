"""stack_unwinding = auto: stacks of programs that nobody selected before come out whole once their tables are read."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest

from tests.support.compile import compiled
from tests.support.machine import need
from tests.support.server import Server

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="unwind tables are for x86-64")

CONFIG = "config = { stack_unwinding = auto; show_debug_info = false } "
CALLS = 3000
SORTED = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret: as compilers at run time make it. */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
static void (*generated)(void (*)(void));
__attribute__((noinline)) void leaf(void) { syscall(SYS_getsid, 1000000); __asm__ volatile(""); }
__attribute__((noinline)) int compare(const void *a, const void *b)
{
    volatile int room[30];
    room[*(int *)a % 30] = 1;
    generated(leaf);
    return *(int *)a - *(int *)b + room[*(int *)a % 30] - 1;
}
__attribute__((noinline)) void sorts(int n)
{
    int all[2] = {n % 7, 3};
    qsort(all, 2, 4, compare);
    __asm__ volatile("");
}
int main(int argc, char **argv)
{
    void *memory = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory, code, sizeof code);
    generated = (void (*)(void (*)(void)))memory;
    for (int i = 0; i < atoi(argv[1]); i++) {
        sorts(i);
        if (!i) usleep(300000); /* for the tables of what was just met */
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program without frame pointers, but for code that it makes at run time, that sorts through the C library."""
    need("bpf_loop")
    return Path(compiled(tmp_path_factory.mktemp("choice"), "sorting", SORTED, "-O2", "-fomit-frame-pointer"))


def stacks(text: str) -> dict[tuple[str, ...], int]:
    """Functions of each stack of the map ``@``, outermost last, and how often it was."""
    found: dict[tuple[str, ...], int] = {}
    for line in text.splitlines():
        row = json.loads(line)
        for key, count in row["data"]["@"].items() if row["type"] == "map" and "@" in row["data"] else ():
            names = tuple(re.sub(r"\+\d+$", "", frame.strip()) for frame in key.strip().split("\n"))
            found[names] = found.get(names, 0) + count
    return found


def is_whole(names: tuple[str, ...]) -> bool:
    """Whether a stack has each frame from the system call to the program's start, in order and no other."""
    mine = [name for name in names if not re.match(r"msort|_*qsort|_*quicksort|intro", name)]
    generated = mine[2] if len(mine) > 2 else ""
    callers = ["compare", "sorts", "main", "__libc_start_call_main", "__libc_start_main", "_start"]
    return mine == ["syscall", "leaf", generated, *callers] and re.fullmatch(r"0x[0-9a-f]+", generated) is not None


FIRST = 20
"""How many stacks may be taken before tables are read, or before new code is known."""


def test_all_stacks_of_a_command_are_whole(server: Server, program: Path) -> None:
    script = CONFIG + "t:syscalls:sys_enter_getsid /pid == cpid/ { @[ustack] = count(); }"
    result = server.run(("-f", "json", "-e", script, "-c", f"{program} {CALLS}"), timeout=60)
    assert result.status == 0, result
    found = stacks(result.stdout)
    wrong = {names: count for names, count in found.items() if not is_whole(names)}
    assert sum(found.values()) == CALLS
    # The code that is made at run time is mapped after the tables were read: the first stacks end before it.
    assert sum(wrong.values()) < FIRST, wrong
    assert all(names == ("syscall", "leaf") for names in wrong), wrong


def test_processes_that_the_programs_meet(server: Server, program: Path) -> None:
    """Nothing was selected: tables are asked for, and read while the program runs."""
    script = CONFIG + 't:syscalls:sys_enter_getsid /comm == "sorting" && args.pid == 1000000/ { @[ustack] = count(); '
    script += f"if (@n++ == {CALLS - 1}) {{ exit(); }} }}"
    result = server.run(("-v", "-f", "json", "-e", script), when_attached=(f"{program} {CALLS}",), timeout=60)
    assert result.status == 0, result
    found = stacks(result.stdout)
    assert sum(count for names, count in found.items() if is_whole(names)) > CALLS - FIRST, found
    assert re.search(r"ustack of \S+/sorting: unwind tables, \d+ rows", result.stderr)
    assert re.search(r"ustack of \S+/libc\.so\.6: unwind tables, \d+ rows", result.stderr)
    early = re.search(r"(\d+) user stacks followed frame pointers, before", result.stderr)
    assert early is not None
    assert int(early[1]) < FIRST


def test_tables_alone(server: Server, program: Path) -> None:
    """As dw_ustack: it ends at code without a table, and says so."""
    script = CONFIG.replace("auto", "tables") + "t:syscalls:sys_enter_getsid /pid == cpid/ { @[ustack] = count(); }"
    result = server.run(("-f", "json", "-e", script, "-c", f"{program} {CALLS}"), timeout=60)
    assert sum(stacks(result.stdout).values()) == CALLS
    assert all(names[:2] == ("syscall", "leaf") and len(names) == 3 for names in stacks(result.stdout))
    assert "stack_cut" in result.stdout
