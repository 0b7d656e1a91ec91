"""TLS before a server of plain text: what API servers of clusters speak."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
from asyncio import StreamReader, StreamWriter
from pathlib import Path


class TlsFront:
    """Listens on the loopback interface, and carries what comes through TLS to a server on *port*."""

    def __init__(self, port: int, folder: Path) -> None:
        self.certificate, key = folder / "front.pem", folder / "front.key"
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-days", "2", "-subj", "/CN=front", "-addext", "subjectAltName=IP:127.0.0.1",
                "-keyout", key, "-out", self.certificate,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, key)
        self._inner, self.port = port, 0
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._listening.wait()

    def close(self) -> None:
        """End all connections."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._over.wait()
        server.close()

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", self._inner)
        await asyncio.gather(_carry(reader, requests), _carry(answers, writer))


async def _carry(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        # One side was killed; the other is told by the end.
        pass
    finally:
        writer.close()
