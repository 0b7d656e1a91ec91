"""The words of a command line that belong to a script: the options and operands that it declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.option_values import JOINT, WrongValueError, convert, default
from pytrace.core.options.script_options import ScriptOption, Value


class ScriptWords(msgspec.Struct):
    """The words of the command line for the script *name*, which declares *options*.

    *positional*: whether the script reads ``$1`` …, so that undeclared operands are such parameters.
    """

    name: str
    options: tuple[ScriptOption, ...] = ()
    positional: bool = True
    operands: list[str] = msgspec.field(default_factory=list)
    given: dict[str, list[tuple[str, str | None]]] = msgspec.field(default_factory=dict)
    """For each option that was given, its spellings and texts, in order."""
    bcc_letters: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Letters of pytrace's own options, with the long names of the options that have them in bcc's tool."""
    taken: dict[str, str] = msgspec.field(default_factory=dict)
    """Letters on the command line that are pytrace's own elsewhere, with the long names of pytrace's options."""

    def letter(self, letter: str) -> ScriptOption | None:
        """The option ``-letter``."""
        return next((item for item in self.options if not item.operand and letter in item.letters), None)

    def word(self, word: str) -> ScriptOption | None:
        """The option ``--word``."""
        named = [item for item in self.options if not item.operand]
        # bcc's tools write both --extended_fields and --print-uid; who types the other gets it, too.
        dashed = word.replace("_", "-")
        exact = (item for item in named if word in item.words)
        return next(exact, next((item for item in named if dashed in [w.replace("_", "-") for w in item.words]), None))

    def abbreviated(self, start: str) -> ScriptOption | None:
        """The option whose long name begins with *start*; None if there is none.

        Raises:
            TraceError: there are several.
        """
        named = (item for item in self.options if not item.operand)
        matches = {word: item for item in named for word in item.words if word.startswith(start)}
        if len({item.name for item in matches.values()}) > 1:
            hint = "could be " + ", ".join(f"--{word}" for word in matches)
            raise TraceError(f"option --{start} is ambiguous", hints=(hint,))
        return next(iter(matches.values()), None)

    def is_operand(self, word: str) -> bool:
        """Whether a word that begins with a dash is a negative number, not an option of the script."""
        return bool(self.options) and word[1:].isdigit() and self.letter(word[1]) is None

    def takes_operands(self) -> bool:
        """Whether words without a dash are declared operands, or must not be given."""
        return bool(self.options) and (any(item.operand for item in self.options) or not self.positional)

    def general(self, after: Iterable[str]) -> list[tuple[str, str]]:
        """The operands that are options of pytrace itself, by their names; *after* are the words after ``--``."""
        words = [*self.operands, *(word for word in after if not word.startswith("--"))]
        operands = [item for item in self.options if item.operand]
        pairs = []
        for index, item in enumerate(operands):
            if item.general:
                pairs += [(item.general, word) for word in (words[index:] if item.repeat else words[index : index + 1])]
        return pairs

    def set(self, option: ScriptOption, written: str, text: str | None) -> bool:
        """Record an option. Returns whether it changes the value of an option that is used once."""
        texts = self.given.setdefault(option.name, [])
        again = not option.repeat and bool(texts) and texts[-1][1] != text
        texts.append((written, text))
        return again

    def fit_outputs(self, seconds: float) -> None:
        """Unless a count was given, set that of a script with ``[interval]`` and ``[count]`` to fill the duration.

        The last interval then ends with the run, and no further output follows at once.
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
        """The checked values of all options that were given, as named parameters of the compilation.

        *after* are named parameters after ``--``; those that the script does not declare at its root come last.

        Raises:
            TraceError: a value is invalid, a required operand is missing, or there are too many operands.
        """
        declared = {name: option for option in self.options for name in option.names}
        others = [(name, text) for name, text in after if name not in declared]
        for name, text in after:
            if name in declared:
                self.set(declared[name], f"--{name}", text)
        self._place_operands()
        texts_by_name: list[tuple[str, str | None]] = []
        for option in self.options:
            texts = self.given.get(option.name)
            if not texts or option.general:
                continue
            for written, text in texts:
                self._check(option, written, text)
            joined = JOINT.join(text or "" for _, text in texts) if option.repeat else texts[-1][1]
            texts_by_name.append((option.name, joined))
        return (*texts_by_name, *others)

    def has_typed_values(self) -> bool:
        """Whether a typed option was given, whose value may name something that the machine does not have."""
        return any(option.type and option.name in self.given for option in self.options)

    def values(self) -> dict[str, Value]:
        """The values of all options by name, after :meth:`named` has checked them."""
        values: dict[str, Value] = {}
        for option in self.options:
            texts = [text for _, text in self.given.get(option.name, ())]
            joined = JOINT.join(text or "" for text in texts) if option.repeat else texts[-1] if texts else None
            values[option.name] = convert(option, joined) if texts else default(option)
        return values

    def _place_operands(self) -> None:
        words = list(self.operands)
        for option in self.options:
            if not option.operand:
                continue
            own = words if option.repeat else words[:1]
            for word in own:
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
        """The synopsis line of the usage."""
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
