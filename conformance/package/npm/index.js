// The rules as data. README.md of the package says where their form is described.
"use strict";

const { readdirSync, readFileSync } = require("node:fs");
const { join } = require("node:path");

/** read returns the files of a folder, in the order of their names. */
function read(folder) {
  const files = readdirSync(join(__dirname, folder)).sort();
  return files.map((name) => [name.replace(/\.json$/, ""), JSON.parse(readFileSync(join(__dirname, folder, name), "utf8"))]);
}

exports.vectors = read("vectors").flatMap(([, file]) => file.vectors);
exports.scenarios = read("scenarios").flatMap(([, file]) => file.scenarios);
exports.guard = read("guard").flatMap(([, file]) => file.rows);
exports.schemas = Object.fromEntries(read("schema"));
