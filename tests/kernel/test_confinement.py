"""What a running trace may still do: its capabilities, and what the kernel refuses (docs/operate/privileges.md)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pytrace.runtime.machine import confine
from pytrace.runtime.machine.privileges import CAPABILITIES
from tests.support.patience import patience

pytestmark = [
    pytest.mark.own_process,
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

ROOT = Path(__file__).resolve().parents[2]

DRIVER = """
import errno, json, os, socket, sys
from pytrace.cli import main
from pytrace.runtime.machine import bpf, perf
from pytrace.runtime.machine.bpf import ProgramType
from pytrace.runtime.session.services import Losses

folder = sys.argv.pop(1)
RETURN = bytes.fromhex("b700000000000000" "9500000000000000")

def opened(path, flags):
    return lambda: os.close(os.open(path, flags, 0o600))

ATTEMPTS = {
    "program": lambda: os.close(bpf.prog_load(ProgramType.RAW_TRACEPOINT, RETURN)),
    "map": lambda: os.close(bpf.map_create(2, 4, 4, 1)),
    "ids": lambda: bpf.ids("prog"),
    "event": lambda: os.close(perf.open_event(perf.EventAttr(perf.EventType.SOFTWARE, 9), pid=0)),
    "read": opened(f"{folder}/other/file", os.O_RDONLY),
    "existing file": opened(f"{folder}/other/file", os.O_WRONLY),
    "new file": opened(f"{folder}/other/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "remove": lambda: os.unlink(f"{folder}/other/file"),
    "link": lambda: os.symlink("x", f"{folder}/other/link"),
    "memory": opened(f"/proc/{os.getppid()}/mem", os.O_RDWR),
    "environment": opened(f"/proc/{os.getppid()}/environ", os.O_RDONLY),
    "tcp": lambda: socket.create_connection(("127.0.0.1", 9)),
    "unix": lambda: socket.socket(socket.AF_UNIX).close(),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "signal": lambda: os.kill(os.getppid(), 0),
}

def attempt(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return ""

def begin(_):
    shown = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith(("Cap", "No", "Secc")))
    status = {name: int(value, 16) for name, value in shown.items()}
    skipped = () if status["Seccomp"] else ("exec",)
    found = {name: attempt(call) for name, call in ATTEMPTS.items() if name not in skipped}
    sys.stderr.write(json.dumps([status, found]) + "\\n")
    sys.stderr.flush()

Losses.begin = begin
main.command()
"""


class Seen(msgspec.Struct):
    """A run: its output, and what it could do meanwhile."""

    output: str
    messages: str
    status: dict[str, int]
    found: dict[str, str]

    def holds(self, *names: str) -> bool:
        """Whether these are all the capabilities of the run, and no more can come."""
        mask = sum(1 << CAPABILITIES[name] for name in names)
        masks = [self.status[name] for name in ("CapEff", "CapPrm", "CapBnd")]
        return masks == [mask] * 3 and self.status["CapInh"] == self.status["CapAmb"] == 0

    @property
    def allowed(self) -> set[str]:
        return {name for name, error in self.found.items() if not error}


def run(folder: Path, *arguments: object) -> Seen:
    """Run pytrace, and try what it should not do once the script runs."""
    (folder / "other").mkdir(exist_ok=True)
    (folder / "other/file").write_text("x")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, folder, *map(str, arguments)], capture_output=True, text=True, check=False,
        cwd=ROOT, timeout=patience(60), stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done
    told = [line for line in done.stderr.splitlines() if line.startswith("[{")]
    assert len(told) == 1, done
    messages = "".join(f"{line}\n" for line in done.stderr.splitlines() if line not in told)
    return Seen(done.stdout, messages, *json.loads(told[0]))


COUNTING = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @ = count(); } end { printf(\"over\\n\"); }"
STACKS = "uprobe:{programs}/calls:inner /pid == cpid/ { @[ustack(2)] = count(); }"


BRIEFLY = ("--duration", "1")
"""A run that a probe ends may be over before it gives up anything, on a busy machine."""


@pytest.fixture(autouse=True)
def kernel_limits() -> None:
    """What these tests are about."""
    if not confine.filter_available() or confine.landlock_version() < 4:
        pytest.skip("this kernel has no Landlock with limits on TCP, or this machine no filter")


def test_a_run_that_counts_can_do_nothing_else(tmp_path: Path, programs: Path) -> None:
    # The second start takes the script from the cache.
    for _ in range(2):
        seen = run(tmp_path, "-v", "-e", COUNTING, "-c", f"{programs}/syscalls 3")
        assert "over" in seen.output
        assert "@: 3" in seen.output
        assert seen.holds("CAP_KILL")
        assert (seen.status["NoNewPrivs"], seen.status["Seccomp"]) == (1, 2)
        assert seen.allowed == {"signal"}
        assert "Capabilities kept: CAP_KILL (the command of -c" in seen.messages
        assert "no file may be written by name, no socket opened" in seen.messages
    alone = run(tmp_path, "-q", *BRIEFLY, "-e", 'interval:ms:50 { printf("tick\\n"); }')
    assert set(alone.output.split()) == {"tick"}
    assert not alone.messages
    assert alone.holds()
    assert alone.allowed == set()
    assert set(alone.found.values()) == {"EPERM", "EACCES"}


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    seen = run(tmp_path, "--keep-privileges", *BRIEFLY, "-e", "interval:ms:50 { @ = 1; }")
    assert (seen.status["NoNewPrivs"], seen.status["Seccomp"]) == (0, 0)
    assert {"program", "map", "event", "new file", "read"} <= seen.allowed
    assert seen.found["tcp"] == "ECONNREFUSED"


def test_names_of_user_functions(tmp_path: Path, programs: Path) -> None:
    seen = run(tmp_path, "-v", "-e", STACKS.replace("{programs}", str(programs)), "-c", f"{programs}/calls 3")
    assert "inner+0" in seen.output
    assert seen.holds("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE", "CAP_KILL")
    assert seen.status["Seccomp"] == 2
    # Landlock would hide /proc of other processes; the caches of source lines are written.
    assert seen.allowed == {"read", "environment", "signal", "new file", "remove"}
    assert seen.found["memory"] == "EPERM"
    assert "Files are not limited by Landlock: names of user functions" in seen.messages


def test_stacks_of_processes_that_have_ended(tmp_path: Path, programs: Path) -> None:
    """Their mappings are recorded while they run; binaries are read afterwards."""
    script = f"uprobe:{programs}/calls:inner {{ @[ustack(2)] = count(); }}"
    command = f"/bin/sh -c 'for n in 1 2 3; do {programs}/calls 1; done'"
    seen = run(tmp_path, "-q", "--follow", "-e", script, "-c", command)
    assert seen.output.count("inner+0") == seen.output.count("middle+") == 3


def test_names_of_kernel_functions(tmp_path: Path, programs: Path) -> None:
    script = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @[kstack(2)] = count(); }"
    seen = run(tmp_path, "-e", script, "-c", f"{programs}/syscalls 1")
    assert seen.output.count("+") >= 1
    assert seen.holds("CAP_SYSLOG", "CAP_KILL")
    assert not seen.allowed & {"read", "memory", "environment", "existing file", "new file", "remove", "program"}


def test_snapshots_are_saved(tmp_path: Path, programs: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/last.pts").write_text("old")
    seen = run(tmp_path, "-v", "--save", tmp_path / "saved/last.pts", "--save-every", "1", tmp_path / "each",
               "-f", "openmetrics", "-o", tmp_path / "saved/out.txt", "-e", COUNTING,
               "-c", f"/bin/sh -c 'sleep 1.3; {programs}/syscalls 3'")  # fmt: skip
    assert not seen.allowed - {"signal"}
    assert len(os.listdir(tmp_path / "each")) >= 2
    assert sorted(os.listdir(tmp_path / "saved")) == ["last.pts", "out.txt"]
    shown = subprocess.run([sys.executable, "-m", "pytrace", "show", tmp_path / "saved/last.pts"], check=True,
                           capture_output=True, text=True, cwd=ROOT)  # fmt: skip
    assert shown.stdout
    assert f"files are written below {tmp_path}/saved" in seen.messages


def test_stacks_are_saved(tmp_path: Path, programs: Path) -> None:
    seen = run(tmp_path, "--save", tmp_path / "out.pts", "-e", STACKS.replace("{programs}", str(programs)),
               "-c", f"{programs}/calls 3")  # fmt: skip
    assert "new file" in seen.allowed
    assert not seen.allowed & {"existing file", "memory", "program", "tcp", "exec"}
    shown = subprocess.run([sys.executable, "-m", "pytrace", "show", tmp_path / "out.pts"], check=True,
                           capture_output=True, text=True, cwd=ROOT)  # fmt: skip
    assert "inner" in shown.stdout


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_output_goes_to_a_file(tmp_path: Path, form: str) -> None:
    seen = run(tmp_path, "-f", form, "-o", tmp_path / "out", *BRIEFLY, "-e", "interval:ms:20 { print((1, 2)); }")
    assert seen.holds()
    assert not seen.allowed
    assert form == "csv" or "1" in (tmp_path / "out").read_text()


def test_files_of_cat(tmp_path: Path) -> None:
    own = f"/proc/{os.getpid()}"
    script = f'interval:ms:100 {{ cat("{own}/comm"); cat("{own}/environ"); }}'
    seen = run(tmp_path, *BRIEFLY, "-e", script)
    assert Path(f"{own}/comm").read_text() in seen.output
    assert not seen.messages.count("cannot read")
    assert seen.holds("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_SYSLOG")
    assert seen.allowed == {"read", "environment", "signal"}


def test_programs_of_system(tmp_path: Path) -> None:
    """They get what the user has; the tracer itself has nothing."""
    command = f"grep -c CapEff:.*[1-9a-f] /proc/self/status; echo x > {tmp_path}/made"
    script = f'interval:ms:100 {{ system("{command}"); }}'
    seen = run(tmp_path, "-v", "--unsafe", *BRIEFLY, "-e", script)
    assert set(seen.output.split()) == {"1"}
    assert (tmp_path / "made").read_text() == "x\n"
    assert (seen.status["CapEff"], seen.status["CapPrm"], seen.status["Seccomp"]) == (0, 0, 0)
    assert {"program", "map", "event"} & seen.allowed == set()
    assert "Not limited: files and system calls: system() starts programs" in seen.messages


def test_names_of_users_and_interfaces(tmp_path: Path) -> None:
    """An ``end`` probe runs in the tracer itself, an ``interval`` probe in whatever its processor runs."""
    script = 'interval:ms:20 { print(ifname(1)); print(strftime("%Y", nsecs)); } end { print(username); }'
    seen = run(tmp_path, "-q", *BRIEFLY, "-e", script)
    words = seen.output.split()
    assert (words[0], words[-1]) == ("lo", "root")
    assert seen.allowed == {"unix", "netlink"}


def test_maps_that_are_printed_and_cleared(tmp_path: Path) -> None:
    """The wait for programs uses maps, which are made before."""
    cleared = "print(@n); clear(@n); print(@k); clear(@k);"
    script = f"interval:ms:20 {{ @n = count(); @k[1] = count(); @t++; {cleared} }}"
    seen = run(tmp_path, "-q", *BRIEFLY, "-e", script)
    assert seen.output.count("@n: ") >= 2
    assert "@t: " in seen.output
    assert not seen.allowed


def test_a_tool_that_is_interrupted(tmp_path: Path, programs: Path) -> None:
    output = tmp_path / "out"
    child = subprocess.Popen(
        [sys.executable, "-m", "pytrace", "opensnoop", "-o", output, "-p", str(os.getpid())], cwd=ROOT,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stderr is not None
    # Before it may be told that other children of this process are not traced.
    assert any(line.startswith("Attached") for line in child.stderr)
    try:
        status = ""
        for _ in range(200):
            (tmp_path / "seen").write_text("x")
            status = Path(f"/proc/{child.pid}/status").read_text()
            if "Seccomp:\t2" in status and "seen" in output.read_text():
                break
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
        assert "CapBnd:\t0000000000000000" in status
    finally:
        child.send_signal(signal.SIGINT)
    assert child.wait(patience(20)) == 0
    child.stderr.close()
    assert f"{tmp_path}/seen" in output.read_text()


def test_unwinding(tmp_path: Path, programs: Path) -> None:
    script = f"uprobe:{programs}/frameless:* /pid == cpid/ {{ @[dw_ustack(4)] = count(); }}"
    seen = run(tmp_path, "-e", script, "-c", f"{programs}/frameless")
    assert "@[" in seen.output
    assert seen.holds("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_CHECKPOINT_RESTORE", "CAP_KILL")


def test_metrics_are_served(tmp_path: Path) -> None:
    reader = "import urllib.request as u, sys; print(u.urlopen(sys.argv[1], timeout=20).read().decode())"
    child = subprocess.Popen(
        [sys.executable, "-m", "pytrace", "--metrics", "127.0.0.1:0", "-e", "interval:ms:20 { @n = count(); }"],
        cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stderr is not None
    try:
        address = next(line for line in child.stderr if line.startswith("Metrics at")).split()[-1]
        read = subprocess.run([sys.executable, "-c", reader, address], capture_output=True, text=True, check=True)
        assert "pytrace_n" in read.stdout or "_n" in read.stdout
        for status in Path(f"/proc/{child.pid}/task").glob("*/status"):
            text = status.read_text()
            assert "Seccomp:\t2" in text
            assert "CapPrm:\t0000000000000000" in text
    finally:
        child.send_signal(signal.SIGINT)
    output, messages = child.communicate(timeout=patience(20))
    assert child.returncode == 0, messages
    assert "@n: " in output


def test_a_program_that_embeds_a_trace_keeps_everything() -> None:
    code = """
import os, pytrace
before = open("/proc/self/status").read().split("CapEff:")[1].split("voluntary")[0]
trace = pytrace.run("interval:ms:10 { @ = 1; exit(); }")
after = open("/proc/self/status").read().split("CapEff:")[1].split("voluntary")[0]
assert before.split("Cpus")[0] == after.split("Cpus")[0], (before, after)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


