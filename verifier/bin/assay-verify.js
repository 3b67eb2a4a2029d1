#!/usr/bin/env node
// The verifier as a command. Exit codes: 0 every check passed, 1 one failed or a part is not supported, 2 the command is wrong.

import { createReadStream, existsSync, readFileSync, statSync } from "node:fs";
import { open, readdir, stat } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { createInterface } from "node:readline";
import { verify } from "../lib/bundle.js";
import { Refused, Unsupported } from "../lib/errors.js";
import { canonical, Float, parse } from "../lib/json.js";
import { readTar } from "../lib/tar.js";

const HELP = `Usage: assay-verify WHAT [--key KEY] [--policy FILE] [--audit FILE] [--auditor KEY]
                    [--checkpoint FILE] [--scheme FILE] [--subnet FILE] [--json]
       assay-verify explain BUNDLE PARTICIPANT [--key KEY]
       assay-verify conformance FOLDER|FILE [--case NAME]
       assay-verify --cases

Checks what \`assay verify\` checks, in another program: WHAT is a bundle (a folder, a .tar or a .zip), a receipt,
a participant's proof, a signed split or its folder, a signed audit, a duel, or a proof of a fork. It works offline.

  --key KEY          the log's public key, or a file with it, such as ledger.toml
  --policy FILE      witnesses (C2SP tlog-policy): a quorum must have cosigned
  --audit FILE       a signed audit of the bundle's epoch; files *.audit in the bundle are checked anyway
  --auditor KEY      the public key of the auditor's log, or a file with it
  --checkpoint FILE  a checkpoint of the log that was seen before
  --scheme FILE      a scheme.toml that the settlement must follow
  --subnet FILE      a subnet file that a signed split must follow
  --json             as canonical JSON
  --cases            answer conformance cases: one JSON line in, one out (docs/conformance.md)

Example: assay-verify epoch-12 --key "example.org/my-competition+1a2b3c4d+Ab…"
Exit code 0: every check passed; 1: one failed, or a part is not supported here; 2: the command is wrong.`;

class Wrong extends Error {}

const OPTIONS = { "--key": "key", "--audit": "audit", "--auditor": "auditor", "--policy": "policy", "--checkpoint": "checkpoint", "--case": "case", "--scheme": "scheme", "--subnet": "subnet" };

function readArguments(words) {
  const found = { rest: [], json: false, cases: false };
  for (let i = 0; i < words.length; i++) {
    const [name, inline] = words[i].startsWith("--") ? words[i].split(/=(.*)/s) : [words[i]];
    if (Object.hasOwn(OPTIONS, name)) {
      const value = inline ?? words[++i];
      if (value === undefined) throw new Wrong(`${name} needs a value`);
      found[OPTIONS[name]] = value;
    } else if (name === "--json" || name === "--cases") found[name.slice(2)] = true;
    else if (name === "--help" || name === "-h") found.help = true;
    else if (name.startsWith("--")) throw new Wrong(`there is no option ${name}; see --help`);
    else found.rest.push(words[i]);
  }
  return found;
}

const textOf = (path, what) => {
  if (!existsSync(path)) throw new Wrong(`${path}: there is no such ${what}`);
  return readFileSync(path, "utf8");
};

/** A file of TOML as its JSON: whole numbers as numbers, all others as the verifier's floats. */
async function readToml(path, what) {
  const { parse: parseToml, TomlDate } = await import("../vendor/toml.js");
  const plain = (value) => {
    if (typeof value === "bigint" && value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER) return Number(value);
    if (typeof value === "bigint" || typeof value === "number") return new Float(Number(value));
    if (value instanceof TomlDate) return value.toISOString();
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value !== "object") return value;
    return Object.assign(Object.create(null), Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)])));
  };
  try {
    return plain(parseToml(textOf(path, what), { integersAsBigInt: true }));
  } catch (error) {
    if (error instanceof Wrong) throw error;
    throw new Wrong(`${path}: is no TOML: ${error.message.split("\n")[0]}`);
  }
}

/** A folder's files, with "/" in their paths on every system. Links are not followed. */
async function readFolder(folder) {
  const paths = [];
  const walk = async (inner) => {
    for (const entry of await readdir(inner, { withFileTypes: true })) {
      const path = join(inner, entry.name);
      if (entry.isDirectory()) await walk(path);
      else if (entry.isFile()) paths.push(relative(folder, path).split(sep).join("/"));
    }
  };
  await walk(folder);
  const place = (path) => join(folder, ...path.split("/"));
  const known = new Set(paths);
  return {
    paths: paths.sort(),
    async read(path, limit) {
      if (!known.has(path)) return null;
      if ((await stat(place(path))).size > limit) throw new Error(`is larger than ${limit} bytes`);
      return new Uint8Array(readFileSync(place(path)));
    },
    async *stream(path) {
      yield* createReadStream(place(path), { highWaterMark: 1 << 22 });
    },
  };
}

async function readArchive(path) {
  const file = await open(path);
  const slice = async (from, to) => {
    const bytes = new Uint8Array(to - from);
    await file.read(bytes, 0, bytes.length, from);
    return bytes;
  };
  const read = path.endsWith(".zip") ? (await import("../lib/zip.js")).readZip : readTar;
  return await read(slice, (await file.stat()).size);
}

async function readWhat(path) {
  if (!existsSync(path)) throw new Wrong(`${path}: there is no such file or folder`);
  if (statSync(path).isDirectory()) return { files: await readFolder(path) };
  if (/\.(tar|zip)$/.test(path)) return { files: await readArchive(path) };
  if (statSync(path).size > 256 << 20) throw new Wrong(`${path}: a single file of more than 256 MiB is no receipt and no proof`);
  return { text: readFileSync(path, "utf8") };
}

const MARKS = { true: "✓", false: "–" };

function asJson(report) {
  const { fault, stages, verified, recomputed } = report;
  const audits = (report.found?.audits ?? []).map(({ predicate }) => predicate);
  if (fault) return { verified: false, stage: fault.stage ?? fault.code, what: fault.message, file: fault.where, expected: asText(fault.expected), found: asText(fault.found), stages };
  if (report.unsupported) return { verified: false, unsupported: report.unsupported, stages };
  return { verified, recomputed, stages, receipt: report.receipt ?? null, ...(audits.length ? { audits } : {}) };
}

const asText = (value) => (value === null || value === undefined ? null : typeof value === "string" ? value : canonical(value));

function print(report, name) {
  for (const { stage, checked, what } of report.stages) console.log(`${MARKS[checked]}  ${stage.padEnd(11)} ${what}`);
  if (report.fault) {
    const { fault } = report;
    const both = fault.expected === null && fault.found === null ? "" : ` (expected ${asText(fault.expected) ?? "nothing"}, found ${asText(fault.found) ?? "nothing"})`;
    console.error(`✗  ${String(fault.stage ?? fault.code).padEnd(11)} ${name}: ${fault.message}${both}`);
  } else if (report.unsupported) console.error(`?  unsupported ${report.unsupported}`);
  else {
    const settlement = report.receipt?.settlement ?? report.split?.split.digest;
    if (settlement) console.log(`\nVerified${report.recomputed ? ", and computed again" : ""}. Digest ${settlement}`);
    if (!report.witnessed && settlement) console.log("Not proven: that everybody is shown this same log. Witnesses of a policy prove it: --policy.");
  }
}

/** A key as text, or the `key = "…"` of a ledger.toml, or the first line of a file. */
function keyFrom(text) {
  const toml = /^key = "([^"\n]+)"/m.exec(text);
  return (toml ? toml[1] : text.trim().split("\n")[0]).trim();
}

async function optionsOf(found) {
  const keyOf = (value) => (value === undefined ? null : existsSync(value) ? keyFrom(readFileSync(value, "utf8")) : value);
  const progress = process.stderr.isTTY && !found.json ? (stage, part) => process.stderr.write(`\r${stage} ${Math.floor(part * 100)} %   \r`) : () => {};
  return {
    key: keyOf(found.key), auditor: keyOf(found.auditor), audits: found.audit ? [{ path: found.audit, text: textOf(found.audit, "audit") }] : [], progress, bulk: async () => (await import("../lib/bulk.js")).bulk, now: Date.now(), policy: found.policy ? textOf(found.policy, "policy") : null, checkpoint: found.checkpoint ? textOf(found.checkpoint, "checkpoint") : null,
    scheme: found.scheme ? await readToml(found.scheme, "scheme") : null, subnet: found.subnet ? await readToml(found.subnet, "subnet file") : null,
  };
}

async function check(path, found) {
  const report = await verify(await readWhat(path), await optionsOf(found));
  if (found.json) console.log(canonical(asJson(report)));
  else print(report, path);
  return report.verified ? 0 : 1;
}

async function explain(path, participant, found) {
  const { explanation, plain } = await import("../lib/explain.js");
  const report = await verify(await readWhat(path), await optionsOf(found));
  if (!report.verified) {
    print(report, path);
    return 1;
  }
  if (report.found.what !== "bundle") throw new Wrong("only a bundle has what an explanation needs");
  console.log(plain(explanation(report.found.context, report.found.settlement, participant)));
  return 0;
}

/** Conformance cases from their files. */
async function conformance(path, found) {
  const { failures } = await import("../lib/kinds.js");
  const files = statSync(path).isDirectory() ? (await readdir(path)).filter((name) => name.endsWith(".json") && !name.endsWith(".schema.json")).sort().map((name) => join(path, name)) : [path];
  let [right, wrong, unsupported] = [0, 0, 0];
  for (const file of files) {
    const result = await failures(readFileSync(file, "utf8"), found.case);
    [right, wrong, unsupported] = [right + result.right, wrong + result.wrong.length, unsupported + result.unsupported];
    for (const { name, expected, got, why } of result.wrong) console.log(`FAILED ${result.kind} ${name}\n  expected ${expected.slice(0, 2000)}\n  got      ${got.slice(0, 2000)} ${why}`);
  }
  console.log(`${right + wrong + unsupported} cases in ${files.length} files: ${right} right, ${wrong} wrong, ${unsupported} unsupported`);
  return wrong ? 1 : 0;
}

/** The answering side of the protocol of docs/conformance.md. */
async function cases() {
  const { answer } = await import("../lib/kinds.js");
  for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const { kind, input } = parse(line, { lenient: true });
    process.stdout.write(canonical(await answer(kind, input)) + "\n");
  }
  return 0;
}

async function main(words) {
  const found = readArguments(words);
  const [first, ...rest] = found.rest;
  if (found.help || (words.length === 0 && process.stdin.isTTY)) {
    console.log(HELP);
    return 0;
  }
  if (found.cases) return await cases();
  if (first === "conformance" && rest.length === 1) return await conformance(rest[0], found);
  if (first === "explain" && rest.length === 2) return await explain(rest[0], rest[1], found);
  if (first === undefined || rest.length) throw new Wrong("give one bundle, receipt or proof; see --help");
  return await check(first, found);
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof Wrong || error instanceof Refused || error instanceof Unsupported)) throw error;
  console.error(`error: ${error.message}`);
  process.exitCode = error instanceof Wrong ? 2 : 1;
}

