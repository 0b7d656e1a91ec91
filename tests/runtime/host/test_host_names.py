"""Names of this machine, each source loaded when it is first asked."""

from __future__ import annotations

import os
import subprocess
import sys

from pytrace.runtime.host.host_names import HostNames


def test_names_of_this_machine() -> None:
    names = HostNames()
    assert names.interface(1) == "lo"
    assert names.interface(1 << 30) is None
    assert names.network_namespace(1) is None
    assert names.cgroup(1 << 40, "") == ""
    root = os.stat("/sys/fs/cgroup").st_ino
    assert names.cgroup(root, "no such hierarchy") == ""


def test_netlink_is_loaded_when_it_is_asked() -> None:
    code = (
        "import sys; from pytrace.runtime.host.host_names import HostNames; HostNames(); "
        "print('pyroute2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
