"""What the command does with its own process: notices to systemd and to test benches, collection of garbage."""

from __future__ import annotations

import gc
import os
import sys

from pytrace.runtime.session.services.service import Service

ATTACHED_HOOKS = ("__PYTRACE_NOTIFY_PROBES_ATTACHED", "__BPFTRACE_NOTIFY_PROBES_ATTACHED")
"""Environment variables that make the tracer print the variable's own name once everything is attached."""


class OwnProcess(Service):
    """Process-wide matters of the command; programs that embed a session see to theirs."""

    def attached(self) -> None:
        """Tell who waits that tracing has begun."""
        attached_hooks()
        systemd("READY=1")

    def begin(self) -> None:
        """Begin to collect garbage, which a start does without. Objects allocated so far are long-lived."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()

    def stop(self) -> None:
        """Tell the service manager that tracing ends."""
        systemd("STOPPING=1")


def systemd(state: str) -> None:
    """Send *state* (``READY=1``, ``STOPPING=1``) to the service manager, if one waits for it.

    The protocol is one datagram to the socket that ``NOTIFY_SOCKET`` names; a leading ``@`` means the abstract
    name space (sd_notify(3)).
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.connect(address)
            sender.send(state.encode())
        except OSError as error:
            sys.stderr.write(f"WARNING: cannot notify systemd: {error.strerror}\n")


def attached_hooks() -> None:
    """Print the names of the test hooks that are set."""
    for name in ATTACHED_HOOKS:
        if name in os.environ:
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
