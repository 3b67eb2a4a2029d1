// What trials say of tasks: dead, flaky, never-separating, negative. It is counting, and no score depends on it. docs/task-health.md.

import { ratioText } from "./exact.js";

const LEAST = 3; // participants, before any word is used
const LEAST_PAIRS = 10;

const plus = ([a, b], [c, d]) => [a * d + c * b, b * d];
const ZERO = [0n, 1n];

/** n/d in lowest terms, so that sums over many tasks stay short. */
function reduced([n, d]) {
  let [a, b] = [n < 0n ? -n : n, d];
  while (b) [a, b] = [b, a % b];
  return a > 1n ? [n / a, d / a] : [n, d];
}

/** One participant's trials of one task. An error is no trial. */
function tally(outcomes) {
  const passed = outcomes.filter((outcome) => outcome === "pass").length;
  const errors = outcomes.filter((outcome) => outcome === "error").length;
  const trials = outcomes.length - errors;
  return { passed, failed: trials - passed, errors, trials };
}

const count = (rows, number) => rows.reduce((total, row) => total + number(row), 0);

/** The mean of these participants' rests; null if there are none. A rest: the mean of passed / trials over the other tasks that a participant tried. */
function meanRest(rows, tried) {
  if (rows.length === 0) return null;
  const rest = ({ participant, passed, trials }) => {
    const { sum, tasks } = tried.get(participant);
    const [n, d] = plus(sum, [BigInt(-passed), BigInt(trials)]);
    return [n, d * BigInt(tasks - 1)];
  };
  const [n, d] = rows.reduce((total, row) => reduced(plus(total, rest(row))), ZERO);
  return [n, d * BigInt(rows.length)];
}

/** The row of one task. `rows`: its participants' tallies; `tried`: participant → the sum of passed / trials over all tasks it has trials of, and how many. */
function healthOf(task, rows, tried) {
  const attempted = rows.filter(({ trials }) => trials > 0);
  const repeated = attempted.filter(({ trials }) => trials > 1);
  const [passed, pairs] = [count(rows, (row) => row.passed), count(repeated, ({ trials }) => (trials * (trials - 1)) / 2)];
  const differing = count(repeated, (row) => row.passed * row.failed);
  const sided = attempted.filter(({ participant }) => tried.get(participant).tasks > 1);
  const [passers, failers] = [sided.filter((row) => row.passed > row.failed), sided.filter((row) => row.passed < row.failed)];
  const [ofPassers, ofFailers] = [meanRest(passers, tried), meanRest(failers, tried)];

  const enough = attempted.length >= LEAST;
  const isDead = enough ? passed === 0 : attempted.length === 0 && rows.filter(({ errors }) => errors > 0).length >= LEAST;
  const words = {
    dead: isDead,
    flaky: repeated.length >= LEAST && pairs >= LEAST_PAIRS && 4 * differing > pairs,
    "never-separating": enough && !isDead && attempted.every((row) => row.passed * attempted[0].trials === attempted[0].passed * row.trials),
    negative: passers.length >= LEAST && failers.length >= LEAST && ofPassers[0] * ofFailers[1] < ofFailers[0] * ofPassers[1],
  };
  const shown = (ratio) => (ratio === null ? null : ratioText(...ratio));
  return {
    task, participants: attempted.length, passed, failed: count(rows, (row) => row.failed), errors: count(rows, (row) => row.errors), repeated: repeated.length, pairs, differing,
    passers: passers.length, failers: failers.length, rest_passers: shown(ofPassers), rest_failers: shown(ofFailers), words: Object.keys(words).filter((word) => words[word]),
  };
}

/** One row a task, in their order. `results`: task, participant, and the outcomes of its trials; each pair once. */
export function taskHealth(tasks, results) {
  const byTask = new Map(tasks.map((task) => [task, []]));
  const tried = new Map();
  for (const { task, participant, outcomes } of results) {
    const row = { participant, ...tally(outcomes) };
    byTask.get(task).push(row);
    if (row.trials === 0) continue;
    const { sum, tasks: before } = tried.get(participant) ?? { sum: ZERO, tasks: 0 };
    tried.set(participant, { sum: reduced(plus(sum, [BigInt(row.passed), BigInt(row.trials)])), tasks: before + 1 });
  }
  return tasks.map((task) => healthOf(task, byTask.get(task), tried));
}
