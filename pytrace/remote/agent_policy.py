"""What a host lets an agent do: ``/etc/pytrace/agent.toml``, or its defaults; docs/guides/many-hosts.md describes both.

The rules bind agents that have more rights than whoever started them: those that run as root through sudo, doas or
pkexec, and those of other users with capabilities. Whoever is root, or an agent that can do no more than its user, is
bound by what the file says of that user only.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import socket
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from pytrace.base import trusted_files
from pytrace.base.control_characters import printable_text
from pytrace.core.diagnostics import TraceError
from pytrace.core.manifest import Manifest
from pytrace.core.options import Budget, parse_memory
from pytrace.core.probe_kinds import BEGIN, END, probe_kind
from pytrace.remote.messages import LARGEST_RATE, LONGEST_TIME, Limits, Request

PATH = "/etc/pytrace/agent.toml"
_STARTERS = {"SUDO_UID": "sudo", "PKEXEC_UID": "pkexec", "DOAS_USER": "doas"}
"""Variables in which these say who called them; they set them themselves."""
JOURNALS = ("/run/systemd/journal/socket", "/dev/log")
"""Sockets of the journal, and of any syslog."""
_NOTICE, _DAEMON = 5, 3 << 3
"""Priority and facility of syslog(3)."""
COMMAND = "system"
"""The kind of events that run commands, which a compiled form may have though the request is not unsafe."""
_FILE_EVENTS = frozenset({"cat", "skboutput"})
"""Kinds of events that read and write files by name."""

Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an agent may do. The defaults are those for users who are not root."""

    unsafe: bool = False
    """Functions that change the system: ``system()``, ``signal()``, ``override()`` …"""
    relay: bool = False
    """Carry requests on to other hosts, by commands that the request names."""
    files: bool = False
    """Import files and headers, and ``cat()`` and ``skboutput()``, which read and write files by name."""
    compiled: bool = False
    """Run what was compiled elsewhere, of which nobody can say what it does; else the text is compiled here."""
    probes: tuple[str, ...] = ()
    """Kinds of probes; empty: all."""
    scripts: tuple[Digest, ...] = ()
    """SHA-256 of texts, or of files that were compiled ahead of time; empty: all. Nothing else runs, also not in place
    of one that does not fit."""
    max_duration: Annotated[float, Meta(ge=0.001, le=LONGEST_TIME)] = 86400.0
    """Seconds."""
    max_memory: str = "10%"
    max_rate: Annotated[float, Meta(ge=0, lt=LARGEST_RATE)] = 0.0
    """Hits per second of each probe; 0: any number."""
    budget: str = ""
    """What tracing may cost, as ``--budget``; empty: anything."""

    def __post_init__(self) -> None:
        parse_memory(self.max_memory, 1 << 40)
        Budget.chosen(self.budget)
        if unknown := [name for name in self.probes if probe_kind(name) is None]:
            raise ValueError(f"there are no probes of the kind {unknown[0]!r}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


ALL = Rules(unsafe=True, relay=True, files=True, compiled=True, max_duration=LONGEST_TIME, max_memory="100%")
"""Everything."""


def caller(environment: Mapping[str, str] = os.environ) -> str:
    """The user who started this process: of root's that whom sudo, doas or pkexec name, else its real user."""
    user = os.geteuid()
    if user == 0:
        user = os.getuid()
        for variable in _STARTERS:
            value = environment.get(variable, "")
            if value and value not in ("0", "root"):
                return _name(value)
    return _name(str(user))


def _privileged() -> bool:
    """Whether this process has a capability."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return any(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))


def _name(user: str) -> str:
    with suppress(KeyError, ValueError, OverflowError):
        return pwd.getpwuid(int(user)).pw_name
    return user


def read(path: str, user: str, *, bound: bool) -> Rules:
    """The rules for a user. *bound*: whether those that hold for everybody hold for this agent.

    Raises:
        TraceError: the file is not root's alone, or damaged. Nothing is allowed then.
    """
    general = Rules() if bound else ALL
    try:
        with open(path, "rb") as file:
            if (reason := trusted_files.distrust(path, ())) is not None:
                raise TraceError(f"the policy of this host is not root's alone: {reason[0]}", hints=(reason[1],))
            said = tomllib.load(file)
        users = said.pop("users", {})
        if not isinstance(users, dict):
            raise ValueError("users is a table: [users.NAME]")
        tables = {name: msgspec.convert({**said, **own}, Rules) for name, own in users.items()}
        everybody = msgspec.convert(said, Rules)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise TraceError(f"the policy of this host, {path}, is a link to a file that does not exist") from None
        return general
    except (OSError, ValueError, TypeError, msgspec.ValidationError) as error:
        raise TraceError(f"the policy of this host, {path}, cannot be used: {error}") from None
    return tables.get(user, everybody if bound else ALL)


class Policy:
    """The rules for one agent, and the journal of what it did."""

    def __init__(self, user: str, rules: Rules, journal: socket.socket | None = None, path: str = PATH) -> None:
        self._user, self._rules, self._journal, self._path = user, rules, journal, path
        self._script = ""

    @classmethod
    def of_process(cls, path: str = PATH, *, pushed: bool = False) -> Policy:
        """That of this process. *pushed*: the code is the controller's, so defaults would bind nobody.

        Raises:
            TraceError: as :func:`read`.
        """
        user, privileged = caller(), _privileged()
        bound = privileged and user != "root" and not pushed
        return cls(user, read(path, user, bound=bound), _journal() if privileged else None, path)

    def _refused(self, rule: str, what: str) -> TraceError:
        user = printable_text(self._user)
        return TraceError(f"this host does not let {user} {what} (rule {rule} of {self._path}, or its default)")

    # ---- what is asked for

    def check_relay(self) -> None:
        """Refuse to be a gateway, unless that is allowed.

        Raises:
            TraceError: it is not.
        """
        self.log("asks for a gateway")
        if not self._rules.relay:
            raise self._refused("relay", "carry requests on to other hosts")

    def applied(self, request: Request) -> Request:
        """A request with the limits of this host.

        Raises:
            TraceError: it asks for what is not allowed.
        """
        rules, limits = self._rules, request.limits
        digests = [_digest(data) for data in (_encoded(request.text), request.compiled) if data]
        shown = ", ".join(sorted(digest[:16] for digest in digests))
        self._script = f"{printable_text(request.script[:200])} (SHA-256 {shown})"
        self.log(f"asks for {self._script}")
        if request.options.unsafe and not rules.unsafe:
            raise self._refused("unsafe", "run unsafe scripts")
        request = self._with_what_may_run(request, digests)
        if limits.duration == LONGEST_TIME:
            # Until it is told to stop.
            limits = replace(limits, duration=rules.max_duration)
        if limits.duration > rules.max_duration:
            raise self._refused("max_duration", f"trace for more than {rules.max_duration:g} seconds")
        options = request.options
        if rules.max_rate:
            rates = options.max_rate or {"": rules.max_rate}
            if max(rates.values()) > rules.max_rate:
                raise self._refused("max_rate", f"have more than {rules.max_rate:g} hits per second of a probe")
            # Of several patterns none may be left out.
            options = replace(options, max_rate={"": min(rates.values())})
        limits = self._with_budget(replace(limits, max_memory=self._memory(limits.max_memory)))
        return replace(request, limits=limits, options=options)

    def _with_what_may_run(self, request: Request, digests: Sequence[str]) -> Request:
        """A request without what may not run: each of text and compiled form is judged by itself, as either may be run
        in place of the other; and a form that the controller sends later is one that nobody has seen.
        """
        rules = self._rules
        if rules.scripts:
            if not set(digests).intersection(rules.scripts):
                raise self._refused("scripts", f"run this script (SHA-256 {', '.join(sorted(digests))})")
            if _digest(_encoded(request.text)) not in rules.scripts:
                request = replace(request, text="")
        listed = _digest(request.compiled) in rules.scripts
        if not listed and (rules.scripts or not rules.compiled):
            if not request.text:
                raise self._refused("compiled", "run what was compiled elsewhere")
            request = replace(request, compiled=b"")
        if rules.scripts or not rules.compiled:
            request = replace(request, variants=False, questions=(), matches="")
        return request

    def _memory(self, wanted: str) -> str:
        most = self._rules.max_memory
        if not wanted:
            return "" if most == ALL.max_memory else most
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if parse_memory(wanted, total) > parse_memory(most, total):
            raise self._refused("max_memory", f"take more memory than {most}")
        return wanted

    def _with_budget(self, limits: Limits) -> Limits:
        most = Budget.chosen(self._rules.budget)
        if most is None:
            return limits
        wanted = Budget.chosen(limits.budget) or most
        if wanted.share > most.share or wanted.machine > most.machine:
            raise self._refused("budget", f"spend more than {self._rules.budget} on tracing")
        return replace(limits, budget=wanted.text)

    @property
    def files(self) -> bool:
        """Whether scripts may import files."""
        return self._rules.files

    def check(self, manifest: Manifest) -> None:
        """Refuse a compiled script that does what is not allowed.

        Raises:
            TraceError: it does.
        """
        kinds = {kind.name for kind in map(probe_kind, self._rules.probes) if kind is not None}
        for program in manifest.programs:
            if kinds and not program.service and program.kind not in kinds | {BEGIN, END}:
                raise self._refused("probes", f"trace {program.kind}")
        used = {event.kind for event in manifest.events}
        if not self._rules.unsafe and COMMAND in used:
            raise self._refused("unsafe", f"use {COMMAND}()")
        if not self._rules.files and (named := sorted(used & _FILE_EVENTS)):
            raise self._refused("files", f"use {named[0]}()")

    # ---- the journal

    def log(self, what: str) -> None:
        """Write a line to the journal of the host: who, and what."""
        if self._journal is None:
            return
        line = printable_text(f"{self._user} {what}")[:2000]
        if self._journal.getpeername() == JOURNALS[0]:
            user = printable_text(self._user)
            data = f"MESSAGE={line}\nPRIORITY={_NOTICE}\nSYSLOG_IDENTIFIER=pytrace-agent\nPYTRACE_USER={user}\n"
        else:
            data = f"<{_DAEMON | _NOTICE}>pytrace-agent[{os.getpid()}]: {line}"
        with suppress(OSError):
            self._journal.send(data.encode("utf-8", "surrogateescape"))

    def ended(self, seconds: float, reason: str) -> None:
        """Log the end of a run."""
        self.log(f"has run {self._script} for {seconds:.1f} s ({reason})")

    def refused(self, why: str) -> None:
        """Log that a request was refused."""
        self.log(f"was refused {self._script or 'a request'}: {why}")


def _journal() -> socket.socket | None:
    """The journal of this machine, opened before files and sockets are given up; None if there is none."""
    for path in JOURNALS:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
        else:
            return connection
    return None
