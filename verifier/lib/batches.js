// Batches: evidence as a validator signs it, and as a bundle has it. docs/formats.md, "A batch", "A bundle".

import * as read from "./fields.js";
import { digestOf, isDigest, sha256, toHex, utf8 } from "./bytes.js";
import { refuse } from "./errors.js";
import { canonical, isObject } from "./json.js";
import { openEnvelope, signers, statementOf } from "./dsse.js";
import { keyId, readKey, refuseSmallOrder } from "./keys.js";
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

/** A submission as a subject's digest: itself where it is one, else of its text. */
const subjectDigest = (name) => (isDigest(name) ? name.slice(7) : toHex(sha256(utf8(name))));

/** The statement of a batch's envelope. Nobody has checked who signed it: `checkSigner` does. */
export function openStatement(envelope, code) {
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
export async function checkSigner({ opened, validator }, code, key = null) {
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

const wrong = (what, detail = {}) => refuse(what, { code: "signatures", stage: "signatures", ...detail });

/** The rows of a batch by its members: ranges of seq that ascend. */
function rowsOf(members, bySeq, name) {
  const rows = [];
  let last = -1;
  if (!Array.isArray(members) || members.length === 0) wrong(`${name}: it has no members`);
  for (const range of members) {
    const right = Array.isArray(range) && range.length === 2 && range.every((end) => Number.isSafeInteger(end)) && range[0] > last && range[0] <= range[1];
    if (!right) wrong(`${name}: members are ranges [first, last] that ascend`);
    if (range[1] - range[0] >= 100000) wrong(`${name}: more members than a batch may have`);
    for (let seq = range[0]; seq <= range[1]; seq++) rows.push(bySeq(seq) ?? wrong(`${name}: there is no record with seq ${seq}`));
    last = range[1];
  }
  return rows;
}

const short = (members) => members.map(([first, last]) => (first === last ? String(first) : `${first} … ${last}`)).join(", ");

/**
 * The batches of a bundle, in their order: each once, signed by its validator, and of this log and competition. `bySeq`: a seq → its row, or undefined.
 * Gives for each the `batch`, its `rows`, its `name`, and `changed`: what is wrong if its root is another, for the participant of the first row.
 * Some signatures at a time are checked beside this thread.
 */
export async function* openBatches(batches, bySeq, { origin, competition }) {
  const opening = [];
  const seen = new Set();
  const open = (row) => openBatch(isObject(row) ? row.envelope : null, "signatures").then((batch) => ({ batch }), (error) => ({ error }));
  for (const [i, row] of batches.entries()) {
    while (opening.length < Math.min(batches.length, i + 64)) opening.push(open(batches[opening.length]));
    const name = `batches.jsonl, line ${i + 1}`;
    if (!isObject(row) || Object.keys(row).sort().join() !== "envelope,members") wrong(`${name}: a batch is {"envelope", "members"}`);
    const { batch, error } = await opening[i];
    opening[i] = null;
    if (error) throw error;
    if (seen.has(batch.digest)) wrong(`${name}: the batch ${batch.digest} stands twice`);
    seen.add(batch.digest);
    if (batch.origin !== undefined && batch.origin !== origin) wrong(`${name}: it was signed for another log`, { expected: origin, found: batch.origin });
    if (batch.competition !== competition) wrong(`${name}: it is of another competition`, { expected: competition, found: batch.competition });
    const changed = (participant) => `${name}: ${participant}: at least one record with seq ${short(row.members)} was changed after ${batch.validator} signed it`;
    yield { batch, rows: rowsOf(row.members, bySeq, name), name, changed };
  }
}
