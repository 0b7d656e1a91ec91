"""``pytrace calls``: the calls of a program, with what they read and wrote."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytrace
from pytrace.calls import capture, signatures
from tests.support import kernel_costs
from tests.support.compile import SOURCES, compiled
from tests.support.machine import need
from tests.support.server import Server

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("no_leaks")]

PROGRAM = r"""
import os, signal, socket, sys
os.write(1, b"hello\x1b[31m\n")
made = os.open("a\nfile", os.O_CREAT | os.O_RDWR, 0o640)
os.writev(made, [b"ab", b"cde"])
os.lseek(made, 0, os.SEEK_SET)
os.readv(made, [bytearray(2), bytearray(9)])
copy = os.dup(made)
os.close(made)
server = socket.socket(socket.AF_UNIX)
server.bind("listens")
server.listen()
client = socket.socket(socket.AF_UNIX)
client.connect("listens")
client.sendmsg([b"one", b"two"])
other, _ = server.accept()
other.recvmsg(20)
try:
    os.stat("/nonexistent/file")
except OSError:
    pass
os.kill(os.getpid(), signal.SIGWINCH)
child = os.fork()
if not child:
    os._exit(3)
os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of runs that show all calls: a compiled script is kept for one; theirs takes seconds."""
    return tmp_path_factory.mktemp("calls")


def test_the_verifier_follows_what_comes_after_the_calls_once() -> None:
    """356,000 instructions, of the million that there may be, where it did so for each: a second of each start."""
    machine = platform.machine()
    system_calls = capture.SystemCalls(frozenset(signatures.call_names(machine)), machine, 32, only_command=False)
    costs = kernel_costs.verified(f"config = {{ {system_calls.settings} }} {system_calls.script()}")
    assert costs["processed"] < 120_000


def calls(server: Server, folder: Path, *options: str) -> list[str]:
    (folder / "program.py").write_text(PROGRAM)
    command = f"{sys.executable} -I -S {folder}/program.py"
    result = server.run(("calls", "-c", command, "-o", f"{folder}/calls", *options), cwd=folder, timeout=60)
    assert result.status == 0, result
    assert "WARNING" not in result.stderr, result.stderr
    return (folder / "calls").read_text().splitlines()


EXPECTED = (
    r'execve\("/\S+", \["\S+", "-I", "-S", "\S+program.py"\], 0x\w+ /\* \d+ vars \*/\) = 0 <0\.\d{6}>',
    r'write\(1<\S+>, "hello\\33\[31m\\n", 11\) += 11 <.*>',
    r'openat\(AT_FDCWD<DIR>, "a\\nfile", O_RDWR\|O_CREAT\|O_CLOEXEC, 0640\) = 3<DIR/a\\x0afile> <.*>',
    r'writev\(3<DIR/a\\x0afile>, \[\{iov_base="ab", iov_len=2\}, \{iov_base="cde", iov_len=3\}\], 2\) = 5 <.*>',
    r"lseek\(3<DIR/a\\x0afile>, 0, SEEK_SET\) += 0 <.*>",
    r'readv\(3<DIR/a\\x0afile>, \[\{iov_base="ab", iov_len=2\}, \{iov_base="cde", iov_len=9\}\], 2\) = 5 <.*>',
    r"fcntl\(3<DIR/a\\x0afile>, F_DUPFD_CLOEXEC, 0\) = 4<DIR/a\\x0afile> <.*>",
    r"close\(3<DIR/a\\x0afile>\) += 0 <.*>",
    r'bind\(3<socket:UNIX>, \{sa_family=AF_UNIX, sun_path="listens"\}, 10\) = 0 <.*>',
    r'connect\(5<socket:UNIX>, \{sa_family=AF_UNIX, sun_path="listens"\}, 10\) = 0 <.*>',
    r'sendmsg\(5<socket:listens>, \{.* msg_iov=\[\{iov_base="one", iov_len=3\}, \{iov_base="two", .* 0\) = 6 <.*>',
    r'recvmsg\(6<\S+>, \{msg_name=NULL, msg_namelen=0, msg_iov=\[\{iov_base="onetwo", iov_len=20\}\], .*\) = 6 <.*>',
    r'newfstatat\(AT_FDCWD<DIR>, "/nonexistent/file", 0x\w+, 0\) = -1 ENOENT \(No such file or directory\) <.*>',
    r"kill\(\d+, SIGWINCH\) += 0 <.*>",
    r"wait4\(\d+, \[\{WIFEXITED\(s\) && WEXITSTATUS\(s\) == 3\}\], 0, NULL\) = \d+ <.*>",
    r"exit_group\(0\) += \?",
    r"\+\+\+ exited with 0 \+\+\+",
)


def test_each_call_has_its_arguments_and_result(server: Server, place: Path) -> None:
    lines = calls(server, place)
    position = 0
    for pattern in EXPECTED:
        wanted = re.compile(pattern.replace("DIR", re.escape(str(place))))
        found = next((index for index in range(position, len(lines)) if wanted.fullmatch(lines[index])), None)
        assert found is not None, (pattern, lines[position:])
        position = found


def test_filters_summary_and_json(server: Server, tmp_path: Path) -> None:
    (tmp_path / "listens").unlink(missing_ok=True)
    failed = calls(server, tmp_path, "--failed", "--follow", "syscall:*stat*", "-f", "json")
    rows = [json.loads(line) for line in failed]
    assert {row["call"] for row in rows} <= {"newfstatat", "readlink", "statx"}
    assert any(row["args"][1] == '"/nonexistent/file"' and row["result"] == -2 for row in rows)
    (tmp_path / "listens").unlink()
    table = calls(server, tmp_path, "--summary", "--follow", "syscall:exit*", "syscall:kill", "syscall:wait4")
    assert table[0].split() == ["%TIME", "TOTAL(ms)", "CALLS", "ERRORS", "AVG(us)", "P99(us)", "CALL"]
    counts = {line.split()[-1]: int(line.split()[2]) for line in table[1:]}
    assert counts["kill"] == counts["wait4"] == 1


@pytest.mark.needs("strace")
def test_a_program_makes_the_calls_that_strace_shows(server: Server, place: Path) -> None:
    program = "env -i /usr/bin/ls -n /etc/passwd /nonexistent"
    # A run of the server writes to files, too.
    with open(place / "out", "wb") as out, open(place / "err", "wb") as err:
        subprocess.run(["strace", "-o", "theirs", *program.split()], cwd=place, stdout=out, stderr=err)
    result = server.run(("calls", "--no-names", "-o", "ours", "-c", program), cwd=place, timeout=60)
    assert result.status == 0, result

    def comparable(name: str) -> list[str]:
        lines = (place / name).read_text().splitlines()
        lines = [re.sub(r" <[0-9.]+>$", "", line) for line in lines if not line.startswith(("+++", "---"))]
        # The test machine has no clock that programs read by themselves.
        lines = [re.sub(r"tv_n?sec=\d+", "", line) for line in lines]
        lines = [re.sub(r"0x[0-9a-f]{6,}|/\* \d+ vars \*/|set_tid_address.*|getrandom.*", "", line) for line in lines]
        start = max(index for index, line in enumerate(lines) if line.startswith("execve(") and line.endswith("= 0"))
        return [re.sub(r"\s+= ", " = ", line) for line in lines[start:]]

    ours, theirs = comparable("ours"), comparable("theirs")
    assert len(ours) == len(theirs) > 20, (ours, theirs)
    # The standard output of both is another file.
    different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    assert all(mine.startswith(("newfstatat(1", "newfstatat(2")) for mine, _ in different), different


@pytest.mark.needs("strace")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls that other machines do not have")
def test_most_calls_are_shown_as_strace_shows_them(server: Server, tmp_path: Path, place: Path) -> None:
    """More than 150 different calls, in the order of strace; what differs is in docs/reference/system-calls.md."""
    program = compiled(tmp_path, "many_calls", SOURCES / "many_calls.c", "-w")
    shown = []
    for name, folder in (("theirs", tmp_path), ("ours", place)):
        file = str(tmp_path / f"{name}.txt")
        if name == "theirs":
            subprocess.run(["strace", "-s", "32", "-o", file, program], cwd=folder, stderr=subprocess.DEVNULL)
        else:
            result = server.run(("calls", "--no-names", "-o", file, "-c", str(program)), cwd=folder, timeout=60)
            assert result.status == 0, result
            assert "WARNING" not in result.stderr, result.stderr
        lines = [line for line in Path(file).read_text().splitlines() if not line.startswith(("+++", "---"))]
        shown.append([re.sub(r" <[0-9.]+>$|0x[0-9a-f]+|\s+(?== )", "", line) for line in lines[1:]])
    theirs, ours = shown
    names = [[line.partition("(")[0] for line in lines] for lines in shown]
    assert names[0] == names[1]
    assert len(set(names[0])) > 150
    alike = sum(sorted(mine) == sorted(other) for mine, other in zip(ours, theirs, strict=True))
    assert alike > 0.75 * len(theirs), [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]


SHOP = r"""
#include <csetjmp>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
enum Color { RED, GREEN = 5 };
struct Point { int x, y; };
static jmp_buf back;
struct Shop {
    std::string name;
    __attribute__((noinline)) int find(const std::string &item, int depth) {
        if (depth < 0) longjmp(back, 1);
        int below = depth ? find(item, depth - 1) : -1;
        asm volatile("" ::: "memory");
        return below + 1;
    }
    __attribute__((noinline)) int add(const std::string &item, Color c, double price, Point p) {
        int n = find(item, p.x);
        asm volatile("" ::: "memory");
        return n + c + (int)price;
    }
    __attribute__((noinline)) std::string title(char mark) { return name + mark; }
};
int main(int argc, char **argv) {
    Shop shop{"corner"};
    shop.add("apple", GREEN, 2.5, {1, 2});
    if (!setjmp(back)) shop.find("jump", -1);
    std::string text = shop.title('!') + "\n";
    if (write(1, text.c_str(), text.size()) < 0) return 1;
    std::thread([&] { shop.find("thread", 0); }).join();
    if (argc > 1 && !fork()) { shop.find("child", 0); execl(argv[0], argv[0], (char *)0); }
    // The run ends with this process.
    if (argc > 1) wait(nullptr);
    return 0;
}
"""

EXPECTED_TREE = (
    r'Shop::add\(this=0x\w+, item="apple", c=GREEN, price=\?, p=\{x=1, y=2\}\) \{',
    r'  Shop::find\(this=0x\w+, item="apple", depth=1\) \{',
    r'    Shop::find\(this=0x\w+, item="apple", depth=0\) = 0 <0\.\d+>',
    r'  \} = 1 <0\.\d+> /\* Shop::find \*/',
    r'\} = 8 <0\.\d+> /\* Shop::add \*/',
    r'Shop::find\(this=0x\w+, item="jump", depth=-1\) <left without a return>',
    r'Shop::title\(this=0x\w+, mark=\'!\'\) = "corner!" <0\.\d+>',
    r'write\(1<\S+>, "corner!\\n", 8\) += 8 <0\.\d+>',
    r'\[\d+\] Shop::find\(this=0x\w+, item="thread", depth=0\) = 0 <0\.\d+>',
)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="DWARF and code of x86-64")
def test_functions_as_a_tree_and_as_data(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    program = compiled(tmp_path, "shop", SHOP, "-g", "-O1", "-pthread", language="c++", compiler="c++")
    lines = function_calls(server, tmp_path, str(program), "./shop:Shop::*", "syscall:write")
    position = 0
    for pattern in EXPECTED_TREE:
        found = next((at for at in range(position, len(lines)) if re.fullmatch(pattern, lines[at])), None)
        assert found is not None, (pattern, lines[position:])
        position = found + 1
    # The child has calls of its own, and those of its new program.
    rows = [
        json.loads(line) for line in function_calls(
            server, tmp_path, f"{program} fork", "./shop:Shop::*", "--follow", "-f", "json", "--depth", "1"
        )
    ]  # fmt: skip
    assert {row["depth"] for row in rows} == {0}
    child = [row for row in rows if row["named"].get("item") == '"child"']
    assert [row["call"] for row in child] == ["Shop::find"]
    mine = [row["named"].get("item") for row in rows if row["pid"] == child[0]["pid"] and row["call"] != "Shop::title"]
    assert mine == ['"child"', '"apple"', '"jump"', '"thread"']


@pytest.mark.skipif(platform.machine() != "x86_64", reason="registers of x86-64")
def test_functions_in_other_forms(server: Server, tmp_path: Path) -> None:
    """A library without debug information at hand or with it: names come from its symbols and the table."""
    need("uprobe")
    source = """
        #include <stdlib.h>
        #include <unistd.h>
        int main(void) { getenv("NOBODY"); access("/nonexistent", 0); usleep(30000); return 0; }
    """
    program = compiled(tmp_path, "plain", source)
    subprocess.run(["strip", "-s", program], check=True)
    failed = function_calls(server, tmp_path, str(program), "libc:*", "--failed")
    assert any(re.fullmatch(r'(getenv|access)\(.*"/nonexistent", .*\) += -1 <.*>', line) for line in failed), failed
    assert any(re.fullmatch(r'getenv\(.*"NOBODY"\) += NULL <.*>', line) for line in failed), failed
    assert not any("usleep" in line for line in failed)
    slow = function_calls(server, tmp_path, str(program), "libc:*", "--slow", "20ms")
    assert [line.partition("(")[0] for line in slow if "+++" not in line] == ["usleep"]
    table = function_calls(server, tmp_path, str(program), "libc:usleep", "libc:access", "syscall:access", "--summary")
    assert [line.split()[-1] for line in table[1:]] == ["usleep", *["access"] * 2, "total"]
    # The dynamic linker makes the other call.
    assert sorted(line.split()[2:4] for line in table[2:4]) == [["1", "1"], ["2", "2"]]
    result = server.run(("calls", "-c", str(program), f"{program}:*"), cwd=tmp_path)
    assert "it is stripped" in result.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="registers of x86-64")
def test_one_function_of_several_names(server: Server, tmp_path: Path) -> None:
    """What runs for memcpy and memmove is one function on most processors: a call of it is one call."""
    need("uprobe")
    source = """
        #include <string.h>
        char from[4096], to[4096];
        int main(int count, char **words) {
            volatile size_t size = 64 * count;
            for (int i = 0; i < 3; i++) { memcpy(to, from, size); memmove(to + 1, to, size); }
            return strcmp("a", words[0]) == -1 ? 0 : memcmp("b", "c", count) > 0;
        }
    """
    program = compiled(tmp_path, "copies", source, "-O0", "-fno-builtin")
    linked = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    library = next(line.split()[2] for line in linked.splitlines() if "libc.so" in line)
    both = (("libc:mem*",), ("libc:memmove", "libc:memcpy"), ("libc:memcpy", "libc:memmove", f"{library}:mem*"))
    for targets in (*both, ("libc:memcpy", f"{library}:memcpy")):
        result = server.run(("calls", "-c", str(program), *targets), cwd=tmp_path, timeout=60)
        copies = [line for line in result.stdout.splitlines() if re.match(r"mem\w+\(0x\w+, 0x\w+, 64\)", line)]
        assert not [line for line in copies if "without a return" in line], result
        one = re.search("WARNING: mem(cpy|move) is shown for mem(cpy|move), too: they are one function", result.stderr)
        assert len(copies) == (6 if one or targets in both else 3), result
        assert len({line.partition("(")[0] for line in copies}) == (1 if one or targets not in both else 2), result
    table = server.run(("calls", "--summary", "-c", str(program), "libc:memcmp"), cwd=tmp_path, timeout=60).stdout
    calls, *times, name = table.splitlines()[1].split()[2:]
    assert (calls, len(times), name) == ("1", 2, "memcmp"), "no errors: a negative result is an order"
    assert times[0] == times[1], "the mean of one call is its 99th percentile"


FLOATS_AND_ENDS = """
#include <sys/wait.h>
#include <unistd.h>
struct item { char name[16]; double price; };
__attribute__((noinline)) double priced(struct item *item, double rate) { return item->price * rate; }
__attribute__((noinline)) void ends(int deep) { if (deep == 2) _exit(0); ends(deep + 1); __asm__(""); }
struct item item = {"thing", 2.5};
int main(void) {
    item.price = priced(&item, 2);
    if (fork() == 0) ends(item.price < 0);
    return wait(0) < 0;
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="registers of x86-64")
def test_results_in_other_registers_and_calls_that_never_return(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    program = compiled(tmp_path, "floats", FLOATS_AND_ENDS, "-g", "-O1")
    (line, _) = function_calls(server, tmp_path, str(program), "./floats:priced")
    assert re.fullmatch(r'priced\(item={name="thing", price=2.5}, rate=\?\) = \? <.*>', line), line
    table = ("calls", "--summary", "-c", str(program))
    result = server.run((*table, "./floats:priced"), cwd=tmp_path)
    assert [row.split()[2] for row in result.stdout.splitlines()[1:]] == ["1", "1"]
    assert result.stderr == "processes that the command started were not traced: --follow traces them, too\n"
    result = server.run((*table, "--follow", "./floats:ends"), cwd=tmp_path)
    assert result.stderr == "WARNING: call:./floats:ends: none of 3 calls returned: 3 left without a return\n"


CHANGED = """
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <unistd.h>
static void nothing(int number) { (void)number; }
int main(void) {
    int ends[2];
    struct stat about;
    fd_set set;
    if (pipe(ends)) return 1;
    for (int wrote = 0; wrote < 2; wrote++) {
        struct timeval time = {0, 2000};
        FD_ZERO(&set); FD_SET(ends[0], &set);
        select(ends[0] + 1, &set, 0, 0, &time);
        if (write(ends[1], "x", 1) != 1) return 1;
    }
    prctl(PR_SET_NAME, "renamed");
    fstat(99, &about);
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGALRM, &action, 0);
    ualarm(20000, 0);
    return poll(0, 0, -1) != -1;
}
"""


def test_what_a_call_changes_is_shown_as_it_was(server: Server, tmp_path: Path) -> None:
    """A time that begins with a zero byte looked as if it was not in memory, and was read at the return."""
    need("tracepoint")
    program = compiled(tmp_path, "changed", CHANGED)
    lines = function_calls(server, tmp_path, str(program), "syscall:select,pselect6,prctl")
    first, second = (line.partition(" <")[0] for line in lines if "select" in line)
    entry = r"p?select6?\(4, \[3[^ ]*\], NULL, NULL, {.*=0, .*=2000(000)?}(, NULL)?\) = "
    assert re.fullmatch(rf"{entry}0 \(Timeout\)", first), lines
    (renamed,) = (line for line in lines if "prctl" in line)
    assert renamed.startswith('prctl(PR_SET_NAME, "renamed") ')
    assert re.fullmatch(rf"{entry}1 \(in \[3[^ ]*\], left {{.*}}\)", second), lines


EXECUTES = """
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    if (vfork() == 0) { execl("/bin/true", "true", "one argument", (char *)0); _exit(1); }
    return wait(0) < 0;
}
"""


def test_what_is_executed_is_known_though_its_memory_was_not_there(server: Server, tmp_path: Path) -> None:
    """The strings of a program are in its file until something reads them, and gone when it has executed another."""
    need("tracepoint")
    program = compiled(tmp_path, "executes", EXECUTES)
    lines = function_calls(server, tmp_path, str(program), "--follow", "syscall:execve")
    found = [line.partition("] ")[2] for line in lines if "true" in line]
    assert len(found) == 1, lines
    pattern = r'execve\("/bin/true", \["true", "one argument"\], 0x[0-9a-f]+ /\* [1-9]\d* vars \*/\) += 0 <.*>'
    assert re.fullmatch(pattern, found[0]), lines


@pytest.mark.parametrize("name", ["fstat,newfstatat", "poll,ppoll"])
def test_calls_that_fail_are_shown_where_none_is_chosen_that_writes_nothing(
    server: Server, tmp_path: Path, name: str
) -> None:
    need("tracepoint")
    program = compiled(tmp_path, "changed", CHANGED)
    lines = function_calls(server, tmp_path, str(program), f"syscall:{name}")
    assert [line for line in lines if "EBADF" in line or "ERESTART" in line or "EINTR" in line], lines


_EXECUTES = """
#include <pthread.h>
#include <unistd.h>
static void *run(void *unused) {
    usleep(20000);
    execl("/bin/echo", "echo", "taken", (char *)0);
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, run, 0);
    pause();
    return 1;
}
"""


def test_a_thread_that_executes_takes_the_place_of_the_first(server: Server, tmp_path: Path) -> None:
    program = compiled(tmp_path, "executes", _EXECUTES, "-pthread")
    result = server.run(("calls", "-o", "calls", "-c", str(program), "syscall:execve,pause,write"), cwd=tmp_path)
    assert result.status == 0, result
    text = (tmp_path / "calls").read_text()
    taken = re.search(r"^\+\+\+ superseded by execve in (\d+) \+\+\+$", text, re.MULTILINE)
    assert taken is not None, text
    assert re.search(rf"^\[{taken[1]}\] \+\+\+ continues as \d+: it executes a program", text, re.MULTILINE), text
    executed = re.search(r'^execve\("/bin/echo", \["echo", "taken"\], .*\) = 0 <(.*)>$', text, re.MULTILINE)
    assert executed is not None, text
    assert 0 < float(executed[1]) < 10
    assert re.search(r'^write\(1<.*>, "taken\\n", 6\) += 6', text, re.MULTILINE), text
    table = server.run(("calls", "--summary", "-c", str(program), "syscall:execve"), cwd=tmp_path).stdout
    assert re.search(r"\b2 .* execve$", table, re.MULTILINE), table


def test_a_call_that_does_not_return_is_shown_in_json(server: Server, tmp_path: Path) -> None:
    need("tracepoint")
    words = ("calls", "-f", "json", "--for", "1", "-c", "sleep 50", "syscall:*nanosleep")
    (row,) = map(json.loads, server.run(words, cwd=tmp_path).stdout.splitlines())
    assert row["call"].endswith("nanosleep")
    assert (row["result"], row["text"]) == (None, "<unfinished>")
    assert 5e8 < row["duration_ns"] < 3e10


_NARROW = """
static int call(int number, int first, int second, int third) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third) : "memory");
    return result;
}
void _start(void) {
    int while_[2] = {0, 100000000}, ends[2];
    char byte;
    call(42, (int)ends, 0, 0);
    if (!call(2, 0, 0, 0)) {
        call(162, (int)while_, 0, 0);
        call(4, ends[1], (int)"x", 1);
        call(1, 0, 0, 0);
    }
    call(3, ends[0], (int)&byte, 1);
    call(7, -1, 0, 0);
    call(20, 0, 0, 0);
    call(1, 0, 0, 0);
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="32-bit programs of x86-64")
def test_calls_of_32_bit_programs_have_their_own_names(server: Server, tmp_path: Path, place: Path) -> None:
    """Not those that their numbers have in 64-bit ones: 3 is close there, 20 writev."""
    need("tracepoint", "rawtracepoint", "iter", "bpf_loop")
    try:
        program = compiled(tmp_path, "narrow", _NARROW, "-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie")
    except subprocess.CalledProcessError:
        pytest.skip("no compiler of 32-bit programs")
    lines = function_calls(server, place, str(program))
    own = [line.partition("(")[0] for line in lines if line.startswith("32-bit:")]
    assert own == [f"32-bit:{name}" for name in ("pipe", "fork", "read", "waitpid", "getpid", "exit")]
    assert function_calls(server, tmp_path, str(program), "syscall:writev,close")[-1] == "+++ exited with 0 +++"
    table = server.run(("calls", "--summary", "-c", str(program)), cwd=tmp_path).stdout
    assert "32-bit:getpid" in table
    assert "writev" not in table
    account = pytrace.why(command=[program])
    shares = {name: account.share(name) for name in ("pipe-read", "sleep", "device")}
    assert shares["pipe-read"] > 0.2
    assert shares["sleep"] > 0.2
    assert not shares["device"]


def test_exceptions_of_python(server: Server, tmp_path: Path) -> None:
    need("uprobe")
    (tmp_path / "shop.py").write_text(
        "def find(item):\n    return {'pear': 2}[item]\n"
        "def price(item):\n    try:\n        return find(item)\n    except KeyError:\n        return None\n"
        "price('pear'), price('fig')\n"
    )
    command = ("-c", f"/usr/bin/python3 {tmp_path}/shop.py", "python:shop:*")
    result = server.run(("calls", "--failed", *command), cwd=tmp_path, timeout=60)
    if "runs no CPython that is known" in result.stderr:
        pytest.skip("no CPython that is known")
    (line, _) = result.stdout.splitlines()
    assert re.fullmatch(r"find\(item=fig\) += <exception> <.*>", line)
    table = server.run(("calls", "--summary", *command), cwd=tmp_path, timeout=60).stdout.splitlines()
    assert {row.split()[-1]: row.split()[2:4] for row in table if row.split()[-1] == "find"} == {"find": ["2", "1"]}


def function_calls(server: Server, folder: Path, command: str, *options: str) -> list[str]:
    result = server.run(("calls", "-o", "calls", "-c", command, *options), cwd=folder, timeout=60)
    assert result.status == 0, result
    assert "WARNING" not in result.stderr, result.stderr
    return (folder / "calls").read_text().splitlines()
