"""``pytrace merge``, ``show`` and ``diff`` as users type them."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytrace.cli import main, subcommands
from pytrace.cli.commands import COMMANDS
from pytrace.cli.options import SHORTCUTS, SUBCOMMANDS
from pytrace.core import types
from pytrace.results import external_sort, file_form, stored_document
from pytrace.results.formats import table as formats
from pytrace.results.formats import text_and_json
from pytrace.results.formats.format_row import Content, Format
from tests.support.snapshots import COUNT, STRING, map_data, run, snapshot, stack, table

ROOT = Path(__file__).resolve().parent.parent.parent


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


def test_tables_in_files_of_their_own(typed: Any) -> None:
    assert typed("show a.pts -f csv --folder tables") == (0, "", "")
    made = {path.name: path.read_text().splitlines() for path in Path("tables").iterdir()}
    assert sorted(made) == ["c.csv", "h.csv", "s.csv"]
    assert made["c.csv"][0] == "key,@c"
    assert made["h.csv"] == ["@h.min,@h.max,@h.count", "2,3,5"]
    assert "3 tables, one after another; --folder DIR" in typed("show a.pts -o all.csv")[2]


def test_a_terminal_gets_escapes_map_by_map(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """And what is written is not kept for the end."""
    save("c.pts", "run-3", {"a\x1b[31mb": 3, "cat": 4}, {3: 5})
    master, terminal = os.openpty()
    code = """if 1:
        import sys
        from pytrace.cli import main, subcommands
        written = []
        plain = subcommands._Terminal.write
        subcommands._Terminal.write = lambda self, data: written.append(len(data)) or plain(self, data)
        status = main.main(["show", "c.pts", "-m", "c", "-m", "h"])
        print(status, len(written), file=sys.stderr)
        """
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=terminal, stderr=subprocess.PIPE, text=True, check=True, env=tree_only()
    )
    os.close(terminal)
    assert os.read(master, 1 << 16).startswith(b"@c[a\\x1b[31mb]: 3\r\n@c[cat]: 4\r\n")
    os.close(master)
    status, writes = map(int, done.stderr.split())
    assert (status, writes > 1) == (0, True)


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_what_is_sorted_in_parts_is_the_same(typed: Any, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    words = [f"w{at * 7919 % 100}" * (1 + at % 3) for at in range(60)]
    pair = types.Tuple((types.INT32, STRING))
    maps = (
        map_data("@c", STRING, COUNT, {word: at % 5 for at, word in enumerate(words)}),
        map_data("@p", pair, types.Stats(), {(at % 4, word): (at, 1 + at % 3) for at, word in enumerate(words)}),
        map_data("@h", types.INT64, types.Hist(), {at: {at % 6: 3, 9: 1} for at in range(30)}),
        map_data("@k", types.Stack(True), types.Max(), {stack(word, "main"): at for at, word in enumerate(words)}),
        map_data("@t", types.INT64, types.TSeries(10**9, 5, "sum"), {at: {at % 7: (at, 1)} for at in range(30)}),
        map_data("@e", STRING, COUNT, {}),
    )
    rows = [(at, "x" * (at * 37 % 50), b"\x1b" * (at % 2)) for at in range(40)]
    one = table(["n", "text", "more"], [types.INT16, STRING, types.Buffer(4)], rows)
    many = snapshot(*maps, tables=(one, table(["m"], [STRING], [("a",)])))
    file_form.write(many, "many.pts")
    expected = typed(f"show many.pts -f {form}")
    assert expected[0] == 0
    monkeypatch.setattr(external_sort, "RUN", 7)
    monkeypatch.setattr(external_sort, "CHUNK", 2)
    monkeypatch.setattr(file_form, "BLOCK_ROWS", 3)
    monkeypatch.setattr(text_and_json, "ROWS", 4)
    monkeypatch.setattr(stored_document, "IN_MEMORY", 1)
    file_form.write(many, "many.pts")
    assert typed(f"show many.pts -f {form}") == expected


def test_garbage_is_collected_in_commands_that_may_run_for_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's start turns the collector off; ``pytrace lsp`` kept 0.7 MiB of each analysis."""
    collects = {}
    try:
        for name in ("agent", "calls", "fleet", "lsp", "why"):
            gc.disable()
            monkeypatch.setitem(subcommands._RUNS, name, lambda _, name=name: collects.update({name: gc.isenabled()}))
            subcommands.run([name])
    finally:
        gc.enable()
        gc.unfreeze()
    assert set(collects.values()) == {True}


def test_memory_does_not_grow_with_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_form, "BLOCK_ROWS", 2048)
    counts = (5_000, 20_000)
    pair = types.Tuple((STRING, STRING))
    for count in counts:
        keys = {(f"{at * 2654435761 % (1 << 32)}", f"process-{at % 100}"): at % 1000 for at in range(count)}
        file_form.write(snapshot(map_data("@", pair, COUNT, keys)), f"{count}.pts")
    for form in ("text", "json", "csv", "openmetrics"):
        few, many = (_peak(["show", f"{count}.pts", "-f", form]) for count in counts)
        # 15,000 keys as objects take 6 MB and more.
        assert many - few < 3 * 1024, (form, few, many)
    for count in counts:
        keys = {(f"{at * 2654435761 % (1 << 32)}", f"process-{at % 100}"): at % 999 for at in range(1, count + 1)}
        file_form.write(snapshot(map_data("@", pair, COUNT, keys)), f"{count}-later.pts")
        # Of another run.
        file_form.write(snapshot(map_data("@", pair, COUNT, keys), of=run("other")), f"{count}-other.pts")
    few, many = (_peak(["diff", f"{count}.pts", f"{count}-later.pts"]) for count in counts)
    assert many - few < 3 * 1024, (few, many)
    few, many = (_peak(["merge", f"{count}.pts", f"{count}-other.pts", "-o", "merged.pts"]) for count in counts)
    # Both as objects take 13 MB.
    assert many - few < 6 * 1024, (few, many)


def _peak(words: list[str]) -> int:
    """By how many KiB the most memory of a forked process that runs a subcommand is above what it begins with."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            external_sort.RUN, external_sort.CHUNK, stored_document.IN_MEMORY = 2048, 32, 1 << 16
            before = memory("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
            status = main.main(words)
            os.write(write, f"{status} {memory('VmHWM') - before}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        status, size = file.read().split()
    os.waitpid(child, 0)
    assert status == "0"
    return int(size)


def memory(name: str) -> int:
    """KiB of this process (proc_pid_status(5))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def tree_only() -> dict[str, str]:
    """The environment of a process that imports pytrace from this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_files_that_unpack_to_very_much_are_shown_when_that_is_allowed(
    typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_document, "LEAST_LIMIT", 1 << 20)
    rows = [(1, "x" * 64)] * 20_000
    file_form.write(snapshot(tables=(table(["n", "text"], [types.INT32, types.String(65)], rows),)), "bomb.pts")
    status, out, error = typed("show bomb.pts --about")
    assert (status, out) == (1, "")
    assert "would unpack" in error
    assert "--limit SIZE" in error
    assert typed("show bomb.pts --limit 1M")[0] == 1
    status, out, _ = typed("show bomb.pts --limit 1g -f csv -o out.csv")
    assert (status, out) == (0, "")
    assert Path("out.csv").stat().st_size == len("n,text\r\n") + 20_000 * len("1,\r\n" + 64 * "x")
    for size in ("x", "-1", "1X", "K", "1.5G"):
        status, _, error = typed(f"show a.pts --limit {size}")
        assert status == 1
        assert "needs a number of bytes" in error


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
        "@s[main;f]: +3 (7 → 10)",
        "# @s: stacks are matched by the names of functions and files",
        "# @s: 7 events before, 10 events after: +3 (+42.9 %)",
        "# @s: grew most:",
        "# @s:           +3  f (7 before, 10 after)",
    ]
    assert typed("diff a.pts a.pts") == (0, "no map differs\n", "")


def test_show_leaves_out_helper_maps_that_are_not_named(typed: Any) -> None:
    made = file_form.read("a.pts")
    for key in ("@c", "@h"):
        made.maps[key].hidden = True
    file_form.write(made, "helpers.pts")
    assert typed("merge helpers.pts b.pts -o merged.pts") == (0, "", "")
    for name in ("helpers.pts", "merged.pts"):
        out = typed(f"show {name}")[1]
        assert ("@s[" in out, "@c[" in out or "@h" in out) == (True, name == "merged.pts")
        assert "@c[" in typed(f"show {name} -m c")[1]
    made.maps["@s"].hidden = True
    file_form.write(made, "helpers.pts")
    assert "@c[" in typed("show helpers.pts")[1], "a run that shows nothing has all of them"


def test_diff_leaves_out_helper_maps_beside_those_that_are_shown(typed: Any) -> None:
    for name in ("a.pts", "b.pts"):
        snapshot = file_form.read(name)
        for key in ("@c", "@h"):
            snapshot.maps[key].hidden = True
        file_form.write(snapshot, f"helpers-{name}")
    files = "helpers-a.pts helpers-b.pts"
    assert typed(f"diff {files}")[1].startswith("@s[main;f]: +3")
    assert typed(f"diff {files} -m h")[1].startswith("@h:\n")
    assert {*json.loads(typed(f"diff {files} -f json")[1])["data"]} == {"@s"}


def test_diff_of_shares_says_so_in_every_format(typed: Any) -> None:
    note = "numbers before are multiplied by 1.429: both have the same total"
    assert typed("diff --scale a.pts b.pts -m s") == (0, "no map differs\n", "")
    assert typed("diff --scale a.pts b.pts -m s -f json")[2] == f"NOTE: @s: {note}\n"
    for suffix in ("svg", "html"):
        assert typed(f"diff --scale a.pts b.pts -m s -o shares.{suffix}")[0] == 0
        assert note in Path(f"shares.{suffix}").read_text()


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

    row = Format("bare", "", (".bare",), frozenset({Content.STACKS}), write)
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, row))
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


@pytest.mark.parametrize("name", sorted({*SUBCOMMANDS} - {"help"}))
def test_without_arguments_a_command_describes_itself(typed: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # At a terminal: an agent has no arguments, and reads its request from whatever else its input is.
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 0)
    status, out, error = typed(name)
    assert (status, out) == (1, "")
    assert error.startswith(f"usage: pytrace {name}")


def test_the_commands_are_those_that_the_command_line_knows() -> None:
    assert {*subcommands._FILES, *subcommands._RUNS, *subcommands._MODULES} == set(SUBCOMMANDS)
    assert {*SUBCOMMANDS, *SHORTCUTS} == set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("merge a.pts", "pytrace merge: option -o FILE is missing"),
        ("merge a.pts a.pts -o c.pts", "a.pts and a.pts hold the same run (x.bt on here)"),
        ("show none.pts", "cannot read 'none.pts': No such file or directory"),
        ("show a.pts -f jsn", "there is no format 'jsn'"),
        ("show a.pts --fancy", "pytrace show: unknown option --fancy"),
        ("show a.pts -m zz", "there is no map 'zz' in the snapshot"),
        ("diff a.pts b.pts -m zz", "there is no map 'zz' in any of the snapshots"),
        ("show a.pts -o /nonexistent/x", "cannot write '/nonexistent/x': No such file or directory"),
        ("show a.pts --folder x", "--folder is for tables: -f csv, arrow, parquet, and not text"),
        ("show a.pts -f csv --folder x -o y", "--folder takes one snapshot and no -o"),
        ("show a.pts -f csv --folder a.pts", "cannot write to 'a.pts': File exists"),
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
        "import sys; from pytrace.cli import main, request; "
        "assert not [name for name in sys.modules if name.startswith('pytrace.results') or name == 'argparse']"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
