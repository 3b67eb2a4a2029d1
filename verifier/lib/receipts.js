// Receipts, signed splits, and a participant's own proof. docs/formats.md, "A receipt", "The signed split", "A participant's own proof".

import * as read from "./fields.js";
import { equal, fromHex, sha256, toHex } from "./bytes.js";
import { byUtf8 } from "./exact.js";
import { refuse, Refused } from "./errors.js";
import { canonical, isObject, parse } from "./json.js";
import { openEnvelope, signers, statementOf } from "./dsse.js";
import { keyId } from "./keys.js";
import { checkLogProof, openCheckpoint, readVkey } from "./notes.js";
import { checkConsistency, checkInclusion, leafHash, rootOf, rootOfLeaves, rootText } from "./merkle.js";
import { aboutParticipants, readRecord, recordDigest, recordText, withoutSeq } from "./records.js";
import { agreedRow, payoutRow, readSplit, weightRow } from "./document.js";

const { object, list, oneOf, maybe, digest } = read;
const nullable = (reader) => (value, path) => (value === null ? null : reader(value, path));
const natural = read.integer(0, read.LARGEST);
const STATEMENT = "https://in-toto.io/Statement/v1";
const sha = read.pattern(/^[0-9a-f]{64}$/, "64 hex digits");
const anyText = (value, path) => (typeof value === "string" ? value : refuse(`${path}: is not a text`));
const counted = object({ root: digest, count: natural });
const before = nullable(object({ epoch: read.epoch, receipt: digest }));
const software = object({ name: read.key, version: read.key });
const hash = read.pattern(/^0x[0-9a-f]{64}$/, "a hash");
const registry = object({
  chain: hash, netuid: read.integer(0, 65535), mechanism: read.integer(0, 255), block: read.epoch, hash, spec_version: read.integer(0, 2 ** 32 - 1), rows: digest,
});
export const subjects = list(object({ name: anyText, digest: object({ sha256: sha }) }));

const receiptStatement = object({
  _type: oneOf(STATEMENT), subject: subjects, predicateType: oneOf("assay:receipt/v1", "assay:receipt/v2"),
  predicate: object({
    competition: read.key, epoch: read.epoch, scheme: digest, task_set: nullable(digest), inputs: digest, evidence: counted, previous: before, registry: maybe(registry),
    results: counted, settlement: digest, software,
  }),
});
const rules = object({
  encoding: oneOf("round", "exact-sum", "max-upscale"), burn_uid: read.integer(0, 65535), emission: nullable(read.pattern(/^(0|[1-9][0-9]*)$/, "rao")), unearned: oneOf("burn", "others"),
});
const splitStatement = object({
  _type: oneOf(STATEMENT), subject: subjects, predicateType: oneOf("assay:emission/v1"),
  predicate: object({ subnet: read.key, epoch: read.epoch, rules, split: readSplit, previous: before, software }),
});
const file = (schema) => object({ schema: oneOf(schema), envelope: read.anything, proof: anyText });

/** Everything inside is refused as one stage. */
export function staged(code, work) {
  try {
    return work();
  } catch (error) {
    if (error instanceof Refused) Object.assign(error, { code, stage: error.stage ?? code });
    throw error;
  }
}

/** A statement that `key` (a read vkey) signed, in its canonical form, of the shape `reader`. Every signature names its key. */
async function signedStatement(envelope, key, reader, code) {
  const opened = openEnvelope(envelope, code);
  const id = keyId({ kind: "ed25519", key: key.key });
  for (const { keyid } of opened.signatures) if (keyid === null) refuse("a signature does not name its key", { code });
  const own = { ...opened, signatures: opened.signatures.filter(({ keyid }) => keyid === id) };
  if ((await signers(own, [{ kind: "ed25519", key: key.key }])).length === 0)
    refuse("the log's key did not sign it", { code, expected: id, found: opened.signatures.map(({ keyid }) => keyid).join(", ") });
  const { value, text } = statementOf(opened, code);
  const statement = staged(code, () => reader(value, "statement"));
  if (canonical(value) !== text) refuse("the statement is not in its canonical form", { code });
  return { statement, entry: sha256(opened.payload) };
}

/** The value of an envelope that `key` signed, and its entry in the log: of an earlier split, whose shape nobody asks. */
export async function signedBy(envelope, key, code) {
  const { statement, entry } = await signedStatement(envelope, key, read.anything, code);
  return { value: statement, entry };
}

/** The file's value: a text is parsed strictly. */
const opened = (value, code) => (typeof value === "string" ? parse(value, { code }) : value);

async function openSigned(value, key, { schema, reader, code = "receipt", logCode = null }) {
  const found = staged(code, () => file(schema)(opened(value, code), "receipt"));
  const { statement, entry } = await signedStatement(found.envelope, key, reader, code);
  const { predicate } = statement;
  const inLog = await checkLogProof(found.proof, entry, [key]).catch((error) => {
    if (error instanceof Refused && logCode !== null) error.code = logCode;
    throw error;
  });
  return { statement, predicate, entry, digest: rootText(entry), ...inLog };
}

function checkSubject({ subject }, name, of) {
  if (subject.length !== 1 || subject[0].name !== name || "sha256:" + subject[0].digest.sha256 !== of)
    refuse("the subject is not what the statement is about", { code: "receipt", expected: `${name} ${of}`, found: canonical(subject) });
}

/** A receipt by the log's key: the statement, its digest, its place in the log. */
export async function openReceipt(value, vkey) {
  const receipt = await openSigned(value, readVkey(vkey, [1], "receipt"), { schema: "assay.receipt/1", reader: receiptStatement });
  const { competition, epoch, settlement } = receipt.predicate;
  checkSubject(receipt.statement, `${competition} epoch ${epoch}`, settlement);
  return { ...receipt, version: receipt.statement.predicateType.endsWith("v1") ? 1 : 2 };
}

/** A signed split by the subnet's key. Each competition is there once, with its log's key and its receipt. */
export async function openSplit(value, vkey) {
  const own = readVkey(vkey, [1], "receipt");
  const receipt = await openSigned(value, own, { schema: "assay.emission-receipt/1", reader: splitStatement, logCode: "receipt" });
  const { subnet, epoch, split, previous } = receipt.predicate;
  const wrong = (what) => refuse(what, { code: "receipt", stage: "receipt" });
  checkSubject(receipt.statement, `${subnet} epoch ${epoch}`, split.digest);
  if (split.epoch !== epoch) wrong("the split is of another epoch than its statement");
  if (!split.receipts || split.competitions.length === 0 || split.receipts.length !== split.competitions.length) wrong("the split does not name a receipt of each competition");
  split.receipts.forEach((row, i) => {
    readVkey(row.log, [1], "receipt");
    if (row.epoch !== epoch || row.competition !== split.competitions[i].name) wrong(`the receipt of ${row.competition} is of another epoch or competition`);
  });
  const keys = split.receipts.map((row) => toHex(readVkey(row.log).key) + readVkey(row.log).name);
  if (new Set(keys).size !== keys.length || new Set(split.receipts.map((row) => row.digest)).size !== keys.length) wrong("a log or a receipt stands twice");
  if (keys.includes(toHex(own.key) + own.name)) wrong("the subnet's own log stands in the place of a competition's");
  if (previous !== null && previous.epoch >= epoch) wrong("the split before is not of an earlier epoch");
  return receipt;
}

const nameOf = read.key;
const digits = (most) => read.pattern(new RegExp(`^-?(0|[1-9][0-9]{0,${most}})$`), "a string of digits");
const someone = nullable(nameOf);
const outcome = oneOf("pass", "fail", "timeout");
const auditPredicate = object({
  competition: nameOf, epoch: read.epoch, receipt: digest, settlement: digest, log: nameOf, witnessed: nullable(natural),
  randomness: (value, path) => (isObject(value) && "round" in value ? drandRound : givenValue)(value, path),
  risk: nameOf, places: nullable(natural), claims: list(object({ above: someone, below: someone, margin: read.integer(-read.LARGEST, read.LARGEST) })),
  trials: object({ counted: natural, drawn_from: natural, size: digits(60) }), untested: list(object({ validator: nameOf, trials: natural })),
  judged: list(object({
    participant: nameOf, validator: nameOf, task: nameOf, trial: natural, record: digest, claimed: outcome, seen: list(outcome), state: oneOf("held", "flaky", "false", "missing"),
  })),
  draws: list(natural), martingale: list(digits(60)), overstated: list(object({ above: someone, below: someone, nanos: digits(60), stands: read.boolean })),
  verdict: oneOf("confirmed", "recounted", "refused"), software,
});
const givenValue = object({ source: oneOf("given"), value: sha });
const drandRound = object({ source: oneOf("drand"), chain: sha, round: natural, signature: read.pattern(/^[0-9a-f]{96}$/, "48 bytes in hex") });
const auditStatement = object({ _type: oneOf(STATEMENT), subject: subjects, predicateType: oneOf("assay:audit/v1"), predicate: read.anything });

/** The file of a signed audit: signed by the auditor's key, and in its log. Its `predicate()` is read when the epoch is known to be right. */
export async function openAudit(value, vkey) {
  const found = staged("audit", () => file("assay.audit/1")(opened(value, "audit"), "audit"));
  const key = readVkey(vkey, [1], "audit");
  const audit = await openSigned(found, key, { schema: "assay.audit/1", reader: auditStatement, code: "audit", logCode: "audit" });
  return {
    ...audit, key,
    predicate: () => staged("audit", () => auditPredicate(audit.predicate, "statement")),
    checkSubject: (name, of) => staged("audit", () => checkSubject(audit.statement, name, of)),
  };
}

/** That the log of a receipt and a checkpoint seen at another time are one, by the hashes of a consistency proof. */
export async function checkCheckpoint(receipt, note, hashes, vkey) {
  const key = readVkey(vkey);
  const seen = await openCheckpoint(note, [key]).catch((error) => {
    if (error instanceof Refused) error.code = "consistency";
    throw error;
  });
  const now = receipt.checkpoint;
  if (seen.origin !== now.origin) refuse("the checkpoint that was seen is of another log", { code: "consistency" });
  const [a, b] = seen.size <= now.size ? [seen, now] : [now, seen];
  checkConsistency(a.size, a.root, b.size, b.root, hashes);
}

// ---- what a receipt binds

/** An entry of an evidence tree: seq in 8 bytes, big endian, and the record's digest, 32 bytes. */
export function evidenceEntry(seq, digest) {
  const bytes = new Uint8Array(40);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, Math.floor(seq / 2 ** 32));
  view.setUint32(4, seq >>> 0);
  bytes.set(digest, 8);
  return bytes;
}

/** Records in order of acceptance, each with its own seq: their root and count. `records`: {seq, digest}. */
export const evidenceRoot = (records) => ({ root: rootText(rootOf(records.map(({ seq, digest: of }) => evidenceEntry(seq, fromHex(of.slice(7)))))), count: records.length });

export function readSeqs(rows, code = "records") {
  const wrong = (what) => refuse(what, { code });
  let last = -1;
  return rows.map((row) => {
    if (!isObject(row) || !Number.isSafeInteger(row.seq) || row.seq < 0) wrong("a record has a seq, an integer");
    if (row.seq <= last) wrong("records are in the order of seq, each seq once");
    last = row.seq;
    const record = staged(code, () => readRecord(withoutSeq(row)));
    return { seq: row.seq, record, digest: recordDigest(record) };
  });
}

/** A participant's result, as a receipt binds it. `rests`: root and count of its records; without it, that of version 1. */
export function resultOf(settlement, participant, rests) {
  const rank = settlement.ranking.indexOf(participant);
  return {
    participant, rank: rank < 0 ? null : rank + 1, agreed: settlement.agreed.find((row) => row.participant === participant),
    weight: settlement.weights.find((row) => row.participant === participant) ?? null, payouts: settlement.payouts.filter((row) => row.participant === participant),
    ...(rests ? { records: rests } : {}),
  };
}

/** All results of a settlement, by key; their leaf hashes. */
export function results(settlement, rests) {
  const keys = settlement.agreed.map((row) => row.participant).sort(byUtf8);
  const rows = keys.map((key) => resultOf(settlement, key, rests?.get(key)));
  const leaves = rows.map((row) => leafHash(new TextEncoder().encode(canonical(row))));
  return { rows, leaves, root: rootText(rootOfLeaves(leaves)), count: rows.length };
}

// ---- a participant's own proof

const place = object({ index: natural, size: natural, hashes: list(sha, { most: 64 }) });
const resultFields = {
  participant: read.key, rank: nullable(read.integer(1, read.LARGEST)), agreed: agreedRow, weight: nullable(weightRow), payouts: list(payoutRow),
};
const record = object({ epoch: read.epoch, seq: natural, record: read.anything, proof: place });
const proofFields = (result) => object({ schema: read.anything, receipt: read.anything, result: object(result), result_proof: place, records: list(record), receipts: list(read.anything) });
const PROOFS = { "assay.proof/1": [1, proofFields(resultFields)], "assay.proof/2": [2, proofFields({ ...resultFields, records: counted })] };

const atPlace = (leaf, { index, size, hashes }, { root, count }, code, what) => {
  if (size !== count) refuse(`${what}: the tree has ${count} entries`, { code, expected: count, found: size });
  checkInclusion(leaf, index, size, hashes.map(fromHex), fromHex(root.slice(7)), code, `${what}: it is not under the receipt's root`);
};

/** A participant's own proof, by the log's key: the receipt, the result, and the records that it rests on. */
export async function openProof(value, vkey) {
  const proof = opened(value, "receipt");
  if (!isObject(proof) || !Object.hasOwn(PROOFS, proof.schema ?? "")) refuse("it is no participant's proof", { code: "receipt" });
  const [version, reader] = PROOFS[proof.schema];
  const found = staged("receipt", () => reader(proof, "proof"));
  const receipt = await openReceipt(found.receipt, vkey);
  if (receipt.version !== version) refuse(`a proof of version ${version} of a receipt of version ${receipt.version}`, { code: "receipt" });
  const byEpoch = new Map([[receipt.predicate.epoch, receipt]]);
  for (const other of found.receipts) {
    const earlier = await openReceipt(other, vkey);
    const wrong = (what) => refuse(what, { code: "chain" });
    if (earlier.predicate.competition !== receipt.predicate.competition) wrong("an earlier receipt is of another competition");
    if (earlier.predicate.epoch >= receipt.predicate.epoch || earlier.index >= receipt.index) wrong("an earlier receipt is not of an earlier epoch");
    if (byEpoch.has(earlier.predicate.epoch)) wrong("two receipts of one epoch");
    if (earlier.checkpoint.size !== receipt.checkpoint.size || !equal(earlier.checkpoint.root, receipt.checkpoint.root)) wrong("an earlier receipt is not proven up to the same checkpoint");
    byEpoch.set(earlier.predicate.epoch, earlier);
  }
  atPlace(leafHash(new TextEncoder().encode(canonical(proof.result))), found.result_proof, receipt.predicate.results, "results", `the result of ${found.result.participant}`);
  const records = ownRecords(found, byEpoch);
  if (version === 2) {
    const root = evidenceRoot(records);
    if (root.count !== found.result.records.count) refuse(`the result rests on ${found.result.records.count} records`, { code: "evidence", expected: found.result.records.count, found: root.count });
    if (root.root !== found.result.records.root) refuse("the records are not those that the result rests on", { code: "evidence", expected: found.result.records.root, found: root.root });
  }
  return { receipt, version, result: found.result, records, receipts: byEpoch };
}

function ownRecords({ result, records }, byEpoch) {
  const wrong = (what, at) => refuse(`records[${at}]: ${what}`, { code: "evidence" });
  const used = new Set();
  let last = -1;
  const own = records.map((row, i) => {
    const fact = staged("evidence", () => readRecord(row.record));
    if ("seq" in fact || recordText(fact) !== canonical(row.record)) wrong("it is not in its canonical form", i);
    const receipt = byEpoch.get(row.epoch) ?? wrong(`there is no receipt of epoch ${row.epoch}`, i);
    used.add(row.epoch);
    if (row.seq <= last) wrong("records are in the order of acceptance", i);
    last = row.seq;
    const about = aboutParticipants(fact.kind) || result.agreed.submission === "" ? fact.participant === result.participant : fact.submission === result.agreed.submission;
    if (!about || (!aboutParticipants(fact.kind) && fact.submission !== result.agreed.submission)) wrong("it is about somebody else", i);
    const of = recordDigest(fact);
    atPlace(leafHash(evidenceEntry(row.seq, fromHex(of.slice(7)))), row.proof, receipt.predicate.evidence, "evidence", `records[${i}]`);
    return { seq: row.seq, epoch: row.epoch, record: fact, digest: of };
  });
  return own;
}
