"""opensnoop as a user, in a container with a BPF token, in a hardened unit: docs/operate/privileges.md."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import patience
from tests.support.waiting import until

pytestmark = [
    pytest.mark.own_process,
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/operate/privileges.md").read_text()
NOBODY = 65534
CAPABILITIES = ("bpf", "perfmon", "dac_read_search", "sys_ptrace")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Path]:
    """A file that a process of this test opens again and again."""
    path = tmp_path / "seen"
    path.write_text("")
    child = subprocess.Popen(["sh", "-c", f"while :; do : <{path}; sleep 0.05; done"])
    yield path
    child.kill()
    child.wait()


def block(title: str, language: str) -> str:
    """The first block of code below a heading of the page."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None, title
    return found[1]


# ---------------------------------------------------------------------------------------------- a user


def test_an_ordinary_user(tmp_path: Path, opened: Path) -> None:
    held = ",".join(["-all", *(f"+{name}" for name in CAPABILITIES)])
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--inh-caps={held}",
             f"--ambient-caps={held}", f"--bounding-set={held}",
             sys.executable, "-m", "pytrace", "-v", "opensnoop", "--duration", "1"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=home, timeout=patience(60),
                          env={**ENVIRONMENT, "HOME": str(home), "XDG_CACHE_HOME": ""})  # fmt: skip
    assert done.returncode == 0, done
    assert str(opened) in done.stdout, done
    assert "System calls are limited" in done.stderr


# ---------------------------------------------------------------------------------------------- a container


USES_TOKENS = """
from pytrace.runtime.machine import libbpf, privileges
version = privileges.version_numbers(libbpf.version().removeprefix("v"))
raise SystemExit(version < privileges.WITH_TOKENS)
"""


def python_with_tokens() -> list[str]:
    """Python with a libbpf that uses tokens: the installed one, or that of the suite which ``scripts/peer`` caches."""
    peer = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytrace/peer/sid"
    suites = [(loader, loader.parent) for loader in peer.glob("usr/lib/*-linux-gnu/ld-linux-*.so.*")]
    for words in ([], *([str(loader), "--library-path", str(libraries)] for loader, libraries in suites)):
        command = [*words, sys.executable]
        if not subprocess.run([*command, "-c", USES_TOKENS], env=ENVIRONMENT, cwd=ROOT, check=False).returncode:
            return command
    pytest.skip("libbpf is older than 1.5, and scripts/peer has not installed another")


def in_container(*arguments: str, delegate: str = "any") -> subprocess.CompletedProcess[str]:
    """Run pytrace as root of a user namespace with a bpffs of its own, by the program that the page names."""
    script = (ROOT / "share/containers/with-token.py").read_text().replace('b"any"', repr(delegate.encode()))
    command = [sys.executable, "-c", script, *python_with_tokens(), "-m", "pytrace", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=ENVIRONMENT,
                          timeout=patience(60))  # fmt: skip


def test_a_container_with_a_token(opened: Path) -> None:
    for _ in range(2):  # the second start takes the script from the cache
        done = in_container("-v", "opensnoop", "-c", f"cat {opened}")
        assert done.returncode == 0, done
        assert str(opened) in done.stdout, done
        assert "System calls are limited" in done.stderr


IN_A_CONTAINER = {
    "rawtracepoint:sys_enter /pid == cpid/ { @ = count(); }": "@: ",
    "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @ = count(); }": "@: 7",
    "uprobe:{programs}/calls:add /pid == cpid/ { @ = count(); }": "@: 7",
    "uretprobe:{programs}/calls:add /pid == cpid/ { @ = sum(retval); }": "@: ",
    "iter:task { @ = count(); }": "@: ",
    "begin { @ = 1; } end { printf(\"over\\n\"); }": "over",
}


@pytest.mark.parametrize("script", list(IN_A_CONTAINER))
def test_what_a_token_allows(programs: Path, script: str) -> None:
    command = f"{programs}/{'calls' if 'programs' in script else 'syscalls'} 7"
    words = ["-e", script.replace("{programs}", str(programs)), "-c", command]
    done = in_container("-q", *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert IN_A_CONTAINER[script] in done.stdout


@pytest.mark.parametrize("probe", ["profile:hz:99", "interval:ms:10", "software:page-faults:1"])
def test_perf_events_are_not_for_containers(probe: str) -> None:
    done = in_container("-e", f"{probe} {{ @ = count(); }}")
    assert done.returncode == 1
    assert f"cannot attach {probe}: no permission to measure this" in done.stderr


def test_a_container_without_a_token() -> None:
    words = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "pytrace"]
    words += ["-e", "begin { exit(); }"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "ERROR: this process is in a user namespace, which may not load BPF programs: " in done.stderr
    assert done.stderr.count("HINT: ") == 3


def test_a_token_that_allows_too_little() -> None:
    done = in_container("-e", "begin { exit(); }", delegate="0x1")
    assert done.returncode == 1
    assert "ERROR: " in done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------------------------------------- a unit


START = """
set -e
mount --make-rprivate /
umount -R /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/cache
mkdir -p /run/systemd/system /run/lock
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cp {unit} /run/systemd/system/pytrace.service
exec env container=lxc /lib/systemd/systemd --system --unit=pytrace.service --show-status=no
"""


MORE = """\
[Service]
StandardOutput=append:{output}/out
StandardError=append:{output}/err
WorkingDirectory={root}
Environment=PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1
ExecStopPost=/bin/sh -c 'echo $EXIT_STATUS'
"""


def unit(output: Path, calls: str) -> str:
    """The unit of the page, of this checkout, with its output in files."""
    text = block("In a systemd unit", "ini")
    # systemd looks for the program as the user, who may not be able to look into this checkout's Python.
    command = f"/bin/sh -c 'exec {sys.executable} -m pytrace -v opensnoop --duration 2'"
    text = re.sub(r"^ExecStart=.*$", f"ExecStart={command}", text, flags=re.MULTILINE)
    if calls:
        text = re.sub(r"^SystemCallFilter=.*$", f"SystemCallFilter={calls}", text, flags=re.MULTILINE)
    more = MORE.replace("{output}", str(output)).replace("{root}", str(ROOT))
    return text.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n").replace("[Service]\n", more)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[object]:
    """Starts a unit under a systemd that is the first process of a namespace of its own."""
    if shutil.which("systemd-run") is None or not Path("/lib/systemd/systemd").exists():
        pytest.skip("systemd is not installed")
    running: list[subprocess.Popen[bytes]] = []

    def start(text: str) -> None:
        (tmp_path / "pytrace.service").write_text(text)
        (tmp_path / "start").write_text(START.replace("{unit}", f"{tmp_path}/pytrace.service"))
        words = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--mount-proc", "--cgroup"]
        log = (tmp_path / "systemd").open("wb")
        running.append(subprocess.Popen([*words, "sh", tmp_path / "start"], stdout=log, stderr=log))

    yield start
    for process in running:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(("calls", "kept"), [
    ("", "System calls are limited (seccomp)"),
    ("@system-service bpf perf_event_open", "another filter, as of systemd, kills for it"),
])  # fmt: skip
def test_a_hardened_unit(tmp_path: Path, opened: Path, started: object, calls: str, kept: str) -> None:
    assert callable(started)
    tmp_path.chmod(0o755)
    started(unit(tmp_path, calls))
    errors, output = tmp_path / "err", tmp_path / "out"
    until(lambda: output.exists() and str(opened) in output.read_text(), 60)
    until(lambda: output.read_text().endswith("\n0\n"), 60)
    text = errors.read_text()
    assert "Attached" in text
    assert "is not used" not in text
    assert kept in text, text
    assert "ERROR" not in text
