// What the report says of signed audits: beside a bundle, within it, or alone. docs/auditing.md, "In a bundle".

import { checkAudit, openAudit, sentence } from "./audit.js";
import { jsonOf, namedKey } from "./bundle.js";
import { refuse } from "./errors.js";
import { checkWitnesses, readPolicy } from "./witnesses.js";

/**
 * A signed audit of this epoch: the draw, the martingale and the verdict are made again from what was seen. Of one that the bundle carries, the time at
 * which the receipt was witnessed is the one that it states; the report says whether the policy shows it. docs/auditing.md, "In a bundle".
 */
export async function auditOf({ path, text, carried: within = false }, receipt, { settlement, context }, options, report) {
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
async function newest({ checkpoint }, options) {
  const policy = options.policy ?? options.shows;
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
export async function auditAlone(text, options, report) {
  const key = options.auditor ?? namedKey(text);
  const audit = await openAudit(text, key);
  const predicate = audit.predicate();
  report.did("audit", `${predicate.competition} epoch ${predicate.epoch}: entry ${audit.index} of ${audit.checkpoint.size} in ${audit.checkpoint.origin}, signed by ${key}${options.auditor ? "" : ", which it names itself"}`);
  report.not("audit", `that it follows from the epoch: drop it together with the bundle. It states: ${sentence(predicate)}`);
  return { what: "audit", audits: [{ predicate, index: audit.index, size: audit.checkpoint.size, digest: audit.digest }] };
}
