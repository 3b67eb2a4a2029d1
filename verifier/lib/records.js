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
