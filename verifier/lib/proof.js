// A participant's own proof: the receipt, the result, and the records that it rests on. docs/formats.md, "A participant's own proof".

import * as read from "./fields.js";
import { equal, fromHex } from "./bytes.js";
import { agreedRow, payoutRow, weightRow } from "./document.js";
import { refuse } from "./errors.js";
import { canonical, isObject } from "./json.js";
import { checkInclusion, leafHash, rootOf, rootText } from "./merkle.js";
import { counted, evidenceEntry, natural, nullable, openReceipt, opened, sha, staged } from "./receipts.js";
import { aboutParticipants, readRecord, recordDigest, recordText, withoutSeq } from "./records.js";
import { loadKinds } from "./score.js";

/** Records in order of acceptance, each with its own seq: their root and count. `records`: {seq, digest}. */
export const evidenceRoot = (records) => ({ root: rootText(rootOf(records.map(({ seq, digest: of }) => evidenceEntry(seq, fromHex(of.slice(7)))))), count: records.length });

const { object, list } = read;

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
  await loadKinds(found.records.map((row) => row.record?.kind));
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

/** Rows of records with their seqs, as records with their digests. */
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
