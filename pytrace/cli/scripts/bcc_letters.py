"""Option letters of bcc's tools that are options of pytrace itself in every tool.

``-c -p -f -o -q -v -e`` have the same meaning in all tools; the tool's own option has only a long name. Users who type
such a letter as in bcc get a hint with the long name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

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
