// A case: scheme, registry, tasks, evidence and the settlement before, read and checked as a whole. docs/formats.md, "A case".

import * as read from "./fields.js";
import { Refused, refuse, under } from "./errors.js";
import { readPrevious } from "./document.js";
import { checkResets, readInputs } from "./inputs.js";
import { isObject } from "./json.js";
import { readRecord } from "./records.js";

const { list } = read;
const FIELDS = ["scheme", "epoch", "participants", "validators", "tasks", "history", "randomness", "evidence", "previous", "registry"];

/** Evidence as records, each checked against the inputs; and of two records of one key that both count, which was first must be known. */
export function readEvidence(rows, document) {
  const participants = new Set(document.participants.map((row) => row.key));
  const validators = new Set(document.validators.map((row) => row.key));
  const records = list((row, path) => {
    try {
      return readRecord(row);
    } catch (error) {
      if (error instanceof Refused) error.message = `${path}: ${error.message}`;
      throw error;
    }
  })(rows, "evidence");
  records.forEach((record, i) => {
    if (record.kind !== document.scheme.score.kind) refuse(`evidence[${i}].kind: the scheme scores ${document.scheme.score.kind}`, { where: `evidence[${i}].kind` });
    if (!validators.has(record.validator)) refuse(`evidence[${i}].validator: ${JSON.stringify(record.validator)} is not in the registry`, { where: `evidence[${i}].validator` });
    if (!participants.has(record.participant)) refuse(`evidence[${i}].participant: ${JSON.stringify(record.participant)} is not in the registry`, { where: `evidence[${i}].participant` });
  });
  return records;
}

/** Checks of the epoch: what depends on which one is settled. */
function readEpoch(value, records) {
  if (value !== undefined && value !== null) return under("epoch", () => read.epoch(value, "epoch"));
  if (records.length === 0) refuse("no epoch is given, and there is no evidence", { code: "cannot-settle" });
  return records.reduce((latest, record) => Math.max(latest, record.epoch), 0);
}

/** A case as {document, epoch, records, previous}. `records` are all of its evidence; standing.js takes what counts. */
export function readCase(value) {
  if (!isObject(value)) refuse("a case is an object", "input");
  for (const field of Object.keys(value)) if (!FIELDS.includes(field)) refuse(`${field}: there is no such field`, "input");
  const document = readInputs(value);
  const records = under("evidence", () => readEvidence(value.evidence ?? [], document));
  const epoch = readEpoch(value.epoch, records);
  checkResets(document, epoch);
  const previous = under("previous", () => readPrevious(value.previous ?? null, document, epoch));
  return { document, epoch, records, previous };
}
