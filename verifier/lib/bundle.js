// What a reader drops: a bundle, perhaps with audits of it, a receipt, a participant's proof, a signed split, a proof of a fork. Each is checked stage by stage; the
// report keeps what was checked before the first fault. docs/verify.md.
//
// Files are {paths, read(path, limit) → Promise of bytes, lines?(path)}; paths are relative, with "/". Inside, `audits` has the paths of signed audits, and `paths` all others.
//
// What computes an epoch again is loaded when there is an epoch: a receipt or a proof needs half as much.

import { concat, equal, fromUtf8, toBase64 } from "./bytes.js";
import { refuse, Refused, Unsupported } from "./errors.js";
import { digestOfJson, isObject, isTextOf, parse, parseWritten } from "./json.js";
import { noteKeyId } from "./keys.js";
import { checkTiles, openCheckpoint, readVkey } from "./notes.js";
import { staged } from "./receipts.js";

const MIB = 1 << 20;
/** The largest file of each name that is read; a larger one is refused by name. */
export const LIMITS = { "inputs.json": 256 * MIB, "previous.json": 256 * MIB, "settlement.json": 256 * MIB, "batches.jsonl": 1024 * MIB, "earlier.jsonl": 256 * MIB, receipt: 4 * MIB, tile: MIB, evidence: 4096 * MIB, proof: 64 * MIB };
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

export const several = (number, what, plural = `${what}s`) => `${String(number).replace(/\B(?=(?:[0-9]{3})+$)/g, " ")} ${number === 1 ? what : plural}`;

export async function readText(files, path, limit, stage) {
  const bytes = await files.read(path, limit).catch((error) => refuse(`${path}: ${error.message}`, { code: stage, stage, where: path }));
  if (bytes === null) refuse(`${path} is missing`, { code: stage, stage, where: path });
  try {
    return fromUtf8(bytes);
  } catch {
    refuse(`${path}: is not UTF-8`, { code: stage, stage, where: path });
  }
}

const readJson = async (files, path, limit, stage) => jsonOf(await readText(files, path, limit, stage), path, stage);

export function jsonOf(text, path, stage) {
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

/** The values of lines of JSON, one after the other. */
export function* jsonLines(text, path, stage) {
  let number = 0;
  for (const line of linesOf(text)) {
    number++;
    yield staged(stage, () => {
      try {
        return parseWritten(line, { code: stage });
      } catch (error) {
        if (error instanceof Refused) Object.assign(error, { message: `${path}, line ${number}: ${error.message}`, where: `${path}, line ${number}` });
        throw error;
      }
    });
  }
}

export const readJsonLines = async (files, path, limit, stage) => [...jsonLines(await readText(files, path, limit, stage), path, stage)];

/** The key that a receipt, or an audit, names itself, as a vkey: only so good as whoever sent it. */
export function namedKey(value, what = "receipt") {
  const receipt = typeof value === "string" ? parse(value, { code: what }) : value;
  const keyid = receipt?.envelope?.signatures?.[0]?.keyid;
  const origin = /\n\n([^\n]+)\n/.exec(String(receipt?.proof ?? ""))?.[1];
  const match = /^ed25519:([0-9a-f]{64})$/.exec(String(keyid ?? ""));
  if (!match || !origin) refuse(`the ${what} does not name the key that signed it`, { code: what, stage: what });
  const data = concat(Uint8Array.of(1), Uint8Array.from(match[1].match(/../g), (byte) => Number.parseInt(byte, 16)));
  return `${origin}+${noteKeyId(origin, data)}+${toBase64(data)}`;
}

export const whoSigned = (key, given) => (given ? `signed by the log's key ${key}` : `signed by ${key}, which the receipt names itself: compare it with the log's`);

/** A log's folder: its tiles lead to its checkpoint, which agrees with what the receipts say. */
export async function readLog(files, folder, key, report) {
  const checkpoint = await openCheckpoint(await readText(files, `${folder}/checkpoint`, MIB, "log"), [key]);
  const tiles = new Map();
  for (const path of files.paths) if (path.startsWith(`${folder}/tile/`)) tiles.set(path.slice(folder.length + 1), await files.read(path, LIMITS.tile));
  const { entries, leaves } = staged("log", () => checkTiles((path) => tiles.get(path) ?? null, checkpoint, "log"));
  report.did("log", `the tiles of ${folder} lead to a signed checkpoint of ${several(entries.length, "entry", "entries")}`);
  return { checkpoint, entries, leaves };
}

export async function checkKept(log, note, key, report) {
  const seen = await openCheckpoint(note, [key]).catch((error) => {
    if (error instanceof Refused) Object.assign(error, { code: "consistency", stage: "consistency" });
    throw error;
  });
  const { checkSeen } = await import("./history.js");
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
export async function checkBundle(files, options, report) {
  const { progress } = options;
  const { checkBefore, checkChain, checkInputs, checkResults, checkSettlement } = await import("./epoch.js");
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
  if (options.policy) await (await import("./witnesses.js")).witnessed(report, log.checkpoint, options.policy, options.now);
  report.did("chain", `${several(chain.length, "receipt")} from the first to this one, each naming the one before`);
  const before = await checkBefore(chain, files.paths.includes("previous.json") ? await readJson(files, "previous.json", LIMITS["previous.json"], "chain") : null);
  const inputs = await readJson(files, "inputs.json", LIMITS["inputs.json"], "inputs");
  const found = await evidence(files, options, chain, inputs);
  report.did("evidence", `${several(found.count, "record")} under ${several(chain.length, "evidence root")}`);
  const signed = await found.checkBatches(await readJsonLines(files, "batches.jsonl", LIMITS["batches.jsonl"], "signatures"), { origin: checkpoint.origin, competition: predicate.competition });
  report.did("signatures", `${several(signed.batches, "batch", "batches")} by ${several(signed.validators.size, "validator")}`);
  const document = await checkInputs(inputs, receipt);
  await (await import("./reward.js")).loadRules(document.scheme);
  const own = options.scheme === null ? "" : ", which is your file's";
  if (own) await sameScheme(options.scheme, predicate.scheme);
  report.did("inputs", `${several(document.participants.length, "participant")}, ${several(document.validators.length, "validator")}, scheme ${predicate.scheme}${own}`);
  progress("settlement", 0);
  const previous = before === null ? null : await previousOf(before, document, predicate.epoch);
  const { computed, context, rests } = found.settle(document, previous, predicate, signed);
  // A file that is the computed settlement, letter by letter, is not read field by field.
  const settlement = await readText(files, "settlement.json", LIMITS["settlement.json"], "settlement");
  const same = isTextOf(settlement.trimEnd(), computed);
  await checkSettlement(same ? computed : jsonOf(settlement, "settlement.json", "settlement"), computed, receipt);
  report.did("settlement", `computed again to the bit: ${computed.digest}`);
  report.recomputed = true;
  checkResults(computed, rests(), receipt);
  report.did("results", `${several(computed.agreed.length, "result")} under their root`);
  const [own_, audits] = [[], []];
  for (const path of carried(files)) own_.push({ path, text: await readText(files, path, LIMITS.receipt, "audit"), carried: true });
  for (const audit of [...own_, ...options.audits]) {
    const checked = await (await import("./audited.js")).auditOf(audit, receipt, { settlement: computed, context }, options, report);
    if (checked !== null) audits.push(checked);
  }
  for (const { key, failed_audit } of document.validators)
    if (document.scheme.audit?.failed && failed_audit && !audits.some((audit) => audit.digest === failed_audit)) report.not("audit", `${key} is left out for the audit ${failed_audit}, which is not here`);
  const other = files.paths.find((path) => !KNOWN.test(path));
  if (other !== undefined) report.not("inputs", `${other} is no file of a bundle, and was not looked at`);
  return { what: "bundle", settlement: computed, context, chain, audits };
}

/** The settlement before, as far as the next one continues it. */
async function previousOf(before, document, epoch) {
  const { readPrevious } = await import("./document.js");
  return staged("settlement", () => readPrevious(before, document, epoch));
}

/** The signed audits that a bundle carries. */
const carried = ({ audits = [] }) => audits.filter((path) => /^audits\/[^/]+\.audit$/.test(path));

/** A scheme that the reader trusts, its TOML as JSON. */
export async function sameScheme(file, digest) {
  const [{ readScheme }, { loadKinds }] = await Promise.all([import("./scheme.js"), import("./score.js")]);
  await loadKinds([file?.score?.kind]);
  const found = staged("inputs", () => digestOfJson(readScheme(file)));
  if (found !== digest) refuse("the receipt's scheme is another than your file's", { code: "inputs", stage: "inputs", where: "scheme", expected: found, found: digest });
}

const countOf = (chain) => chain.reduce((total, { predicate }) => total + predicate.evidence.count, 0);

/** The records of a bundle, in bulk where that is possible, and what is computed from them. */
async function evidence(given, options, chain, inputs) {
  const paths = evidenceFiles(given);
  if (countOf(chain) >= options.bulkFrom) await import("./sha4.js");
  const files = [...paths.values()].some((path) => path.endsWith(".parquet")) ? (await import("./parquet.js")).asLines(given) : given;
  if (options.bulk && options.audits.length === 0 && carried(given).length === 0 && countOf(chain) >= options.bulkFrom && isObject(inputs) && isObject(inputs.scheme) && inputs.scheme.score?.kind === "tests") {
    const bulk = await options.bulk();
    return await bulk(files, paths, chain, options.progress);
  }
  const { oneByOne } = await import("./evidence.js");
  return await oneByOne(files, paths, chain, inputs, options.progress);
}

/**
 * `bulkFrom`: from so many records on, what is made for many is loaded. `scheme` and `subnet`: files that the reader trusts, as their TOML is in JSON.
 * `shows`: the policy whose witnesses show when a receipt was witnessed, where that is not demanded of the bundle itself.
 */
const EMPTY = { key: null, auditor: null, audits: [], policy: null, shows: null, checkpoint: null, scheme: null, subnet: null, bulk: null, bulkFrom: 0, progress: () => {}, now: 0 };

/** The files of a folder, by their paths in it. */
export const within = (files, folder) => ({
  root: (files.root ?? "") + folder,
  ...Object.fromEntries(["paths", "audits"].map((name) => [name, (files[name] ?? []).filter((path) => path.startsWith(folder)).map((path) => path.slice(folder.length))])),
  read: (path, limit) => files.read(folder + path, limit),
  stream: (path) => files.stream(folder + path),
});

/** A path of a folder or an archive as it is inside; refused if it leads out. */
export function safePath(path) {
  const plain = path.replace(/^(\.\/)+/, "");
  if (plain === "" || plain.startsWith("/") || /[\\\u0000-\u001f]/.test(plain) || /^[A-Za-z]:/.test(plain) || plain.split("/").some((part) => part === ".." || part === ".")) refuse(`the path ${JSON.stringify(path.slice(0, 100))} leads out of the archive`);
  return plain;
}

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
    if (files === null) Object.assign(report, { found: await (await import("./single.js")).checkFile(text, all, report) });
    else {
      const isAudit = (path) => path.endsWith(".audit");
      const audits = files.paths.filter(isAudit).sort();
      const inner = inFolder({ ...files, paths: files.paths.filter((path) => !isAudit(path)), audits, stream: (path) => files.stream(path) });
      for (const path of audits) if (!isCarried(path, inner)) all.audits = [...all.audits, { path, text: await readText(files, path, LIMITS.receipt, "audit") }];
      const subnet = inner.paths.includes("emission.receipt");
      Object.assign(report, { found: await (subnet ? (await import("./single.js")).checkSubnet : checkBundle)(inner, all, report) });
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
