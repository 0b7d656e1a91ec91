"""``pytrace merge``, ``show`` and ``diff`` as users type them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytrace.cli import main, subcommands
from pytrace.core import types
from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.formats.format_row import Content, Format
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(main, "_name_process", lambda: None)
    monkeypatch.chdir(tmp_path)
    save("a.pts", "run-1", {"bash": 3, "ls": 4}, {3: 5})
    save("b.pts", "run-2", {"bash": 9, "cat": 1}, {3: 1, 5: 2})
    return tmp_path


def save(path: str, identity: str, counts: dict[Any, int], buckets: dict[int, int]) -> None:
    maps = (
        map_data("@c", STRING, COUNT, counts),
        map_data("@h", None, types.Hist(), {None: buckets}),
        map_data("@s", types.Stack(True), COUNT, {stack("f", "main"): sum(counts.values())}),
    )
    file_form.write(snapshot(*maps, of=run(identity)), path)


@pytest.fixture
def typed(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """``typed(words)`` gives the exit status, standard output and standard error."""

    def command(text: str) -> tuple[int, str, str]:
        sys.stdout.flush()
        status = main.main(text.split())
        sys.stdout.flush()
        sys.stderr.flush()
        out, error = capfdbinary.readouterr()
        return status, out.decode(), error.decode()

    return command


def test_merge_writes_a_snapshot_of_both(typed: Any) -> None:
    assert typed("merge a.pts b.pts -o c.pts") == (0, "", "")
    assert typed("show c.pts -m c") == (0, "@c[cat]: 1\n@c[ls]: 4\n@c[bash]: 12\n", "")
    assert typed("merge -o d.pts b.pts a.pts")[0] == 0
    assert file_form.read("d.pts") == file_form.read("c.pts")


def test_show_prints_as_a_format_or_into_a_file(typed: Any) -> None:
    status, out, _ = typed("show a.pts -f json -m @h")
    assert (status, json.loads(out)["data"]) == (0, {"@h": [{"min": 2, "max": 3, "count": 5}]})
    assert typed("show a.pts -o out.json") == (0, "", "")
    assert len(Path("out.json").read_text().splitlines()) == 3
    assert typed("show a.pts -v -m c")[1].startswith("# x.bt (SHA-256 abababababab) on here, Linux 6.1.0 x86_64\n")


def test_diff_shows_the_largest_change_last(typed: Any) -> None:
    status, out, _ = typed("diff a.pts b.pts")
    assert status == 0
    assert out.splitlines() == [
        "@c[cat]: +1 (new)",
        "@c[ls]: -4 (was 4)",
        "@c[bash]: +6 (3 → 9)",
        "@h:",
        f"[2, 4)                -4 |{'-' * 52}|",
        f"[4, 8)                +0 |{'':<52}|",
        f"[8, 16)               +2 |{'+' * 26:<52}|",
        "",
        "@s[",
        "        f+4",
        "        main+4",
        "]: +3 (7 → 10)",
    ]
    assert typed("diff a.pts a.pts") == (0, "no map differs\n", "")


def test_diff_in_json(typed: Any) -> None:
    _, out, _ = typed("diff a.pts b.pts -f json -m c -m h")
    first, second = map(json.loads, out.splitlines())
    assert first == {"type": "difference", "data": {"@c": {
        "cat": {"before": None, "after": 1, "change": 1},
        "ls": {"before": 4, "after": None, "change": -4},
        "bash": {"before": 3, "after": 9, "change": 6},
    }}}  # fmt: skip
    assert [item["count"] for item in second["data"]["@h"]["change"]] == [-4, 0, 2]


def test_other_formats_get_signed_numbers(typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(found: Any, _options: object, file: Any) -> None:
        file.write(repr([list(data.entries.values()) for data in found.maps.values()]).encode())

    row = Format("bare", "", (".bare",), frozenset({Content.STACKS}), lambda: write)
    monkeypatch.setattr(table, "FORMATS", (*table.FORMATS, row))
    status, out, error = typed("diff a.pts b.pts -f bare")
    assert (status, out) == (0, "[[3]]")
    assert "WARNING: format bare cannot show @c (numbers)\n" in error


def test_folded_stacks_have_both_numbers(typed: Any) -> None:
    assert typed("diff a.pts b.pts -f folded -m s") == (0, "main;f 7 10\n", "")
    status, out, error = typed("diff a.pts b.pts -f folded:stacks")
    assert (status, out) == (0, "main;f 7 10\n")
    assert error.splitlines() == [
        "WARNING: format folded cannot show @c (numbers)", "WARNING: format folded cannot show @h (histograms)"
    ]  # fmt: skip
    assert "format folded cannot show @h" in typed("diff a.pts b.pts -f folded -m h")[2]


@pytest.mark.parametrize("name", subcommands._COMMANDS)
def test_without_arguments_a_command_describes_itself(typed: Any, name: str) -> None:
    status, out, error = typed(name)
    assert (status, out) == (1, "")
    assert error.startswith(f"usage: pytrace {name} ")


def test_the_commands_are_those_that_the_command_line_knows() -> None:
    assert set(subcommands._COMMANDS) == set(main.SUBCOMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("merge a.pts", "pytrace merge: the following arguments are required: -o/--output"),
        ("merge a.pts a.pts -o c.pts", "a.pts and a.pts hold the same run (x.bt on here)"),
        ("show none.pts", "cannot read 'none.pts': No such file or directory"),
        ("show a.pts -f jsn", "there is no format 'jsn'"),
        ("show a.pts --fancy", "unrecognized arguments: --fancy"),
        ("show a.pts -m zz", "there is no map 'zz' in the snapshot"),
        ("diff a.pts b.pts -m zz", "there is no map 'zz' in either snapshot"),
        ("show a.pts -o /nonexistent/x", "cannot write '/nonexistent/x': No such file or directory"),
        ("merge a.pts b.pts -o .", "cannot write '.': Is a directory"),
    ],
)
def test_mistakes_are_told_without_a_traceback(typed: Any, words: str, message: str) -> None:
    status, out, error = typed(words)
    assert (status, out) == (1, "")
    assert error.startswith("ERROR: ")
    assert message in error
    assert not Path("c.pts").exists()


def test_an_output_that_fails_leaves_the_old_file(typed: Any) -> None:
    before = Path("b.pts").read_bytes()
    assert typed("merge a.pts a.pts -o b.pts")[0] == 1
    assert Path("b.pts").read_bytes() == before
    assert sorted(os.listdir(".")) == ["a.pts", "b.pts"]


def test_a_script_of_that_name_is_run_by_its_path(typed: Any) -> None:
    Path("merge").write_text("this is no script")
    status, _, error = typed("--mode codegen ./merge")
    assert status == 1
    assert "merge:1" in error


def test_an_ordinary_start_imports_nothing_of_this() -> None:
    code = (
        "import sys; from pytrace.cli import main, commands, request; "
        "assert not [name for name in sys.modules if name.startswith('pytrace.results') or name == 'argparse']"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
