"""The desktop's viewer of files: started as the user whose desktop it is.

As root that is the user who called sudo, with the environment of that user's session: a browser is nothing to run as
root. A run gives up its privileges while it goes on, which its children would inherit, so the process that becomes the
viewer is started before and waits.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping

from pytrace.base.trusted_files import distrust

NAME = "xdg-open"
FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
_WAITING = 'read -r line && exec "$@" >/dev/null 2>&1'
"""What the shell does until the file is written; at the end of its input it ends, and nothing is opened."""
_KEPT = ("DISPLAY", "XAUTHORITY", "LANG", "LC_ALL", "LC_CTYPE", "TERM")


class Viewer:
    """Opens the file *path* when :meth:`open` is called; :attr:`problem` is why it will not, empty if it will."""

    def __init__(self, path: str) -> None:
        self.problem = ""
        self._process: subprocess.Popen[bytes] | None = None
        user = _owner()
        environment = dict(os.environ) if user is None else _session(user, os.environ)
        program = _program(os.geteuid() if user is None else user.pw_uid)
        if program is None:
            self.problem = f"there is no {NAME} in {', '.join(FOLDERS)} that nobody else could have written"
        elif not environment.get("DISPLAY") and not environment.get("WAYLAND_DISPLAY"):
            self.problem = "there is no desktop here (neither DISPLAY nor WAYLAND_DISPLAY is set)"
        else:
            self._process = _start(program, os.path.abspath(path), user, environment)

    def open(self) -> None:
        """Show the file, which has been written."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            try:
                process.stdin.write(b"\n")
                process.stdin.close()
            except BrokenPipeError:
                return


def _owner() -> pwd.struct_passwd | None:
    """The user who called sudo; None for a process that has not been started by it."""
    try:
        return pwd.getpwuid(int(os.environ.get("SUDO_UID", ""))) if os.geteuid() == 0 else None
    except (ValueError, KeyError):
        return None


def _program(user: int) -> str | None:
    """The program, if only *user* and root can have written it."""
    for folder in FOLDERS:
        path = os.path.join(folder, NAME)
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
    program: str, path: str, user: pwd.struct_passwd | None, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """The shell that waits, with the rights of *user*, in a session of its own: Ctrl-C is not for it."""
    names = None if user is None else os.getgrouplist(user.pw_name, user.pw_gid)
    return subprocess.Popen(
        ["/bin/sh", "-c", _WAITING, "sh", program, path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env=environment, cwd="/", start_new_session=True,
        user=None if user is None else user.pw_uid, group=None if user is None else user.pw_gid, extra_groups=names,
    )  # fmt: skip
