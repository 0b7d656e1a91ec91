"""Manual pages of pytrace and its tools, from the same tables that the command line reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytrace.cli import script_options, tools
from pytrace.cli.options import GROUPS, OPTIONS, Option
from pytrace.cli.script_options import ScriptWords
from pytrace.cli.script_texts import common_options, explained, header
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.script_options import ScriptOption
from pytrace.core.source import Source

ENVIRONMENT = (
    ("PYTRACE_KEY", "Configuration KEY of the script, such as PYTRACE_MAX_STRLEN; BPFTRACE_KEY is read, too."),
    ("PYTRACE_COLOR", "auto, always or never: colours of messages."),
    ("NO_COLOR", "No colours, when it is set."),
    ("CPATH, C_INCLUDE_PATH", "Folders of C headers."),
    ("XDG_CACHE_HOME", "Where compiled scripts are kept, in the folder pytrace; ~/.cache otherwise."),
)
STATUS = (
    ("0", "The run ended in order."),
    ("1", "An error of the user, the script or the machine; a message says which."),
    ("2", "A bug in pytrace."),
    ("130, 143, 129", "A second Ctrl-C, SIGTERM or SIGHUP ended the run at once."),
    ("other", "The status of exit() in the script."),
)


@dataclass(frozen=True)
class Tool:
    """A tool as its page shows it."""

    name: str
    summary: str
    description: str
    """Paragraphs; lines that are indented stay as they are."""
    examples: str
    words: ScriptWords


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    found = {"pytrace.8": main_page()}
    for _, name, summary in tools.rows():
        found[f"pytrace-{name}.8"] = tool_page(tool(name, summary))
    for alias, (real, *words) in tools.ALIASES.items():
        if f"pytrace-{real}.8" in found:
            found[f"pytrace-{alias}.8"] = _alias_page(alias, " ".join((real, *words)))
    return found


def tool(name: str, summary: str) -> Tool:
    """What is known of a tool: from its script, or from the table of those that are translated."""
    path = tools.path(name)
    if not path:
        from pytrace.multitools.table import TOOLS

        row = TOOLS[name]
        return Tool(name, summary, "", row.examples, ScriptWords(name, row.options, positional=False))
    source = Source(name, Path(path).read_text(encoding="utf-8"), path)
    _, _, rest = header(source.text).partition("\n")
    description, _, examples = rest.partition("Examples:\n")
    found = script_options.of(source, Diagnostics())
    return Tool(name, summary, description, examples, ScriptWords(name, found.options, found.positional))


def tool_page(shown: Tool) -> str:
    """The page of one tool."""
    synopsis = shown.words.synopsis().removeprefix(f"usage: pytrace {shown.name}").strip()
    named = [item for item in shown.words.options if not item.operand]
    taken = {letter for item in named for letter in item.letters}
    lines = [
        *_head(f"pytrace-{shown.name}", f"pytrace-{shown.name}", shown.summary),
        ".SH SYNOPSIS", f".B pytrace {shown.name}", escaped(synopsis),
        ".SH DESCRIPTION", *_paragraphs(shown.description or shown.summary + "."),
    ]  # fmt: skip
    operands = [item for item in shown.words.options if item.operand]
    if operands:
        lines.append(".SH OPERANDS")
        lines += _terms((item.general or item.name, explained(item)) for item in operands)
    lines.append(".SH OPTIONS")
    lines += _terms((_spelled(item), explained(item)) for item in named)
    lines += _terms(
        (_option("" if item.short in taken else item.short, item.long, item.arguments), item.help)
        for item in common_options()
        if item.long not in {word for option in named for word in option.words}
    )
    if shown.examples.strip():
        lines += [".SH EXAMPLES", ".nf", *(escaped(line) for line in _outdented(shown.examples)), ".fi"]
    lines += [*_status(), *_see_also(shown.name)]
    return "\n".join(lines) + "\n"


def _alias_page(alias: str, meaning: str) -> str:
    lines = [
        *_head(f"pytrace-{alias}", f"pytrace-{alias}", f"the same as pytrace {meaning}"),
        ".SH SYNOPSIS", f".B pytrace {alias}", escaped("[options] [operands]"),
        ".SH DESCRIPTION", f"The same as \\fBpytrace {escaped(meaning)}\\fR.",
        ".SH SEE ALSO", f".BR pytrace\\-{escaped(meaning.split(maxsplit=1)[0])} (8),", ".BR pytrace (8)",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main_page() -> str:
    """The page of the command."""
    lines = [
        *_head("pytrace", "pytrace", "tracing scripts, compiled to BPF and run in the Linux kernel"),
        ".SH SYNOPSIS",
        *_forms(("pytrace", "[options] NAME [options and operands of the tool]"),
                ("pytrace", "[options] FILE [parameters] [-- parameters]"),
                ("pytrace", "[options] -e 'PROGRAM'"), ("pytrace", "-l [-v] [PATTERN]"),
                ("pytrace", "merge|diff|show SNAPSHOT..."),
                ("pytrace", "fleet --hosts NODESET SCRIPT|TOOL...")),
        ".SH DESCRIPTION",
        "A script names events of the running system and says what to do at each; it is compiled to BPF, checked by",
        "the kernel and run there. Aggregations, stacks and events come back as text, JSON, CSV and other formats.",
        "Scripts of bpftrace 0.27.1 run unchanged. NAME is a tool that comes with pytrace; see TOOLS.",
    ]  # fmt: skip
    for group, title in GROUPS.items():
        rows = [row for row in OPTIONS if row.group == group and not row.hidden]
        if rows:
            lines.append(f".SH OPTIONS: {escaped(title.upper())}")
            lines += _terms((_own(row), row.help) for row in rows)
    lines.append(".SH TOOLS")
    lines += _terms((name, summary) for _, name, summary in tools.rows())
    lines.append(".SH ENVIRONMENT")
    lines += _terms(ENVIRONMENT)
    lines += [*_status(), ".SH SEE ALSO", *_pages_of_tools()]
    return "\n".join(lines) + "\n"


def _pages_of_tools() -> Iterator[str]:
    names = [name for _, name, _ in tools.rows()]
    for name in names:
        yield f".BR pytrace\\-{name} (8){',' if name != names[-1] else ''}"


def _forms(*forms: tuple[str, str]) -> Iterator[str]:
    for at, (command, rest) in enumerate(forms):
        if at:
            yield ".br"
        yield f".B {command}"
        yield escaped(rest)


def _head(title: str, name: str, summary: str) -> list[str]:
    return [
        '.\\" Made by scripts/generate-docs; change the tool or the table of options instead.',
        f'.TH {escaped(title.upper())} 8 "" pytrace "pytrace"',
        ".SH NAME", f"{escaped(name)} \\- {escaped(summary)}",
    ]  # fmt: skip


def _status() -> list[str]:
    return [".SH EXIT STATUS", *_terms(STATUS)]


def _see_also(name: str) -> list[str]:
    return [".SH SEE ALSO", ".BR pytrace (8),", f"docs/reference/tools/{escaped(name)}.md in the source of pytrace"]


def _own(row: Option) -> str:
    return _option(row.short, row.long, f"{row.argument} {row.second}".rstrip())


def _option(letter: str, word: str, argument: str) -> str:
    names = ", ".join(text for text in (letter and f"-{letter}", word and f"--{word}") if text)
    return f"{names} {argument}".rstrip()


def _spelled(item: ScriptOption) -> str:
    names = [f"-{name}" if len(name) == 1 else f"--{name}" for name in (*item.letters, *item.words)]
    return f"{', '.join(names)} {item.argument}{'...' if item.repeat else ''}".rstrip()


def _terms(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in rows:
        yield ".TP"
        yield f".B {escaped(term)}"
        yield escaped(text)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a header's text; indented lines are shown as they are."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        if all(line.startswith("  ") for line in lines):
            yield from (".PP", ".nf", *(escaped(line) for line in lines), ".fi")
        else:
            yield from (".PP", *(escaped(line) for line in lines))


def _outdented(text: str) -> list[str]:
    lines = text.strip("\n").split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[margin:] for line in lines]


def escaped(text: str) -> str:
    """*text* as troff reads it: no commands, dashes that can be copied, letters that every terminal has."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return "\\&" + text if text.startswith((".", "'")) else text
