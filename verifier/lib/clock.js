// The two clocks from which decay counts. SPEC 4, Decay.

import { byUtf8, max, NANO } from "./exact.js";
import { nanos } from "./scheme.js";

const STANDARD = { reset: "improvement", improvement: "0.02", improvement_mode: "relative" };

/** Whether a score resets a record: by the improvement asked for, or by reaching 1 for the first time. */
function beats(rules, score, record) {
  if (score === NANO && record < NANO) return true;
  const theta = nanos(rules.improvement);
  return rules.improvement_mode === "relative" ? score * NANO >= record * (NANO + theta) : score >= record + theta;
}

/** The competition's clock after one step: the best new score of an epoch. The record is the score at the last reset. */
function step(rules, state, { epoch, score, submission }) {
  if (score === 0n) return state;
  if (state.record === null || beats(rules, score, state.record)) return { record: score, last: epoch, submission };
  return state;
}

const EMPTY = { record: null, last: null, submission: null };
const changed = (before, now) => Boolean(before) && Boolean(now) && before !== now;

function fromHistory(rules, history, epoch, taskSet) {
  let [state, set] = [EMPTY, null];
  for (const row of history.filter((row) => row.epoch < epoch)) {
    if (changed(set, row.task_set)) state = EMPTY;
    set = row.task_set || set;
    const isNew = !row.submission || row.submission !== state.submission;
    if (isNew) state = step(rules, state, { epoch: row.epoch, score: nanos(row.top_score), submission: row.submission ?? "" });
  }
  return changed(set, taskSet) ? EMPTY : state;
}

/**
 * Both clocks after an epoch. `agreed`, in ranking order: participant, submission, score (nanos), last_reset_epoch.
 * `previous`: {task_set, record, last, submission, participants} of the settlement before, or null. Scores inside are nanos.
 */
export function clocks(decay, { epoch, taskSet, previous, history, agreed }) {
  const rules = { ...STANDARD, ...decay };
  const restart = previous !== null && changed(previous.task_set, taskSet);
  const before = new Map(previous === null || restart ? [] : previous.participants.map((clock) => [clock.participant, clock]));
  const own = new Map(before);
  const fresh = [];
  for (const row of agreed) {
    const clock = before.get(row.participant);
    const isNew = clock === undefined || row.submission === "" || row.submission !== clock.submission;
    if (isNew) fresh.push(row);
    if (clock === undefined) {
      const last = previous === null ? (row.last_reset_epoch ?? epoch) : epoch;
      own.set(row.participant, { participant: row.participant, submission: row.submission, best: row.score, last });
      continue;
    }
    const resets = isNew && (rules.reset === "update" || row.score > clock.best);
    own.set(row.participant, { participant: row.participant, submission: row.submission, best: max(clock.best, row.score), last: resets ? epoch : clock.last });
  }
  let state = previous === null ? fromHistory(rules, history, epoch, taskSet) : restart ? EMPTY : previous;
  const best = fresh.find((row) => row.submission === "" || row.submission !== state.submission);
  if (best !== undefined) state = step(rules, state, { epoch, score: best.score, submission: best.submission });
  return {
    record: state.record, last: state.last, submission: state.submission, participants: [...own.values()].sort((a, b) => byUtf8(a.participant, b.participant)),
  };
}
