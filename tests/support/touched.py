"""Tests that a change touches, the closest first, for ``scripts/test quick``.

``python -m tests.support.touched [--traced] [BASE]``: the change is what differs from where this branch left BASE
(``origin/main``, else ``main``), committed or not, and files that git does not know yet. By distance, a test is

- 0: changed itself, or the test of the same name of a changed module
- 1: one that imports a changed module, or the test of a module that imports one
- 2: one that imports a module of the package or of tests/support that imports a changed one

At most :data:`MOST_FILES` are printed. Each test counts as importing the ``conftest.py`` of its folder and of those
above.

A changed file that is not Python counts as a change of the modules whose text names it. Printed are files, and the
single cases of a changed case file: with ``--traced`` those at distance 0 that trace, else all others.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support import cases

ROOT = Path(__file__).resolve().parent.parent.parent
FARTHEST = 2
MOST_FILES = 100
"""Test files, the closest: no more of them are collected in a few seconds."""
RULES = ("tests/test_layering.py",)
"""Tests of all modules."""

_IMPORT = re.compile(r"^[ ]*(?:from ([\w.]+) import (\([^)]*\)|.*)|import (.*))", re.MULTILINE)


def changed_files(base: str = "", root: Path = ROOT) -> list[str]:
    """Paths that differ from the merge base with *base*."""
    known = [name for name in ("origin/main", "main") if _git(root, "rev-parse", "-q", "--verify", name)]
    bases = [base] if base else known
    since = _git(root, "merge-base", "HEAD", bases[0], check=True) if bases else ["HEAD"]
    tracked = _git(root, "diff", "--name-only", *since, check=True)
    return [*tracked, *_git(root, "ls-files", "--others", "--exclude-standard", check=True)]


def _git(root: Path, *words: str, check: bool = False) -> list[str]:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode and check:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout.splitlines()


def distances(changed: Iterable[str], texts: Mapping[str, str]) -> dict[str, int]:
    """Distance of each touched test file, from the text of all Python files by path."""
    touched = _as_modules(changed, texts)
    modules = {_module(path): path for path in {*texts, *touched}}
    importers: dict[str, set[str]] = {}
    for path, text in texts.items():
        for name in _imported(text):
            target = modules.get(name) or modules.get(name.rpartition(".")[0])
            if target is not None:
                importers.setdefault(target, set()).add(path)
    for path in texts:
        folder, _, name = path.rpartition("/")
        if name == "conftest.py":
            importers[path] = {test for test in texts if test.startswith(f"{folder}/")}
    found = dict.fromkeys(touched, 0)
    nearest = set(touched)
    for distance in range(FARTHEST + 1):
        # The test of a module's name is as far from the change as the module.
        tests = {_namesake(path) for path in nearest if path.startswith("pytrace/")} & set(texts)
        found |= dict.fromkeys({*nearest, *tests} - set(found), distance)
        nearest = {user for path in nearest if not _is_test(path) for user in importers.get(path, ())} - set(found)
    return {path: distance for path, distance in found.items() if _is_test(path) and path in texts}


def _as_modules(changed: Iterable[str], texts: Mapping[str, str]) -> set[str]:
    """The changed modules, and those that name other changed files (``"file.json"``, ``docs/file.md``, ``"tool"``)."""
    found: set[str] = set()
    for path in changed:
        if path.endswith(".py"):
            found.add(path)
        elif not path.endswith(".case"):
            file = Path(path)
            names = {file.name, file.stem} if path.startswith("pytrace/tools/") else {file.name}
            named = re.compile("|".join(rf"[\"/]{re.escape(name)}[\"`)]" for name in names))
            found.update(other for other, text in texts.items() if named.search(text))
    return found


def _imported(text: str) -> set[str]:
    """Names of imported modules and of what is imported from them; other words of the line, too, which name nothing."""
    found: set[str] = set()
    for module, names, plain in _IMPORT.findall(text):
        found.update(re.findall(r"[\w.]+", plain))
        if module:
            found.update((module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))))
    return found


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _namesake(path: str) -> str:
    folder, _, name = path.removeprefix("pytrace/").rpartition("/")
    return "/".join(part for part in ("tests", folder, f"test_{name}") if part)


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")


def _traces(path: str) -> bool:
    return path.startswith(("tests/kernel/", "tests/tools/"))


def chosen(changed: list[str], texts: Mapping[str, str], traced: bool) -> list[str]:
    """Arguments for pytest."""
    way = "host" if traced else "compile"
    found = [
        f"tests/test_cases.py::test_case[{case.id(way)}]"
        for path in changed
        if path.startswith("tests/cases/") and path.endswith(".case") and (ROOT / path).exists()
        for case in cases.load(ROOT / path)
        if way in case.where
    ]
    by_distance = sorted(distances(changed, texts).items(), key=lambda item: (item[1], item[0]))
    if traced:
        return [*found, *(path for path, distance in by_distance if distance == 0 and _traces(path))]
    rules = RULES if any(path.endswith(".py") for path in changed) else ()
    documents = ["tests/test_documents.py"] if any(path.endswith(".md") for path in changed) else []
    return list(dict.fromkeys([*rules, *documents, *found, *(path for path, _ in by_distance[:MOST_FILES])]))


def python_files() -> dict[str, str]:
    """Text of each Python file of package and tests by its path."""
    paths = (path for folder in ("pytrace", "tests") for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def main(words: list[str]) -> None:
    """Print the arguments for pytest, a line each."""
    bases = [word for word in words if word != "--traced"]
    for name in chosen(changed_files(bases[0] if bases else ""), python_files(), "--traced" in words):
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
