"""A file system of a user (FUSE) that answers for a while, and then never again (include/uapi/linux/fuse.h)."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

LOOKUP, GETATTR, OPEN, READ, INIT, OPENDIR, RELEASE, FLUSH = 1, 3, 14, 15, 26, 27, 18, 25
_FORGET, _BATCH_FORGET, _INTERRUPT, _STATFS, _ACCESS = 2, 42, 36, 17, 34
_ENOENT, _ENOSYS = 2, 38
_DIRECTORY, _FILE = 0o40755, 0o100755


def possible() -> bool:
    """Whether this user may mount one."""
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


class Server(threading.Thread):
    """Serves some files of root in one folder. An operation in *silent* is never answered.

    *asked* has the operations that came.
    """

    def __init__(self, device: int, files: Mapping[str, bytes]) -> None:
        super().__init__(daemon=True)
        self._device = device
        self._files = list(files.items())
        self.silent: set[int] = set()
        self.asked: list[int] = []

    def run(self) -> None:
        with suppress(OSError):
            while True:
                self._answer(os.read(self._device, 1 << 17))

    def _answer(self, request: bytes) -> None:
        _, operation, number, node = struct.unpack_from("=IIQQ", request)
        self.asked.append(operation)
        body = request[40:]
        if operation in (_FORGET, _BATCH_FORGET, _INTERRUPT) or operation in self.silent:
            return
        error, data = 0, b""
        if operation == INIT:
            major, minor, ahead, _ = struct.unpack_from("=IIII", body)
            data = struct.pack("=IIIIHHIIHHI28x", major, min(minor, 31), ahead, 0, 0, 0, 1 << 16, 1, 0, 0, 0)
        elif operation == LOOKUP:
            names = [name for name, _ in self._files]
            name = body.split(b"\0")[0].decode()
            if name in names:
                inode = names.index(name) + 2
                data = struct.pack("=QQQQII", inode, 0, 0, 0, 0, 0) + self._attributes(inode)
            else:
                error = _ENOENT
        elif operation == GETATTR:
            data = struct.pack("=QII", 0, 0, 0) + self._attributes(node)
        elif operation in (OPEN, OPENDIR):
            data = struct.pack("=QII", 1, 0, 0)
        elif operation == READ:
            _, offset, size = struct.unpack_from("=QQI", body)
            data = self._files[node - 2][1][offset : offset + size]
        elif operation == _STATFS:
            data = struct.pack("=QQQQQIIII24x", 0, 0, 0, 0, 0, 512, 255, 512, 0)
        elif operation not in (RELEASE, FLUSH, _ACCESS):
            error = _ENOSYS
        os.write(self._device, struct.pack("=IiQ", 16 + len(data), -error, number) + data)

    def _attributes(self, node: int) -> bytes:
        size = 4096 if node == 1 else len(self._files[node - 2][1])
        mode = _DIRECTORY if node == 1 else _FILE
        return struct.pack("=QQQQQQIIIIIIIIII", node, size, size // 512, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


@contextmanager
def mounted(folder: Path, files: Mapping[str, bytes]) -> Iterator[Server]:
    """Mount one at a folder. At the end whoever still waits for it gets an error."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    library = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if library.mount(b"hostile", bytes(folder), b"fuse", ctypes.c_ulong(0), options):
        os.close(device)
        raise OSError(ctypes.get_errno(), "mount")
    server = Server(device, files)
    server.start()
    try:
        yield server
    finally:
        # MNT_FORCE breaks off the connection, which ends all waits, and MNT_DETACH unmounts in any case.
        library.umount2(bytes(folder), 1)
        library.umount2(bytes(folder), 2)
        server.join(2)
        os.close(device)

