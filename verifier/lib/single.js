// Single files, and a subnet's epoch: what a reader may drop beside the bundle of one competition. docs/verify.md.

import { checkBundle, checkKept, namedKey, readJsonLines, readLog, readText, Report, sameScheme, several, LIMITS, whoSigned, within } from "./bundle.js";
import { equal, toHex } from "./bytes.js";
import { refuse, Unsupported } from "./errors.js";
import { checkConsistency } from "./history.js";
import { isObject, parse } from "./json.js";
import { openCheckpoint, readVkey } from "./notes.js";
import { openReceipt, signedBy, staged } from "./receipts.js";
import { witnessed } from "./witnesses.js";

/** What single files are, by what they say of themselves. */
export async function checkFile(text, options, report) {
  if (/^c2sp\.org\/tlog-proof@v1\n/.test(text)) throw new Unsupported("a log proof alone: drop the receipt that carries it");
  const value = parse(text, { code: "receipt" });
  const schema = isObject(value) ? value.schema : null;
  if (schema === "assay.receipt/1") return await checkReceipt(text, options, report);
  if (schema === "assay.proof/1" || schema === "assay.proof/2") return await checkProof(text, options, report);
  if (schema === "assay.audit/1") return await (await import("./audited.js")).auditAlone(text, options, report);
  if (schema === "assay.emission-receipt/1") return await checkSplitAlone(text, options, report);
  if (schema === "assay.duel/1") {
    const { follow } = await import("./duel.js");
    const { challenger, king, winner, path, pairs } = follow(value);
    const what = winner === "challenger" ? `${challenger.participant} is better than ${king.participant}` : `${king.participant} stays before ${challenger.participant}`;
    report.did("duel", `${what}: each of ${several(path.length, "step")} of ${pairs} was computed again`);
    report.not("evidence", "whether the trials went so, and no pair was left out: `assay verify --duel` with the bundle of the epoch");
    return { what: "duel", duel: value };
  }
  if (schema === "assay.fork/1") {
    const { readFork } = await import("./ledger-kinds.js");
    const { first, second } = await readFork(text);
    report.did("fork", `${first.origin} signed two histories, of ${first.size} and ${second.size} entries, with the key ${first.key.text}`);
    return { what: "fork", first, second };
  }
  refuse("it is no receipt, no participant's proof, no signed split, no audit, no duel and no proof of a fork", { code: "receipt", stage: "receipt" });
}

/** A receipt alone: its signature and its place in the log. */
async function checkReceipt(text, options, report) {
  const key = options.key ?? namedKey(text);
  const receipt = await openReceipt(text, key);
  const { predicate, checkpoint } = receipt;
  report.receipt = predicate;
  report.did("receipt", `${predicate.competition} epoch ${predicate.epoch}, ${whoSigned(key, options.key)}`);
  report.did("log", `entry ${receipt.index} of ${checkpoint.size} in ${checkpoint.origin}, by a signed checkpoint`);
  const vkey = readVkey(key);
  if (options.scheme) await sameScheme(options.scheme, predicate.scheme);
  if (options.checkpoint) await sameCheckpoint(checkpoint, options.checkpoint, vkey, report);
  if (options.policy) await witnessed(report, checkpoint, options.policy, options.now);
  report.not("evidence", "the bundle of the epoch has it");
  report.not("settlement", "it was not computed again: that takes the bundle of the epoch");
  return { what: "receipt", receipt };
}

/** Without tiles only a checkpoint of the same size can be compared. */
async function sameCheckpoint(checkpoint, note, vkey, report) {
  const seen = await openCheckpoint(note, [vkey]);
  if (seen.size !== checkpoint.size) return report.not("consistency", "without the log's tiles only a checkpoint of the same size can be compared");
  checkConsistency(seen.size, seen.root, checkpoint.size, checkpoint.root, []);
  report.did("consistency", "it is the checkpoint that was seen before");
}

async function checkProof(text, options, report) {
  const key = options.key ?? namedKey(parse(text, { code: "receipt" }).receipt);
  const { openProof } = await import("./proof.js");
  const proof = await openProof(text, key);
  const { predicate, checkpoint, index } = proof.receipt;
  report.receipt = predicate;
  report.did("receipt", `${predicate.competition} epoch ${predicate.epoch}, ${whoSigned(key, options.key)}`);
  report.did("log", `entry ${index} of ${checkpoint.size} in ${checkpoint.origin}, by a signed checkpoint`);
  if (options.policy) await witnessed(report, checkpoint, options.policy, options.now);
  if (options.scheme) await sameScheme(options.scheme, predicate.scheme);
  report.did("results", `the result of ${proof.result.participant}${proof.result.rank === null ? "" : ` (rank ${proof.result.rank})`} is one of ${predicate.results.count}`);
  const records = several(proof.records.length, "record");
  if (proof.version === 2) report.did("evidence", `all ${records} that it rests on, each under the evidence root of a receipt`);
  else {
    report.did("evidence", `${records}, each under the evidence root of a receipt`);
    report.not("evidence", "a receipt of version 1 does not say whether these are all");
  }
  report.not("settlement", "a participant's proof does not have the other participants; the bundle of the epoch has them");
  return { what: "proof", proof };
}

async function checkSplitAlone(text, options, report) {
  const key = options.key ?? namedKey(text);
  const { openSplit } = await import("./subnet.js");
  const signed = await openSplit(text, key);
  reportSplit(signed, key, options, report);
  await followsFile(signed, options, report);
  if (options.policy) await witnessed(report, signed.checkpoint, options.policy, options.now);
  report.not("emission", "nothing was computed again: that takes the folder that `assay export emission` writes");
  return { what: "split", signed };
}

async function followsFile(signed, { subnet }, report) {
  if (subnet === null) return;
  const { compareWithFile } = await import("./subnet.js");
  compareWithFile(signed, subnet);
  report.did("emission", "parts, encoding, burn UID and emission are those of your subnet file");
}

function reportSplit({ predicate, index, checkpoint }, key, options, report) {
  report.split = predicate;
  report.did("receipt", `${predicate.subnet} epoch ${predicate.epoch}, ${whoSigned(key, options.key)}`);
  report.did("log", `entry ${index} of ${checkpoint.size} in ${checkpoint.origin}, by a signed checkpoint`);
}

/** A subnet's epoch: the signed split, the log, the splits before it, and the bundle of each competition. */
export async function checkSubnet(files, options, report) {
  const [{ openSplit, recompute }, { settle }] = await Promise.all([import("./subnet.js"), import("./settle.js")]);
  const text = await readText(files, "emission.receipt", LIMITS.receipt, "receipt");
  const key = options.key ?? namedKey(text);
  const vkey = staged("key", () => readVkey(key));
  const signed = await openSplit(text, key);
  reportSplit(signed, key, options, report);
  await followsFile(signed, options, report);
  const log = await readLog(files, "log", vkey, report);
  await checkEarlier(files, signed, log, vkey);
  if (options.checkpoint) await checkKept(log, options.checkpoint, vkey, report);
  if (options.policy) await witnessed(report, log.checkpoint, options.policy, options.now);
  const parts = [];
  const { split } = signed.predicate;
  for (const [i, row] of split.receipts.entries()) {
    const folder = `competitions/${i + 1}/`;
    const inner = new Report();
    const found = await checkBundle(within(files, folder), { ...options, audits: [], key: row.log, policy: null, shows: options.policy, checkpoint: null, scheme: null, subnet: null }, inner);
    const own = found.chain.at(-1);
    if (own.digest !== row.digest) refuse(`${folder}: the split names another receipt`, { code: "emission", stage: "emission", where: folder, expected: row.digest, found: own.digest });
    report.did("settlement", `${row.competition}: verified, and computed again: ${found.settlement.digest}`);
    for (const done of inner.stages) if (done.stage === "audit") report.stages.push({ ...done, what: `${row.competition}: ${done.what}` });
    parts.push({ document: found.context.document, ...settle(found.context, found.context.votes), settlement: found.settlement });
  }
  recompute(signed, parts);
  report.did("emission", `the split was computed again to the bit: ${split.digest}`);
  report.recomputed = true;
  return { what: "subnet", signed, parts };
}

/** Each split before it in the log, so that no other one of this epoch was signed; the last of them is the previous one. */
async function checkEarlier(files, signed, log, vkey) {
  const wrong = (what) => refuse(what, { code: "chain", stage: "chain", where: "earlier.jsonl" });
  const rows = files.paths.includes("earlier.jsonl") ? await readJsonLines(files, "earlier.jsonl", LIMITS["earlier.jsonl"], "chain") : [];
  if (log.entries.length !== rows.length + 1 || !equal(log.entries.at(-1), signed.entry)) wrong("earlier.jsonl: the log has other entries than these splits and this one");
  let last = null;
  for (const [i, row] of rows.entries()) {
    const { value, entry } = await signedBy(row, vkey, "chain");
    if (!equal(entry, log.entries[i])) wrong(`earlier.jsonl, line ${i + 1}: it is not entry ${i} of the log`);
    if (value?.predicate?.subnet !== signed.predicate.subnet || !(value.predicate.epoch < signed.predicate.epoch)) wrong(`earlier.jsonl, line ${i + 1}: it is not of an earlier epoch of this subnet`);
    last = { epoch: value.predicate.epoch, receipt: "sha256:" + toHex(entry) };
  }
  const { previous } = signed.predicate;
  if ((previous?.epoch ?? null) !== (last?.epoch ?? null) || (previous?.receipt ?? null) !== (last?.receipt ?? null)) wrong("the split names another one before it");
}
