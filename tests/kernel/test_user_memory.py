"""Programs that wait for memory which does not arrive: the tracer says why it does not end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compile import SOURCES, compiled
from tests.support.machine import kernel_version, need
from tests.support.patience import patience
from tests.support.server import Server
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("feature", [True, False])
def test_iterators_read_the_memory_of_their_task(programs: Path, tmp_path: Path, feature: bool) -> None:
    """Text that is not resident, too; without the feature nothing is read, and not the tracer's memory instead."""
    need("task_memory")
    command, pipe = [programs / "cold", "held"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=tmp_path) as held:
        assert held.stdin is not None
        assert held.stdout is not None
        address = held.stdout.readline().decode().strip()
        script = (
            f"iter:task {{ if (ctx.task->pid == {held.pid}) {{ $a = uptr({address});"
            " for ($i : 0..2) { print(str($a)); }"
            " $s = str(uptr(ctx.task->mm->arg_start)); @[str($a, 5), strlen($s)] = *(uint8 *)($a + 6); } }"
        )
        words = ("--mark-unreadable",) if feature else ("--mark-unreadable", "--no-feature", "task_memory")
        done = subprocess.run(
            [sys.executable, "-m", "pytrace", "-q", *words, "-e", script], capture_output=True, text=True, check=True,
            timeout=patience(60),
        )  # fmt: skip
        os.write(held.stdin.fileno(), b"\n")
    if feature:
        length = len(str(programs / "cold"))
        assert done.stdout.split() == ["/cold/held", "/cold/held", "@[/cold,", f"{length}]:", str(ord("h"))]
        assert done.stderr == ""
    else:
        assert done.stdout.split() == ["<unreadable>", "<unreadable>", "@[<unre,", "12]:", "0"]
        assert "5 reads of memory failed" in done.stderr


def test_detaching_waits_for_memory_and_says_so(programs: Path, tmp_path: Path) -> None:
    """The kernel waits for programs that sleep; killing the traced process ends the wait."""
    need("uprobe")
    if kernel_version() < (6, 0):
        pytest.skip("programs of user probes may sleep since 6.0")
    cold = programs / "cold"
    script = f'u:{cold}:take {{ printf("took %s\\n", str(arg1)); }}'
    messages = tmp_path / "messages"
    with (
        subprocess.Popen([cold, "stuck"], stdin=subprocess.PIPE, cwd=tmp_path) as traced,
        open(messages, "wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "pytrace", "-p", str(traced.pid), "--duration", "2", "-e", script],
            stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL,
        ) as tracer,
    ):  # fmt: skip
        try:
            until(lambda: "Attached" in messages.read_text(), 20)
            assert traced.stdin is not None
            os.write(traced.stdin.fileno(), b"\n")
            until(lambda: "waits for memory in uprobe:" in messages.read_text(), 20)
        finally:
            traced.kill()
        out, _ = tracer.communicate(timeout=30)
    assert tracer.returncode == 0
    assert out.split() == [b"took"]
    assert "--no-feature sleepable_uprobe" in messages.read_text()


@pytest.mark.parametrize("new", [0, 1])
def test_strings_of_classes(new: int, server: Server, tmp_path: Path) -> None:
    """Both ABIs of the C++ library: the text is in the object, or behind a header with its length."""
    need("uprobe")
    options = ("-g", "-O0", "-std=c++17", f"-D_GLIBCXX_USE_CXX11_ABI={new}")
    program = compiled(tmp_path, "texts", SOURCES / "strings.cpp", *options, language="c++")
    values = ("s", "v", "w", "p", "r", "h.name", "h->view", "v, 6", "h.other.more")
    script = " ".join(f'u:{program}:cpp:work {{ printf("%s|", str(args.{value})); }}' for value in values)
    result = server.run(["-q", "-e", script, "-c", str(program)])
    long = "a long text that does not fit into the object"
    assert result.stdout.strip() == f"short|{long}|hello|{long}|ref|{long}|ref|a long|short|", result.stderr
    result = server.run(["-q", "-e", f"u:{program}:cpp:work {{ print(str(args.h.other)); }}"])
    assert "str() reads characters, and struct Other is not a string that it knows" in result.stderr
    assert "write str(args.h.other.title) or str(args.h.other.more)" in result.stderr


@pytest.mark.parametrize("layout", [0, 1, 2])
def test_strings_of_the_other_library_of_classes(layout: int, server: Server, tmp_path: Path) -> None:
    """Layouts of libc++ before LLVM 14, since then, and Apple's: a bit says whether the text is in the object."""
    need("uprobe")
    options = ("-g", "-O0", f"-DLAYOUT={layout}")
    program = compiled(tmp_path, "texts", SOURCES / "strings_of_libcxx.cpp", *options, language="c++")
    values = ("s", "v", "p", "h.name", "v, 6", "s, 2")
    script = " ".join(f'u:{program}:cpp:work {{ printf("%s|", str(args.{value})); }}' for value in values)
    result = server.run(["-q", "-e", script, "-c", str(program)])
    long = "a long text that does not fit into the object"
    assert result.stdout.strip() == f"short|{long}||twenty-two characters.|a long|sh|", result.stderr
    if layout:
        return
    copy = "$h = *args.h; print(str($h.name)); @s = *args.s; print(str(@s));"
    result = server.run(["-q", "-e", f"u:{program}:cpp:work {{ {copy} print(str(args.q)); }}"])
    assert "$h.name is a copy" in result.stderr
    assert "@s is a copy" in result.stderr
    assert "its characters have 16 bits, and str() reads those of 8" in result.stderr
    assert "buf(args.q.m_data, 2 * args.q.m_size) has its bytes" in result.stderr


def test_strings_of_rust(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    if shutil.which("rustc") is None:
        pytest.skip("no compiler of Rust")
    (tmp_path / "texts.rs").write_text("""
pub struct Person { pub age: u32, pub name: String, pub nick: &'static str }
#[inline(never)]
pub fn work(s: &str, o: &String, v: String, b: &[u8], p: &Person) -> usize {
    std::hint::black_box((s, o, &v, b, p)).0.len()
}
fn main() {
    let p = Person { age: 4, name: String::from("Ann"), nick: "nick" };
    work(&"hello world"[..5], &p.name, String::from("moved"), b"bytes!", &p);
}
""")
    subprocess.run(["rustc", "-g", "-o", "texts", "texts.rs"], check=True, cwd=tmp_path, timeout=patience(60))
    values = ("s", "o", "v", "b", "p.name", "p.nick")
    probe = f"u:{tmp_path}/texts:_ZN5texts4work*"
    script = " ".join(f'{probe} {{ printf("%s|", str(args.{value})); }}' for value in values)
    result = server.run(["-q", "-e", script, "-c", f"{tmp_path}/texts"])
    assert result.stdout.strip() == "hello|Ann|moved|bytes!|Ann|nick|", result.stderr


FRACTIONS = """
  $p = args.p;
  if ((int8)$p.d != $p.byte) { @bad["int8"]++; }
  if ((uint8)$p.d != $p.octet) { @bad["uint8"]++; }
  if ((int32)$p.d != $p.whole) { @bad["int32"]++; }
  if ((uint32)$p.d != $p.natural) { @bad["uint32"]++; }
  if ((int64)$p.d != $p.large) { @bad["int64"]++; }
  if ((uint64)$p.d != $p.huge) { @bad["uint64"]++; }
  if ((int32)$p.f != $p.whole_float) { @bad["float"]++; }
  if (scaled($p.d, 1000) != $p.scaled) { @bad["scaled"]++; }
  if (scaled($p.f, 1000) != $p.scaled_float) { @bad["scaled float"]++; }
  if (($p.d < $p.e) != ($p.less != 0)) { @bad["<"]++; }
  if (($p.e >= $p.d) != ($p.at_most != 0)) { @bad[">="]++; }
  if (($p.d == $p.e) != ($p.equal != 0)) { @bad["=="]++; }
  if (($p.d != $p.e) == ($p.equal != 0)) { @bad["!="]++; }
  if (($p.d < $p.f) != ($p.less_than_float != 0)) { @bad["double < float"]++; }
  if (($p.d > 1.5) != ($p.above != 0)) { @bad["literal"]++; }
  if ((double)$p.f != $p.wide && $p.f == $p.f) { @bad["wide"]++; }
"""


@pytest.mark.parametrize("times", [3000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_floating_point_numbers_are_those_of_the_compiler(times: int, server: Server, programs: Path) -> None:
    """Conversions and comparisons of random bits, subnormal numbers, infinities and NaN among them."""
    need("uprobe")
    program = programs / "fractions"
    result = server.run(["-q", "-e", f"u:{program}:check {{ @n++; {FRACTIONS} }}", "-c", f"{program} {times} {times}"])
    assert result.stdout.strip() == f"@n: {times}", result
