"""The words of a command line that belong to a script: the options and operands that it declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.option_values import JOINT, WrongValueError, convert, default

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytrace.core.options.script_options import ScriptOption, Value


class ScriptWords(msgspec.Struct):
    """What the command line says to the script *name*, which declares *options*.

    *positional*: the script reads ``$1`` …, so operands without a declaration are such parameters.
    """

    name: str
    options: tuple[ScriptOption, ...] = ()
    positional: bool = True
    operands: list[str] = msgspec.field(default_factory=list)
    given: dict[str, list[tuple[str, str | None]]] = msgspec.field(default_factory=dict)
    """For each option that was given, how it was written and its text, in order."""
    bcc_letters: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Letters that are pytrace's own in every tool, with the long names of what bcc's tool has under them."""
    taken: dict[str, str] = msgspec.field(default_factory=dict)
    """Letters that were given and would have been pytrace's own, with the long names of those."""

    def letter(self, letter: str) -> ScriptOption | None:
        """The option ``-letter``."""
        return next((item for item in self.options if not item.operand and letter in item.letters), None)

    def word(self, word: str) -> ScriptOption | None:
        """The option ``--word``."""
        return next((item for item in self.options if not item.operand and word in item.words), None)

    def abbreviated(self, start: str) -> ScriptOption | None:
        """The only option whose long name begins with *start*.

        Raises:
            TraceError: there are several.
        """
        named = (item for item in self.options if not item.operand)
        found = {word: item for item in named for word in item.words if word.startswith(start)}
        if len({item.name for item in found.values()}) > 1:
            hint = "could be " + ", ".join(f"--{word}" for word in found)
            raise TraceError(f"option --{start} is ambiguous", hints=(hint,))
        return next(iter(found.values()), None)

    def is_operand(self, word: str) -> bool:
        """Whether a word that begins with a dash is a negative number and no option of the script."""
        return bool(self.options) and word[1:].isdigit() and self.letter(word[1]) is None

    def takes_operands(self) -> bool:
        """Whether words without a dash are operands that it declares, or must not be given."""
        return bool(self.options) and (any(item.operand for item in self.options) or not self.positional)

    def general(self, after: Iterable[str]) -> list[tuple[str, str]]:
        """The operands that are options of pytrace itself, by their names; *after* are the words after ``--``."""
        words = [*self.operands, *(word for word in after if not word.startswith("--"))]
        operands = [item for item in self.options if item.operand]
        found = []
        for at, item in enumerate(operands):
            if item.general:
                found += [(item.general, word) for word in (words[at:] if item.repeat else words[at : at + 1])]
        return found

    def set(self, option: ScriptOption, written: str, text: str | None) -> bool:
        """Record an option; True when that is another value than before for one that is used once."""
        texts = self.given.setdefault(option.name, [])
        again = not option.repeat and bool(texts) and texts[-1][1] != text
        texts.append((written, text))
        return again

    def fit_outputs(self, seconds: float) -> None:
        """Ask a script that takes ``[interval]`` and ``[count]``, and got no count, for those that fill the duration.

        The last one is then the end of the run: what the next moment brings would be an output of its own.
        """
        operands = [option for option in self.options if option.operand]
        if [option.name for option in operands] != ["interval", "count"] or len(self.operands) > 1:
            return
        try:
            interval = convert(operands[0], self.operands[0]) if self.operands else default(operands[0])
        except WrongValueError:
            return  # reported with the others
        duration = round(seconds * 1e9)
        if isinstance(interval, int) and interval > 0 and duration > 0 and not duration % interval:
            self.set(operands[1], "count", str(duration // interval))

    def named(self, after: Iterable[tuple[str, str | None]]) -> tuple[tuple[str, str | None], ...]:
        """The values of all options that were given, as parameters of the compilation, checked.

        *after* are named parameters after ``--``; those that the script declares at its root are among the result,
        the others come last.

        Raises:
            TraceError: a value is wrong, a required operand is missing, or there are too many operands.
        """
        known = {name: option for option in self.options for name in option.names}
        others = [(name, text) for name, text in after if name not in known]
        for name, text in after:
            if name in known:
                self.set(known[name], f"--{name}", text)
        self._place_operands()
        found: list[tuple[str, str | None]] = []
        for option in self.options:
            texts = self.given.get(option.name)
            if not texts or option.general:
                continue
            for written, text in texts:
                self._check(option, written, text)
            joined = JOINT.join(text or "" for _, text in texts) if option.repeat else texts[-1][1]
            found.append((option.name, joined))
        return (*found, *others)

    def has_typed_values(self) -> bool:
        """Whether an option was given that has a type, whose values may name what the machine does not have."""
        return any(option.type and option.name in self.given for option in self.options)

    def values(self) -> dict[str, Value]:
        """The values of all options by name, after :meth:`named` has checked them."""
        found: dict[str, Value] = {}
        for option in self.options:
            texts = [text for _, text in self.given.get(option.name, ())]
            joined = JOINT.join(text or "" for text in texts) if option.repeat else texts[-1] if texts else None
            found[option.name] = convert(option, joined) if texts else default(option)
        return found

    def _place_operands(self) -> None:
        words = list(self.operands)
        for option in self.options:
            if not option.operand:
                continue
            taken = words if option.repeat else words[:1]
            for word in taken:
                self.set(option, option.name, word)
            words = [] if option.repeat else words[1:]
            if option.required and option.name not in self.given:
                raise TraceError(f"{self.name} needs <{option.general or option.name}>", hints=(self.synopsis(),))
        if words:
            raise TraceError(f"unexpected operand {words[0]!r}", hints=(*self._taken_letters(), self.synopsis()))

    def _taken_letters(self) -> tuple[str, ...]:
        """Hints about flags that were given by a letter that means another option of pytrace elsewhere."""
        flags = (written for texts in self.given.values() for written, text in texts if text is None)
        return tuple(f"pytrace's own {word} is --{self.taken[word]} here" for word in flags if word in self.taken)

    def _check(self, option: ScriptOption, written: str, text: str | None) -> None:
        try:
            convert(option, text)
        except WrongValueError as wrong:
            what = "operand" if option.operand else "option"
            hints = wrong.hints
            if written in self.taken and (option.type or not hints):
                hints = (*hints, f"pytrace's own {written} is --{self.taken[written]} here")
            raise TraceError(f"{what} {written} needs {wrong.shown(text)}", hints=hints) from None

    def synopsis(self) -> str:
        """The line of the usage that shows how the script is started."""
        words = [f"usage: pytrace {self.name}"]
        if any(not item.operand for item in self.options):
            words.append("[options]")
        for item in self.options:
            if item.operand:
                more = "..." if item.repeat else ""
                name = (item.general or item.name) + more
                words.append(f"<{name}>" if item.required else f"[{name}]")
        if not self.takes_operands() and self.positional:
            words.append("[parameters] [-- parameters]")
        return " ".join(words)
