// Evidence → the score of one participant by one validator, by the kind's rule. SPEC 2.
// A scorer gives, for each participant, validator → {score (nanos), work} or {state: "incomplete" | "unjudged" | "injection" | "split" | "no-tasks", missing}.

import { byUtf8, halfEven, NANO, max, min, nanosOf } from "./exact.js";
import { isObject } from "./json.js";
import { judged } from "./panel.js";
import { nanos } from "./scheme.js";

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

// ---- workflow (SPEC 2.2)

/** The four parts of one task as exact ratios [n, d], and S in nanos. */
export function scoreTask(score, task) {
  const { weights, penalties } = score;
  if (task.outcome === "invalid") return { parts: [[0n, 1n], [0n, 1n], [0n, 1n], [0n, 1n]], score: 0n };
  const success = [nanos(task.quality) * BigInt(task.steps_completed), NANO * BigInt(task.steps_total)];
  const opens = success[0] * NANO > nanos(score.gate) * success[1];
  const spared = (used, limit) => (opens ? [max(0n, nanos(limit) - nanos(used)), nanos(limit)] : [0n, 1n]);
  const declared = Math.min(task.declared_retries, score.max_retries_per_step * task.steps_total);
  const unplanned = Math.max(0, task.retries - declared);
  const loss = BigInt(unplanned) * nanos(penalties.unplanned_retry) + BigInt(task.timeouts) * nanos(penalties.timeout) + BigInt(task.hard_failures) * nanos(penalties.hard_failure);
  const parts = [success, spared(task.cost, task.budget), spared(task.seconds, task.max_seconds), [min(NANO, max(0n, NANO - loss)), NANO]];
  let [n, d] = [0n, 1n];
  [weights.success, weights.cost, weights.latency, weights.reliability].forEach((weight, i) => {
    [n, d] = [n * parts[i][1] + nanos(weight) * parts[i][0] * d, d * parts[i][1]];
  });
  return { parts, score: halfEven(n, d) };
}

function workflow(score, _tasks, records, { broken }) {
  const windows = new Map();
  for (const record of records) {
    const window = windows.get(record.validator) ?? [];
    windows.set(record.validator, window);
    if (!broken.has(brokenKey(record))) window.push(record);
  }
  return new Map(
    [...windows].map(([validator, ran]) => {
      if (ran.length === 0) return [validator, { state: "no-tasks", missing: 0 }];
      const last = ran.sort((a, b) => a.epoch - b.epoch || byUtf8(a.task, b.task)).slice(-score.window);
      const total = last.reduce((all, record) => all + scoreTask(score, record).score, 0n);
      return [validator, { score: halfEven(total, BigInt(last.length)), work: { tasks: last.length } }];
    }),
  );
}

export const brokenKey = (record) => `${record.epoch}\n${record.task}\n${record.validator}`;

// ---- rubric (SPEC 2.3), all in BPS

const BASELINE = ["B1", "B2", "B3", "B4"];
const VERDICTS = ["EXCEPTIONAL", "ELEGANT", "COHERENT", "MINOR_ISSUES", "FLAWED", "FUNDAMENTALLY_BROKEN"];
const isYesOrNo = (value) => typeof value === "boolean";
const answers = (value, ids) => isObject(value) && ids.every((id) => isYesOrNo(value[id]));

/** How the BPS of a judgement came about, or null where it is malformed. Answers to checks that are not asked are ignored. */
export function scoreRubric(score, { baseline, checks, verdict }) {
  if (!answers(baseline, BASELINE)) return null;
  if (!BASELINE.every((question) => baseline[question])) return { base: 0, missed_skippable: 0, verdict: null, gate: false, capped: false, bps: 0 };
  if (!answers(checks, score.checks.map(({ id }) => id)) || !VERDICTS.includes(verdict)) return null;
  const found = weighed(score, checks);
  let result = found.base;
  if (verdict === "EXCEPTIONAL") result += found.missed;
  else if (verdict === "ELEGANT") result += Math.floor(found.missed / 2);
  else if (verdict === "MINOR_ISSUES") result -= Math.floor(found.base / 10);
  else if (verdict === "FLAWED") result -= Math.floor(found.base / 5);
  else if (verdict === "FUNDAMENTALLY_BROKEN") result = Math.min(result, 2000);
  if (found.capped) result = Math.min(result, 2000);
  return { base: found.base, missed_skippable: found.missed, verdict, gate: true, capped: found.capped, bps: Math.max(0, Math.min(10000, result)) };
}

const weighed = (score, checks) => ({
  base: score.checks.reduce((total, { id, weight }) => total + (checks[id] ? weight : 0), 0),
  missed: score.checks.reduce((total, { id, weight, skippable }) => total + (!checks[id] && skippable ? weight : 0), 0),
  capped: score.checks.some(({ id, skippable }) => !checks[id] && !skippable),
});

function rubric(score, _tasks, records) {
  const votes = new Map();
  for (const record of records) {
    const panel = score.panel === undefined ? {} : judged(score, record);
    const work = record.outcome === "judged" && panel.state === undefined ? scoreRubric(score, record) : null;
    if (panel.state === "split") votes.set(record.validator, { state: "split", missing: 0 });
    else if (work === null) votes.set(record.validator, { state: "unjudged", missing: 0 });
    else if (score.injection === "unjudged" && record.injection_suspected) votes.set(record.validator, { state: "injection", missing: 0 });
    else votes.set(record.validator, { score: BigInt(work.bps) * 100000n, work: { ...work, ...panel } });
  }
  return votes;
}

// ---- points (SPEC 2.4)

/** Valid and invalid issues by repository, and starred repositories, into points (nanos) and score (nanos). */
export function scorePoints(score, valid, invalid, starred) {
  const all = (table) => Object.values(table).reduce((total, number) => total + number, 0);
  const worth = (table) => Object.entries(table).reduce((total, [name, number]) => total + BigInt(number) * nanos(score.repositories[name]), 0n);
  const [issues, wrong] = [all(valid), all(invalid)];
  let points = worth(valid);
  if (issues > 0 || score.stars_alone) points += min(BigInt(starred) * nanos(score.star_points), nanos(score.star_max));
  if (score.invalid === "subtract") points = max(0n, points - worth(invalid));
  else if (wrong > issues) points = 0n;
  return { valid: issues, invalid: wrong, points, score: min(NANO, halfEven(points, BigInt(score.full_points))) };
}

function points(score, _tasks, records, { epoch }) {
  const sheets = new Map();
  for (const record of records) {
    if (!Object.hasOwn(score.repositories, record.repository)) continue;
    const sheet = sheets.get(record.validator) ?? { repositories: new Map(), counted: false };
    sheets.set(record.validator, sheet);
    const row = sheet.repositories.get(record.repository) ?? { valid: 0, invalid: 0, revokedValid: 0, revokedInvalid: 0, star: -1, starred: false };
    sheet.repositories.set(record.repository, row);
    if (record.epoch >= row.star) [row.star, row.starred] = [record.epoch, record.starred];
    if (score.window_epochs !== undefined && record.epoch <= epoch - score.window_epochs) continue;
    sheet.counted = true;
    row.valid += record.valid;
    row.invalid += record.invalid;
    row.revokedValid += record.revoked_valid;
    row.revokedInvalid += record.revoked_invalid;
  }
  const votes = new Map();
  for (const [validator, sheet] of sheets) {
    if (!sheet.counted) continue;
    const [valid, invalid] = [Object.create(null), Object.create(null)];
    let starred = 0;
    for (const [name, row] of sheet.repositories) {
      valid[name] = Math.max(0, row.valid - row.revokedValid);
      invalid[name] = Math.max(0, row.invalid - row.revokedInvalid);
      starred += row.starred ? 1 : 0;
    }
    const found = scorePoints(score, valid, invalid, starred);
    votes.set(validator, { score: found.score, work: { valid: found.valid, invalid: found.invalid, starred, points: found.points } });
  }
  return votes;
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

export const SCORERS = { tests, workflow, rubric, points, given };
