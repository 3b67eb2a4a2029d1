// Batches: evidence as a validator signs it. docs/formats.md, "A batch".

import * as read from "./fields.js";
import { digestOf, fromHex, isDigest, sha256, toHex, utf8 } from "./bytes.js";
import { byUtf8 } from "./exact.js";
import { refuse } from "./errors.js";
import { canonical, parse } from "./json.js";
import { openEnvelope, signers, statementOf } from "./dsse.js";
import { keyId, readKey, refuseSmallOrder } from "./keys.js";
import { rootOf, rootText } from "./merkle.js";
import { contentOf, keyOf, readRecord, recordDigest, recordText } from "./records.js";
import { staged, subjects } from "./receipts.js";
import { KINDS } from "./score.js";

const nullable = (reader) => (value, path) => (value === null ? null : reader(value, path));
const predicate = {
  competition: read.key, epoch: read.epoch, kind: read.oneOf(...KINDS), validator: read.key, task_set: nullable(read.digest), count: read.integer(1, 100000), root: read.digest,
};
const statement = (type, fields) => read.object({ _type: read.oneOf("https://in-toto.io/Statement/v1"), subject: subjects, predicateType: read.oneOf(type), predicate: read.object(fields) });
const VERSIONS = {
  "assay:evidence/v1": statement("assay:evidence/v1", predicate),
  "assay:evidence/v2": statement("assay:evidence/v2", { origin: nullable(read.key), ...predicate }),
};
const LARGEST_ENVELOPE = 1 << 20;

/** A submission as a subject's digest: itself where it is one, else of its text. */
const subjectDigest = (name) => (isDigest(name) ? name.slice(7) : toHex(sha256(utf8(name))));

/** The statement of a batch's envelope. Nobody has checked who signed it: `checkSigner` does. */
function openStatement(envelope, code) {
  const wrong = (what, detail = {}) => refuse(what, { code, ...detail });
  const opened = openEnvelope(envelope, code);
  const { value, text } = statementOf(opened, code);
  const reader = VERSIONS[value?.predicateType] ?? wrong("the statement is no batch of evidence");
  const found = staged(code, () => reader(value, "statement"));
  if (canonical(value) !== text) wrong("the statement is not in its canonical form");
  for (const { name, digest } of found.subject) if (digest.sha256 !== subjectDigest(name)) wrong(`the digest of the subject ${JSON.stringify(name)} is another`);
  return { opened, digest: digestOf(opened.payload), statement: found, value, ...found.predicate };
}

/** That the validator which the statement names signed it; with `key`, that it is this one. */
async function checkSigner({ opened, validator }, code, key = null) {
  const wrong = (what, detail = {}) => refuse(what, { code, ...detail });
  const own = (await readKey(validator)) ?? wrong(`${JSON.stringify(validator)} is no public key`);
  refuseSmallOrder(own, validator);
  if (key !== null && keyId(key) !== keyId(own)) refuse(`the statement names another validator: ${validator}`, { code: "validator", expected: keyId(key), found: validator });
  for (const { keyid } of opened.signatures) if (keyid !== null && keyid !== keyId(own)) wrong(`a keyid names another key than that of ${validator}`, { expected: keyId(own), found: keyid });
  if ((await signers(opened, [own])).length === 0) wrong(`${validator} did not sign it`);
}

export async function openBatch(envelope, code) {
  const batch = openStatement(envelope, code);
  await checkSigner(batch, code);
  return batch;
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

/** A batch's file: the envelope's line, then each record's. */
export async function readBatch(text, keyText = null) {
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
