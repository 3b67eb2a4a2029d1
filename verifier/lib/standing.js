// Records → votes: which records stand (SPEC 3.0), whose each is, and the score of each participant by each validator (SPEC 2).
// Many records of kind tests make votes in bulk.js, without this.

import { refuse } from "./errors.js";
import { readTasks } from "./inputs.js";
import { canonical } from "./json.js";
import { aboutParticipants } from "./records.js";
import { brokenKey, kindOf } from "./score.js";
import { owners, settle } from "./settle.js";

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

/** The first accepted record of each key; two different ones without two different seqs are refused. SPEC 3.0. */
export function firstAccepted(records) {
  const first = new Map();
  for (const record of records) {
    const about = keyOf(record);
    const known = first.get(about);
    if (known === undefined) {
      first.set(about, record);
      continue;
    }
    const same = contentOf(known) === contentOf(record);
    if (!same && (known.seq === undefined || record.seq === undefined || known.seq === record.seq))
      refuse(`evidence: two different records of one key by ${JSON.stringify(record.validator)}, and no seq says which was first`, { code: "evidence", where: "evidence" });
    if (record.seq !== undefined && (known.seq === undefined || record.seq < known.seq)) first.set(about, record);
  }
  return [...first.values()];
}

/** The records that can count: of epochs up to this one, not older than the scheme allows, and the first accepted of each key. */
export function standing({ document, epoch, records }) {
  const age = document.scheme.consensus.max_age_epochs;
  return firstAccepted(records.filter((record) => record.epoch <= epoch && (age === undefined || record.epoch >= epoch - age)));
}

/** Participant → validator → vote. `counting`: the records that can count. */
export function votesOf({ document: { scheme, participants, tasks: lines }, epoch }, counting) {
  const kind = scheme.score.kind;
  const tasks = kind === "tests" ? readTasks(lines).map(({ id }) => id) : undefined;
  const { of } = owners(kind, participants);
  const byParticipant = new Map(participants.map(({ key }) => [key, []]));
  for (const record of counting) byParticipant.get(of(record))?.push(record);
  // A service error takes the task of that validator and epoch out for every participant.
  const broken = new Set(counting.filter((record) => record.outcome === "service-error").map(brokenKey));
  return new Map([...byParticipant].map(([key, own]) => [key, kindOf(kind).score(scheme.score, tasks, own, { epoch, broken })]));
}

/** The settlement of a case, from its records. */
export const settleCase = (context) => settle(context, votesOf(context, standing(context)));
