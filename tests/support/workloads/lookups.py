"""Look-ups of names by libc: of localhost, and of names in a hosts file of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_CODE = """
import ctypes, socket, sys
for name in sys.argv[3:]:
    socket.getaddrinfo(name, None, socket.AF_INET)
"""
_INSIDE = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/nsswitch.conf && exec "$0" -c "$3" "$1" "$2" "${@:4}"'


def look_up(folder: Path, names: Sequence[str] = ("localhost",), address: str = "192.0.2.77") -> int:
    """A process that calls ``getaddrinfo`` once for each name; its number. No name server is asked.

    It sees a hosts file with these names, in a mount namespace of its own.
    """
    hosts, switch = folder / "hosts", folder / "nsswitch.conf"
    hosts.write_text("".join(["127.0.0.1 localhost\n", *(f"{address} {name}\n" for name in names)]))
    switch.write_text("hosts: files\n")
    words = ["unshare", "--mount", "bash", "-ec", _INSIDE, sys.executable, str(hosts), str(switch), _CODE, *names]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    return process.pid
