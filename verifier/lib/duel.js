// A duel of a challenger and a king, pair by pair: docs/formats.md, "A duel".

import { concat, fromHex, sha256, toHex, utf8 } from "./bytes.js";
import { NANO } from "./exact.js";
import { nanos } from "./scheme.js";

const BETS = [1n, 2n, 3n];
const RISK = 3n;
const SCALE = 10n ** 18n;
const floorDiv = (n, d) => (n - (((n % d) + d) % d)) / d;
const ceilDiv = (n, d) => -floorDiv(-n, d);

/** All pairs [task, trial], by SHA-256(receipt ‖ 0 ‖ challenger ‖ 0 ‖ king ‖ 0 ‖ task ‖ 0 ‖ trial). */
export function order({ tasks, trials, receipt, challenger, king }) {
  const seed = fromHex(receipt.slice(7));
  const place = (task, trial) => toHex(sha256(concat(seed, utf8(`\0${challenger}\0${king}\0${task}\0${trial}`))));
  const pairs = tasks.flatMap((task) => Array.from({ length: trials }, (_, i) => ({ task, trial: i + 1, at: place(task, i + 1) })));
  return pairs.sort((a, b) => (a.at < b.at ? -1 : 1));
}

/** The path as far as outcomes go, the winner and by what, or the pair that is waited for. `outcomes`: (task, trial) → [challenger, king] or null. */
export function duel(rules, given, outcomes) {
  const pairs = order(given);
  const count = BigInt(pairs.length);
  const [margin, alpha] = [nanos(rules.margin), nanos(rules.alpha)];
  const least = floorDiv(margin * count, NANO) + 1n;
  let [up, down] = [BETS.map(() => SCALE), BETS.map(() => SCALE)];
  let sum = 0n;
  const path = [];
  const all = (wealth) => wealth.reduce((a, b) => a + b);
  const enough = BigInt(BETS.length) * SCALE * NANO;
  const decided = () => {
    const left = count - BigInt(path.length);
    if (path.length && all(up) * alpha >= enough * BigInt(given.challengers)) return ["challenger", "wealth"];
    if (path.length && all(down) * alpha >= enough) return ["king", "wealth"];
    if (sum - left >= least) return ["challenger", "certainty"];
    if (sum + left < least) return ["king", "certainty"];
    return null;
  };
  let end = decided();
  while (end === null) {
    const { task, trial } = pairs[path.length];
    const outcome = outcomes(task, trial);
    if (outcome === null) break;
    const d = BigInt(outcome[0]) - BigInt(outcome[1]);
    const left = count - BigInt(path.length);
    const whole = left * NANO;
    const open = margin * count - sum * NANO;
    up = up.map((wealth, i) => raised(wealth, BETS[i], whole, whole + open, d * whole - open, floorDiv));
    const missing = least - sum;
    down = down.map((wealth, i) => raised(wealth, BETS[i], left, left - missing, missing - d * left, ceilDiv));
    sum += d;
    path.push({ task, trial, challenger: outcome[0], king: outcome[1], sum: Number(sum), challenger_wealth: all(up).toString(), king_wealth: all(down).toString() });
    end = decided();
  }
  const waits = end === null ? { task: pairs[path.length].task, trial: pairs[path.length].trial } : null;
  return { pairs: pairs.length, path, winner: end?.[0] ?? null, by: end?.[1] ?? null, waits_for: waits };
}

/** A wealth after a bet of `quarters` / 4, of which at most three quarters are risked; `room` / whole is what a unit of the bet can lose. */
const raised = (wealth, quarters, whole, room, gain, divide) =>
  quarters * room <= RISK * whole ? divide(wealth * (4n * whole + quarters * gain), 4n * whole) : divide(wealth * (4n * room + RISK * gain), 4n * room);
