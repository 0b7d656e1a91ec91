"""The desktop's viewer of files: started as the user whose desktop it is.

As root that is the user who called sudo, with the environment of that user's session: a browser is nothing to run as
root. Root itself gets a program of the system and an environment that is made here, whatever PATH and BROWSER say, as
``su`` keeps those of the user who called it. Others get what their own PATH names.

A run gives up its privileges while it goes on, which its children would inherit, so the process that becomes the
viewer is started before and waits.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

from pytrace.base.trusted_files import distrust
from pytrace.core.diagnostics import TraceError, bytes_shown
from pytrace.runtime.machine import privileges

_PICTURES = ("html", "svg")
"""Formats that a desktop shows."""
NAME = "xdg-open"
FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
_WAITING = 'read -r line && exec "$@" >/dev/null 2>&1'
"""What the shell does until the file is written; at the end of its input it ends, and nothing is opened."""
_KEPT = ("DISPLAY", "XAUTHORITY", "LANG", "LC_ALL", "LC_CTYPE", "TERM")


class Viewer:
    """Opens the file *path* when :meth:`open` is called; :attr:`problem` is why it will not, empty if it will.

    *confine* is called in the process that becomes the viewer, to give up capabilities.
    """

    def __init__(self, path: str, confine: Callable[[], None]) -> None:
        self.problem = ""
        self._process: subprocess.Popen[bytes] | None = None
        user = _owner()
        environment = dict(os.environ) if user is None else _session(user, os.environ)
        folders = os.get_exec_path() if user is None else FOLDERS
        program = _program(folders, os.geteuid() if user is None else user.pw_uid)
        if program is None:
            place = "PATH" if user is None else ", ".join(FOLDERS)
            self.problem = f"there is no {NAME} in {place} that nobody else could have written"
        elif not environment.get("DISPLAY") and not environment.get("WAYLAND_DISPLAY"):
            self.problem = "there is no desktop here (neither DISPLAY nor WAYLAND_DISPLAY is set)"
        else:
            self._process = _start(program, os.path.abspath(path), user, environment, confine)

    def open(self) -> None:
        """Show the file, which has been written."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            try:
                process.stdin.write(b"\n")
                process.stdin.close()
            except BrokenPipeError:
                return


def viewer(path: str | None, format_: str) -> Viewer:
    """The viewer of ``--open``; where there is none, a warning says so.

    Raises:
        TraceError: there is no file that a desktop could show.
    """
    if path is None or format_.partition(":")[0] not in _PICTURES:
        hints = ("for example -o report.html --open, or -o graph.svg --open",)
        raise TraceError("--open needs -o FILE in a format that a desktop shows: html or svg", hints=hints)
    opened = Viewer(path, lambda: privileges.hold_capabilities(0, 0))
    if opened.problem:
        sys.stderr.write(bytes_shown(f"WARNING: --open cannot show {path!r}: {opened.problem}\n"))
    return opened


def _owner() -> pwd.struct_passwd | None:
    """As root: the user who called sudo, or root. None for others."""
    if os.geteuid():
        return None
    try:
        return pwd.getpwuid(int(os.environ.get("SUDO_UID", "0")))
    except (ValueError, KeyError):
        return pwd.getpwuid(0)


def _program(folders: Iterable[str], user: int) -> str | None:
    """The first program in *folders* that only *user* and root can have written."""
    for path in (os.path.join(folder, NAME) for folder in folders if os.path.isabs(folder)):
        if os.access(path, os.X_OK) and distrust(path, (user,)) is None:
            return path
    return None


def _session(user: pwd.struct_passwd, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a user's session, as far as sudo has left it or its places are known."""
    environment = {name: given[name] for name in _KEPT if name in given}
    environment |= {
        "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell,
        "PATH": ":".join(FOLDERS),
    }  # fmt: skip
    folder = f"/run/user/{user.pw_uid}"
    if os.path.isdir(folder):
        environment["XDG_RUNTIME_DIR"] = folder
        if os.path.exists(f"{folder}/bus"):
            environment["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={folder}/bus"
        name = given.get("WAYLAND_DISPLAY", "wayland-0")
        if os.path.exists(f"{folder}/{name}"):
            environment["WAYLAND_DISPLAY"] = name
    return environment


def _start(
    program: str,
    path: str,
    user: pwd.struct_passwd | None,
    environment: Mapping[str, str],
    confine: Callable[[], None],
) -> subprocess.Popen[bytes]:
    """The shell that waits, with the rights of *user*, in a session of its own: Ctrl-C is not for it."""
    names = None if user is None else os.getgrouplist(user.pw_name, user.pw_gid)
    return subprocess.Popen(
        ["/bin/sh", "-c", _WAITING, "sh", program, path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env=environment, cwd="/", start_new_session=True,
        preexec_fn=confine,  # noqa: PLW1509 - there are no threads yet
        user=None if user is None else user.pw_uid, group=None if user is None else user.pw_gid, extra_groups=names,
    )  # fmt: skip
