"""Runs command lines fast: a process that has imported pytrace once and forks for each run.

``python -m tests.support.server`` reads one JSON request a line from standard input and answers with one JSON line; the
run itself is ``pytrace.cli.main.main(argv)`` in a forked child, the same code that the command ``pytrace`` runs.
:class:`Server` is the client's side.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

from pytrace.runtime.machine import procfs
from tests.support.expect import Result
from tests.support.patience import PAUSE, patience

ROOT = Path(__file__).resolve().parent.parent.parent
NOTICES = (("stderr", b"Attached "), ("stdout", b'{"type": "attached_probes"'))
"""What says that the probes are attached, with text and with JSON output."""
FORKS_RUNS = "forks runs"
"""Name of the processes that runs are forked from, as ``ps`` shows it."""
GRACE = 20.0
"""Seconds after its time limit in which a run is killed and cleared away."""


@dataclass(frozen=True)
class Running:
    """A run whose probes are attached, while the test does something for it to see."""

    pid: int
    folder: Path

    def stdout(self) -> str:
        """What it has printed until now."""
        return _text(str(self.folder / "stdout"))

    def until_printed(self, text: str, times: int = 1, seconds: float = 30.0) -> None:
        """Return when its standard output has *text* that often; the limit is as for :func:`patience`."""
        end = time.monotonic() + patience(seconds)
        while self.stdout().count(text) < times:
            if not os.path.exists(f"/proc/{self.pid}"):
                raise AssertionError(f"the run ended before it printed {text!r} {times} times:\n{self.stdout()}")
            assert time.monotonic() < end, f"not printed {times} times: {text!r}, but:\n{self.stdout()}"
            time.sleep(PAUSE)

    def until_idle(self, seconds: float = 0.5) -> None:
        """Return when it has handled what was sent to it: it sleeps, and did not run between two looks.

        One that always has something to do is not waited for longer than *seconds* (as for :func:`patience`).
        """
        end = time.monotonic() + patience(seconds)
        before = -1
        while time.monotonic() < end and before != (before := self._run_time()):
            time.sleep(patience(0.005))

    def _run_time(self) -> int:
        """Nanoseconds on a processor, if it sleeps; else a number that is never the same."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0]
            used = int(Path(f"/proc/{self.pid}/schedstat").read_bytes().split()[0])
        except OSError:
            return 0
        return used if state == b"S" else time.monotonic_ns()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


@dataclass
class Server:
    """One server process; closed by :meth:`close`."""

    process: subprocess.Popen[str] | None = None
    folder: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)

    def run(
        self,
        argv: tuple[str, ...],
        *,
        cwd: str | Path = "/",
        stdin: str | None = None,
        environment: dict[str, str] | None = None,
        timeout: float = 30.0,
        when_attached: tuple[str, ...] = (),
        while_attached: Callable[[Running], object] | None = None,
    ) -> Result:
        """One run of pytrace; *when_attached* are shell commands or ``signal NAME``, done after the attach notice.

        *while_attached* is called before them, here. What it raises is raised after the run has ended. *timeout* is as
        for :func:`patience`.
        """
        process = self.start()
        sys.audit("pytrace.tests.run", environment or {})  # counted by tests.support.profile
        paths = {name: os.path.join(self.folder.name, name) for name in ("stdin", "stdout", "stderr")}
        Path(paths["stdin"]).write_bytes((stdin or "").encode("utf-8", "surrogateescape"))
        actions = (*(("hand over",) if while_attached else ()), *when_attached)
        request = {
            "argv": list(argv), "cwd": str(cwd), "environment": environment or {}, "timeout": patience(timeout),
            "when_attached": list(actions), "stdin": paths["stdin"] if stdin is not None else os.devnull,
            "stdout": paths["stdout"], "stderr": paths["stderr"],
        }  # fmt: skip
        work = _Work(while_attached, Path(self.folder.name))
        answer = self._ask(process, request, work)
        if work.error is not None:
            work.error.add_note(f"the run: {_text(paths['stdout'])}{_text(paths['stderr'])}")
            raise work.error
        return Result(
            answer["status"], _text(paths["stdout"]), _text(paths["stderr"]), answer["timed_out"],
            tuple(answer["left_behind"]),
        )  # fmt: skip

    def run_together(
        self, runs: Sequence[tuple[str, ...]], *, cwd: str | Path = "/", cache: str | Path, timeout: float = 30.0
    ) -> list[Result | None]:
        """Many runs of pytrace, one after the other in a single forked process; None for one that did not end in it.

        They share its imports, its warm code and the folder *cache*, which makes one of ten milliseconds of what takes
        a process seventy. A run keeps the privileges of the process, and leaves it as it was: descriptors, children,
        actions of signals and the working directory are compared. *timeout* is for each, as for :func:`patience`.
        """
        process = self.start()
        for _ in runs:
            sys.audit("pytrace.tests.run", {"XDG_CACHE_HOME": str(cache)})
        request = {
            "together": [list(argv) for argv in runs], "cwd": str(cwd), "environment": {"XDG_CACHE_HOME": str(cache)},
            "timeout": patience(timeout), "folder": self.folder.name,
        }  # fmt: skip
        answer = self._ask(process, request, _Work(None, Path(self.folder.name)), len(runs))
        kernel, *ends = answer["ends"]
        results: list[Result | None] = [
            Result(end["status"], _text(end["stdout"]), _text(end["stderr"]), False, (*end["left_behind"], *kernel))
            for end in ends
        ]
        return results + [None] * (len(runs) - len(results))

    def _ask(
        self, process: subprocess.Popen[str], request: dict[str, Any], work: _Work, times: int = 1
    ) -> dict[str, Any]:
        """The answer; a server that gives none in time, or that nobody waits for any more, is replaced by a new one."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = self._answer(process, request, times)
            if "attached" in answer:
                work.do(answer["attached"])
                process.stdin.write("done\n")
                process.stdin.flush()
                answer = self._answer(process, request, times)
            return answer
        except BaseException:
            self.process = None
            process.kill()
            raise

    @staticmethod
    def _answer(process: subprocess.Popen[str], request: dict[str, Any], times: int) -> dict[str, Any]:
        assert process.stdout is not None
        words = request["argv"] if "argv" in request else request["together"]
        if not select.select([process.stdout], [], [], request["timeout"] * times + GRACE)[0]:
            raise RuntimeError(f"the run could not be ended: {words}")
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the test server died with status {process.wait()} on {words}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(timeout=patience(30))
            self.process = None
        self.folder.cleanup()

    def start(self) -> subprocess.Popen[str]:
        """Its process, started if there is none: for tests that count processes before they run anything."""
        if self.process is None:
            from tests.support import forked

            self.process = forked.Popen(
                [sys.executable, "-m", "tests.support.server"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            # Its imports take long on a busy machine; that time is not part of the limit of a run.
            assert self.process.stdout is not None
            self.process.stdout.readline()
        return self.process


@dataclass
class _Work:
    """What the test does while a run is attached, and what went wrong with it."""

    function: Callable[[Running], object] | None
    folder: Path
    error: BaseException | None = None

    def do(self, pid: int) -> None:
        assert self.function is not None
        try:
            self.function(Running(pid, self.folder))
        except BaseException as error:  # noqa: BLE001 - raised again after the run has ended
            self.error = error


def _text(path: str) -> str:
    return Path(path).read_bytes().decode("utf-8", "surrogateescape")


# ---------------------------------------------------------------------------------------------- the server's side

PRELOADED = (
    "json", "re", "tempfile", "llvmlite.binding", "llvmlite.ir", "ply.lex", "ply.yacc",
    "elftools.elf.elffile", "elftools.dwarf.dwarfinfo",
)  # fmt: skip
"""Libraries that a run may import, beside all of pytrace: an import in the emulated guest takes seconds."""


_LEFT_OUT = (
    "pytrace.interface.notebook", "pytrace.cli.language_server", "pytrace.live.app", "pytrace.remote.kubernetes",
)  # fmt: skip
"""They import IPython, pygls, textual and kubernetes: half of all imports. Few runs need them, and each run copies and
frees the memory of the process that it is forked from: 96 ms of a processor with them, 84 without."""


def own_modules() -> list[str]:
    """Names of the modules of pytrace that most runs may import."""
    import pkgutil

    import pytrace

    names = [item.name for item in pkgutil.walk_packages(pytrace.__path__, "pytrace.")]
    return [name for name in names if "__main__" not in name and not name.startswith(_LEFT_OUT)]


_ready = _imported = False


def import_all() -> None:
    """Import all that a run may need, and get it going: what is forked from this process need not."""
    global _imported
    if _imported:
        return
    _imported = True
    for name in (*PRELOADED, *own_modules()):
        import_module(name)
    # It looks at every file of the package, which takes seconds in the emulated guest too.
    import_module("pytrace.cache").made_by()
    _warm_up()


def make_ready() -> None:
    """Become a process that runs are forked from."""
    global _ready
    name_process(FORKS_RUNS)
    if _ready:
        return  # this process was forked from one that is
    _ready = True
    import_all()
    import_module("tests.support.compile_guest").use()
    # Runs share these objects until they change them; the collector would change each.
    gc.collect()
    gc.freeze()


def name_process(name: str) -> None:
    """Set what ``ps`` shows."""
    Path("/proc/self/comm").write_text(name)


def serve() -> None:
    """Answer requests until the input ends."""
    make_ready()
    _adopt_orphans()
    channel = os.fdopen(os.dup(1), "w")
    # A run must not write into the answers, whatever goes wrong.
    os.dup2(2, 1)
    channel.write("ready\n")
    channel.flush()
    for line in sys.stdin:
        request = json.loads(line)
        answer = _perform_together(request) if "together" in request else _perform(request, channel)
        channel.write(json.dumps(answer) + "\n")
        channel.flush()


def _warm_up() -> None:
    """Compile for a kernel that is made up, so that LLVM, the lexer and the parser are ready and no fact is known.

    The result is read as one of the cache: msgspec looks at all classes of a manifest then, which takes 3 ms of each
    process that has not, and half a second in the test machine.
    """
    from pytrace import pipeline
    from pytrace.core.diagnostics import Diagnostics
    from pytrace.core.manifest import CompiledScript
    from pytrace.core.options import CompileOptions
    from pytrace.core.source import Source
    from tests.support.costs import kernel

    text = 'begin { @a[1, "b"] = count(); printf("%d %s", 1, "c"); print((1, "d")); exit(); }'
    compiled = pipeline.compile_script(Source("stdin", text, None), CompileOptions(), kernel(), Diagnostics())
    CompiledScript.from_bytes(compiled.to_bytes())


def _adopt_orphans() -> None:
    """Become the parent of whatever a run leaves behind, to see and end it."""
    import ctypes

    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _perform(request: dict[str, Any], channel: TextIO) -> dict[str, Any]:
    for name in ("stdout", "stderr"):
        Path(request[name]).write_bytes(b"")
    child = os.fork()
    if child == 0:
        _child(request)
    deadline = time.monotonic() + request["timeout"]
    actions = list(request["when_attached"])
    ended = os.pidfd_open(child)
    status = None
    while status is None and time.monotonic() < deadline:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(code)
        elif actions and any(notice in Path(request[name]).read_bytes() for name, notice in NOTICES):
            action = actions.pop(0)
            if action == "hand over":
                _hand_over(child, channel)
            else:
                _act(action, child, request)
        else:
            select.select([ended], [], [], PAUSE if actions else max(0.0, deadline - time.monotonic()))
    os.close(ended)
    timed_out = status is None
    if timed_out:
        status = _end(child)
    return {"status": status, "timed_out": timed_out, "left_behind": [] if timed_out and not _orphans() else _clear()}


def _perform_together(request: dict[str, Any]) -> dict[str, Any]:
    ends = Path(request["folder"], "ends")
    ends.write_bytes(b"")
    child = os.fork()
    if child == 0:
        _child_of_many(request, ends)
    known, deadline = 0, time.monotonic() + request["timeout"]
    ended = os.pidfd_open(child)
    while not os.waitpid(child, os.WNOHANG)[0]:
        if known != (known := ends.stat().st_size):
            deadline = time.monotonic() + request["timeout"]
        if time.monotonic() > deadline:
            _end(child)
            break
        select.select([ended], [], [], 0.5)
    os.close(ended)
    found = [json.loads(line) for line in ends.read_text().splitlines()]
    return {"ends": [_clear(), *found]}


def _hand_over(child: int, channel: TextIO) -> None:
    """Tell the client that the run is attached, and wait until it has done its work."""
    channel.write(json.dumps({"attached": child}) + "\n")
    channel.flush()
    sys.stdin.readline()


def _act(action: str, child: int, request: dict[str, Any]) -> None:
    if action.startswith("signal "):
        os.kill(child, signal.Signals[f"SIG{action.split()[1].removeprefix('SIG')}"])
    elif action.startswith("sleep "):
        time.sleep(float(action.split()[1]))
    else:
        with suppress(subprocess.TimeoutExpired):  # the time of the run is over as well: its result says so
            subprocess.run(action, shell=True, cwd=request["cwd"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=request["timeout"], check=False,
                           env={**os.environ, **request["environment"], "PYTRACE_PID": str(child)})  # fmt: skip


def _orphans() -> list[int]:
    """Children, but for those that cannot be ended."""
    for pid in list(_stuck):
        if os.waitpid(pid, os.WNOHANG)[0]:
            _stuck.discard(pid)
    return [pid for pid in procfs.children(os.getpid()) if pid not in _stuck]


def _clear() -> list[str]:
    """End what the run left, and say what that was; what had ended by itself is only reaped."""
    left: list[str] = []
    for _ in range(20):
        orphans = _orphans()
        if not orphans:
            return left
        for pid in orphans:
            if os.waitpid(pid, os.WNOHANG)[0]:
                continue
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            time.sleep(0.05)
            if os.waitpid(pid, os.WNOHANG)[0]:
                continue
            left.append(f"{pid} {command}")
            if _end(pid) is None:
                left[-1] += " (it cannot be ended)"
    return left


ENDING = 5.0
"""Seconds until a process that was killed has ended."""
_stuck: set[int] = set()
"""Processes that were killed and have not ended: what waits for a device or a file system (state D) may never."""


def _end(pid: int) -> int | None:
    """Kill a child. Returns its exit status; None if it does not end, which is reported once and waited for no more."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    ended = os.pidfd_open(pid)
    try:
        if select.select([ended], [], [], patience(ENDING))[0]:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(ended)
    _stuck.add(pid)
    return None


def _child_of_many(request: dict[str, Any], ends: Path) -> NoReturn:
    """Run all, and write a line about each that has ended."""
    status = 2
    gc.disable()
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(request["environment"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        from pytrace.cli.main import main

        for number, argv in enumerate(request["together"]):
            os.chdir(request["cwd"])
            end = {name: os.path.join(request["folder"], f"{number}.{name}") for name in ("stdout", "stderr")}
            for descriptor, path in enumerate(end.values(), 1):
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
                os.dup2(handle, descriptor)
                os.close(handle)
            before = _state()
            # A run that waits for events gives up what the next one needs.
            begin(["--keep-privileges", *argv])
            status = _exit_status(main, sys.argv[1:])
            sys.stdout.flush()
            sys.stderr.flush()
            changed = {*_state().items()} ^ {*before.items()}
            left = [f"{name}: {value}" for name, value in sorted(changed)]
            with open(ends, "a", encoding="utf-8") as file:
                file.write(json.dumps(end | {"status": status, "left_behind": left}) + "\n")
            gc.collect(0)
        status = 0
    except BaseException:  # noqa: BLE001 - as for one
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _state() -> dict[str, str]:
    """What a run must leave as it found it, in this process."""
    own = Path("/proc/self")
    found = {"children": (own / f"task/{os.getpid()}/children").read_text(), "directory": os.getcwd()}
    found |= {f"signal {number}": repr(signal.getsignal(number)) for number in signal.valid_signals()}
    for name in os.listdir(own / "fd"):
        try:
            target = os.readlink(own / "fd" / name)
        except OSError:
            continue  # the one that lists them
        if not target.startswith("/"):  # files, as that with the types of the kernel, stay open for the next run
            found[f"descriptor {name}"] = target
    return found


def begin(argv: list[str], name: str = "pytrace") -> None:
    """Make the streams and arguments of a new process; *name* is the first of these."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - they live as long as the process
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = [name, *argv]
    name_process("python")  # until the command gives it its own


def _child(request: dict[str, Any]) -> None:
    status = 2
    gc.disable()
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(request["cwd"])
        os.environ.update(request["environment"])
        for number, (name, flags) in enumerate(
            (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY | os.O_APPEND), ("stderr", os.O_WRONLY | os.O_APPEND))
        ):
            handle = os.open(request[name], flags)
            os.dup2(handle, number)
            os.close(handle)
        begin(request["argv"])
        from pytrace.cli.main import main

        status = _exit_status(main, request["argv"])
    except BaseException:  # noqa: BLE001 - reported, and the child must not run on as a second server
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _exit_status(main: Any, argv: list[str]) -> int:
    """As the interpreter would make it of ``sys.exit(main(argv))``."""
    try:
        status = main(argv)
    except SystemExit as leave:
        status = leave.code
    if status is None:
        return 0
    if isinstance(status, int):
        return status & 0xFF
    sys.stderr.write(f"{status}\n")
    return 1


if __name__ == "__main__":
    serve()
