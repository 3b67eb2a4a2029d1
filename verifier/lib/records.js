// Records of evidence: their canonical form and what they are about. SPEC 3.0, 7; docs/formats.md.

import * as read from "./fields.js";
import { refuse } from "./errors.js";
import { canonical, digestOfJson, isObject } from "./json.js";
import { kindOf } from "./score.js";

const { maybe, object, count } = read;

const common = { kind: read.anything, epoch: read.epoch, validator: read.key, participant: read.key, submission: read.submission, observed_at: read.instant };

/** The canonical form of a record; `seq` stays beside it, if there is one. Refused under the wrong field's name. */
export const readRecord = (value) => recordOf(value, "reader", () => ({ ...common, seq: maybe(count) }));

/** The canonical form of a row of evidence without its seq, which the caller reads. */
export const readRow = (value) => recordOf(value, "rowReader", () => common, "seq");

function recordOf(value, name, fields, beside = null) {
  if (!isObject(value)) refuse("a record is an object", { code: "input" });
  const kind = kindOf(value.kind) ?? refuse(`there is no kind ${JSON.stringify(value.kind)} of evidence`, { code: "kind", where: "kind" });
  kind[name] ??= object({ ...fields(), ...kind.fields }, { byField: true, beside });
  const found = kind[name](value, "");
  kind.checkRecord?.(found, value);
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
