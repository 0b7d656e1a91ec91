"""Parts of scripts that several tools share: blocks, frames of running functions, tables at intervals."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pytrace.multitools.specs.trace_targets import KERNEL, Attachment, TraceTarget

_OWN_OUTPUT, _WHOLE_STACKS = "print_maps_on_exit = false", "stack_unwinding = auto"
HEAD = f"config = {{ {_OWN_OUTPUT} }}"
"""For scripts that print their maps themselves."""


def config(*, own_output: bool, user_stacks: bool) -> str:
    """The config block of a script that prints its maps itself, or takes stacks of processes; may be empty."""
    settings = [*([_OWN_OUTPUT] if own_output else []), *([_WHOLE_STACKS] if user_stacks else [])]
    return f"config = {{ {'; '.join(settings)} }}" if settings else ""


def block(head: str, lines: Iterable[str]) -> str:
    """``head { lines }``."""
    inner = "".join(f"    {line}\n" for text in lines for line in text.split("\n"))
    return f"{head} {{\n{inner}}}"


def probe(points: Iterable[str], lines: Iterable[str], conditions: Iterable[str] = ()) -> str:
    """A probe, with a predicate if there are conditions."""
    texts = [condition for condition in conditions if condition]
    joined = " && ".join(f"({text})" if "||" in text or "?" in text else text for text in texts)
    return block(", ".join(points) + (f" /{joined}/" if joined else ""), lines)


def unless(predicate: str) -> str:
    """The statement that leaves a probe unless a predicate holds."""
    if predicate.startswith("(") and predicate.endswith(")") and predicate.count("(") == 1:
        predicate = predicate[1:-1]
    return f"if (!({predicate})) {{ return; }}"


def script(*parts: str) -> str:
    """The parts of a script, separated by empty lines."""
    return "\n\n".join(part for part in parts if part) + "\n"


def literal(text: str) -> str:
    """A string literal of the script language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


# ---------------------------------------------------------------------------------------------- names of functions


class Naming(msgspec.Struct, frozen=True):
    """How a script stores and shows the name of the probed function or event.

    Attributes:
        key: the expression in a probe: ``func`` in the kernel, else the name of the probe, as an address in user
            space is different in each process.
        prefix: number of characters of it that are not shown.
    """

    key: str
    prefix: int = 0

    @classmethod
    def of(cls, target: TraceTarget, attachment: Attachment) -> Naming:
        """The naming for a target."""
        if target.family == KERNEL:
            return cls("func")
        return cls("probe", attachment.prefix)

    def shown(self, variable: str) -> str:
        """The displayed name, as an expression; *variable* contains the key."""
        return f"str((int8 *)&{variable} + {self.prefix}, 128)" if self.prefix else variable


# ---------------------------------------------------------------------------------------------- frames

FRAMES = "let @depth = hash(16384);\nlet @frame = hash(16384);"
"""For each thread, its running functions, outermost first, in ``@frame[tid, level]``, and their number."""
CALLEES = "let @callees = hash(16384);"
"""For each running function, the total time of its callees."""


def enter(naming: Naming | None, *, callees: bool = False, more: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """Statements at the entry of a function. With a *naming*, its name is added to the frame (not for the kernel, where
    ``function`` is the name); *more* are further members of the frame: names and values.
    """
    name = [] if naming is None or naming.key == "func" else [("name", naming.key)]
    members = [("function", "func"), *name, *more, ("start", "nsecs")]
    record = ", ".join(f"{name}={value}" for name, value in members)
    return [
        "$level = @depth[tid];",
        "@depth[tid] = $level + 1;",
        *(["@callees[tid, $level] = 0;"] if callees else []),
        f"@frame[tid, $level] = ({record});",
    ]


def leave(lines: Iterable[str], *, callees: bool = False) -> list[str]:
    """Statements at the return of a function: *lines* run with its ``$frame`` and ``$time``, if its entry was traced.

    Frames above it belong to functions that did not return (``longjmp``, exceptions), and are dropped.
    """
    statements = [
        "$now = nsecs;",
        "$function = func;",
        "$depth = @depth[tid];",
        "let $above: int64 = 0;",
        block(
            "for ($i : 0..$depth)",
            ["if (@frame[tid, $depth - 1 - $i].function == $function) { break; }", "$above = $above + 1;"],
        ),
        "if ($above >= $depth) { return; }",
        "$level = $depth - 1 - $above;",
        "$frame = @frame[tid, $level];",
        "$time = $now - $frame.start;",
        "delete(@frame, (tid, $level));",
        "if ($level > 0) { @depth[tid] = $level; } else { delete(@depth, tid); }",
    ]
    if callees:
        statements += [
            "$own = $time - @callees[tid, $level];",
            "delete(@callees, (tid, $level));",
            "if ($level > 0) { @callees[tid, $level - 1] += $time; }",
        ]
    return [*statements, *lines]


def forget() -> str:
    """The probe that drops the frames of threads that exit inside traced functions."""
    return "tracepoint:sched:sched_process_exit /has_key(@depth, tid)/ { delete(@depth, tid); }"


# ---------------------------------------------------------------------------------------------- intervals


def timer(interval: int) -> str:
    """The attach point of a timer that fires every *interval* nanoseconds."""
    unit, size = next((unit, size) for unit, size in _UNITS if interval % size == 0 or unit == "us")
    return f"interval:{unit}:{interval // size}"


_UNITS = (("s", 10**9), ("ms", 10**6), ("us", 10**3))


def outputs(interval: int, duration: int, lines: list[str]) -> str:
    """The probes that output *lines*: at each interval if there is one, and the remainder at the end.

    If intervals fill the duration, the last one ends with the run, without another output right after it.
    """
    if not interval:
        return probe(["end"], lines)
    most = fitting(interval, duration)
    if not most:
        return probe([timer(interval), "end"], lines)
    counted = [*lines, "@outputs++;", f"if (@outputs >= {most}) {{ exit(); }}"]
    return probe([timer(interval), "end"], counted, [f"@outputs < {most}"])


def fitting(interval: int, duration: int) -> int:
    """Number of intervals that fill the duration; 0 without a duration, or if a part is left."""
    return 0 if duration % interval else duration // interval


def stamp(*, wanted: bool) -> list[str]:
    """The statement that prints the time of day."""
    return ['time("%H:%M:%S\\n");'] if wanted else []
