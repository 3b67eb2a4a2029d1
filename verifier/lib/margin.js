// The margin of a board: the least flips, missing trials and lying stake that change each verdict (docs/margins.md).
// By looking at every state of every participant, so for small boards only.

import { NANO, halfEven, sum } from "./exact.js";
import { agree } from "./consensus.js";
import { payout } from "./reward.js";

/** Every way to take one of each list. */
function* every(lists, at = 0, taken = []) {
  if (at === lists.length) yield taken;
  else for (const item of lists[at]) yield* every(lists, at + 1, [...taken, item]);
}

const upTo = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** The agreed score of what validators saw pass, null for one that misses a trial; null if there is none. */
function agreedOf({ consensus, validators, trials }, passed) {
  const least = BigInt(consensus.min_validator_stake);
  const votes = validators
    .filter((row) => passed.has(row.key) && row.stake > 0n && row.stake >= least)
    .map((row) => {
      const count = passed.get(row.key);
      const seen = count === null ? { state: "incomplete" } : { score: halfEven(BigInt(count) * NANO, BigInt(trials)) };
      return { validator: row.key, stake: row.stake, ...seen };
    });
  return agree(consensus, votes, { needed: sum(validators.map((row) => row.stake)), trials }).score;
}

function verdictsOf(given, scores) {
  const order = scores.map((_, i) => i).filter((i) => scores[i] !== null);
  order.sort((a, b) => (scores[a] === scores[b] ? a - b : scores[a] < scores[b] ? 1 : -1));
  const found = { winner: String(order[0]), order: order.join() };
  if (given.payout) found.tier = String(payout(given.payout, order.map((i) => scores[i])).tier_bps);
  return found;
}

/** By agreed score, what is the least that it costs. choices: by validator, lists of [passed, cost]. */
function columnOf(given, names, choices) {
  const found = new Map();
  for (const taken of every(choices)) {
    const score = agreedOf(given, new Map(names.map((name, i) => [name, taken[i][0]])));
    const cost = taken.reduce((all, [, own]) => all + own, 0);
    if (!found.has(score) || found.get(score) > cost) found.set(score, cost);
  }
  return [...found];
}

/** The least that each verdict costs, null if nothing changes it. choose: what a validator may say of what it saw. */
function leastOf(given, before, choose) {
  const columns = given.participants.map(({ seen }) => {
    const names = Object.keys(seen);
    return columnOf(given, names, names.map((name) => choose(seen[name], name)));
  });
  const found = Object.fromEntries(Object.keys(before).map((name) => [name, null]));
  for (const taken of every(columns)) {
    const after = verdictsOf(given, taken.map(([score]) => score));
    const cost = taken.reduce((all, [, own]) => all + own, 0);
    for (const name of Object.keys(found)) if (after[name] !== before[name] && (found[name] === null || cost < found[name])) found[name] = cost;
  }
  return found;
}

export function margin(given) {
  const { trials, validators } = given;
  const now = ({ passed, missing }) => [[missing ? null : passed, 0]];
  const scores = given.participants.map(({ seen }) => agreedOf(given, new Map(Object.entries(seen).map(([name, row]) => [name, now(row)[0][0]]))));
  const before = verdictsOf(given, scores);
  const flips = leastOf(given, before, (row) => (row.missing ? now(row) : upTo(0, trials).map((count) => [count, Math.abs(count - row.passed)])));
  const missing = leastOf(given, before, (row) =>
    row.missing ? [...now(row), ...upTo(row.passed, row.passed + row.missing).map((count) => [count, row.missing])] : now(row));
  const stake = Object.fromEntries(Object.keys(before).map((name) => [name, null]));
  const coalitions = [...every(validators.map((row) => [null, row]))].map((taken) => taken.filter(Boolean)).filter((taken) => taken.length);
  const held = (taken) => sum(taken.map((row) => row.stake));
  for (const taken of coalitions.sort((a, b) => (held(a) < held(b) ? -1 : held(a) > held(b) ? 1 : 0))) {
    if (Object.values(stake).every((value) => value !== null)) break;
    const members = new Set(taken.map((row) => row.key));
    const done = leastOf(given, before, (row, name) => (members.has(name) && !row.missing ? upTo(0, trials).map((count) => [count, 0]) : now(row)));
    for (const name of Object.keys(stake)) if (done[name] !== null && stake[name] === null) stake[name] = held(taken).toString();
  }
  return { verdicts: Object.fromEntries(Object.keys(before).map((name) => [name, { flips: flips[name], missing: missing[name], stake: stake[name] }])) };
}
