"""Random scripts that fill, change and print maps, each with what it must print.

A script is run while it is made: the generator knows what every map holds at each statement. What is asynchronous
(printing and clearing of maps) is done when the probe has ended, as the tracer does it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.generated.choices import Choices
from tests.support.kinds import TEXT, Enum, Struct
from tests.support.mapped.aggregations import Aggregation
from tests.support.mapped.output import Map, Record
from tests.support.mapped.shown import Shown

PLACES = ("begin", "begin", "begin", "exec", "uprobe", "crowd")
"""Where scripts run: in ``begin``, or once or several times in a traced command."""


@dataclass(frozen=True)
class Script:
    """A script, words behind it, what it prints while it runs and what at the end."""

    text: str
    options: tuple[str, ...]
    arguments: tuple[str, ...]
    records: list[Record]
    final: list[Record]
    made: list[int]
    programs: str


class Maker(Shown):
    """Makes statements of all kinds."""

    nesting = 0
    """Conditions around the present statement."""

    def branch(self) -> None:
        """A condition, of whose two blocks one is run."""
        if self.nesting > 1:
            return
        self.nesting += 1
        taken = self.choices.chance(50)
        condition = self.choices.pick(("pid > 0", "nsecs > 0") if taken else ("pid == 0", "nsecs == 0"))
        outer, alive = self.lines, self.alive
        for head, live in ((f"if ({condition})", taken), (" else", not taken)):
            self.lines, self.alive = [], alive and live
            self.statements(3)
            outer.append(f"{head} {{ {' '.join(self.lines)} }}")
        second = outer.pop()
        outer[-1] += second
        self.lines, self.alive = outer, alive
        self.nesting -= 1

    def statements(self, most: int) -> None:
        """One statement, or several."""
        for number in range(most):
            if not number or self.choices.chance(100 - 100 // most):
                self.choices.pick(_UPDATES if self.silent else _STATEMENTS)(self)
            else:
                break

    def block(self, head: str, most: int, *, maps: bool = True) -> str:
        """A probe; *maps*: it may use new ones."""
        self.lines, self.last = [], []
        while maps and len(self.maps) < 5 and self.choices.chance(70):
            self.add_map()
        self.statements(most)
        return f"{head} {{\n  " + "\n  ".join(self.lines + self.last) + "\n}\n"

    def records(self) -> list[Record]:
        """What the tracer prints when it has handled what waits."""
        found = [record for act in self.waiting for record in act()]
        self.waiting = []
        return found


_STATEMENTS: tuple[Callable[[Maker], None], ...] = (
    *[Maker.store] * 6, *[Maker.fill] * 2, Maker.fill_plainly, *[Maker.step] * 2, Maker.delete, Maker.keep,
    Maker.copy_loop, Maker.empty, Maker.ask, Maker.compare, Maker.print_value, Maker.print_entry, *[Maker.printf] * 2,
    Maker.told, Maker.outside, Maker.shell, *[Maker.print_map] * 3, Maker.print_and_clear, Maker.quantiles,
    Maker.branch, *[Maker.read_word] * 2,
)  # fmt: skip
_UPDATES: tuple[Callable[[Maker], None], ...] = (Maker.store, Maker.store, Maker.store, Maker.fill, Maker.step)


def generate(seed: int | None, given: Sequence[int] = (), programs: str = "") -> Script:
    """The script of *seed*, or of the decisions *given*; *programs* is the folder of the traced programs."""
    choices = Choices(seed, given)
    made = Maker(choices)
    place = choices.pick(PLACES)
    head, arguments = _place(made, place, programs)
    config = _config(made, place)
    blocks = _probes(made, place, head)
    records = made.records()
    if choices.chance(90 if place == "crowd" else 50):
        made.words, made.times, made.silent = [], 1, False
        blocks.append(made.block("end", 8, maps=False))
        records += made.records()
    final = [r for where in sorted(made.maps, key=lambda m: m.name) for r in where.printed(at_end=True)]
    declared = [_declaration(where, choices) for where in made.maps]
    parts = [Enum.DEFINITION, Struct.DEFINITION, config, *declared, *blocks]
    options = ("--unsafe", *(("-B", choices.pick(("none", "full", "line"))) if choices.chance(30) else ()))
    arguments += map(_decoded, made.parameters)
    return Script("\n".join(parts), options, tuple(arguments), records, final, choices.made, programs)


def _place(made: Maker, place: str, programs: str) -> tuple[str, list[str]]:
    """Where the statements run: head of the probe, and the traced command."""
    match place:
        case "exec":
            made.strlen = made.choices.pick((8, 9, 40, 1024, 1024, 5000))
            made.words = [b"/bin/true", *(word for word in (TEXT.pick(made.choices) for _ in range(4)) if word)]
            if made.choices.chance(20):
                made.words.append(b"0123456789" * 700)
            command = " ".join(shlex.quote(_decoded(word)) for word in made.words)
            return "tracepoint:syscalls:sys_enter_execve /pid == cpid/", ["-c", command]
        case "uprobe":
            return f"uprobe:{programs}/calls:inner /pid == cpid/", ["-c", f"{programs}/calls 1"]
        case "crowd":
            made.times, made.silent = 15, True
            head = 'tracepoint:syscalls:sys_enter_getppid /pid == cpid && comm == "flood"/'
            return head, ["-c", f"sh -c 'exec {programs}/flood 5 3 >/dev/null'"]
    return "begin", []


def _config(made: Maker, place: str) -> str:
    parts = []
    if made.strlen != 1024:
        parts.append(f"max_strlen = {made.strlen};")
        if made.strlen < 1024 and made.choices.chance(50):
            # So many that all CPUs share the values of aggregations.
            parts.append("max_map_keys = 70000;")
    elif place != "exec" and made.choices.chance(15):
        made.limit = made.choices.pick((1, 2, 3, 5))
        parts.append(f"max_map_keys = {made.limit};")
    if made.choices.chance(30):
        parts.append(f"on_stack_limit = {made.choices.pick((0, 8, 256))};")
    return f"config = {{ {' '.join(parts)} }}" if parts else ""


def _probes(made: Maker, place: str, head: str) -> list[str]:
    choices = made.choices
    if place == "begin":
        blocks = [made.block(head, 24) for _ in range(1 + choices.chance(20))]
        return [*blocks, "begin { exit(); }\n"]
    blocks = []
    if choices.chance(40):
        # The same maps from another kind of program; nothing is printed here, as the traced process does not wait.
        outer = made.silent, made.times, made.words
        made.silent, made.times, made.words = True, 1, []
        blocks.append(made.block("begin", 5))
        made.silent, made.times, made.words = outer
    return [*blocks, made.block(head, 24)]


def _declaration(where: Map, choices: Choices) -> str:
    if where.key is None or where.limit or choices.chance(80):
        return ""
    several = isinstance(where.value, Aggregation)
    kind = choices.pick(("percpuhash", "percpulruhash") if several else ("hash", "lruhash"))
    return f"let {where.name} = {kind}(9000);\n"


def _decoded(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")
