"""Settings of all tests: ways to run cases, the fork server, programs, leak checks, and the report for scripts/test."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.support import browser, forked, leaks, parts
from tests.support.patience import LIMIT
from tests.support.programs import build
from tests.support.server import Server

TESTS = Path(__file__).resolve().parent

# Its tests of rows are assigned in the modules that have the rows: a failure shows both sides.
pytest.register_assert_rewrite("tests.frontend.checking")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--way`` picks how case files are run."""
    parser.addoption(
        "--way", action="append", choices=("compile", "host", "vm"), default=None,
        help="run case files only compiled, on this kernel, or as in the test machine (default: compile and host)",
    )  # fmt: skip
    parser.addoption("--all-rows", action="store_true", help="in the test machine too, run every case and program")
    parser.addoption("--core", action="store_true", help="in the test machine, only tests with the mark core")
    parser.addoption("--random-programs", type=int, default=8, help="random programs for each way to run them")
    parser.addoption("--random-seed", type=int, default=0, help="which is the first of them")
    parser.addoption("--at-most", type=float, default=0.0, metavar="SECONDS", help="begin no test after this time")
    parser.addoption("--rest", action="store_true", help="leave out tests that the report has results of")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests in tests/kernel and cases of tools trace; soak tests only run when they are asked for by name or mark."""
    for item in items:
        tools = [name for mark in item.iter_markers("tool") for name in mark.args]
        if tools:
            item.user_properties.append(("tools", tools))
        if tools or _is_in("kernel", item):
            item.add_marker(pytest.mark.kernel)
    soak = "soak" in (config.getoption("-m") or "")
    done = _done() if config.getoption("--rest") else set()
    unwanted = {item for item in items if _is_empty(item) or item.nodeid in done}
    if not soak:
        unwanted.update(item for item in items if item.get_closest_marker("soak"))
    if _of_each_kernel(config):
        marks = _chosen_marks(config)
        unwanted.update(item for item in items if _chooses(item.path) and not any(map(item.get_closest_marker, marks)))
    if unwanted:
        config.hook.pytest_deselected(items=[item for item in items if item in unwanted])
        items[:] = [item for item in items if item not in unwanted]


def _is_in(folder: str, item: pytest.Item) -> bool:
    return item.nodeid.startswith(f"tests/{folder}/")


def _of_each_kernel(config: pytest.Config) -> bool:
    """Whether only what each kernel has to show is run: in the emulated machine, which is slow."""
    everything = config.getoption("--all-rows") or (config.getoption("keyword") and not config.getoption("--core"))
    return config.getoption("--way") == ["vm"] and not everything


def _chosen_marks(config: pytest.Config) -> tuple[str, ...]:
    """The marks of tests that the test machine runs; what is in its core is for each kernel, too."""
    return ("core",) if config.getoption("--core") else ("core", "each_kernel")


def _chooses(path: Path) -> bool:
    """Whether tests of a file run in the test machine only with a mark."""
    return path.parent in (TESTS / "kernel", TESTS / "tools")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test of the part that runs are not imported."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    if _of_each_kernel(config):
        marks = _chosen_marks(config)
        return (_chooses(collection_path) and not parts.names_a_mark(collection_path, *marks)) or None
    # The marks that scripts/test chooses.
    chosen = (config.getoption("-m") or "").partition(" and ")[0]
    if chosen == "not kernel":
        return collection_path.parent == TESTS / "kernel" or None
    return (chosen == "kernel" and not parts.runs("kernel", collection_path)) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Millions of objects are made, and hardly one is given up: the collector would look at all of them each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def _is_empty(item: pytest.Item) -> bool:
    """A parametrized test without parameters, as when no case is run in the way that was asked for."""
    marks = item.iter_markers("skip")
    return any(str(mark.kwargs.get("reason", "")).startswith("got empty parameter set") for mark in marks)


class _Clock:
    """When tests began, for ``--at-most``."""

    started = 0.0


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on tests run."""
    _Clock.started = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A kernel test without root has nothing to test; nor is there time for all tests in ``scripts/test quick``."""
    limit = item.config.getoption("--at-most")
    if limit and time.monotonic() - _Clock.started > limit:
        pytest.skip(f"no time left of {limit:.0f} s")
    if item.get_closest_marker("kernel") and os.geteuid() != 0:
        pytest.skip("needs root")
    parts.need(*(name for mark in item.iter_markers("needs") for name in mark.args))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End a test that takes too long."""

    def stop(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"the test did not end within {LIMIT} s")

    former = signal.signal(signal.SIGALRM, stop)
    signal.alarm(0 if item.get_closest_marker("soak") else LIMIT)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


@pytest.fixture(autouse=True)
def own_privileges() -> Iterator[None]:
    """A run in the process of the tests would give up privileges that later tests need."""
    before = _no_new_privileges()
    yield
    assert _no_new_privileges() == before, "the test gave up privileges of this process: it needs keep_privileges"


def _no_new_privileges() -> str:
    status = Path("/proc/self/status").read_text()
    return status[status.index("NoNewPrivs:") :].partition("\n")[0]


@pytest.fixture(autouse=True)
def starts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tests trace, ``python -m pytrace`` is forked, unless they are about starting (the mark ``own_process``)."""
    if request.node.get_closest_marker("kernel") and not request.node.get_closest_marker("own_process"):
        monkeypatch.setattr(subprocess, "Popen", forked.Popen)


@pytest.fixture(scope="module", autouse=True)
def browser_of_the_module() -> Iterator[None]:
    """The browser that tests of a module opened ends with them."""
    yield
    browser.close()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the built programs of tests/programs.

    It is a copy: probes on a file see every process that runs it, and other tests may run at the same time.
    """
    from tests.support import compile_guest  # all of pytrace, which other tests need not wait for

    folder, original = tmp_path_factory.mktemp("programs"), build()
    shutil.copytree(original, folder, dirs_exist_ok=True)
    compile_guest.copied(folder, original)
    return folder


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Runs pytrace's command line in a process that has everything imported."""
    running = Server()
    yield running
    running.close()


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """The test leaves no BPF programs, maps, links, probes in tracefs or processes."""
    with leaks.no_leaks():
        yield


# ---------------------------------------------------------------------------------------------- report


class _Report:
    """One JSON line for each test, in the file that PYTRACE_TEST_REPORT names, for the summary of scripts/test."""

    def __init__(self, path: str) -> None:
        self.path = path

    @pytest.hookimpl
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(nodeid, "started", "", 0.0)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            outcome = "failed" if report.failed else report.outcome
            tools = dict(report.user_properties).get("tools")
            self._write(report.nodeid, outcome, str(reason).removeprefix("Skipped: "), report.duration, tools)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, "failed", "could not be collected", 0.0)

    @pytest.hookimpl
    def pytest_internalerror(self, excrepr: object) -> None:
        with open(f"{self.path}.broken", "a", encoding="utf-8") as file:
            file.write(f"{excrepr}\n")

    def _write(self, name: str, outcome: str, reason: str, seconds: float, tools: object = None) -> None:
        item = {"name": name, "outcome": outcome, "reason": reason, "seconds": seconds}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(item | ({"tools": tools} if tools else {})) + "\n")


def _done() -> set[str]:
    """Tests that the report has results of, from a machine that hung in a later one."""
    path = Path(os.environ.get("PYTRACE_TEST_REPORT", ""))
    items = [json.loads(text) for text in path.read_text().splitlines()] if path.is_file() else []
    return {item["name"] for item in items if item["outcome"] != "started"}


@pytest.hookimpl(tryfirst=True)  # the plugin of hypothesis loads the profile that it is told to
def pytest_configure(config: pytest.Config) -> None:
    """The report is written by the process that sees all results, not by xdist's workers.

    Tests send signals to what they start, which inherits what is ignored here: under ``nohup``, or in the background.
    """
    if not _of_each_kernel(config):
        from tests.support import examples  # hypothesis takes seconds in the test machine, where no property is tried

        examples.register()
    for number, default in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
    path = os.environ.get("PYTRACE_TEST_REPORT")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(path), "pytrace-report")
