// Opens a file with the Firefox Profiler's command line and prints what it understood, as JSON: for each thread its name, self weights by
// stack (the root first, with semicolons), and markers.
//   NODE_PATH=… node firefox.cjs FILE
"use strict";
const fs = require("fs");
const os = require("os");
const path = require("path");
const { execFileSync, spawn } = require("child_process");

const program = require.resolve("@firefox-devtools/profiler-cli");
const sessions = fs.mkdtempSync(path.join(os.tmpdir(), "firefox-"));
const env = { ...process.env, PROFILER_CLI_SESSION_DIR: sessions };
const ask = (...words) =>
  JSON.parse(
    execFileSync(process.execPath, [program, ...words, "--session", "test", "--json"], {
      env,
      encoding: "utf8",
      maxBuffer: 1 << 28,
      stdio: ["ignore", "pipe", "pipe"],
    }),
  );

// Its own "load" waits half a second for the server that it starts, which a busy machine takes longer for.
const server = spawn(process.execPath, [program, "--daemon", path.resolve(process.argv[2]), "--session", "test"], {
  env,
  stdio: ["ignore", "ignore", "inherit"],
});
const overview = () => {
  for (;;) {
    try {
      return ask("profile", "info", "--all");
    } catch (error) {
      if (Date.now() > deadline) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
    }
  }
};
const deadline = Date.now() + 100000;

const stacks = (node, prefix, into) => {
  for (const child of node.children || []) {
    const name = prefix ? `${prefix};${child.name}` : child.name;
    if (child.selfSamples) into[name] = (into[name] || 0) + child.selfSamples;
    stacks(child, name, into);
  }
  return into;
};

try {
  const info = overview();
  const threads = info.processes.flatMap((process) => process.threads.map((thread) => ({ pid: process.pid, ...thread })));
  const seen = threads.map((thread) => {
    const samples = ask("thread", "samples-top-down", "--thread", thread.threadHandle, "--include-idle", "--max-lines", "100000");
    const markers = ask("thread", "markers", "--thread", thread.threadHandle, "--list", "--limit", "0");
    return {
      name: thread.name,
      pid: thread.pid,
      tid: thread.tid,
      weight: samples.weightType,
      stacks: stacks(samples.regularCallTree, "", {}),
      markers: markers.flatMarkers || markers.markers || [],
    };
  });
  fs.writeFileSync(1, JSON.stringify(seen));
} finally {
  server.kill();
  fs.rmSync(sessions, { recursive: true, force: true });
}
