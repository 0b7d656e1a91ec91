"""Names of hosts, users and home directories, removed from what is passed on to others."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping

import msgspec

_PUBLIC = frozenset({"", "/", "/root", "root", "localhost"})
"""Names that tell nothing."""

_SHORTEST = 2
"""Characters of a name that is removed."""

_HOME = r"/home/[^/\s\"':;,)]+"
"""The home directory of any user."""

_START = r"(?:(?<![\w-])|(?<=\\[nrt])|(?<=\\[0-9A-F]{2})|(?<=\\[0-7]{3})|(?<=\\u[0-9a-f]{4}))"
"""Where a name starts: not inside a word, but after an escape sequence of C, LLVM, its assembly or JSON."""


class Redactor(msgspec.Struct, frozen=True):
    """Removes *homes*, *users* and *hosts*."""

    homes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @classmethod
    def of_machine(cls, environment: Mapping[str, str] = os.environ) -> Redactor:
        """The redactor for this machine and the user of this process, also behind ``sudo``."""
        users, homes = {environment.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}, {
            environment.get("HOME", "")
        }
        for entry in pwd.getpwall():
            if entry.pw_uid == os.geteuid() or entry.pw_name in users:
                users.add(entry.pw_name)
                homes.add(entry.pw_dir)
        host = os.uname().nodename
        return cls(_names(homes), _names(users), _names({host, host.partition(".")[0]}))

    def text(self, text: str) -> str:
        """*text* with ``HOME``, ``USER`` and ``HOST`` in place of the names."""
        for home in self.homes:
            text = re.sub(f"{re.escape(home)}(?![\\w.-])", "HOME", text)
        text = re.sub(_HOME, "HOME", text)
        for names, mark in ((self.hosts, "HOST"), (self.users, "USER")):
            for name in names:
                text = re.sub(rf"{_START}{re.escape(name)}(?![\w-])", mark, text)
        return text

    def binary(self, data: bytes) -> bytes:
        """*data* of the same length, with ``x`` in place of home directories and of hosts.

        A user's name outside of these may be part of a symbol.
        """
        for name in (*self.homes, *self.hosts):
            word = os.fsencode(name)
            data = data.replace(word, b"x" * len(word))
        return re.sub(_HOME.replace(r"\s", r"\s\0").encode(), lambda match: b"x" * len(match[0]), data)


def _names(names: set[str]) -> tuple[str, ...]:
    """Those to remove, longest first, as one may contain another."""
    kept = {name for name in names if name not in _PUBLIC and len(name) >= _SHORTEST}
    return tuple(sorted(kept, key=lambda name: (-len(name), name)))
