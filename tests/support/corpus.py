"""The scripts that every kernel's verifier must accept: shipped tools, examples of the documents, cases.

``scripts/verify-corpus`` runs this module. ``here`` compiles and loads each script on this machine's kernel. For a
kernel of the test machine the work is split, since compiling takes a hundred times as long there: ``outside`` compiles
with the facts that :mod:`tests.support.corpus_guest` hands out, which loads the results. Nothing is attached.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import shlex
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import msgspec

from pytrace import pipeline
from pytrace.cli import options as command_line
from pytrace.cli import request, tools
from pytrace.cli.request import Script, live_kernel
from pytrace.core.builtins import BUILTINS
from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError
from pytrace.core.manifest import CompiledScript
from pytrace.core.options import CompileOptions, RunOptions
from pytrace.multitools.table import TOOLS
from pytrace.runtime.load.live_kernel import LiveKernel
from tests import test_language_doc, test_tutorial
from tests.support import cases, compile_host, usage
from tests.support.corpus_guest import Result, load, write
from tests.support.server import own_modules

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs" / "build"

FAMILIES = frozenset({
    "aggregations", "code", "control", "fentry", "iter", "kprobes", "maps", "network", "rawtracepoints", "software",
    "stacks", "statements", "strings", "timers", "tracepoints", "types", "unwinding",
})  # fmt: skip
"""Case files about code that kernels may treat differently."""

class Item(msgspec.Struct, frozen=True):
    """One command line of the corpus; *files* are written beside it."""

    name: str
    words: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


def items() -> list[Item]:
    """The whole corpus, in order; names are unique."""
    return [*_tools(), *_documents(), *_builtins(), *_cases()]


def _tools() -> Iterator[Item]:
    for name in tools.names():
        if name in TOOLS:
            for number, line in enumerate(TOOLS[name].examples.splitlines(), 1):
                words = shlex.split(re.split(r"  +", line)[0])
                if "-p" not in words and not any("/home/" in word for word in words):
                    yield Item(f"tool {name} {number}", tuple(words[1:]))
        else:
            yield Item(f"tool {name}", (name,))


def _documents() -> Iterator[Item]:
    for path in sorted(usage.EXAMPLES.glob("*.bt")):
        yield Item(f"docs/examples/{path.name}", (str(path),))
    for example in test_language_doc.EXAMPLES:
        if example.case.exit == 0:
            words = ("-e", example.script, *example.parameters)
            yield Item(f"docs/{example.page}:{example.line}", words, tuple(example.files.items()))
    for step in test_tutorial.steps():
        if "-e" in step.argv or step.argv[0] in step.files:
            yield Item(f"docs/{step.page}:{step.line}", step.argv, tuple(step.files.items()))


def _builtins() -> Iterator[Item]:
    for row in BUILTINS:
        if row.example:
            yield Item(f"docs/reference/builtins.md {row.name}", ("--unsafe", "-c", "/bin/true", "-e", row.example))


def _cases() -> Iterator[Item]:
    for case in cases.load_all():
        if case.family in FAMILIES and case.exit == 0 and {"host", "vm"} & set(case.where) and not case.environment:
            places = {"{programs}": str(PROGRAMS), "{root}": str(ROOT), "{cgroup2}": "/sys/fs/cgroup", "{tmp}": "."}
            texts = msgspec.json.encode((case.argv, case.files)).decode()
            for name, place in places.items():
                texts = texts.replace(name, place)
            words, files = msgspec.json.decode(texts, type=tuple[tuple[str, ...], tuple[tuple[str, str], ...]])
            yield Item(f"case {case.family} {case.name}", words, files)


# ---------------------------------------------------------------------------------------------- one script


class Unfit(Exception):  # noqa: N818 - it is no error
    """The command line does not run a script, or asks for another process."""


def asked(item: Item) -> tuple[Script, CompileOptions, RunOptions]:
    """The script and the options of a command line; its files are written to the working directory.

    Raises:
        Unfit: it does not run a script.
    """
    for name, text in item.files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    line = command_line.read(list(item.words), request.find)
    request.complete(line)
    if any(line.flag(name) for name in ("list", "info", "examples", "tools", "show_script")) or line.usage:
        raise Unfit
    options = request.run_options(line)
    script = request.script(line)
    options = request.of_script(options, script, line)
    if script.compiled is not None or script.wants_help or options.mode in ("format", "codegen", "compiler-bench"):
        raise Unfit
    return script, request.compile_options(line, options, script), options


def told(diagnostics: Diagnostics) -> str:
    """The errors of a script, each with its hints."""
    return "\n".join("; ".join((item.message, *item.hints)) for item in diagnostics.errors)


def compiled(item: Item, kernel: Callable[[RunOptions], LiveKernel]) -> Result | CompiledScript:
    """A command line's script, or why it is not compiled."""
    diagnostics = Diagnostics()
    try:
        script, compile_options, options = asked(item)
        return pipeline.compile_script(script.source, compile_options, kernel(options), diagnostics)
    except Unfit:
        return Result(item.name, "skipped", "runs no script")
    except ScriptError:
        return Result(item.name, "lacks", told(diagnostics))
    except TraceError as error:
        return Result(item.name, "lacks", "; ".join((error.message, *error.hints)))


def _parallel(folder: Path, work: Callable[[Item], None]) -> None:
    """Do *work* for each item that has no result in *folder* in a child process, two at a time."""
    under_way: set[int] = set()
    for item in items():
        if (folder / f"{_file(item)}.result").exists():
            continue
        while len(under_way) >= 2:
            under_way.discard(os.wait()[0])
        child = os.fork()
        if child == 0:
            _in_own_folder(lambda item=item: work(item))  # type: ignore[misc]
        under_way.add(child)
    while under_way:
        under_way.discard(os.wait()[0])


def _in_own_folder(work: Callable[[], None]) -> NoReturn:
    try:
        with TemporaryDirectory() as folder:
            os.chdir(folder)
            work()
            os.chdir("/")
    except BaseException:  # noqa: BLE001 - the child must not run on as a second parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


# ---------------------------------------------------------------------------------------------- this kernel


def here(folder: Path) -> None:
    """Compile and load everything on this kernel; results go to files in *folder*."""

    def one(item: Item) -> None:
        result = compiled(item, live_kernel)
        if isinstance(result, CompiledScript):
            result = load(item.name, result)
        write(folder / f"{_file(item)}.result", msgspec.json.encode(result))

    (folder / "kernel").write_text(os.uname().release)
    _parallel(folder, one)


def _file(item: Item) -> str:
    return re.sub(r"[^\w.-]", "_", item.name)


# ---------------------------------------------------------------------------------------------- another kernel


def outside(folder: Path, modules: str) -> None:
    """Compile everything with the facts that :mod:`tests.support.corpus_guest` hands out."""
    while not (folder / "facts").exists():
        time.sleep(0.1)
    facts = Path((folder / "facts").read_text())
    compile_host._unpacked(facts)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")

    def one(item: Item) -> None:
        work = os.getcwd()
        compile_host.enter(facts, modules)
        os.chdir(work)
        try:
            result = compiled(item, lambda options: compile_host.GuestKernel(disabled=options.no_features))
        except compile_host.OnlyTheGuestKnows:
            result = Result(item.name, "skipped", "asks for what only the machine itself knows")
        if isinstance(result, Result):
            write(folder / f"{_file(item)}.result", msgspec.json.encode(result))
        else:
            write(folder / f"{_file(item)}.script", result.to_bytes())

    try:
        _parallel(folder, one)
    finally:
        (folder / "compiled").touch()


# ---------------------------------------------------------------------------------------------- results


def again(folder: Path) -> None:
    """Remove the results of scripts that were not verified, and what an earlier run left."""
    for path in folder.glob("*.result"):
        if msgspec.json.decode(path.read_bytes(), type=Result).outcome != "verified":
            path.unlink()
    for name in ("facts", "compiled"):
        (folder / name).unlink(missing_ok=True)


def results(folder: Path) -> dict[str, Result]:
    """The results in a folder, by the names of items; what has none was lost."""
    found = {}
    for item in items():
        path = folder / f"{_file(item)}.result"
        read = msgspec.json.decode(path.read_bytes(), type=Result) if path.exists() else None
        found[item.name] = read or Result(item.name, "refused", "no result")
    return found


def summary(folder: Path) -> str:
    """Numbers of a run, and each message with the number of scripts that it is about."""
    found = results(folder)
    numbers = Counter(result.outcome for result in found.values())
    lines = [f"{(folder / 'kernel').read_text()}: {len(found)} scripts, {dict(numbers)}"]
    for outcome in ("lacks", "refused", "skipped"):
        messages = Counter(result.message for result in found.values() if result.outcome == outcome)
        names = {result.message: name for name, result in found.items() if result.outcome == outcome}
        lines += [f"  {outcome} {count}: {message} [{names[message]}]" for message, count in messages.most_common()]
    return "\n".join(lines) + "\n"


PAGE = ROOT / "docs" / "operate" / "kernels.md"
_BEGIN, _END = "<!-- corpus: written by scripts/verify-corpus -->\n", "<!-- end of the corpus -->\n"


def write_table(folder: Path) -> None:
    """Write the row of the kernel whose results *folder* has into the table of ``docs/operate/kernels.md``."""
    found = [result for result in results(folder).values() if result.outcome != "skipped"]
    numbers = Counter("none" if result.message == "no result" else result.outcome for result in found)
    release = (folder / "kernel").read_text()
    values = (release, len(found), *(numbers[name] for name in ("verified", "lacks", "refused", "none")))
    row = f"| {' | '.join(map(str, values))} |"
    before, rest = PAGE.read_text().split(_BEGIN)
    table, after = rest.split(_END)
    head, rows = table.splitlines()[:2], table.splitlines()[2:]
    rows = [line for line in rows if line.split(" | ")[0] != f"| {release}"]
    rows = sorted([*rows, row], key=lambda line: [int(part) for part in re.findall(r"\d+", line)[:2]])
    PAGE.write_text(before + _BEGIN + "\n".join([*head, *rows]) + "\n" + _END + after)


if __name__ == "__main__":
    for name in own_modules():  # once, for all children
        importlib.import_module(name)
    gc.freeze()
    _, mode, place, *rest = sys.argv
    folder = Path(place)
    if mode == "summary":
        sys.stdout.write(summary(folder))
    elif mode == "outside":
        outside(folder, *rest)
    else:
        {"here": here, "again": again, "table": write_table}[mode](folder)
