"""Output about scripts that are not run: their usage, parameters and text, and the list of ``--examples``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from pytrace.cli import documents, messages, request, tools
from pytrace.cli.options import OPTIONS, CommandLine, Option
from pytrace.cli.request import Script
from pytrace.cli.script_options import ScriptWords
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.manifest import CompiledScript
from pytrace.core.script_options import ScriptOption, Value
from pytrace.core.source import Source

COLUMN = 30
"""Column of the help texts of options."""


def show(line: CommandLine) -> int:
    """Print the tools, or the usage or text of a script (``-h``, ``--show-script``). Returns the exit status."""
    if line.flag("tools"):
        messages.write_pages(tools.listing(" ".join(line.operands)))
        return 0
    if line.usage:
        messages.write_pages(_usage(line, line.words or _plain_words(line)))
        return 0
    script = request.script(line)
    if script.compiled is not None:
        raise TraceError("the file is already compiled; --show-script needs the script that it was made from")
    text = script.source.text
    if line.tool and script.source.path is None:
        text = _formatted(script.source)
    messages.write_output(text.encode("utf-8", "surrogateescape"), raw=line.flag("raw"))
    return 0


def _plain_words(line: CommandLine) -> ScriptWords:
    """Usage parts of a script that declares no options."""
    text = line.script[0].text if line.script is not None else line.text("program") or ""
    compiled = line.script is not None and line.script[1] is not None
    reads = compiled or "getopt" in text or any(f"${sign}" in text for sign in "#0123456789")
    return ScriptWords(line.tool or line.operands[0], positional=reads and not line.tool)


def _formatted(source: Source) -> str:
    from pytrace.frontend.syntax import formatter  # few ask for it

    diagnostics = Diagnostics()
    text = formatter.format_source(source, diagnostics)
    messages.check(diagnostics)
    return text


def _usage(line: CommandLine, words: ScriptWords) -> str:
    """The text of ``NAME -h``."""
    if line.tool and line.script is None:
        tool = tools.translated()[tools.resolve(line.tool)[0]]
        examples = "\n".join(f"  {text}".rstrip() for text in tool.examples.strip("\n").split("\n"))
        return usage_text(words, f"{line.tool}: {tool.summary}\n\nExamples:\n{examples}", common_options())
    source, compiled = line.script or (Source("stdin", line.text("program") or ""), None)
    if compiled is not None:
        from pytrace.runtime.load import ahead_of_time  # a compiled file

        return ahead_of_time.usage(CompiledScript.from_bytes(compiled), source.name)
    parameters = _parameters(source, words) if "getopt" in source.text else ""
    return usage_text(words, header(source.text), common_options(), parameters)


def common_options() -> list[Option]:
    """The options of pytrace that the usage of a script lists."""
    return [row for row in OPTIONS if row.group in ("process", "output") and not row.rare and not row.hidden]


def _parameters(source: Source, words: ScriptWords | None) -> str:
    """Help about bpftrace's named parameters (``getopt``), without the options that *words* and imports declare.

    For None the whole output of ``FILE -- --help``.
    """
    from pytrace.frontend.expand import parameters  # the parser
    from pytrace.frontend.syntax import parser

    diagnostics = Diagnostics()
    program = parser.parse(source, diagnostics)
    messages.check(diagnostics)
    if words is None:
        return parameters.help_text(program, source.name)
    options = {name for option in words.options for name in option.names}
    used = [item for item in parameters.used_parameters(program) if item.name not in options]
    return parameters.help_lines(used) if used else ""


def parameters_help(line: CommandLine, script: Script) -> int:
    """Print the output of ``FILE -- --help``: the parameters, or the usage of a script that declares options."""
    sys.stdout.write(_parameters(script.source, None) if line.words is None else _usage(line, line.words))
    return 0


def usage_text(words: ScriptWords, head: str, common: Iterable[Option], parameters: str = "") -> str:
    """The usage text.

    Args:
        words: the name of the script, and its options.
        head: the comment at its top (:func:`header`).
        common: options of pytrace; letters that the script has itself are left out.
        parameters: lines about named parameters, in the language of bpftrace.
    """
    named = sorted((item for item in words.options if not item.operand), key=_is_accepted_only)
    operands = [item for item in words.options if item.operand]
    letters = {letter for item in named for letter in item.letters}
    taken_words = {word for item in named for word in item.words}
    parts = [words.synopsis() + "\n"]
    if head:
        parts.append(f"{head}\n")
    if operands:
        parts.append("Operands:\n" + "".join(_line(item.general or item.name, explained(item)) for item in operands))
    if named:
        parts.append("Options:\n" + "".join(_line(_spelled(item), _with_letter(item, words)) for item in named))
    if parameters:
        parts.append(f"Parameters, after --:\n{parameters}")
    lines = []
    for item in common:
        letter = "" if item.short in letters else item.short
        if item.long not in taken_words:
            lines.append(_line(_names(letter, [item.long], item.arguments), item.help))
    if lines:
        more = "`pytrace --help` lists all; with a letter that the script uses itself, give the long name.\n"
        parts.append("Options of all scripts:\n" + "".join(lines) + more)
    return "\n".join(parts)


def _is_accepted_only(option: ScriptOption) -> bool:
    """Whether an option is known for the sake of command lines of other tools, and does nothing."""
    return option.help.startswith(("no effect", "refused"))


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


def examples_folder() -> str:
    """Directory of the scripts, beside the documents; empty if there is none."""
    place = documents.folder()
    return str(place / "examples") if place is not None and (place / "examples").is_dir() else ""


def examples() -> str:
    """The text of ``--examples``: the directory, then each script with the question that it answers."""
    place = examples_folder()
    if not place:
        return "This copy of pytrace has no example scripts.\n"
    names = sorted(name for name in os.listdir(place) if name.endswith(".bt"))
    width = max(map(len, names), default=0)
    rows = [f"  {name:<{width}}  {_question(os.path.join(place, name))}".rstrip() for name in names]
    return "\n".join([place, *rows, "", "The comment at the top of each script shows its usage.", ""])


def _question(path: str) -> str:
    """The first line of the comment at the top of a script."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            text = line.strip(" */\n")
            if text and not line.startswith("#!"):
                return text
    return ""
