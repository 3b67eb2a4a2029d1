// What a reader drops: a bundle, perhaps with audits of it, a receipt, a participant's proof, a signed split, a proof of a fork. Each is checked stage by stage; the
// report keeps what was checked before the first fault. docs/verify.md.
//
// Files are {paths, read(path, limit) → Promise of bytes, lines?(path)}; paths are relative, with "/". Inside, `audits` has the paths of signed audits, and `paths` all others.
//
// What computes an epoch again is loaded when there is an epoch: a receipt or a proof needs half as much.

import { concat, equal, fromUtf8, toBase64, toHex } from "./bytes.js";
import { refuse, Refused, Unsupported } from "./errors.js";
import { canonical, digestOfJson, isObject, parse } from "./json.js";
import { noteKeyId } from "./keys.js";
import { checkSeen, checkTiles, checkWitnesses, openCheckpoint, readPolicy, readVkey } from "./notes.js";
import { checkConsistency } from "./merkle.js";
import { openProof, openReceipt, openSplit, signedBy, staged } from "./receipts.js";

const MIB = 1 << 20;
/** The largest file of each name that is read; a larger one is refused by name. */
export const LIMITS = { "inputs.json": 256 * MIB, "previous.json": 256 * MIB, "settlement.json": 256 * MIB, "batches.jsonl": 1024 * MIB, receipt: 4 * MIB, tile: MIB, evidence: 4096 * MIB, proof: 64 * MIB };
const MOST_RECEIPTS = 100_000;

export class Report {
  constructor() {
    this.stages = [];
    this.verified = false;
    this.recomputed = false;
  }
  did(stage, what) {
    this.stages.push({ stage, what, checked: true });
  }
  not(stage, what) {
    this.stages.push({ stage, what, checked: false });
  }
}

export const several = (number, what, plural = `${what}s`) => `${number.toLocaleString("en-US").replaceAll(",", " ")} ${number === 1 ? what : plural}`;

async function readText(files, path, limit, stage) {
  const bytes = await files.read(path, limit).catch((error) => refuse(`${path}: ${error.message}`, { code: stage, stage, where: path }));
  if (bytes === null) refuse(`${path} is missing`, { code: stage, stage, where: path });
  try {
    return fromUtf8(bytes);
  } catch {
    refuse(`${path}: is not UTF-8`, { code: stage, stage, where: path });
  }
}

const readJson = async (files, path, limit, stage) => jsonOf(await readText(files, path, limit, stage), path, stage);

function jsonOf(text, path, stage) {
  return staged(stage, () => {
    try {
      return parse(text, { code: stage });
    } catch (error) {
      if (error instanceof Refused) error.message = `${path}: ${error.message}`;
      throw error;
    }
  });
}

function* linesOf(text) {
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf("\n", at);
    yield end < 0 ? text.slice(at) : text.slice(at, end);
    at = end < 0 ? text.length : end + 1;
  }
}

async function readJsonLines(files, path, limit, stage) {
  const rows = [];
  for (const line of linesOf(await readText(files, path, limit, stage)))
    rows.push(staged(stage, () => {
      try {
        return parse(line, { code: stage });
      } catch (error) {
        if (error instanceof Refused) Object.assign(error, { message: `${path}, line ${rows.length + 1}: ${error.message}`, where: `${path}, line ${rows.length + 1}` });
        throw error;
      }
    }));
  return rows;
}

/** The key that a receipt names itself, as a vkey: only so good as whoever sent the receipt. */
export function namedKey(value) {
  const receipt = typeof value === "string" ? parse(value, { code: "receipt" }) : value;
  const keyid = receipt?.envelope?.signatures?.[0]?.keyid;
  const origin = /\n\n([^\n]+)\n/.exec(String(receipt?.proof ?? ""))?.[1];
  const match = /^ed25519:([0-9a-f]{64})$/.exec(String(keyid ?? ""));
  if (!match || !origin) refuse("the receipt does not name the key that signed it", { code: "receipt", stage: "receipt" });
  const data = concat(Uint8Array.of(1), Uint8Array.from(match[1].match(/../g), (byte) => Number.parseInt(byte, 16)));
  return `${origin}+${noteKeyId(origin, data)}+${toBase64(data)}`;
}

/** A key as text, or the `key = "…"` of a ledger.toml, or the first line of a file. */
export function keyFrom(text) {
  const toml = /^key = "([^"\n]+)"/m.exec(text);
  return (toml ? toml[1] : text.trim().split("\n")[0]).trim();
}

const whoSigned = (key, given) => (given ? `signed by the log's key ${key}` : `signed by ${key}, which the receipt names itself: compare it with the log's`);

function age(time, now) {
  const seconds = Math.max(0, Math.floor(now / 1000) - Number(time));
  if (seconds < 120) return several(seconds, "second");
  if (seconds < 7200) return several(Math.floor(seconds / 60), "minute");
  return seconds < 172800 ? several(Math.floor(seconds / 3600), "hour") : several(Math.floor(seconds / 86400), "day");
}

async function witnessed(report, checkpoint, policyText, now) {
  const policy = staged("witnesses", () => readPolicy(policyText));
  const times = await checkWitnesses(checkpoint, policy);
  const newest = [...times.values()].reduce((a, b) => (a > b ? a : b), 0n);
  const names = times.size ? `cosigned by ${[...times.keys()].join(", ")}, the newest ${age(newest, now)} ago` : "the policy demands nobody";
  report.did("witnesses", `${names}; this binds the history of ${several(Number(checkpoint.size), "entry", "entries")}`);
}

/** A log's folder: its tiles lead to its checkpoint, which agrees with what the receipts say. */
async function readLog(files, folder, key, report) {
  const checkpoint = await openCheckpoint(await readText(files, `${folder}/checkpoint`, MIB, "log"), [key]);
  const tiles = new Map();
  for (const path of files.paths) if (path.startsWith(`${folder}/tile/`)) tiles.set(path.slice(folder.length + 1), await files.read(path, LIMITS.tile));
  const { entries, leaves } = staged("log", () => checkTiles((path) => tiles.get(path) ?? null, checkpoint, "log"));
  report.did("log", `the tiles of ${folder} lead to a signed checkpoint of ${several(entries.length, "entry", "entries")}`);
  return { checkpoint, entries, leaves };
}

async function checkKept(log, note, key, report) {
  const seen = await openCheckpoint(note, [key]).catch((error) => {
    if (error instanceof Refused) Object.assign(error, { code: "consistency", stage: "consistency" });
    throw error;
  });
  checkSeen(seen, log.checkpoint, log.leaves);
  report.did("consistency", `the log continues the checkpoint of ${several(Number(seen.size), "entry", "entries")} that was seen before`);
}

const EPOCH = /^receipts\/epoch-(0|[1-9][0-9]{0,15})\.receipt$/;
const EVIDENCE = /^evidence\/epoch-(0|[1-9][0-9]{0,15})\.(jsonl|parquet)$/;

/** Everything that a bundle is made of; another file is refused, so that nothing is shown and not checked. */
const KNOWN = /^(inputs\.json|previous\.json|settlement\.json|batches\.jsonl|receipts\/epoch-[0-9]+\.receipt|evidence\/epoch-[0-9]+\.(jsonl|parquet)|log\/(checkpoint|tile\/.+))$/;

async function readReceipts(files) {
  const rows = [];
  for (const path of files.paths) {
    const match = EPOCH.exec(path);
    if (match) rows.push([Number(match[1]), path]);
  }
  if (rows.length === 0) refuse("receipts/ has no receipt", { code: "receipt", stage: "receipt", where: "receipts/" });
  if (rows.length > MOST_RECEIPTS) refuse(`more than ${MOST_RECEIPTS} receipts`, { code: "receipt", stage: "receipt" });
  rows.sort((a, b) => a[0] - b[0]);
  const receipts = [];
  for (const [epoch, path] of rows) receipts.push([epoch, await readText(files, path, LIMITS.receipt, "receipt")]);
  return receipts;
}

function evidenceFiles(files) {
  const found = new Map();
  for (const path of files.paths) {
    const match = EVIDENCE.exec(path);
    if (!match) continue;
    if (found.has(Number(match[1]))) refuse(`${path}: the evidence of epoch ${match[1]} stands in two files`, { code: "evidence", stage: "evidence", where: path });
    found.set(Number(match[1]), path);
  }
  return found;
}

/**
 * An exported epoch. `bulk`, if given, loads what reads evidence of kind tests in bulk; it has the same answers as the general way.
 * Fills `report`, and gives what `explain` and "What if" need.
 */
async function checkBundle(files, options, report) {
  const { progress } = options;
  const [{ checkBefore, checkChain, checkInputs, checkResults, checkSettlement }, { readPrevious }] = await Promise.all([import("./epoch.js"), import("./inputs.js")]);
  const receipts = await readReceipts(files);
  const key = options.key ?? namedKey(receipts.at(-1)[1]);
  const vkey = staged("key", () => readVkey(key));
  progress("receipt", 0);
  const chain = await checkChain(receipts, key);
  const receipt = chain.at(-1);
  const { predicate, checkpoint } = receipt;
  report.receipt = predicate;
  report.did("receipt", `${predicate.competition} epoch ${predicate.epoch}, ${whoSigned(key, options.key)}`);
  report.did("log", `entry ${receipt.index} of ${checkpoint.size} in ${checkpoint.origin}, by a signed checkpoint`);
  const log = await readLog(files, "log", vkey, report);
  if (log.checkpoint.size !== BigInt(chain.length) || chain.some((one, i) => !equal(one.entry, log.entries[i]))) refuse("log/: its entries are not the receipts", { code: "log", stage: "log", where: "log/" });
  if (options.checkpoint) await checkKept(log, options.checkpoint, vkey, report);
  if (options.policy) await checkPolicy(log, options, vkey, report);
  report.did("chain", `${several(chain.length, "receipt")} from the first to this one, each naming the one before`);
  const before = checkBefore(chain, files.paths.includes("previous.json") ? await readJson(files, "previous.json", LIMITS["previous.json"], "chain") : null);
  const inputs = await readJson(files, "inputs.json", LIMITS["inputs.json"], "inputs");
  const found = await evidence(files, options, chain, inputs);
  report.did("evidence", `${several(found.count, "record")} under ${several(chain.length, "evidence root")}`);
  const signed = await found.checkBatches(await readJsonLines(files, "batches.jsonl", LIMITS["batches.jsonl"], "signatures"), { origin: checkpoint.origin, competition: predicate.competition });
  report.did("signatures", `${several(signed.batches, "batch", "batches")} by ${several(signed.validators.size, "validator")}`);
  const document = checkInputs(inputs, receipt);
  const own = options.scheme === null ? "" : ", which is your file's";
  if (own) await sameScheme(options.scheme, predicate.scheme);
  report.did("inputs", `${several(document.participants.length, "participant")}, ${several(document.validators.length, "validator")}, scheme ${predicate.scheme}${own}`);
  progress("settlement", 0);
  const previous = staged("settlement", () => readPrevious(before, document, predicate.epoch));
  const { computed, context, rests } = found.settle(document, previous, predicate, signed);
  // A file that is the computed settlement, letter by letter, is not read field by field.
  const settlement = await readText(files, "settlement.json", LIMITS["settlement.json"], "settlement");
  const same = settlement.trimEnd() === canonical(computed);
  checkSettlement(same ? computed : jsonOf(settlement, "settlement.json", "settlement"), computed, receipt);
  report.did("settlement", `computed again to the bit: ${computed.digest}`);
  report.recomputed = true;
  checkResults(computed, rests(), receipt);
  report.did("results", `${several(computed.agreed.length, "result")} under their root`);
  const audits = [];
  for (const path of carried(files)) audits.push(await auditOf({ path, text: await readText(files, path, LIMITS.receipt, "audit"), carried: true }, receipt, { settlement: computed, context }, options, report));
  for (const audit of options.audits) audits.push(await auditOf(audit, receipt, { settlement: computed, context }, options, report));
  for (const { key, failed_audit } of document.validators)
    if (document.scheme.audit?.failed && failed_audit && !audits.some((audit) => audit.digest === failed_audit)) report.not("audit", `${key} is left out for the audit ${failed_audit}, which is not here`);
  const other = files.paths.find((path) => !KNOWN.test(path));
  if (other !== undefined) report.not("inputs", `${other} is no file of a bundle, and was not looked at`);
  return { what: "bundle", settlement: computed, context, chain, audits };
}

/** The signed audits that a bundle carries. */
const carried = ({ audits = [] }) => audits.filter((path) => /^audits\/[^/]+\.audit$/.test(path));

/**
 * A signed audit of this epoch: the draw, the martingale and the verdict are made again from what was seen. Of one that the bundle carries, the time at
 * which the receipt was witnessed is the one that it states; the report says whether the policy shows it. docs/auditing.md, "In a bundle".
 */
async function auditOf({ path, text, carried: within = false }, receipt, { settlement, context }, options, report) {
  const { checkAudit, openAudit, sentence } = await import("./audit.js");
  options.progress("audit", 0);
  const key = options.auditor ?? namedKey(jsonOf(text, path, "audit"));
  const early = await openAudit(text, key);
  const { document } = context;
  const marked = document.validators.filter((row) => row.failed_audit === early.digest);
  if (marked.length && document.scheme.audit?.failed) return failedAudit(early, marked, receipt, path, report);
  if (marked.length && within) report.not("audit", `validators.csv names the audit ${early.digest}, but the scheme leaves nobody out, so it was not looked at`);
  if (marked.length && within) return { predicate: early.predicate(), index: early.index, size: early.checkpoint.size, digest: early.digest };
  const shown = within ? await newest(receipt, options).catch(() => null) : await newest(receipt, options);
  const stated = within ? early.predicate().witnessed : null;
  const witnessedAt = within ? (stated === null ? null : BigInt(stated)) : shown;
  const audit = await checkAudit(early, { receipt, settlement, document, behind: context.behind, witnessedAt });
  const { predicate } = audit;
  report.did("audit", `${sentence(predicate)}; draw, martingale and verdict were computed again`);
  if (predicate.randomness.source === "given") report.not("audit", "the randomness was given by the auditor: nothing shows that it was not chosen");
  if (witnessedAt !== null && witnessedAt !== shown) report.not("audit", `when the receipt was witnessed, which fixes the draw: ${shown === null ? "give the policy of its witnesses" : `it states ${witnessedAt}, and the policy's witnesses say ${shown}`}`);
  if (!options.auditor) report.not("audit", `whose audit it is: ${key} is the key that it names itself`);
  report.not("audit", "what was seen is the auditor's word: anybody with the kept work can run the same trials again");
  return audit;
}

/** The time of the newest cosignature of the policy's witnesses, in seconds since 1970; null without a policy. */
async function newest({ checkpoint }, { policy }) {
  const times = policy ? [...(await checkWitnesses(checkpoint, readPolicy(policy))).values()] : [];
  return times.length ? times.reduce((a, b) => (a > b ? a : b)) : null;
}

/** An audit of an earlier epoch, for which the scheme leaves validators out: it has to say that it saw their false claims. */
function failedAudit(early, validators, { predicate: of }, path, report) {
  const predicate = early.predicate();
  const wrong = (what) => refuse(`${path}: ${what}`, { code: "audit", stage: "audit", where: path });
  if (predicate.competition !== of.competition || predicate.epoch >= of.epoch) wrong("it is of another competition, or of no earlier epoch, so it leaves nobody out");
  for (const { key } of validators) {
    const own = predicate.judged.filter((row) => row.validator === key);
    const wrongs = own.filter(({ state }) => state === "false").length;
    if (wrongs === 0) wrong(`it saw no false claim of ${key}, which is left out`);
    report.did("audit", `${key} is left out: ${wrongs} of its ${own.length} claims that were judged again were false, by ${early.checkpoint.origin}`);
  }
  return { predicate, index: early.index, size: early.checkpoint.size, digest: early.digest };
}

/** A signed audit alone: its signature, and its place in the auditor's log. */
async function auditAlone(text, options, report) {
  const { openAudit, sentence } = await import("./audit.js");
  const key = options.auditor ?? namedKey(text);
  const audit = await openAudit(text, key);
  const predicate = audit.predicate();
  report.did("audit", `${predicate.competition} epoch ${predicate.epoch}: entry ${audit.index} of ${audit.checkpoint.size} in ${audit.checkpoint.origin}, signed by ${key}${options.auditor ? "" : ", which it names itself"}`);
  report.not("audit", `that it follows from the epoch: drop it together with the bundle. It states: ${sentence(predicate)}`);
  return { what: "audit", audits: [{ predicate, index: audit.index, size: audit.checkpoint.size, digest: audit.digest }] };
}

/** A scheme that the reader trusts, its TOML as JSON. */
async function sameScheme(file, digest) {
  const { readScheme } = await import("./scheme.js");
  const found = staged("inputs", () => digestOfJson(readScheme(file)));
  if (found !== digest) refuse("the receipt's scheme is another than your file's", { code: "inputs", stage: "inputs", where: "scheme", expected: found, found: digest });
}

/** A policy binds the log's own checkpoint, or a newer one that continues it. */
async function checkPolicy(log, options, vkey, report) {
  await witnessed(report, log.checkpoint, options.policy, options.now);
}

/** The records of a bundle, in bulk where that is possible, and what is computed from them. */
async function evidence(given, options, chain, inputs) {
  const paths = evidenceFiles(given);
  const files = [...paths.values()].some((path) => path.endsWith(".parquet")) ? (await import("./parquet.js")).asLines(given) : given;
  if (options.bulk && options.audits.length === 0 && carried(given).length === 0 && isObject(inputs) && isObject(inputs.scheme) && inputs.scheme.score?.kind === "tests") {
    const bulk = await options.bulk();
    return await bulk(files, paths, chain, options.progress);
  }
  const { bearing, behind, checkBatches, checkEvidence, restsOf, withDigests } = await import("./epoch.js");
  const [{ firstAccepted }, { owners, settle }, { outcomesOf }] = await Promise.all([import("./inputs.js"), import("./settle.js"), import("./whatif.js")]);
  const rows = new Map();
  for (const [epoch, path] of paths) rows.set(epoch, await readJsonLines(files, path, LIMITS.evidence, "evidence"));
  options.progress("evidence", 0);
  const all = checkEvidence(chain, rows);
  return {
    count: all.length,
    checkBatches: (batches, of) => checkBatches(batches, all, of, (done, total) => options.progress("signatures", done / total)),
    settle(document, previous, { epoch, task_set }, { signed }) {
      const own = bearing(document, all, signed, task_set);
      const records = own.map(({ seq, record }) => ({ ...record, seq }));
      const whose = owners(document.scheme.score.kind, document.participants).of;
      const context = { document, epoch, records, previous, whose };
      if (document.scheme.score.kind === "tests") context.outcomes = outcomesOf(firstAccepted(records), whose);
      const computed = staged("settlement", () => settle(context)).settlement;
      const rows = behind(document, computed, own);
      context.behind = () => withDigests(rows);
      return { computed, context, rests: () => restsOf(rows) };
    },
  };
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
async function checkSubnet(files, options, report) {
  const [{ recompute }, { settle }] = await Promise.all([import("./subnet.js"), import("./settle.js")]);
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
    const found = await checkBundle(within(files, folder), { ...options, audits: [], key: row.log, policy: null, checkpoint: null, scheme: null, subnet: null }, inner);
    const own = found.chain.at(-1);
    if (own.digest !== row.digest) refuse(`${folder}: the split names another receipt`, { code: "emission", stage: "emission", where: folder, expected: row.digest, found: own.digest });
    report.did("settlement", `${row.competition}: verified, and computed again: ${found.settlement.digest}`);
    for (const done of inner.stages) if (done.stage === "audit") report.stages.push({ ...done, what: `${row.competition}: ${done.what}` });
    parts.push({ document: found.context.document, ...settle(found.context, found.context.scored), settlement: found.settlement });
  }
  recompute(signed, parts);
  report.did("emission", `the split was computed again to the bit: ${split.digest}`);
  report.recomputed = true;
  return { what: "subnet", signed, parts };
}

/** Each split before it in the log, so that no other one of this epoch was signed; the last of them is the previous one. */
async function checkEarlier(files, signed, log, vkey) {
  const wrong = (what) => refuse(what, { code: "chain", stage: "chain", where: "earlier.jsonl" });
  const rows = files.paths.includes("earlier.jsonl") ? await readJsonLines(files, "earlier.jsonl", 256 * MIB, "chain") : [];
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

/** `scheme` and `subnet`: files that the reader trusts, as their TOML is in JSON. */
const EMPTY = { key: null, auditor: null, audits: [], policy: null, checkpoint: null, scheme: null, subnet: null, bulk: null, progress: () => {}, now: 0 };

/** What single files are, by what they say of themselves. */
async function checkFile(text, options, report) {
  if (/^c2sp\.org\/tlog-proof@v1\n/.test(text)) throw new Unsupported("a log proof alone: drop the receipt that carries it");
  const value = parse(text, { code: "receipt" });
  const schema = isObject(value) ? value.schema : null;
  if (schema === "assay.receipt/1") return await checkReceipt(text, options, report);
  if (schema === "assay.proof/1" || schema === "assay.proof/2") return await checkProof(text, options, report);
  if (schema === "assay.audit/1") return await auditAlone(text, options, report);
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

/** The files of a folder, by their paths in it. */
const within = (files, folder) => ({
  root: (files.root ?? "") + folder,
  ...Object.fromEntries(["paths", "audits"].map((name) => [name, (files[name] ?? []).filter((path) => path.startsWith(folder)).map((path) => path.slice(folder.length))])),
  read: (path, limit) => files.read(folder + path, limit),
  stream: (path) => files.stream(folder + path),
});

/** Paths of one folder within which everything is: a tar may begin with a folder's name. */
export function inFolder(files) {
  const roots = ["receipts/", "emission.receipt", "inputs.json"];
  if (files.paths.some((path) => roots.some((root) => path.startsWith(root)))) return files;
  const first = files.paths[0]?.split("/")[0];
  if (first === undefined || !files.paths.every((path) => path.startsWith(`${first}/`))) return files;
  return inFolder(within(files, `${first}/`));
}

/** Whether an audit is in a bundle's own folder `audits/`, or lies beside the bundle. */
const isCarried = (path, { root = "" }) => path.startsWith(root) && /^(competitions\/[0-9]+\/)?audits\/[^/]+\.audit$/.test(path.slice(root.length));

/**
 * Checks what is dropped: `files`, a folder or an archive, or the `text` of one file. Gives the report; a fault is in `report.fault` (Refused) or
 * `report.unsupported`.
 */
export async function verify({ files = null, text = null }, options = {}) {
  const report = new Report();
  const all = { ...EMPTY, ...options };
  try {
    if (files === null) Object.assign(report, { found: await checkFile(text, all, report) });
    else {
      const isAudit = (path) => path.endsWith(".audit");
      const audits = files.paths.filter(isAudit).sort();
      const inner = inFolder({ ...files, paths: files.paths.filter((path) => !isAudit(path)), audits, stream: (path) => files.stream(path) });
      for (const path of audits) if (!isCarried(path, inner)) all.audits = [...all.audits, { path, text: await readText(files, path, LIMITS.receipt, "audit") }];
      const subnet = inner.paths.includes("emission.receipt");
      Object.assign(report, { found: await (subnet ? checkSubnet : checkBundle)(inner, all, report) });
    }
    if (all.subnet !== null && !["split", "subnet"].includes(report.found.what)) report.not("emission", "this is no signed split, so your subnet file was not compared with anything");
    if (all.audits.length && !report.found.audits) report.not("audit", "an audit is of a bundle, so your file was not compared with anything");
    report.verified = true;
    report.witnessed = Boolean(all.policy);
  } catch (error) {
    if (error instanceof Unsupported) report.unsupported = error.message;
    else if (error instanceof Refused) report.fault = error;
    else throw error;
  }
  return report;
}
