// The kind workflow: plans that were carried out, by success, cost, latency and reliability. SPEC 2.2.

import * as read from "./fields.js";
import { byUtf8, halfEven, max, min, NANO } from "./exact.js";
import { refuse } from "./errors.js";
import { nanos } from "./scheme.js";
import { brokenKey, isTrue } from "./score.js";

const { or, maybe, object, integer, share, count, oneOf, amount } = read;

const weights = object({ success: or("0.5", share), cost: or("0.25", share), latency: or("0.15", share), reliability: or("0.1", share) });
const penalties = object({ unplanned_retry: or("0.1", share), timeout: or("0.2", share), hard_failure: or("0.5", share) });
const rules = object({
  kind: oneOf("workflow"), weights: or({}, weights), gate: or("0.7", share), penalties: or({}, penalties), window: or(100, integer(1, 1e6)),
  fresh_boxes: maybe(isTrue), max_retries_per_step: or(5, integer(0, 1000)), warm_up: maybe(integer(1, 1e6)),
});
function checkRules({ weights: own, window, warm_up }, path) {
  const total = Object.values(own).reduce((all, part) => all + nanos(part), 0n);
  if (total !== NANO) refuse(`${path}.weights: they do not sum to 1`, { where: path });
  if ((warm_up ?? 0) > window) refuse(`${path}.warm_up: it is longer than the window`, { where: path });
}

const fields = {
  task: read.task, quality: or("0", read.score), steps_completed: or(0, count), steps_total: or(0, count), cost: or("0", amount), budget: or("0", amount),
  seconds: or("0", amount), max_seconds: or("0", amount), retries: or(0, count), declared_retries: or(0, count), timeouts: or(0, count),
  hard_failures: or(0, count), outcome: or("ran", oneOf("ran", "invalid", "service-error")),
};
const RAN = ["quality", "steps_completed", "steps_total", "cost", "budget", "seconds", "max_seconds"];

/** A task of a workflow: what its numbers must be, whatever else a record has. */
function checkTask(task, given) {
  if (task.steps_completed > task.steps_total) refuse("steps_completed is more than steps_total", { code: "input", where: "steps_completed" });
  if (task.outcome !== "ran") return;
  for (const field of RAN) if (!(field in given)) refuse(`${field} is missing: a task that ran has it`, { code: "input", where: field });
  if (nanos(task.budget) === 0n || nanos(task.max_seconds) === 0n) refuse("budget and max_seconds are more than 0", { code: "input", where: "budget" });
  if (task.steps_total === 0) refuse("steps_total is more than 0", { code: "input", where: "steps_total" });
}

/** The `task` of a case of kind workflow: a record's numbers alone. */
export const readTask = (value) => {
  const found = object(Object.fromEntries(Object.entries(fields).filter(([field]) => field !== "task")), { byField: true })(value, "");
  checkTask(found, value);
  return found;
};

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

function scoreAll(score, _tasks, records, { broken }) {
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

export const workflow = { rules, checkRules, fields, checkRecord: checkTask, score: scoreAll };
