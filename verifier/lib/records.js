// Records of evidence: their canonical form and what they are about. SPEC 3.0, 7; docs/formats.md.

import * as read from "./fields.js";
import { nanos } from "./scheme.js";
import { refuse } from "./errors.js";
import { canonical, digestOfJson, isObject } from "./json.js";

const { or, maybe, object, count, oneOf, amount } = read;

const common = { kind: read.anything, epoch: read.epoch, validator: read.key, participant: read.key, submission: read.submission, observed_at: read.instant, seq: maybe(count) };
const quotes = (value, path) => {
  if (!isObject(value) || Object.values(value).some((quote) => typeof quote !== "string")) refuse(`${path}: quotes are texts by check`, { where: path });
  return value;
};
/** What a judge said is kept as it came; null is as if it were absent. */
const asItCame = maybe(read.anything);

/** An answer of a panel, as it came. */
export const readAnswer = object({ judge: read.key, outcome: or("judged", oneOf("judged", "unjudged")), baseline: asItCame, checks: asItCame, verdict: asItCame });

const FIELDS = {
  tests: { task: read.task, outcome: oneOf("pass", "fail", "timeout", "error"), trial: or(1, read.integer(1, read.BILLION)), image: maybe(read.submission), work: maybe(read.submission) },
  workflow: {
    task: read.task, quality: or("0", read.score), steps_completed: or(0, count), steps_total: or(0, count), cost: or("0", amount), budget: or("0", amount),
    seconds: or("0", amount), max_seconds: or("0", amount), retries: or(0, count), declared_retries: or(0, count), timeouts: or(0, count),
    hard_failures: or(0, count), outcome: or("ran", oneOf("ran", "invalid", "service-error")),
  },
  rubric: {
    baseline: asItCame, checks: asItCame, verdict: asItCame, outcome: or("judged", oneOf("judged", "unjudged")), injection_suspected: maybe(read.boolean),
    attestation: maybe(read.submission), quotes: maybe(quotes), panel: maybe(read.list(readAnswer, { least: 1, most: 100 })),
  },
  points: { repository: read.key, valid: or(0, count), invalid: or(0, count), revoked_valid: or(0, count), revoked_invalid: or(0, count), starred: or(false, read.boolean) },
  given: { score: read.score },
};
const READERS = Object.fromEntries(Object.entries(FIELDS).map(([kind, fields]) => [kind, object({ ...common, ...fields }, { byField: true })]));
const RAN = ["quality", "steps_completed", "steps_total", "cost", "budget", "seconds", "max_seconds"];

/** A task of a workflow: what its numbers must be, whatever else a record has. */
export function checkTask(task, given) {
  if (task.steps_completed > task.steps_total) refuse("steps_completed is more than steps_total", { code: "input", where: "steps_completed" });
  if (task.outcome !== "ran") return;
  for (const field of RAN) if (!(field in given)) refuse(`${field} is missing: a task that ran has it`, { code: "input", where: field });
  if (nanos(task.budget) === 0n || nanos(task.max_seconds) === 0n) refuse("budget and max_seconds are more than 0", { code: "input", where: "budget" });
  if (task.steps_total === 0) refuse("steps_total is more than 0", { code: "input", where: "steps_total" });
}

/** The `task` of a case of kind workflow: a record's numbers alone. */
export const readTask = (value) => {
  const found = object(Object.fromEntries(Object.entries(FIELDS.workflow).filter(([field]) => field !== "task")), { byField: true })(value, "");
  checkTask(found, value);
  return found;
};

/** The canonical form of a record; `seq` stays beside it, if there is one. Refused under the wrong field's name. */
export function readRecord(value) {
  if (!isObject(value)) refuse("a record is an object", { code: "input" });
  if (typeof value.kind !== "string" || !Object.hasOwn(READERS, value.kind)) refuse(`there is no kind ${JSON.stringify(value.kind)} of evidence`, { code: "kind", where: "kind" });
  const found = READERS[value.kind](value, "");
  if (value.kind === "workflow") checkTask(found, value);
  return found;
}

/** A record without what the ledger added. */
export function withoutSeq(record) {
  const { seq, ...rest } = record;
  return rest;
}

export const recordText = (record) => canonical(withoutSeq(record));
export const recordDigest = (record) => digestOfJson(withoutSeq(record));

/** Whether records of this kind are about a participant, whatever it has submitted. */
export const aboutParticipants = (kind) => kind === "workflow" || kind === "points";

/** What a record is about: two records of one key are one fact, and the first accepted counts. No text has a line end in it. */
export function keyOf(record) {
  const { validator, participant, submission, epoch, task } = record;
  const whose = submission === "" ? `\n${participant}` : submission;
  switch (record.kind) {
    case "tests": return `${validator}\n${whose}\n${task}\n${record.trial}`;
    case "workflow": return `${validator}\n${participant}\n${epoch}\n${task}`;
    case "rubric": return `${validator}\n${whose}`;
    case "points": return `${validator}\n${participant}\n${record.repository}\n${epoch}`;
    default: return `${validator}\n${whose}\n${epoch}`;
  }
}

/** What makes two records of one key different: everything but seq, and but the participant where the key names the submission. */
export function contentOf(record) {
  const { seq, participant, ...rest } = record;
  return canonical(aboutParticipants(record.kind) || record.submission === "" ? { ...rest, participant } : rest);
}
