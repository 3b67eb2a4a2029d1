// A subnet's signed split, and that it follows from its competitions. SPEC 4, 6; docs/verify.md, "A subnet".

import { decimal, fractionOf } from "./exact.js";
import { refuse, Refused, under } from "./errors.js";
import { isObject } from "./json.js";
import { difference } from "./document.js";
import { split as compute } from "./emission.js";
import { openReceipt, openSplit } from "./receipts.js";
import { readCase } from "./inputs.js";
import { settle } from "./settle.js";

const wrong = (what, detail = {}) => refuse(what, { code: "emission", stage: "emission", ...detail });

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
    const settled = settle(found);
    if (settled.settlement.digest !== own.predicate.settlement) refuse("the receipt is of another settlement", { code: "competitions", expected: own.predicate.settlement, found: settled.settlement.digest });
    parts.push({ document: found.document, ...settled });
  }
  recompute(signed, parts);
  return signed;
}
