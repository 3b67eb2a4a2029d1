// Signed audits as a reader meets them: in a bundle, beside one, or alone. docs/auditing.md, "In a bundle", "Leave a validator out".

import { checkAudit, openAudit, sentence, statementOf, wrongOf } from "./audit.js";
import { namedKey, several } from "./bundle.js";
import { refuse, Refused } from "./errors.js";
import { staged } from "./receipts.js";
import { checkWitnesses, readPolicy } from "./witnesses.js";

const wrong = (what, detail = {}) => refuse(what, { code: "audit", stage: "audit", ...detail });

/** The audit, opened with the auditor's key: the one that the reader gave, else the one that it names itself. */
async function opened(text, { auditor }) {
  return await openAudit(text, auditor ?? staged("audit", () => namedKey(text, "audit")));
}

/** The newest cosignature of a policy's witnesses (BigInt, seconds since 1970), or null where nobody had to sign. */
async function newest(checkpoint, policy) {
  const times = await checkWitnesses(checkpoint, staged("witnesses", () => readPolicy(policy)));
  return [...times.values()].reduce((latest, time) => (latest === null || time > latest ? time : latest), null);
}

function whose({ auditor }, { checkpoint }, report) {
  if (auditor === null) report.not("audit", `whose audit it is: it names the key ${checkpoint.key.text} itself, so compare that with the auditor's`);
}

/** Whether a policy shows T, for an audit that a bundle carries: its reader's policy may name other witnesses than the auditor's did. */
async function tellTime(witnessed, { checkpoint }, options, report) {
  const policy = options.policy ?? options.shows;
  if (policy === null) {
    if (witnessed !== null) report.not("audit", "when the receipt was witnessed, which fixes the draw: give the policy of its witnesses");
    return;
  }
  const time = await newest(checkpoint, policy).catch((error) => {
    if (error instanceof Refused) return null;
    throw error;
  });
  if ((time === null ? null : Number(time)) !== witnessed) report.not("audit", "when the receipt was witnessed, which fixes the draw: your policy's witnesses signed at another time, or not at all");
}

/** An audit of the bundle's own epoch: everything in it is made again. */
async function ofThisEpoch(audit, { carried }, receipt, { settlement, context }, options, report) {
  const { witnessed } = statementOf(audit).predicate;
  const stated = witnessed === null ? null : BigInt(witnessed);
  const witnessedAt = carried ? stated : options.policy === null ? null : await newest(receipt.checkpoint, options.policy);
  const checked = await checkAudit(audit, { receipt, document: context.document, settlement, behind: context.behind, witnessedAt });
  const { predicate } = checked;
  report.did("audit", sentence(predicate));
  if (carried) await tellTime(witnessed, receipt, options, report);
  if (predicate.randomness.source === "given") report.not("audit", "that nobody chose the randomness: it was given, and no rule fixes it");
  whose(options, audit, report);
  report.not("audit", "what was seen is the auditor's word: who doubts it runs the same trials again");
  return checked;
}

/** An audit for which the registry marks validators, and the scheme leaves them out. */
function ofEarlierEpoch(audit, marked, receipt, options, report) {
  const { predicate } = statementOf(audit);
  const { competition, epoch } = receipt.predicate;
  if (predicate.competition !== competition) wrong("a validator is left out for an audit of another competition", { expected: competition, found: predicate.competition });
  if (predicate.epoch >= epoch) wrong(`a validator is left out for an audit of epoch ${predicate.epoch}, which is no earlier one`, { found: predicate.epoch });
  const counts = wrongOf(predicate);
  for (const { key } of marked) {
    const { judged, wrong: lies } = counts.get(key) ?? { judged: 0, wrong: 0 };
    if (lies === 0) wrong(`${key} is left out, and the audit saw no false claim of it`, { whose: key });
    report.did("audit", `${key} is left out: in epoch ${predicate.epoch}, ${lies} of its ${several(judged, "claim")} that were judged again were false`);
  }
  whose(options, audit, report);
  report.not("audit", `the audit itself was not made again: that takes the bundle of epoch ${predicate.epoch}`);
  return { ...audit, predicate };
}

/**
 * One audit, {path, text, carried}: `carried` if it is in the bundle's own folder. Gives it with its digest and predicate; null if it was not checked: the bundle
 * carries it because the registry marks a validator with it, and the scheme leaves nobody out.
 */
export async function auditOf(given, receipt, epoch, options, report) {
  options.progress("audit", 0);
  try {
    const audit = await opened(given.text, options);
    const { scheme, validators } = epoch.context.document;
    const marked = validators.filter(({ failed_audit }) => failed_audit === audit.digest);
    if (marked.length && scheme.audit?.failed === "leave-out") return ofEarlierEpoch(audit, marked, receipt, options, report);
    if (marked.length === 0 || !given.carried) return await ofThisEpoch(audit, given, receipt, epoch, options, report);
    report.not("audit", `${given.path}: it marks ${marked.map(({ key }) => key).join(", ")}, and the scheme leaves nobody out`);
    return null;
  } catch (error) {
    if (error instanceof Refused) error.message = `${given.path}: ${error.message}`;
    throw error;
  }
}

/** An audit without its epoch: who signed it, and what it says. */
export async function auditAlone(text, options, report) {
  const audit = await opened(text, options);
  const { predicate } = statementOf(audit);
  report.did("audit", `signed, and entry ${audit.index} of ${audit.checkpoint.size} in ${audit.checkpoint.origin}`);
  whose(options, audit, report);
  report.not("audit", `it says of ${predicate.competition} epoch ${predicate.epoch}: ${sentence(predicate)}. Nothing was made again: drop it together with the bundle of that epoch`);
  return { what: "audit", audits: [{ ...audit, predicate }] };
}
