"""BPF helper functions: number and signature (``include/uapi/linux/bpf.h``)."""

from __future__ import annotations

from pytrace.base.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Helper:
    """One row. Sizes and flags are passed as ``i64`` whatever their C type: a BPF argument is a whole register."""

    name: str
    number: int
    parameters: tuple[str, ...]
    result: str = "i64"


_P, _I = "ptr", "i64"

_ROWS: tuple[Helper, ...] = (
    Helper("map_lookup_elem", 1, (_P, _P), _P),
    Helper("map_update_elem", 2, (_P, _P, _P, _I)),
    Helper("map_delete_elem", 3, (_P, _P)),
    Helper("ktime_get_ns", 5, ()),
    Helper("trace_printk_0", 6, (_P, _I)),
    Helper("trace_printk_1", 6, (_P, _I, _I)),
    Helper("trace_printk_2", 6, (_P, _I, _I, _I)),
    Helper("trace_printk_3", 6, (_P, _I, _I, _I, _I)),
    Helper("get_prandom_u32", 7, ()),
    Helper("get_smp_processor_id", 8, ()),
    Helper("get_current_pid_tgid", 14, ()),
    Helper("get_current_uid_gid", 15, ()),
    Helper("get_current_comm", 16, (_P, _I)),
    Helper("perf_event_output", 25, (_P, _P, _I, _P, _I)),
    Helper("get_current_task", 35, ()),
    Helper("probe_write_user", 36, (_P, _P, _I)),
    Helper("get_numa_node_id", 42, ()),
    Helper("get_socket_cookie", 46, (_I,)),
    Helper("override_return", 58, (_P, _I)),
    Helper("get_stack", 67, (_P, _P, _I, _I)),
    Helper("get_current_cgroup_id", 80, ()),
    Helper("send_signal", 109, (_I,)),
    Helper("probe_read", 4, (_P, _I, _I)),
    Helper("probe_read_str", 45, (_P, _I, _I)),
    Helper("probe_read_user", 112, (_P, _I, _I)),
    Helper("probe_read_kernel", 113, (_P, _I, _I)),
    Helper("probe_read_user_str", 114, (_P, _I, _I)),
    Helper("probe_read_kernel_str", 115, (_P, _I, _I)),
    Helper("send_signal_thread", 117, (_I,)),
    Helper("jiffies64", 118, ()),
    Helper("get_ns_current_pid_tgid", 120, (_I, _I, _P, _I)),
    Helper("ktime_get_boot_ns", 125, ()),
    Helper("seq_printf", 126, (_I, _P, _I, _P, _I)),
    Helper("seq_write", 127, (_I, _P, _I)),
    Helper("ringbuf_output", 130, (_P, _P, _I, _I)),
    Helper("ringbuf_reserve", 131, (_P, _I, _I), _P),
    Helper("ringbuf_submit", 132, (_P, _I), "void"),
    Helper("ringbuf_discard", 133, (_P, _I), "void"),
    Helper("d_path", 147, (_I, _P, _I)),
    Helper("get_current_task_btf", 158, ()),
    Helper("for_each_map_elem", 164, (_P, _P, _P, _I)),
    Helper("get_func_ip", 173, (_P,)),
    Helper("get_attach_cookie", 174, (_P,)),
    Helper("task_pt_regs", 175, (_I,)),
    Helper("loop", 181, (_I, _P, _P, _I)),
    Helper("map_lookup_percpu_elem", 195, (_P, _P, _I), _P),
    Helper("ktime_get_tai_ns", 208, ()),
)  # fmt: skip

HELPERS: dict[str, Helper] = {row.name: row for row in _ROWS}
