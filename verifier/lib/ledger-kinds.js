// The kinds of conformance cases that are about what is signed and kept (docs/conformance.md).

import * as read from "./fields.js";
import { fromHex, toHex } from "./bytes.js";
import { refuse, Refused, under, Unsupported } from "./errors.js";
import { digestOfJson, isObject, parse } from "./json.js";
import { openEnvelope, signers } from "./dsse.js";
import { keyId, readKey, refuseSmallOrder } from "./keys.js";
import { checkCheckpoint, checkConsistency, checkFork, checkSeen, consistencyProof, inclusionProof } from "./history.js";
import { checkInclusion, leafHash, rootOfLeaves } from "./merkle.js";
import { checkLogProof, checkTiles, openCheckpoint, readVkey, tilePath } from "./notes.js";
import { evidenceRoot, openProof, readSeqs } from "./proof.js";
import { openReceipt, results, staged } from "./receipts.js";
import { checkWitnesses, readPolicy } from "./witnesses.js";
import { checkSigner, openStatement } from "./batches.js";
import { readCase } from "./case.js";
import { readTasks } from "./inputs.js";
import { readRecord, recordDigest, recordText } from "./records.js";
import { contentOf, keyOf, settleCase } from "./standing.js";
import { readPrevious, readSettlement } from "./document.js";
import { checkBefore, checkChain, checkInputs, checkResults, checkSettlement } from "./epoch.js";
import { bearing, behind, checkBatches, checkEvidence, checkRoot, restsOf, withDigests } from "./evidence.js";
import { checkAudit, openAudit, outcomeOf, planOf, seedOf, trialsOf, wrongOf } from "./audit.js";
import { namedKey } from "./bundle.js";
import { checkSplit } from "./subnet.js";

const { object, list, or, anything } = read;
const text = (value, path) => (typeof value === "string" ? value : refuse(`${path}: is not a text`));
const hex = read.pattern(/^([0-9a-f]{2})*$/, "hex");
const hash = (value, path) => fromHex(read.pattern(/^[0-9a-f]{64}$/, "a hash in hex")(value, path));
const size = (value, path) => read.integer(0, Infinity)(value, path);
const nothing = (reader) => or(null, (value, path) => (value === null ? null : reader(value, path)));
const fields = (shape, input) => object(shape, { byField: true })(input, "");
const proof = list(hash, { most: 100 });
const root64 = (value, path) => fromHex(read.pattern(/^[0-9a-f]{64}$/, "a root in hex")(value, path));
const base64 = (value, path) => {
  const bytes = typeof value === "string" && /^[A-Za-z0-9+/]{43}=$/.test(value) ? Uint8Array.from(atob(value), (letter) => letter.charCodeAt(0)) : null;
  return bytes ?? refuse(`${path}: is not 32 bytes in base64`);
};
const TILE_PATH = /^tile\/(?:entries|[0-9]|[1-5][0-9]|6[0-3])\/(?:x[0-9]{3}\/)*[0-9]{3}(?:\.p\/(?:[1-9][0-9]{0,2}))?$/;
const vkeys = (keys) => keys.map((key) => readVkey(key));

const KINDS = {
  "merkle-tree"(input) {
    const found = fields({ entries: list(hex), index: nothing(size), old: nothing(size) }, input);
    const leaves = found.entries.map((entry) => leafHash(fromHex(entry)));
    const result = { root: toHex(rootOfLeaves(leaves)) };
    if (found.index !== null) {
      if (found.index >= leaves.length) refuse("there is no such entry");
      result.inclusion = inclusionProof(leaves, found.index).map(toHex);
    }
    if (found.old !== null) {
      if (found.old > leaves.length) refuse("the tree was larger");
      result.consistency = consistencyProof(leaves, found.old).map(toHex);
    }
    return result;
  },
  inclusion(input) {
    const found = fields({ root: hash, size, index: size, entry: hex, proof }, input);
    checkInclusion(leafHash(fromHex(found.entry)), found.index, found.size, found.proof, found.root);
    return { included: true };
  },
  consistency(input) {
    const found = fields({ old: size, old_root: hash, new: size, new_root: hash, proof }, input);
    checkConsistency(found.old, found.old_root, found.new, found.new_root, found.proof);
    return { consistent: true };
  },
  async checkpoint(input) {
    const found = fields({ note: text, keys: list(text) }, input);
    return checkpointText(await openCheckpoint(found.note, vkeys(found.keys)));
  },
  async witnessed(input) {
    const found = fields({ note: text, policy: text, key: text }, input);
    const policy = readPolicy(found.policy);
    const checkpoint = await openCheckpoint(found.note, [readVkey(found.key)]).catch(as("witnesses"));
    const times = await checkWitnesses(checkpoint, policy);
    return { ...checkpointText(checkpoint), witnesses: Object.fromEntries([...times].map(([name, time]) => [name, time.toString()])) };
  },
  async fork(input) {
    const { first, second } = await readFork(fields({ proof: text }, input).proof);
    return { origin: first.origin, first: first.size.toString(), second: second.size.toString() };
  },
  async "log-proof"(input) {
    const found = fields({ proof: text, entry: hex, keys: list(text) }, input);
    const { checkpoint, index } = await checkLogProof(found.proof, fromHex(found.entry), vkeys(found.keys));
    return { origin: checkpoint.origin, index: index.toString(), size: checkpoint.size.toString() };
  },
  async dsse(input) {
    const found = fields({ json: text, keys: list(text), threshold: or(1, read.integer(1, read.LARGEST)) }, input);
    const keys = [];
    for (const written of found.keys) {
      const key = (await readKey(written)) ?? refuse(`${written} is no public key`);
      refuseSmallOrder(key, written);
      if (!keys.some((known) => keyId(known) === keyId(key))) keys.push({ ...key, written });
    }
    const envelope = openEnvelope(parse(found.json, { code: "dsse" }));
    const signed = await signers(envelope, keys);
    if (signed.length < found.threshold) refuse(`${signed.length} of the keys signed, and ${found.threshold} are needed`, "dsse");
    return { payload: toHex(envelope.payload), signed_by: signed.map(keyId) };
  },
  "tile-path"(input) {
    const { level, index, width } = input;
    if (!Number.isSafeInteger(index) || index < 0) refuse("there is no such tile", "index");
    const levels = level === "entries" || (Number.isSafeInteger(level) && level >= 0 && level <= 63);
    if (!levels || !Number.isSafeInteger(width) || width < 1 || width > 256) refuse("there is no such tile");
    return { path: tilePath(level, index, width) };
  },
  async "tiled-log"(input) {
    const found = fields({ files: anything, checkpoint: text, key: text, seen: nothing(text) }, input);
    under("files", () => {
      if (!isObject(found.files)) refuse("files are an object");
      for (const [path, data] of Object.entries(found.files)) if (!TILE_PATH.test(path) || fromHex(data) === null) refuse(`${path} is no tile`);
    });
    const key = readVkey(found.key);
    const checkpoint = await openCheckpoint(found.checkpoint, [key]);
    const { entries, leaves } = checkTiles((path) => (path in found.files ? fromHex(found.files[path]) : null), checkpoint);
    if (found.seen !== null) checkSeen(await openCheckpoint(found.seen, [key]), checkpoint, leaves, "input");
    return { size: checkpoint.size.toString(), root: toHex(checkpoint.root), last: entries.length ? toHex(entries.at(-1)) : null };
  },
  async batch(input) {
    const found = fields({ text, key: nothing(text) }, input);
    const { digest, statement } = await readBatch(found.text, found.key);
    return { digest, statement };
  },
  "evidence-root"(input) {
    return evidenceRoot(readSeqs(fields({ records: list(anything) }, input).records));
  },
  inputs(input) {
    const { document } = readCase(fields({ case: anything }, input).case);
    return { document, digest: digestOfJson(document) };
  },
  "results-root"(input) {
    const rests = object({ root: read.digest, count: read.epoch });
    const found = fields({ settlement: anything, records: nothing(anything), participant: nothing(text) }, input);
    const settlement = readSettlement(found.settlement);
    const keys = settlement.agreed.map((row) => row.participant);
    const records = found.records && under("records", () => {
      if (!isObject(found.records) || Object.keys(found.records).length !== keys.length) refuse("records are those of each participant");
      return new Map(keys.map((key) => [key, key in found.records ? rests(found.records[key], key) : refuse(`records of ${key} are missing`)]));
    });
    const all = results(settlement, records);
    const result = { root: all.root, count: all.count };
    if (found.participant === null) return result;
    const index = all.rows.findIndex((row) => row.participant === found.participant);
    if (index < 0) refuse("there is no such participant", "participant");
    return { ...result, result: all.rows[index], index, inclusion: inclusionProof(all.leaves, index).map(toHex) };
  },
  async receipt(input) {
    const found = fields({ receipt: text, key: text, checkpoint: nothing(text), consistency: or([], proof) }, input);
    const receipt = await openReceipt(found.receipt, found.key);
    if (found.checkpoint !== null) await checkCheckpoint(receipt, found.checkpoint, found.consistency, found.key);
    const { competition, epoch, settlement } = receipt.predicate;
    return { competition, epoch, settlement, digest: receipt.digest, index: receipt.index.toString(), size: receipt.checkpoint.size.toString() };
  },
  async "emission-receipt"(input) {
    const found = fields({ receipt: text, key: text, competitions: nothing(list(anything)), subnet: nothing(anything) }, input);
    const signed = await checkSplit(found);
    const { subnet, epoch, split } = signed.predicate;
    return { subnet, epoch, split: split.digest, receipts: split.receipts, digest: signed.digest, index: signed.index.toString(), size: signed.checkpoint.size.toString() };
  },
  async proof(input) {
    const found = fields({ proof: text, key: text }, input);
    const { receipt, result, records } = await openProof(found.proof, found.key);
    const { competition, epoch, settlement } = receipt.predicate;
    return { competition, epoch, settlement, participant: result.participant, records: records.length };
  },
  async verify(input) {
    return await verifyEpoch(wholeEpoch(input));
  },
  audit(input) {
    const found = fields({ case: anything, receipt: read.digest, randomness: hash, seen: or([], list(seenRow)) }, input);
    const context = readCase(found.case);
    if (context.document.scheme.score.kind !== "tests") refuse("only trials, of kind tests, are audited", "case");
    const { settlement } = settleCase(context);
    const { scheme } = context.document;
    const tasks = readTasks(context.document.tasks).map(({ id }) => id);
    const plan = planOf(scheme, settlement, trialsOf({ scheme, tasks }, settlement, behindCase(context, settlement)));
    if (plan.claims.length === 0) refuse("nobody is paid, so there is nothing to confirm", "cannot-settle");
    const other = new Map(found.seen.map((row) => [placeOf(row), row.seen]));
    return under("input", () => outcomeOf(plan, seedOf(found.randomness, fromHex(found.receipt.slice(7))), (trial) => other.get(placeOf(trial)) ?? [trial.claimed]));
  },
  async "audit-receipt"(input) {
    const found = fields({ audit: text, auditor: nothing(text), epoch: anything, policy: nothing(text) }, input);
    const early = await openAudit(found.audit, found.auditor ?? under("audit", () => namedKey(found.audit, "audit")));
    const epoch = await openEpoch(wholeEpoch(found.epoch));
    const times = found.policy === null ? [] : [...(await checkWitnesses(epoch.receipt.checkpoint, under("witnesses", () => readPolicy(found.policy)))).values()];
    const witnessedAt = times.length ? times.reduce((a, b) => (a > b ? a : b)) : null;
    const { predicate, index, size: entries, digest } = await checkAudit(early, { ...epoch, witnessedAt });
    const wrong = [...wrongOf(predicate)].map(([validator, counts]) => ({ validator, ...counts }));
    const { competition, epoch: number, verdict } = predicate;
    return { competition, epoch: number, verdict, judged: predicate.judged.length, counted: predicate.trials.counted, validators: wrong, digest, index: index.toString(), size: entries.toString() };
  },
};

const LARGEST_ENVELOPE = 1 << 20;

/** A batch's file: the envelope's line, then each record's. */
async function readBatch(text, keyText = null) {
  if (typeof text !== "string" || text.length > 64 << 20) refuse("a batch is a text of at most 64 MiB");
  if (!text.endsWith("\n")) refuse("the last line does not end");
  const lines = text.slice(0, -1).split("\n");
  if (lines[0].length > LARGEST_ENVELOPE) refuse("an envelope has at most 1 MiB");
  const key = keyText === null ? null : ((await readKey(keyText)) ?? refuse(`${keyText} is no public key`, "key"));
  const batch = openStatement(parse(lines[0]), "batch");
  if (lines.length === 1) refuse("a batch has at least one record");
  const records = [];
  let last = "";
  for (const line of lines.slice(1)) {
    const record = readRecord(parse(line));
    if ("seq" in record || recordText(record) !== line) refuse("a record is not in its canonical form");
    if (record.kind !== batch.kind) refuse(`a record is of kind ${record.kind}`, "kind");
    if (record.epoch !== batch.epoch || record.validator !== batch.validator) refuse("a record is of another epoch or validator than the batch");
    const digest = recordDigest(record).slice(7);
    if (digest <= last) refuse("records are in ascending order of their digests, each once");
    last = digest;
    records.push({ record, digest });
  }
  checkRoot(batch, records.map(({ digest }) => fromHex(digest)), records.map(({ record }) => record.submission), "input");
  const contents = new Map();
  for (const { record } of records) {
    const known = contents.get(keyOf(record));
    if (known !== undefined && known !== contentOf(record)) refuse("two records of the batch contradict each other");
    contents.set(keyOf(record), contentOf(record));
  }
  await checkSigner(batch, "batch", key);
  return { digest: batch.digest, statement: batch.value, records: records.map(({ record }) => record) };
}

const wholeEpoch = (input) =>
  fields({ key: text, receipts: anything, inputs: anything, settlement: anything, previous: nothing(anything), records: anything, batches: list(anything) }, input);

const outcomes = list(read.oneOf("pass", "fail", "timeout"));
const seenRow = object({ participant: read.key, validator: read.key, task: read.task, trial: or(1, read.integer(1, read.BILLION)), seen: outcomes });
const placeOf = ({ participant, validator, task, trial }) => `${participant}\n${validator}\n${task}\n${trial}`;

/** Participant → the records of a case that its result rests on, each with its digest. */
function behindCase({ document, records }, settlement) {
  const own = records.map((record, i) => ({ seq: record.seq ?? i, record, digest: fromHex(recordDigest(record).slice(7)) }));
  const known = new Set(document.validators.map((row) => row.key));
  return withDigests(behind(document, settlement, own.filter(({ record }) => known.has(record.validator))));
}

const as = (code) => (error) => {
  if (error instanceof Refused) error.code = code;
  throw error;
};

const checkpointText = ({ origin, size: entries, root }) => ({ origin, size: entries.toString(), root: toHex(root) });

const forkFields = object({ schema: read.oneOf("assay.fork/1"), key: text, first: text, second: text, root: nothing(root64), hashes: list(base64, { most: 100 }) });

const epochsOf = (value, stage) => {
  if (!isObject(value)) refuse(`${stage}: is not an object`, { code: stage });
  return Object.entries(value).map(([epoch, rest]) => [Number(epoch), rest]).sort((a, b) => a[0] - b[0]);
};

/** An epoch of a case of kind verify: what it computes, for an audit of it. */
async function openEpoch({ key, receipts, inputs, settlement, previous, records, batches }) {
  const chain = await checkChain(epochsOf(receipts, "receipt"), key);
  const receipt = chain.at(-1);
  const before = await checkBefore(chain, previous);
  const all = checkEvidence(chain, new Map(epochsOf(records, "evidence")));
  const { predicate, checkpoint } = receipt;
  const signed = await checkBatches(batches, all, { origin: checkpoint.origin, competition: predicate.competition });
  const document = await checkInputs(inputs, receipt);
  const records_ = bearing(document, all, signed.signed, predicate.task_set);
  const context = { document, epoch: predicate.epoch, records: records_.map(({ record }) => record), previous: staged("settlement", () => readPrevious(before, document, predicate.epoch)) };
  const computed = staged("settlement", () => settleCase(context)).settlement;
  await checkSettlement(settlement, computed, receipt);
  const rows = behind(document, computed, records_);
  checkResults(computed, restsOf(rows), receipt);
  return { chain, receipt, document, settlement: computed, behind: () => withDigests(rows), records: all.length, batches: signed.batches };
}

/** A case of kind verify. */
async function verifyEpoch(given) {
  const { chain, receipt: { predicate }, records, batches } = await openEpoch(given);
  return { competition: predicate.competition, epoch: predicate.epoch, settlement: predicate.settlement, receipts: chain.length, records, batches };
}

/** A proof of a fork, as its text. */
export async function readFork(written) {
  return await checkFork(under("fork", () => parse(written)), (value) => under("fork", () => forkFields(value, "fork")));
}

export async function answerOfLedger(kind, input) {
  if (!Object.hasOwn(KINDS, kind)) throw new Unsupported(`the kind ${kind} of cases`);
  return await KINDS[kind](input);
}
