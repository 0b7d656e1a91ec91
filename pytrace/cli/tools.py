"""The tools that come with pytrace: their names, groups and script files, the list of ``--tools``, letters of bcc."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

GROUPS = ("processes", "scheduling", "memory", "files", "block", "network", "languages")
"""Directories of ``pytrace/tools``, in the order of the list."""

TRANSLATED: tuple[str, ...] = (
    "funccount", "funclatency", "functime", "funcslower", "stackcount", "trace", "argdist", "tplist",
)  # fmt: skip
"""Names of the tools that are translated (``pytrace.multitools.table.TOOLS``), whose import takes time."""

_FILE_SYSTEMS = ("btrfs", "ext4", "nfs", "xfs")

ALIASES: dict[str, tuple[str, ...]] = {
    f"{system}{what}": (f"fs{what}", "-t", system) for system in _FILE_SYSTEMS for what in ("slower", "dist")
}
"""Names of tools with implied options."""

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools")


def is_name(word: str) -> bool:
    """Whether a word may be the name of a tool: no path, no suffix."""
    return word.isascii() and word.isalnum()


def path(name: str) -> str:
    """The script file of a tool; empty if there is no such tool, or it has no file."""
    for group in GROUPS:
        file = f"{FOLDER}/{group}/{name}.bt"
        if os.path.exists(file):
            return file
    return ""


def resolve(name: str) -> tuple[str, tuple[str, ...]]:
    """The tool that a name stands for, and the implied words, which precede those of the user."""
    alias = ALIASES.get(name)
    return (name, ()) if alias is None else (alias[0], alias[1:])


def names() -> list[str]:
    """The names of all tools, aliases included."""
    own = [name for _, name, _ in rows()]
    return sorted({*own, *(name for name, words in ALIASES.items() if words[0] in own)})


def rows() -> list[tuple[str, str, str]]:
    """Group, name and summary of all tools, in the order of the list."""
    tools = []
    for group in GROUPS:
        folder = os.path.join(FOLDER, group)
        files = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        tools += [(group, file[:-3], summary(os.path.join(folder, file))) for file in files if file.endswith(".bt")]
    if TRANSLATED:
        from pytrace.multitools.table import TOOLS

        tools += [(tool.group, name, tool.summary) for name, tool in TOOLS.items()]
    return tools


def summary(file: str) -> str:
    """The first line of the comment at the top of a tool's script, without the tool's name."""
    with open(file, encoding="utf-8") as script:
        for line in script:
            text = line.strip(" */\n")
            if text and not line.startswith("#!"):
                name, colon, rest = text.partition(": ")
                return rest if colon and is_name(name) else text
    return ""


def _alias_rows(word: str) -> list[tuple[str, str, str]]:
    """Rows of the aliases whose names contain *word*: aliases are listed only on a search."""
    groups = {name: group for group, name, _ in rows()}
    return [
        (groups[words[0]], alias, f"the same as {' '.join(words)}")
        for alias, words in ALIASES.items()
        if word and word.lower() in alias and words[0] in groups
    ]


def listing(word: str = "") -> str:
    """The text of ``--tools``: one line for each tool whose name or summary contains *word*, by group."""
    matches = [row for row in (*rows(), *_alias_rows(word)) if word.lower() in f"{row[1]} {row[2]}".lower()]
    if not matches:
        return f"No tool has {word!r} in its name or summary; pytrace --tools lists all.\n"
    width = max(len(name) for _, name, _ in matches)
    order = (*GROUPS, *dict.fromkeys(group for group, _, _ in matches if group not in GROUPS))
    parts = []
    for group in order:
        lines = [f"  {name:{width}}  {text}\n" for title, name, text in sorted(matches) if title == group]
        if lines:
            parts.append(f"{group}:\n{''.join(lines)}")
    return "\n".join((*parts, "pytrace NAME -h shows the options of a tool.\n"))


# ---------------------------------------------------------------------------------------------- letters of bcc


# ``-c -p -f -o -q -v -e`` have the same meaning in all tools; the tool's own option has only a long name. Users who
# type such a letter as in bcc get a hint with the long name.

RESERVED = "cpfoqve"
"""Letters of pytrace's own options that no tool may reuse."""

LETTERS: Mapping[str, Mapping[str, str]] = {
    "argdist": {"c": "cumulative"},
    "biolatency": {"e": "extension"},
    "capable": {"v": "unaudited"},
    "compactsnoop": {"e": "extended_fields"},
    "cpudist": {"e": "extension"},
    "execsnoop": {"q": "quote"},
    "funccount": {"c": "cpu"},
    "funcslower": {"f": "folded"},
    "hardirqs": {"c": "cpu"},
    "klockstat": {"c": "caller"},
    "llcstat": {"c": "sample_period"},
    "mallocs": {"f": "folded"},
    "memleak": {"o": "older"},
    "offcputime": {"f": "folded"},
    "offwaketime": {"f": "folded"},
    "opensnoop": {"e": "extended_fields", "f": "flag_filter"},
    "profile": {"c": "count", "f": "folded"},
    "softirqs": {"c": "cpu"},
    "sslsnoop": {"c": "comm", "o": "no-openssl"},
    "stackcount": {"c": "cpu", "f": "folded"},
    "syscount": {"c": "ppid", "e": "errno"},
    "tcpconnect": {"c": "count"},
    "tcpretrans": {"c": "count"},
    "tcprtt": {"e": "extension", "p": "lport"},
    "trace": {"c": "cgroup-path", "f": "msg-filter"},
    "wakeuptime": {"f": "folded"},
}
"""The long name of the tool's option, by tool and letter."""


class GivenLetter(msgspec.Struct, frozen=True):
    """A letter of :data:`LETTERS` on a command line: long names of both options, and its value."""

    letter: str
    own: str
    word: str
    value: str

    @property
    def hint(self) -> str:
        """The spelling of bcc's option."""
        return f"-{self.letter} is --{self.own} in every tool; bcc's -{self.letter} of this tool is --{self.word}"

    @property
    def explains_errors(self) -> bool:
        """Whether errors may come from it: not where ``-c`` has a command that can be started."""
        words = self.value.split()
        return not (self.letter == "c" and words and _is_program(words[0]))

    @property
    def works(self) -> bool:
        """Whether a value meant for bcc's option is also valid for pytrace's, so that no error is reported."""
        if self.letter == "c":
            return "/" not in self.value and _is_program(self.value)
        if self.letter == "p":
            return os.path.exists(f"/proc/{self.value}")
        return self.letter in "vq" or (self.letter == "o" and self.value.isdigit())


def _is_program(name: str) -> bool:
    """Whether a command of this name can be started."""
    folders = ("",) if "/" in name else os.get_exec_path()
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)
