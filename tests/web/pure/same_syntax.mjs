// Reads pairs of scripts as JSON from stdin and compares their syntax trees: exit code 1 names those that differ.
// Run with --expose-internals, for the parser that node brings.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const { Parser } = createRequire(import.meta.url)("internal/deps/acorn/acorn/dist/acorn");
const tree = (text) =>
  JSON.stringify(Parser.parse(text, { ecmaVersion: "latest", sourceType: "module" }), (key, value) => {
    if (key === "start" || key === "end") return undefined;
    if ((key === "raw" || key === "cooked") && typeof value === "string") return value.replace(/\n[ \t]+/g, "\n");
    return typeof value === "bigint" ? String(value) : value;
  });

const different = JSON.parse(readFileSync(0, "utf8")).filter(([, source, sent]) => tree(source) !== tree(sent));
for (const [name] of different) console.log(name);
process.exit(different.length ? 1 : 0);
