// A subnet's signed split, and that it follows from its competitions. SPEC 4, 6; docs/verify.md, "A subnet".

import * as read from "./fields.js";
import { toHex } from "./bytes.js";
import { decimal, fractionOf } from "./exact.js";
import { refuse, Refused, under } from "./errors.js";
import { isObject } from "./json.js";
import { difference, readSplit } from "./document.js";
import { split as compute } from "./emission.js";
import { before, checkSubject, nullable, openReceipt, openSigned, software, STATEMENT, subjects } from "./receipts.js";
import { readCase } from "./case.js";
import { readVkey } from "./notes.js";
import { settleCase } from "./standing.js";

const wrong = (what, detail = {}) => refuse(what, { code: "emission", stage: "emission", ...detail });

const { object, oneOf } = read;
const rules = object({
  encoding: oneOf("round", "exact-sum", "max-upscale"), burn_uid: read.integer(0, 65535), emission: nullable(read.pattern(/^(0|[1-9][0-9]*)$/, "rao")), unearned: oneOf("burn", "others"),
});
const splitStatement = object({
  _type: oneOf(STATEMENT), subject: subjects, predicateType: oneOf("assay:emission/v1"),
  predicate: object({ subnet: read.key, epoch: read.epoch, rules, split: readSplit, previous: before, software }),
});

/** A signed split by the subnet's key. Each competition is there once, with its log's key and its receipt. */
export async function openSplit(value, vkey) {
  const own = readVkey(vkey, [1], "receipt");
  const receipt = await openSigned(value, own, { schema: "assay.emission-receipt/1", reader: splitStatement, logCode: "receipt" });
  const { subnet, epoch, split, previous } = receipt.predicate;
  const refused = (what) => refuse(what, { code: "receipt", stage: "receipt" });
  checkSubject(receipt.statement, `${subnet} epoch ${epoch}`, split.digest);
  if (split.epoch !== epoch) refused("the split is of another epoch than its statement");
  if (!split.receipts || split.competitions.length === 0 || split.receipts.length !== split.competitions.length) refused("the split does not name a receipt of each competition");
  split.receipts.forEach((row, i) => {
    readVkey(row.log, [1], "receipt");
    if (row.epoch !== epoch || row.competition !== split.competitions[i].name) refused(`the receipt of ${row.competition} is of another epoch or competition`);
  });
  const keys = split.receipts.map((row) => toHex(readVkey(row.log).key) + readVkey(row.log).name);
  if (new Set(keys).size !== keys.length || new Set(split.receipts.map((row) => row.digest)).size !== keys.length) refused("a log or a receipt stands twice");
  if (keys.includes(toHex(own.key) + own.name)) refused("the subnet's own log stands in the place of a competition's");
  if (previous !== null && previous.epoch >= epoch) refused("the split before is not of an earlier epoch");
  return receipt;
}

/** Compares a signed split with a subnet file (its TOML as JSON) that the reader trusts. */
export function compareWithFile({ predicate: { rules, split } }, file) {
  for (const [field, fallback] of [["encoding", "round"], ["burn_uid", 0], ["emission", null], ["unearned", "burn"]]) {
    const expected = file[field] ?? fallback;
    if (expected !== rules[field]) wrong(`${field} is another than the subnet file's`, { where: field, expected, found: rules[field] });
  }
  const listed = Array.isArray(file.competitions) ? file.competitions : [];
  if (listed.length !== split.competitions.length) wrong("the split has not as many competitions as the subnet file", { expected: listed.length, found: split.competitions.length });
  listed.forEach((row, i) => {
    const share = isObject(row) ? fractionOf(row.share) : null;
    const expected = share === null ? null : decimal(share);
    if (expected !== split.competitions[i].share) wrong(`the part of ${split.competitions[i].name} is another than the subnet file's`, { where: `competitions[${i}].share`, expected, found: split.competitions[i].share });
    if (row.log !== undefined && row.log !== split.receipts[i].log) wrong(`the log of ${split.competitions[i].name} is another than the subnet file's`, { where: `competitions[${i}].log`, expected: row.log, found: split.receipts[i].log });
  });
}

/** Computes the split again. `parts`: {document, settlement, exact} of each competition, in order. */
export function recompute({ predicate: { rules, split } }, parts) {
  const shares = split.competitions.map((row) => fractionOf(row.share));
  let computed;
  try {
    const asked = { ...rules, emission: rules.emission ?? undefined };
    computed = compute(asked, parts.map((part, i) => ({ ...part, share: shares[i] })), split.receipts);
  } catch (error) {
    if (error instanceof Refused) Object.assign(error, { code: "emission", stage: "emission" });
    throw error;
  }
  const differs = difference(computed, split);
  if (differs) wrong(`${differs.where} of the split differs`, differs);
}

/** A case of kind emission-receipt. */
export async function checkSplit({ receipt, key, competitions, subnet }) {
  const signed = await openSplit(receipt, key);
  const { split } = signed.predicate;
  if (split.competitions.reduce((total, row) => total + fractionOf(row.share), 0n) > 10n ** 9n) wrong("the parts are more than 1");
  if (subnet !== null) compareWithFile(signed, subnet);
  if (competitions === null) return signed;
  if (competitions.length !== split.competitions.length) refuse("all competitions are given, or none", "competitions");
  const parts = [];
  for (const [i, row] of competitions.entries()) {
    const own = await openReceipt(row.receipt, split.receipts[i].log);
    if (own.digest !== split.receipts[i].digest) wrong("the split names another receipt", { expected: split.receipts[i].digest, found: own.digest });
    const found = under("competitions", () => readCase(row.case));
    const settled = settleCase(found);
    if (settled.settlement.digest !== own.predicate.settlement) refuse("the receipt is of another settlement", { code: "competitions", expected: own.predicate.settlement, found: settled.settlement.digest });
    parts.push({ document: found.document, ...settled });
  }
  recompute(signed, parts);
  return signed;
}
