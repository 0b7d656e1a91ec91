"""Compiles scripts here for tests in the test machine, whose emulated processors take a hundred times as long.

``python -m tests.support.compile_host FOLDER MODULES`` answers the requests that :mod:`tests.support.compile_guest`
puts into the folder. Each is compiled in a process of its own, which sees the facts of the guest's kernel in the places
where the kernel shows them: in a mount namespace with what the guest copied from there. *MODULES* is where the modules
of its kernel are installed. Whatever cannot be answered here (errors of a script, processes, files that only the guest
has) is left to the guest.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import sys
import time
from functools import cache
from pathlib import Path
from typing import NoReturn

from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError
from pytrace.core.kernel_info import IndirectFunction, KernelHeaders, UserSymbol
from pytrace.pipeline import compile_script
from pytrace.runtime.load import features
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine import fingerprints, kernel_functions, kernel_headers
from tests.support.compile_guest import MODULES, PLACES, Facts, Request
from tests.support.server import ROOT, own_modules

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC_PRIVATE = 0x1000, 0x44000
_libc = ctypes.CDLL(None, use_errno=True)


class OnlyTheGuestKnows(Exception):  # noqa: N818 - it is no error
    """A question about something that is not the same in the guest."""


class GuestKernel(LiveKernel):
    """Facts about the guest's kernel; its processes and control groups are not known here."""

    loaded: str | None = None
    """Text of ``/proc/modules``."""

    def _depend_on_modules(self) -> None:
        if self.loaded is not None:
            self._depend(("modules", ""))  # the guest completes it

    def modules(self) -> list[str]:
        self._depend_on_modules()
        return [line.split()[0] for line in (self.loaded or "").splitlines()]

    def binaries(self, target: str, pid: int | None, command: str = "") -> list[str]:
        if "*" in target or (pid is not None and not target.startswith("/")):
            raise OnlyTheGuestKnows
        if pid is None:
            return super().binaries(target, None, command)
        # A file that both sides have is the process's as well, if the guest sees its files by the same paths.
        paths = self._binaries.libraries.find(target, None)
        if not paths:
            raise OnlyTheGuestKnows
        self._depend(("process", str(pid), ""))
        return paths

    def user_implementations(self, path: str, function: UserSymbol, pid: int | None) -> IndirectFunction:
        if pid is not None:
            raise OnlyTheGuestKnows
        return super().user_implementations(path, function, pid)

    def bpf_programs(self, pattern: str) -> list[tuple[int, str]]:
        raise OnlyTheGuestKnows

    def sleepable_function(self, name: str) -> bool:
        raise OnlyTheGuestKnows

    def cgroup_id(self, path: str) -> int | None:
        raise OnlyTheGuestKnows

    def headers(self) -> KernelHeaders:
        if os.path.exists(kernel_headers.ARCHIVE):
            raise OnlyTheGuestKnows  # they are those of this kernel
        return super().headers()


def serve(folder: Path, modules: str) -> None:
    """Answer requests until the parent process ends."""
    for name in own_modules():
        importlib.import_module(name)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    parent = os.getppid()
    under_way: set[int] = set()
    while os.getppid() == parent:
        for path in sorted(folder.glob("*.request")):
            taken = path.rename(path.with_suffix(".taken"))
            request: Request = pickle.loads(taken.read_bytes())
            _unpacked(request.facts)  # here, so that it is there for all
            child = os.fork()
            if child == 0:
                _answer(taken, request, modules)
            under_way.add(child)
        under_way -= {child for child in under_way if os.waitpid(child, os.WNOHANG)[0]}
        time.sleep(0.05)


def _answer(path: Path, request: Request, modules: str) -> NoReturn:
    """Write the compiled script, or nothing, next to the request."""
    status = 1
    try:
        compiled = b""
        try:
            compiled = _compiled(request, modules)
        finally:
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_bytes(compiled)
            unfinished.rename(path.with_suffix(".answer"))
        status = 0
    except (OnlyTheGuestKnows, ScriptError, TraceError, OSError):
        status = 0
    except BaseException:  # noqa: BLE001 - the child must not run on as a second server
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _compiled(request: Request, modules: str) -> bytes:
    enter(request.facts, modules)
    _see_folders_of_tests(request)
    os.chdir(request.directory)
    os.environ.update(request.environment)
    kernel = GuestKernel(disabled=request.run_options.no_features)
    return compile_script(request.source, request.compile_options, kernel, Diagnostics()).to_bytes()


def enter(facts: Path, modules: str) -> None:
    """See the guest's kernel, of which *facts* tells, from now on."""
    known = _known(facts)
    _enter(_unpacked(facts))
    os.uname = lambda: os.uname_result(known.system)
    features.has = lambda name: known.features[name]
    fingerprints.pid_namespace_fact = lambda: known.pid_namespace
    kernel_functions.ModuleIndex.__init__.__defaults__ = (modules,)
    GuestKernel.loaded = known.files[MODULES].decode() if MODULES in known.files else None
    kernel_functions.Kallsyms.__init__.__defaults__ = ("/proc/kallsyms", f"{_unpacked(facts)}{MODULES}")


@cache
def _known(path: Path) -> Facts:
    facts: Facts = pickle.loads(path.read_bytes())
    return facts


@cache
def _unpacked(path: Path) -> Path:
    """The folder with the files of the guest's kernel."""
    folder = path.with_suffix("")
    for name, data in _known(path).files.items():
        target = folder / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return folder


def _enter(facts: Path) -> None:
    """See the facts of the guest in place of this kernel's own."""
    _call(_libc.unshare(_CLONE_NEWNS))
    _call(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None))
    for place in PLACES:
        copy = facts / place.lstrip("/")
        if os.path.isdir(place):
            copy.mkdir(parents=True, exist_ok=True)
        if copy.exists() != os.path.exists(place):
            raise OnlyTheGuestKnows
        if copy.exists():
            _call(_libc.mount(bytes(copy), place.encode(), None, ctypes.c_ulong(_MS_BIND), None))


def _see_folders_of_tests(request: Request) -> None:
    """See ``/tmp`` as the guest's tests do, whose own it is: their working directory, and their copies of programs.

    Files that they write are missing in it. A script that asks for one is compiled for its absence, which is no longer
    so when the answer is checked, or not at all.
    """
    copies = [path.read_text().split("\n") for path in request.facts.parent.glob("*.copy")]
    if not copies and not Path(request.directory).is_relative_to("/tmp"):
        return
    needed = [path for path in (ROOT, request.facts.parent) if path.is_relative_to("/tmp")]
    held = [(os.open(path, os.O_PATH), path) for path in needed]
    _call(_libc.mount(b"none", b"/tmp", b"tmpfs", ctypes.c_ulong(0), None))
    shown = [(f"/proc/self/fd/{descriptor}", path) for descriptor, path in held]
    for source, folder in (*shown, *copies):
        os.makedirs(folder, exist_ok=True)
        _call(_libc.mount(os.fsencode(source), os.fsencode(folder), None, ctypes.c_ulong(_MS_BIND), None))
    os.makedirs(request.directory, exist_ok=True)


def _call(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
