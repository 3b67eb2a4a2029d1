// Receipts, what they bind, and statements that are signed and in a log. docs/formats.md, "A receipt".

import * as read from "./fields.js";
import { sha256, utf8 } from "./bytes.js";
import { byUtf8 } from "./exact.js";
import { refuse, Refused } from "./errors.js";
import { canonical, parse, rowText } from "./json.js";
import { openEnvelope, signers, statementOf } from "./dsse.js";
import { keyId } from "./keys.js";
import { checkLogProof, readVkey } from "./notes.js";
import { leafHash, rootOfLeaves, rootText } from "./merkle.js";

const { object, list, oneOf, maybe, digest } = read;
export const nullable = (reader) => (value, path) => (value === null ? null : reader(value, path));
export const natural = read.integer(0, read.LARGEST);
export const STATEMENT = "https://in-toto.io/Statement/v1";
export const sha = read.pattern(/^[0-9a-f]{64}$/, "64 hex digits");
const anyText = (value, path) => (typeof value === "string" ? value : refuse(`${path}: is not a text`));
export const counted = object({ root: digest, count: natural });
export const before = nullable(object({ epoch: read.epoch, receipt: digest }));
export const software = object({ name: read.key, version: read.key });
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
export const fileOf = (schema) => object({ schema: oneOf(schema), envelope: read.anything, proof: anyText });

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
export const opened = (value, code) => (typeof value === "string" ? parse(value, { code }) : value);

/** A file of a statement that `key` signed, and that is in its log. */
export async function openSigned(value, key, { schema, reader, code = "receipt", logCode = null }) {
  const found = staged(code, () => fileOf(schema)(opened(value, code), "receipt"));
  const { statement, entry } = await signedStatement(found.envelope, key, reader, code);
  const { predicate } = statement;
  const inLog = await checkLogProof(found.proof, entry, [key]).catch((error) => {
    if (error instanceof Refused && logCode !== null) error.code = logCode;
    throw error;
  });
  return { statement, predicate, entry, digest: rootText(entry), ...inLog };
}

export function checkSubject({ subject }, name, of) {
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

/** A result in canonical form; `agreed` is the first of its fields. */
const resultText = ({ agreed, ...rest }) => `{"agreed":${rowText(agreed)},${canonical(rest).slice(1)}`;

/** All results of a settlement, by key, as a receipt binds them; their leaf hashes. `rests`: participant → root and count of its records; without it, those of version 1. */
export function results({ agreed, ranking, weights, payouts }, rests) {
  const ranks = new Map(ranking.map((participant, i) => [participant, i + 1]));
  const weightOf = new Map(weights.map((row) => [row.participant, row]));
  const payoutsOf = new Map(agreed.map(({ participant }) => [participant, []]));
  for (const row of payouts) payoutsOf.get(row.participant)?.push(row);
  const rows = agreed.map((row) => ({
    participant: row.participant, rank: ranks.get(row.participant) ?? null, agreed: row, weight: weightOf.get(row.participant) ?? null, payouts: payoutsOf.get(row.participant),
    ...(rests ? { records: rests.get(row.participant) } : {}),
  }));
  rows.sort((a, b) => byUtf8(a.participant, b.participant));
  const leaves = rows.map((row) => leafHash(utf8(resultText(row))));
  return { rows, leaves, root: rootText(rootOfLeaves(leaves)), count: rows.length };
}
