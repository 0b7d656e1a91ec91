"""Random statements that print."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.support.kinds import (
    BOOL,
    BUFFER,
    INET,
    INT64,
    PAIR,
    TEXT,
    Enum,
    Group,
    Int,
    Kind,
    json_text,
    number,
    quoted,
    some,
)  # fmt: skip
from tests.support.mapped import output
from tests.support.mapped.aggregations import Aggregation, middle
from tests.support.mapped.changes import Changes, forgets
from tests.support.mapped.formats import conversion
from tests.support.mapped.output import Map, Record


class Shown(Changes):
    """Makes statements that print."""

    def ask(self) -> None:
        """``len``, ``has_key`` and ``find``."""
        where = self.pick(lambda m: m.key is not None)
        if where is None:
            return
        key, place = self.key(where)
        inner = self._tuple(place, where)
        graph = isinstance(where.value, Aggregation) and where.value.graph
        form = self.choices.below(3)
        if form == 0 and not graph:
            self.lines.append(f"print(len({where.name}));")
            self.now(output.value(INT64, len(where.held)))
        elif form == 1 and where.readable:
            name = self.fresh()
            kind, shown = where.value, where.held.get(key, where.value.zero)
            if isinstance(kind, Aggregation):
                shown, kind = kind.read(shown), kind.result
            self.lines.append(f"if (find({where.name}, {inner}, {name})) {{ print({name}); }}")
            if key in where.held:
                self.now(output.value(kind, shown))
        else:
            self.lines.append(f"print(has_key({where.name}, {inner}));")
            self.now(output.value(BOOL, key in where.held))

    def compare(self) -> None:
        """An entry with a value."""
        where = self.pick(lambda m: m.value is not BUFFER and m.readable)
        if where is None:
            return
        key, place = self.key(where)
        kind, held = where.value, where.held.get(key, where.value.zero)
        if isinstance(kind, Aggregation):
            held, kind = kind.read(held), kind.result
        value = held if self.choices.chance(50) else self.any_of(kind)
        if kind is PAIR or _has_address(kind):
            # A missing address is none, while the one of zeros is written as 0.0.0.0.
            return
        order = self.choices.pick(("==", "!=", "<", ">", "<=", ">=") if isinstance(kind, Int) else ("==", "!="))
        source = f"({kind.name}){self.given(kind, value)}" if isinstance(kind, Int) else self.mixed(kind, value)
        results = {"==": held == value, "!=": held != value}
        if isinstance(kind, Int):
            results |= {"<": held < value, ">": held > value, "<=": held <= value, ">=": held >= value}
        self.lines.append(f"print({place} {order} {source});")
        self.now(output.value(BOOL, results[order]))

    def print_value(self) -> None:
        kind = some(self.choices) if self.choices.chance(85) else self.choices.pick((BUFFER, PAIR))
        value, source = self.value(kind)
        self.lines.append(f"print({source});")
        self.now(output.value(kind, value))

    def print_entry(self) -> None:
        """An entry by itself, or inside of something."""
        where = self.pick(lambda m: m.key is not None and not (isinstance(m.value, Aggregation) and m.value.graph))
        if where is None:
            return
        key, place = self.key(where)
        kind, shown = where.value, where.held.get(key, where.value.zero)
        if isinstance(kind, Aggregation) and kind.readable:
            shown, kind = kind.read(shown), kind.result
        if where.value is BUFFER and key not in where.held:
            return
        if self.choices.chance(60) or isinstance(kind, Aggregation):
            self.lines.append(f"print({place});")
            self.now(output.value(kind, shown))
        else:
            self.lines.append(f"print((7, {place}));")
            self.now(Record(b"(7, %s)\n" % kind.text(shown), f'{{"type": "value", "data": [7,{kind.json(shown)}]}}'))

    def format(self, start: bytes = b"", end: bytes = b"\n") -> tuple[str, bytes]:
        """Arguments of printf, and what it prints."""
        layout, text, sources = quoted(start)[1:-1], start, ""
        for _ in range(30 if self.choices.chance(3) else self.choices.below(5)):
            kind, value, source = self.readable()
            form, shown = conversion(kind, value, self.choices)
            between = self.choices.pick((b"|", b" ", b"%", b"\xc3\xa9", b"\t"))
            layout += form + ("%%" if between == b"%" else quoted(between)[1:-1])
            text += shown + between
            sources += f", {source}"
        return f'"{layout}{quoted(end)[1:-1]}"{sources}', text + end

    def printf(self) -> None:
        source, text = self.format()
        self.lines.append(f"printf({source});")
        self.now(output.text("printf", text))

    def told(self) -> None:
        """``errorf`` and ``warnf``."""
        what = self.choices.pick(("errorf", "warnf"))
        number = self.choices.below(1000)
        self.lines.append(f'{what}("told %d %s", {number}, "x\\"y");')
        text = b'told %d x"y' % number
        label = b"ERROR: " if what == "errorf" else b"WARNING: "
        self.now(Record(label + text, f'{{"type": "{what}", "msg": {json_text(text)}}}', told=True))

    def outside(self) -> None:
        """What other programs and files print."""
        match self.choices.below(4):
            case 0:
                number = self.choices.below(1000)
                self.lines.append(f"system(\"printf '%%s-%d\\\\n' {'%'}s\", {number}, \"x\");")
                self.now(output.text("syscall", b"x-%d\n" % number, b"\n"))
            case 1:
                self.lines.append('cat("/proc/sys/kernel/%s", "ostype");')
                self.now(output.text("cat", b"Linux\n"))
            case 2:
                self.lines.append('time("%%-t\\n");')
                self.now(output.text("time", b"%-t\n"))
            case _:
                self.lines.append('printf("%5s|\\n", strftime("%%%%", nsecs));')
                self.now(output.text("printf", b"   %%|\n"))

    def shell(self) -> None:
        """A command with a string."""
        kind, value, source = self.readable()
        text = kind.text(value)
        if kind is BUFFER or any(byte < 32 or byte in b"'\\-" for byte in text):
            return
        self.lines.append(f"system(\"echo '%s'\", {source});")
        self.now(output.text("syscall", text + b"\n", b"\n"))

    def read_word(self) -> None:
        """A string of the traced command's arguments."""
        if not self.words:
            self.print_value()
            return
        at = self.choices.below(len(self.words))
        word, limit = self.words[at], self.choices.pick((0, 0, 1, 3, 20, 60))
        taken = word[: min(limit or self.strlen, self.strlen)] if limit else word[: self.strlen]
        source = f"str(args.argv[{at}], {limit})" if limit else f"str(args.argv[{at}])"
        shown = taken + b".." if len(taken) == self.strlen else taken
        match self.choices.below(5):
            case 4:
                size = min(self.choices.below(len(word) + 2), self.strlen) or 1
                self.lines.append(f"print(buf(args.argv[{at}], {size}));")
                self.now(output.value(BUFFER, (word + b"\0")[:size]))
            case 0:
                self.lines.append(f"print({source});")
                self.now(output.value(TEXT, shown))
            case 1:
                self.lines.append(f'printf("[%12s|%-3s]\\n", {source}, {source});')
                self.now(output.text("printf", b"[%s|%s]\n" % (shown.rjust(12), shown.ljust(3))))
            case 2:
                self.lines.append(f"print(strlen({source}));")
                self.now(output.value(INT64, len(taken)))
            case _:
                self.lines.append('join(args.argv, "+");')
                parts = [word[: self.strlen] + (b".." if len(word) >= self.strlen else b"") for word in self.words]
                self.now(output.text("join", b"+".join(parts), b"\n"))

    def print_map(self) -> None:
        where = self.pick(lambda m: True)
        if where is None:
            return
        kind, choices = where.value, self.choices
        name = "print_clear" if choices.chance(15) and not forgets(where) else "print"
        top = choices.pick((0, 0, 1, 2, 3, 100))
        div = choices.pick((0, 1, 2, 3, 1000)) if not isinstance(kind, Enum) else 0
        order = choices.pick(("", "", "key", "-key", "value", "-value")) if where.key is not None else ""
        form = choices.below(3)
        arguments = ["", f", {top}", f", {top}, {div}"][form] if not order else f', {top}, {div}, "{order}"'
        if not arguments:
            top = div = 0
        elif arguments == f", {top}":
            div = 0
        self.lines.append(f"{name}({where.name}{arguments});")

        def act() -> list[Record]:
            found = where.printed(top, div, order)
            if name == "print_clear":
                where.held.clear()
            return found

        self.later(act)

    def print_and_clear(self) -> None:
        """``print`` and ``clear`` in one block, with other output in between."""
        where = self.pick(lambda m: not forgets(m))
        if where is None:
            return
        self.lines.append(f"print({where.name});")
        self.later(where.printed)
        if self.choices.chance(50):
            self.choices.pick((Shown.printf, Shown.outside, Shown.told, Shown.print_value, Shown.store))(self)
        if self.choices.chance(30):
            other = self.choices.pick(self.maps)
            self.lines.append(f"print({other.name}, 2);")
            self.later(lambda: other.printed(2))
        self.lines.append(f"clear({where.name});")

        def act() -> list[Record]:
            where.held.clear()
            return []

        self.later(act)

    def quantiles(self) -> None:
        where = self.pick(lambda m: isinstance(m.value, Aggregation) and m.value.call == "hist")
        if where is None:
            return
        percents = ["50", "90", "99", "99.9"]
        arguments = ""
        if self.choices.chance(60):
            count = 1 + self.choices.below(3)
            percents = [self.choices.pick(("1", "25", "50", "99", "12.5", "99.99")) for _ in range(count)]
            arguments = "".join(f', "{p}"' if "." in p else f", {p}" for p in percents)
        self.lines.append(f"quantiles({where.name}{arguments});")
        self.later(lambda: _quantiles(where, percents))


def _has_address(kind: Kind) -> bool:
    return kind is INET or any(map(_has_address, getattr(kind, "members", ())))


def _quantiles(where: Map, percents: Sequence[str]) -> list[Record]:
    value = where.value
    assert isinstance(value, Aggregation)
    entries = list(where.held.items())
    if not entries:
        return []
    key = where.key
    if key is not None:
        entries.sort(key=lambda item: (len(item[1]), key.order(item[0])))
    texts, members = b"", []
    seen: dict[bytes, int] = {}
    for at, held in entries:
        lines, found = b"", []
        for percent in percents:
            low, high = value.quantile(held, Fraction(percent)) if held else (None, None)
            label = b"p" + percent.encode()
            if not held:
                lines += b"%-8s no data\n" % label
                found.append(f'{{"percentile": {percent}, "value": null, "error": null}}')
                continue
            if low is None or high is None:
                lines += b"%-8s < 0\n" % label
                found.append(f'{{"percentile": {percent}, "value": null, "error": null, "max": -1}}')
                continue
            shown, error = middle(low, high)
            lines += b"%-8s %d%s\n" % (label, shown, " ±%d".encode() % error if error else b"")
            found.append(f'{{"percentile": {percent}, "value": {number(shown)}, "error": {number(error)}, '
                         f'"min": {number(low)}, "max": {number(high)}}}')  # fmt: skip
        texts += (where.name.encode() if key is None else where._place(at)) + b":\n" + lines + b"\n"
        members.append((at, "[" + ",".join(found) + "]"))
    if key is None:
        data = members[0][1]
    else:
        named = []
        for at, member in members:
            text = key.key(at)
            if isinstance(key, Group) and key.members and not key.names:
                text = text[1:-1]
            seen[text] = seen.get(text, 0) + 1
            if seen[text] > 1:
                text += b" #%d" % seen[text]
            named.append(f"{json_text(text)}: {member}")
        data = "{" + ", ".join(named) + "}"
    return [Record(texts, f'{{"type": "quantiles", "data": {{"{where.name}": {data}}}}}')]
