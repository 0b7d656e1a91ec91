"""``pytrace calls``: records the calls of processes, and prints each, or a summary, or writes them as spans."""

from __future__ import annotations

import errno
import fnmatch
import heapq
import io
import os
import struct
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TextIO

import msgspec
from msgspec.structs import replace

from pytrace.base import kernel_files, whole_files
from pytrace.base.interruption import interruptions
from pytrace.calls import capture, functions
from pytrace.calls.capture import Exit, Item, Signal, SystemCalls, Taken, Values
from pytrace.calls.descriptors import Descriptors
from pytrace.calls.function_values import GO_REGISTERS, REGISTERS, Value, failed
from pytrace.calls.function_values import Texts as FunctionTexts
from pytrace.calls.functions import FunctionProbes
from pytrace.calls.signatures import call_names
from pytrace.calls.tree import FunctionCall, Shown, Step, Tree
from pytrace.calls.values import Recorded, Texts, signal_name, signed, socket_address
from pytrace.core import system_calls
from pytrace.core.diagnostics import TraceError, similar
from pytrace.core.failures import LEAST_AGE, UNTRACED_CHILDREN, UnderWay
from pytrace.core.types import Struct
from pytrace.interface import tracing
from pytrace.interface.errors import LossWarning, TraceWarning
from pytrace.render.histogram import Histogram
from pytrace.render.json import document
from pytrace.runtime.binaries import go_binaries
from pytrace.runtime.binaries.elf_file import ElfFile

if TYPE_CHECKING:
    from pytrace.calls.spans import Spans
    from pytrace.live.answer_view import AnswerView
    from pytrace.results.snapshot import SnapshotData


_MOST_TYPES = 4096
"""Types of Go whose names are remembered."""
_MOST_SHOWN = 200
"""Calls under way that a live view shows, the oldest."""
_LONGEST_SHOWN = 200
"""Characters of them."""


class Options(msgspec.Struct, kw_only=True):
    """What ``pytrace calls`` was asked for; times are in nanoseconds."""

    targets: tuple[str, ...] = ("syscall:*",)
    pids: tuple[int, ...] = ()
    command: tuple[str, ...] = ()
    follow: bool = False
    slow: int = 0
    depth: int | None = None
    """How deep calls of functions are shown."""
    failed: bool = False
    summary: bool = False
    longest: int = 32
    stamp: str = ""
    """Empty, ``time`` (of the day) or ``relative`` (since the first call)."""
    names: bool = True
    """Descriptors are shown with their files."""
    format: str = "text"
    output: str | None = None
    duration: float | None = None


def run_calls(options: Options, confine_view: Callable[[], None] | None = None) -> int:
    """Record and print. Returns the exit status.

    Args:
        options: what to record.
        confine_view: confines the process of a live view, which has the terminal; without it there is none.

    Raises:
        TraceError: a target names nothing, a process does not exist, or the kernel refuses.
    """
    for pid in options.pids:
        if not os.path.exists(f"/proc/{pid}"):
            raise TraceError(f"there is no process {pid}", hints=("ps -e lists processes and their ids",))
    if not options.pids and not options.command:
        raise TraceError(
            "pytrace calls needs a process or a command",
            hints=("pytrace calls -p PID, or pytrace calls -c 'COMMAND'",),
        )
    machine = os.uname().machine
    chosen = selected([target for target in options.targets if not functions.is_function(target)], machine)
    wanted = [target for target in options.targets if functions.is_function(target)]
    found: list[functions.Function] = []
    if wanted:
        if machine not in REGISTERS:
            raise TraceError(f"pytrace calls traces functions on {' and '.join(REGISTERS)} only")
        selection = functions.Selection(machine, options.longest, options.command, options.pids)
        found = selection.functions(wanted)
        for name, others in sorted(selection.others.items()):
            if named := ", ".join(sorted(other for other in others if not other.startswith("_"))):
                sys.stderr.write(f"WARNING: {name} is shown for {named}, too: they are one function here\n")
    if options.output in (None, "-"):
        return _Run(options, machine, chosen, found).go(sys.stdout, confine_view)
    with whole_files.replacing(options.output) as file:
        return _Run(options, machine, chosen, found).go(_text_file(file.fileno()), confine_view)


def _text_file(descriptor: int) -> TextIO:
    return open(os.dup(descriptor), "w", encoding="utf-8", errors="surrogateescape")


def selected(targets: Sequence[str], machine: str) -> frozenset[int]:
    """The numbers of the system calls that patterns such as ``syscall:open*`` name.

    Raises:
        TraceError: a pattern names none.
    """
    names = call_names(machine)
    found: set[int] = set()
    for target in targets:
        kind, _, patterns = target.rpartition(":")
        if kind not in ("", "syscall"):
            raise TraceError(f"{target!r} is no system call", hints=("as 'syscall:open*'",))
        for pattern in patterns.split(","):
            matching = {number for number, name in names.items() if fnmatch.fnmatchcase(name, pattern)}
            if not matching:
                near = similar(pattern.strip("*"), sorted(names.values()))
                hint = f"names like it: {', '.join(near)}" if near else "'syscall:*' is all of them"
                raise TraceError(f"no system call is named {pattern!r}", hints=(hint,))
            found |= matching
    return frozenset(found)


class _Run:
    """A run of ``pytrace calls``."""

    def __init__(
        self, options: Options, machine: str, chosen: frozenset[int], wanted: Sequence[functions.Function]
    ) -> None:
        self._options, self._machine, self._chosen = options, machine, chosen
        self._names = call_names(machine)
        only_command = bool(options.command) and not options.follow
        calls = SystemCalls(chosen, machine, options.longest, only_command=only_command)
        self._recorder = calls.recorder()
        self._descriptors = Descriptors()
        self._texts = Texts(machine, options.longest, self._descriptors if options.names else None)
        self._functions = {function.point: function for function in wanted}
        self._functions |= {function.name: function for function in wanted if function.python}
        words = len(REGISTERS.get(machine, ()))
        self._tree = Tree(self._functions, words, options.depth) if wanted else None
        self._function_texts = FunctionTexts(REGISTERS.get(machine, ()), options.longest)
        self._go_texts = FunctionTexts(GO_REGISTERS, options.longest)
        self._types: dict[tuple[str, int], str] = {}
        """Names of types of Go that interfaces had."""
        self._command_runs = not options.command or any(function.python for function in wanted)
        probes = FunctionProbes(
            wanted, machine, only_command=only_command, starts=not self._command_runs, slow=options.slow,
            failed=options.failed,
        )  # fmt: skip
        self._script = self._written(calls, probes)
        self._stop = False
        self._first: int | None = None
        self._offset = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._with_thread = options.follow or len(options.pids) > 1 or any(map(_threads, options.pids))
        self._spans: Spans | None = None
        if options.format in ("perfetto", "firefox", "html"):
            from pytrace.calls.spans import Spans  # with it what writes snapshots

            self._spans = Spans(" ".join(options.command) or ", ".join(map(str, options.pids)))

    def _written(self, calls: SystemCalls, probes: FunctionProbes) -> str:
        options = self._options
        if options.summary:
            counts = [calls.summary_script(slow=options.slow, failed=options.failed)] if self._chosen else []
            settings = f"print_maps_on_exit = 0; missing_probes = warn; {probes.settings}"
            return "\n".join((f"config = {{ {settings} }}", *counts, *probes.summary()))
        settings = calls.settings + (f"; {probes.settings}" if self._functions else "")
        return "\n".join((f"config = {{ {settings} }}", calls.script(), *probes.events()))

    def go(self, out: TextIO, confine_view: Callable[[], None] | None) -> int:
        """Trace to the end, and write to *out*, or while a live view has the terminal to its log."""
        self._out = out
        with ExitStack() as stack, interruptions(self._ended), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("ignore", TraceWarning)
            view = None
            if confine_view is not None:
                view = self._view(confine_view, stack)
                if out is sys.stdout:
                    self._out = io.StringIO()
            with nullcontext() if view is None else view.streams.redirected():
                trace = stack.enter_context(self._opened(list(self._options.command) or None))
            # Of the run itself; losses, children and calls that never return have lines of their own.
            warnings.simplefilter("always", TraceWarning)
            warnings.simplefilter("ignore", LossWarning)
            status = self._traced(trace, view, out)
            others = (UNTRACED_CHILDREN, *(calls.warning for calls in trace.calls if calls.warning))
            texts = dict.fromkeys(str(item.message) for item in told if issubclass(item.category, TraceWarning))
            for text in (text for text in texts if not text.startswith(others)):
                sys.stderr.write(f"WARNING: {text.replace('follow=True', '--follow')}\n")
            return status

    def _ended(self) -> None:
        self._stop = True
        trace = getattr(self, "_trace", None)
        if trace is not None:
            trace.request_end()

    def _traced(self, trace: tracing.Trace, view: AnswerView | None, out: TextIO) -> int:
        self._trace = trace
        # Such as functions of a pattern that cannot be probed.
        sys.stderr.writelines(f"WARNING: {text}\n" for text in trace.warnings)
        self._seed(trace.child_pid)
        if self._stop:
            trace.request_end()
        if view is not None:
            view.begin()
        while True:
            events = trace.batch(0.2)
            for event in events:
                self._event(event.values)
            if self._tree is not None and not events and self._options.format == "text":
                self._steps(self._tree.waiting())
            if view is not None:
                self._show(view)
                if view.over:
                    trace.request_end()
            self._out.flush()
            if not events and trace.ended:
                break
        if view is not None:
            view.close()
            self._out = out
            if view.error:
                sys.stderr.write(f"ERROR: the live view failed ({view.error}), so the run was ended\n")
        for item in self._recorder.rest():
            self._take(item)
        self._at_end(trace)
        self._out.flush()
        return trace.exit_code

    # ---- the live view

    def _view(self, confine: Callable[[], None], stack: ExitStack) -> AnswerView:
        from pytrace.live.answer_view import AnswerView  # with --live

        options = self._options
        target = " ".join(options.command) or ", ".join(map(str, options.pids))
        return AnswerView(
            f"calls of {target}: {' '.join(options.targets)}", self._snapshot, lambda data: replace(data, maps={}),
            self._seen, confine, stack, self._under_way,
        )  # fmt: skip

    def _snapshot(self) -> SnapshotData:
        data = self._trace.snapshot().data
        # The view has a title of its own for what has no name.
        return replace(data, runs=tuple(replace(run, script="-e") for run in data.runs))

    def _show(self, view: AnswerView) -> None:
        """Send the view what is new."""
        if isinstance(self._out, io.StringIO) and (text := self._out.getvalue()):
            view.log(text.encode("utf-8", "surrogateescape"))
            self._out.seek(0)
            self._out.truncate()
        view.work()

    def _seen(self) -> str:
        """How many calls have returned."""
        return f"{self._recorder.calls + (0 if self._tree is None else self._tree.returned):,} calls returned"

    def _under_way(self) -> tuple[tuple[UnderWay, ...], int]:
        """The oldest calls that have not returned for a while; and how many others there are."""
        now, total = time.clock_gettime_ns(time.CLOCK_BOOTTIME), 0
        threads: dict[int, kernel_files.Thread | None] = {}
        depths: dict[int, int] = {}
        found: list[UnderWay] = []

        def add(start: int, tid: int, thread: str, text: str, depth: int) -> None:
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
            found.append(UnderWay(max(now - start, 0), tid, thread, shown, depth))

        if self._tree is not None:
            calls = [call for call in self._tree.rest() if now - call.start >= LEAST_AGE]
            total += len(calls)
            for call in calls[:_MOST_SHOWN]:
                text = f"{call.function.name}({', '.join(self._function_arguments(call))})"
                if call.function.go:
                    add(call.start, call.pid, f"goroutine {call.tid}", text, call.depth)
                    continue
                if call.tid not in threads:
                    threads[call.tid] = kernel_files.thread(call.tid)
                thread = threads[call.tid]
                if thread is not None and not thread.has_left(call.place):
                    add(call.start, call.tid, thread.name, text, call.depth)
                    depths[call.tid] = call.depth + 1
        if self._chosen:
            items = self._trace.maps["@calls"].items()
            entries = {tid: values for tid, values in items if now - values[0] >= LEAST_AGE}
            total += len(entries)
            oldest = heapq.nsmallest(_MOST_SHOWN, entries.items(), key=lambda item: item[1][0])
            unreadable = self._texts.unreadable
            for recorded in self._recorder.under_way(dict(oldest)):
                name, tid = self._name(recorded.number), recorded.tid
                text = f"{name}({', '.join(self._texts.arguments(recorded))})"
                add(recorded.start, tid, kernel_files.process_name(tid), text, depths.get(tid, 0))
            self._texts.unreadable = unreadable  # they are counted when the call returns
        found.sort(key=lambda call: -call.age)
        return tuple(found[:_MOST_SHOWN]), max(0, total - len(found[:_MOST_SHOWN]))

    def _at_end(self, trace: tracing.Trace) -> None:
        """Show what has not returned, tell what was lost, write what was kept."""
        if self._options.summary:
            self._summary(trace)
            sys.stderr.writelines(f"WARNING: {calls.warning}\n" for calls in trace.calls if calls.warning)
            self._report_children(trace)
            return
        # Probes are detached by now: nothing is known of what came after.
        end = trace.snapshot().data.end - self._offset
        if self._chosen:
            self._unfinished(trace.maps["@calls"], end)
            self._report(trace)
        if self._tree is not None:
            self._unfinished_functions(self._tree, end)
            self._report_functions(self._tree, trace)
        if self._spans is not None:
            self._spans.write(self._options.format, self._out.buffer, self._losses(trace))
        self._report_children(trace)

    def _report_children(self, trace: tracing.Trace) -> None:
        if trace.child_had_children and not self._options.follow:
            sys.stderr.write(f"{UNTRACED_CHILDREN}: --follow traces them, too\n")

    def _opened(self, command: list[str] | None) -> tracing.Trace:
        options = self._options
        return tracing.open(
            self._script, command=command, pids=options.pids, follow=options.follow, duration=options.duration,
            own_threads=False,
        )

    def _seed(self, child: int | None) -> None:
        """Names of the descriptors that a command inherits, or that processes have."""
        for pid in (*self._options.pids, *(() if child is None else (child,))):
            folder = f"/proc/{'self' if pid == child else pid}/fd"
            try:
                numbers = [int(name) for name in os.listdir(folder)]
            except OSError:
                continue
            for number in numbers:
                if pid == child and number > 2:
                    continue
                try:
                    self._descriptors.opened(pid, number, os.readlink(f"{folder}/{number}"))
                except OSError:
                    continue
            if pid == child:
                self._descriptors.moved(pid, os.getcwd())

    # ---- items

    def _event(self, values: Values) -> None:
        if self._tree is not None and values[0] >= functions.ENTER:
            self._function_event(self._tree, values)
        else:
            for item in self._recorder.add(values):
                self._take(item)

    def _take(self, item: Item) -> None:
        if isinstance(item, Recorded):
            self._call(item)
        elif isinstance(item, Signal):
            self._line(item.tid, item.pid, item.time, f"--- {signal_name(item.number)} ---")
        elif isinstance(item, Exit):
            status = item.status
            if self._tree is not None:
                self._tree.moment = item.time
                self._steps(self._tree.ended(item.tid))
            superseded = status & capture.SUPERSEDED
            text = f"+++ exited with {status >> 8 & 0xFF} +++"
            if superseded:
                text = f"+++ superseded by execve in {status - capture.SUPERSEDED} +++"
            elif status & 0x7F:
                text = f"+++ killed by {signal_name(status & 0x7F)}{' (core dumped)' * bool(status & 0x80)} +++"
            self._line(item.tid, item.pid, item.time, text)
            if item.tid == item.pid and not superseded:
                self._descriptors.ended(item.pid)
        elif isinstance(item, Taken):
            self._line(item.old, item.pid, item.time, f"+++ continues as {item.tid}: it executes a program +++")

    def _call(self, call: Recorded) -> None:
        options = self._options
        self._made(call)
        wanted = not options.slow or call.duration >= options.slow
        if options.failed:
            wanted = wanted and -4096 < call.result < 0 and call.finished
        if wanted:
            self._print(call)
        self._changed(call)

    def _name(self, number: int) -> str:
        """The name of a call; those of 32-bit programs, which have numbers of their own, are -1 and below."""
        if number < 0:
            return f"32-bit:{system_calls.compat_names().get(-1 - number, -1 - number)}"
        return self._names.get(number, f"syscall_{number:#x}")

    def _print(self, call: Recorded) -> None:
        arguments = self._texts.arguments(call)
        result = self._texts.result(call)
        name = self._name(call.number)
        depth: int | None = 0
        if self._tree is not None:
            steps, depth = self._tree.inside(call.tid)
            self._steps(steps)
            if depth is None:
                return
        if self._spans is not None:
            self._spans.add(
                call.start + self._offset, call.duration, call.pid, call.tid, name, ", ".join(arguments), result,
                depth or 0,
            )  # fmt: skip
            if name == "execve" and call.result == 0 and arguments:
                self._spans.executed(call.tid, arguments[0].strip('"'))
            return
        if self._options.format == "json":
            row = {
                "time": call.start + self._offset, "pid": call.pid, "tid": call.tid, "call": name, "args": arguments,
                "result": call.result if call.finished else None, "text": result, "duration_ns": call.duration,
            }
            if self._tree is not None:
                row["depth"] = depth
            self._out.write(document(row, indent=None) + "\n")
            return
        head = f"{'  ' * (depth or 0)}{name}({', '.join(arguments)})"
        took = f" <{call.duration / 1e9:.6f}>" if call.finished else ""
        self._line(call.tid, call.pid, call.start, f"{head:<39} = {result}{took}")

    # ---- calls of functions

    def _function_event(self, tree: Tree, values: Sequence[int | str | bytes]) -> None:
        if values[0] == functions.EXEC:
            self._command_runs = True
            tree.moment = int(values[1])
            self._steps(tree.executed(int(values[3])))
        elif not self._command_runs:
            # Before the command begins, its process runs code of pytrace.
            tree.returned += values[0] == functions.LEAVE
        else:
            if self._spans is not None:
                self._spans.met(int(values[2]))
            self._steps(tree.take(values))

    def _steps(self, steps: Iterable[Step]) -> None:
        for shown, call in steps:
            # Of functions of Go, programs send only those that failed.
            decided = call.function.go or not self._options.failed or shown is not Shown.WHOLE
            if decided or call.function.failed(call.result):
                self._function(shown, call)

    def _function(self, shown: Shown, call: FunctionCall) -> None:
        arguments = self._function_arguments(call) if call.known else ["<lost>"]
        returned = shown in (Shown.WHOLE, Shown.END)
        result = "<left without a return>"
        if returned:
            result = self._result_text(call)
        took = call.duration
        if self._tree is not None and took is None:
            took = max(0, self._tree.moment - call.start)
        if shown is Shown.LEFT and call.duration is not None:
            result = "<unfinished>"
        if self._spans is not None:
            if shown is not Shown.HEAD:
                self._spans.add(
                    call.start + self._offset, took or 0, call.pid, call.tid, call.function.name, ", ".join(arguments),
                    result, call.depth,
                )  # fmt: skip
            return
        if self._options.format == "json":
            if shown is not Shown.HEAD:
                self._out.write(document(self._row(call, arguments, result, returned), indent=None) + "\n")
            return
        indent = "  " * call.depth
        head = f"{indent}{call.function.name}({', '.join(arguments)})"
        equals = f" = {result}" if result else ""
        time_ = f" <{(took or 0) / 1e9:.6f}>"
        if shown is Shown.HEAD:
            text = f"{head} {{"
        elif shown is Shown.LEFT:
            age = f" <unfinished, for {(took or 0) / 1e9:.3f} s>" if call.duration is not None else f" {result}"
            closes = call.opened and call.duration is None
            text = f"{indent}}} /* {call.function.name} */{age}" if closes else head + age
        elif shown is Shown.END:
            text = f"{indent}}}{equals}{time_} /* {call.function.name} */"
        else:
            text = f"{head:<39}{equals}{time_}" if equals else f"{head}{time_}"
        self._line(call.tid, call.pid, call.start, text)

    def _row(self, call: FunctionCall, arguments: list[str], result: str, returned: bool) -> dict[str, object]:
        known = call.function.arguments
        row: dict[str, object] = {
            "time": call.start + self._offset, "pid": call.pid, "tid": call.tid, "call": call.function.name,
            "binary": call.function.binary, "args": arguments,
        }  # fmt: skip
        if known is not None and call.known and any(value.name for value in known):
            texts = [text.removeprefix(f"{value.name}=") for value, text in zip(known, arguments, strict=False)]
            row["named"] = {value.name: text for value, text in zip(known, texts, strict=False)}
        row |= {"result": call.result if returned else None, "text": result, "duration_ns": call.duration}
        return row if self._options.slow or self._options.failed else row | {"depth": call.depth}

    def _function_arguments(self, call: FunctionCall) -> list[str]:
        known = call.function.arguments
        if known is None:
            return [unknown_number(word) for word in call.words[:3]] if not call.function.python else []
        texts, at = [], 0
        for value in known:
            reads = call.reads[at : at + len(value.reads)]
            at += len(value.reads)
            text = self._value_text(call.function, value, call.words, reads)
            texts.append(f"{value.name}={text}" if value.name else text)
        return texts

    def _value_text(
        self, function: functions.Function, value: Value, words: Sequence[int], reads: Sequence[int | str | bytes]
    ) -> str:
        if not function.go:
            return self._function_texts.text(value, words, reads)
        if value.form == "interface" and reads[0] and (name := self._type_name(function.binary, value, int(reads[0]))):
            return name
        return self._go_texts.text(value, words, reads)

    def _go_results(self, call: FunctionCall) -> str:
        further = len(call.function.registers)
        words = [call.result, *(int(word) for word in call.result_reads[:further])]
        texts, at = [], further
        for value in call.function.results:
            text = self._value_text(call.function, value, words, call.result_reads[at : at + len(value.reads)])
            texts.append(f"{value.name}={text}" if value.name else text)
            at += len(value.reads)
        return texts[0] if len(texts) == 1 else f"({', '.join(texts)})" if texts else ""

    def _type_name(self, path: str, value: Value, word: int) -> str:
        """The type of what an interface holds; empty where the file does not say it."""
        key = (path, word)
        if key not in self._types:
            if len(self._types) >= _MOST_TYPES:
                return ""
            try:
                with ElfFile.open(path) as file:
                    table = isinstance(value.type, Struct) and value.type.name == "runtime.iface"
                    self._types[key] = go_binaries.type_name(file, word, table=table)
            except (OSError, TraceError):
                self._types[key] = ""
        return self._types[key]

    def _result_text(self, call: FunctionCall) -> str:
        function = call.function
        if function.go and function.arguments is not None:
            return self._go_results(call)
        if function.python and not call.result:
            return "<exception>"
        if function.result is None:
            return unknown_number(call.result)
        return self._function_texts.text(function.result, [call.result], call.result_reads)

    def _unfinished_functions(self, tree: Tree, end: int) -> None:
        if self._options.failed:
            return
        for call in tree.rest():
            thread = None if call.function.go else kernel_files.thread(call.tid)
            if thread is None or not thread.has_left(call.place):
                call.duration = max(0, end - call.start)
            if call.duration is None or call.duration >= self._options.slow:
                self._function(Shown.LEFT, call)

    def _report_functions(self, tree: Tree, trace: tracing.Trace) -> None:
        missing, returned = _missing(trace, "@left", tree.returned)
        if missing:
            sys.stderr.write(
                f"WARNING: {missing} returns of functions are missing ({missing * 100 / returned:.1f}% of {returned}): "
                "they came faster than they were printed\nHINT: choose functions, or --summary\n"
            )
        if tree.unknown and not self._options.slow and not self._options.failed:
            sys.stderr.write(f"WARNING: of {tree.unknown} calls of functions the arguments are missing: <lost>\n")
        if tree.too_deep:
            sys.stderr.write(f"WARNING: {tree.too_deep} calls were nested too deeply to be shown\n")

    def _losses(self, trace: tracing.Trace) -> dict[str, dict[str, int]]:
        """What spans lack, for the formats that say so."""
        assert self._spans is not None
        losses: dict[str, dict[str, int]] = {}
        if self._tree is not None:
            missing, _ = _missing(trace, "@left", self._tree.returned)
            losses |= {"calls of functions": {"": missing}} if missing else {}
        if self._chosen:
            missing, _ = _missing(trace, "@returned", self._recorder.calls)
            losses |= {"system calls": {"": missing}} if missing else {}
        if self._spans.dropped:
            losses["calls after those that are shown"] = {"": self._spans.dropped}
            sys.stderr.write(f"WARNING: the last {self._spans.dropped} calls are not in the file, which was full\n")
        return losses

    def _line(self, tid: int, pid: int, moment: int, text: str) -> None:
        if self._options.format != "text":
            return
        parts = []
        if self._with_thread or tid != pid:
            parts.append(f"[{tid}]")
        if self._options.stamp == "time":
            nanoseconds = moment + self._offset
            clock = time.strftime("%H:%M:%S", time.localtime(nanoseconds // 10**9))
            parts.append(f"{clock}.{nanoseconds // 1000 % 10**6:06d}")
        elif self._options.stamp == "relative":
            self._first = moment if self._first is None else self._first
            parts.append(f"{(moment - self._first) / 1e9:11.6f}")
        self._out.write(" ".join([*parts, text]) + "\n")

    def _unfinished(self, entries: Mapping[object, object], end: int) -> None:
        for call in self._recorder.under_way(dict(entries.items())):
            if self._spans is not None or self._options.failed:
                continue
            arguments, age = self._texts.arguments(call), max(0, end - call.start)
            name = self._name(call.number)
            if self._options.format == "json":
                row = {
                    "time": call.start + self._offset, "pid": call.pid, "tid": call.tid, "call": name,
                    "args": arguments, "result": None, "text": "<unfinished>", "duration_ns": age,
                }
                self._out.write(document(row, indent=None) + "\n")
                continue
            text = f"{name}({', '.join(arguments)} <unfinished, for {age / 1e9:.3f} s>"
            self._line(call.tid, call.pid, call.start, text)

    # ---- descriptors

    def _made(self, call: Recorded) -> None:
        """Keep the name of a descriptor that a call has made."""
        row = call.signature
        if row is None or not call.finished or call.result < 0:
            return
        pid, known = call.pid, self._descriptors
        closing = row.name in ("pidfd_open", "pidfd_getfd")
        if row.name in _CLOSING:
            given = dict(zip(row.names, call.arguments, strict=False))
            closing = bool(given.get("type", given.get("flags", 0)) & _CLOEXEC.get(row.name, 0x80000))
        if row.name == "openat2":
            closing = bool(int.from_bytes(call.before.get(2, b"")[:8], "little") & 0x80000)
        if row.name in ("pipe", "pipe2", "socketpair"):
            data = call.after.get(3 if row.name == "socketpair" else 0, b"")
            for number in struct.unpack("=ii", data[:8]) if len(data) >= 8 else ():
                known.opened(pid, number, "socket:UNIX" if row.name == "socketpair" else "pipe", closing=closing)
        elif row.result == "fd" or (row.name == "fcntl" and call.arguments[1] in (_F_DUPFD, _F_DUPFD_CLOEXEC)):
            name = self._name_of_made(call)
            known.closed(pid, call.result)
            if name is not None:
                known.opened(pid, call.result, name, closing=closing or call.arguments[1] == _F_DUPFD_CLOEXEC)

    def _name_of_made(self, call: Recorded) -> str | None:
        """The name of the descriptor that a call has made."""
        assert call.signature is not None
        name, arguments, pid = call.signature.name, call.arguments, call.pid
        if name in _ANONYMOUS:
            return f"anon_inode:{_ANONYMOUS[name]}"
        if name in ("open", "creat", "openat", "openat2"):
            index = 0 if name in ("open", "creat") else 1
            path = os.fsdecode(call.before.get(index, b""))
            folder = None if index == 0 or signed(arguments[0]) == AT_FDCWD else signed(arguments[0])
            return self._descriptors.path(pid, folder, path) if path else None
        if name in ("dup", "dup2", "dup3", "fcntl"):
            return self._descriptors.name(pid, signed(arguments[0]))
        if name == "memfd_create":
            return f"/memfd:{os.fsdecode(call.before.get(0, b''))}"
        if name == "socket":
            return f"socket:{_socket_kind(arguments)}"
        if name in ("accept", "accept4"):
            data, size = call.after.get(1, b""), call.after.get(2)
            length = struct.unpack("=i", size[:4])[0] if size else 0
            return f"socket:{_peer(data[:length])}" if length > 2 else "socket"
        return None

    def _changed(self, call: Recorded) -> None:
        """Keep what a call has changed about descriptors, after it was shown."""
        row = call.signature
        if row is None or not call.finished:
            return
        arguments, pid, known = call.arguments, call.pid, self._descriptors
        if row.name == "connect" and call.result in (0, -errno.EINPROGRESS):
            known.opened(pid, signed(arguments[0]), f"socket:{_peer(call.before.get(1, b''))}")
        elif call.result < 0:
            return
        elif row.name == "close":
            known.closed(pid, signed(arguments[0]))
        elif row.name == "close_range" and not arguments[2] & _CLOSE_RANGE_CLOEXEC:
            known.closed_range(pid, arguments[0] & 0xFFFFFFFF, arguments[1] & 0xFFFFFFFF)
        elif row.name == "fcntl" and arguments[1] == _F_SETFD:
            known.close_on_exec(pid, signed(arguments[0]), closing=bool(arguments[2] & 1))
        elif row.name == "chdir":
            path = os.fsdecode(call.before.get(0, b""))
            known.moved(pid, known.path(pid, None, path) if path else None)
        elif row.name == "fchdir":
            known.moved(pid, known.name(pid, signed(arguments[0])))
        elif row.name in ("execve", "execveat"):
            known.executed(pid)

    # ---- the end

    def _summary(self, trace: tracing.Trace) -> None:
        """The table of what the kernel has counted."""
        rows: list[tuple[int, int, int, int, str]] = []
        if self._chosen:
            totals, times, errors = (dict(trace.maps[name].items()) for name in ("@total", "@times", "@errors"))
            for number, total in totals.items():
                times_of_call = times[number]
                assert isinstance(times_of_call, Histogram)
                name = self._name(number)
                rows.append((total, times_of_call.count, errors.get(number, 0), _p99(times_of_call, total), name))
        if self._tree is not None:
            rows += self._summary_of_functions(trace)
        rows.sort(reverse=True)
        whole = sum(row[0] for row in rows)
        if self._options.format == "json":
            for total, count, failed, worst, name in rows:
                row = {"call": name, "calls": count, "errors": failed, "total_ns": total, "p99_ns": worst}
                self._out.write(document(row, indent=None) + "\n")
            return
        self._out.write("  %TIME   TOTAL(ms)    CALLS   ERRORS   AVG(us)    P99(us) CALL\n")
        for total, count, failed, worst, name in rows:
            self._out.write(
                f"{total * 100 / max(whole, 1):7.2f} {total / 1e6:11.3f} {count:8d} {failed or '':8} "
                f"{total / count / 1e3:9.1f} {worst / 1e3:10.1f} {name}\n"
            )
        count, failed = sum(row[1] for row in rows), sum(row[2] for row in rows)
        self._out.write(f"{100.0:7.2f} {whole / 1e6:11.3f} {count:8d} {failed or '':8} {'':9} {'':10} total\n")

    def _summary_of_functions(self, trace: tracing.Trace) -> list[tuple[int, int, int, int, str]]:
        """Total, calls, failures, the 99th percentile and the name of each function."""
        totals, times, results = (dict(trace.maps[name].items()) for name in ("@ftotal", "@ftimes", "@fresults"))
        whole: Counter[str] = Counter()
        times_of: dict[str, Histogram] = {}
        failures: Counter[str] = Counter()
        for (probe, kind), total in totals.items():
            function = self._functions.get(probe)
            fails = partial(failed, None) if function is None else function.failed
            if self._options.failed and not fails(_RESULTS[kind]):
                continue
            found, known = times[probe, kind], times_of.get(probe)
            assert isinstance(found, Histogram)
            counts = Counter(found.counts) + Counter({} if known is None else known.counts)
            whole[probe], times_of[probe] = whole[probe] + total, Histogram(found.kind, counts)
            of_probe = ((result, count) for (of, result), count in results.items() if of == probe)
            failures[probe] = sum(count for result, count in of_probe if fails(_RESULTS[result]))
        return [
            (whole[probe], found.count, failures[probe], _p99(found, whole[probe]),
             self._functions[probe].name if probe in self._functions else probe)
            for probe, found in times_of.items()
        ]  # fmt: skip

    def _report(self, trace: tracing.Trace) -> None:
        missing, returned = _missing(trace, "@returned", self._recorder.calls)
        if missing:
            sys.stderr.write(
                f"WARNING: {missing} of {returned} calls are missing ({missing * 100 / returned:.1f}%): they came "
                "faster than they were printed\nHINT: choose calls ('syscall:open*'), or --summary\n"
            )
        if self._recorder.incomplete:
            sys.stderr.write(f"WARNING: of {self._recorder.incomplete} calls what they read is missing: <lost>\n")
        if self._texts.unreadable:
            sys.stderr.write(f"WARNING: {self._texts.unreadable} values could not be read: <unreadable>\n")


def _p99(times: Histogram, total: int) -> int:
    """The 99th percentile: of several calls the middle of its bucket, a single one took all of the time."""
    return total if times.count == 1 else times.quantile(0.99) or 0


def _missing(trace: tracing.Trace, counter: str, seen: int) -> tuple[int, int]:
    """How many of the returns that the script counted were not seen, and how many it counted."""
    returned = int(trace.maps[counter].value or 0)
    return max(0, returned - seen), returned


_RESULTS = {0: 1, 1: 0, 2: -1, 3: 0xFFFFFFFF}
"""A result for each kind that the script counts (:meth:`pytrace.calls.functions.FunctionProbes.summary`)."""

_ANONYMOUS = {
    "epoll_create": "[eventpoll]", "epoll_create1": "[eventpoll]", "eventfd": "[eventfd]", "eventfd2": "[eventfd]",
    "timerfd_create": "[timerfd]", "signalfd": "[signalfd]", "signalfd4": "[signalfd]", "inotify_init": "inotify",
    "inotify_init1": "inotify", "pidfd_open": "[pidfd]", "userfaultfd": "[userfaultfd]",
    "perf_event_open": "[perf_event]", "fanotify_init": "[fanotify]", "io_uring_setup": "[io_uring]",
}  # fmt: skip
"""Names of what calls make that is no file."""
_CLOSING = frozenset({
    "open", "openat", "socket", "accept4", "socketpair", "pipe2", "dup3", "epoll_create1", "eventfd2", "timerfd_create",
    "signalfd4", "inotify_init1", "memfd_create", "perf_event_open", "userfaultfd", "fanotify_init",
})  # fmt: skip
"""Calls with a flag that has the descriptor closed when the process executes another program."""
_CLOEXEC = {"memfd_create": 1, "perf_event_open": 8, "fanotify_init": 1}
"""That flag, where it is not O_CLOEXEC."""
_F_DUPFD, _F_SETFD, _F_DUPFD_CLOEXEC = 0, 2, 1030
_CLOSE_RANGE_CLOEXEC = 4
AT_FDCWD = -100


def unknown_number(word: int) -> str:
    """A word whose type is not known: small numbers as such, others in hexadecimal."""
    word &= 0xFFFFFFFFFFFFFFFF
    if word in (0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF):
        return "-1"
    return str(word) if word < 10 else f"{word:#x}"


def _threads(pid: int) -> bool:
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _socket_kind(arguments: Sequence[int]) -> str:
    family, kind = arguments[0] & 0xFFFF, arguments[1] & 0xF
    if family in (2, 10):
        name = {1: "TCP", 2: "UDP", 3: "RAW"}.get(kind, "INET")
        return f"{name}v6" if family == 10 else name
    return {1: "UNIX", 16: "NETLINK", 17: "PACKET"}.get(family, "socket")


def _peer(data: bytes) -> str:
    """A peer's address, short."""
    text = socket_address(data)
    for start, end in (('sin_addr=inet_addr("', '"'), ('inet_pton(AF_INET6, "', '"'), ("sun_path=", "}")):
        if start in text:
            address = text.partition(start)[2].partition(end)[0].strip('"')
            port = text.partition("port=htons(")[2].partition(")")[0]
            return f"{address}:{port}" if port and ":" not in address else f"[{address}]:{port}" if port else address
    return "socket"
