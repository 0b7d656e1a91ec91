"""Names of addresses of processes that execute other programs, and unload libraries: those of when they were taken."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.compile import compiled
from tests.support.machine import need
from tests.support.server import Server

pytestmark = pytest.mark.usefixtures("_uprobes")

PARTS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static volatile long sum;
__attribute__((noinline)) void NAME_leaf(int n) { sum += n; }
__attribute__((noinline)) void NAME_outer(int n) { NAME_leaf(n); sum += n; }
__attribute__((noinline)) void NAME_hot(double end) { while (now() < end) for (int i = 0; i < 100; i++) sum += i; }
__attribute__((noinline)) void NAME_work(double seconds) { NAME_hot(now() + seconds); sum++; }
"""
PROGRAM = PARTS + r"""
/* NEXT COUNT SECONDS: works, then executes the other program, COUNT times in all. */
int main(int argc, char **argv)
{
    char count[20];
    NAME_outer(1);
    NAME_work(atof(argv[3]));
    snprintf(count, sizeof count, "%d", atoi(argv[2]) - 1);
    if (atoi(argv[2]) > 1) execl(argv[1], argv[1], argv[0], count, argv[3], (char *)0);
    return 0;
}
"""
LIBRARY = PARTS + "void entry(double seconds) { NAME_outer(1); NAME_work(seconds); sum++; }\n"
LOADER = r"""
#include <dlfcn.h>
#include <stdlib.h>
/* COUNT SECONDS LIBRARY LIBRARY: loads them in turn, calls the library, and unloads it. */
int main(int argc, char **argv)
{
    for (int i = 0; i < atoi(argv[1]); i++) {
        void *library = dlopen(argv[3 + i % 2], RTLD_NOW);
        ((void (*)(double))dlsym(library, "entry"))(atof(argv[2]));
        dlclose(library);
    }
    return 0;
}
"""
FLAGS = ("-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")


@pytest.fixture(scope="module")
def _uprobes() -> None:
    need("uprobe")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs at the same addresses, two libraries that are loaded at the same ones, and what loads them."""
    folder = tmp_path_factory.mktemp("images")
    for name in ("first", "second"):
        compiled(folder, name, PROGRAM.replace("NAME", name), *FLAGS, "-static", "-no-pie")
        compiled(folder, f"lib{name}.so", LIBRARY.replace("NAME", name), *FLAGS, "-shared", "-fPIC")
    compiled(folder, "loader", LOADER, *FLAGS)
    return folder


def commands(folder: Path, count: int, seconds: float) -> dict[str, tuple[str, tuple[Path, Path]]]:
    """What executes or loads *count* times, and the files that it runs."""
    programs, libraries = (folder / "first", folder / "second"), (folder / "libfirst.so", folder / "libsecond.so")
    loader = f"{folder / 'loader'} {count} {seconds} {libraries[0]} {libraries[1]}"
    return {"exec": (f"{programs[0]} {programs[1]} {count} {seconds}", programs), "dlclose": (loader, libraries)}


SCRIPT = """
uprobe:%s:first_leaf, uprobe:%s:second_leaf {
  printf("%%s %%s %%s %%s\\n", probe, func, usym(reg("ip")), ustack(folded, 3));
  @name[probe, func, usym(reg("ip"))] = count();
  @stack[probe, ustack(folded, 3)] = count();
}
"""


@pytest.mark.parametrize("way", ["exec", "dlclose"])
@pytest.mark.parametrize(("count", "seconds", "least"), [(6, 0.05, 0.99), (600, 0.0002, 0.9)])
def test_events_and_keys_have_the_names_of_their_time(
    server: Server, folder: Path, way: str, count: int, seconds: float, least: float
) -> None:
    command, files = commands(folder, count, seconds)[way]
    result = server.run(("-q", "-e", SCRIPT % files, "-c", command), timeout=60)
    assert result.status == 0, result
    named: Counter[str] = Counter()
    for line in result.stdout.splitlines():
        match = re.match(r"(?:@(?:name|stack)\[)?uprobe:\S+:(first|second)_leaf,? (.*?)(?:\]: (\d+))?$", line)
        if match is None:
            continue
        mine, other = match[1], "second" if match[1] == "first" else "first"
        assert other not in match[2].replace(str(folder), ""), line
        expected = [f"{mine}_leaf", f"{mine}_outer"] if "_outer" in match[2] or ";" in match[2] else [f"{mine}_leaf"]
        good = all(name in match[2] for name in expected) and "0x" not in match[2]
        named["good" if good else "number"] += int(match[3] or 1)
    assert named.total() == 3 * count, result.stdout
    if named["good"] == named.total():
        assert result.stdout.count("@name[") == result.stdout.count("@stack[") == 2, "rows that are alike are one"
    assert named["good"] >= least * named.total(), result.stdout


@pytest.mark.parametrize("way", ["exec", "dlclose"])
def test_samples_have_the_names_of_their_time(server: Server, folder: Path, way: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    command, _ = commands(folder, 2, 0.4)[way]
    script = "profile:hz:499 /pid == cpid/ { @[ustack(folded)] = count(); }"
    result = server.run(("-q", "-f", "json", "--save", str(saved), "-e", script, "-c", command), timeout=60)
    assert result.status == 0, result
    counts: Counter[str] = Counter()
    for row in map(json.loads, result.stdout.splitlines()):
        for stack, count in row["data"].get("@", {}).items() if row["type"] == "map" else ():
            found = set(re.findall(r"(first|second)_", stack))
            assert len(found) < 2, stack
            counts.update(dict.fromkeys(found, count))
    assert counts["first"] > 10, counts
    assert counts["second"] > 10, counts
    shown = server.run(("show", str(saved), "-f", "folded"), timeout=60).stdout
    saved_counts = Counter({
        name: sum(int(line.rsplit(" ", 1)[1]) for line in shown.splitlines() if f"{name}_" in line)
        for name in ("first", "second")
    })
    assert saved_counts == counts


QUIET = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
__attribute__((noinline)) void quiet_leaf(int n) { __asm__ volatile("" : : "r"(n)); }
int main(int argc, char **argv)
{
    for (int i = 0; i < 20; i++) {
        quiet_leaf(i);
        char *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory = mremap(memory, 1 << 20, 1 << 22, MREMAP_MAYMOVE);
        mmap(memory, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        munmap(memory, 1 << 22);
        munmap((void *)4096, 1);
        if (i == 10) dlopen(argv[1], RTLD_NOW);
    }
    if (argc > 2) { dlclose(dlopen(argv[1], RTLD_NOW)); dlclose(dlopen(argv[1], RTLD_NOW)); quiet_leaf(1); }
    return 0;
}
"""


def test_a_process_with_quiet_mappings_keeps_its_keys(server: Server, folder: Path, tmp_path: Path) -> None:
    """What it maps, and unmaps of data, does not matter."""
    path = compiled(tmp_path, "quiet", QUIET, *FLAGS)
    script = f"uprobe:{path}:quiet_leaf {{ @[usym(reg(\"ip\"))] = count(); }} end {{ @keys = len(@); }}"
    command = f"{path} {folder / 'libfirst.so'}"
    # The command itself is executed while it is traced.
    for program in (command, f"{path} {folder / 'libfirst.so'} close"):
        result = server.run(("-q", "-e", script, "-c", program), timeout=60)
        assert "@keys: 1\n" in result.stdout, result
        assert re.search(r"^@\[quiet_leaf\]: 2[01]$", result.stdout, re.MULTILINE), result


IN_MEMORY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>
static int copied(const char *path)
{
    int from = open(path, O_RDONLY), to = memfd_create("copy", MFD_CLOEXEC);
    while (sendfile(to, from, 0, 1 << 20) > 0)
        ;
    return to;
}
__attribute__((noinline)) void in_program(void (*call)(void)) { call(); __asm__ volatile(""); }
/* LIBRARY: executes a copy of itself in memory, which loads a copy of the library. */
int main(int argc, char **argv)
{
    char path[40];
    if (argc == 2)
        fexecve(copied("/proc/self/exe"), (char *[]){argv[0], argv[1], "again", 0}, (char *[]){0});
    snprintf(path, sizeof path, "/proc/self/fd/%d", copied(argv[1]));
    void *library = dlopen(path, RTLD_NOW);
    for (int i = 0; i < 6000; i++) in_program((void (*)(void))dlsym(library, "in_library"));
}
"""
IN_LIBRARY = """
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) static void ask(void) { usleep(5000); syscall(SYS_getsid, 0); __asm__ volatile(""); }
void in_library(void) { ask(); __asm__ volatile(""); }
"""


@pytest.mark.parametrize(
    ("stack", "frames"), [("ustack", "-fno-omit-frame-pointer"), ("dw_ustack", "-fomit-frame-pointer")]
)
def test_programs_and_libraries_in_memory(server: Server, tmp_path: Path, stack: str, frames: str) -> None:
    """Files by memfd_create(2), as container runtimes execute themselves: they have no path."""
    program = compiled(tmp_path, "memory", IN_MEMORY, "-O1", frames)
    library = compiled(tmp_path, "library.so", IN_LIBRARY, "-O1", frames, "-shared", "-fPIC")
    script = f"t:syscalls:sys_enter_getsid /@n++ > 100/ {{ print({stack}(folded)); exit(); }} end {{ clear(@n); }}"
    result = server.run(("-q", "-e", script, "-c", f"{program} {library}"), timeout=60)
    assert "main;in_program;in_library" in result.stdout, result
    assert "[JIT]" not in result.stdout


MOVED = r"""
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) static void ask(void) { usleep(5000); syscall(SYS_getsid, 0); __asm__ volatile(""); }
__attribute__((noinline)) void in_program(void) { ask(); __asm__ volatile(""); }
/* Moves its code to anonymous memory at the same addresses, as programs do that want it in huge pages. */
int main(void)
{
    char line[500], rights[5];
    uintptr_t start, end, first = 0, size = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) == 3 && start <= (uintptr_t)main && (uintptr_t)main < end)
            first = start, size = end - start;
    char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, (char *)first, size);
    mprotect(copy, size, PROT_READ | PROT_EXEC);
    mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, first);
    for (int i = 0; i < 6000; i++) in_program();
}
"""


@pytest.mark.parametrize(
    ("stack", "frames"), [("ustack", "-fno-omit-frame-pointer"), ("dw_ustack", "-fomit-frame-pointer")]
)
def test_code_that_was_moved_to_huge_pages(server: Server, tmp_path: Path, stack: str, frames: str) -> None:
    program = compiled(tmp_path, "moved", MOVED, "-O1", frames)
    script = f"t:syscalls:sys_enter_getsid /@n++ > 100/ {{ print({stack}(folded)); exit(); }} end {{ clear(@n); }}"
    result = server.run(("-q", "-e", script, "-c", str(program)), timeout=60)
    assert "main;in_program" in result.stdout, result
    assert "[JIT]" not in result.stdout
