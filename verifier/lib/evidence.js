// Evidence record by record, for every kind: what each receipt counts, who signed it, what bears on a settlement, and what results rest on.
// docs/formats.md, "A bundle". Many records of kind tests go another way, with the same answers: bulk.js.

import { canonical, isObject } from "./json.js";
import { refuse, Refused } from "./errors.js";
import { toHex, utf8 } from "./bytes.js";
import { byUtf8 } from "./exact.js";
import { jsonLines, LIMITS, readText } from "./bundle.js";
import { openBatches } from "./batches.js";
import { leafHashes, many, rootOf, rootOfLeaves, rootText } from "./merkle.js";
import { evidenceEntry, staged } from "./receipts.js";
import { aboutParticipants, readRow } from "./records.js";
import { KINDS, loadKinds } from "./score.js";
import { owners, settle } from "./settle.js";
import { firstAccepted, standing, votesOf } from "./standing.js";

const at = (stage) => (what, detail = {}) => refuse(what, { code: stage, stage, ...detail });

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

/** SHA-256 of each of many texts that are not empty, one after the other. */
function digests(texts) {
  const found = new Uint8Array(texts.length * 32);
  const data = utf8(texts.join(""));
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const characters = texts.reduce((total, text) => total + text.length, 0);
  const sizeOf = characters === data.length ? (text) => text.length : (text) => utf8(text).length;
  let at = 0;
  texts.forEach((text, i) => {
    const size = sizeOf(text);
    many.add(data, view, at, size, data[at + size - 1], found, i * 32);
    at += size;
  });
  many.flush();
  return found;
}
/** That a statement is of these record digests (in bytes, in any order) and submissions. */
export function checkRoot({ statement: { subject }, count, root }, digests, submissions, code) {
  const distinct = new Map(digests.map((digest) => [toHex(digest), digest]));
  if (distinct.size !== count) refuse(`the statement counts ${count} records`, { code, expected: count, found: distinct.size });
  const found = rootText(rootOf([...distinct.keys()].sort().map((hex) => distinct.get(hex))));
  if (found !== root) refuse("the root is of other records", { code, expected: root, found });
  const names = [...new Set(submissions)].sort(byUtf8);
  if (names.length !== subject.length || names.some((name, i) => subject[i].name !== name)) refuse("the subjects are not the submissions of the records", { code });
}

/** That every record is in a batch that its validator signed for this log. Gives, for each record, the task sets of its batches. */
export async function checkBatches(batches, all, of, progress = () => {}) {
  const wrong = at("signatures");
  const bySeq = new Map(all.map((one) => [one.seq, one]));
  const signed = new Map();
  const validators = new Set();
  let done = 0;
  for await (const { batch, rows, name, changed } of openBatches(batches, (seq) => bySeq.get(seq), of)) {
    validators.add(batch.validator);
    for (const { record } of rows)
      if (record.validator !== batch.validator || record.kind !== batch.kind || record.epoch !== batch.epoch)
        wrong(`${name}: a record of ${record.validator} in epoch ${record.epoch} is not this batch's`);
    try {
      checkRoot(batch, rows.map(({ digest }) => digest), rows.map(({ record }) => record.submission), "signatures");
    } catch (error) {
      if (error instanceof Refused) Object.assign(error, { stage: "signatures", message: `${changed(rows[0].record.participant)} (${error.message})` });
      throw error;
    }
    const alone = [batch.task_set]; // most records are in one batch, and share its list
    for (const { seq } of rows) signed.set(seq, signed.has(seq) ? [...signed.get(seq), batch.task_set] : alone);
    progress(++done, batches.length);
  }
  for (const { seq, record } of all) if (!signed.has(seq)) wrong(`the record with seq ${seq} by ${record.validator} is in no batch`);
  return { signed, validators, batches: batches.length };
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

/** Participant → the records that its result rests on: of one key only the first accepted. `first`: those, where they are known already. */
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

/** The records behind results, each with its digest. */
export const withDigests = (own) => new Map([...own].map(([participant, rows]) => [participant, rows.map(({ record, digest }) => ({ record, digest: rootText(digest) }))]));

/** As `bulk` in bulk.js: counts, batches, the settlement, and what results rest on. */
export async function oneByOne(files, paths, chain, inputs, progress) {
  const rows = new Map();
  await loadKinds([inputs?.scheme?.score?.kind]);
  for (const [epoch, path] of paths) {
    const text = await readText(files, path, LIMITS.evidence, "evidence");
    await loadKinds(KINDS.filter((kind) => text.includes(`"${kind}"`)));
    rows.set(epoch, jsonLines(text, path, "evidence"));
  }
  progress("evidence", 0);
  const all = checkEvidence(chain, rows);
  return {
    count: all.length,
    checkBatches: (batches, of) => checkBatches(batches, all, of, (done, total) => progress("signatures", done / total)),
    settle(document, previous, { epoch, task_set }, { signed }) {
      const own = bearing(document, all, signed, task_set);
      const records = own.map(({ record }) => record);
      const whose = owners(document.scheme.score.kind, document.participants).of;
      const context = { document, epoch, records, previous, whose };
      const counting = staged("settlement", () => standing(context));
      context.votes = staged("settlement", () => votesOf(context, counting));
      const computed = staged("settlement", () => settle(context, context.votes)).settlement;
      const rests = behind(document, computed, own, counting);
      context.behind = () => withDigests(rests);
      return { computed, context, rests: () => restsOf(rests) };
    },
  };
}
