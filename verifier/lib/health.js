// The health of tasks from the outcomes of trials: docs/task-health.md. Counts and ratios of big integers, and no model.

import { ratioText } from "./exact.js";

const LEAST = 3;
const PAIRS = 10;
const pairsOf = (count) => (count * (count - 1)) / 2;

/** The mean of ratios [n, d]; null without any. */
function mean(values) {
  if (!values.length) return null;
  const [n, d] = values.reduce(([a, b], [c, e]) => [a * e + c * b, b * e], [0n, 1n]);
  return [n, d * BigInt(values.length)];
}

/** tasks: their names; results: rows of a task, a participant and its outcomes. */
export function taskHealth(tasks, results) {
  const people = [...new Set(results.map((row) => row.participant))];
  const table = new Map(tasks.map((task) => [task, new Map()]));
  for (const { task, participant, outcomes } of results) {
    const errors = outcomes.filter((outcome) => outcome === "error").length;
    const passed = outcomes.filter((outcome) => outcome === "pass").length;
    table.get(task).set(participant, { passed, errors, trials: outcomes.length - errors });
  }
  return tasks.map((task) => one(task, people, table));
}

function one(task, people, table) {
  const own = table.get(task);
  const rows = [...own.values()];
  const tried = rows.filter((row) => row.trials);
  const total = (name) => rows.reduce((all, row) => all + row[name], 0);
  const [passed, trials, errors] = ["passed", "trials", "errors"].map(total);
  const pairs = tried.reduce((all, row) => all + pairsOf(row.trials), 0);
  const differing = tried.reduce((all, row) => all + row.passed * (row.trials - row.passed), 0);
  const repeated = tried.filter((row) => row.trials > 1).length;
  const sides = { passers: [], failers: [] };
  for (const person of people) {
    const row = own.get(person);
    if (!row || 2 * row.passed === row.trials) continue;
    const rest = [...table].filter(([name]) => name !== task).map(([, others]) => others.get(person)).filter((other) => other?.trials);
    if (rest.length) sides[2 * row.passed > row.trials ? "passers" : "failers"].push(mean(rest.map((other) => [BigInt(other.passed), BigInt(other.trials)])));
  }
  const [above, below] = [mean(sides.passers), mean(sides.failers)];
  const dead = (tried.length >= LEAST && !passed) || (!tried.length && rows.filter((row) => row.errors).length >= LEAST);
  const alike = tried.every((row) => row.passed * trials === passed * row.trials);
  const enough = Math.min(sides.passers.length, sides.failers.length) >= LEAST;
  const words = {
    dead,
    flaky: repeated >= LEAST && pairs >= PAIRS && 4 * differing > pairs,
    "never-separating": !dead && tried.length >= LEAST && alike,
    negative: enough && above[0] * below[1] < below[0] * above[1],
  };
  const text = (value) => value && ratioText(...value);
  return {
    task, participants: tried.length, passed, failed: trials - passed, errors, repeated, pairs, differing,
    passers: sides.passers.length, failers: sides.failers.length, rest_passers: text(above), rest_failers: text(below),
    words: Object.keys(words).filter((word) => words[word]),
  };
}
