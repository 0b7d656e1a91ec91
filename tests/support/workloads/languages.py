"""Programs of languages whose interpreters have USDT probes in Debian: Python, PHP and Ruby.

Python 3.11 passes ``function__entry`` only while functions are profiled or the probe ``line`` is attached, Ruby 3.1
passes ``method__entry`` and ``method__return`` only while a TracePoint for both is on: the programs here have a
profiler and a TracePoint that do nothing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.patience import patience
from tests.support.tools import cannot

_PYTHON = """
import gc, sys
class Thing: pass
def inner(number): return number
def outer(number): return inner(number)
gc.disable()
sys.setprofile(lambda *arguments: None)
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
for number in range({calls}): outer(number)
for _ in range({collections}): gc.collect()
sys.stdout.write("done\\n"); sys.stdout.flush(); sys.stdin.readline()
"""
_PHP = """<?php
function inner($number) {{ return $number; }}
function outer($number) {{ return inner($number); }}
echo "ready\\n"; fgets(STDIN);
for ($number = 0; $number < {calls}; $number++) outer($number);
for ($number = 0; $number < {collections}; $number++) gc_collect_cycles();
echo "done\\n"; fgets(STDIN);
"""
_RUBY = """
$stdout.sync = true
GC.disable
TracePoint.new(:call, :return) {{ }}.enable
def inner(number); number; end
def outer(number); inner(number); end
puts "ready"; gets
{calls}.times {{ |number| outer(number) }}
{collections}.times {{ GC.start }}
puts "done"; gets
"""


@dataclass(frozen=True)
class Language:
    """How a language's programs are started, and the file with its probes."""

    source: str
    suffix: str
    program: str
    library: str = ""
    """A pattern below /usr/lib, where the probes are not in the program."""
    environment: tuple[tuple[str, str], ...] = ()


LANGUAGES = {
    "python": Language(_PYTHON, "py", "/usr/bin/python3"),
    "php": Language(_PHP, "php", "/usr/bin/php", environment=(("USE_ZEND_DTRACE", "1"),)),
    "ruby": Language(_RUBY, "rb", "/usr/bin/ruby", "*/libruby-*.so.*"),
}


@dataclass(frozen=True)
class Program:
    """A program that has been started and waits: :meth:`work` makes it call its functions."""

    process: subprocess.Popen[str]
    calls: int
    collections: int
    file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def work(self) -> None:
        """Call ``outer``, which calls ``inner``, *calls* times; collect garbage *collections* times."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@cache
def probes(language: str) -> str:
    """The file with the USDT probes of a language; the test is skipped where Debian's interpreter is not installed."""
    row = LANGUAGES[language]
    program_ = Path(row.program)
    found = sorted(Path("/usr/lib").glob(row.library)) if row.library else [program_]
    if not program_.exists() or not found:
        cannot(f"Debian's {language} is not installed ({row.program})")
    return os.path.realpath(found[0])


@contextmanager
def program(folder: Path, language: str, calls: int = 5, collections: int = 2) -> Iterator[Program]:
    """A running program of that language."""
    probes(language)
    row = LANGUAGES[language]
    file = folder / f"methods.{row.suffix}"
    file.write_text(row.source.format(calls=calls, collections=collections))
    with subprocess.Popen(
        [row.program, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **dict(row.environment)},
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Program(process, calls, collections, file)
            assert process.stdin is not None
            process.stdin.write("end\n")
            process.stdin.flush()
            process.wait(timeout=patience(30))
        finally:
            process.kill()
