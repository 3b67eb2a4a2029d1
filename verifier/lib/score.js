// The kinds of evidence: what a scheme says of one, what a record has, and the score of one participant by one validator. SPEC 2.
// `tests` and `given` are here, each other kind is a module that is loaded when it is met.
//
// A kind is {rules, checkRules?, fields, checkRecord?, score}: readers of the scheme's [score] and of a record's own fields, and the scorer.
// A scorer gives, for each participant, validator → {score (nanos), work} or {state: "incomplete" | "unjudged" | "injection" | "split" | "no-tasks", missing}.

import * as read from "./fields.js";
import { halfEven, NANO, nanosOf } from "./exact.js";
import { refuse } from "./errors.js";

const { or, maybe, object, integer, oneOf } = read;

export const KINDS = ["tests", "workflow", "rubric", "points", "given"];
const KNOWN = new Map();
const LOAD = { workflow: () => import("./workflow.js"), rubric: () => import("./rubric.js"), points: () => import("./points.js") };

/** Loads those of the kinds by these names that are not here yet; other names are passed over. */
export async function loadKinds(names) {
  for (const name of new Set(names)) if (Object.hasOwn(LOAD, String(name)) && !KNOWN.has(name)) KNOWN.set(name, (await LOAD[name]())[name]);
}

/** The kind of a name; undefined if there is none, or it was not loaded. */
export const kindOf = (name) => KNOWN.get(name);

/** A choice that is left out where it says what holds without it. */
export const unless = (standard, reader) => maybe((value, path) => (reader(value, path) === standard ? undefined : value));

export const isTrue = (value, path) => (value === true ? true : refuse(`${path}: leave it out, or say true`, { where: path }));

// ---- tests (SPEC 2.1)

export const scoreTests = (passed, trials) => halfEven(BigInt(passed) * NANO, BigInt(trials));

function tests(score, tasks, records) {
  const ids = new Set(tasks);
  const all = tasks.length * score.trials;
  const tallies = new Map();
  for (const record of records) {
    const tally = tallies.get(record.validator) ?? { passed: 0, whole: 0, times: new Map() };
    tallies.set(record.validator, tally);
    if (!ids.has(record.task) || record.trial > score.trials || record.outcome === "error") continue;
    tally.whole++;
    if (record.outcome !== "pass") continue;
    tally.passed++;
    tally.times.set(record.task, (tally.times.get(record.task) ?? 0) + 1);
  }
  const wholly = ({ times }) => new Set([...times].filter(([, count]) => count === score.trials).map(([task]) => task));
  return new Map([...tallies].map(([validator, tally]) => [validator, testsVote(tally, all, wholly(tally))]));
}

/** `tasks`: those of which every trial passed. */
export const testsVote = ({ passed, whole }, all, tasks) =>
  whole < all ? { state: "incomplete", missing: all - whole } : { score: scoreTests(passed, all), work: { passed, trials: all }, tasks };

/** With passed_by = "all": the counting votes, each with the share of the tasks that all of them saw pass in every trial. */
export function jointVotes(votes, tasks) {
  const counting = votes.filter((vote) => vote.state === undefined);
  if (counting.length === 0) return votes;
  const passed = tasks.filter((task) => counting.every((vote) => vote.tasks.has(task))).length;
  const score = scoreTests(passed, tasks.length);
  return votes.map((vote) => (vote.state === undefined ? { ...vote, score } : vote));
}

// ---- given (SPEC 2.5)

function given(_score, _tasks, records) {
  const latest = new Map();
  for (const record of records) {
    const known = latest.get(record.validator);
    if (known === undefined || record.epoch > known.epoch) latest.set(record.validator, record);
  }
  return new Map([...latest].map(([validator, record]) => [validator, { score: nanosOf(record.score), work: { epoch: record.epoch } }]));
}

/** A service error of a workflow takes the task of that validator and epoch out for every participant. */
export const brokenKey = (record) => `${record.epoch}\n${record.task}\n${record.validator}`;

KNOWN.set("tests", {
  rules: object({ kind: oneOf("tests"), agent_timeout: or("fail", oneOf("fail", "verify")), trials: or(1, integer(1, 10000)), fresh_boxes: maybe(isTrue), passed_by: unless("each", oneOf("each", "all")) }),
  fields: { task: read.task, outcome: oneOf("pass", "fail", "timeout", "error"), trial: or(1, integer(1, read.BILLION)), image: maybe(read.submission), work: maybe(read.submission) },
  score: tests,
});
KNOWN.set("given", { rules: object({ kind: oneOf("given") }), fields: { score: read.score }, score: given });
