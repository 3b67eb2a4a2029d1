// Where the verifier's quick ways differ from the exact ones: texts of stdin (a JSON list), read both ways, and numbers written both ways.

import { readFileSync } from "node:fs";
import { decimal, nanosOf } from "../../verifier/lib/exact.js";
import { canonical, parse, parseWritten } from "../../verifier/lib/json.js";

const said = (read, text) => {
  try {
    return canonical(read(text));
  } catch (error) {
    return `refused: ${error.code ?? error}`;
  }
};
const texts = JSON.parse(readFileSync(0, "utf8"));

function written(nanos) {
  const part = (nanos % 10n ** 9n).toString().padStart(9, "0").replace(/0+$/, "");
  return `${nanos / 10n ** 9n}${part && "."}${part}`;
}
const E9 = 10n ** 9n;
const numbers = [0n, 1n, 10n, E9 - 1n, E9, E9 + 1n, 2n ** 53n - 1n, 2n ** 53n, 9000000n * E9 - 1n, 8999999999999999n, 10n ** 17n + 5n];
for (let i = 0n; i < 3000n; i++) numbers.push((i * 2654435761n * 40503n) % 2n ** 54n);

console.log(JSON.stringify({
  texts: texts.filter((text) => said(parse, text) !== said(parseWritten, text)),
  numbers: numbers.filter((nanos) => decimal(nanos) !== written(nanos) || nanosOf(written(nanos)) !== nanos).map(String),
}));
