"""The configuration of a script: every key with its default."""

from __future__ import annotations

import msgspec

ENVIRONMENT_PREFIXES = ("PYTRACE_", "BPFTRACE_")
"""Prefixes of environment variables; the first one that is set takes precedence."""

MARK_UNREADABLE = f"{ENVIRONMENT_PREFIXES[0]}MARK_UNREADABLE"
"""The variable that the option ``--mark-unreadable`` stands for."""

Setting = bool | int | str
"""The value of a key."""


class Config(msgspec.Struct, frozen=True):
    """Effective configuration of one script."""

    cache_user_symbols: str = "AUTO"
    """``PER_PID``, ``PER_PROGRAM``, ``NONE``; ``AUTO``: PER_PROGRAM without address randomisation or with ``-c``."""
    cpp_demangle: bool = True
    debuginfod_lines: bool = False
    """Servers of debuginfod are asked for source lines in stacks, too, not for names of functions alone."""
    lazy_symbolication: bool = True
    license: str = "GPL"
    log_size: int = 1_000_000
    mark_unreadable: bool = False
    """A string that could not be read is ``<unreadable>``, and counted; else it is empty."""
    max_bpf_progs: int = 1024
    max_cat_bytes: int = 10240
    max_loop_iterations: int = 1 << 23
    """Maximum for all loops together in one run of a program; the kernel's limit for a single loop is the same."""
    max_map_keys: int = 4096
    max_memory: str = ""
    """Memory that a run may take (``512M``, ``10%``); empty: a tenth of the machine's."""
    max_metric_series: int = 2000
    """Maximum number of keys of one map that ``--metrics`` exports."""
    max_probes: int = 1024
    max_rate: int = 0
    """Hits per second of each block that run it, as ``--max-rate``; 0: all."""
    max_stack_depth: int = 127
    """Frames of a stack whose limit the script does not name; of more than 127, keys have a digest."""
    max_strlen: int = 1024
    missing_probes: str = "error"
    on_stack_limit: int = 32
    perf_rb_pages: int = 0
    """Pages of the ring buffer; 0 lets the runtime choose by available memory."""
    print_maps_on_exit: bool = True
    python_frames: bool = False
    """``ustack`` has the frames of CPython in place of those of the interpreter's loop."""
    raw_tracepoints: str = "auto"
    """``auto``: hot tracepoints are traced through their raw tracepoints if that is equivalent; ``plain``: none is."""
    short_generics: bool = False
    """Generic arguments and template arguments of functions in stacks are ``<…>``."""
    show_debug_info: bool = True
    """Source file and line, and inlined functions, in stacks."""
    use_blazesym: bool = True
    stack_mode: str = "bpftrace"
    stack_unwinding: str = "sampled"
    """How ``ustack`` unwinds: ``frame_pointers``, ``tables`` (as ``dw_ustack``), ``auto``: tables where there are,
    ``sampled``: ``auto`` in programs of perf events, which cost microseconds anyway, else ``frame_pointers``."""
    str_trunc_trailer: str = ".."
    syscall_tracepoints: str = "auto"
    """``raw``: traced through raw tracepoints where possible; ``plain``: never; ``auto``: where that costs less."""
    watchdog: int = 10
    """Seconds after which programs return at once if pytrace does not run any more; 0: never."""
    unstable_tseries: str = "warn"
    unstable_dw_ustack: str = "warn"
    unstable_typeinfo: str = "error"
    unstable_import_statement: str = "error"
