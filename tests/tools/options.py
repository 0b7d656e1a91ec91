"""The options and operands that users know for each tool, as they are typed.

A word is one option with all its spellings (``-T/--time``), with its argument after ``=`` where it has one; a word
without a dash is an operand, in its place.
"""

from __future__ import annotations

COMMON = (
    "-h/--help -p/--pid=PID -c/--cmd=COMMAND --comm=NAME --cgroup=PATH --duration=SECONDS -f/--format=FORMAT "
    "-o/--output=FILE -q/--quiet -v/--verbose --show-script"
)
"""What every tool has, by these names."""

OPTIONS: dict[str, str] = {
    # Processes
    "execsnoop":
        "-T/--time -t/--timestamp -x/--fails --cgroupmap=PATH --mntnsmap=PATH -u/--uid=USER --quote -n/--name=NAME "
        "-l/--line=TEXT -U/--print-uid -C/--print-cpu -M/--print-pcomm --max-args=N -P/--ppid=PID",
    "exitsnoop": "-x -p/--pid=PID --per-thread -t",
    "threadsnoop": "-p/--pid=PID",
    "killsnoop": "-x/--failed -p/--pid=PID -T/--tpid=PID -s/--signal=N",
    "setuids": "-p/--pid=PID -u/--uid=USER",
    "capable":
        "-p/--pid=PID -K/--kernel-stack -U/--user-stack -x/--extra --cgroupmap=PATH --mntnsmap=PATH --unique",
    "oomkill": "",
    "pidpersec": "interval count",
    "naptime": "-p/--pid=PID",
    "bashreadline": "-s/--shared=PATH",
    "syscount":
        "-p/--pid=PID -t/--tid=TID --ppid=PID -i/--interval=SECONDS -d/--duration=SECONDS -T/--top=N -x/--failures "
        "--errno=ERROR -L/--latency -m/--milliseconds -P/--process -l/--list --syscall=NAME --exec=NAME",
    "undump": "-p/--pid=PID -s/--size=BYTES",
    # Processors and scheduling
    "profile":
        "-p/--pid=PID -L/--tid=TID -U/--user-stacks-only -K/--kernel-stacks-only -F/--frequency=HZ --count=N "
        "-d/--delimited -a/--annotations -I/--include-idle --folded -C/--cpu=CPU --cgroupmap=PATH --mntnsmap=PATH "
        "-A/--address duration",
    "offcputime":
        "-p/--pid=PID -t/--tid=TID -u/--user-threads-only -k/--kernel-threads-only -U/--user-stacks-only "
        "-K/--kernel-stacks-only -d/--delimited --folded -s/--offset -m/--min-block-time=US -M/--max-block-time=US "
        "--state=BITS duration",
    "offwaketime":
        "-p/--pid=PID -t/--tid=TID -u/--user-threads-only -k/--kernel-threads-only -U/--user-stacks-only "
        "-K/--kernel-stacks-only -d/--delimited --folded -m/--min-block-time=US -M/--max-block-time=US --state=BITS "
        "duration",
    "wakeuptime":
        "-u/--useronly -p/--pid=PID --folded -m/--min-block-time=US -M/--max-block-time=US duration",
    "runqlat": "-T/--timestamp -m/--milliseconds -P/--pids --pidnss -L/--tids -p/--pid=PID interval count",
    "runqlen": "-T/--timestamp -O/--runqocc -C/--cpus interval count",
    "runqslower": "-P/--previous -p/--pid=PID -t/--tid=TID min_us",
    "cpudist":
        "-O/--offcpu -T/--timestamp -m/--milliseconds -P/--pids -L/--tids -p/--pid=PID -I/--include-idle "
        "--extension "
        "interval count",
    "cpuwalk": "-p/--pid=PID interval",
    "loads": "interval count",
    "hardirqs": "-T/--timestamp -N/--nanoseconds -C/--count -d/--dist --cpu=CPU interval outputs",
    "softirqs": "-T/--timestamp -N/--nanoseconds -C/--events -d/--dist --cpu=CPU interval count",
    "wqlat": "-T/--timestamp -N/--nanoseconds -W/--workqueues -w/--wqname=NAME interval count",
    "llcstat": "--sample_period=N -t/--tid duration",
    "klockstat":
        "-d/--duration=SECONDS -i/--interval=SECONDS -n/--locks=N -s/--stacks=N --caller=TEXT -S/--sort=FIELDS "
        "-p/--pid=PID -t/--tid=TID",
    "futexwait": "-p/--pid=PID -s/--stacks interval count",
    "cpufreq": "interval count",
    # Memory
    "memleak":
        "-p/--pid=PID -t/--trace -a/--show-allocs --older=MS -c/--cmd=COMMAND --command=COMMAND --combined-only "
        "--wa-missing-free "
        "-s/--sample-rate=N -T/--top=N -z/--min-size=BYTES -Z/--max-size=BYTES -O/--obj=PATH --percpu --sort=BY "
        "--symbols-prefix=TEXT interval count",
    "mallocs": "-p/--pid=PID -c/--cmd=COMMAND -z=BYTES -Z=BYTES --folded",
    "pagefaults": "-p/--pid=PID -s/--stacks interval count",
    "drsnoop":
        "-T/--timestamp -U/--print-uid -p/--pid=PID -t/--tid=TID -u/--uid=USER -d/--duration=SECONDS "
        "-n/--name=TEXT",
    "compactsnoop": "-T/--timestamp -p/--pid=PID -d/--duration=SECONDS -K/--kernel-stack --extended_fields",
    "slabratetop": "-C/--noclear -r/--maxrows=N interval count",
    "swapin": "-T/--notime interval count",
    "shmsnoop": "-T/--timestamp -p/--pid=PID -t/--tid=TID -d/--duration=SECONDS -n/--name=TEXT",
    # Files
    "opensnoop":
        "-T/--timestamp -U/--print-uid -x/--failed -p/--pid=PID -t/--tid=TID --cgroupmap=PATH --mntnsmap=PATH "
        "-u/--uid=USER -d/--duration=SECONDS -n/--name=TEXT --extended_fields --flag_filter=FLAG -F/--full-path "
        "--exec=NAME",
    "statsnoop": "-t/--timestamp -s/--sysname -x/--failed -p/--pid=PID",
    "syncsnoop": "",
    "filelife": "-p/--pid=PID",
    "filetop":
        "-a/--all-files -C/--noclear -r/--maxrows=N -s/--sort=BY -p/--pid=PID --read-only --write-only "
        "-d/--directory=PATH "
        "interval count",
    "fileslower": "-p/--pid=PID -a/--all-files min_ms",
    "fsslower": "-t=FS -p/--pid=PID -m=MS -d=SECONDS --csv",
    "fsdist": "-t=FS -m -T -p/--pid=PID interval count",
    "cachestat": "-T/--timestamp interval count",
    "cachetop": "-p/--pid=PID interval",
    "dcsnoop": "-a/--all",
    "dcstat": "interval count",
    "vfsstat": "-p/--pid=PID interval count",
    "vfscount": "seconds",
    "writeback": "",
    "mountsnoop": "-P/--parent_process --cgroupmap=PATH --mntnsmap=PATH",
    # Block devices
    "biolatency":
        "-T/--timestamp -Q/--queued -m/--milliseconds -D/--disks -F/--flags --extension -j/--json -d/--disk=DISK "
        "interval count",
    "biosnoop": "-Q/--queue -d/--disk=DISK -P/--pattern",
    "biostacks": "-d/--disk=DISK interval",
    "biotop": "-C/--noclear -r/--maxrows=N -p/--pid=PID interval count",
    "biopattern": "-d/--disk=DISK interval count",
    "bitesize": "interval count",
    "mdflush": "",
    # Network
    "tcpconnect":
        "-t/--timestamp -p/--pid=PID -P/--port=PORTS -4/--ipv4 -6/--ipv6 -L/--lport -U/--print-uid -u/--uid=USER "
        "--count "
        "--cgroupmap=PATH --mntnsmap=PATH -d/--dns",
    "tcpaccept":
        "-T/--time -t/--timestamp -p/--pid=PID -P/--port=PORTS -4/--ipv4 -6/--ipv6 --cgroupmap=PATH --mntnsmap=PATH",
    "tcpconnlat": "-t/--timestamp -p/--pid=PID -L/--lport -4/--ipv4 -6/--ipv6 duration_ms",
    "tcplife":
        "-T/--time -t/--timestamp -w/--wide -s/--csv -p/--pid=PID -L/--localport=PORTS -D/--remoteport=PORTS -4/--ipv4 "
        "-6/--ipv6",
    "tcpretrans": "-s/--sequence -l/--lossprobe --count -4/--ipv4 -6/--ipv6",
    "tcpdrop": "-4/--ipv4 -6/--ipv6 --netns-id --pid-netns=PID",
    "tcpstates":
        "-T/--time -t/--timestamp -w/--wide -s/--csv -L/--localport=PORTS -D/--remoteport=PORTS -Y/--journal -4/--ipv4 "
        "-6/--ipv6",
    "tcptop":
        "-C/--noclear -S/--nosummary -p/--pid=PID --cgroupmap=PATH --mntnsmap=PATH -4/--ipv4 -6/--ipv6 interval count",
    "tcprtt":
        "-i/--interval=SECONDS -d/--duration=SECONDS -T/--timestamp -m/--milliseconds --lport=PORTS "
        "-P/--rport=PORTS "
        "-a/--laddr=ADDRESS -A/--raddr=ADDRESS -b/--byladdr -B/--byraddr --extension -4/--ipv4 -6/--ipv6",
    "tcpsynbl": "-4/--ipv4 -6/--ipv6",
    "solisten": "--show-netns -p/--pid=PID -n=NETNS --netns=NETNS",
    "udpsnoop": "-p/--pid=PID -P/--port=PORTS",
    "gethostlatency": "-p/--pid=PID",
    "sslsnoop":
        "-p/--pid=PID --data --handshake -u/--uid=USER -x/--extra --comm=NAME --no-openssl -g/--no-gnutls "
        "-n/--no-nss "
        "-d/--debug --hexdump --max-buffer-size=BYTES -l/--latency --extra-lib=PATH",
    "netqtop": "-n/--name=DEVICE -i/--interval=SECONDS -t/--throughput",
    "skbdrop": "-s/--stacks -i/--iface=IFACE interval count",
    # Languages and databases (USDT)
    "ucalls": "-l/--language=LANGUAGE -T/--top=N -L/--latency -S/--syscalls -m/--milliseconds pid interval",
    "uflow": "-M/--method=METHOD -C/--class=CLASS -l/--language=LANGUAGE pid",
    "ugc": "-m/--milliseconds -M/--minimum=MS -F/--filter=TEXT -l/--language=LANGUAGE pid",
    "uobjnew": "-l/--language=LANGUAGE -C/--top-count=N -S/--top-size=N pid interval",
    "dbslower": "-p/--pid=PID -x/--exe=PATH -m/--threshold=MS db",
    "dbstat": "-p/--pid=PID -m/--threshold=MS -u/--microseconds -i/--interval=SECONDS db",
    "tplist": "-p/--pid=PID -l/--lib=FILE -v",
    # Multi-purpose
    "funccount":
        "-p/--pid=PID -i/--interval=SECONDS -d/--duration=SECONDS -T/--timestamp -r/--regexp --cpu=CPU pattern",
    "funclatency":
        "-p/--pid=PID -i/--interval=SECONDS -d/--duration=SECONDS -T/--timestamp -u/--microseconds -m/--milliseconds "
        "-F/--function -r/--regexp -l/--level=LEVEL pattern",
    "functime": "-p/--pid=PID -i/--interval=SECONDS -d/--duration=SECONDS -T/--timestamp --self pattern",
    "funcslower":
        "-p/--pid=PID -m/--min-ms=MS -u/--min-us=US -a/--arguments=N -T/--time -t/--timestamp --folded "
        "-U/--user-stack -K/--kernel-stack",
    "stackcount":
        "-p/--pid=PID --cpu=CPU -i/--interval=SECONDS -D/--duration=SECONDS -T/--timestamp -r/--regexp -s/--offset "
        "-P/--perpid -K/--kernel-stacks-only -U/--user-stacks-only -d/--delimited --folded pattern",
    "trace":
        "-p/--pid=PID -L/--tid=TID --uid=USER -Z/--string-size=BYTES -S/--include-self -M/--max-events=N "
        "-t/--timestamp "
        "-u/--unix-timestamp -T/--time -C/--print_cpu --cgroup-path=PATH -n/--name=TEXT --msg-filter=TEXT "
        "-B/--bin_cmp -s/--sym_file_list=FILES -K/--kernel-stack -U/--user-stack -a/--address -I/--include=FILE "
        "-A/--aggregate",
    "argdist":
        "-p/--pid=PID -t/--tid=TID -z/--string-size=BYTES -i/--interval=SECONDS -d/--duration=SECONDS -n/--number=N "
        "--cumulative -T/--top=N -H/--histogram=SPEC -C/--count=SPEC -I/--include=FILE",
}  # fmt: skip
"""By tool, in the order of their groups."""
