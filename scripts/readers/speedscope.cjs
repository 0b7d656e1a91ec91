// Opens a file in speedscope's released program and prints what it exports again: what its importer understood.
//   NODE_PATH=… node speedscope.cjs FILE
"use strict";
const fs = require("fs");
const path = require("path");
const { JSDOM, VirtualConsole } = require("jsdom");

const release = path.join(path.dirname(require.resolve("speedscope/package.json")), "dist", "release");
const program = fs.readdirSync(release).find((name) => /^speedscope-.*\.js$/.test(name));
const file = process.argv[2];

const fail = (text) => {
  fs.writeSync(2, `${text}\n`);
  process.exit(1);
};

const messages = new VirtualConsole();
const lines = [];
for (const kind of ["log", "error", "warn", "jsdomError"]) messages.on(kind, (...words) => lines.push(words.join(" ")));

// With localProfilePath it waits for a script to hand over a file, as its command line tool does.
const { window } = new JSDOM("<!DOCTYPE html><body></body>", {
  url: "http://localhost/#localProfilePath=file.js",
  runScripts: "outside-only",
  pretendToBeVisual: true,
  virtualConsole: messages,
});
window.alert = fail;
window.matchMedia = () => ({ matches: false, addListener() {}, addEventListener() {} });
// What draws needs WebGL, which is not there, and is not what is wanted.
process.on("uncaughtException", (error) => lines.push(String(error)));
process.on("unhandledRejection", (error) => lines.push(String(error)));
setTimeout(() => fail(`nothing was exported\n${lines.join("\n")}`), 100000);
window.TextDecoder = TextDecoder;
window.TextEncoder = TextEncoder;
window.Blob = class {
  constructor(parts) {
    this.content = parts.join("");
  }
};
window.URL.createObjectURL = (blob) => {
  fs.writeFileSync(1, blob.content);
  process.exit(0);
};
window.eval(fs.readFileSync(path.join(release, program), "utf8"));

let started = false;
setInterval(() => {
  if (lines.some((line) => line.includes("Failed to load format"))) fail(lines.join("\n"));
  if (!started && window.speedscope) {
    started = true;
    window.speedscope.loadFileFromBase64(path.basename(file), fs.readFileSync(file).toString("base64"));
  }
  // Ctrl-S exports what is loaded, as soon as it is.
  window.dispatchEvent(new window.KeyboardEvent("keydown", { key: "s", ctrlKey: true, bubbles: true }));
}, 50);
