"""Functions as targets of ``pytrace calls``, and the script that records their calls.

A target is ``BINARY:PATTERN`` (``libc:*``, ``./app:Shop::*``) or ``python:FILE_OR_MODULE:PATTERN``. Functions of which
the same is read share the programs of one ``call:`` probe.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pytrace.calls.function_values import GO_REGISTERS, REGISTERS, Value, failed, of_go, of_parameter, of_result
from pytrace.calls.library_functions import signature
from pytrace.core.diagnostics import TraceError, similar
from pytrace.core.kernel_info import IndirectFunction, UserSymbol
from pytrace.core.probe_kinds import keeps_goroutine
from pytrace.core.types import INT64, VOID, Float, Pointer, Type
from pytrace.runtime.binaries.elf_file import ElfFile
from pytrace.runtime.load.listing import python_functions, python_parameters
from pytrace.runtime.load.live_kernel import LiveKernel
from pytrace.runtime.machine.demangle import qualified_name

ENTER, LEAVE, WHOLE, EXEC = range(8, 12)
"""Events: the entry of a function; its return; a call that is sent as a whole when it returns; a new program."""

MOST_FUNCTIONS = 2000
"""Functions that are traced at once; attaching takes some 10 ms for each."""
MOST_PYTHON = 60
"""Python functions whose arguments are shown; each has programs of its own."""
MOST_ARGUMENTS = 4
"""Arguments of a Python function that are shown: their texts have to fit the stack of a BPF program."""
MOST_SHAPES = 48
"""Combinations of what is read at addresses; functions of further ones show the addresses."""
_GO_TOP = 1 << 40
"""Added to places on stacks of Go, so that deeper ones are lower."""
_HEADROOM = 100_000
"""Probes that the script may attach: a function has one for each of its return instructions."""

_STARTUP = frozenset({
    "_init", "_start", "_fini", "deregister_tm_clones", "register_tm_clones", "__do_global_dtors_aux", "frame_dummy",
    "_dl_relocate_static_pie", "__libc_csu_init", "__libc_csu_fini",
})  # fmt: skip
"""What compilers add to each program; patterns leave it out."""


class Function(msgspec.Struct, frozen=True):
    """A function: its attach point, its names, its parameters and result (None: not known).

    *results* are all of a function of *go*, which returns in several registers, its errors in *error*.
    """

    point: str
    name: str
    binary: str
    arguments: tuple[Value, ...] | None = None
    result: Value | None = None
    python: bool = False
    go: bool = False
    results: tuple[Value, ...] = ()
    error: str = ""

    @property
    def registers(self) -> tuple[str, ...]:
        """Further registers that the event of a return has."""
        used = {part.register for value in self.results for part in value.registers}
        last = max((GO_REGISTERS.index(name) for name in used if name in GO_REGISTERS), default=0)
        return GO_REGISTERS[1 : last + 1]

    @property
    def result_type(self) -> Type | None:
        """The type of its result."""
        return None if self.result is None else self.result.type

    def failed(self, result: int) -> bool:
        """Whether a result says that a call failed."""
        return not (self.result is not None and self.result.negative) and failed(self.result_type, result)

    @property
    def readable(self) -> bool:
        """Whether programs can read its result as a number: a float is in another register, results of Go are in
        several.
        """
        return not self.go and not isinstance(self.result_type, Float)

    @property
    def entry_reads(self) -> tuple[str, ...]:
        """Expressions that are read at the entry."""
        return tuple(read for value in self.arguments or () for read in value.reads)

    @property
    def result_reads(self) -> tuple[str, ...]:
        """Expressions that are read at the return."""
        if self.go:
            registers = [f'reg("{name}")' for name in self.registers]
            return (*registers, *(read for value in self.results for read in value.reads))
        return () if self.result is None else self.result.reads


def is_function(target: str) -> bool:
    """Whether a target names functions, not system calls."""
    return ":" in target and not target.startswith("syscall:")


class Selection:
    """Finds functions. *command* and *pids* say which program runs: of a library a pattern selects what it calls."""

    def __init__(self, machine: str, longest: int, command: Sequence[str], pids: Sequence[int]) -> None:
        self._machine, self._longest = machine, longest
        self._command, self._pids = tuple(command), tuple(pids)
        self._kernel = LiveKernel()
        self._shapes: set[tuple[str, ...]] = set()
        self._found: dict[tuple[str, int], tuple[str, str]] = {}
        """Path and name of the functions that were found, by file and address."""
        self.others: defaultdict[str, set[str]] = defaultdict(set)
        """Further names of functions, which are not shown: what runs is the same, whichever of them is called."""

    def functions(self, targets: Iterable[str]) -> list[Function]:
        """The functions of targets, each once.

        Raises:
            TraceError: a target names none, or all of them are too many.
        """
        found: dict[str, Function] = {}
        for target in targets:
            of_python = target.startswith("python:")
            for function in self._python(target) if of_python else self._native(target):
                found.setdefault(function.point, function)
        if len(found) > MOST_FUNCTIONS:
            raise TraceError(
                f"{', '.join(targets)}: these are {len(found)} functions, "
                f"and at most {MOST_FUNCTIONS} are traced at once",
                hints=("choose functions by a longer pattern: 'libc:str*', './app:Shop::*'",),
            )
        return list(found.values())

    # ---- functions of binaries

    def _native(self, target: str) -> Iterator[Function]:
        place, _, pattern = target.partition(":")
        pattern = pattern or "*"
        pid = self._pids[0] if self._pids else None
        paths = self._kernel.binaries(place, pid, self._program() or "")
        if not paths:
            raise TraceError(
                f"no program or library is named {place!r}",
                hints=("write a path ('./app:main'), or the name of a library ('libc:getenv')",),
            )
        number = 0
        for path in paths:
            symbols = self._symbols(path, pattern)
            number += len(symbols)
            # What is unknown about thousands is looked up for none of them: they are refused.
            if number > MOST_FUNCTIONS:
                yield from (Function(f"call:{path}:{symbol.name}", name, path) for symbol, name in symbols)
            else:
                yield from (self._function(path, symbol, name) for symbol, name in self._new(path, symbols))
        if not number:
            names = {name for path in paths for name in self._kernel.user_symbol_names(path, "*")}
            if not names:
                raise TraceError(
                    f"{paths[0]} has no names of functions: it is stripped",
                    hints=("a file with its symbols (of its -dbgsym package, or unstripped) gives names",),
                )
            near = similar(pattern.strip("*"), sorted(names))
            hint = f"names like it: {', '.join(near)}" if near else f"pytrace -l 'uprobe:{paths[0]}:*' lists them"
            raise TraceError(f"no function of {paths[0]} is named {pattern!r}", hints=(hint,))

    def _symbols(self, path: str, pattern: str) -> list[tuple[UserSymbol, str]]:
        """Functions of a file with the names that are shown; of those with one address the first."""
        # A function that returns a std::string of C++11 has an ABI tag after its name.
        patterns = (pattern,) if "*" in pattern else (pattern, f"{pattern}[abi:*")
        cpp = {symbol.name: (symbol, text) for one in patterns for symbol, text in self._kernel.cpp_symbols(path, one)}
        plain = self._kernel.user_symbols(path, pattern)
        symbols = [(symbol, symbol.name) for symbol in plain if symbol.name not in cpp]
        symbols += [(symbol, qualified_name(text.replace("[abi:cxx11]", ""))) for symbol, text in cpp.values()]
        if "*" in pattern:
            imported = self._imported(path)
            symbols = [(symbol, name) for symbol, name in symbols
                       if name not in _STARTUP and ".cold" not in name
                       and (not imported or symbol.name in imported)]  # fmt: skip
        by_address: dict[int, tuple[UserSymbol, str]] = {}
        for symbol, name in sorted(symbols, key=lambda item: item[1].startswith("_")):
            by_address.setdefault(symbol.address, (symbol, name))
        return sorted(by_address.values(), key=lambda item: item[1])

    def _new(self, path: str, symbols: Sequence[tuple[UserSymbol, str]]) -> Iterator[tuple[UserSymbol, str]]:
        """Those of which what runs when they are called has no other name yet: each call would be shown twice.

        A probe of a name is on all functions that have it.
        """
        file = os.path.realpath(path)
        places: defaultdict[str, set[int]] = defaultdict(set)
        also: defaultdict[str, set[str]] = defaultdict(set)
        for symbol, name in symbols:
            found = self._implementations(path, symbol)
            places[name].update([place.address for place in found.functions] or [symbol.address])
            also[name].update(found.also)
        imported = self._imported(path) if any(also.values()) else frozenset()
        for symbol, name in symbols:
            known = {self._found.setdefault((file, address), (path, name)) for address in places[name]}
            if known == {(path, name)}:
                self.others[name] |= also[name] & imported if imported else also[name]
                yield symbol, name
            else:
                (_, shown), *_ = sorted(known - {(path, name)})
                self.others[shown] |= {name} - {shown}

    def _implementations(self, path: str, symbol: UserSymbol) -> IndirectFunction:
        """The functions that calls of a symbol go to: others for one that is chosen when programs start."""
        if not symbol.indirect:
            return IndirectFunction((symbol,))
        return self._kernel.user_implementations(path, symbol, self._pids[0] if self._pids else None)

    def _program(self) -> str | None:
        """The file of the program that is traced."""
        if self._pids:
            return f"/proc/{self._pids[0]}/exe"
        return shutil.which(self._command[0]) if self._command else None

    def _imported(self, path: str) -> frozenset[str]:
        """Names that the program takes from libraries; empty for its own file, and where nothing is known."""
        program = self._program()
        try:
            if program is None or os.path.samefile(program, path):
                return frozenset()
            with ElfFile.open(program) as file:
                names = file.imported_names
        except (OSError, TraceError):
            return frozenset()
        own = set(self._kernel.user_symbol_names(path, "*"))
        return frozenset(names & own)

    def _function(self, path: str, symbol: UserSymbol, name: str) -> Function:
        point = f"call:{path}:{symbol.name}"
        if symbol.go and keeps_goroutine(symbol.name) and self._machine == "x86_64":
            return self._bounded(self._of_go(point, path, symbol.name))
        known = signature(symbol.name, self._machine, self._longest)
        parameters = self._kernel.user_parameters(path, symbol.name, symbol.address)
        # DWARF knows no parameters of functions in assembly, nor those of what a resolver (IFUNC) stands for.
        if parameters is None or (not parameters and known is not None) or symbol.indirect:
            if known is None and self._returns_float(path, symbol):
                return Function(point, name, path, None, of_result(Float(8), self._longest))
            return self._bounded(Function(point, name, path, *(known or ())))
        arguments = tuple(of_parameter(item, self._machine, self._longest) for item in parameters)
        type_ = self._kernel.user_result(path, symbol.name, symbol.address)
        result = None if type_ is None else of_result(type_, self._longest)
        if result is not None and known is not None:
            result = msgspec.structs.replace(result, negative=known[1].negative)
        return self._bounded(Function(point, name, path, arguments, result))

    def _of_go(self, point: str, path: str, name: str) -> Function:
        parameters = self._kernel.user_parameters(path, name)
        if parameters is None:
            return Function(point, name, path, go=True)
        # A generic function has a hidden one.
        arguments = tuple(of_go(item, self._longest) for item in parameters if item.name != ".dict")
        declared = self._kernel.user_go_results(path, name)
        results = tuple(of_go(item, self._longest) for item in declared)
        last = declared[-1] if declared and declared[-1].declaration == "error" else None
        error = last.parts[0].register if last is not None and last.parts else ""
        return Function(point, name, path, arguments, go=True, results=results, error=error)

    def _returns_float(self, path: str, symbol: UserSymbol) -> bool:
        """Whether one of the functions that calls of a symbol go to returns a floating-point number."""
        places = self._implementations(path, symbol).functions
        return any(isinstance(self._kernel.user_result(path, symbol.name, place.address), Float) for place in places)

    def _bounded(self, function: Function) -> Function:
        """*function* with what is read of it, unless there are too many combinations."""
        shape = (*function.entry_reads, "", *function.result_reads)
        if shape not in self._shapes:
            if len(self._shapes) >= MOST_SHAPES:
                arguments = None if function.arguments is None else tuple(map(_unread, function.arguments))
                result = None if function.result is None else _unread(function.result)
                results = tuple(map(_unread, function.results))
                return msgspec.structs.replace(function, arguments=arguments, result=result, results=results)
            self._shapes.add(shape)
        return function

    # ---- functions of Python

    def _python(self, target: str) -> Iterator[Function]:
        _, _, text = target.partition(":")
        module, _, pattern = text.rpartition(":") if ":" in text else (text, "", "*")
        path = self._source(module)
        names = [] if path is None else [name for name in python_functions(path, pattern) if " " not in name]
        if path is not None and not names:
            raise TraceError(f"no function of {path} is named {pattern!r}")
        if path is None or len(names) > MOST_PYTHON:
            yield Function(f"call:python:{module}:{pattern}", "", module, None, self._object("", "retval"), True)
            return
        for name in names:
            parameters = [item for item in python_parameters(path, name) if item.isidentifier()]
            arguments = tuple(self._object(item, f"args.{item}") for item in parameters[:MOST_ARGUMENTS])
            yield Function(
                f"call:python:{module}:{name}", name, path, arguments, self._object("", "retval"), True
            )

    def _object(self, name: str, expression: str) -> Value:
        # No address is the result of a function that an exception ended.
        return Value(name, Pointer(VOID), "object", (f"pystr({expression}, {self._longest})",))

    def _source(self, module: str) -> str | None:
        """The file of a module, where the command or the process names it; None if only the process knows."""
        if module.endswith(".py") and os.path.isfile(module):
            return module
        words, folder = list(self._command), "."
        if self._pids:
            folder = f"/proc/{self._pids[0]}/cwd"
            try:
                with open(f"/proc/{self._pids[0]}/cmdline", "rb") as file:
                    words = [os.fsdecode(word) for word in file.read(1 << 16).split(b"\0")]
            except OSError:
                words = []
        relative = module.replace(".", "/") + ".py"
        scripts = [os.path.join(folder, word) for word in words if word.endswith(".py")]
        places = [os.path.join(os.path.dirname(script), relative) for script in scripts]
        for path in (*places, os.path.join(folder, relative)):
            if os.path.isfile(path):
                return path
        return None


def _unread(value: Value) -> Value:
    """A value whose register alone is shown."""
    if not value.reads:
        return value
    form = "number" if value.registers or value.constant is not None else "lost"
    return Value(value.name, value.type, form, (), value.registers, value.constant)


# ---------------------------------------------------------------------------------------------- the script


class FunctionProbes:
    """The probes that record calls of *functions*, those that were slow (nanoseconds) or failed, if that is asked for.

    *only_command* restricts them to the process of ``-c``. *starts*: its command begins while they are attached, as
    it does without functions of Python: with them it begins before the trace, which has to find the interpreter in it.
    """

    settings = f"max_probes = {_HEADROOM}"
    """The script's configuration for functions."""

    def __init__(
        self, functions: Sequence[Function], machine: str, *, only_command: bool, starts: bool, slow: int, failed: bool
    ) -> None:
        self._functions, self._machine, self._slow, self._failed = functions, machine, slow, failed
        self._process = ["pid == cpid"] if only_command else []
        self._starts = starts
        # Before the command begins its process runs code of pytrace.
        self._started = [*self._process, *(["(pid != cpid || @executed == 1)"] if starts else [])]

    def events(self) -> list[str]:
        """The probes that send calls.

        Entries and returns are events of their own, so that calls under way are seen. If only those are wanted that
        were slow or failed, a call is one event, which the kernel sends if it was slow or may have failed.
        """
        groups: dict[tuple[object, ...], list[Function]] = {}
        for function in self._functions:
            own = function.point if function.python else ""
            if self._failed and function.go and not function.error:
                continue
            error = function.error if self._failed else ""
            key = (own, function.go, error, function.readable, function.entry_reads, function.result_reads)
            groups.setdefault(key, []).append(function)
        texts = [line for group in groups.values() for line in self._group(group)]
        return texts + self._executions(sends=True)

    def _group(self, group: Sequence[Function]) -> list[str]:
        first = group[0]
        points = ",".join(_written(function.point) for function in group)
        registers = [] if first.python else [f"arg{number}" for number in range(len(REGISTERS[self._machine]))]
        name = "func" if first.python else "probe"
        result = ["(uint64)retval" if first.readable else "(uint64)0", *first.result_reads]
        place, thread = "(uint64)0" if first.python else 'reg("sp")', "tid"
        if first.go:
            registers = [f'reg("{register}")' for register in GO_REGISTERS]
            result[0] = 'reg("ax")'
            # Stacks move: a place is counted from the top of the goroutine's.
            place, thread = f'({_GO_TOP} + reg("sp") - *uptr((uint64 *)(reg("r14") + 8)))', "goid"
        if not self._slow and not self._failed:
            entry = [str(ENTER), "$n", thread, "pid", name, place, *registers, *first.entry_reads]
            return [
                f"{points} {_predicate(self._process)} {{",
                f"  let $s = entry({{ let $n = nsecs; {_send(entry)} @entered = count(); $n }});",
                f"  {_send([str(LEAVE), '$s', thread, 'pid', name, 'duration', *result])}",
                "  @left = count();",
                "}",
            ]
        conditions = [*self._started, *([f"duration >= {self._slow}"] if self._slow else [])]
        # Of Python nothing is known at the end of the run, nor are registers.
        untold = first.python or first.go
        unfinished = "0" if untold else "unfinished"
        if self._failed and first.go:
            conditions += [f'reg("{first.error}") != 0']
        elif self._failed and first.python:
            conditions += ["(uint64)retval == 0"]
        elif self._failed and not first.readable:
            conditions += ["unfinished"]
        elif self._failed:
            conditions += ["(unfinished || (uint64)retval == 0 || (int64)retval < 0 || (int32)retval < 0)"]
        kept = [f"entry({value})" for value in (*registers, *first.entry_reads)]
        call = [str(WHOLE), "entry(nsecs)", thread, "pid", name, "duration", unfinished, result[0]]
        returned = "@left = count();" if untold else "if (!unfinished) { @left = count(); }"
        return [f"{points} {_predicate(conditions)} {{ {_send([*call, *kept, *result[1:]])} {returned} }}"]

    def summary(self) -> list[str]:
        """The probes that count calls in the kernel: by probe and by what the result was.

        That is 1 for zero, 2 for a negative number of 64 bits, 3 for one of 32 bits, 0 for anything else.
        """
        texts = []
        for python, readable in ((False, True), (False, False), (True, True)):
            group = [one for one in self._functions if (one.python, one.readable) == (python, readable)]
            if not group:
                continue
            conditions = [*self._started, *([f"duration >= {self._slow}"] if self._slow else [])]
            kind = "(uint64)retval == 0 ? 1 : (int64)retval < 0 ? 2 : (int32)retval < 0 ? 3 : 0"
            key = f"{'func' if python else 'probe'}, {'$kind' if readable and self._failed else '0'}"
            texts += [
                f"{','.join(_written(function.point) for function in group)} {_predicate(conditions)} {{",
                f"  let $kind = {kind if readable else '0'};",
                f"  @ftotal[{key}] = sum(duration); @ftimes[{key}] = hist(duration, 4);",
                f"  if ($kind != 0) {{ @fresults[{'func' if python else 'probe'}, $kind] = count(); }}",
                "}",
            ]
        return texts + self._executions(sends=False)

    def _executions(self, *, sends: bool) -> list[str]:
        """The probe that says that a process runs another program: its calls have no end; of the command the start."""
        if not self._functions:
            return []
        event = [f'printf("%ld %ld %ld %ld", {EXEC}, nsecs, tid, pid);'] if sends else []
        body = ["if (pid == cpid) { @executed = 1; }"] * self._starts + event
        if not body:
            return []
        return [f"tracepoint:sched:sched_process_exec {_predicate(self._process)} {{ {' '.join(body)} }}"]


def _written(point: str) -> str:
    """An attach point as scripts write it."""
    head, _, name = point.rpartition(":")
    return point if name.replace("_", "").replace("*", "").replace(".", "").isalnum() else f'{head}:"{name}"'


def _predicate(conditions: Sequence[str]) -> str:
    return f"/{' && '.join(conditions)}/" if conditions else ""


def _send(values: Sequence[str]) -> str:
    texts = ("str(", "pystr(", "entry(str(", "entry(pystr(")
    forms = [
        "%s" if value.startswith(texts) or value in ("func", "probe")
        else "%r" if value.startswith(("buf(", "entry(buf(")) else "%ld"
        for value in values
    ]  # fmt: skip
    return f"printf(\"{' '.join(forms)}\", {', '.join(values)});"


RAW = tuple(Value("", INT64, "number") for _ in range(3))
"""What is shown of a function whose parameters are not known: the first three words."""
