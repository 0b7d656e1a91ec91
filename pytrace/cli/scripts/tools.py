"""The tools that come with pytrace: their names, groups and script files, and the list of ``--tools``."""

from __future__ import annotations

import os

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

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools")


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
