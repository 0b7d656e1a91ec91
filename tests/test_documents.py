"""Documents: files that they name are there, and what they show is in the language, or compiles.

Blocks are also run, by the tests of their pages: ``test_language_doc.py``, ``test_tutorial.py``,
``test_probes_doc.py``, ``test_from_pages.py`` and ``kernel/test_python_doc.py``; ``kernel/test_document_programs.py``
checks programs against the kernel.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

from pytrace.cli import request, shortcuts
from pytrace.cli.commands import COMMANDS
from pytrace.cli.options import SHORTCUTS, SUBCOMMANDS, CommandLine, read
from pytrace.core.builtins import BUILTINS
from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError, render_all
from pytrace.core.options import CompileOptions
from pytrace.core.probe_kinds import PROBE_KINDS
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser
from pytrace.runtime.machine import fingerprints
from tests.support import front

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/cases/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

LINK = re.compile(r"\]\((?!https?:)([\w./-]*)(?:#([^)]*))?\)")
NAMED = re.compile(r"`((?:docs|scripts)/[\w./-]+?)`")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_are_there(path: Path) -> None:
    text = path.read_text()
    missing = [name for name in NAMED.findall(text) if not (ROOT / name).exists()]
    for name, anchor in LINK.findall(text):
        page = (path.parent / name).resolve() if name else path
        if not page.exists() or (anchor and anchor not in anchors(page)):
            missing.append(f"{name}#{anchor}")
    assert not missing


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page: those of its headings, as GitHub makes them, and its own."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return frozenset((*(title.replace(" ", "-") for title in titles), *re.findall(r'<a id="([^"]+)">', text)))


def test_pages_that_the_code_names_are_there() -> None:
    """Messages, manual pages, comments and configuration name pages by their path in the checkout."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    page = re.compile(r"\bdocs/[\w./-]+\.md(?:#[\w-]+)?")
    missing = set()
    for name in files:
        path = ROOT / name
        if not path.is_file() or path.suffix in (".png", ".svg", ".json", ".jsonl"):
            continue
        for named in page.findall(path.read_text(errors="replace")):
            target, _, anchor = named.partition("#")
            if not (ROOT / target).is_file() or (anchor and anchor not in anchors(ROOT / target)):
                missing.add(f"{name}: {named}")
    assert not {item for item in missing if not item.endswith(("docs/file.md", "NAME.md"))}


def test_the_readme_compares_with_the_current_bpftrace() -> None:
    """Figures beside older versions stand in docs/develop/performance.md, with how they were measured."""
    assert "0.17" not in (ROOT / "README.md").read_text()


def test_builtins_that_bpftrace_lacks_are_differences() -> None:
    """A new builtin that gives way to the script's own names is one of pytrace's own."""
    text = (ROOT / "docs" / "start" / "differences.md").read_text()
    own = [row.name for row in BUILTINS if row.yields]
    assert not [name for name in own if not re.search(rf"`{name}(?:\(|`)", text)]


def test_nothing_tells_users_to_install_another_project() -> None:
    """``pytrace`` on PyPI is not ours: a checkout, a wheel or the packages themselves are named instead."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    stranger = re.compile(r"pip3?\s+install\s+[^`\n]*?(?<![\w./-])['\"]?pytrace(?:\[|['\"`\s]|$)", re.MULTILINE)
    texts = {name: (ROOT / name).read_text(errors="replace") for name in files if (ROOT / name).is_file()}
    assert not {name: match[0] for name, text in texts.items() if (match := stranger.search(text))}


ALL = [*DOCUMENTS, ROOT / "CHANGELOG.md"]
PROGRAM = re.compile(r"(?<![\w-])-e\s+(?:'(?P<quoted>[^']+)'|\"(?P<double>[^\"]+)\")")
STATEMENT = re.compile(r"`(?P<text>(?:row|print|printf|hist|lhist|tseries)\([^`]*\))`")
SHORTENED = re.compile(r"…|\.\.\.|\[, |^PROGRAM$|const int ")
"""What a document leaves out, names, or marks as optional."""


def syntax_errors(text: str) -> str:
    """The messages about a program."""
    diagnostics = Diagnostics()
    parser.parse(Source("document", text), diagnostics)
    return render_all(diagnostics.errors)


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_are_in_the_language(path: Path) -> None:
    text = path.read_text()
    programs = [match["quoted"] or match["double"] for match in PROGRAM.finditer(text)]
    programs += [f"begin {{ {match['text']}; }}" for match in STATEMENT.finditer(text)]
    whole = [program for program in programs if not SHORTENED.search(program)]
    wrong = {program: errors for program in whole if (errors := syntax_errors(program))}
    assert not wrong


# ---------------------------------------------------------------------------------------------- blocks

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"( *)```(.*)$")
_PROBE = re.compile(
    rf"(?:{'|'.join(name for kind in PROBE_KINDS for name in (kind.name, *kind.aliases))})(?::\S+)?[ ,/{{]"
    r"|config = |let @|/\*|macro \w+\(|getopt\("
)
_PYTHON = re.compile(r"(?:import|from) \w|(?:def|class) \w+\(")
_MESSAGE = re.compile(r"(?:BUG|ERROR|WARNING|NOTE|HINT|web\d*(?:\[\S+\])?): ")
"""Messages of pytrace, of a fleet about a host."""
_COMMANDS = {
    "pytrace", "docker", "scripts/run", "scripts/test", "./tool", "pipx", "python3", "setpriv", "systemd-run",
    "flamegraph.pl", "go", "java", "jcmd", "curl", "ln", "request", "apt", "c++", "cc", "rustc", "/opt/pytrace/bin/pip",
}  # fmt: skip
"""First words of commands in blocks without a prompt."""
_SCRIPTS = ("script.bt", "opens.bt", "slow-opens.bt", "tool")
"""Files that documents give to pytrace as scripts without showing them."""
EXCEPTIONS = {
    ("docs/develop/architecture.md", "text ─► Source"): "a picture",
    ("docs/reference/formats.md", "busy;__libc_start_call_main"): "lines of a file",
    ("docs/operate/privileges.md", "Attached 1 probe"): "messages",
    ("docs/operate/safety.md", "cache directory"): "a message",
    ("docs/reference/stacks.md", "leaf"): "stacks as they are printed",
    ("docs/reference/stacks.md", "ustack of /usr/bin/bash"): "messages",
}
"""Blocks that are neither compiled nor run, by page and the start of their first line, with the reason."""


@dataclass
class Block:
    """A fenced block, or indented lines between blank ones; *follows* one with nothing but blank lines between."""

    page: str
    line: int
    info: str | None
    text: str
    follows: Block | None
    sort: str = ""

    @property
    def first(self) -> str:
        return self.text.lstrip().partition("\n")[0]


def blocks(path: Path) -> list[Block]:
    """The blocks of a page, each with its sort."""
    found: list[Block] = []
    lines = [*path.read_text().split("\n"), ""]
    index, last, blank = 0, None, True
    while index < len(lines):
        start, fence = index, _FENCE.match(lines[index])
        index += 1
        if fence is not None:
            while not lines[index].startswith(f"{fence[1]}```"):
                index += 1
            block, index = lines[start + 1 : index], index + 1
        elif blank and lines[start].startswith("    "):
            while lines[index].startswith("    "):
                index += 1
            block = lines[start:index]
        else:
            blank = not lines[start].strip()
            last = last if blank else None
            continue
        text = textwrap.dedent("\n".join(block)) + "\n"
        last = Block(str(path.relative_to(ROOT)), start + 1, fence and fence[2], text, last)
        last.sort = sort_of(last)
        found.append(last)
        blank = fence is not None
    return found


def sort_of(block: Block) -> str:
    """``script``, ``commands``, ``python``, ``cells``, ``ini``, ``toml``, ``json``, ``yaml`` or ``output``.

    Empty: unknown.
    """
    first, word = block.first, (block.info or "").partition(" ")[0]
    if any(page == block.page and first.startswith(start) for page, start in EXCEPTIONS):
        return "output"
    if word in ("output", "error"):
        return "output"
    if word == "pytrace":
        return "script"
    if word == "ipython":  # run by tests/kernel/test_notebook.py
        return "cells"
    if word == "file":  # other programs are compiled by tests/test_tutorial.py
        return {"bt": "script", "py": "python"}.get((block.info or "").rpartition(".")[2], "output")
    if word in ("sh", "python", "py", "ini", "toml", "json", "yaml"):
        return {"sh": "commands", "py": "python"}.get(word, word)
    if word:
        return ""
    if first.startswith(("# ", "$ ")) or first.split()[0].partition("=")[0] in _COMMANDS | {"PIPX_HOME"}:
        return "commands"
    if _PROBE.match(first):
        return "script"
    previous = block.follows.sort if block.follows else ""
    if _PYTHON.match(first) or block.page == "docs/develop/development.md" or previous == "python":
        return "python"
    if _MESSAGE.match(first) or previous in ("script", "commands", "output"):
        return "output"
    if re.match(r"\w+ = \S", first):
        return "toml"
    if re.fullmatch(r"\[\w+\]", first):
        return "ini"
    return ""


BLOCKS = {str(path.relative_to(ROOT)): blocks(path) for path in PAGES}


def of_sort(sort: str) -> Iterator[Block]:
    for page in BLOCKS.values():
        yield from (block for block in page if block.sort == sort)


def test_every_block_is_of_a_sort_that_is_checked() -> None:
    assert not [f"{b.page}:{b.line}: {b.first}" for page in BLOCKS.values() for b in page if not b.sort]


def test_exceptions_are_used() -> None:
    firsts = [(block.page, block.first) for block in of_sort("output")]
    used = {key for key in EXCEPTIONS for page, first in firsts if page == key[0] and first.startswith(key[1])}
    assert used == {*EXCEPTIONS}


def test_python_compiles() -> None:
    for block in of_sort("python"):
        forms = (block.text, f"[{block.text}]", f"{{{block.text}}}")
        errors = []
        for form in forms:
            try:
                compile(form, f"{block.page}:{block.line}", "exec", dont_inherit=True)
            except SyntaxError as error:
                errors.append(error)
        if len(errors) == len(forms):
            raise errors[0]


def test_files_of_settings_are_read() -> None:
    for block in of_sort("json"):
        json.loads(block.text)
    for block in of_sort("toml"):
        tomllib.loads(block.text)
    for block in of_sort("yaml"):
        assert isinstance(yaml.safe_load(block.text), dict)
    for block in of_sort("ini"):
        configparser.ConfigParser(strict=False, interpolation=None).read_string(block.text)


_EVERYWHERE = {"begin", "end", "self", "interval", "profile", "i", "p"}
"""Probes that every machine has."""
RUN = {"docs/reference/builtins.md", "docs/reference/language.md", "docs/start/from-bpftrace.md"}
"""Pages whose scripts are compiled for the kernel that runs, also those that are refused: ``test_language_doc.py`` and
``kernel/test_acceptance.py``."""


def script_errors(page: str, text: str) -> str:
    """The messages about a script: of all passes if its probes are there on every machine, else of the parser."""
    if SHORTENED.search(text):
        return ""
    diagnostics = Diagnostics()
    program = parser.parse(Source("document", text), diagnostics)
    places = [point.text for probe in program.probes for point in probe.attach_points]
    everywhere = {place.partition(":")[0] for place in places} <= _EVERYWHERE
    if not diagnostics.failed and everywhere and page not in RUN:
        diagnostics = front.analyse(text, CompileOptions(unsafe=True)).diagnostics
    return render_all(diagnostics.errors)


def test_scripts_compile() -> None:
    found = {f"{block.page}:{block.line}": script_errors(block.page, block.text) for block in of_sort("script")}
    assert not {place: errors for place, errors in found.items() if errors}


@dataclass(frozen=True)
class Shown:
    """A command that a document shows."""

    place: str
    text: str


def commands(block: Block) -> Iterator[Shown]:
    """The commands of a block; other lines are their output, or explain them.

    In a block without prompts each line is a command, but for those that are indented more than 20 columns.
    """
    lines = block.text.rstrip("\n").split("\n")
    prompt = next((sign for sign in ("# ", "$ ") if block.first.startswith(sign)), "")
    index = 0
    while index < len(lines):
        number, line = block.line + index, lines[index]
        index += 1
        if (prompt and not line.startswith(prompt)) or not line.strip() or line.startswith(" " * 20):
            continue
        command = line.removeprefix(prompt)
        while index < len(lines) and _is_open(command):
            command += "\n" + lines[index]
            index += 1
        yield Shown(f"{block.page}:{number}", command)


def _is_open(command: str) -> bool:
    """Whether a command goes on in the next line."""
    try:
        shlex.split(command, comments=False)
    except ValueError:
        return True
    return command.endswith("\\")


def without_explanation(command: str) -> str:
    """A command without what explains it after two spaces or more, which stand in none of its quotes."""
    for match in re.finditer(r"(?<=\S) {2,}(?=[\w#])", command):
        if not _is_open(command[: match.start()]):
            return command[: match.start()]
    return command


SHOWN = [
    Shown(shown.place, without_explanation(shown.text)) for block in of_sort("commands") for shown in commands(block)
]


def runs(command: str) -> Iterator[list[str]]:
    """The words after ``pytrace`` in the parts of a command of the shell."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word and not set(word) - set("|&;<>()"):
            start = next((i for i, item in enumerate(words) if item in ("pytrace", "scripts/run", "./tool")), None)
            if start is not None:
                yield words[start + (words[start] != "./tool") :]
            words = []
        else:
            words.append("1234" if word == "$!" else word)


def test_commands_are_those_of_a_shell() -> None:
    text = "\n".join(shown.text for shown in SHOWN)
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert not done.stderr
    words = [re.sub(r"^\(|^(?:\w+=\S+ )+", "", shown.text).split()[0] for shown in SHOWN]
    assert {*words} <= {*_COMMANDS, "echo"}
    assert not [word for word in words if word.startswith("scripts/") and not (ROOT / word).exists()]


def accepted(words: list[str]) -> CommandLine | None:
    """Read a command line as pytrace does up to where it would ask the machine.

    Raises:
        TraceError: it is not accepted.
        ScriptError: the script that it names is not in the language.
    """
    if words[0] == "fleet":
        _, words = COMMANDS["fleet"].read_first(words[1:])
        if words[:1] == ["why"]:
            COMMANDS["why"].read(words[1:])
            return None
    elif words[0] in SUBCOMMANDS:
        COMMANDS[words[0]].read(words[1:])
        return None
    elif words[0] in SHORTCUTS:
        words = shortcuts.expand(words)
    line = read(words, request.find)
    if line.words is not None and not line.usage:
        line.words.named(())
    request.run_options(line)
    return line


def enter_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with the scripts that documents name, as at a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm-256color")
    try:
        fingerprints.tracefs_root()
    except TraceError:  # on a kernel that does not trace, or without rights
        monkeypatch.setattr(fingerprints, "tracefs_root", lambda: str(tmp_path))
    monkeypatch.setattr(os, "isatty", lambda _: True)  # for --live
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for name in _SCRIPTS:
        (tmp_path / name).write_text("begin { }\n")


def test_commands_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their options exist and take the values, and their programs are in the language."""
    enter_folder(tmp_path, monkeypatch)
    wrong = {}
    for shown in SHOWN:
        for words in runs(shown.text):
            try:
                line = accepted(words)
            except (TraceError, ScriptError) as error:
                wrong[f"{shown.place}: {shlex.join(words)}"] = str(error)
                continue
            program = line.text("program") if line is not None else None
            if program is not None and (errors := script_errors(shown.place.partition(":")[0], program)):
                wrong[f"{shown.place}: {shlex.join(words)}"] = errors
    assert not wrong


_SPAN = re.compile(r"`(pytrace [^`\n]+)`")
_NO_OPTION = re.compile(r"unknown option|is ambiguous|takes no argument")


def test_commands_in_sentences_have_options_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may lack a part, or name what the reader has to put there."""
    enter_folder(tmp_path, monkeypatch)
    wrong = {}
    for path in [*PAGES, ROOT / "CHANGELOG.md"]:
        for command in _SPAN.findall(path.read_text()):
            # The options of that script stand above the sentence.
            for words in runs(command) if "script.bt" not in command else ():
                try:
                    accepted(words)
                except (TraceError, ScriptError) as error:
                    if _NO_OPTION.search(str(error)):
                        wrong[f"{path.name}: {command}"] = str(error)
    assert not wrong
