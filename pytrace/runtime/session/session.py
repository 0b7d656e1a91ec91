"""The live side of a run: what it needs is opened and loaded, and nothing is left behind.

Everything that a session opens is closed by one :class:`ExitStack`, in order, also on Ctrl-C, on SIGTERM and when
attaching fails.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.base.terminal import colour
from pytrace.core.manifest import CompiledScript, ProgramSpec
from pytrace.core.run_options import RunOptions
from pytrace.runtime.abi import privileges
from pytrace.runtime.host.clocks import Clock, together
from pytrace.runtime.load.loader import LoadedScript, LoadOptions, load
from pytrace.runtime.output.streams import Flush, Output
from pytrace.runtime.session import child
from pytrace.runtime.session.child import Child
from pytrace.runtime.session.live import LiveSession
from pytrace.runtime.session.signals import Signals

if TYPE_CHECKING:
    from pytrace.runtime.unwind.unwinder import Unwound

_OVER_AT_ONCE = frozenset({"begin", "end", "iter"})
"""Probe kinds that have done all they will ever do once everything is attached."""


class Session:
    """One run of one compiled script."""

    def __init__(self, script: CompiledScript, options: RunOptions) -> None:
        self._script = script
        self._manifest = script.manifest
        self._options = options
        self._by_kind: dict[str, list[ProgramSpec]] = {}
        for program in script.manifest.programs:
            if not program.service:
                self._by_kind.setdefault(program.kind, []).append(program)

    def run(self) -> int:
        """Run to the end.

        Returns:
            The exit status: what the script's ``exit()`` said, else 0.

        Raises:
            TraceError: the kernel refused to load or attach, or the machine lacks something.
        """
        with ExitStack() as stack:
            return self._run(stack)

    # ---- set up

    def _run(self, stack: ExitStack) -> int:
        manifest, options = self._manifest, self._options
        targets = sum(len(program.targets) for program in manifest.programs)
        privileges.raise_limits(privileges.descriptors_needed(targets, len(manifest.programs), len(manifest.maps)))
        signals = stack.enter_context(Signals())
        namespace = self._open_namespace(stack)
        output = self._open_output(stack)
        traced = child.start(options.command, stack, namespace) if options.command is not None else None
        unwound = self._unwound(traced)
        loaded = load(self._script, options=self._load_options(unwound), stack=stack)
        self._fill_session_data(loaded, traced)
        live = LiveSession(self, stack, loaded, output, traced, signals, unwound, namespace)
        signals.begin()
        if self._options.mode in ("test", "bench"):
            from pytrace.runtime.session import test_runs

            return test_runs.run(live)
        return live.run()

    def _open_namespace(self, stack: ExitStack) -> int | None:
        """The network namespace of ``--netns``, None without that."""
        if self._options.netns is None:
            return None
        from pytrace.runtime.host.network import open_namespace

        namespace = open_namespace(self._options.netns)
        stack.callback(os.close, namespace)
        return namespace

    def _open_output(self, stack: ExitStack) -> Output:
        options = self._options
        flush = Flush(options.buffering)
        json = options.format == "json"
        if options.output is None:
            output = Output(1, flush=flush, json=json, colour=colour())
        else:
            output = Output.to_file(options.output, flush=flush, json=json, colour=colour())
        stack.callback(output.close)
        return output

    def _unwound(self, traced: Child | None) -> Unwound | None:
        """What ``dw_ustack`` unwinds; the child is then held as the program that it will be."""
        if self._manifest.unwind is None:
            return None
        from pytrace.runtime.unwind.unwinder import Unwound

        return Unwound(self._manifest, self._options.pid, self._options.dwarf_pids, traced)

    def _load_options(self, unwound: Unwound | None) -> LoadOptions:
        debug = self._options.debug
        return LoadOptions(
            libbpf_log=_to_stderr if "libbpf" in debug else None,
            verifier_log=_show_verifier if "verifier" in debug else None,
            btf_path=os.environ.get("PYTRACE_BTF", os.environ.get("BPFTRACE_BTF", "")),
            disabled=self._options.disabled,
            entries={} if unwound is None else unwound.entries(),
        )

    def _fill_session_data(self, loaded: LoadedScript, traced: Child | None) -> None:
        data = self._manifest.session
        if data is None:
            return
        memory = loaded.section(data.section)
        struct.pack_into("=Q", memory, data.start, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        struct.pack_into("=Q", memory, data.cpid, 0 if traced is None else traced.pid)
        atomic, boot = together(time.CLOCK_TAI, time.CLOCK_BOOTTIME)
        struct.pack_into("=q", memory, data.tai, atomic - boot)
        struct.pack_into("=q", memory, data.wall, Clock().boot_offset)
        root = self._options.pid if traced is None else traced.pid
        struct.pack_into("=Q", memory, data.root, root or 0)

    def programs(self, kind: str) -> list[ProgramSpec]:
        """Programs of one probe kind, in source order."""
        return self._by_kind.get(kind, [])

    @property
    def options(self) -> RunOptions:
        """Options of the run."""
        return self._options

    @property
    def over_at_once(self) -> bool:
        """Whether there is no probe that could fire once everything is attached, and no child to wait for."""
        return self._options.command is None and not set(self._by_kind) - _OVER_AT_ONCE


def _to_stderr(text: str) -> None:
    sys.stderr.write(text if text.endswith("\n") else f"{text}\n")


def _show_verifier(symbol: str, text: str) -> None:
    sys.stderr.write(f"verifier log of {symbol}:\n{text}\n")
