"""Processes that are measured: the two tracers, and the programs that they trace."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(__file__).resolve().parent / "programs"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytrace"
LONGEST = 150.0
"""Seconds after which a run is ended and its row fails."""

_OF_DEVELOPERS = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPATH"})


class RunError(Exception):
    """A run that did not do what was to be measured."""


@dataclass
class Run:
    """One process and its children: wall and processor time in seconds, peak memory in KiB, output."""

    wall: float
    processor: float
    memory: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Tracer:
    """A tracer's command and the environment that lets it do the same as the other."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def run(self, *words: str, environment: dict[str, str] | None = None, limit: float = LONGEST) -> Run:
        """Run it with these words."""
        return run([*self.command, *words], {**dict(self.environment), **(environment or {})}, limit)

    def version(self) -> str:
        """What it says itself."""
        return self.run("--version").stdout.strip().splitlines()[0]


MANY_PROBES = {"BPFTRACE_MAX_PROBES": "20000", "BPFTRACE_MAX_BPF_PROGS": "20000"}
"""The environment in which either tracer attaches thousands of probes."""

PYTRACE = Tracer("pytrace", (str(Path(sys.executable).with_name("pytrace")),))


def bpftrace(command: str) -> Tracer:
    """The peer: a command line as a shell reads it, which ends with the path of the program."""
    return Tracer("bpftrace", tuple(shlex.split(command)))


def limit_of_keys(keys: int) -> dict[str, str]:
    """The environment in which a map of either tracer holds that many keys."""
    return {"BPFTRACE_MAX_MAP_KEYS": str(keys)}


def run(command: Sequence[str], environment: dict[str, str] | None = None, limit: float = LONGEST) -> Run:
    """Run a command and measure it.

    Raises:
        RunError: it did; a measurement of a failure would mean nothing.
    """
    # Users do not set these variables: without byte code, each start would compile modules that were edited.
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_DEVELOPERS}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**inherited, **(environment or {})}
        )
        with _ended_after(process, limit):
            _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        stdout, stderr = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    if process.returncode:
        ended = f"did not end in {limit:.0f} s" if wall >= limit else f"ended with {process.returncode}"
        raise RunError(f"{Path(command[0]).name} {ended}: {_reason(stderr or stdout)}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, stdout, stderr)


def _reason(output: str) -> str:
    """The end of what a program said, without the warnings that bpftrace prints in each run."""
    lines = [line for line in output.splitlines() if line and not line.startswith("WARNING:")]
    return "\n".join(lines)[-300:]


@contextmanager
def _ended_after(process: subprocess.Popen[bytes], limit: float) -> Iterator[None]:
    """Kill the process when *limit* seconds have passed; its children end with their pipes or by themselves."""

    def end(*_: object) -> None:
        process.kill()

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def alone() -> Iterator[None]:
    """No other measurement at the same time: two of them would measure each other."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "bench.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


OPTIONS = (
    "-O1", "-g", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-optimize-sibling-calls",
    "-fcf-protection=none",
)  # fmt: skip
"""Functions begin with `push %rbp`, which the kernel emulates; an `endbr64` would be executed in single steps."""


@cache
def built(source: str, *options: str) -> str:
    """The path of a program of ``programs/``, compiled."""
    text = PROGRAMS / source
    return compiled(text, *options)


@cache
def packaged(name: str) -> str:
    """The path of a program of PyPI, installed into the cache when it is first asked for."""
    folder = CACHE / name
    path = folder / "bin" / name
    if not path.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), name], check=True)
    return str(path)


def compiled(source: Path, *options: str) -> str:
    """The path of the program of a C file; made again when that is newer.

    Raises:
        RunError: the compiler refused it.
    """
    return _made(source, source.stem, ["cc", *OPTIONS], options)


@cache
def bpf_object(source: str) -> str:
    """The path of an object file with BPF programs of ``programs/``.

    Raises:
        RunError: clang is missing or refused it.
    """
    architecture = os.uname().machine
    command = ["clang", "-O2", "-g", "-mcpu=v3", "-target", "bpf", f"-D__{architecture}__"]
    options = [f"-I/usr/include/{architecture}-linux-gnu", "-c"]
    return _made(PROGRAMS / source, f"{Path(source).stem}.o", command, options)


def _made(source: Path, name: str, compiler: Sequence[str], options: Sequence[str]) -> str:
    folder = ROOT / ".cache" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    newest = max(source.stat().st_mtime, Path(__file__).stat().st_mtime)
    if not target.exists() or target.stat().st_mtime < newest:
        command = [*compiler, str(source), "-o", f"{target}.new", *options]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            message = getattr(error, "stderr", None) or str(error)
            raise RunError(f"{compiler[0]} {source.name}: {message[-500:]}") from error
        os.replace(f"{target}.new", target)
    return str(target)
