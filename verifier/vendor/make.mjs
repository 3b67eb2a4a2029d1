// Makes vendor/sr25519.js, bls12-381.js, ml-dsa-44.js, zstd.js and toml.js from the packages that package-lock.json pins by their digests.
//
//   npm ci --ignore-scripts --prefix verifier/vendor && node verifier/vendor/make.mjs           write them
//   npm ci --ignore-scripts --prefix verifier/vendor && node verifier/vendor/make.mjs --check   say whether they are these
//
// The verifier itself needs none of this: it runs from the files as they are.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const MODULES = join(HERE, "node_modules");
const PARTS = {
  "sr25519.js": {
    from: ["@scure/sr25519", "@noble/curves", "@noble/hashes"],
    source: `export { verify as verifySr25519 } from "@scure/sr25519";
export { ed25519 } from "@noble/curves/ed25519.js";
export { blake2b } from "@noble/hashes/blake2.js";`,
  },
  "zstd.js": { from: ["fzstd"], by: "Arjun Barrett", source: `export { decompress } from "fzstd";` },
  "toml.js": { from: ["smol-toml"], by: "Squirrel Chat et al.", license: "BSD 3-Clause License", source: `export { parse, TomlDate } from "smol-toml";` },
  "bls12-381.js": { from: ["@noble/curves", "@noble/hashes"], source: `export { bls12_381 } from "@noble/curves/bls12-381.js";` },
  "ml-dsa-44.js": { from: ["@noble/post-quantum", "@noble/curves", "@noble/hashes"], source: `export { ml_dsa44 } from "@noble/post-quantum/ml-dsa.js";` },
};

if (!existsSync(MODULES)) {
  console.error("the packages are not here; first: npm ci --ignore-scripts --prefix verifier/vendor");
  process.exit(2);
}
const { buildSync } = await import("esbuild");

/** The version that the first package of `from` uses: its own copy, where it has one. */
function version(name, from) {
  const own = join(MODULES, from[0], "node_modules", name, "package.json");
  return JSON.parse(readFileSync(existsSync(own) ? own : join(MODULES, name, "package.json"), "utf8")).version;
}

function made({ from, source, by = "Paul Miller", license = "MIT License" }) {
  const result = buildSync({
    stdin: { contents: source, resolveDir: HERE }, bundle: true, format: "esm", platform: "browser", target: "es2022", minify: true, legalComments: "none", charset: "utf8", write: false,
  });
  return `/* ${from.map((name) => `${name} ${version(name, from)}`).join(", ")}; ${license}, (c) ${by}: vendor/LICENSE. Made by vendor/make.mjs. */\n${result.outputFiles[0].text}`;
}

let wrong = 0;
for (const [name, part] of Object.entries(PARTS)) {
  const text = made(part);
  if (!process.argv.includes("--check")) {
    writeFileSync(join(HERE, name), text);
    console.log(`${name}: ${text.length} bytes`);
  } else if (!existsSync(join(HERE, name)) || readFileSync(join(HERE, name), "utf8") !== text) {
    console.error(`${name} is not what vendor/make.mjs makes of these packages`);
    wrong = 1;
  } else console.log(`${name} is as it should be`);
}
process.exit(wrong);
