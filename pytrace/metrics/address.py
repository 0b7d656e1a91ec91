"""The address at which metrics are served: the argument of ``--metrics``."""

from __future__ import annotations

from pytrace.core.diagnostics import TraceError
from pytrace.core.options.run_options import Address

MOST_PORT = 0xFFFF

_HINT = "for example --metrics :9435, 127.0.0.1:9435 or [::1]:9435; port 0 is any free port"


def parse(text: str) -> Address:
    """Parse ``HOST:PORT``; without a host, all addresses of the machine are used.

    Returns:
        Host (a name, an IPv4 or an IPv6 address without brackets; empty for all addresses) and port.

    Raises:
        TraceError: *text* is not such an address.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        raise TraceError(f"--metrics needs an address and a port, not {text!r}", hints=(_HINT,))
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if host.startswith("[") or host.endswith("]"):
        raise TraceError(f"--metrics needs an address, not {host!r}", hints=(_HINT,))
    if ":" in host and not text.startswith("["):
        raise TraceError(f"--metrics needs an IPv6 address in brackets, not {text!r}", hints=(_HINT,))
    if not port.isascii() or not port.isdigit() or int(port) > MOST_PORT:
        raise TraceError(f"--metrics needs a port of 0 to {MOST_PORT}, not {port!r}", hints=(_HINT,))
    return Address(host, int(port))


def shown(address: Address) -> str:
    """An address in URL syntax."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
