"""Tracing as an ordinary user with the capabilities that the README names, with one of them missing, and with none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.runtime.machine.privileges import CAPABILITIES
from tests.support.patience import patience

pytestmark = [
    pytest.mark.own_process,
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="the program setpriv is not here"),
]

ROOT = Path(__file__).resolve().parents[2]
USER = 65534
PARANOID = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
MOST_PARANOID = 2
"""Kernels of distributions know higher levels, where these capabilities are not enough."""
ENOUGH = ("bpf", "perfmon", "dac_read_search")
"""What the README names, as setpriv(1) calls it."""


class User:
    """An ordinary user with a home directory, who runs pytrace with chosen capabilities."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def command(self, *arguments: str, capabilities: tuple[str, ...] = ENOUGH) -> list[str]:
        """The command line that drops everything else and starts pytrace."""
        held = ",".join(["-all", *(f"+{name}" for name in capabilities)])
        return [
            "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
            f"--inh-caps={held}", f"--ambient-caps={held}", f"--bounding-set={held}",
            sys.executable, "-m", "pytrace", *arguments,
        ]  # fmt: skip

    def kallsyms(self) -> str:
        """The beginning of the kernel's symbols as the user sees them."""
        words = [*self.command()[:-3], "head", "-n", "1", "/proc/kallsyms"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    def run(self, *arguments: str, capabilities: tuple[str, ...] = ENOUGH) -> subprocess.CompletedProcess[str]:
        """Run pytrace to its end."""
        environment = {"HOME": str(self.home), "XDG_CACHE_HOME": "", "PYTHONPATH": str(ROOT),
                       "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        done = subprocess.run(
            self.command(*arguments, capabilities=capabilities), capture_output=True, text=True, check=False,
            timeout=patience(60), stdin=subprocess.DEVNULL, cwd=self.home, env={**os.environ, **environment},
        )  # fmt: skip
        assert "BUG" not in done.stderr, done
        assert "Traceback" not in done.stderr, done
        return done


@pytest.fixture
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user of no rights but those that a test gives."""
    home = tmp_path_factory.mktemp("home")
    # Folders of pytest are root's alone; their capabilities let the user in, but not the commands that it starts.
    os.chown(home, USER, USER)
    return User(home)


@pytest.fixture
def public(programs: Path) -> Iterator[Path]:
    """The programs of tests/programs where everybody may run them."""
    # Not below the folders of pytest, which are root's alone.
    folder = Path(tempfile.mkdtemp(prefix="pytrace-programs-"))
    shutil.copytree(programs, folder, dirs_exist_ok=True)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


TRACED = {
    "kernel": (
        """tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @calls = count(); }
        rawtracepoint:sys_enter /pid == cpid/ { @raw = 1; }
        software:page-faults:1 /pid == cpid/ { @faults = 1; }""",
        "syscalls 7", ("@calls: 7", "@raw: 1", "@faults: 1"),
    ),
    "functions": (
        """uprobe:{programs}/calls:add /pid == cpid/ { @entry[arg1] = count(); }
        uretprobe:{programs}/calls:add /pid == cpid/ { @results = sum(retval); }
        uprobe:{programs}/calls:inner /pid == cpid/ { print(ustack(2)); }""",
        "calls 3", ("@entry[0]: 1\n@entry[2]: 1\n", "@results: 9", "inner+0"),
    ),
    "usdt": (
        """usdt:{programs}/usdt:sample:four /pid == cpid/ { @[str(arg2)] = 1; }
        usdt:{programs}/usdt:sample:guarded /pid == cpid/ { @guarded = count(); }""",
        "usdt 4", ("@[text 0]: 1", "@guarded: 4"),
    ),
    "profile": ("profile:hz:199 /pid == cpid/ { @[ustack(1)] = count(); }", "busy 300", ("hot+",)),
    "printing": (
        'begin { printf("%s %d\\n", str("x"), 7); @["k"] = hist(3); } interval:ms:1 { printf("tick\\n"); exit(); }',
        "", ("x 7", "tick", "@[k]:"),
    ),
    "iterator": ('iter:task { printf("task %d\\n", ctx.task.pid > 0); }', "", ("task 1",)),
}  # fmt: skip
"""Script, command, and what is printed."""


@pytest.mark.parametrize("name", list(TRACED))
def test_what_the_three_capabilities_allow(user: User, public: Path, name: str) -> None:
    script, command, printed = TRACED[name]
    arguments = ["-q", "-e", script.replace("{programs}", str(public))]
    if command:
        arguments += ["-c", f"{public}/{command}"]
    # The second start takes the compiled script from the cache.
    for _ in range(2):
        done = user.run(*arguments)
        if done.returncode and PARANOID > MOST_PARANOID:
            assert "sysctl kernel.perf_event_paranoid" in done.stderr
            pytest.skip("this kernel reserves perf events for CAP_SYS_ADMIN")
        assert done.returncode == 0, done
        assert not [text for text in printed if text not in done.stdout], done
        assert not done.stderr
    kept = list(user.home.glob(".cache/pytrace/scripts/*"))
    assert len(kept) == 1
    assert kept[0].stat().st_uid == USER


LISTED = [
    "tracepoint:sched:sched_process_fork", "-v tracepoint:sched:sched_switch", "rawtracepoint:*:sched_process_fork",
    "-v fentry:vmlinux:vfs_read", "iter:task", "uprobe:libc:malloc", "software:*", "kprobe:vfs_re*",
]  # fmt: skip


@pytest.mark.parametrize("operands", LISTED)
def test_listings(user: User, operands: str) -> None:
    done = user.run("-l", *operands.split(), capabilities=("dac_read_search",))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_kernel_functions_have_names_with_one_more(user: User, public: Path) -> None:
    script = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { print(kstack(3)); exit(); }"
    command = ("-q", "-e", script, "-c", f"{public}/syscalls 1")
    if PARANOID > MOST_PARANOID:
        pytest.skip("this kernel reserves perf events for CAP_SYS_ADMIN")
    named = user.run(*command, capabilities=(*ENOUGH, "syslog"))
    assert (named.returncode, named.stderr) == (0, "")
    assert re.search(r"^ +\w+\+\d+$", named.stdout, re.MULTILINE), named.stdout
    if "0000000000000000 " not in user.kallsyms():
        pytest.skip("this kernel shows the addresses of its symbols to everybody")
    hidden = user.run(*command)
    assert hidden.returncode == 0
    assert re.search(r"^ +0xffff[0-9a-f]+$", hidden.stdout, re.MULTILINE), hidden.stdout
    assert "no names of kernel functions: the kernel hides their addresses" in hidden.stderr
    assert "CAP_SYSLOG" in hidden.stderr or "kptr_restrict" in hidden.stderr
    refused = user.run("-e", 'begin { print(kaddr("vfs_read")); exit(); }')
    assert refused.returncode == 1
    assert "ERROR: the kernel hides the address of 'vfs_read' from this process" in refused.stderr
    missing = user.run("-e", 'begin { print(kaddr("no_such_symbol")); exit(); }')
    assert "the kernel has no symbol 'no_such_symbol'" in missing.stderr


def test_commands_get_no_capability(user: User) -> None:
    script = 'begin { system("grep CapEff /proc/self/status; grep ^Uid: /proc/self/status"); }'
    done = user.run("-q", "--unsafe", "-e", script, "-c", "grep CapPrm /proc/self/status")
    assert done.returncode == 0, done
    assert re.findall(r"Cap\w+:\s*(\w+)", done.stdout) == ["0" * 16] * 2
    assert re.search(rf"Uid:\s+{USER}\s+{USER}", done.stdout)
    assert user.run("-e", "begin { }", "-c", "cat /etc/shadow").stderr.count("Permission denied") == 1


@pytest.mark.parametrize("missing", ENOUGH)
def test_the_missing_one_is_named(user: User, missing: str) -> None:
    done = user.run("-e", "begin { exit(); }", capabilities=tuple(name for name in ENOUGH if name != missing))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"CAP_{missing.upper()}" in done.stderr
    assert all(f"CAP_{name.upper()}" not in done.stderr for name in ENOUGH if name != missing)
    assert user.run("-q", "-e", "begin { exit(); }").returncode == 0


def test_the_old_one_for_everything_stands_for_two(user: User) -> None:
    done = user.run("-q", "-e", "begin { exit(); }", capabilities=("sys_admin", "dac_read_search"))
    assert (done.returncode, done.stderr) == (0, "")


def test_without_any(user: User) -> None:
    done = user.run("-e", "begin { exit(); }", capabilities=())
    assert done.returncode == 1
    assert "tracing needs root" in done.stderr
    assert all(f"CAP_{name.upper()}" in done.stderr for name in ENOUGH)
    assert user.run("--info", capabilities=()).returncode == 0
    assert user.run("--fmt", "-e", "begin{exit()}", capabilities=()).returncode == 0


MORE = [
    pytest.param(("-l", "fentry:bpf:*"), "CAP_SYS_ADMIN", id="programs"),
    pytest.param(("--bench", "-e", "bench:x { @a = 1; }"), "CAP_SYS_ADMIN", id="bench"),
    pytest.param(("-p", str(os.getpid()), "-l", "u:*"), "CAP_SYS_PTRACE", id="process_listed"),
    pytest.param(("-p", str(os.getpid()), "-e", "u::main { }"), "CAP_SYS_PTRACE", id="process"),
    pytest.param(("--unsafe", "-e", "t:syscalls:sys_enter_read { $x = (uint8)1; write_user(args.buf, &$x, 1); }"),
                 "CAP_SYS_ADMIN", id="write_user"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "named"), MORE)
def test_what_needs_more_says_so(user: User, arguments: tuple[str, ...], named: str) -> None:
    assert named in CAPABILITIES or named == "CAP_SYS_PTRACE"
    done = user.run(*arguments)
    assert done.returncode == 1, done
    assert named in done.stderr


def test_the_page_of_privileges_names_them() -> None:
    text = (ROOT / "docs/operate/privileges.md").read_text()
    for name in (*ENOUGH, "syslog", "sys_ptrace", "dac_override", "sys_admin"):
        assert f"CAP_{name.upper()}" in text
