"""``pytrace --complete SHELL LINE``: completion candidates at the cursor, for the shells (``share/completions``).

Output is one line per candidate: its text, a tab, and its description. A line ``:files`` or ``:folders`` asks the shell
to complete names of files or directories itself.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from pytrace.base import kernel_files
from pytrace.base.control_characters import printable_text
from pytrace.cli import documents, request, script_options, tools
from pytrace.cli.commands import COMMANDS
from pytrace.cli.options import OPTIONS, SHORTCUTS, SUBCOMMANDS, Option
from pytrace.cli.script_options import names, offered
from pytrace.core import script_files
from pytrace.core.builtins import BUILTINS
from pytrace.core.diagnostics import Diagnostics, TraceError
from pytrace.core.kernel_info import FEATURES
from pytrace.core.options import STREAMED, RunOptions
from pytrace.core.probe_kinds import (
    BEGIN,
    CALL,
    CALL_FAMILIES,
    END,
    INTERVAL,
    PROBE_KINDS,
    PROFILE,
    SYSCALL,
    is_call,
    probe_kind,
    split_attach_point,
)
from pytrace.core.script_options import ScriptOption
from pytrace.multitools.table import TOOLS
from pytrace.results import file_form
from pytrace.results.formats import table

_BREAKS = ":=@<>"
"""The word breaks of bash (COMP_WORDBREAKS) that occur in words of pytrace outside of quotes."""

Candidate = tuple[str, str]
"""The text of the whole word, and its description."""

MOST_NAMES = 2000
"""Maximum number of names that are offered."""

Listing = Callable[[str], Iterable[str]]
"""Returns the probes that match a pattern, as ``pytrace -l`` prints them."""


FILES, FOLDERS = ":files", ":folders"

_SHOWN = tuple(row for row in OPTIONS if not row.hidden)

class Typed(msgspec.Struct, frozen=True):
    """The words before the cursor: *words* are complete, without quotes; *current* is the one at the cursor."""

    words: tuple[str, ...]
    current: str
    quote: str
    """The quotation mark that is still open, or empty."""
    quoted: int = 0
    """Offset in *current* at which it was opened."""

    def after_break(self) -> int:
        """Offset of the part of *current* that bash replaces: after the last break, or after the open quote."""
        if self.quote:
            return self.quoted
        return max(self.current.rfind(sign) for sign in _BREAKS) + 1


def split(line: str) -> Typed:
    """Split *line*, which ends at the cursor."""
    words: list[str] = []
    current, quote, quoted, started, index = "", "", 0, False, 0
    while index < len(line):
        sign = line[index]
        index += 1
        if quote:
            if sign == quote:
                quote = ""
            elif sign == "\\" and quote == '"' and line[index : index + 1] in ('"', "\\", "$", "`"):
                current += line[index]
                index += 1
            else:
                current += sign
        elif sign in "'\"":
            quote, quoted, started = sign, len(current), True
        elif sign == "\\" and index < len(line):
            current += line[index]
            started, index = True, index + 1
        elif sign.isspace():
            if started:
                words.append(current)
            current, started = "", False
        else:
            current, started = current + sign, True
    return Typed(tuple(words), current, quote, quoted)


_SPECIAL = {"": frozenset(";&|<>()$`\"'\\ \t"), '"': frozenset('"$`\\'), "'": frozenset("'")}
"""What means something to a shell, by the quotes that are open (sh(1), "Quoting")."""


def _is_harmless(added: str, quote: str) -> bool:
    """Whether text may be put on the command line: names of processes, symbols and files are chosen by others, who
    could have a command run (``firefox;reboot``).
    """
    # The parenthesis of a call only makes what was typed an error.
    return printable_text(added) == added and _SPECIAL[quote].isdisjoint(added.removesuffix("("))


class _Context(msgspec.Struct):
    """State after the words before the cursor."""

    options: tuple[ScriptOption, ...] = ()
    """Options of the script or tool that was named."""
    named: bool = False
    subcommand: str = ""
    listing: bool = False
    pending: Option | ScriptOption | None = None
    """The option whose argument the current word is."""
    operands: list[str] = msgspec.field(default_factory=list)


def answer(shell: str, line: str) -> str:
    """The lines for *shell* (``bash``, ``zsh`` or ``fish``); *line* ends at the cursor."""
    typed = split(line)
    try:
        entries = list(_candidates(typed))
    except (TraceError, OSError):
        # Completion cannot show messages.
        return ""
    skip = typed.after_break() if shell == "bash" else 0
    lines = []
    for text, what in entries:
        if text in (FILES, FOLDERS):
            lines.append(text)
        elif text.startswith(typed.current) and _is_harmless(text[len(typed.current) :], typed.quote):
            lines.append(text[skip:] if shell == "bash" else f"{text}\t{printable_text(what)}")
    lines = list(dict.fromkeys(lines))
    if shell == "bash" and typed.quote and len(lines) == 1 and lines[0] not in (FILES, FOLDERS):
        # bash closes the quote after a word that is the only one, though most programs go on.
        lines.append(f"{lines[0]} ")
    return "".join(f"{text}\n" for text in lines)


def _candidates(typed: Typed) -> Iterator[Candidate]:
    context = _context(typed.words[1:])
    current = typed.current
    if context.subcommand:
        yield from _subcommand_words(context, typed)
        return
    if context.pending is not None:
        yield from _arguments(context.pending, current)
        return
    if current.startswith("-"):
        long, equals, value = current.partition("=")
        if equals:
            option = _find(context, long)
            if option is not None:
                arguments = _arguments(option, value)
                yield from ((f"{long}={text}", what) for text, what in arguments if text[:1] != ":")
            return
        yield from _options(context)
    elif context.listing:
        yield from ((text, "") for text in attach_points(current, _probe_names))
    elif not context.named:
        yield from _first_words()
        yield FILES, ""
    else:
        yield from _operands(context, current)


def _context(words: Sequence[str]) -> _Context:
    context = _Context()
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if context.subcommand:
            context.operands.append(word)
            continue
        if word.startswith("-") and word != "-":
            option = _find(context, word.partition("=")[0])
            context.listing |= isinstance(option, Option) and option.key == "list"
            context.named |= isinstance(option, Option) and option.key == "program"
            if option is not None and option.argument and "=" not in word:
                if index == len(words):
                    context.pending = option
                index += 1
        elif not context.named and not context.listing:
            _set_name(context, word)
        else:
            context.operands.append(word)
    return context


def _set_name(context: _Context, word: str) -> None:
    """The first operand: a subcommand, a tool, or a file."""
    if word in SUBCOMMANDS:
        context.subcommand = word
        return
    context.named = True
    context.options = _declared(word)


def _declared(word: str) -> tuple[ScriptOption, ...]:
    real, _ = tools.resolve(word)
    if real in tools.TRANSLATED:
        return TOOLS[real].options
    path = (tools.path(real) if tools.is_name(word) else "") or word
    try:
        return script_options.of(script_files.text(path, word), Diagnostics()).options
    except OSError:
        return ()


def _find(context: _Context, word: str) -> Option | ScriptOption | None:
    """The option that *word* names, the script's first; of several joined letters, the last."""
    if word.startswith("--"):
        own = next((item for item in context.options if not item.operand and word[2:] in item.words), None)
        return own or next((row for row in _SHOWN if row.long and row.long == word[2:]), None)
    letter = word[-1]
    own = next((item for item in context.options if not item.operand and letter in item.letters), None)
    return own or next((row for row in _SHOWN if row.short == letter), None)


def _options(context: _Context) -> Iterator[Candidate]:
    used: set[str] = set()
    for item in context.options:
        if not item.operand:
            for name in (*item.words, *item.letters):
                used.add(name)
                yield f"--{name}" if len(name) > 1 else f"-{name}", item.help
    for row in _SHOWN:
        if row.long and row.long not in used:
            yield f"--{row.long}", row.help
        if row.short and row.short not in used:
            yield f"-{row.short}", row.help


def _first_words() -> Iterator[Candidate]:
    yield from SUBCOMMANDS.items()
    yield from SHORTCUTS.items()
    for _, name, summary in tools.rows():
        yield name, summary
    names = {name for _, name, _ in tools.rows()}
    yield from ((alias, " ".join(words)) for alias, words in tools.ALIASES.items() if words[0] in names)


def _operands(context: _Context, current: str) -> Iterator[Candidate]:
    operands = [item for item in context.options if item.operand]
    index = min(len(context.operands), len(operands) - 1)
    if not operands or (index < len(context.operands) and not operands[index].repeat):
        yield FILES, ""
        return
    item = operands[index]
    same = next((row for row in _SHOWN if row.long == item.general), None) if item.general else None
    if same is not None:
        yield from _arguments(same, "")
    elif item.choices:
        yield from ((choice, item.help) for choice in item.choices)
    else:
        yield from _typed_values(item, current)


def _typed_values(option: ScriptOption, current: str) -> Iterator[Candidate]:
    """Candidates for an option or operand of a script, by its type; untyped text may be a file."""
    # In a list, the last entry is completed.
    before = current[: current.rfind(",") + 1] if option.listed else ""
    if option.type == "pid":
        yield from ((f"{before}{pid}", name) for pid, name in _processes())
    elif option.type:
        yield from ((f"{before}{name}", "") for name in offered(option.type))
    elif not option.choices and isinstance(option.default, str):
        yield FILES, ""


def _arguments(option: Option | ScriptOption, current: str) -> Iterator[Candidate]:
    """Candidates for the argument of an option."""
    if isinstance(option, ScriptOption):
        yield from ((choice, "") for choice in option.choices)
        yield from _typed_values(option, current)
        return
    yield from ((choice, "") for choice in option.choices)
    yield from _argument_names(option.names, current)


def _argument_names(what: str, current: str) -> Iterator[Candidate]:
    """What :attr:`Option.names` says that an argument names."""
    match what:
        case "file":
            yield FILES, ""
        case "folder":
            yield FOLDERS, ""
        case "program":
            yield from ((text, "") for text in program_candidates(current, _probe_names))
        case "command":
            yield from ((text, "") for text in _command_line(current))
        case "process":
            before = current[: current.rfind(",") + 1]
            yield from ((f"{before}{pid}", name) for pid, name in _processes())
        case "thread":
            yield from ((name, "") for name in sorted({name for _, name in _processes()}))
        case "user":
            yield from ((entry.pw_name, str(entry.pw_uid)) for entry in pwd.getpwall())
        case "namespace":
            yield from ((name, "network namespace") for name in names("/run/netns"))
        case "format":
            yield from ((name, "") for name in dict.fromkeys((*STREAMED, *(row.name for row in table.FORMATS))))
        case "feature":
            yield from ((name, "") for name in FEATURES)
        case "":
            return
        case _:
            raise ValueError(what)


def _command_line(text: str) -> Iterator[str]:
    """Completions of a command by its last word: programs and directories for its first word, files for the others."""
    word = text.rpartition(" ")[2]
    before, folder = text[: len(text) - len(word)], word[: word.rfind("/") + 1]
    first = not before.strip()
    if first and not folder:
        for place in os.get_exec_path():
            yield from (f"{before}{name}" for name in names(place) if os.access(f"{place}/{name}", os.X_OK))
    for name in names(folder or "."):
        # Names that need quotes are left out, as the command may be in quotes itself.
        if shlex.quote(name) != name or (name[0] == "." and word[len(folder) :][:1] != "."):
            continue
        if os.path.isdir(folder + name):
            yield f"{before}{folder}{name}/"
        elif not first or (folder and os.access(folder + name, os.X_OK)):
            yield f"{before}{folder}{name}"


def _processes() -> Iterator[tuple[str, str]]:
    for pid in sorted((name for name in os.listdir("/proc") if name.isdigit()), key=int):
        if name := kernel_files.process_name(pid):
            yield pid, name


def _subcommand_words(context: _Context, typed: Typed) -> Iterator[Candidate]:
    before, rows = context.operands[-1] if context.operands else "", COMMANDS[context.subcommand].shown
    pending = next((row for row in rows if row.argument and before in (f"-{row.short}", f"--{row.long}")), None)
    if pending is not None and pending.key == "map":
        yield from _maps(context.operands)
    elif pending is not None and not pending.alone:
        yield from _arguments(pending, typed.current)
    elif typed.current.startswith("-"):
        yield from ((f"--{row.long}", row.help) for row in rows)
        yield "--help", "show the usage"
    elif context.subcommand == "help":
        yield from ((name, documents.title(path)) for name, path in documents.pages().items())
    else:
        yield FILES, ""


def _maps(words: Sequence[str]) -> Iterator[Candidate]:
    for word in words:
        if os.path.isfile(word):
            with file_form.opened(word) as snapshot:
                yield from ((name, "map") for name in snapshot.maps)


def _probe_names(pattern: str) -> Iterable[str]:
    from pytrace.runtime.load import listing  # names of probes alone

    return listing.listing(request.live_kernel(RunOptions()), pattern).split()


# ---------------------------------------------------------------------------------------------- text of programs


_SEPARATORS = re.compile(r"[\s{}()<>,;/=!&|+]")

_PREDICATE = re.compile(r"\s/[^/]*$")
"""The start of a predicate: its slash follows white space, unlike those of paths."""


def program_candidates(text: str, listing: Listing) -> list[str]:
    """Completions of *text*, which ends at the cursor."""
    last = max((match.end() for match in _SEPARATORS.finditer(text)), default=0)
    # The path of a binary contains separators itself.
    point = re.search(r"(?:^|[\s,}>])(\w+:/[^\s,{<]*)$", text)
    if point is not None:
        last = point.start(1)
    before, token = text[:last], text[last:]
    if before.count("{") > before.count("}") or _PREDICATE.search(before.rpartition("}")[2]):
        completions: Iterable[str] = _names_in_body(before, token)
    else:
        completions = attach_points(token, listing)
    return [before + item for item in completions]


def _names_in_body(before: str, token: str) -> Iterator[str]:
    if token.startswith("@"):
        yield from sorted({name for name in re.findall(r"@\w*", before) if name.startswith(token) and name != token})
        return
    for row in BUILTINS:
        if row.name.startswith(token) and token:
            yield row.name if row.value else f"{row.name}("


# ---------------------------------------------------------------------------------------------- attach points


def attach_points(token: str, listing: Listing) -> list[str]:
    """Completions of the attach point *token* by one more part."""
    provider, *parts = split_attach_point(token)
    if not parts:
        return sorted(_providers(provider))
    kind = probe_kind(provider)
    if kind is None and not is_call(token):
        return []
    families = [name for name in CALL_FAMILIES if provider == CALL and name.startswith(parts[0])]
    if families and len(parts) == 1:
        return [f"{CALL}:{name}:" for name in families]
    if kind is not None and kind.name in (PROFILE, INTERVAL, BEGIN, END):
        return [f"{provider}:{word}:" for word in ("hz", "s", "ms", "us") if word.startswith(":".join(parts))]
    completions: dict[str, None] = {}
    for name in listing(f"{token}*"):
        for form in _forms(name, provider):
            if form.startswith(token):
                head, more, _ = form[len(token) :].partition(":")
                completions[token + head + more] = None
                break
        if len(completions) >= MOST_NAMES:
            break
    return list(completions)


def _providers(start: str) -> Iterator[str]:
    for row in PROBE_KINDS:
        # Short names only where they have been typed already.
        for name in (row.name, *row.aliases):
            if name.startswith(start) and (len(name) > 2 or name == start) and not name.isupper():
                yield name if row.special else f"{name}:"
    yield from (f"{name}:" for name in (CALL, SYSCALL) if name.startswith(start))


def _forms(name: str, provider: str) -> Iterator[str]:
    """The forms of a listed probe that users may write: with the provider's short name, without the kernel's module."""
    _, _, rest = name.partition(":")
    yield f"{provider}:{rest}"
    owner, colon, function = rest.partition(":")
    if colon and owner and not owner.startswith("/"):
        yield f"{provider}:{function}"
