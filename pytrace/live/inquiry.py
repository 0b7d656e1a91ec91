"""One process that is looked at: its threads, files, sockets, system calls, and where it spends its time."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence

from pytrace.live.glyphs import Glyphs, Line, columns
from pytrace.live.messages import Answer, Command, Question
from pytrace.live.processes import STATES, Processes
from pytrace.results.findings import readable

QUESTIONS: dict[Question, tuple[str, str, tuple[str, ...], str]] = {
    "threads": ("threads", "What do its threads do?", ("TID", "state", "CPU", "CPU time", "name"), "rlrrl"),
    "files": ("files", "Which files has it open?", ("number", "open to", "position", "path"), "rlrl"),
    "sockets": ("sockets", "Whom does it talk to?", ("number", "protocol", "state", "own address", "other address"),
                "rllll"),
    "calls": ("system calls", "Which system calls does it make, and how long do they take?",
              ("calls", "total", "average", "errors", "system call"), "rrrrl"),
    "flame": ("flame graph", "Where does it spend its time?", ("self", "total", "function"), "rrl"),
}  # fmt: skip
"""Of each question its name, its sentence, the headings of its table, and how columns are aligned."""
TRACED: tuple[Question, ...] = ("calls", "flame")
"""Questions whose answer takes a trace of some seconds; others are asked again with each state of the run."""
SECONDS = 5
"""How long a process is traced for an answer."""
FLAMES = 5
"""Roles ``flame0`` … of blocks of a flame graph."""
_ORDER: tuple[Question, ...] = tuple(QUESTIONS)
_GRAPH = 14
"""Lines from which on the flame graph is shown above the functions."""

Stacks = Sequence[tuple[tuple[str, ...], int]]


class Inquiry:
    """What is known of a process so far. Answers come from elsewhere (:class:`pytrace.live.inspector.Inspector`).

    Args:
        pid: the process, or a thread of it.
        processes: what ``/proc`` says.
        glyphs: of the terminal.
        send: sends a command to the run.
    """

    def __init__(self, pid: int, processes: Processes, glyphs: Glyphs, send: Callable[[Command], None]) -> None:
        self.pid = pid
        self.filter = ""
        self.whole_graph = False
        """Whether the flame graph has all lines."""
        self._processes, self._glyphs, self._send = processes, glyphs, send
        process = processes.known(pid)
        self._start = 0 if process is None else process.start
        self._name = "" if process is None else glyphs.text(process.name)
        self._question: Question = _ORDER[0]
        self._answers: dict[Question, Answer] = {}
        self._waiting: Question | None = None
        self._asked = 0.0
        """When it was asked."""
        self._places: list[tuple[int, int, int, Question | int]] = []
        """Where questions and headings of columns were drawn, for clicks: line, from, to."""
        self._cursor = 0
        self._order, self._reverse = 0, False
        self.ask()

    @property
    def question(self) -> Question:
        """The question that is shown."""
        return self._question

    def ask(self) -> None:
        """Ask the question again."""
        self._waiting, self._asked = self._question, time.monotonic()
        self._send(Command("ask", name=self._question, pid=self.pid, start=self._start))

    def turn(self, by: int) -> None:
        """Go to another question, which is asked if it has not been."""
        self.choose(_ORDER[(_ORDER.index(self._question) + by) % len(_ORDER)])

    def choose(self, question: Question) -> None:
        """Go to a question."""
        self._question, self._cursor, self._order, self._reverse = question, 0, 0, False
        if question not in self._answers or question not in TRACED:
            self.ask()

    def refresh(self) -> None:
        """Ask what changes all the time and costs little again."""
        if self._question not in TRACED and self._waiting is None:
            self.ask()

    def take(self, answer: Answer) -> None:
        """Take an answer."""
        if answer.pid == self.pid and answer.start == self._start and not answer.begun:
            self._answers[answer.question] = answer
            if self._waiting == answer.question:
                self._waiting = None

    def move(self, by: int) -> None:
        """Scroll."""
        self._cursor = max(self._cursor + by, 0)

    def turn_order(self, by: int) -> None:
        """Sort by the next column; 0: the other way round."""
        if not by:
            self._reverse = not self._reverse
        count = len(QUESTIONS[self._question][2])
        # One more than there are columns: the order of the answer.
        self._order = (self._order + by) % (count + 1)

    def click(self, column: int, line: int) -> None:
        """Go to the question, or sort by the heading, at a place that was clicked."""
        for at, start, end, what in self._places:
            if at != line or not start <= column < end:
                continue
            if isinstance(what, str):
                self.choose(what)
            else:
                self._reverse = what == self._order and not self._reverse
                self._order = what

    # ---- text

    def lines(self, width: int, height: int) -> list[Line]:
        """The whole screen."""
        fit = self._glyphs.fit
        self._places = []
        head: list[Line] = [[(fit(f" {self._described()}", width), "title")], self._tabs(width)]
        if height < len(head) + 2:
            head, self._places = head[:1], []
        _, sentence, titles, aligned = QUESTIONS[self._question]
        head.append([(fit(f" {self._state(sentence)}", width), "dim")])
        answer = self._answers.get(self._question)
        if answer is None:
            return self._filled(head, height)
        if answer.error:
            return self._filled([*head, [(fit(f" {self._glyphs.text(answer.error)}", width), "error")]], height)
        rows = [tuple(map(self._glyphs.text, row)) for row in answer.rows]
        if self._question == "flame":
            stacks = [(tuple(map(self._glyphs.text, frames)), count) for frames, count in answer.stacks]
            rows = function_rows(stacks)
            room = height - len(head)
            if rows and (self.whole_graph or room >= _GRAPH):
                graph = icicle(stacks, width, room if self.whole_graph else room // 2, self._glyphs)
                head += graph
        body = [] if self.whole_graph and self._question == "flame" else self._table(
            rows, titles, aligned, width, height - len(head), len(head))  # fmt: skip
        return self._filled([*head, *body], height)

    def _filled(self, lines: list[Line], height: int) -> list[Line]:
        return [*lines, *[[]] * (height - len(lines))][:height]

    def _described(self) -> str:
        process = self._processes.known(self.pid)
        name = f"process {self.pid} {self._name}".rstrip()
        if process is None or process.start != self._start:
            return f"{name} has ended"
        facts = (
            STATES.get(process.state, process.state), f"user {self._processes.user_name(process.uid)}",
            readable(process.memory, "bytes"), f"{process.threads} thread{'' if process.threads == 1 else 's'}",
            f"parent {process.parent}", self._glyphs.text(process.command),
        )  # fmt: skip
        return f"{name}: {', '.join(facts)}"

    def _tabs(self, width: int) -> Line:
        texts = {question: f"{number} {name}" for number, (question, (name, *_)) in enumerate(QUESTIONS.items(), 1)}
        shown = list(texts)
        # The one that is chosen is in sight.
        while sum(len(texts[question]) + 2 for question in shown) >= width and shown[0] != self._question:
            del shown[0]
        line: Line = [(" ", "")]
        used = 1
        for question in shown:
            text = texts[question]
            if used + len(text) + 2 > width and question != self._question:
                break
            self._places.append((1, used, used + len(text), question))
            line += [(text, "focus" if question == self._question else "key"), ("  ", "")]
            used += len(text) + 2
        return line

    def _state(self, sentence: str) -> str:
        answer = self._answers.get(self._question)
        if self._waiting == self._question and self._question in TRACED:
            passed = time.monotonic() - self._asked
            return f"{sentence} It is traced for {SECONDS} s{f', asked {passed:.0f} s ago' if passed >= 1 else ''}."
        note = "" if answer is None else self._glyphs.text(answer.note)
        filtered = f", filter {self._glyphs.text(self.filter)!r}" if self.filter else ""
        return f"{sentence} {note}{filtered}"

    def _table(
        self, rows: list[tuple[str, ...]], titles: tuple[str, ...], aligned: str, width: int, height: int, top: int
    ) -> list[Line]:
        """Rows from the first visible one, with headings, which are line *top* of the screen."""
        wanted = self.filter.casefold()
        rows = [row for row in rows if wanted in " ".join(row).casefold()]
        if not rows:
            return [[(self._glyphs.fit(" nothing matches" if self.filter else " none", width), "dim")]]
        if self._order:
            place = self._order - 1
            rows.sort(key=lambda row: _sorting(row[place]), reverse=(aligned[place] == "r") != self._reverse)
        elif self._reverse:
            rows.reverse()
        self._cursor = min(self._cursor, max(len(rows) - max(height - 1, 1), 0))
        shown = rows[self._cursor : self._cursor + max(height - 1, 1)]
        titles = tuple(f"{title}*" if place == self._order - 1 else title for place, title in enumerate(titles))
        sizes = [max(columns(title), *(columns(row[place]) for row in shown)) for place, title in enumerate(titles)]
        sizes[-1] = max(width - sum(sizes[:-1]) - len(sizes), 1)
        lines: list[Line] = []
        for number, row in enumerate((titles, *shown)):
            line: Line = []
            for place, text in enumerate(row):
                left = width - sum(columns(part) for part, _ in line)
                size = min(sizes[place], max(left, 0))
                fitted = self._glyphs.fit(text, size, right=aligned[place] == "r", path="/" in text)
                if not number:
                    self._places.append((top, width - left, width - left + size + 1, place + 1))
                line.append((fitted + (" " if left > size else ""), "heading" if not number else ""))
            lines.append(line)
        return lines[:height]


def _sorting(text: str) -> tuple[float, str]:
    """Texts with a number first by it (``1.2 ms`` after ``3 us``), others by their letters."""
    number, _, unit = text.partition(" ")
    factor = {"": 1.0, "%": 1.0, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}.get(unit)
    try:
        return (float(number.replace(",", "")) * factor, "") if factor is not None else (0.0, text)
    except ValueError:
        return 0.0, text


# ---------------------------------------------------------------------------------------------- stacks


def function_rows(stacks: Stacks) -> list[tuple[str, ...]]:
    """Share of the samples with a function innermost, and anywhere in the stack; the largest of the first first."""
    own: dict[str, int] = {}
    total: dict[str, int] = {}
    for frames, count in stacks:
        if frames:
            own[frames[-1]] = own.get(frames[-1], 0) + count
        for name in set(frames):
            total[name] = total.get(name, 0) + count
    whole = sum(count for _, count in stacks) or 1
    names = sorted(total, key=lambda name: (-own.get(name, 0), -total[name], name))
    return [(f"{100 * own.get(name, 0) / whole:.1f} %", f"{100 * total[name] / whole:.1f} %", name) for name in names]


_CHAIN = 0.95
"""A function is drawn with the one that it calls if that has this share of its samples or more."""


def icicle(stacks: Stacks, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """A flame graph with its root above, in at most *height* lines.

    Blocks are as wide as their share of the samples; what is narrower than a column is left out. Of functions that do
    nothing but call one other there is one block, with the last of them: interpreters and frameworks have dozens.
    """
    whole = sum(count for _, count in stacks)
    lines: list[Line] = []
    level = [(0, 0, [(frames, count) for frames, count in stacks if frames])]
    while level and whole and len(lines) < height:
        line: Line = []
        below: list[tuple[int, int, list[tuple[tuple[str, ...], int]]]] = []
        column = 0
        for start, depth, members in level:
            offset = start
            groups = _grouped(members, depth)
            for name, group in sorted(groups.items(), key=lambda item: (-_samples(item[1]), item[0])):
                count = _samples(group)
                left, right = offset * width // whole, (offset + count) * width // whole
                if right > left:
                    chain, inside = _chain(group, depth, count, name)
                    line += [(" " * (left - column), ""), _block(_label(chain, right - left), right - left, glyphs)]
                    column = right
                    below.append((offset, depth + len(chain), inside))
                offset += count
        if not below:
            break
        lines.append(line)
        level = below
    return lines


_Members = list[tuple[tuple[str, ...], int]]


def _samples(members: _Members) -> int:
    return sum(count for _, count in members)


def _grouped(members: _Members, depth: int) -> dict[str, _Members]:
    """Stacks by the function at a depth; those that end above it are in none."""
    groups: dict[str, _Members] = {}
    for frames, count in members:
        if len(frames) > depth:
            groups.setdefault(frames[depth], []).append((frames, count))
    return groups


def _chain(members: _Members, depth: int, count: int, name: str) -> tuple[list[str], _Members]:
    """The functions from one down, as long as each does little but call one other; and the stacks of the last."""
    chain = [name]
    while True:
        groups = _grouped(members, depth + len(chain))
        largest = max(groups, key=lambda item: _samples(groups[item]), default="")
        if not groups or _samples(groups[largest]) < _CHAIN * count:
            return chain, members
        chain.append(largest)
        members = groups[largest]


def _label(chain: list[str], width: int) -> str:
    """The last functions of a chain, as many as there is room for, and how many are before them."""
    shown = 1
    while shown <= len(chain):
        rest = len(chain) - shown
        text = (f"(+{rest}) " if rest else "") + " > ".join(chain[-shown:])
        if columns(text) > width - 1:
            break
        shown += 1
    rest = len(chain) - max(shown - 1, 1)
    return chain[-1] if shown == 1 else (f"(+{rest}) " if rest else "") + " > ".join(chain[rest:])


def _block(name: str, width: int, glyphs: Glyphs) -> tuple[str, str]:
    """A block of a flame graph; without colours its borders show."""
    if glyphs.colour:
        return glyphs.fit(name, width), f"flame{zlib.crc32(name.encode('utf-8', 'surrogateescape')) % FLAMES}"
    return "|" + (glyphs.fit(name, width - 1) if width > 1 else ""), ""
