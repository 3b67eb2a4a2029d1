// An epoch as a whole: that its receipt follows from evidence, batches, inputs and the settlement before. docs/verify.md, docs/formats.md, "A bundle".

import { digestOfJson, canonical, isObject } from "./json.js";
import { refuse, Refused } from "./errors.js";
import { equal } from "./bytes.js";
import { checkResets, firstAccepted, readInputs, readTasks, taskSetDigest } from "./inputs.js";
import { aboutParticipants, readRow } from "./records.js";
import { checkRoot, openBatch } from "./batches.js";
import { difference, readSettlement } from "./document.js";
import { evidenceEntry, openReceipt, results, staged } from "./receipts.js";
import { digests, leafHashes, rootOf, rootOfLeaves, rootText } from "./merkle.js";

export const equalText = (a, b) => a.length === b.length && a.every((text, i) => text === b[i]);

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
export function checkBefore(chain, previous) {
  const wrong = at("chain");
  const before = chain.at(-2);
  if (!before) {
    if (previous !== null) wrong("previous.json: nothing is before the first receipt");
    return null;
  }
  if (previous === null) wrong("previous.json is missing: the settlement before");
  const found = staged("chain", () => readSettlement(previous, "previous.json"));
  if (found.digest !== before.predicate.settlement) wrong("previous.json: it is not the settlement of the receipt before", { expected: before.predicate.settlement, found: found.digest });
  return found;
}

/** Whether a row is its record in canonical form, beside its seq. */
function isSame(record, row) {
  const fields = Object.keys(row);
  const same = (field) => record[field] === row[field] || (typeof row[field] === "object" && field in record && canonical(record[field]) === canonical(row[field]));
  return fields.length === Object.keys(record).length + 1 && fields.every((field) => field === "seq" || same(field));
}

/** So many records wait for their hashes, which are made together. */
const TOGETHER = 512;

/** The records of each receipt, in order of acceptance: {seq, record, digest, leaf}. `records`: epoch → rows, each asked for once. */
export function checkEvidence(chain, records) {
  const wrong = at("evidence");
  const seen = new Set();
  const all = [];
  for (const epoch of records.keys()) if (!chain.some((receipt) => receipt.predicate.epoch === epoch)) wrong(`evidence of epoch ${epoch} has no receipt`);
  chain.forEach(({ predicate }, i) => {
    const file = `evidence/epoch-${predicate.epoch}.jsonl`;
    const rows = records.get(predicate.epoch) ?? wrong(`${file} is missing`, { where: file });
    const from = i ? chain[i - 1].predicate.epoch : -1;
    const own = [];
    let [line, last, texts] = [0, -1, []];
    for (const row of rows) {
      const where = `${file}, line ${++line}`;
      if (!isObject(row) || !Number.isSafeInteger(row.seq) || row.seq < 0) wrong(`${where}: it has no seq`, { where });
      const record = staged("evidence", () => readRow(row));
      const text = canonical(record);
      if (!isSame(record, row)) wrong(`${where}: the record is not in its canonical form`, { where });
      if (seen.has(row.seq) || last >= row.seq) wrong(`${where}: seq ${row.seq} is not above the one before, or stands twice`, { where });
      if (record.epoch <= from || record.epoch > predicate.epoch) wrong(`${where}: a record of epoch ${record.epoch} belongs to another receipt`, { where });
      seen.add((last = row.seq));
      record.seq = row.seq;
      own.push({ seq: row.seq, record, digest: null, leaf: null });
      texts.push(text);
      if (texts.length === TOGETHER) texts = hashed(own, texts);
    }
    hashed(own, texts);
    const { root, count } = rootOfLeafs(own);
    if (count !== predicate.evidence.count) wrong(`${file}: the receipt counts ${predicate.evidence.count} records`, { where: file, expected: predicate.evidence.count, found: count });
    if (root !== predicate.evidence.root) wrong(`${file}: a record, a seq or the order is not what the receipt binds`, { where: file, expected: predicate.evidence.root, found: root });
    for (const one of own) all.push(one);
  });
  return all;
}

/** Gives the last records their digests and the hashes of their leaves; texts: theirs. Nothing waits then. */
function hashed(own, texts) {
  const hashes = digests(texts);
  const last = own.slice(own.length - texts.length);
  last.forEach((one, i) => (one.digest = hashes.subarray(i * 32, i * 32 + 32)));
  const leaves = leafHashes(last.map(({ seq, digest }) => evidenceEntry(seq, digest)));
  last.forEach((one, i) => (one.leaf = leaves.subarray(i * 32, i * 32 + 32)));
  return [];
}

/** The records of a batch by its members: ranges of seq that ascend. */
export function membersOf(members, bySeq, name, wrong) {
  const own = [];
  let last = -1;
  if (!Array.isArray(members) || members.length === 0) wrong(`${name}: it has no members`);
  for (const range of members) {
    const right = Array.isArray(range) && range.length === 2 && range.every((end) => Number.isSafeInteger(end)) && range[0] > last && range[0] <= range[1];
    if (!right) wrong(`${name}: members are ranges [first, last] that ascend`);
    if (range[1] - range[0] >= 100000) wrong(`${name}: more members than a batch may have`);
    for (let seq = range[0]; seq <= range[1]; seq++) own.push(bySeq.get(seq) ?? wrong(`${name}: there is no record with seq ${seq}`));
    last = range[1];
  }
  return own;
}

export const short = (members) => members.map(([first, last]) => (first === last ? String(first) : `${first} … ${last}`)).join(", ");

/** Batches in their order, with the statement that each validator signed: some signatures at a time, so that they are checked beside this thread. */
export async function* opened(batches, wrong) {
  const opening = [];
  const open = (row) => openBatch(isObject(row) ? row.envelope : null, "signatures").then((batch) => ({ batch }), (error) => ({ error }));
  for (const [i, row] of batches.entries()) {
    while (opening.length < Math.min(batches.length, i + 64)) opening.push(open(batches[opening.length]));
    const name = `batches.jsonl, line ${i + 1}`;
    if (!isObject(row) || Object.keys(row).sort().join() !== "envelope,members") wrong(`${name}: a batch is {"envelope", "members"}`);
    const { batch, error } = await opening[i];
    opening[i] = null;
    if (error) throw error;
    yield [i, row, batch, name];
  }
}

/** That every record is in a batch that its validator signed for this log. Gives, for each record, the task sets of its batches. */
export async function checkBatches(batches, all, { origin, competition }, progress = () => {}) {
  const wrong = at("signatures");
  const bySeq = new Map(all.map((one) => [one.seq, one]));
  const signed = new Map();
  const digests = new Set();
  const validators = new Set();
  for await (const [i, row, batch, name] of opened(batches, wrong)) {
    if (digests.has(batch.digest)) wrong(`${name}: the batch ${batch.digest} stands twice`);
    digests.add(batch.digest);
    validators.add(batch.validator);
    if (batch.origin !== undefined && batch.origin !== origin) wrong(`${name}: it was signed for another log`, { expected: origin, found: batch.origin });
    if (batch.competition !== competition) wrong(`${name}: it is of another competition`, { expected: competition, found: batch.competition });
    const own = membersOf(row.members, bySeq, name, wrong);
    for (const { record } of own)
      if (record.validator !== batch.validator || record.kind !== batch.kind || record.epoch !== batch.epoch)
        wrong(`${name}: a record of ${record.validator} in epoch ${record.epoch} is not this batch's`);
    const changed = `${own[0].record.participant}: at least one record with seq ${short(row.members)} was changed after ${batch.validator} signed it`;
    try {
      checkRoot(batch, own.map(({ digest }) => digest), own.map(({ record }) => record.submission), "signatures");
    } catch (error) {
      if (error instanceof Refused) Object.assign(error, { stage: "signatures", message: `${name}: ${changed} (${error.message})` });
      throw error;
    }
    const alone = [batch.task_set]; // most records are in one batch, and share its list
    for (const { seq } of own) signed.set(seq, signed.has(seq) ? [...signed.get(seq), batch.task_set] : alone);
    progress(i + 1, batches.length);
  }
  for (const { seq, record } of all) if (!signed.has(seq)) wrong(`the record with seq ${seq} by ${record.validator} is in no batch`);
  return { signed, validators, batches: digests.size };
}

/** The inputs, in their one spelling, are those of the receipt. */
export function checkInputs(value, { predicate }) {
  const wrong = at("inputs");
  const document = staged("inputs", () => (isObject(value) ? readInputs(value) : refuse("inputs.json: is not an object")));
  const digest = digestOfJson(value);
  if (canonical(document) !== canonical(value)) wrong("inputs.json: it is not in its canonical form", difference(document, value) ?? {});
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

/** The records that bear on a settlement, in order of seq. docs/formats.md, "A bundle". */
export function bearing(document, all, signed, taskSet) {
  const kind = document.scheme.score.kind;
  const validators = new Set(document.validators.map((row) => row.key));
  const participants = new Set(document.participants.map((row) => row.key));
  const byNothing = ({ record }) => aboutParticipants(kind) || record.submission === "";
  return all
    .filter((one) => one.record.kind === kind && validators.has(one.record.validator) && (!byNothing(one) || participants.has(one.record.participant)))
    .filter((one) => taskSet === null || signed.get(one.seq).some((own) => own === null || own === taskSet))
    .sort((a, b) => a.seq - b.seq);
}

/** Participant → the records that its result rests on: of one key only the first accepted. `first`: those, where `settle` has found them already. */
export function behind(document, settlement, records, first = null) {
  const { epoch } = settlement;
  const age = document.scheme.consensus.max_age_epochs;
  const kind = document.scheme.score.kind;
  const young = records.filter(({ record }) => record.epoch <= epoch && (age === undefined || record.epoch >= epoch - age));
  const counts = new Set((first ?? firstAccepted(young.map(({ seq, record }) => ({ ...record, seq })))).map(({ seq }) => seq));
  const holders = new Map(settlement.agreed.filter((row) => row.status !== "duplicate").map((row) => [row.submission, row.participant]));
  const own = new Map(settlement.agreed.map((row) => [row.participant, []]));
  const empty = new Set(settlement.agreed.filter((row) => row.submission === "").map((row) => row.participant));
  const duplicates = new Set(settlement.agreed.filter((row) => row.status === "duplicate").map((row) => row.participant));
  for (const one of young) {
    if (!counts.has(one.seq)) continue;
    const { submission, participant } = one.record;
    const whose = aboutParticipants(kind) || (submission === "" && empty.has(participant)) ? participant : submission === "" ? undefined : holders.get(submission);
    if (!duplicates.has(whose)) own.get(whose)?.push(one);
  }
  return own;
}

/** Participant → root and count of the records that its result rests on. */
export const restsOf = (own) => new Map([...own].map(([participant, rows]) => [participant, rootOfLeafs(rows)]));

/** Root and count of an evidence tree over records whose leaf hashes are there. */
const rootOfLeafs = (rows) => ({ root: rootText(rootOfLeaves(rows.map(({ leaf }) => leaf))), count: rows.length });

/** Computes the settlement again, and compares every field. */
export function checkSettlement(value, computed, { predicate }) {
  const wrong = at("settlement");
  const differs = value === computed ? null : difference(computed, value);
  if (differs) wrong(`settlement.json: ${differs.whose ? differs.whose + ": " : ""}${differs.where} differs`, differs);
  if (computed.digest !== predicate.settlement) wrong("the receipt is of another settlement", { expected: computed.digest, found: predicate.settlement });
}

export function checkResults(settlement, rests, { predicate, version }) {
  const wrong = at("results");
  const { root, count } = results(settlement, version === 1 ? null : rests);
  if (count !== predicate.results.count) wrong(`the receipt counts ${predicate.results.count} results`, { expected: predicate.results.count, found: count });
  if (root !== predicate.results.root) wrong("the results are not those that the receipt binds", { expected: root, found: predicate.results.root });
}

/** The records behind results, each with its digest. */
export const withDigests = (own) => new Map([...own].map(([participant, rows]) => [participant, rows.map(({ record, digest }) => ({ record, digest: rootText(digest) }))]));
