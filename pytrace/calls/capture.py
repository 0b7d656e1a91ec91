"""The script that records system calls, the form of its events, and the calls that they make.

One program runs at the entry of each system call, one at its return. They keep the call's number, arguments and time
by thread, and copy what its arguments point to: what the call reads at the entry, what it writes at the return. What is
not in memory at the entry is copied at the return, when the kernel has read it.

An event is a tuple whose first member is one of the constants below, the second and third are the time of the call's
entry and the thread, which together name the call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytrace.calls.signatures import Signature, Type, by_number, call_names
from pytrace.calls.values import Recorded, size_of
from pytrace.render.value_kind import Plain

SUPERSEDED = 1 << 32
"""A bit of the status of a thread in whose place another one executes a program; below it is that one's number."""
INPUT, CALL, STRING, BYTES, EXIT, SIGNAL, TAKEN = range(1, 8)
"""Events: what a call reads (shape, strings, bytes); a call that returned; a string of a list, bytes of a vector (each
with the number of the argument and an index); the end of a thread; a signal; a thread that takes
the number of its process as it executes a program."""

LATE, COMPAT, UNFINISHED = 1, 2, 4
"""Flags of a call: its input is read at the return; it has the numbers of 32-bit programs; it has not returned."""

NAME_OF_MESSAGE, VECTOR_OF_MESSAGE = 100, 102
"""Indexes of parts that are not bytes of a vector: the address of a message, and its vector."""

PAGES = 8192
"""Pages of the ring buffer: 32 MiB take some 200,000 calls, which come in a burst."""
LARGEST = 512
"""Bytes of an array of structs that are copied."""
LISTED = 32
"""Strings of a list that are copied."""
VECTORS = 16
"""Members of a vector whose bytes are copied."""
LONGEST_ADDRESS = 128


class Copy(msgspec.Struct, frozen=True):
    """Something to copy: of which argument; its length in bytes as an expression of the script, empty for a string."""

    argument: int
    length: str


class Conditional(msgspec.Struct, frozen=True):
    """An argument that is an address for some operations of the call only, of which *size* bytes are copied."""

    size: int
    read_if: str
    written_if: str


def _one_of(expression: str, *values: int) -> str:
    return " || ".join(f"({expression}) == {value}" for value in values)


CONDITIONAL: Mapping[str, Conditional] = {
    # FUTEX_WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI and LOCK_PI2 have a time.
    "futextime": Conditional(16, _one_of("$a1 & 127", 0, 6, 9, 11, 13), ""),
    # F_GETLK, F_SETLK, F_SETLKW and those of open file descriptions have a struct flock.
    "fcntlarg": Conditional(32, _one_of("$a1", 5, 6, 7, 36, 37, 38), _one_of("$a1", 5, 36)),
    # PR_SET_NAME and PR_GET_NAME.
    "prctlarg": Conditional(16, _one_of("$a0", 15), _one_of("$a0", 16)),
    # TIOCSPGRP, TIOCSWINSZ, FIONBIO; TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, TIOCGPTN of asm-generic/ioctls.h.
    "ioctlarg": Conditional(
        36, _one_of("$a1", 0x5410, 0x5414, 0x5421, 0x5402, 0x5403, 0x5404),
        _one_of("$a1", 0x5401, 0x540F, 0x5413, 0x541B, 0x80045430),
    ),
}  # fmt: skip
"""Types whose meaning depends on the operation, as x86-64 and arm64 number those."""


class Plan(msgspec.Struct, frozen=True):
    """What is copied of a call at its entry and at its return, and the lists and vectors of its arguments."""

    before: tuple[Copy, ...]
    after: tuple[Copy, ...]
    strings: int = -1
    """The argument that is a list of strings."""
    counted: int = -1
    """The argument that is a list whose strings are only counted."""
    vector: tuple[int, int] = (-1, -1)
    """The argument that is a vector of buffers, and the one with its length; a message has (N, -1)."""
    outgoing: bool = True
    """The call reads the vector."""
    read_if: str = ""
    """A condition of what is copied at the entry; empty: always."""
    written_if: str = ""
    """The same of what is copied at the return."""

    @property
    def changed(self) -> bool:
        """Whether the call changes what it reads, which is then another thing at the return (the sets of select(2)).

        Operations of prctl(2) and its like either read or write.
        """
        written = {copy.argument for copy in self.after}
        return not self.read_if and any(copy.argument in written for copy in self.before)

    @property
    def shape(self) -> tuple[int, int]:
        """How many strings and how many bytes are copied at the entry."""
        texts = sum(not copy.length for copy in self.before)
        return texts, len(self.before) - texts


def _plan(signature: Signature, machine: str, longest: int) -> Plan:
    """What to copy of a call; *longest* is the number of bytes of a buffer that are shown."""
    before: list[Copy] = []
    after: list[Copy] = []
    strings = counted = -1
    vector, outgoing, conditions = (-1, -1), True, ("", "")
    for index, type_ in enumerate(signature.types):
        if type_.base == "argv":
            strings = index
        elif type_.base == "envp":
            counted = index
        elif type_.base in ("iov", "msghdr"):
            vector, outgoing = (index, -1 if type_.count is None else type_.count), type_.direction == "<"
            length = "56" if type_.count is None else _most(f"$a{type_.count} * 16", VECTORS * 16)
            (before if outgoing else after).append(Copy(index, length))
        elif type_.base in CONDITIONAL:
            row = CONDITIONAL[type_.base]
            before += [Copy(index, str(row.size))] if row.read_if else []
            after += [Copy(index, str(row.size))] if row.written_if else []
            conditions = row.read_if, row.written_if
        elif type_.direction:
            length = _length(type_, machine, longest)
            if type_.direction in "<=":
                before.append(Copy(index, length))
            if type_.direction in ">=":
                after.append(Copy(index, length))
    # Strings first, as in the events.
    before.sort(key=lambda copy: bool(copy.length))
    return Plan(tuple(before[:4]), tuple(after[:4]), strings, counted, vector, outgoing, *conditions)


def _length(type_: Type, machine: str, longest: int) -> str:
    if type_.base in ("path", "str"):
        return ""
    number = "$got" if type_.count == -1 else f"$a{type_.count}"
    if type_.base in ("buf", "rand", "sockval"):
        return _most(number if type_.sized is None else str(longest), longest)
    if type_.base == "cstr":
        return _most(number, 4096)
    if type_.base == "sockaddr":
        return str(LONGEST_ADDRESS) if type_.count is None else _most(number, LONGEST_ADDRESS)
    if type_.base == "cpuset":
        return _most(number, LONGEST_ADDRESS)
    if type_.base == "fdset":
        return _most("(($a0 + 63) / 64) * 8", LONGEST_ADDRESS)
    if type_.base == "resident":
        return _most("(($a1 + 4095) / 4096)", LARGEST)
    size = size_of(type_.base, machine)
    if type_.times is not None:
        return str(size * type_.times)
    return str(size) if type_.count is None else _most(f"{number} * {size}", LARGEST)


def _most(number: str, most: int) -> str:
    return f"({number} > {most} ? {most} : {number})"


# ----------------------------------------------------------------------------------------------- the script


_NO_CALL = "let $c = (nsecs, (int64)0, (uint64)0, (uint64)0, (uint64)0, (uint64)0, (uint64)0, (uint64)0, (uint64)0);"
"""Room for what ``@calls`` has of a call."""


class SystemCalls:
    """The system calls that a run records: those with the numbers *chosen*, with *longest* bytes of each buffer.

    *only_command* restricts them to the process of ``-c``.
    """

    def __init__(self, chosen: frozenset[int], machine: str, longest: int, *, only_command: bool) -> None:
        self._chosen, self._longest = chosen, longest
        self._signatures = {number: row for number, row in by_number(machine).items() if number in chosen}
        self._plans = {number: _plan(row, machine, longest) for number, row in self._signatures.items()}
        self._everything = len(chosen) == len(call_names(machine))
        self._scope = "/pid == cpid/" if only_command else ""
        self._compat = "(curtask.thread_info.status & 2) != 0" if machine == "x86_64" else "false"
        """The expression that a system call of the current thread is that of a 32-bit program."""

    def recorder(self) -> Recorder:
        """Joins the events of :meth:`script`."""
        return Recorder(self._signatures, self._plans)

    @property
    def settings(self) -> str:
        """The configuration of :meth:`script`."""
        longest = max(1024, self._longest)
        return f"max_strlen = {longest}; print_maps_on_exit = 0; missing_probes = warn; perf_rb_pages = {PAGES}"

    def script(self) -> str:
        """The script that records the calls, and the ends of threads."""
        if not self._chosen:
            return (
                f"tracepoint:sched:sched_process_exit {self._scope} {{\n  "
                + _event(str(EXIT), "nsecs", "tid", "pid", "(int64)curtask.exit_code") + "\n}"
            )
        shapes = sorted({item.shape for item in self._plans.values()} - {(0, 0)})
        arguments = " ".join(f"$a{index} = args.args[{index}];" for index in range(6))
        kept = " ".join(f"$a{index} = $c.{index + 2};" for index in range(6))
        lines = [
            "let @calls = hash(16384);",
            "let @read = lruhash(16384);",
            "let @written = lruhash(16384);",
            f"tracepoint:raw_syscalls:sys_enter {self._scope} {{",
            "  $nr = args.id;",
            *self._selection(),
            f"  {arguments}",
            "  $start = nsecs;",
            "  let $flags: uint64 = 0;",
            f"  if ({self._compat}) {{ $flags = {COMPAT}; }} else {{",
            *_input(self._plans, shapes, self._longest, late=False),
            "  }",
            f"  @calls[tid] = ($start, $nr, {', '.join(f'$a{index}' for index in range(6))}, $flags);",
            "}",
            f"tracepoint:raw_syscalls:sys_exit {self._scope} {{",
            "  let $c = (nsecs, args.id, (uint64)0, (uint64)0, (uint64)0, (uint64)0, (uint64)0, (uint64)0, (uint64)0);",
            "  $ret = args.ret; $end = nsecs;",
            "  if (find(@calls, tid, $c)) {",
            "    _ = delete(@calls, tid);",
            f"    $start = $c.0; $nr = $c.1; {kept} $flags = $c.8;",
            f"    if (($flags & {LATE}) != 0) {{",
            *_input(self._plans, shapes, self._longest, late=True),
            "    }",
            "    @returned = count();",
            *_output(self._plans, self._longest),
            "  }",
            "}",
            f"tracepoint:sched:sched_process_exit {self._scope} {{",
            f"  {_NO_CALL}",
            "  if (find(@calls, tid, $c)) {",
            "    _ = delete(@calls, tid);",
            f"    $start = $c.0; $nr = $c.1; {kept} $flags = $c.8 | {UNFINISHED}; $end = nsecs; $ret = (int64)0;",
            f"    {_call(0)}",
            "  }",
            "  let $status = (int64)curtask.exit_code;",
            # Another thread executes a program, and takes the place of the first one.
            "  if comptime (member_exist(struct signal_struct, group_exec_task)) {",
            "    if (tid == pid && curtask.signal.group_exec_task != 0) {",
            f"      $status = {SUPERSEDED} | (int64)curtask.signal.group_exec_task.pid;",
            "    }",
            "  }",
            "  " + _event(str(EXIT), "nsecs", "tid", "pid", "$status"),
            "}",
            # The thread that executes a program has the number of the first one from then on.
            f"tracepoint:sched:sched_process_exec {self._scope} {{",
            "  if (args.old_pid != args.pid) {",
            "    $old = (uint32)args.old_pid;",
            f"    {_NO_CALL}",
            "    if (find(@calls, $old, $c)) {",
            "      _ = delete(@calls, $old); @calls[tid] = $c;",
            "    }",
            "    " + _event(str(TAKEN), "nsecs", "tid", "pid", "$old"),
            "  }",
            "}",
            f"tracepoint:signal:signal_deliver {self._scope} {{",
            "  " + _event(str(SIGNAL), "nsecs", "tid", "pid", "(int64)args.sig", "(int64)args.code"),
            "}",
        ]
        return "\n".join(line for line in lines if line)

    def summary_script(self, *, slow: int, failed: bool) -> str:
        """The script that counts calls in the kernel, with *slow* (nanoseconds) or *failed* those that were.

        The maps have the number of the call as key.
        """
        parts = [f"$took >= {slow}"] if slow else []
        parts += ["$ret < 0 && $ret > -4096"] if failed else []
        condition = " && ".join(parts) or "true"
        return "\n".join([
            "let @at = hash(16384);",
            f"tracepoint:raw_syscalls:sys_enter {self._scope} {{",
            "  $nr = args.id;", *self._selection(), "  @at[tid] = nsecs;", "}",
            f"tracepoint:raw_syscalls:sys_exit {self._scope} {{",
            "  let $start: uint64 = 0;",
            "  if (find(@at, tid, $start)) {",
            "    _ = delete(@at, tid); $took = nsecs - $start; $ret = args.ret;",
            f"    if ({condition}) {{",
            f"      let $call = {self._compat} ? -1 - args.id : args.id;",
            "      @total[$call] = sum($took); @times[$call] = hist($took, 4);",
            "      if ($ret < 0 && $ret > -4096) { @errors[$call] = count(); }",
            "    }",
            "  }",
            "}",
            f"tracepoint:sched:sched_process_exit {self._scope} {{ _ = delete(@at, tid); }}",
            f"tracepoint:sched:sched_process_exec {self._scope} {{",
            "  let $began: uint64 = 0; $old = (uint32)args.old_pid;",
            "  if ($old != tid && find(@at, $old, $began)) { _ = delete(@at, $old); @at[tid] = $began; }",
            "}",
        ])  # fmt: skip

    def _selection(self) -> list[str]:
        """The lines that return at the entry of a call ``$nr`` that is not chosen."""
        if self._everything:
            return []
        # Those of 32-bit programs have other numbers.
        return [
            f"let $wanted = false; if (!({self._compat})) {{",
            _tree("$nr", dict.fromkeys(self._chosen, "$wanted = true;")), "}", "if (!$wanted) { return; }",
        ]  # fmt: skip


def _tree(number: str, bodies: Mapping[int, str]) -> str:
    """A search for the body of a number: nested comparisons, and one body for neighbours that share it."""
    order = sorted(bodies)
    runs: list[tuple[int, int, str]] = []
    for key in order:
        if runs and runs[-1][1] == key - 1 and runs[-1][2] == bodies[key]:
            runs[-1] = (runs[-1][0], key, bodies[key])
        else:
            runs.append((key, key, bodies[key]))
    return _branch(number, runs)


def _branch(number: str, runs: Sequence[tuple[int, int, str]]) -> str:
    if not runs:
        return ""
    if len(runs) == 1:
        first, last, body = runs[0]
        test = f"{number} == {first}" if first == last else f"{number} >= {first} && {number} <= {last}"
        return f"if ({test}) {{ {body} }}"
    middle = len(runs) // 2
    return (
        f"if ({number} < {runs[middle][0]}) {{ {_branch(number, runs[:middle])} }}\n"
        f"else {{ {_branch(number, runs[middle:])} }}"
    )


def _forgotten(map_: str, names: Sequence[str]) -> list[str]:
    """Statements after which the verifier knows nothing of variables; they are 0 if another thread took the room.

    Else it follows all that comes after the search for a call's number once for each call: it refuses that before Linux
    6.4, and later takes a second for it.
    """
    kept = ", ".join(f"${name}" for name in names)
    back = " ".join(f"${name} = $known_{map_}.{index};" for index, name in enumerate(names))
    zeros = ", ".join("(uint64)0" for _ in names)
    return [
        f"@{map_}[tid] = ({kept});",
        f"let $known_{map_} = ({zeros});",
        f"_ = find(@{map_}, tid, $known_{map_});",
        back,
    ]


_EXECUTED = (
    "$s0 = curtask.mm.env_end; $list = curtask.mm.start_stack + 8; "
    "$count = $list + (*uptr((uint64 *)($list - 8)) + 1) * 8;"
)
"""Where a new program has what it was executed with, as the memory of the old one is gone: its stack begins with the
number of arguments, their addresses, 0, and the same of the environment; the name follows the environment's strings
(``bprm_execve`` and ``create_elf_tables`` of fs/exec.c and fs/binfmt_elf.c).
"""


def _input(
    plans: Mapping[int, Plan], shapes: Sequence[tuple[int, int]], longest: int, *, late: bool
) -> list[str]:
    """Statements that copy what calls read. At the entry they set LATE where the first of it seems to be missing."""
    texts = max((shape[0] for shape in shapes), default=0)
    buffers = max((shape[1] for shape in shapes), default=0)
    lines = [f"let $s{index}: uint64 = 0;" for index in range(texts)]
    lines += [f"let $p{index}: uint64 = 0; let $n{index}: uint64 = 0;" for index in range(buffers)]
    others = ("shape", "now", "which", "list", "count", "vec", "vecs", "msg")
    lines += [f"let ${name}: uint64 = 0;" for name in others]
    found = {number: _assignments(item, shapes) for number, item in plans.items()}
    bodies = {number: body for number, body in found.items() if body}
    if not bodies:
        return []
    lines.append(_tree("$nr", bodies))
    names = [f"s{index}" for index in range(texts)]
    names += [f"{kind}{index}" for kind in ("p", "n") for index in range(buffers)]
    lines += _forgotten("read", [*names, *others])
    executing = [number for number, item in plans.items() if item.strings >= 0]
    if late and executing:
        lines.append(f"if ($ret == 0 && ({_one_of('$nr', *executing)})) {{ {_EXECUTED} }}")
    for index, (strings, bytes_) in enumerate(shapes, 1):
        lines.append(f"if ($shape == {index}) {{")
        if not late:
            tests = [f"($s{n} != 0 && *uptr((uint8 *)$s{n}) == 0)" for n in range(strings)]
            tests += [f"($p{n} != 0 && $n{n} > 0 && *uptr((uint8 *)$p{n}) == 0)" for n in range(bytes_)]
            lines.append(f"if ($now == 0 && ({' || '.join(tests)})) {{ $flags = {LATE}; }} else {{")
        values = [f"str((char *)$s{n})" for n in range(strings)]
        values += [f"buf((uint8 *)$p{n}, $n{n})" for n in range(bytes_)]
        lines.append(_event(str(INPUT), "$start", "tid", str(index), *values))
        lines.append("}" if late else "} }")
    lines += _lists(plans)
    if any(item.outgoing and item.vector[0] >= 0 for item in plans.values()):
        lines += _vectors(longest, "1 << 40")
    return lines


def _assignments(item: Plan, shapes: Sequence[tuple[int, int]]) -> str:
    """Statements that say where what a call reads is."""
    parts, text, buffer = [], 0, 0
    for copy in item.before:
        if copy.length:
            parts.append(f"$p{buffer} = $a{copy.argument}; $n{buffer} = {copy.length};")
            buffer += 1
        else:
            parts.append(f"$s{text} = $a{copy.argument};")
            text += 1
    if parts:
        parts.append(f"$shape = {shapes.index(item.shape) + 1};")
    if item.changed:
        parts.append("$now = 1;")
    if item.strings >= 0:
        parts.append(f"$list = $a{item.strings}; $which = {item.strings};")
    if item.counted >= 0:
        parts.append(f"$count = $a{item.counted};")
    if item.outgoing and item.vector[0] >= 0:
        argument, length = item.vector
        parts.append(f"$msg = $a{argument};" if length < 0 else f"$vec = $a{argument}; $vecs = $a{length};")
    body = " ".join(parts)
    return f"if ({item.read_if}) {{ {body} }}" if item.read_if else body


def _lists(plans: Mapping[int, Plan]) -> list[str]:
    """Statements that send the strings of a list, and the length of another."""
    if not any(item.strings >= 0 for item in plans.values()):
        return []
    return [
        "if ($list != 0) {",
        f"  for ($i : 0..{LISTED}) {{",
        "    $item = *uptr((uint64 *)($list + (uint64)$i * 8));",
        "    if ($item == 0) { break; }",
        "    " + _event(str(STRING), "$start", "tid", "$which", "$i", "str((char *)$item, 200)"),
        "  }",
        "}",
        "if ($count != 0) {",
        "  let $known: uint64 = 0;",
        "  for ($i : 0..1024) {",
        "    if (*uptr((uint64 *)($count + (uint64)$i * 8)) == 0) { break; }",
        "    $known += 1;",
        "  }",
        "  " + _event(str(STRING), "$start", "tid", "-1", "$known"),
        "}",
    ]


def _vectors(longest: int, left: str) -> list[str]:
    """Statements that send the bytes of a vector of buffers, or of a message; *left* is how many of them hold."""
    return [
        "if ($msg != 0) {",
        "  $vec = *uptr((uint64 *)($msg + 16)); $vecs = *uptr((uint64 *)($msg + 24));",
        "  let $who = *uptr((uint64 *)$msg); let $size = (uint64)*uptr((uint32 *)($msg + 8));",
        f"  $size = {_most('$size', LONGEST_ADDRESS)};",
        f"  if ($who != 0) {{ {_part(str(NAME_OF_MESSAGE), 'buf((uint8 *)$who, $size)')} }}",
        f"  $size = {_most('$vecs * 16', VECTORS * 16)};",
        "  " + _part(str(VECTOR_OF_MESSAGE), "buf((uint8 *)$vec, $size)"),
        "}",
        "if ($vec != 0) {",
        f"  let $left: uint64 = {left};",
        f"  for ($i : 0..{VECTORS}) {{",
        "    if ((uint64)$i >= $vecs || $left == 0) { break; }",
        "    let $base = *uptr((uint64 *)($vec + (uint64)$i * 16));",
        "    let $bytes = *uptr((uint64 *)($vec + (uint64)$i * 16 + 8));",
        "    if ($bytes > $left) { $bytes = $left; }",
        "    $left -= $bytes;",
        "    " + _part("$i", f"buf((uint8 *)$base, {_most('$bytes', longest)})"),
        "  }",
        "}",
    ]


def _event(*values: str) -> str:
    """A statement that sends an event: by printf, whose strings and buffers take as many bytes as they have."""
    forms = ["%s" if value.startswith("str(") else "%r" if value.startswith("buf(") else "%ld" for value in values]
    return f"printf(\"{' '.join(forms)}\", {', '.join(values)});"


def _part(number: str, value: str) -> str:
    return _event(str(BYTES), "$start", "tid", number, value)


def _call(outputs: int) -> str:
    """The event of a call that has returned."""
    values = ["(uint64)$nr", "$end - $start", "$ret", "$flags", *(f"$a{index}" for index in range(6))]
    values += [f"buf((uint8 *)$x{index}, $m{index})" for index in range(outputs)]
    return _event(str(CALL), "$start", "tid", "pid", *values)


def _output(plans: Mapping[int, Plan], longest: int) -> list[str]:
    """Statements that copy what calls write, and send the call."""
    most = max((len(item.after) for item in plans.values()), default=0)
    bodies = {}
    for number, item in plans.items():
        parts = []
        for index, copy in enumerate(item.after):
            parts.append(f"$x{index} = $a{copy.argument}; $m{index} = {copy.length};")
        if not item.outgoing:
            argument, length = item.vector
            parts.append(f"$msg = $a{argument};" if length < 0 else f"$vec = $a{argument}; $vecs = $a{length};")
        if parts:
            body = f"{' '.join(parts)} $outputs = {len(item.after)};"
            bodies[number] = f"if ({item.written_if}) {{ {body} }}" if item.written_if else body
    if not bodies:
        return [_call(0)]
    lines = [f"let $x{index}: uint64 = 0; let $m{index}: uint64 = 0;" for index in range(most)]
    lines += [
        *(f"let ${name}: uint64 = 0;" for name in ("outputs", "vec", "vecs", "msg")),
        "let $got = (uint64)$ret;",
        f"if ($ret >= 0 && ($flags & {COMPAT}) == 0) {{", _tree("$nr", bodies), "}",
    ]
    names = [f"{kind}{index}" for kind in ("x", "m") for index in range(most)]
    lines += _forgotten("written", [*names, "outputs", "vec", "vecs", "msg"])
    if any(not item.outgoing for item in plans.values()):
        lines += _vectors(longest, "$got")
    # A call that failed wrote nothing.
    counts = sorted({0, *(len(item.after) for item in plans.values())})
    for count in counts:
        lines.append(f"if ($outputs == {count}) {{ {_call(count)} }}")
    return lines


# ---------------------------------------------------------------------------------------------- from events to calls

_MOST_THREADS = 16384
"""Threads whose last input is kept; beyond that the oldest is dropped."""


class Exit(msgspec.Struct):
    """The end of a thread: its status as wait(2) has it."""

    time: int
    tid: int
    pid: int
    status: int


class Signal(msgspec.Struct):
    """A signal that was delivered."""

    time: int
    tid: int
    pid: int
    number: int
    code: int


class Taken(msgspec.Struct):
    """A thread that executes a program takes the number of its process: the first thread is gone, and so is its own."""

    time: int
    tid: int
    pid: int
    old: int


Values = Sequence[Plain]
"""The values of an event: numbers, strings, bytes."""
Item = Recorded | Exit | Signal | Taken

_OTHERS = {EXIT: Exit, SIGNAL: Signal, TAKEN: Taken}


class _Input(msgspec.Struct):
    """What a call that began at *start* has read, so far."""

    start: int
    shape: int = 0
    values: tuple[str | bytes, ...] = ()
    parts: dict[int, bytes] = {}
    listed: int | None = None


class Recorder:
    """Joins the events of calls. *signatures* are by number, *plans* what the script copies of each."""

    def __init__(self, signatures: Mapping[int, Signature], plans: Mapping[int, Plan]) -> None:
        self._signatures, self._plans = signatures, plans
        self._inputs: dict[int, _Input] = {}
        """By thread, what its last call has read."""
        self._waiting: dict[int, Recorded] = {}
        """By thread, a call that has returned, and whose input is still to come."""
        self.calls = 0
        """Calls that returned."""
        self.incomplete = 0
        """Calls whose input was lost."""

    def add(self, values: Values) -> Iterator[Item]:
        """Take an event; returns what is complete by it."""
        kind, start, tid = values[0], values[1], values[2]
        if kind == CALL:
            yield from self._returned(values)
        elif kind in (INPUT, STRING, BYTES):
            self._read(kind, start, tid, values)
            waiting = self._waiting.get(tid)
            if waiting is not None and waiting.start == start and kind == INPUT:
                del self._waiting[tid]
                yield self._complete(waiting)
        else:
            if kind == EXIT:
                yield from self._late(tid)
                self._inputs.pop(tid, None)
            elif kind == TAKEN and (known := self._inputs.pop(values[4], None)) is not None:
                self._inputs[tid] = known
            yield _OTHERS[kind](start, *values[2:])

    def rest(self) -> Iterator[Item]:
        """Calls whose input has not arrived at the end."""
        for tid in list(self._waiting):
            yield from self._late(tid)

    def under_way(self, entries: Mapping[object, object]) -> list[Recorded]:
        """Calls that have not returned, from the map of the script: thread to (time, number, arguments, flags)."""
        found = []
        for tid, value in entries.items():
            assert isinstance(tid, int)
            assert isinstance(value, tuple)
            start, number, *arguments, bits = value
            call = self._call(number, tid, tid, start, 0, 0, bits | UNFINISHED, tuple(arguments), ())
            self._fill(call)
            found.append(call)
        return sorted(found, key=lambda call: call.start)

    # ---- parts

    def _read(self, kind: int, start: int, tid: int, values: Values) -> None:
        known = self._inputs.get(tid)
        if known is None or known.start != start:
            if known is None and len(self._inputs) >= _MOST_THREADS:
                del self._inputs[next(iter(self._inputs))]
            known = self._inputs[tid] = _Input(start)
        if kind == INPUT:
            known.shape, known.values = values[3], tuple(values[4:])
        elif kind == BYTES:
            known.parts[values[3]] = _bytes(values[4])
        elif values[3] < 0:
            known.listed = values[4]
        else:
            known.parts[values[4]] = _bytes(values[5])

    def _returned(self, values: Values) -> Iterator[Item]:
        _, start, tid, pid, number, duration, result, bits, *rest = values
        call = self._call(number, pid, tid, start, duration, result, bits, tuple(rest[:6]), rest[6:])
        yield from self._late(tid)
        plan = self._plans.get(number) if call.signature is not None else None
        known = self._inputs.get(tid)
        expected = plan is not None and plan.before and not plan.read_if
        if expected and (known is None or known.start != start or not known.shape):
            self._waiting[tid] = call
            if len(self._waiting) > _MOST_THREADS:
                yield from self._late(next(iter(self._waiting)))
            return
        yield self._complete(call)

    def _late(self, tid: int) -> Iterator[Item]:
        """The call of a thread whose input did not arrive before the next one."""
        call = self._waiting.pop(tid, None)
        if call is not None:
            call.lost = True
            self.incomplete += 1
            yield self._complete(call)

    def _complete(self, call: Recorded) -> Recorded:
        self.calls += 1
        self._fill(call)
        return call

    def _call(
        self, number: int, pid: int, tid: int, start: int, duration: int, result: int, bits: int,
        arguments: tuple[int, ...], written: Values,
    ) -> Recorded:
        signature = None if bits & COMPAT else self._signatures.get(number)
        call = Recorded(
            -1 - number if bits & COMPAT else number, signature, pid, tid, start, duration, result, arguments,
            not bits & UNFINISHED,
        )
        plan = self._plans.get(number)
        if plan is not None and written:
            call.after = {copy.argument: _bytes(data) for copy, data in zip(plan.after, written, strict=False)}
        return call

    def _fill(self, call: Recorded) -> None:
        plan, known = self._plans.get(call.number), self._inputs.get(call.tid)
        if known is None or plan is None or known.start != call.start:
            return
        call.parts, call.listed = known.parts, known.listed
        if known.shape:
            call.before = {copy.argument: _bytes(value) for copy, value in zip(plan.before, known.values, strict=False)}


def _bytes(value: str | bytes) -> bytes:
    return os.fsencode(value) if isinstance(value, str) else value
