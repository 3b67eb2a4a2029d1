// An epoch as a whole: that its receipt follows from evidence, batches, inputs and the settlement before. docs/verify.md, docs/formats.md, "A bundle".

import { digestOfJson, canonical, isObject } from "./json.js";
import { refuse } from "./errors.js";
import { equal } from "./bytes.js";
import { checkResets, readInputs, readTasks, taskSetDigest } from "./inputs.js";
import { openReceipt, results, staged } from "./receipts.js";
import { rootOf } from "./merkle.js";

/** What reads and compares documents that were written; loaded where it is needed. */
const written = () => import("./document.js");

const at = (stage) => (what, detail = {}) => refuse(what, { code: stage, stage, ...detail });

/** Receipts from the first one on, each naming the one before. `receipts`: [epoch, value] in ascending epoch. */
export async function checkChain(receipts, key) {
  const opened = [];
  const newest = receipts.at(-1);
  for (const [epoch, value] of [newest, ...receipts.slice(0, -1)]) opened.push([epoch, await openReceipt(value, key)]);
  opened.push(opened.shift());
  const chain = opened.map(([, receipt]) => receipt);
  const wrong = at("chain");
  chain.forEach((receipt, i) => {
    const { epoch, previous, competition } = receipt.predicate;
    if (epoch !== opened[i][0]) wrong(`receipt of epoch ${opened[i][0]}: it is of epoch ${epoch}`, { where: `receipts/epoch-${opened[i][0]}.receipt`, expected: opened[i][0], found: epoch });
    const before = chain[i - 1];
    const expected = before ? { epoch: before.predicate.epoch, receipt: before.digest } : null;
    if (before && before.predicate.epoch >= epoch) wrong(`the receipt of epoch ${epoch} comes after that of ${before.predicate.epoch}`);
    if (canonical(previous) !== canonical(expected)) wrong(`receipt of epoch ${epoch}: it names another receipt before it`, { expected: canonical(expected), found: canonical(previous) });
    if (before && competition !== before.predicate.competition) wrong(`receipt of epoch ${epoch}: it is of another competition`);
    if (receipt.index !== BigInt(i)) wrong(`receipt of epoch ${epoch}: it is entry ${receipt.index} of the log, and ${i} receipts are before it`, { expected: i, found: receipt.index.toString() });
    if (receipt.checkpoint.size !== receipt.index + 1n) wrong(`receipt of epoch ${epoch}: its proof is not for the log with it as the last entry, but with ${receipt.checkpoint.size} entries`);
    if (!equal(receipt.checkpoint.root, rootOf(chain.slice(0, i + 1).map((one) => one.entry))))
      wrong(`receipt of epoch ${epoch}: its checkpoint is of another history`);
  });
  return chain;
}

/** The settlement from which decay continues is the one of the receipt before. */
export async function checkBefore(chain, previous) {
  const wrong = at("chain");
  const before = chain.at(-2);
  if (!before) {
    if (previous !== null) wrong("previous.json: nothing is before the first receipt");
    return null;
  }
  if (previous === null) wrong("previous.json is missing: the settlement before");
  const { readSettlement } = await written();
  const found = staged("chain", () => readSettlement(previous, "previous.json"));
  if (found.digest !== before.predicate.settlement) wrong("previous.json: it is not the settlement of the receipt before", { expected: before.predicate.settlement, found: found.digest });
  return found;
}

/** The inputs, in their one spelling, are those of the receipt. */
export async function checkInputs(value, { predicate }) {
  const wrong = at("inputs");
  const document = staged("inputs", () => (isObject(value) ? readInputs(value) : refuse("inputs.json: is not an object")));
  const digest = digestOfJson(value);
  if (canonical(document) !== canonical(value)) wrong("inputs.json: it is not in its canonical form", (await written()).difference(document, value) ?? {});
  if (digest !== predicate.inputs) wrong("inputs.json: the receipt names other inputs", { where: "inputs.json", expected: predicate.inputs, found: digest });
  const scheme = digestOfJson(document.scheme);
  if (scheme !== predicate.scheme) wrong("inputs.json: the receipt names another scheme", { expected: predicate.scheme, found: scheme });
  if (document.scheme.scheme.name !== predicate.competition) wrong("inputs.json: the scheme is of another competition", { expected: predicate.competition, found: document.scheme.scheme.name });
  const taskSet = document.scheme.score.kind === "tests" ? taskSetDigest(readTasks(document.tasks)) : null;
  if (taskSet !== predicate.task_set) wrong("inputs.json: the receipt names another task set", { expected: predicate.task_set, found: taskSet });
  if (canonical(document.registry ?? null) !== canonical(predicate.registry ?? null)) wrong("inputs.json: the receipt names another registry");
  staged("inputs", () => checkResets(document, predicate.epoch));
  return document;
}

/** Computes the settlement again, and compares every field. */
export async function checkSettlement(value, computed, { predicate }) {
  const wrong = at("settlement");
  const differs = value === computed ? null : (await written()).difference(computed, value);
  if (differs) wrong(`settlement.json: ${differs.whose ? differs.whose + ": " : ""}${differs.where} differs`, differs);
  if (computed.digest !== predicate.settlement) wrong("the receipt is of another settlement", { expected: computed.digest, found: predicate.settlement });
}

export function checkResults(settlement, rests, { predicate, version }) {
  const wrong = at("results");
  const { root, count } = results(settlement, version === 1 ? null : rests);
  if (count !== predicate.results.count) wrong(`the receipt counts ${predicate.results.count} results`, { expected: predicate.results.count, found: count });
  if (root !== predicate.results.root) wrong("the results are not those that the receipt binds", { expected: root, found: predicate.results.root });
}
