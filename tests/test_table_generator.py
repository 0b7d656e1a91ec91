"""The shipped tables: current, complete, and all that a run needs of PLY's generators."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from generating.tables import Generated, generate, generate_lexer

from pytrace.frontend.syntax import grammar_tables, lexer, lexer_tables
from pytrace.frontend.syntax.lexer import Lexeme, matches

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("tables", "make"), [(grammar_tables, generate), (lexer_tables, generate_lexer)], ids=["grammar", "lexer"]
)
def test_shipped_tables_are_current(tables: ModuleType, make: Callable[[], Generated]) -> None:
    made = make()
    assert made.messages == []
    assert tables.__file__ is not None
    assert Path(tables.__file__).read_text() == made.text, "run scripts/generate-tables"


def test_each_state_is_one_expression() -> None:
    """PLY splits what ``re`` does not compile, and then tries the parts one after the other."""
    assert set(lexer_tables._lexstatere) == {"INITIAL", *(name for name, _ in lexer.states)}
    assert {len(table) for table in lexer_tables._lexstatere.values()} == {1}


@pytest.mark.parametrize(
    ("expression", "message"),
    [("(", "Invalid regular expression for rule 't_script_bad'"), ("a*", "matches empty string")],
)
def test_what_is_wrong_with_a_rule_is_told(expression: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @matches(expression)
    def t_script_bad(lexeme: Lexeme) -> None:
        pass

    monkeypatch.setattr(lexer, "t_script_bad", t_script_bad, raising=False)
    made = generate_lexer()
    assert made.text == ""
    assert any(message in line for line in made.messages), made.messages


RUN = """
import builtins, inspect, sys
def refuse(*arguments, **options):
    raise AssertionError(arguments)
inspect.getsource = inspect.getsourcelines = inspect.getsourcefile = refuse
opened = builtins.open
builtins.open = lambda file, mode="r", *rest, **options: refuse(file, mode) if "w" in mode else opened(
    file, mode, *rest, **options)
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
from pytrace.frontend.syntax import parser
tables = {"pytrace.frontend.syntax.lexer_tables", "pytrace.frontend.syntax.grammar_tables"}
assert not ({"ply"} | tables) & set(sys.modules)
diagnostics = Diagnostics()
program = parser.parse(Source("t", "begin { @a = (uint8)1; }"), diagnostics)
print(len(program.probes), len(diagnostics.items), "pytrace.frontend.syntax.lexer_tables" in sys.modules)
"""


def test_a_run_reads_the_tables_and_neither_source_nor_docstrings(tmp_path: Path) -> None:
    command = [sys.executable, "-OO", "-c", RUN]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=120, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.stdout == "1 0 True\n", done.stderr
    assert list(tmp_path.iterdir()) == []
