from __future__ import annotations

import pytest

from pytrace.cli.scripts import usage
from pytrace.cli.scripts.words import ScriptWords
from pytrace.core.options.script_options import ScriptOption

COMMON = (
    usage.CommonOption("f", "format", "FORMAT", "the format"),
    usage.CommonOption("p", "pid", "PID", "trace PID"),
    usage.CommonOption("", "save", "FILE", "save"),
)


def test_the_parts_in_order() -> None:
    options = (
        ScriptOption(("f", "failed"), False, "only failures"),
        ScriptOption(("s",), "all", "order", "COLUMN", ("all", "reads")),
        ScriptOption(("save",), "", "mine", "WHAT", repeat=True),
        ScriptOption(("interval",), 5, "seconds", "interval", operand=True),
    )
    assert usage.text(ScriptWords("tool", options), "tool: does it", COMMON) == (
        "usage: pytrace tool [options] [interval]\n\n"
        "tool: does it\n\n"
        "Operands:\n"
        "  interval                      seconds (default: 5)\n\n"
        "Options:\n"
        "  -f, --failed                  only failures\n"
        "  -s COLUMN                     order (one of all, reads; default: all)\n"
        "      --save WHAT...            mine\n\n"
        "Options of all scripts:\n"
        "      --format FORMAT           the format\n"
        "  -p, --pid PID                 trace PID\n"
        "`pytrace --help` lists all; with a letter that the script uses itself, give the long name.\n"
    )


def test_named_parameters_of_old_scripts() -> None:
    text = usage.text(ScriptWords("a.bt"), "", (), "  --limit=N  most lines\n")
    assert text == (
        "usage: pytrace a.bt [parameters] [-- parameters]\n\nParameters, after --:\n  --limit=N  most lines\n"
    )


@pytest.mark.parametrize(
    ("script", "header"),
    [
        ("/* a: b */\nbegin { }", "a: b"),
        ("#!/bin/pytrace\n\n/*\n * a: b\n *\n * Examples:\n *   pytrace a\n */", "a: b\n\nExamples:\n  pytrace a"),
        ("/* a: b\n   more\n     inner */", "a: b\nmore\n  inner"),
        ("// a: b\n//   inner\nbegin { }\n// not this", "a: b\n  inner"),
        ("begin { } // no", ""),
        ("", ""),
        ("#!x", ""),
    ],
)
def test_headers(script: str, header: str) -> None:
    assert usage.header(script) == header
