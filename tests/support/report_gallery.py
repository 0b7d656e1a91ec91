"""Reports of real programs, and what their first screens must say.

``python -m tests.support.report_gallery record FOLDER [NAME…]`` saves a snapshot of each program; those in
``tests/results/report/gallery`` were made so, on a machine with two processors. ``pictures FOLDER`` takes pictures of
their reports, in both sizes, light and dark (``scripts/screenshots --gallery FOLDER``).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from pytrace.results import file_form
from pytrace.results.formats import table
from pytrace.results.formats.format_row import WriteOptions

GALLERY = Path(__file__).parents[1] / "results" / "report" / "gallery"
SIZES = ((1400, 900), (800, 600))

_APP_C = """
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define SEPARATE __attribute__((noinline))
volatile unsigned long sum;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
SEPARATE void compress_block(int n) { for (int i = 0; i < n; i++) sum += i * i; }
SEPARATE void sort_rows(int n) { for (int i = 0; i < n; i++) sum += i * 7; }
SEPARATE void wait_for_disk(void) { usleep(4000); }
static void *volatile cache;
SEPARATE void grow_cache(void) { cache = malloc(100000); memset(cache, 1, 100000); free(cache); }
SEPARATE void read_config(void) {
    char text[64]; int f = open("/etc/hostname", O_RDONLY); sum += read(f, text, 64); close(f);
}
static pthread_mutex_t rows = PTHREAD_MUTEX_INITIALIZER;
SEPARATE void hold_rows(void) { pthread_mutex_lock(&rows); compress_block(20000000); pthread_mutex_unlock(&rows); }
SEPARATE void wait_for_rows(void) { pthread_mutex_lock(&rows); pthread_mutex_unlock(&rows); }
static void *reader(void *) { for (;;) { wait_for_rows(); usleep(500); } }
int main(int argc, char **argv) {
    pthread_t thread;
    if (argc > 3) pthread_create(&thread, 0, reader, 0);
    double end = now() + 1.5, half = end - 0.7;
    int work = argc > 1 ? atoi(argv[1]) : 1;
    while (now() < end) {
        if (argc > 3) { hold_rows(); usleep(1000); continue; }
        if (argc > 2 && now() < half) { sort_rows(1000); continue; }
        compress_block(3000000 * work); sort_rows(600000); read_config(); grow_cache(); wait_for_disk();
    }
}
"""

_APP_PY = """
import hashlib, json, sys, time
def checksum(n):
    value = hashlib.sha256()
    for i in range(n): value.update(b"%d" % i)
def parse(n):
    return json.loads(json.dumps([{"a": i, "b": [i] * 5} for i in range(n)]))
def slow_sum(n):
    total = 0
    for i in range(n): total += i * i % 7
    return total
def handle():
    checksum(2000); parse(100); slow_sum(int(sys.argv[1]) if len(sys.argv) > 1 else 100000)
def serve():
    for _ in range(50):
        handle(); time.sleep(0.002)
serve()
"""

_APP_JS = """
function fibonacci(n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2) }
function serve() { for (let i = 0; i < 4; i++) fibonacci(26); }
const end = Date.now() + 1500; while (Date.now() < end) serve();
"""

_WEB_PY = """
import http.client, http.server, os, signal, socketserver, time
class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = render_page(60000)
        self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_): pass
def render_page(n):
    return str(sum(i * i % 7 for i in range(n))).encode()
server = socketserver.TCPServer(("127.0.0.1", 0), Pages)
workers = []
for _ in range(2):
    workers.append(os.fork())
    if not workers[-1]: server.serve_forever()
end = time.time() + 1.5
while time.time() < end:
    client = http.client.HTTPConnection(*server.server_address); client.request("GET", "/"); client.getresponse().read()
for worker in workers: os.kill(worker, signal.SIGKILL)
"""

_SERVER_GO = """
package main

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

type order struct {
	ID    int
	Items []int
}

//go:noinline
func buildOrders(n int) []order {
	orders := make([]order, n)
	for i := range orders {
		orders[i] = order{i, make([]int, 8)}
	}
	return orders
}

//go:noinline
func priceOrders(orders []order) (sum int) {
	for round := 0; round < 4000; round++ {
		for _, one := range orders {
			sum += one.ID * round % 7
		}
	}
	return sum
}

var book sync.Mutex

func serve(answer http.ResponseWriter, _ *http.Request) {
	orders := buildOrders(300)
	priceOrders(orders)
	text, _ := json.Marshal(orders)
	book.Lock()
	time.Sleep(time.Millisecond)
	book.Unlock()
	answer.Write(bytes.Repeat([]byte{byte(crc32.ChecksumIEEE(text))}, 100))
}

func main() {
	server := httptest.NewServer(http.HandlerFunc(serve))
	end := time.Now().Add(1500 * time.Millisecond)
	var clients sync.WaitGroup
	for i := 0; i < 3; i++ {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for time.Now().Before(end) {
				if answer, err := http.Get(server.URL); err == nil {
					io.ReadAll(answer.Body)
					answer.Body.Close()
				}
			}
		}()
	}
	clients.Wait()
}
"""

_DISK_SH = """
for i in 1 2 3 4 5; do dd if=/dev/zero of=written bs=16k count=60 oflag=direct; sleep 0.1; done
for i in 1 2 3 4 5; do dd if=/dev/zero of=written bs=1M count=16 oflag=direct; sleep 0.1; done
"""

_FILES = {
    "app.c": _APP_C, "app.py": _APP_PY, "app.js": _APP_JS, "web.py": _WEB_PY, "disk.sh": _DISK_SH,
    "server.go": _SERVER_GO,
}  # fmt: skip

_LATENCY = (
    "t:syscalls:sys_enter_read /pid == cpid/ { @t[tid] = nsecs; } "
    "t:syscalls:sys_exit_read /@t[tid]/ { @read_ns = hist(nsecs - @t[tid]); delete(@t[tid]); } end { clear(@t); }"
)
_NUMBERS = (
    "t:syscalls:sys_enter_read /pid == cpid/ { @reads = count(); @asked_bytes = sum(args.count); "
    "@largest = max(args.count); @calls[comm] = count(); }"
)
_SERIES = (
    "config = { unstable_tseries = enable } t:raw_syscalls:sys_enter /pid == cpid/ "
    '{ @calls[syscall_name(args.id)] = tseries(1, 100ms, 40, "sum"); }'
)


class Report(msgspec.Struct, frozen=True):
    """A report: how its data are made, and what its first screen says."""

    words: str
    """The command line after ``pytrace``; ``{save}`` is where the snapshot goes."""
    says: tuple[str, ...]
    """Regular expressions of texts on the first screen."""
    own: str = ""
    """The function that took most, whose widest frame is to be seen without scrolling."""
    against: str = ""
    """The report that it is compared with."""


_SHARE = r"\d+(\.\d)? %"
_TIME = r"\d m?s"
REPORTS = {
    "c": Report("flame -c './app'", ("Where ./app spent its time", _SHARE, "compress_block", _TIME), "compress_block"),
    "c-slower": Report(
        "flame -c './app 3'",
        (r"What changed from \./app to \./app 3", r"before, .* after: ", "compress_block", "Grew most"),
        "compress_block",
        against="c",
    ),
    "c-over-time": Report(
        "flame --over-time 3 -c './app 1 phases'",
        ("Where ./app 1 phases spent its time", "sort_rows", _SHARE),
        "sort_rows",
    ),
    "c-off-cpu": Report(
        "flame --off-cpu -c './app'", ("Where ./app waited", "s waited", "wait_for_disk → clock_nanosleep", _SHARE)
    ),
    "c-wakeup": Report(
        "flame --wakeup -c './app 1 2 locks'",
        ("Who woke ./app 1 2 locks from its waits", "s waited", _SHARE, "Woken by", "app: hold_rows", "wait_for_rows"),
    ),
    "c-alloc": Report(
        "flame --alloc -c './app'", ("Who allocates memory in ./app", "grow_cache", r"\d [Mk]B", _SHARE), "grow_cache"
    ),
    "c-faults": Report(
        "flame --faults -c './app'",
        ("Who causes page faults: ./app", r"[\d,\u202f]+ events", "grow_cache → __memset", _SHARE),
    ),
    "c-reads": Report(
        "flame -e t:syscalls:sys_enter_read -c './app'",
        ("Who calls tracepoint:syscalls:sys_enter_read in ./app", r"\d calls", "read_config → read", _SHARE),
    ),
    "python": Report(
        "flame -c 'python3 app.py'", ("Where python3 app.py spent its time", "slow_sum", _SHARE, "interpreted")
    ),
    "python-slower": Report(
        "flame -c 'python3 app.py 400000'",
        ("What changed from python3 app.py to", r"before, .* after: ", "Grew most", "slow_sum"),
        against="python",
    ),
    "python-alloc": Report(
        "flame --alloc -c 'python3 app.py'",
        ("Who allocates memory in python3 app.py", r"\d MB allocated", "JSONEncoder.iterencode", _SHARE),
    ),
    "python-off-cpu": Report(
        "flame --off-cpu -c 'python3 app.py'",
        ("Where python3 app.py waited", "serve → clock_nanosleep", _TIME, _SHARE),
    ),
    "python-web": Report(
        "flame --follow -c 'python3 web.py'", ("Where python3 web.py spent its time", "render_page", _SHARE)
    ),
    "node": Report("flame -c 'node app.js'", (r"\[JIT\]", "node --perf-basic-prof gives names", _SHARE)),
    "node-named": Report("flame -c 'node --perf-basic-prof app.js'", ("fibonacci app.js:2", _SHARE)),
    "go": Report(
        "flame -c './server'", ("Where ./server spent its time", "main.priceOrders", _SHARE), "main.priceOrders"
    ),
    "go-alloc": Report(
        "flame --alloc -c './server'",
        ("Who allocates memory in ./server", "main.buildOrders", r"\d MB allocated", _SHARE),
    ),
    "go-off-cpu": Report(
        "flame --off-cpu -c './server'", ("Where ./server waited", "no goroutine to run", _TIME, _SHARE)
    ),
    "read-latency": Report(
        f"heatmap --every 0.25 -e {shlex.quote(_LATENCY)} -c './app'",
        ("@read_ns", r"values: p50 ≤ .*p99 ≤ .*largest ≤ \d+(\.\d+)? [µn]s"),
    ),
    "block-latency": Report(
        "heatmap --every 0.25 biolatency -c 'sh disk.sh'",
        (r"values: p50 ≤ .*p99 ≤ .*s\. Slowest from \d\d:\d\d:\d\d\.\d+ to .*p99 up to \d", "Disk|[Ll]atency|I/O"),
    ),
    "run-queue": Report("runqlat 1 1", (r"values: p50 ≤ .*p99 ≤ .*[µm]s",)),
    "system-calls": Report(
        "syscount -L -c './app'", ("System calls by count, time", "clock_nanosleep", _TIME, "SYSCALL")
    ),
    "opened-files": Report("opensnoop -c './app'", ("Files that are opened", "/etc/hostname", "PATH")),
    "numbers": Report(
        f"-e {shlex.quote(_NUMBERS)} -c './app'", ("@reads", "@asked_bytes", "@largest", "@calls", r"\d kB")
    ),
    "calls-over-time": Report(
        f"-e {shlex.quote(_SERIES)} -c './app'", ("@calls", "Sum of each 100 ms, highest", r"8 of \d+ shown")
    ),
}
"""By name."""


def snapshots(name: str) -> list[Path]:
    """The files of a report, in their order."""
    return (
        sorted((GALLERY / name).iterdir()) if REPORTS[name].words.startswith("heatmap") else [GALLERY / f"{name}.pts"]
    )


def report(name: str) -> bytes:
    """The page of a report."""
    form = table.named("html")
    assert form.differential is not None
    assert form.series is not None
    states = [file_form.read(str(path)) for path in snapshots(name)]
    against = REPORTS[name].against
    if against:
        return form.differential(file_form.read(str(GALLERY / f"{against}.pts")), states[0], WriteOptions())
    if len(states) > 1:
        return form.series(states, WriteOptions())
    file = BytesIO()
    form.write(states[0], WriteOptions(), file)
    return file.getvalue()


def record(folder: Path, *names: str) -> None:
    """Run the programs, and save a snapshot of each; with *names* of these reports."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", os.getcwd()), "PATH": f"/usr/bin:{os.environ['PATH']}",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for file, text in _FILES.items():
            (place / file).write_text(text)
        subprocess.run(
            ["gcc", "-O1", "-g", "-fno-omit-frame-pointer", "-w", "-o", "app", "app.c"], cwd=place, check=True
        )
        if any(title.startswith("go") for title in names or REPORTS):
            go = {**environment, "GO111MODULE": "off", "GOCACHE": str(place / "cache")}
            subprocess.run(["go", "build", "-trimpath", "-o", "server", "server.go"], cwd=place, env=go, check=True)
        for title, one in REPORTS.items():
            if names and title not in names:
                continue
            words = shlex.split(one.words)
            heat = words[0] == "heatmap"
            out = [] if heat else ["--save", str(folder / f"{title}.pts")]
            if heat:
                words[1:1] = ["-o", str(place / f"{title}.html")]
            elif words[0] == "flame":
                out += ["-o", str(place / f"{title}.html")]
            command = [sys.executable, "-m", "pytrace", *words, *out]
            subprocess.run(command, cwd=place, env=environment, check=True, stdout=subprocess.DEVNULL)
            if heat:
                shutil.rmtree(folder / title, ignore_errors=True)
                shutil.copytree(place / f"{title}.snapshots", folder / title)


def pictures(folder: Path) -> None:
    """Pictures of the first screens of all reports."""
    from tests.support.browser import opened

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "report.html"
        for name in REPORTS:
            path.write_bytes(report(name))
            for width, height in SIZES:
                for scheme in ("light", "dark"):
                    options: Any = {"color_scheme": scheme, "viewport": {"width": width, "height": height}}
                    with opened(path, **options) as page:
                        page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")


if __name__ == "__main__":
    {"record": record, "pictures": pictures}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
