"""Runs the case files and the recorded programs: compiled only, on this kernel, or in the test machine."""

from __future__ import annotations

import fcntl
import pickle
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import expect, forked_workers, machine, outputs, usage
from tests.support.cases import CASES, Case, Check, load_all, of_begin_and_end
from tests.support.expect import Result
from tests.support.leaks import LateWatch, Watch
from tests.support.patience import patience
from tests.support.server import Server

ROOT = Path(__file__).resolve().parent.parent

IN_EACH_KERNEL = {
    "code": ("long_while", "string_searches", "strings_of_64k"),
    "examples": ("block_io",),
    "iter": ("tasks",),
    "listing": ("struct_definition", "with_arguments"),
    "macros": ("functions_call_functions",),
    "modes": ("benchmarks",),
    "objects": ("object_file",),
    "rawtracepoints": ("arguments_by_name",),
    "selection": ("follow_profile",),
    "software": ("page_faults",),
    "statements": ("nested_map_loops",),
    "timers": ("curtask_walk", "interval_hz", "profile_kernel_stack"),
    "tracepoints": ("data_loc_string", "follow_the_children", "raw_tracepoint_arguments", "sched_switch"),
    "unsafe": ("write_user",),
    "unwinding": ("of_a_child_entering_the_kernel",),
    "uprobes": ("count", "return_value", "usym", "wildcard"),
    "usdt": ("four_arguments", "semaphore_is_raised"),
}
"""By family, cases that the test machine runs although this machine's kernel runs them too: one for each way to attach,
to read and to loop. What its verifier accepts is in ``tests/kernel/test_acceptance.py``. With ``--all-rows``, or with
``-k``, it runs all cases and recorded programs."""

CORE = {
    "fentry": ("all_arguments", "kernel_stacks_begin_at_the_function", "listing", "order_and_numbers"),
    "kprobes": (
        "all_arguments", "arguments", "nothing_half_attached", "results", "several_blocks_in_order",
        "stack_as_key",
    ),
    "selection": ("follow_fentry", "follow_kprobes"),
}  # fmt: skip
"""By family, cases of the core of the test machine: what is traced by kinds of probes that the usual kernel of a
developer's sandbox lacks."""

OF_SOME_KERNELS = frozenset({"kprobe", "fentry", "kprobe_multi", "kprobe_session", "modules", "module_btf", "override"})


def _ways(config: pytest.Config) -> tuple[str, ...]:
    return tuple(config.getoption("--way") or ("compile", "host"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each case and way, one for each recorded program and output."""
    ways = _ways(metafunc.config)
    if metafunc.function is test_case:
        core = metafunc.config.getoption("--core")
        cases = _listed(load_all(CORE), CORE) if core else [*load_all(), *usage.cases()]
        if not core and ways == ("vm",) and not _everything(metafunc.config):
            cases = _in_the_guest(cases)
        chosen = [(case, way) for case in cases for way in ways if way in case.where]
        metafunc.parametrize(
            ("case", "way"),
            [pytest.param(case, way, id=case.id(way), marks=_marks(way)) for case, way in chosen],
        )
    elif metafunc.function is test_recorded:
        rows = outputs.rows()
        if "vm" in ways and not _everything(metafunc.config):
            rows = []
        outs = ("text", "json") if "host" in ways else ("text",) if "vm" in ways else ()
        chosen_rows = [(row, output) for row in rows for output in outs]
        metafunc.parametrize(
            ("row", "output"),
            [pytest.param(row, output, id=f"{row.name}-{output}", marks=_marks("host")) for row, output in chosen_rows],
        )


def _everything(config: pytest.Config) -> bool:
    return bool(config.getoption("--all-rows") or (config.getoption("keyword") and not config.getoption("--core")))


def _in_the_guest(cases: Iterable[Case]) -> list[Case]:
    """Cases that this machine's kernel cannot run, without the invocations of examples, and :data:`IN_EACH_KERNEL`."""
    return [
        case
        for case in cases
        if "vm" in case.where and case.family != "usage"
        if OF_SOME_KERNELS.intersection(case.needs)
        or "host" not in case.where
        or case in _listed([case], IN_EACH_KERNEL)
    ]


def _listed(cases: Iterable[Case], names: Mapping[str, Collection[str]]) -> list[Case]:
    return [case for case in cases if case.name in names.get(case.family, ())]


def _marks(way: str) -> list[pytest.MarkDecorator]:
    return [] if way == "compile" else [pytest.mark.kernel]


class Together:
    """Plain cases and recorded programs, which one process of the server runs block by block.

    Workers of one session share *folder*: each may have tests of the same block, and one of them runs it for all.
    """

    BLOCK = 20

    def __init__(self, server: Server, folder: Path, order: list[tuple[str, ...]]) -> None:
        self._server = server
        self._folder = folder
        self.cache = folder / "cache"
        self._order = order
        self._blocks = {argv: place // self.BLOCK for place, argv in reversed([*enumerate(order)])}
        self._results: dict[tuple[str, ...], Result | None] = {}
        self._leaked: list[str] = []

    def result(self, argv: tuple[str, ...]) -> Result | None:
        """What a command line does; None when the process did not get there."""
        if argv not in self._results:
            block = self._blocks[argv]
            path = self._folder / f"{block}.results"
            with (self._folder / f"{block}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.exists():
                    path.write_bytes(pickle.dumps(self._run(block)))
            self._results.update(pickle.loads(path.read_bytes()))
        return self._results[argv]

    def _run(self, block: int) -> dict[tuple[str, ...], Result | None]:
        runs = [*dict.fromkeys(self._order[block * self.BLOCK : (block + 1) * self.BLOCK])]
        watch = Watch()
        results = self._server.run_together(runs, cwd=self._folder, cache=self.cache)
        self._leaked = [f"left in the kernel: {leaked}" for leaked in watch.leaked()]
        return dict(zip(runs, results, strict=True))

    def left(self) -> list[str]:
        """What the last process left in the kernel, told once."""
        leaked, self._leaked = self._leaked, []
        return leaked


@pytest.fixture(scope="session")
def together(server: Server, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Together:
    """What the chosen plain cases and recorded programs do."""
    chosen = (getattr(item, "callspec", None) for item in request.session.items)
    order = [_plain(call.params) for call in chosen if call is not None]
    base = tmp_path_factory.getbasetemp()
    common = base.parent if hasattr(request.config, "workerinput") else forked_workers.Shared.folder
    folder = (common or base) / "together"
    folder.mkdir(exist_ok=True)
    return Together(server, folder, [argv for argv in order if argv])


@pytest.fixture(scope="module")
def late() -> Iterator[LateWatch]:
    """Looks for what cases left in the kernel."""
    watch = LateWatch()
    yield watch
    left = watch.begin("")
    assert not left


def _plain(parameters: Mapping[str, object]) -> tuple[str, ...] | None:
    """The command line of a case or recorded program that asks about the language alone."""
    case, row = parameters.get("case"), parameters.get("row")
    if isinstance(case, Case) and case.plain and parameters.get("way") != "compile":
        return case.argv
    if isinstance(row, outputs.Row) and of_begin_and_end(row.program):
        return row.argv(str(parameters["output"]))
    return None


def test_case(case: Case, way: str, server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    machine.need(*case.needs)
    argv = _plain({"case": case, "way": way})
    if argv:
        together: Together = request.getfixturevalue("together")
        shared = together.result(argv)
        if shared is not None:
            _judge(case, expect.problems(case, shared) + together.left(), shared)
            return
    prepared = _prepare(case, tmp_path, request)
    late: LateWatch = request.getfixturevalue("late")
    before = [] if way == "compile" else late.begin(case.id(way))
    result = server.run(
        prepared.argv,
        cwd=tmp_path,
        stdin=prepared.stdin,
        environment={"XDG_CACHE_HOME": str(_cache(case, tmp_path, request)), **dict(prepared.environment)},
        timeout=case.timeout,
        when_attached=prepared.when_attached,
    )
    found = expect.problems(prepared, result)
    if case.after and not found:
        found += _after(prepared, tmp_path)
    _judge(prepared, before + found, result)


def _cache(case: Case, folder: Path, request: pytest.FixtureRequest) -> Path:
    """The session's, with what is known of the kernel; an own one for cases that look at what a run writes."""
    if case.after or (case.environment and case.family != "usage"):
        return folder / ".cache"
    together: Together = request.getfixturevalue("together")
    return together.cache


def _judge(case: Case, found: list[str], result: Result) -> None:
    if found:
        place = f"case {case.family}.case:{case.line}"
        pytest.fail("\n".join([*found, place, _command(case), str(result)]), pytrace=False)


def _prepare(case: Case, folder: Path, request: pytest.FixtureRequest) -> Case:
    """Write the case's files and put folders in place of ``{programs}``, ``{root}``, ``{cgroup2}`` and ``{tmp}``.

    ``{vfs_write}`` is the address of that function of the kernel.
    """
    from dataclasses import replace

    from pytrace.runtime.machine.kernel_functions import Kallsyms

    places = {"{tmp}": str(folder), "{root}": str(ROOT), "{pytrace}": f"PYTHONPATH={ROOT} {sys.executable} -m pytrace"}
    if "{cgroup2}" in repr(case):
        places["{cgroup2}"] = machine.cgroup2_mount()
    if "{programs}" in repr(case):
        places["{programs}"] = str(request.getfixturevalue("programs"))
    if "{vfs_write}" in repr(case):
        places["{vfs_write}"] = f"{Kallsyms().address('vfs_write') or 0:#x}"

    def fill(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    def fill_all(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(fill(text) for text in texts)

    for name, text in case.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(fill(text))
        if text.startswith("#!"):
            path.chmod(0o755)
    return replace(
        case,
        program=None if case.program is None else fill(case.program),
        options=fill_all(case.options),
        args=fill_all(case.args),
        command=None if case.command is None else fill_all(case.command),
        environment=tuple((name, fill(value)) for name, value in case.environment),
        checks=tuple(Check(check.stream, check.form, fill(check.text)) for check in case.checks),
        when_attached=fill_all(case.when_attached),
        after=None if case.after is None else fill(case.after),
    )


def _after(case: Case, folder: Path) -> list[str]:
    """The shell command that looks at what a run wrote; it must succeed."""
    import subprocess

    assert case.after is not None
    run = subprocess.run(
        case.after, shell=True, cwd=folder, capture_output=True, text=True, timeout=patience(30), check=False
    )
    return [f"after: status {run.returncode}: {run.stdout}{run.stderr}"] if run.returncode else []


def _command(case: Case) -> str:
    import shlex

    return "pytrace " + shlex.join(case.argv)


def test_recorded(row: outputs.Row, output: str, server: Server, request: pytest.FixtureRequest) -> None:
    argv = _plain({"row": row, "output": output})
    shared = request.getfixturevalue("together").result(argv) if argv else None
    if shared is not None:
        _judge_row(row, output, outputs.problems(row, output, shared), shared)
        return
    # What a timer does between exit() and its end depends on how busy the machine is: such rows may try again.
    cache = request.getfixturevalue("together").cache
    for _ in range(3 if "interval:" in row.program or "profile:" in row.program else 1):
        result = server.run(row.argv(output), cwd="/", environment={"XDG_CACHE_HOME": str(cache)})
        found = outputs.problems(row, output, result)
        if not found:
            break
    _judge_row(row, output, found, result)


def _judge_row(row: outputs.Row, output: str, found: list[str], result: Result) -> None:
    if found:
        import shlex

        pytest.fail("\n".join([*found, "pytrace " + shlex.join(row.argv(output)), str(result)]), pytrace=False)


def test_cases_of_each_kernel_are_there() -> None:
    named = {(family, name) for table in (IN_EACH_KERNEL, CORE) for family, names in table.items() for name in names}
    assert named <= {(case.family, case.name) for case in load_all() if "vm" in case.where}


def test_differences_are_documented() -> None:
    text = (Path(__file__).parent.parent / "docs" / "start" / "differences.md").read_text()
    titles = _titles(text)
    undocumented = {name: item.section for name, item in outputs.DIFFERENCES.items() if item.section not in titles}
    assert not undocumented
    assert set(outputs.DIFFERENCES) <= {row.name for row in outputs.rows()}


def test_documented_differences_have_tests() -> None:
    text = (Path(__file__).parent.parent / "docs" / "start" / "differences.md").read_text()
    named = {item.section for item in outputs.DIFFERENCES.values()} | {
            "Imports of root", "Functions of Python", "Calls as one probe",
            "System calls as strace prints them, functions as a tree", "Functions of one name in a binary",
            "Functions of one name in the kernel", "Entries of Go functions", "Maps that are not printed",
            "Entries of functions that begin with `endbr64` and `push`",
        }  # fmt: skip
    # These: tests/frontend/expand, tests/kernel/test_python_stacks.py, test_call_probes.py, test_calls.py,
    # test_call_probes.py (two), test_go_programs.py, tests/cases/maps.case and test_call_probes.py
    for file in CASES.glob("*.case"):
        named |= {line.strip().removeprefix("# ") for line in file.read_text().splitlines() if line.startswith("  # ")}
    assert not _titles(text) - named


def _titles(text: str) -> set[str]:
    """The names of the differences: first cells of the tables."""
    rows = (line.strip("| ").partition(" | ")[0] for line in text.splitlines() if line.startswith("| "))
    return {title for title in rows if title != "difference"}


def test_each_example_says_how_it_is_used() -> None:
    lines = {path.name: usage.usage_lines(path) for path in usage.EXAMPLES.glob("*.bt")}
    assert all(lines.values())
    assert sum(map(len, lines.values())) >= len(lines) * 3 // 2
    assert usage.usage_lines(usage.EXAMPLES / "block-io.bt")[1] == ("-c", "sync", "--", "--slower=20")
