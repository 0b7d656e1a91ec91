"""What tracing left in the kernel: BPF programs, maps and links that nobody who may own them holds any more, and probes
that tracers which are gone defined in tracefs."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytrace.runtime.machine.fingerprints import TRACEFS
from tests.support.patience import patience
from tests.support.server import FORKS_RUNS
from tests.support.waiting import descendants, until

_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361, "loongarch64": 280}
_NEXT_ID = {"prog": 11, "map": 12, "link": 31}  # BPF_{PROG,MAP,LINK}_GET_NEXT_ID of enum bpf_cmd
_libc = ctypes.CDLL(None, use_errno=True)


def objects() -> set[tuple[str, int]]:
    """``(kind, id)`` of all BPF objects of the machine; empty where they cannot be listed."""
    return {(kind, number) for kind, command in _NEXT_ID.items() for number in _ids(command)}


def _ids(command: int) -> Iterator[int]:
    attribute = (ctypes.c_uint32 * 32)()
    while True:
        size = 12
        if _libc.syscall(_SYSCALL[platform.machine()], command, ctypes.byref(attribute), size) != 0:
            return
        attribute[0] = attribute[1]  # start_id = next_id
        yield attribute[1]


def definitions() -> set[str]:
    """Names of probes in tracefs whose tracer is gone."""
    found: set[str] = set()
    for folder in TRACEFS:
        for name in ("uprobe_events", "kprobe_events"):
            try:
                text = Path(folder, name).read_text(errors="surrogateescape")
            except OSError:
                continue
            named = re.findall(r"(?m)^[pr]\d*:(pytrace_(\d+)/\S+) ", text)
            found |= {event for event, process in named if not os.path.exists(f"/proc/{process}")}
    return found


def _held_by_others() -> set[tuple[str, int]]:
    """Objects that processes other than this one and its children hold open."""
    found = set()
    family = _family()
    for process in os.listdir("/proc"):
        if not process.isdigit() or int(process) in family:
            continue
        with suppress(OSError):  # it has ended
            for descriptor in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError):  # closed in the meantime
                    # What it is open on is told ten times faster than what a file has to say of itself.
                    if os.readlink(f"/proc/{process}/fd/{descriptor}").startswith("anon_inode:bpf"):
                        text = Path(f"/proc/{process}/fdinfo/{descriptor}").read_text()
                        held = re.findall(r"^(prog|map|link)_id:\s*(\d+)", text, re.MULTILINE)
                        found |= {(kind, int(number)) for kind, number in held}
    return found


def _staying(new: set[tuple[str, int]], seconds: float) -> set[tuple[str, int]]:
    """Which objects are there for that long: to ask the kernel costs a hundredth of a look into all processes."""
    end = time.monotonic() + seconds
    while new and time.monotonic() < end:
        time.sleep(0.005)
        new = new & objects()
    return new


def _family() -> set[int]:
    """This process, and all that it started."""
    return set(descendants(os.getpid()))


@dataclass
class Watch:
    """Objects before, and which of the new ones are still there when the wait is over."""

    before: set[tuple[str, int]] = field(default_factory=objects)

    def leaked(self, seconds: float = 10.0) -> list[str]:
        """New objects that stay. The kernel frees in its own time (RCU), so this waits as long as :func:`patience`."""
        end, pause = time.monotonic() + patience(seconds), 0.02
        new = objects() - self.before
        while new := _staying(new, pause):
            foreign = _held_by_others()
            # What another tracer closed while its descriptors were read is gone by now.
            new = (new - foreign) & objects()
            if foreign - self.before:
                # Another tracer is at work: the maps of its programs have no descriptor that tells whose they are.
                new = {item for item in new if item[0] == "link"}
            if time.monotonic() > end:
                break
            pause = 0.3
        return sorted(f"{kind} {number}" for kind, number in new)


@dataclass
class LateWatch:
    """As :class:`Watch` for runs one after the other; each is looked at when the next begins, so that none waits."""

    name: str = ""
    _watch: Watch = field(default_factory=Watch)

    def begin(self, name: str) -> list[str]:
        """What the run before left in the kernel, with its name; *name* is that of the next one."""
        found = [f"left in the kernel by {self.name or 'nothing'}: {item}" for item in self._watch.leaked()]
        self.name, self._watch = name, Watch()
        return found


def _serves(process: int) -> bool:
    """Whether a process is one that runs are forked from, which stays for later tests; runs have another name."""
    try:
        name = Path(f"/proc/{process}/comm").read_text().strip()
        # It has its name once it has begun.
        begins = name.startswith("python") and b"tests.support." in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
    return name == FORKS_RUNS or begins


def _command(process: int) -> str:
    """Its words; of one without any, as it has ended, what ``/proc/PID/stat`` has: name, state, parent."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return words or " ".join(Path(f"/proc/{process}/stat").read_text().split()[1:4])
    except OSError:
        return "ended"


@contextmanager
def no_leaks() -> Iterator[None]:
    """Fail when what runs inside leaves BPF objects, probes in tracefs or child processes behind."""
    watch = Watch()
    children, defined = _family(), definitions()
    yield
    assert not watch.leaked(), "left in the kernel"
    until(lambda: definitions() <= defined)
    with suppress(AssertionError):  # one that is on its way out is gone in a moment
        until(lambda: all(map(_serves, _family() - children)))
    left = {process for process in _family() - children if not _serves(process)}
    assert not left, f"processes left: {[(process, _command(process)) for process in left]}"
