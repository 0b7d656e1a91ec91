// Decodes a gzipped pprof profile with the package pprof-format and prints it as JSON; 64-bit numbers that need it are texts.
//   NODE_PATH=… node pprof.cjs FILE
"use strict";
const fs = require("fs");
const zlib = require("zlib");
const { Profile } = require("pprof-format");

const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(process.argv[2])));
const text = JSON.stringify({ ...profile, stringTable: profile.stringTable.strings }, (_, value) =>
  typeof value === "bigint" ? value.toString() : value
);
fs.writeFileSync(1, text);
