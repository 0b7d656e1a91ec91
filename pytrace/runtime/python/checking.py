"""Checks a layout against the memory of a running interpreter: its threads must be where the layout says."""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

from pytrace.core.stacks.python_format import TSS_BLOCK, TSS_FIRST, TSS_MORE
from pytrace.runtime.python.layouts import UnsupportedError

if TYPE_CHECKING:
    from pytrace.runtime.python.interpreters import Interpreter

_MOST_THREADS, _MOST_FRAMES = 256, 64
_TRIES = 20
"""A process that runs changes what is read: one try must succeed."""
_PAUSE = 0.002
_OWNED_BY_INTERPRETER = 3


class _Memory:
    """Memory of a process; reads of what is not mapped raise ``OSError``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def word(self, address: int) -> int:
        data = self.bytes(address, 8)
        return int(struct.unpack("=Q", data)[0])

    def bytes(self, address: int, size: int) -> bytes:
        if not 0 < address < 1 << 47:
            raise OSError("no user address")
        data = os.pread(self._descriptor, size, address)
        if len(data) != size:
            raise OSError("truncated read")
        return data


def check(pid: int, interpreter: Interpreter, bias: int) -> bool:
    """Check the layout of an interpreter that lies *bias* above its linked addresses in a process.

    Returns False if there is nothing to check yet: it is starting, or has no threads.

    Raises:
        UnsupportedError: its structures are not where the layout says.
        OSError: the process is gone, or may not be read.
    """
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        memory, problem = _Memory(descriptor), ""
        for _ in range(_TRIES):
            try:
                return _Check(memory, interpreter, bias).run()
            except (OSError, ValueError) as error:
                problem = str(error)
            time.sleep(_PAUSE)
        os.stat(f"/proc/{pid}/mem")
        raise UnsupportedError(f"its structures differ from those of CPython 3.{interpreter.layout.minor} ({problem})")
    finally:
        os.close(descriptor)


class _Check:
    def __init__(self, memory: _Memory, interpreter: Interpreter, bias: int) -> None:
        self._memory = memory
        self._layout = interpreter.layout
        self._runtime = interpreter.runtime + bias
        self._code_type = interpreter.code_type + bias
        self._distance, self._values = interpreter.thread_state, interpreter.thread_values

    def run(self) -> bool:
        word, layout = self._memory.word, self._layout
        head = word(self._runtime + layout.interpreters_head)
        if not head:
            return False
        thread = word(head + layout.threads_head)
        found = False
        for _ in range(_MOST_THREADS):
            if not thread:
                break
            found = self._thread(thread) or found
            thread = word(thread + layout.thread_next)
        return found

    def _thread(self, thread: int) -> bool:
        """Check one thread; False if it has no system thread yet."""
        pointer = self._memory.word(thread + self._layout.thread_id)
        if not pointer:
            return False
        current = self._current(pointer)
        if not current:
            return False
        if self._memory.word(current + self._layout.thread_id) != pointer:
            raise ValueError("the thread's own state is another one's")
        self._frames(current)
        return True

    def _current(self, pointer: int) -> int:
        """The thread state that the thread itself finds."""
        word = self._memory.word
        if self._distance is not None:
            return word(pointer + self._distance)
        assert self._layout.tss_key is not None
        state = word(self._runtime + self._layout.tss_key)
        if not state & 0xFFFFFFFF:
            return 0
        block, key = pointer + TSS_FIRST, state >> 32
        if self._values is not None:
            return word(word(pointer + self._values) + 8 * key)
        if key >= TSS_BLOCK:
            block = word(pointer + TSS_MORE + 8 * (key // TSS_BLOCK))
        return word(block + 16 * (key % TSS_BLOCK) + 8)

    def _frames(self, thread: int) -> None:
        word, layout = self._memory.word, self._layout
        frame = word(thread + layout.thread_frame)
        if layout.cframe_frame is not None:
            frame = word(frame + layout.cframe_frame)
        for _ in range(_MOST_FRAMES):
            if not frame:
                return
            owner = 0 if layout.frame_owner is None else self._memory.bytes(frame + layout.frame_owner, 1)[0]
            if owner < _OWNED_BY_INTERPRETER:
                code = word(frame + layout.frame_code) & -8
                if word(code + layout.object_type) != self._code_type:
                    raise ValueError("a frame has no code object")
            frame = word(frame + layout.frame_previous)
