"""The usage of one script or tool: ``pytrace NAME -h``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pytrace.cli.scripts.words import ScriptWords
from pytrace.core.options.script_options import ScriptOption, Value

COLUMN = 30
"""Column of the help texts of options."""


class CommonOption(msgspec.Struct, frozen=True):
    """An option that all scripts have: letter and long name without dashes, argument, and help text."""

    letter: str
    word: str
    argument: str
    help: str


def text(words: ScriptWords, header: str, common: Iterable[CommonOption], parameters: str = "") -> str:
    """The usage text.

    Args:
        words: the name of the script, and its options.
        header: the comment at its top (:func:`header`).
        common: options of pytrace; letters that the script has itself are left out.
        parameters: lines about named parameters, in the language of bpftrace.
    """
    named = [item for item in words.options if not item.operand]
    operands = [item for item in words.options if item.operand]
    letters = {letter for item in named for letter in item.letters}
    taken_words = {word for item in named for word in item.words}
    parts = [words.synopsis() + "\n"]
    if header:
        parts.append(f"{header}\n")
    if operands:
        parts.append("Operands:\n" + "".join(_line(item.general or item.name, explained(item)) for item in operands))
    if named:
        parts.append("Options:\n" + "".join(_line(_spelled(item), _with_letter(item, words)) for item in named))
    if parameters:
        parts.append(f"Parameters, after --:\n{parameters}")
    lines = []
    for item in common:
        letter = "" if item.letter in letters else item.letter
        if item.word not in taken_words:
            lines.append(_line(_names(letter, [item.word], item.argument), item.help))
    if lines:
        more = "`pytrace --help` lists all; with a letter that the script uses itself, give the long name.\n"
        parts.append("Options of all scripts:\n" + "".join(lines) + more)
    return "\n".join(parts)


def header(script: str) -> str:
    """The text of the comment at the top of a script, without comment markers."""
    lines = script.split("\n")
    if lines and lines[0].startswith("#!"):
        del lines[0]
    while lines and not lines[0].strip():
        del lines[0]
    if not lines:
        return ""
    comment = _block(lines) if lines[0].lstrip().startswith("/*") else _lines(lines)
    return "\n".join(comment).strip("\n")


def _block(lines: Sequence[str]) -> list[str]:
    bodies = []
    for number, line in enumerate(lines):
        body, closed, _ = line.partition("*/")
        body = body.lstrip().removeprefix("/*").removeprefix("*") if number == 0 else _without_star(body)
        bodies.append(body)
        if closed:
            break
    return [bodies[0].strip(), *_outdented(bodies[1:])]


def _without_star(line: str) -> str:
    inner = line.lstrip()
    return inner[1:] if inner.startswith("*") else line


def _lines(lines: Sequence[str]) -> list[str]:
    bodies = []
    for line in lines:
        if not line.startswith("//"):
            break
        bodies.append(line[2:])
    return _outdented(bodies)


def _outdented(lines: list[str]) -> list[str]:
    """The lines without their common indentation."""
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[margin:].rstrip() for line in lines]


def _line(left: str, right: str) -> str:
    gap = "\n" + " " * (COLUMN + 2) if len(left) > COLUMN - 2 else " " * (COLUMN - len(left))
    return f"  {left}{gap}{right}".rstrip() + "\n"


def _spelled(item: ScriptOption) -> str:
    argument = item.argument + ("..." if item.repeat else "")
    first, *others = (*item.letters, *item.words)
    return _names(first, others, argument) if len(first) == 1 else _names("", [first, *others], argument)


def _names(letter: str, words: Sequence[str], argument: str) -> str:
    letters = [f"-{letter}"] if letter else []
    names = ", ".join([*letters, *(f"-{word}" if len(word) == 1 else f"--{word}" for word in words)])
    return f"{names if letter else '    ' + names} {argument}".rstrip()


def _with_letter(item: ScriptOption, words: ScriptWords) -> str:
    """The help text of an option, and its letter in bcc if that is another option here."""
    letters = [letter for letter, word in words.bcc_letters.items() if word in item.words]
    return explained(item) + "".join(f" [bcc: -{letter}]" for letter in letters)


def explained(item: ScriptOption) -> str:
    """The help text of an option, with its choices and its default."""
    notes = []
    if item.choices:
        notes.append(("some of " if item.listed else "one of ") + ", ".join(item.choices))
    # 0 and less stand for "not given", which the help text describes.
    shown = item.default > 0 if isinstance(item.default, int) else item.default != ""
    if not isinstance(item.default, bool) and shown and not item.required:
        notes.append(f"default: {_shown(item.default)}")
    elif item.default is True:
        notes.append("default: true")
    return " ".join(part for part in (item.help, f"({'; '.join(notes)})" if notes else "") if part)


def _shown(value: Value) -> str:
    return str(value).replace("\n", " ")
