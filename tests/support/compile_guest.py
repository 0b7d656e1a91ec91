"""Has scripts compiled outside of the test machine, by :mod:`tests.support.compile_host`.

A compilation takes half a minute on the emulated processors and a third of a second outside. The guest hands over the
facts about its kernel once, as copies of the files in which the kernel shows them, and then each script with its
options; what comes back is checked against the facts as they are now, and runs as if it had been compiled here. A
script that gets no answer (it has errors, or asks for processes) is compiled here.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from pytrace.base import private_files
from pytrace.cli import main
from pytrace.cli.request import Script
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import PROCESSES_FACT, CompileOptions, RunOptions
from pytrace.core.source import Source
from pytrace.runtime.load import features
from pytrace.runtime.machine import fingerprints, procfs
from pytrace.runtime.machine.fingerprints import Fact

VARIABLE = "PYTRACE_TEST_COMPILER"
"""Names the folder of requests, which both sides can write."""

TRACEFS = "/sys/kernel/tracing"
PLACES = (
    "/sys/kernel/btf", TRACEFS, "/sys/kernel/debug", "/sys/devices/system/cpu/possible",
    "/proc/kallsyms", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/kptr_restrict",
)  # fmt: skip
"""Where compilations look for facts about the kernel."""
MODULES = "/proc/modules"
"""As above; the kernel outside may be one without modules, which has no such file."""

_FILES = (
    MODULES,
    *(place for place in PLACES if place.startswith("/proc") or place.endswith("possible")),
    "/sys/kernel/debug/kprobes/blacklist", f"{TRACEFS}/available_filter_functions", f"{TRACEFS}/available_events",
)  # fmt: skip
_MODULES = ("loop", "ext4", "xfs", "btrfs", "zram", "raid1", "veth", "sch_netem")
"""What workloads load: the facts are those with all of them, so that they are copied once."""
_SAME = {"file": 4, "tracepoint": 5, "environment": 3, "pid_namespace": 3}
"""How many parts of a fact must be the same outside. Inodes differ; modules are those of the facts handed over."""
_PATIENCE = 120.0
_numbers = count()


class Facts(msgspec.Struct, frozen=True):
    """What compilations ask the kernel."""

    system: tuple[str, ...]
    """``uname``."""
    features: dict[str, bool]
    pid_namespace: Fact
    files: dict[str, bytes]
    """Files of the kernel, by path."""


class Request(msgspec.Struct, frozen=True):
    """One compilation; *facts* is the file with :class:`Facts`."""

    source: Source
    compile_options: CompileOptions
    run_options: RunOptions
    facts: Path
    directory: str
    environment: dict[str, str]


def prepare() -> Path | None:
    """Hand the facts over, where somebody answers; the folder of requests."""
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        return None
    subprocess.run(["modprobe", "-a", "-q", *_MODULES], check=False)
    _facts(Path(folder))
    return Path(folder)


def use() -> None:
    """Have runs of this process and its children compiled outside, where somebody answers."""
    folder = prepare()
    if folder is None:
        return
    here = main.compile_script

    def compile_script(
        script: Script, compile_options: CompileOptions, options: RunOptions, *, tool: bool = False
    ) -> CompiledScript:
        found = compiled_outside(folder, script, compile_options, options) if _ordinary(options) else None
        if found is None:
            return here(script, compile_options, options, tool=tool)
        if options.warnings:
            sys.stderr.write("".join(found.manifest.warnings))
        return found

    main.compile_script = compile_script


def copied(copy: Path, original: Path) -> None:
    """Say that *copy*, a folder in ``/tmp``, has the files of *original*, which both sides have."""
    folder = os.environ.get(VARIABLE, "")
    if folder:
        path = Path(folder, f"{os.getpid()}-{next(_numbers)}.unfinished")
        path.write_text(f"{original}\n{copy}")
        path.rename(path.with_suffix(".copy"))


def _ordinary(options: RunOptions) -> bool:
    """Whether all that matters is handed over."""
    return not (options.debug or options.debuginfo or options.traceable_functions or options.verbose)


def compiled_outside(
    folder: Path, script: Script, compile_options: CompileOptions, options: RunOptions
) -> CompiledScript | None:
    """The script as whoever answers requests in *folder* compiled it, with the facts as they are here; else None."""
    facts = _facts(folder)
    own = {name: text for name, text in os.environ.items() if name.startswith(("PYTRACE_", "BPFTRACE_", "PATH"))}
    request = Request(script.source, compile_options, options, facts, os.getcwd(), own)
    data = exchange(folder, pickle.dumps(request))
    if not data:
        return None
    compiled = CompiledScript.from_bytes(data)
    now = [still_the_same(fact) for fact in compiled.manifest.facts]
    if None in now:
        return None
    return replace(compiled, manifest=replace(compiled.manifest, facts=tuple(fact for fact in now if fact)))


def exchange(folder: Path, data: bytes) -> bytes:
    """The answer to a request; empty when there is none."""
    name = folder / f"{os.getpid()}-{next(_numbers)}"
    name.with_suffix(".unfinished").write_bytes(data)
    name.with_suffix(".unfinished").rename(name.with_suffix(".request"))
    answer, end = name.with_suffix(".answer"), time.monotonic() + _PATIENCE
    while not answer.exists():
        if (folder / "gone").exists() or time.monotonic() > end:
            return b""
        time.sleep(0.05)
    return answer.read_bytes()


def still_the_same(fact: Fact) -> Fact | None:
    """The fact as it is in this machine; None where that is something else than what the script was compiled for."""
    if fact[0] == PROCESSES_FACT:
        return fact
    if fact[0] == "process" and procfs.root_prefix(int(fact[1])):
        return None
    check = fingerprints._CHECKS.get(fact[0])
    now = check(fact) if check else None
    if now is None or now[: _SAME.get(fact[0], 1)] != fact[: _SAME.get(fact[0], 1)]:
        return None
    return now


# ------------------------------------------------------------------------------------------------ facts


_handed_over: dict[tuple[Path, Fact], Path] = {}
"""The files with facts, by folder and loaded modules: which tracepoints there are takes longer to read."""


def _facts(folder: Path) -> Path:
    """The file with the facts as they are now: another one for each set of loaded modules."""
    modules = fingerprints.modules_fact()
    path = _handed_over.get((folder, modules))
    if path is None:
        path = _handed_over[folder, modules] = _hand_over(folder, modules)
    return path


def _hand_over(folder: Path, modules: Fact) -> Path:
    state = (modules, fingerprints.tracepoints_fact(TRACEFS))
    path = folder / f"{private_files.digest(repr(state).encode())}.facts"
    if not path.exists():
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.with_suffix(".unfinished").write_bytes(pickle.dumps(_now_known()))
                path.with_suffix(".unfinished").rename(path)
    return path


_lasting: dict[str, bytes] = {}
"""Files with types and events, which stay as they are as long as there is such a type or event."""


def _now_known() -> Facts:
    events = Path(f"{TRACEFS}/available_events").read_text().split()
    lasting = [f"/sys/kernel/btf/{name}" for name in os.listdir("/sys/kernel/btf")]
    lasting += [f"{TRACEFS}/events/{event.replace(':', '/')}/{name}" for event in events for name in ("id", "format")]
    _lasting.update(_contents(path for path in lasting if path not in _lasting))
    return Facts(
        tuple(os.uname()),
        {name: features.has(name) for name in features.FEATURES},
        fingerprints.pid_namespace_fact(),
        _contents(_FILES) | {path: _lasting[path] for path in lasting if path in _lasting},
    )


def _contents(paths: Iterable[str]) -> dict[str, bytes]:
    """Files of the kernel, but for those that are not there, or that it is forbidden to read."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError, PermissionError):
            found[path] = Path(path).read_bytes()
    return found
