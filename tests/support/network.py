"""Network namespaces, virtual links between them, and links that lose packets, for tests. All made by pyroute2.

What is sent stays inside the namespaces: they have no link but those that are made here.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

from pyroute2 import NetNS, netns

from pytrace.runtime.machine import bpf

_SCHED_CLS = 3
"""``BPF_PROG_TYPE_SCHED_CLS``."""
_EGRESS = 0xFFFFFFF3
"""``TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)``."""
_INGRESS = 0xFFFFFFF2
_NODAD = 0x02
"""``IFA_F_NODAD``."""
_numbers = count()


@dataclass(frozen=True)
class End:
    """One end of a link: a namespace with one interface."""

    namespace: str
    interface: str
    index: int
    address: str
    address6: str = ""

    @property
    def inode(self) -> int:
        """The inode number of the namespace."""
        return os.stat(f"/run/netns/{self.namespace}").st_ino

    def udp(self, port: int = 0) -> socket.socket:
        """A UDP socket in the namespace, bound to the interface's address."""
        made: socket.socket = netns.create_socket(self.namespace, socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((self.address, port))
        made.setblocking(False)
        return made


@contextmanager
def namespace() -> Iterator[str]:
    """A network namespace with a name of its own, whose loopback interface is up."""
    with _named() as name:
        with NetNS(name, flags=0) as inside:
            inside.link("set", index=1, state="up")
        yield name


@contextmanager
def _named() -> Iterator[str]:
    name = f"pytrace-{os.getpid()}-{next(_numbers)}"
    netns.create(name)
    try:
        yield name
    finally:
        netns.remove(name)


@contextmanager
def link() -> Iterator[tuple[End, End]]:
    """Two namespaces with a pair of virtual Ethernet interfaces between them, which know each other's address."""
    with ExitStack() as stack:
        here, there = stack.enter_context(_named()), stack.enter_context(_named())
        left, right = f"pt{next(_numbers)}left", f"pt{next(_numbers)}right"
        # Each of these is a process that is forked from this one.
        with NetNS(here, flags=0) as one, NetNS(there, flags=0) as other:
            one.link("add", ifname=left, kind="veth", peer={"ifname": right, "net_ns_fd": there})
            ends = _start(one, here, left, 1), _start(other, there, right, 2)
            _introduce(one, ends[0], other, ends[1])
            _introduce(other, ends[1], one, ends[0])
        yield ends


def _start(inside: NetNS, name: str, interface: str, number: int) -> End:
    """Addresses of ranges for documentation; the IPv6 one is usable at once, without looking for duplicates."""
    address, address6 = f"192.0.2.{number}", f"2001:db8::{number}"
    inside.link("set", index=1, state="up")
    (index,) = inside.link_lookup(ifname=interface)
    inside.addr("add", index=index, address=address, prefixlen=24)
    inside.addr("add", index=index, address=address6, prefixlen=64, flags=_NODAD)
    inside.link("set", index=index, state="up")
    return End(name, interface, index, address, address6)


def _introduce(inside: NetNS, end: End, there: NetNS, other: End) -> None:
    """Save *end* asking for the hardware address of the other: a packet then leaves in the context of its sender."""
    hardware = there.get_links(other.index)[0].get_attr("IFLA_ADDRESS")
    for family, address in ((socket.AF_INET, other.address), (socket.AF_INET6, other.address6)):
        inside.neigh("add", family=family, dst=address, lladdr=hardware, ifindex=end.index, state="permanent")


def lose(end: End, share: float, *, arriving: bool = False) -> None:
    """Have a *share* (0 to 1) of the packets that leave an end, or arrive at it, dropped at random.

    TCP is told of what is dropped as it leaves, and waits; only what is dropped on arrival is lost to it.
    By a classifier, which every kernel that can trace has; ``netem`` is a module that many lack.
    """
    limit = min(round(share * (1 << 32)), (1 << 32) - 1)
    code = b"".join(
        (
            struct.pack("=BBhi", 0x85, 0, 0, 7),  # r0 = get_prandom_u32()
            struct.pack("=BBhI", 0xA6, 0, 2, limit),  # if w0 < limit: two on
            struct.pack("=BBhi", 0xB7, 0, 0, 0),  # r0 = TC_ACT_OK
            struct.pack("=BBhi", 0x95, 0, 0, 0),
            struct.pack("=BBhi", 0xB7, 0, 0, 2),  # r0 = TC_ACT_SHOT
            struct.pack("=BBhi", 0x95, 0, 0, 0),
        )
    )
    program = bpf.prog_load(_SCHED_CLS, code)
    try:
        with NetNS(end.namespace, flags=0) as inside:
            inside.tc("add", "clsact", end.index)
            inside.tc(
                "add-filter",
                "bpf",
                end.index,
                parent=_INGRESS if arriving else _EGRESS,
                fd=program,
                name="lose",
                direct_action=True,
                prio=1,
            )
    finally:
        os.close(program)


def heal(end: End) -> None:
    """Let a link lose nothing any more."""
    with NetNS(end.namespace, flags=0) as inside:
        inside.tc("delete", "clsact", end.index)


def lost(end: End) -> int:
    """How many packets :func:`lose` has dropped."""
    with NetNS(end.namespace, flags=0) as inside:
        for row in inside.get_qdiscs(end.index):
            if row.get_attr("TCA_KIND") == "clsact":
                return int(row.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"])
    raise LookupError(f"{end.interface} loses nothing")
