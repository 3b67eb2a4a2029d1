// Compiles the contracts. What ships goes where the first argument says, a JSON file each: ABI, bytecode, and where in the code
// the values are that are only known when it is deployed. The contracts of the tests go where the second argument says.
//
//   node build.mjs SHIPPED [TESTED]     write them
//
// For other programs, in the compiler's standard JSON:
//
//   node build.mjs --input              print what the compiler is given
//   node build.mjs --compile FILE       print what it makes of a file

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const SHIPPED = ["ScoringOracle", "BountyRound"];
const REMAPPINGS = ["@openzeppelin/=node_modules/@openzeppelin/"];
const SETTINGS = {
  optimizer: { enabled: true, runs: 200 },
  viaIR: true,
  evmVersion: "cancun",
  metadata: { bytecodeHash: "none", appendCBOR: false },
};
const OUTPUT = ["abi", "evm.bytecode.object", "evm.deployedBytecode.object", "evm.deployedBytecode.immutableReferences"];

// Only what is imported, so that the bytecode depends on nothing else.
function sources(folders) {
  const found = {};
  const take = (path) => {
    if (found[path]) return;
    const content = readFileSync(join(HERE, path), "utf8");
    found[path] = { content };
    for (const [, wanted] of content.matchAll(/^import\s[^"']*["']([^"']+)["'];/gm)) {
      take(wanted.startsWith(".") ? join(dirname(path), wanted) : join("node_modules", wanted));
    }
  };
  for (const folder of folders) {
    for (const file of readdirSync(join(HERE, folder)).sort()) {
      if (file.endsWith(".sol")) take(join(folder, file));
    }
  }
  return Object.fromEntries(Object.entries(found).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function input(folders) {
  const settings = { ...SETTINGS, remappings: REMAPPINGS, outputSelection: { "*": { "*": OUTPUT } } };
  return { language: "Solidity", sources: sources(folders), settings };
}

async function compiled(folders) {
  const { default: solc } = await import("solc");
  const said = JSON.parse(solc.compile(JSON.stringify(input(folders))));
  const wrong = (said.errors ?? []).filter((one) => one.severity !== "info");
  if (wrong.length > 0) {
    process.stderr.write(wrong.map((one) => one.formattedMessage).join("\n"));
    process.exit(1);
  }
  const found = {};
  for (const [file, contracts] of Object.entries(said.contracts)) {
    if (!folders.some((folder) => file.startsWith(`${folder}/`))) continue;
    for (const [name, one] of Object.entries(contracts)) {
      found[name] = {
        contract: name,
        compiler: solc.version(),
        settings: SETTINGS,
        abi: one.abi,
        bytecode: `0x${one.evm.bytecode.object}`,
        deployed: `0x${one.evm.deployedBytecode.object}`,
        immutables: Object.values(one.evm.deployedBytecode.immutableReferences ?? {}).flat(),
      };
    }
  }
  return found;
}

function write(folder, found) {
  mkdirSync(folder, { recursive: true });
  for (const [name, one] of Object.entries(found)) {
    const lines = Object.entries(one).map(([key, value]) => {
      const inner = key === "abi" ? `[\n${value.map((each) => `    ${JSON.stringify(each)}`).join(",\n")}\n  ]` : JSON.stringify(value);
      return `  ${JSON.stringify(key)}: ${inner}`;
    });
    writeFileSync(join(folder, `${name}.json`), `{\n${lines.join(",\n")}\n}\n`);
  }
}

const [shipped, tested] = process.argv.slice(2);
if (shipped === "--input") {
  console.log(JSON.stringify(input(["src"])));
} else if (shipped === "--compile") {
  const { default: solc } = await import("solc");
  process.stdout.write(solc.compile(readFileSync(tested, "utf8")));
} else {
  const found = await compiled(["src"]);
  write(shipped, Object.fromEntries(SHIPPED.map((name) => [name, found[name]])));
  if (tested) write(tested, await compiled(["src", "test"]));
}
