"""Command lines: options of pytrace and of tools, environment, addresses, arguments of the Python interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec.structs import replace

from pytrace import pipeline
from pytrace.cli import request
from pytrace.cli.options import OPTIONS, read
from pytrace.cli.script_options import ScriptWords
from pytrace.core import script_options
from pytrace.core.diagnostics import Diagnostics, ScriptError, TraceError
from pytrace.core.options import Address, CompileOptions, Config
from pytrace.core.script_options import ScriptOption, WrongValueError, convert
from pytrace.core.source import Source
from pytrace.core.text import parse_flag, parse_integer
from pytrace.frontend.expand import settings
from pytrace.frontend.syntax import parser
from pytrace.interface import compiled
from pytrace.interface.compiled import Arguments
from pytrace.multitools.table import TOOLS
from tests.fuzz.parsers.scripts import PARAMETERS
from tests.fuzz.target import Target, parts
from tests.support.facts import RecordedKernel
from tests.support.recorded import Facts

_LOOK_ELSEWHERE = ("netns", "container", "cgroup")
"""Options that name something which is looked up on this machine."""


def options(data: bytes) -> None:
    """The words of a command line, NUL between them, up to the checked options of compilation and run."""
    line = read(parts(data))
    for key in _LOOK_ELSEWHERE:
        line.values.pop(key, None)
    if line.operands:
        line.values.setdefault("program", "begin { }")
    run = request.run_options(line)
    script = request.script(line)
    request.of_script(run, script, line)
    request.compile_options(line, run, script)


def option_words() -> Iterator[str]:
    """Options with their arguments."""
    yield from (f"--{row.long}" for row in OPTIONS if row.long)
    yield from (f"-{row.short}" for row in OPTIONS if row.short)
    yield from ("--", "json", "csv", "pprof:period=3", "line", "ast,ir", "uprobe_multi", "a.json", "1,2,3")


_SCRIPT_OPTIONS = (
    ScriptOption(("number", "n"), 5, argument="N"), ScriptOption(("flag", "f"), False),
    ScriptOption(("text", "t"), "", argument="T"),
    *(ScriptOption((f"typed-{name}",), 0, argument="X", type=name, listed=bool(at % 2))
      for at, name in enumerate((*script_options.TYPES, "0..", "-5..9"))),
    ScriptOption(("one",), "a", argument="WORD", choices=("a", "b"), repeat=True),
    ScriptOption(("operand",), "", operand=True, repeat=True),
)  # fmt: skip


def script_words(data: bytes) -> None:
    """Options and operands that a script declares, with values of each type."""
    words = ScriptWords("fuzz", _SCRIPT_OPTIONS)
    named: list[tuple[str, str | None]] = []
    for word in parts(data):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            named.append((name[2:], value if equals else None))
        else:
            words.operands.append(word)
    words.named(named)
    words.values()
    for word in parts(data):
        parse_integer(word)
        parse_flag(word)
        for option in _SCRIPT_OPTIONS:
            try:
                convert(option, word)
            except WrongValueError as wrong:
                wrong.shown(word)


def script_option_words() -> Iterator[str]:
    """Names of the options, and values."""
    yield from (f"--{option.name}=" for option in _SCRIPT_OPTIONS)
    yield from ("1ms", "5s", "0x10", "1e3", "10us", "EPERM", "SIGTERM", "127.0.0.1/8", "::1", "root", "sda", "1-5", ",")


def tool_specs(data: bytes) -> None:
    """Specifications of the multi-purpose tools (``trace``, ``argdist``, ``funccount``): C expressions, signatures,
    formats. What they are translated to is a script without syntax errors.
    """
    name, *texts = parts(data, 4)
    tool = TOOLS.get(name) or TOOLS["trace"]
    words = ScriptWords(tool.name, tool.options, positional=False)
    words.operands.extend(texts)
    words.named(())
    translation = tool.translate(words.values(), RecordedKernel())
    found = Diagnostics()
    parser.parse(Source(tool.name, translation.text), found)
    assert not found.failed, f"{found.errors[0].message}: {translation.text}"


SPEC_WORDS = (
    "trace\0", "argdist\0", "funccount\0", "funclatency\0", "p:", "r:", "t:", "u:", "::", "vfs_read", "do_exit", "app",
    "sched:sched_switch", "(int n, char *s)", ' "%d %s", arg1, arg2', "$retval", "$PID", "$COMM", "(arg1 > 5)",
    "STRCMP",    "struct ", "unsigned long ", "H:", "C:", "#", "sizeof(", "bpf_ntohs(", "->", "%llx", "u64", "args->",
)  # fmt: skip


def environment(data: bytes) -> None:
    """Environment variables, ``NAME=VALUE`` with NUL between them, as far as they configure a script."""
    pairs = [word.partition("=") for word in parts(data)]
    variables = {name: value for name, equals, value in pairs if equals}
    found = Diagnostics()
    program = parser.parse(Source("fuzz", "begin { print(1); }"), found)
    settings.read(program, replace(CompileOptions(), environment=variables), found)


def environment_words() -> Iterator[str]:
    """Names of variables, and values."""
    yield from (f"{prefix}{name.upper()}=" for name in Config.__struct_fields__ for prefix in ("PYTRACE_", "BPFTRACE_"))
    yield from ("1", "true", "false", "0x10", "-1", "PER_PID", "raw", "auto", "error", "18446744073709551616")


def metrics_address(data: bytes) -> None:
    """``--metrics``: what is parsed can be shown and parsed again."""
    found = Address.parsed(data.decode("utf-8", "surrogateescape"))
    again = Address.parsed(found.text)
    assert again == found, (found, again)


def python_arguments(data: bytes) -> None:
    """Arguments of the Python interface (:class:`pytrace.interface.compiled.Arguments`): JSON of a mapping."""
    try:
        arguments = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if not isinstance(arguments, dict) or any(key in arguments for key in _LOOK_ELSEWHERE):
        return
    compiled.check_names(cast(Arguments, arguments))
    options = compiled.compile_options(cast(Arguments, arguments))
    pipeline.compile_script(Source("fuzz", PARAMETERS), options, Facts(), Diagnostics())


PYTHON_WORDS = (*(f'"{name}": ' for name in Arguments.__annotations__), "null", "true", "[]", '["a"]', "{}", "-1")


TARGETS = {
    "options": Target("command lines", options, words=option_words),
    "script_words": Target(
        "options that scripts declare", script_words, words=script_option_words
    ),
    "tool_specs": Target(
        "specifications of trace, argdist and funccount", tool_specs,
        words=lambda: SPEC_WORDS,
    ),
    "environment": Target(
        "environment variables", environment, words=environment_words
    ),
    "metrics_address": Target("--metrics HOST:PORT", metrics_address, length=64),
    "python_arguments": Target(
        "arguments of pytrace.compile, open and run", python_arguments,
        (TraceError, ScriptError, TypeError), words=lambda: PYTHON_WORDS,
    ),
}  # fmt: skip
