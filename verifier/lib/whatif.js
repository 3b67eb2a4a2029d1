// "What if": the same evidence under another stake, threshold or cap, or with one trial or score changed. Never the settled weights.

import { nanosOf } from "./exact.js";
import { refuse } from "./errors.js";
import { readScheme } from "./scheme.js";
import { settle } from "./settle.js";
import { standing, votesOf } from "./standing.js";

/**
 * The settlement under `changes`: {stakes: {validator: text}, threshold, cap, trial: {participant, validator, task, outcome}, score: {participant,
 * validator, score}}. The context is not changed.
 */
export function whatIf(context, changes) {
  const { document } = context;
  const scheme = structuredClone({ ...document.scheme, score: { ...document.scheme.score, repositories: undefined } });
  if (document.scheme.score.repositories) scheme.score.repositories = document.scheme.score.repositories;
  else delete scheme.score.repositories;
  if (changes.threshold) scheme.consensus.outliers.threshold = changes.threshold;
  if (changes.cap && scheme.reward.kind === "weights") scheme.reward.cap = changes.cap;
  if (scheme.reward.kind === "ranking") scheme.reward = { kind: "ranking" };
  const validators = document.validators.map((row) => {
    const stake = changes.stakes?.[row.key];
    if (stake === undefined) return row;
    if (!/^[0-9]{1,18}$/.test(stake)) refuse(`the stake of ${row.name ?? row.key} is a string of digits`);
    return { ...row, stake: BigInt(stake).toString() };
  });
  const changed = { ...context, document: { ...document, scheme: readScheme(scheme), validators } };
  let { votes } = context;
  if (changes.trial && context.sheets) votes = withTrial(context, changes.trial);
  else if (changes.trial) {
    const { participant, validator, task, outcome } = changes.trial;
    const isIt = (record) => record.validator === validator && record.task === task && context.whose(record) === participant;
    votes = votesOf(context, standing(context).map((record) => (isIt(record) ? { ...record, outcome } : record)));
  }
  return settle(changed, changes.score ? withScore(votes, changes.score, scheme) : votes).settlement;
}

/** The votes with another score of one participant by one validator that has one. */
function withScore(votes, { participant, validator, score }, { score: { passed_by } }) {
  const vote = votes.get(participant)?.get(validator);
  if (!vote?.work) return votes;
  if (passed_by) refuse("with passed_by = \"all\" no validator has a score of its own; change a trial");
  const own = { ...vote, score: nanosOf(score) ?? refuse("a score is a decimal string from 0 to 1") };
  return new Map(votes).set(participant, new Map(votes.get(participant)).set(validator, own));
}

/** The votes of evidence that was read in bulk, with another outcome of each trial of a task. */
function withTrial({ votes, sheets }, { participant, validator, task, outcome }) {
  const { tasks, trials, outcomes, vote } = sheets;
  const sheet = sheets.of(participant, validator)?.slice();
  if (sheet === undefined || !tasks.includes(task)) return votes;
  sheet.fill(outcomes.indexOf(outcome), tasks.indexOf(task) * trials, (tasks.indexOf(task) + 1) * trials);
  return new Map(votes).set(participant, new Map(votes.get(participant)).set(validator, vote(sheet)));
}
