"""Compiles a script for kinds of hosts: by features and CPUs here, for the facts that a host states in a process.

What a host states may be made to harm whoever reads it. So the process has limits of memory and time, and whatever
becomes of it is no more than a variant that cannot be had.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
from msgspec.structs import replace

from pytrace.base import limited_process, typed_json
from pytrace.core import kernel_info
from pytrace.core.diagnostics import Error, TraceError, render_error
from pytrace.core.kernel_info import MOST_QUESTIONS, Questions
from pytrace.core.options import CompileOptions
from pytrace.core.source import Source
from pytrace.interface.compiled import ahead_of_time, live_kernel
from pytrace.remote.variants import Kind, Outcome, unpacked

MEMORY = 4 << 30
"""Bytes of the address space of the process; LLVM takes up to one GiB."""
TIME, LONGEST = 120, 300.0
"""Seconds of processor time, and until it is killed."""
MOST_ERROR = 1 << 16


class Program(msgspec.Struct, frozen=True):
    """A script that is ready to be sent."""

    name: str
    source: Source
    options: CompileOptions
    """With its parameters, and for variants of it."""
    compiled: bytes = b""
    """Its ahead-of-time file; empty if it cannot be compiled for this kernel."""
    variants: bool = False
    """Whether it is compiled for hosts that the file does not fit."""
    questions: Questions = ()
    """What was asked about this kernel."""
    matches: str = ""
    """Which probes its patterns match here."""

    def variant(self, lacks: frozenset[str], cpus: int) -> bytes:
        """The file for hosts that lack features of the kernel, or have more CPUs.

        Raises:
            Error: there is none.
        """
        options = replace(self.options, disabled=self.options.disabled | lacks)
        return ahead_of_time(self.source, options, live_kernel(options, ahead=True, cpus=cpus)).to_bytes()


def lacking(why: str) -> str:
    """A line about errors that other kernels may not have."""
    return f"this kernel lacks what the script needs ({why}): it is compiled for each kind of host"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to do."""

    name: str
    text: str
    path: str | None
    options: CompileOptions
    facts: bytes
    """Compressed."""


class Compiler:
    """Compiles for kinds of hosts, for their facts one after the other."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._threads = ThreadPoolExecutor(1, "pytrace-variants")
        self._running: dict[Kind, Future[Outcome]] = {}
        self._process: limited_process.Program | None = None
        self._closed = False

    def __call__(self, kind: Kind, facts: bytes) -> Outcome | None:
        """As :data:`pytrace.remote.variants.Compile`."""
        if not kind.facts:
            return Outcome(self._program.variant(kind.lacks, kind.cpus))
        if kind not in self._running:
            if not facts:
                return Outcome(wanted=True)
            self._running[kind] = self._threads.submit(self._compiled, facts)
        future = self._running[kind]
        return self._running.pop(kind).result() if future.done() else None

    def close(self) -> None:
        """End what is running."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            self._process.kill()

    def _compiled(self, facts: bytes) -> Outcome:
        source = self._program.source
        job = Job(name=source.name, text=source.text, path=source.path, options=self._program.options, facts=facts)
        try:
            process = limited_process.Program(compile_job, memory=MEMORY, seconds=TIME, longest=LONGEST)
        except OSError as error:
            return _failed(str(error))
        self._process = process
        if self._closed:
            process.kill()
        try:
            return typed_json.decode(process.result(typed_json.encode(job)), Outcome)
        except limited_process.LimitError as error:
            return _failed(str(error))
        except msgspec.ValidationError:
            return _failed("the compiler's answer is damaged")
        finally:
            self._process = None


def _failed(why: str) -> Outcome:
    return Outcome(error=f"ERROR: compiling for the facts about this kernel failed: {why}\n")


def compile_job(data: bytes) -> bytes:
    """In the process: the outcome of a job, both encoded."""
    return typed_json.encode(compiled(typed_json.decode(data, Job)))


def compiled(job: Job) -> Outcome:
    """The outcome of a job."""
    from pytrace.runtime.load.remote_kernel import RemoteKernel

    options, kernel, error, data = job.options, None, "", b""
    try:
        facts = kernel_info.decoded_facts(unpacked(job.facts))
        kernel = RemoteKernel(facts, debuginfo=options.debuginfo, disabled=options.disabled)
        data = ahead_of_time(Source(job.name, job.text, job.path), options, kernel).to_bytes()
    except TraceError as raised:
        error = render_error(raised)
    except Error as raised:
        error = f"{raised}\n"
    unanswered = tuple(kernel.unanswered) if kernel is not None else ()
    if len(unanswered) > MOST_QUESTIONS:
        return Outcome(error="ERROR: the script asks too much about a kernel\n")
    # What was compiled without answers is of no use.
    return Outcome(questions=unanswered) if unanswered else Outcome(data, error[-MOST_ERROR:])
