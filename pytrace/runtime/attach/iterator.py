"""iter: a link from which files can be opened; reading such a file runs the program for each object."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from pytrace.core.probes.targets import BPF_FILE_SYSTEM, IteratorTarget
from pytrace.runtime.abi import bpf
from pytrace.runtime.attach.base import Attached, CannotAttachError, Job, one_by_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.core.manifest import Target
    from pytrace.runtime.attach.opened import Opened


@one_by_one
def attach(job: Job, target: Target, opened: Opened) -> Attached:
    """Link an iterator, and pin the link if the probe names a file."""
    try:
        link = bpf.link_iter(job.program)
    except OSError as error:
        if error.errno in {errno.EBADF, errno.EINVAL}:
            reason = "it iterates over one map or cgroup, which a probe cannot name"
            raise CannotAttachError(reason) from None
        raise
    opened.links.append(link)
    pin = target.of(IteratorTarget).pin
    if not pin:
        return Attached(job.spec, target, iterator=link)
    path = pin if pin.startswith("/") else f"{BPF_FILE_SYSTEM}/{pin}"
    try:
        bpf.obj_pin(link, path)
    except OSError as error:
        raise CannotAttachError(_pin_reason(path, error)) from None
    return Attached(job.spec, target, note=f"{target.probe} is pinned; read {path} to run it")


def _pin_reason(path: str, error: OSError) -> str:
    if error.errno == errno.EEXIST:
        return f"{path} already exists"
    if error.errno in {errno.EPERM, errno.ENOENT, errno.EINVAL}:
        return f"cannot pin to {path}: its directory must be in a mounted bpffs (mount -t bpf bpf {BPF_FILE_SYSTEM})"
    return f"cannot pin to {path}: {error.strerror}"


def read(link: int) -> Iterator[bytes]:
    """Run an iterator to its end. Yields what the program writes."""
    descriptor = bpf.iter_create(link)
    try:
        while True:
            try:
                text = os.read(descriptor, 1 << 16)
            except OSError as error:
                # The kernel asks to come again when a program had to give up its CPU.
                if error.errno == errno.EAGAIN:
                    continue
                raise
            if not text:
                return
            yield text
    finally:
        os.close(descriptor)
