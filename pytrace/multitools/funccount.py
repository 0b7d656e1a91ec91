"""``funccount``: calls of functions and events of a pattern."""

from __future__ import annotations

from pytrace.core.kernel_info import KernelInfo
from pytrace.core.options.script_options import ScriptOption
from pytrace.multitools import common_options as common
from pytrace.multitools import patterns
from pytrace.multitools.script_parts import HEAD, Naming, block, outputs, probe, script, stamp
from pytrace.multitools.translation import Options, Translation

OPTIONS: tuple[ScriptOption, ...] = (
    common.PID, common.INTERVAL, common.DURATION, common.TIMESTAMP, common.REGEXP,
    common.CPU, common.PATTERN,
)  # fmt: skip

EXAMPLES = """\
funccount 'vfs_*'                      calls of kernel functions, until Ctrl-C
funccount -i 1 -d 10 c:malloc          malloc in all processes, each second for ten seconds
funccount -p 185 'c:pthread_*'         functions of libc in one process
funccount -Ti 5 't:syscalls:sys_enter_*'  system calls every five seconds, with the time
funccount -r 'c:^(malloc|free)$'       functions by a regular expression
funccount 'u:/usr/bin/python3:*'       USDT probes of Python"""


def translate(options: Options, kernel: KernelInfo) -> Translation:
    """The script that counts."""
    pattern = patterns.parse(options, kernel)
    only = common.cpu_condition(options)
    count = probe([pattern.point], [f"@calls[{pattern.naming.key}] = count();"], [only])
    text = script(HEAD, count, _show(pattern.naming, options))
    words = common.run_arguments(options, pattern.filter)
    return Translation(text, words)


def _show(naming: Naming, options: Options) -> str:
    """The table; with intervals, the difference to the last one, so that no call is lost between two."""
    interval, duration = common.interval(options), common.duration(options)
    if interval:
        rows = [
            "$new = $kv.1 - @shown[$name];",
            "@shown[$name] = $kv.1;",
            f'if ($new > 0) {{ row((func={naming.shown("$name")}, count=$new), "-count"); }}',
        ]
    else:
        rows = [f'row((func={naming.shown("$name")}, count=$kv.1), "-count");']
    loop = block("for ($kv : @calls)", ["$name = $kv.0;", *rows])
    return outputs(interval, duration, [*stamp(wanted=options.flag("timestamp")), loop, "print_rows();"])
