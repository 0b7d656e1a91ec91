"""Resolves the binary of a uprobe or USDT probe to paths."""

from __future__ import annotations

import shlex

from pytrace.core.source import Span
from pytrace.frontend.attach.points.parts import Part
from pytrace.frontend.attach.providers.base import Scope

GLOB = frozenset("*?[")


def is_glob(text: str) -> bool:
    """Whether a target is a glob pattern."""
    return bool(GLOB & set(text))


def resolve(target: Part | None, span: Span, scope: Scope) -> list[str]:
    """Paths of the binaries that *target* names; None means the program of ``-p``. Empty after an error."""
    pid = scope.options.filters.pid
    if target is None or not target.text:
        if pid is None:
            name = span.source.text[span.start : span.end].rpartition(":")
            written = f"{name[0] or 'usdt'}:/path/to/program:{name[2]}"
            scope.error("the program of the probe is missing", span, [f"write {written}, or name a process by -p"])
            return []
        paths = scope.kernel.binaries(f"/proc/{pid}/exe", pid)
        if not paths:
            scope.missing(f"the program of process {pid} cannot be found", span)
        return paths
    paths = scope.kernel.binaries(target.text, pid, _command(scope)) if "\0" not in target.text else []
    if not paths:
        _missing(target, scope)
        return []
    glob = is_glob(target.text)
    if len(paths) > 1 and not glob:
        others = ", ".join(paths[1:])
        scope.diagnostics.warn(f"{target.text!r} matches several files; {paths[0]} is used, not {others}", target.span)
        paths = paths[:1]
    if scope.options.unsafe:
        return paths
    usable = [path for path in paths if scope.kernel.executable(path)]
    if not usable and not glob:
        scope.missing(f"{paths[0]} is not an executable ELF file", target.span, ["--unsafe attaches to any file"])
    return usable


def _command(scope: Scope) -> str:
    """The path of the ``-c`` program, which is not running yet."""
    try:
        words = shlex.split(scope.options.child_command)
    except ValueError:
        # The session reports the error in the command.
        return ""
    return words[0] if words else ""


def _missing(target: Part, scope: Scope) -> None:
    text = target.text
    if is_glob(text):
        what = "no process maps a file that matches" if text == "*" else "no file matches"
        scope.unmatched(f"{what} {text!r}", target.span)
    elif "/" in text:
        scope.missing(f"there is no file {text!r}", target.span)
    else:
        scope.missing(
            f"there is no program {text!r} on PATH and no such library",
            target.span,
            ["a path with '/' is taken as it is"],
        )
