"""The archive of modules: what is imported from it, and when it is not used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytrace.base import lazy_regex, module_archive, module_archive_writer
from pytrace.base.module_archive import Archive
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parent.parent.parent

STARTED = """
import atexit, sys
sys.path.insert(0, {root!r})
def show():
    loaders = [type(module.__spec__.loader).__name__ for name, module in sys.modules.items()
               if name.startswith("pytrace.") and getattr(module, "__spec__", None)]
    print(loaders.count("_Loader"), len(loaders), "ctypes" in sys.modules, file=sys.stderr)
atexit.register(show)
from pytrace.cli.entry import command
command()
"""


def start(folder: Path, *words: str, cache: str = "", before: tuple[str, ...] = (), **environment: str) -> list[str]:
    """Start the command as its launcher does: modules from the archive, all modules of pytrace, its output."""
    program = folder / "bin" / "pytrace-start"
    program.parent.mkdir(exist_ok=True)
    if not program.exists():
        program.write_text(STARTED.format(root=str(ROOT)))
    (folder / "cache").mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, *before, str(program), *(words or ("--version",))],
        env={**kept, "XDG_CACHE_HOME": cache or str(folder / "cache"), **environment},
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip
    assert done.stdout == "pytrace 0.1.0\n"
    return done.stderr.split()


def archives(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "pytrace" / "modules").glob("*"))


def test_the_second_start_imports_from_the_archive(tmp_path: Path) -> None:
    first, modules, _ = start(tmp_path)
    assert first == "0"
    (made,) = archives(tmp_path)
    assert made.stat().st_mode & 0o777 == 0o600
    second, same, _ = start(tmp_path)
    # The first start has imported the writer as well. Modules that find the archive come from their own files.
    assert int(same) <= int(modules)
    assert int(same) - 8 <= int(second) < int(same)
    assert archives(tmp_path) == [made]


def test_a_start_that_imports_nothing_new_leaves_the_archive_alone(tmp_path: Path) -> None:
    start(tmp_path)
    (made,) = archives(tmp_path)
    before = made.stat()
    start(tmp_path)
    assert made.stat().st_ino == before.st_ino
    start(tmp_path, "--version", "--no-warnings")
    assert made.stat().st_ino == before.st_ino


def test_others_could_have_written_it(tmp_path: Path) -> None:
    start(tmp_path)
    (made,) = archives(tmp_path)
    made.chmod(0o666)
    assert start(tmp_path)[0] == "0"
    made.chmod(0o600)
    made.parent.chmod(0o777)
    assert start(tmp_path)[0] == "0"
    made.parent.chmod(0o700)
    assert start(tmp_path)[0] != "0"


def test_a_search_that_depends_on_the_environment_has_none(tmp_path: Path) -> None:
    start(tmp_path)
    assert start(tmp_path, PYTHONPATH=str(tmp_path))[0] == "0"
    assert start(tmp_path, before=("-O",))[0] == "0", "another kind of code has an archive of its own"
    assert start(tmp_path)[0] != "0"


def test_no_code_is_written_where_python_shall_not_write_its_own(tmp_path: Path) -> None:
    start(tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert archives(tmp_path) == []


@pytest.mark.parametrize("cache", ["/proc/nothing", "/dev/null"])
def test_a_cache_that_cannot_be_written(tmp_path: Path, cache: str) -> None:
    for _ in range(2):
        assert start(tmp_path, cache=cache)[0] == "0"


COLLECTIONS = """
import sys
sys.path.insert(0, {root!r})
from pytrace.base import module_archive
module_archive.install()
from collections.abc import Mapping
early = "collections" in sys.modules
import collections.abc
from collections import abc, OrderedDict
assert collections.abc is abc is sys.modules["collections.abc"] and abc.Mapping is Mapping
assert issubclass(OrderedDict, collections.abc.MutableMapping)
print(early)
archive = module_archive.unsaved()
if archive is not None:
    from pytrace.base import module_archive_writer
    module_archive_writer.write(archive)
"""


def test_abstract_classes_without_the_rest_of_collections(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(COLLECTIONS.format(root=str(ROOT)))
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    for early in ("True\n", "False\n", "False\n"):
        done = subprocess.run(
            [sys.executable, str(program)], env={**kept, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=patience(60),
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (early, "")


# ---------------------------------------------------------------------------------------------- entries


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package of two modules, imported."""
    folder = tmp_path / "somewhere" / "archived_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text("VALUE = 1\n")
    (folder / "two.py").write_text("VALUE = 2\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return folder


def written(tmp_path: Path, *names: str) -> Archive:
    """An archive of these modules, opened."""
    before = frozenset(sys.modules)
    for name in names:
        __import__(name)
    archive = Archive(str(tmp_path / "pytrace" / "modules" / "test"), before)
    archive.open()
    assert module_archive_writer.write(archive)
    for name in names:
        sys.modules.pop(name)
    sys.modules.pop("archived_package", None)
    opened = Archive(archive.path, before)
    opened.open()
    return opened


def test_a_module_is_as_if_imported_from_its_file(tmp_path: Path, modules: Path) -> None:
    archive = written(tmp_path, "archived_package.one", "archived_package.two")
    assert set(archive.entries) == {"archived_package", "archived_package.one", "archived_package.two"}
    sys.meta_path.insert(0, archive)
    try:
        import archived_package.one as module  # type: ignore[import-not-found]
    finally:
        sys.meta_path.remove(archive)
        package = sys.modules.pop("archived_package")
        del sys.modules["archived_package.one"]
    assert module.VALUE == 1
    assert module.__file__ == str(modules / "one.py")
    assert module.__package__ == "archived_package"
    assert type(module.__loader__).__name__ == "_Loader"
    assert module.__loader__.get_source("archived_package.one") == "VALUE = 1\n"
    assert list(package.__path__) == [str(modules)]


def test_changed_and_removed_files_are_not_taken_from_it(tmp_path: Path, modules: Path) -> None:
    archive = written(tmp_path, "archived_package.one", "archived_package.two")
    assert archive.find_spec("archived_package.one") is not None
    assert archive.find_spec("archived_package.three") is None
    (modules / "one.py").write_text("VALUE = 10\n")
    assert "archived_package.one" in archive.entries
    assert archive.find_spec("archived_package.one") is None
    assert "archived_package.one" not in archive.entries, "the next archive has it as it is now"
    times = (modules / "two.py").stat()
    os.utime(modules / "two.py", ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    assert archive.find_spec("archived_package.two") is None
    (modules / "__init__.py").unlink()
    assert archive.find_spec("archived_package") is None


def test_new_modules_are_added_and_changed_ones_replaced(tmp_path: Path, modules: Path) -> None:
    written(tmp_path, "archived_package.one")
    archive = written(tmp_path, "archived_package.two")
    assert {"archived_package.one", "archived_package.two"} <= set(archive.entries)
    (modules / "one.py").write_text("VALUE = 100\n")
    archive = written(tmp_path, "archived_package.two")
    assert "archived_package.one" not in archive.entries
    archive = written(tmp_path, "archived_package.one")
    scope: dict[str, object] = {}
    spec = archive.find_spec("archived_package.one")
    assert spec is not None
    assert spec.loader is not None
    code = spec.loader.get_code("archived_package.one")  # type: ignore[attr-defined]
    exec(code, scope)
    assert scope["VALUE"] == 100


def test_a_damaged_archive(tmp_path: Path, modules: Path) -> None:
    archive = written(tmp_path, "archived_package.one")
    file = Path(archive.path)
    whole = file.read_bytes()
    file.write_bytes(whole[: archive.start + archive.entries["archived_package.one"][3]])
    cut = Archive(archive.path, frozenset())
    cut.open()
    spec = cut.find_spec("archived_package.one")
    assert spec is not None
    assert spec.loader is not None
    assert spec.loader.get_code("archived_package.one") is not None  # type: ignore[attr-defined]
    for content in (b"", whole[:4], whole[:100], bytes(len(whole))):
        file.write_bytes(content)
        cut = Archive(archive.path, frozenset())
        cut.open()
        assert cut.entries == {}


def test_where_it_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", ["/somewhere"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert module_archive.usable()
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])
    assert not module_archive.usable()


# ---------------------------------------------------------------------------------------------- modules that run late


@pytest.fixture
def late(tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """An archive of two modules of a package that is imported; `one` counts how often its code runs."""
    (modules / "one.py").write_text(
        "import sys\nsys.archived_runs += 1\nsys.archived_start()\nfrom archived_package.two import VALUE\n"
    )
    monkeypatch.setattr(module_archive, "OWN", "archived_package.")
    monkeypatch.setattr(sys, "archived_runs", 0, raising=False)
    monkeypatch.setattr(sys, "archived_start", lambda: None, raising=False)
    archive = written(tmp_path, "archived_package.one", "archived_package.two")
    __import__("archived_package")
    sys.archived_runs = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "meta_path", [archive, *sys.meta_path])
    archive.add_modules()
    yield archive
    for name in [name for name in sys.modules if name.startswith("archived_package")]:
        del sys.modules[name]


def runs() -> int:
    count: int = sys.archived_runs  # type: ignore[attr-defined]
    return count


def test_a_module_runs_when_it_is_used(late: Archive, modules: Path) -> None:
    from archived_package import one, two
    assert runs() == 0
    assert "VALUE" not in vars(two)
    assert "__file__" not in vars(one), "the compile cache recognises it by that"
    assert not hasattr(one, "MISSING")
    assert runs() == 1
    assert (one.VALUE, two.VALUE) == (2, 2)
    assert (one.__file__, one.__package__) == (str(modules / "one.py"), "archived_package")
    assert one.__spec__.name == "archived_package.one"
    assert type(one) is type(sys)
    assert runs() == 1


def test_a_module_runs_when_names_are_imported_from_it(late: Archive) -> None:
    from archived_package.one import VALUE

    assert (VALUE, runs()) == (2, 1)
    with pytest.raises(ImportError, match="cannot import name 'MISSING'"):
        from archived_package.two import MISSING  # noqa: F401


def test_a_module_that_is_no_package(late: Archive) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"'archived_package\.one' is not a package"):
        import archived_package.one.below  # noqa: F401
    assert runs() == 0


def test_a_file_that_changed_since_then(late: Archive, modules: Path) -> None:
    from archived_package import two

    (modules / "two.py").write_text("VALUE = 20\n")
    assert two.VALUE == 20


def test_a_file_that_was_removed_since_then(late: Archive, modules: Path) -> None:
    from archived_package import two

    (modules / "two.py").unlink()
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'archived_package\.two'"):
        print(two.VALUE)


def test_code_that_fails_runs_again(late: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    from archived_package import one

    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr(sys, "archived_start", fail)
    with pytest.raises(MemoryError):
        print(one.VALUE)
    monkeypatch.setattr(sys, "archived_start", lambda: None)
    assert (one.VALUE, runs()) == (2, 2)


def test_other_threads_wait_for_code_that_runs(late: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    from archived_package import one

    runs_now, go_on = threading.Event(), threading.Event()
    found: list[int] = []

    def start() -> None:
        runs_now.set()
        assert go_on.wait(patience(30))

    monkeypatch.setattr(sys, "archived_start", start)
    threads = [threading.Thread(target=lambda: found.append(one.VALUE)) for _ in range(2)]
    threads[0].start()
    assert runs_now.wait(patience(30))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(patience(30))
    assert (found, runs()) == ([2, 2], 1)


def test_added_files_make_it_useless(late: Archive, modules: Path) -> None:
    again = Archive(late.path, frozenset())
    again.open()
    assert again.entries.keys() == late.entries.keys()
    (modules / "three.py").write_text("")
    again = Archive(late.path, frozenset())
    again.open()
    assert again.entries == {}


# ---------------------------------------------------------------------------------------------- regular expressions


def test_expressions_are_compiled_once(
    tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[tuple[str | bytes, int]] = [
        (r"(?P<word>[a-z]+)|(\d+) # a comment", re.VERBOSE), ("ä|ö", re.IGNORECASE), (rb"[^\0]*", 0), (r"\W", re.ASCII),
    ]  # fmt: skip
    monkeypatch.setattr(lazy_regex, "FRESH", [(source, int(flags)) for source, flags in sources])
    archive = written(tmp_path, "archived_package.one")
    assert len(archive.expressions) == len(sources)
    assert module_archive.expression("ä|ö", int(re.IGNORECASE)) is None, "it is not installed"
    monkeypatch.setattr(sys, "meta_path", [archive, *sys.meta_path])
    for source, flags in sources:
        assert module_archive.expression(source, int(flags)) == re.compile(source, flags)
    assert module_archive.expression("ä|ö", 0) is None
    monkeypatch.setattr(lazy_regex, "FRESH", [])
    assert len(written(tmp_path, "archived_package.two").expressions) == len(sources)
    archive.expressions["ä|ö", int(re.IGNORECASE)] = b"damaged"
    assert module_archive.expression("ä|ö", int(re.IGNORECASE)) is None


PLAIN = """
import sys
sys.path.insert(0, {root!r})
from pytrace.base import module_archive
module_archive.install()
from pytrace.frontend.syntax import parser
from pytrace.core.diagnostics import Diagnostics
from pytrace.core.source import Source
parser.parse(Source("x", 'begin {{ printf("%d", 0x10 + 1); }}'), Diagnostics())
print("re" in sys.modules)
archive = module_archive.unsaved()
if archive is not None:
    from pytrace.base import module_archive_writer
    module_archive_writer.write(archive)
"""


def test_a_later_start_does_without_re(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(PLAIN.format(root=str(ROOT)))
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    for imported in ("True\n", "False\n", "False\n"):
        done = subprocess.run(
            [sys.executable, str(program)], env={**kept, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=patience(60),
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (imported, "")


def test_modules_that_are_read_at_once_are_those_of_all_cached_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive("", frozenset())
    names = ("pytrace.runtime.session.session", "pytrace.one", "pytrace.two", "pytrace.three", "pytrace.pipeline")
    archive.entries = dict.fromkeys((*names, "other"), ("", 0, 0, 0, 1, False))
    for name in (*names[:3], "other"):
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    monkeypatch.setitem(sys.modules, names[3], module_archive._LateModule(names[3]))
    monkeypatch.delitem(sys.modules, names[4], raising=False)
    assert archive.common() == set(names[:3])
    archive.core = frozenset((*names[:2], names[3]))
    assert archive.common() == set(names[:2])
    monkeypatch.setitem(sys.modules, names[4], type(sys)(names[4]))
    assert archive.common() == archive.core, "a start that compiles tells nothing"


def test_a_damaged_part_of_modules_that_are_read_at_once(tmp_path: Path) -> None:
    source = tmp_path / "one.py"
    source.write_text("value = 7\n")
    archive = Archive("", frozenset())
    archive.core, archive.core_place = frozenset({"one"}), (0, 4)
    archive.file = os.open("/dev/null", os.O_RDONLY)
    archive.entries = {"one": (str(source), source.stat().st_mtime_ns, source.stat().st_size, 0, 4, False)}
    spec = archive.find_spec("one")
    assert spec is not None
    assert isinstance(spec.loader, module_archive._Loader)
    made = spec.loader.get_code("one")
    os.close(archive.file)
    assert made is not None
    found: dict[str, object] = {}
    exec(made, found)
    assert found["value"] == 7
