// Opens a file with the Firefox Profiler's command line and prints what it understood, as JSON: for each thread its name, self weights by
// stack (the root first, with semicolons), and markers.
//   NODE_PATH=… node firefox.cjs FILE
"use strict";
const fs = require("fs");
const os = require("os");
const path = require("path");
const { execFileSync, spawn } = require("child_process");

const program = require.resolve("@firefox-devtools/profiler-cli");
const sleep = (milliseconds) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);

// Its own "load" waits half a second for the server that it starts, which a busy machine takes longer for.
const start = (sessions) =>
  spawn(process.execPath, [program, "--daemon", path.resolve(process.argv[2]), "--session", "test"], {
    env: { ...process.env, PROFILER_CLI_SESSION_DIR: sessions },
    stdio: ["ignore", "ignore", "inherit"],
  });

const asking = (sessions) => (...words) =>
  JSON.parse(
    execFileSync(process.execPath, [program, ...words, "--session", "test", "--json"], {
      env: { ...process.env, PROFILER_CLI_SESSION_DIR: sessions },
      encoding: "utf8",
      maxBuffer: 1 << 28,
      stdio: ["ignore", "pipe", "pipe"],
    }),
  );

const stacks = (node, prefix, into) => {
  for (const child of node.children || []) {
    const name = prefix ? `${prefix};${child.name}` : child.name;
    if (child.selfSamples) into[name] = (into[name] || 0) + child.selfSamples;
    stacks(child, name, into);
  }
  return into;
};

const read = (ask) =>
  ask("profile", "info", "--all")
    .processes.flatMap((process) => process.threads.map((thread) => ({ pid: process.pid, ...thread })))
    .map((thread) => {
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

// A client that has no answer from its server for a second, as while that reads the file or waits for a processor, ends the session. So none asks
// before the session is there, and then a new server is asked.
const attempt = (patience) => {
  const sessions = fs.mkdtempSync(path.join(os.tmpdir(), "firefox-"));
  const server = start(sessions);
  try {
    for (let waited = 0; waited < 100000 && !fs.readdirSync(sessions).some((name) => name.endsWith(".json")); waited += 200) sleep(200);
    sleep(patience);
    return read(asking(sessions));
  } finally {
    server.kill();
    fs.rmSync(sessions, { recursive: true, force: true });
  }
};

for (const patience of [0, 1000, 4000, 16000]) {
  try {
    fs.writeFileSync(1, JSON.stringify(attempt(patience)));
    break;
  } catch (error) {
    if (patience === 16000) throw error;
  }
}
