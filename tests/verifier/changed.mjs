// Verifies a bundle once for each line of stdin, {path, data}: with one file replaced. One line of JSON for each.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { createInterface } from "node:readline";
import { bulk } from "../../verifier/lib/bulk.js";
import { verify } from "../../verifier/lib/bundle.js";

const [folder, key, inBulk, policy = null] = process.argv.slice(2);
const files = new Map();
const walk = (inner) => {
  for (const name of readdirSync(inner)) {
    const path = join(inner, name);
    if (statSync(path).isDirectory()) walk(path);
    else files.set(relative(folder, path).split(sep).join("/"), new Uint8Array(readFileSync(path)));
  }
};
walk(folder);

for await (const line of createInterface({ input: process.stdin })) {
  const { path, data } = JSON.parse(line);
  const changed = path === null ? files : new Map(files).set(path, new Uint8Array(Buffer.from(data, "base64")));
  const read = async (name) => changed.get(name)?.slice() ?? null;
  const stream = async function* (name) {
    yield changed.get(name).slice();
  };
  const report = await verify({ files: { paths: [...changed.keys()], read, stream } }, { key, policy, bulk: inBulk === "bulk" ? () => bulk : null });
  console.log(JSON.stringify({ verified: report.verified, stage: report.fault?.stage ?? report.fault?.code ?? null, what: report.fault?.message ?? report.unsupported ?? null }));
}
