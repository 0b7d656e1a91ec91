"""Returns of user functions: programs do what they do without probes, and every return is counted.

IFUNC symbols: the functions that stand for them are probed.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.compile import compiled
from tests.support.machine import need
from tests.support.server import Server

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="code of x86-64")

THROWS = r"""
#include <cstdio>
#include <stdexcept>
#define APART __attribute__((noinline))
static long freed;
struct Guard { ~Guard() { freed++; } };
APART int deep(int x) { Guard guard; if (x % 2) throw std::runtime_error("odd"); return x; }
APART int middle(int x) { Guard guard; return deep(x) + 1; }
APART int jumps(int x) { asm volatile(""); return middle(x); }
struct Base { virtual int call(int x); virtual ~Base() {} };
APART int Base::call(int x) { if (x % 2) throw 1; return x; }
APART int virtually(Base *base, int x) { asm volatile(""); return base->call(x); }
int main() {
    long caught = 0, sum = 0;
    Base base, *volatile any = &base;
    for (int i = 0; i < 2000; i++) {
        try { sum += jumps(i); } catch (std::exception &error) { caught++; }
        try { sum += virtually(any, i); } catch (int) { caught++; }
    }
    std::printf("%ld %ld %ld\n", caught, sum, freed);
    return 3;
}
"""

CANCELS = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int cleaned, ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void clean(void *unused) { cleaned++; pthread_mutex_unlock(&lock); }
__attribute__((noinline)) int waits(int file) { char byte; int got = read(file, &byte, 1); __asm__(""); return got; }
static void *run(void *unused) {
    pthread_mutex_lock(&lock);
    pthread_cleanup_push(clean, 0);
    waits(ends[0]);
    pthread_cleanup_pop(1);
    return 0;
}
int main(void) {
    int cancelled = 0;
    pipe(ends);
    for (int i = 0; i < 1000; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, 0, run, 0);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("%d %d %d\n", cancelled, cleaned, pthread_mutex_trylock(&lock));
    return 5;
}
"""

PANICS = r"""
#[inline(never)]
fn deep(x: u64) -> u64 { let held = vec![x; 3]; if x % 2 == 1 { panic!("odd") } std::hint::black_box(&held)[0] }
#[inline(never)]
#[no_mangle]
pub fn middle(x: u64) -> u64 { std::hint::black_box(deep(x)) + 1 }
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let caught = (0..2000u64).filter(|&x| std::panic::catch_unwind(|| middle(x)).is_err()).count();
    println!("{}", caught);
    std::process::exit(4)
}
"""

NESTED = r"""
#define APART __attribute__((noinline, noclone))
volatile int sink;
APART int leaf(int x) { if (x > 5) { sink = x; return x * 2; } sink = 1; return 3; }
APART int tail(int x) { sink = x; return leaf(x + 1); }
APART int chain(int x) { sink = 2; return tail(x - 1); }
APART int maybe(int x) { sink = 3; if (x & 1) return leaf(x); return 7; }
APART int down(int n) { if (!n) return 0; int got = down(n - 1); sink = got; return got + 1; }
int main(void) {
    for (int i = 0; i < 10; i++) { down(199); leaf(i); tail(i); chain(i); maybe(i); }
    return 0;
}
"""


def unchanged(server: Server, program: Path, script: str) -> str:
    """What a script prints; the program prints and returns the same as without it."""
    need("uprobe")
    alone = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    command = f"{program}; echo status=$?"
    words = ("--follow", "-e", script.replace("BIN", str(program)), "-c", f"/bin/sh -c '{command}'")
    result = server.run(words, timeout=120)
    assert result.status == 0, result
    assert result.stdout.startswith(f"{alone.stdout}status={alone.returncode}\n"), result
    assert alone.returncode > 2
    return result.stdout


def test_exceptions_pass_through_traced_functions(server: Server, tmp_path: Path) -> None:
    program = compiled(tmp_path, "throws", THROWS, "-O2", language="c++")
    script = "uretprobe:BIN:cpp:* { @[func] = count(); } uretprobe:BIN:main { @main = count(); }"
    text = unchanged(server, program, script)
    found = dict(re.findall(r"@\[([^(]+)\(.*\]: (\d+)", text))
    # A return by a jump to a virtual method is seen at the jump, whether or not the method throws.
    assert [found[name] for name in ("deep", "middle", "jumps")] == ["1000"] * 3
    assert "@main: 1" in text


def test_values_that_are_not_known_are_left_out(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    source = THROWS.replace("base->call(x)", "(base->*(&Base::call))(x)")
    program = compiled(tmp_path, "throws", source, "-O2", "-fno-devirtualize", language="c++")
    result = server.run(
        ("-e", f"uretprobe:{program}:cpp:virtually {{ @ = sum(retval); }}", "-c", str(program)), timeout=60
    )
    assert "retval is not known there" in result.stderr
    assert "2000 returns left out" in result.stderr, result


def test_threads_are_cancelled_in_traced_functions(server: Server, tmp_path: Path) -> None:
    program = compiled(tmp_path, "cancels", CANCELS, "-O2", "-pthread")
    script = "uretprobe:BIN:waits, uretprobe:BIN:run, uretprobe:libc:pthread_join { @[func] = count(); }"
    assert "@[pthread_join]: 1000" in unchanged(server, program, script)


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no compiler of Rust")
def test_panics_pass_through_traced_functions(server: Server, tmp_path: Path) -> None:
    program = tmp_path / "panics"
    program.with_suffix(".rs").write_text(PANICS)
    subprocess.run(["rustc", "-O", "-o", program, program.with_suffix(".rs")], check=True, timeout=100)
    assert "@: 1000" in unchanged(server, program, "uretprobe:BIN:middle { @ = count(); }")


def test_all_returns_of_a_recursion_and_of_functions_that_jump_to_others(server: Server, tmp_path: Path) -> None:
    """More than the 64 nested returns that the kernel follows, and values of functions that another one returns for."""
    need("uprobe")
    program = compiled(tmp_path, "nested", NESTED, "-O2", "-fno-optimize-sibling-calls")
    jumping = compiled(tmp_path, "jumping", NESTED, "-O2", "-fno-inline")
    scripts = [
        f"uprobe:{path}:down {{ @in = count(); }} uretprobe:{path}:down {{ @out = count(); @deepest = max(retval); }}"
        f"uretprobe:{path}:leaf,uretprobe:{path}:tail,uretprobe:{path}:chain,uretprobe:{path}:maybe"
        "{ @n[func] = count(); @sum[func] = sum(retval); }"
        for path in (program, jumping)
    ]
    texts = [server.run(("-e", text, "-c", str(path)), timeout=60)
             for text, path in zip(scripts, (program, jumping), strict=True)]  # fmt: skip
    assert not any("WARNING" in text.stderr for text in texts), texts
    assert texts[0].stdout == texts[1].stdout
    for line in ("@in: 2000", "@out: 2000", "@deepest: 199", "@n[leaf]: 35", "@n[tail]: 20", "@n[chain]: 10"):
        assert line in texts[1].stdout


CHOSEN = r"""
#include <string.h>
static int first(int x) { __asm__ volatile(""); return x + 1; }
static int second(int x) { __asm__ volatile("nop"); return x + 2; }
static int (*resolve(void))(int) { __builtin_cpu_init(); return __builtin_cpu_supports("sse2") ? first : second; }
int own(int) __attribute__((ifunc("resolve")));
int main(int n, char **words) {
    char *volatile text = words[1];
    int sum = 0;
    for (int i = 0; i < 50; i++) sum += own(100 + i) + strlen(text);
    return sum == 0;
}
"""


@pytest.mark.parametrize("options", [(), ("-static",)], ids=["shared", "static"])
def test_calls_of_functions_that_programs_choose_when_they_start(
    server: Server, tmp_path: Path, options: tuple[str, ...]
) -> None:
    need("uprobe")
    program = compiled(tmp_path, "chooses", CHOSEN, "-O1", "-fno-builtin", *options)
    library = program if options else "libc"
    script = (
        f"uprobe:{program}:own {{ @own = count(); @least = min(arg0); }}"
        f"uretprobe:{program}:own {{ @sum = sum(retval); }}"
        f'uprobe:{library}:strlen /comm == "chooses" && str(arg0) == "thirteen char"/ {{ @strlen = count(); }}'
        f'uretprobe:{library}:strlen /comm == "chooses" && retval == 13/ {{ @long = count(); }}'
    )
    result = server.run(("-e", script, "-c", f"{program} 'thirteen char'"), timeout=60)
    assert result.status == 0, result
    lines = result.stdout.split("\n")
    assert {"@own: 50", "@least: 100", "@strlen: 50", f"@sum: {sum(range(101, 151))}"} <= set(lines), result
    assert any(line.startswith("@long: 5") for line in lines)


DEEP = r"""
int down(int n);
volatile int sink;
__attribute__((noinline)) int last(int x) { sink = x; return x; }
int (*volatile again)(int) = down, (*volatile ends)(int) = last;
__attribute__((noinline)) int down(int n) { if (!n) return ends(n); sink = again(n - 1); return ends(sink + 1); }
int main(void) { for (int i = 0; i < 10; i++) down(199); return 0; }
"""


def test_returns_that_the_kernel_does_not_see_are_counted(server: Server, tmp_path: Path) -> None:
    """A function that leaves by pointers: its return address is replaced, for 64 nested calls."""
    need("uprobe")
    program = compiled(tmp_path, "deep", DEEP, "-O2")
    script = f"uprobe:{program}:down {{ @in = count(); }} uretprobe:{program}:down {{ @out = count(); }}"
    result = server.run(("-e", script, "-c", str(program)), timeout=60)
    assert "the return address of down is replaced, as it jumps to a function whose" in result.stderr
    assert {"@in: 2000", "@out: 640"} <= set(result.stdout.split("\n"))
    assert "1360 returns not seen, as the kernel follows 64 nested calls of a task" in result.stderr, result
