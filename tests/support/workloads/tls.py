"""TLS on loopback with OpenSSL's own client and server."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kernel_features import needs_program
from tests.support.patience import patience
from tests.support.workloads.storage import call


@dataclass(frozen=True)
class TlsServer:
    """``openssl s_server`` that sends back each line reversed."""

    pid: int
    port: int


@contextmanager
def tls_server(folder: Path) -> Iterator[TlsServer]:
    """A server with a certificate of its own, on a free port of 127.0.0.1."""
    needs_program("openssl")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    if not certificate.exists():
        call("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-subj", "/CN=localhost", "-days", "2", "-keyout", key, "-out", certificate)  # fmt: skip
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-key", str(key), "-cert", str(certificate), "-rev"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            assert any(line.startswith("ACCEPT") for line in process.stdout), "s_server does not accept"
            yield TlsServer(process.pid, port)
        finally:
            process.kill()


def tls_client(server: TlsServer, line: str = "hello") -> tuple[int, str]:
    """``openssl s_client`` that sends a line and waits for the answer; its number and the answer.

    Both sides call ``SSL_write`` and ``SSL_read`` for the line with its line end.
    """
    words = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-quiet", "-no_ign_eof"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        process.stdin.close()
        process.wait(timeout=patience(20))
    return process.pid, answer.rstrip("\n")


def tls_in_this_process(server: TlsServer, line: bytes) -> bytes:
    """The same by Python's ssl module in this process."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", server.port), patience(30)) as plain:
        with context.wrap_socket(plain) as secure:
            secure.sendall(line + b"\n")
            return secure.recv(len(line) + 1)
