"""The tools that come with pytrace: their names, groups and script files, the list of ``--tools``, letters of bcc."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytrace.multitools.multitool import MultiTool

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
        tools += [(tool.group, name, tool.summary) for name, tool in translated().items()]
    return tools


def translated() -> Mapping[str, MultiTool]:
    """The tools that are translated from their command line, by name: those of :data:`TRANSLATED`."""
    from pytrace.multitools.table import TOOLS  # a run of a script needs none

    return TOOLS


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


SYMPTOMS: Mapping[str, str] = {
    "slow latenc stall lag time long": (
        "why flame offcputime runqlat fsslower biolatency funclatency tcpconnlat profile syscount"
    ),
    "cpu busy hot burn load": "top flame profile runqlen cpudist",
    "hang stuck freez block wait sleep": "why offcputime offwaketime futexwait wakeuptime naptime",
    "lock mutex contention deadlock futex": "futexwait why klockstat offwaketime",
    "leak grow": "memleak mallocs slabratetop",
    "memory oom ram alloc heap": "memleak mallocs pagefaults oomkill drsnoop swapin",
    "fail error denied permission enoent eacces missing": "opensnoop statsnoop syscount capable trace",
    "delet remov unlink vanish temporary": "filelife trace",
    "open read write file path": "opensnoop fileslower filetop fsslower filelife",
    "disk io i/o storage iops": "biolatency biosnoop biotop bitesize fsslower",
    "network tcp connect socket port traffic packet": (
        "tcplife tcptop tcpconnect tcpconnlat tcpaccept solisten tcpretrans udpsnoop"
    ),
    "retransmit drop lost timeout reset": "tcpretrans tcpdrop skbdrop tcpconnlat",
    "dns host resolve lookup": "gethostlatency",
    "exec start process spawn fork cron short-lived": "execsnoop exitsnoop threadsnoop pidpersec",
    "kill signal crash die exit end segfault": "killsnoop exitsnoop oomkill",
    "syscall call strace ltrace": "calls syscount trace",
    "python ruby php java node perl": "flame why profile offcputime ucalls uflow ugc",
    "chang differ compar regress before after": "diff",
    "host fleet cluster machines": "fleet",
    "interrupt irq": "hardirqs softirqs",
    "sql database query postgres mysql": "dbslower dbstat",
    "gc garbage": "ugc",
    "schedul throttl runqueue": "runqlat runqslower runqlen cpudist",
    "tls ssl https": "sslsnoop",
    "function calls": "stackcount funccount funclatency trace argdist",
    "cache": "cachestat cachetop dcstat llcstat",
    "mount": "mountsnoop",
    "root privilege sudo security": "capable setuids execsnoop",
}
"""Beginnings of words in which people ask, and the tools that answer, the first ones first."""

_COMMANDS = {
    "flame": "where a program or machine spends its time, as a picture (-p, -c; --off-cpu, --alloc)",
    "top": "what is busy now: processes, files, disks, connections, live",
    "why": "where the time of all threads went: on a CPU, waiting for one, or blocked, by what and by whom (-p, -c)",
    "calls": "system calls with arguments and results, as strace prints them, without stopping the program",
    "diff": "what changed between two runs that were saved (--save before.pts, --save after.pts)",
    "fleet": "the same question on many hosts, as one answer",
}
"""What answers a question and is no tool, with a summary."""

_STOP_WORDS = frozenset(
    {
        *("a", "an", "and", "are", "do", "does", "for", "from", "has", "have", "in", "is", "it", "its", "my", "of"),
        *("on", "the", "this", "to", "too", "what", "when", "where", "which", "who", "why", "with"),
    }
)


def _answers(words: Iterable[str], known: Mapping[str, str]) -> list[str]:
    """The tools for words of a question, those of most words first."""
    scores: dict[str, float] = {}
    for word in words:
        for starts, found in SYMPTOMS.items():
            if any(word.startswith(start) for start in starts.split()):
                for place, name in enumerate(found.split()):
                    scores[name] = scores.get(name, 0) + 1 - place / 100
    return sorted((name for name in scores if name in known), key=lambda name: -scores[name])


def _headers(word: str) -> list[tuple[str, str, str]]:
    """Rows of the tools whose comment or options at the top of their scripts contain *word*."""
    found = []
    for row in rows():
        file = os.path.join(FOLDER, row[0], f"{row[1]}.bt")
        if row[0] in GROUPS and os.path.exists(file):
            with open(file, encoding="utf-8") as script:
                text = script.read()
            if word in (text.partition("*/")[0] + "".join(re.findall(r"(?m)^ *getopt\(.*", text))).lower():
                found.append(row)
    return found


def listing(word: str = "") -> str:
    """The text of ``--tools``: one line for each tool, by group.

    With a *word* those whose name, summary, description or options have it; first those that answer it as a question
    (``slow``, ``who deletes my file``).
    """
    every, wanted = [*rows(), *_alias_rows(word)], word.lower()
    matches = [row for row in every if wanted in f"{row[1]} {row[2]}".lower()]
    answers = ""
    if wanted:
        known = {name: text for _, name, text in every} | _COMMANDS
        words = [item for item in re.findall(r"[\w/]+", wanted) if item not in _STOP_WORDS]
        names = _answers(words, known)
        matches = [row for row in matches if row[1] not in names]
        if not matches and not names:
            matches = _headers(wanted)
        answers = "".join(f"  {name:{max(map(len, names))}}  {known[name]}\n" for name in names)
        answers = f"for {word!r}:\n{answers}" if answers else ""
    if not matches:
        if answers:
            return f"{answers}\npytrace NAME -h shows the options of a tool.\n"
        return f"No tool has {word!r} in its name, summary or options; pytrace --tools lists all.\n"
    width = max(len(name) for _, name, _ in matches)
    order = (*GROUPS, *dict.fromkeys(group for group, _, _ in matches if group not in GROUPS))
    parts = [answers] if answers else []
    for group in order:
        lines = [f"  {name:{width}}  {text}\n" for title, name, text in sorted(matches) if title == group]
        if lines:
            parts.append(f"{group}:\n{''.join(lines)}")
    return "\n".join((*parts, "pytrace NAME -h shows the options of a tool.\n"))
