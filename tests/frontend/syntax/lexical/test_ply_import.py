"""PLY without the modules that only its generators need."""

from __future__ import annotations

import subprocess
import sys

from tests.support.patience import patience

CODE = """
import sys
from pytrace.frontend.syntax.lexical import ply_import
lex, yacc = ply_import.load("lex"), ply_import.load("yacc")
assert lex is ply_import.load("lex") and yacc.LRParser and lex.Lexer
assert not {"inspect", "copy", "ast"} & sys.modules.keys()
import inspect
assert inspect.getsource and sys.modules["inspect"] is inspect is not yacc.inspect
assert yacc.inspect.getsourcelines is inspect.getsourcelines and lex.copy.copy([1]) == [1]
try:
    yacc.inspect.nothing
except AttributeError:
    print("done")
"""


def test_what_its_generators_need_is_imported_when_they_run() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=patience(60))
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_modules_that_are_there_are_used() -> None:
    code = f"import inspect, copy\nreal = inspect{CODE.replace('assert not', 'assert set() ==')}"
    code = code.replace("set() == {", "{").replace("is inspect is not yacc.inspect", "is real is yacc.inspect")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patience(60))
    assert (done.stdout, done.stderr) == ("done\n", "")
