"""Fields of hot tracepoints as expressions of the arguments of the raw tracepoints of the same names.

They are the assignments of ``TP_fast_assign`` in include/trace/events/{sched,block,net,skb}.h of Linux 5.8 to 6.18. A
field is in the table only if BTF of the running kernel determines its value: the rules for the state of
``sched_switch``, for example, changed while arguments and field stayed the same.

An expression is a path from an argument (``skb->dev->name``; ``current`` is the current task), or one of the formulas
of :data:`FORMULAS` with paths as operands. Of several expressions the first one is used whose members the kernel has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

STRUCTS = {
    "bprm": "linux_binprm",
    "child": "task_struct",
    "current": "task_struct",
    "dev": "net_device",
    "next": "task_struct",
    "p": "task_struct",
    "parent": "task_struct",
    "pid": "pid",
    "prev": "task_struct",
    "rq": "request",
    "skb": "sk_buff",
    "tsk": "task_struct",
}
"""The struct that an argument must point to, by the argument's name at the start of a path."""


class Formula(msgspec.Struct, frozen=True):
    """Size and sign of the operands and of the result; *ops*: it needs the passthrough operations."""

    operands: tuple[tuple[int, bool], ...]
    result: tuple[int, bool]
    ops: bool = False


_U16, _U32, _S32, _U64 = (2, False), (4, False), (4, True), (8, False)

FORMULAS: Mapping[str, Formula] = {
    "ntohs": Formula((_U16,), _U16),
    "sectors": Formula((_U32,), _U32),
    "device": Formula((_S32, _S32), _U32),
    "traced_sector": Formula((_U32, _U64), _U64, ops=True),
    "traced_sectors": Formula((_U32, _U32), _U32, ops=True),
}
"""Formulas that ``codegen.emit.raw_tracepoints`` implements:

``ntohs`` swaps two bytes; ``sectors`` is a number of bytes in units of 512; ``device`` is ``MKDEV`` of major and
minor; ``traced_sector`` and ``traced_sectors`` are ``blk_rq_trace_sector`` and ``blk_rq_trace_nr_sectors`` of
include/linux/blktrace_api.h: zero for passthrough requests.
"""

PASSTHROUGH = ("REQ_OP_SCSI_IN", "REQ_OP_SCSI_OUT", "REQ_OP_DRV_IN", "REQ_OP_DRV_OUT")
"""The operations of passthrough requests (``blk_op_is_passthrough``); the first two until 5.14."""
OPERATION_BITS = "__REQ_FAILFAST_DEV"
"""The first flag after the operation: its value is the number of the operation's bits in ``cmd_flags``."""

Sources = tuple[str, ...]
Row = dict[str, Sources]


def _row(**fields: str | Sources) -> Row:
    return {name: (item,) if isinstance(item, str) else item for name, item in fields.items()}


_CPU = ("p->thread_info.cpu", "p->cpu")
"""``task_cpu``; the second one before 5.16 (thread_info in the task, as on all machines that pytrace knows)."""
_WAKEUP = _row(comm="p->comm", pid="p->pid", prio="p->prio", target_cpu=_CPU)
_PROCESS = _row(comm="p->comm", pid="p->pid", prio="p->prio")
_DEVICE = (
    "device(rq->rq_disk->major, rq->rq_disk->first_minor)",
    "device(rq->q->disk->major, rq->q->disk->first_minor)",
)
"""``disk_devt``, 0 without a disk; requests have a disk of their own until 5.16."""
_PRIORITY = ("rq->ioprio", "rq->bio->bi_ioprio")
"""``req_get_ioprio``; requests have a priority of their own until 6.12."""
_REQUEST = _row(
    dev=_DEVICE,
    sector="traced_sector(rq->cmd_flags, rq->__sector)",
    nr_sector="traced_sectors(rq->cmd_flags, rq->__data_len)",
    bytes="rq->__data_len",
    ioprio=_PRIORITY,
    comm="current->comm",
)
_PACKET = _row(skbaddr="skb", len="skb->len", name="skb->dev->name")

TABLE: Mapping[tuple[str, str], Row] = {
    ("sched", "sched_switch"): _row(
        prev_comm="prev->comm", prev_pid="prev->pid", prev_prio="prev->prio",
        next_comm="next->comm", next_pid="next->pid", next_prio="next->prio",
    ),
    ("sched", "sched_wakeup"): _WAKEUP,
    ("sched", "sched_wakeup_new"): _WAKEUP,
    ("sched", "sched_waking"): _WAKEUP,
    ("sched", "sched_migrate_task"): _row(
        comm="p->comm", pid="p->pid", prio="p->prio", orig_cpu=_CPU, dest_cpu="dest_cpu"
    ),
    ("sched", "sched_stat_runtime"): _row(comm="tsk->comm", pid="tsk->pid", runtime="runtime"),
    ("sched", "sched_process_fork"): _row(
        parent_comm="parent->comm", parent_pid="parent->pid", child_comm="child->comm", child_pid="child->pid"
    ),
    ("sched", "sched_process_exec"): _row(filename="bprm->filename", pid="p->pid", old_pid="old_pid"),
    ("sched", "sched_process_exit"): _row(
        comm="p->comm", pid="p->pid", prio="p->prio", group_dead="group_dead"
    ),
    ("sched", "sched_process_free"): _PROCESS,
    ("sched", "sched_process_wait"): _row(comm="current->comm", pid="pid->numbers.nr", prio="current->prio"),
    ("block", "block_rq_insert"): _REQUEST,
    ("block", "block_rq_issue"): _REQUEST,
    ("block", "block_rq_merge"): _REQUEST,
    ("block", "block_io_start"): _REQUEST,
    ("block", "block_io_done"): _REQUEST,
    ("block", "block_rq_complete"): _row(
        dev=_DEVICE, sector="rq->__sector", nr_sector="sectors(nr_bytes)", error="error", ioprio=_PRIORITY
    ),
    ("net", "net_dev_queue"): _PACKET,
    ("net", "netif_receive_skb"): _PACKET,
    ("net", "netif_rx"): _PACKET,
    ("net", "net_dev_start_xmit"): _row(
        name="dev->name", queue_mapping="skb->queue_mapping", skbaddr="skb", vlan_proto="ntohs(skb->vlan_proto)",
        vlan_tci="skb->vlan_tci", protocol="ntohs(skb->protocol)", len="skb->len", data_len="skb->data_len",
    ),
    ("net", "net_dev_xmit"): _row(skbaddr="skb", len="skb_len", rc="rc", name="dev->name"),
    ("skb", "kfree_skb"): _row(
        skbaddr="skb", location="location", rx_sk="rx_sk", protocol="ntohs(skb->protocol)", reason="reason"
    ),
    ("skb", "consume_skb"): _row(skbaddr="skb", location="location"),
}  # fmt: skip
"""Expressions of the known fields, by category and name of the tracepoint."""
