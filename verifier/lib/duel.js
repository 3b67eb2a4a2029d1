// A duel of a challenger and a king, pair by pair: docs/formats.md, "A duel".

import { concat, fromHex, sha256, toHex, utf8 } from "./bytes.js";
import { refuse } from "./errors.js";
import { NANO } from "./exact.js";
import * as read from "./fields.js";
import { canonical, digestOfJson } from "./json.js";
import { nanos } from "./scheme.js";

const BETS = [1n, 2n, 3n];
const RISK = 3n;
const SCALE = 10n ** 18n;
const floorDiv = (n, d) => (n - (((n % d) + d) % d)) / d;
const ceilDiv = (n, d) => -floorDiv(-n, d);

/** All pairs [task, trial], by SHA-256(receipt ‖ 0 ‖ challenger ‖ 0 ‖ king ‖ 0 ‖ task ‖ 0 ‖ trial). */
export function order(given) {
  const pairs = given.tasks.flatMap((task) => Array.from({ length: given.trials }, (_, i) => ({ task, trial: i + 1, at: place(given, task, i + 1) })));
  return pairs.sort((a, b) => (a.at < b.at ? -1 : 1));
}

const place = ({ receipt, challenger, king }, task, trial) => toHex(sha256(concat(fromHex(receipt.slice(7)), utf8(`\0${challenger}\0${king}\0${task}\0${trial}`))));

/** The path as far as outcomes go, the winner and by what, or the pair that is waited for. `outcomes`: (task, trial) → [challenger, king] or null. */
export function duel(rules, given, outcomes) {
  const pairs = order(given);
  return along(rules, pairs, pairs.length, given.challengers, outcomes);
}

/** The same along pairs of which only the first may be known; `number`: how many there are. */
function along(rules, pairs, number, challengers, outcomes) {
  const count = BigInt(number);
  const [margin, alpha] = [nanos(rules.margin), nanos(rules.alpha)];
  const least = floorDiv(margin * count, NANO) + 1n;
  let [up, down] = [BETS.map(() => SCALE), BETS.map(() => SCALE)];
  let sum = 0n;
  const path = [];
  const all = (wealth) => wealth.reduce((a, b) => a + b);
  const enough = BigInt(BETS.length) * SCALE * NANO;
  const decided = () => {
    const left = count - BigInt(path.length);
    if (path.length && all(up) * alpha >= enough * BigInt(challengers)) return ["challenger", "wealth"];
    if (path.length && all(down) * alpha >= enough) return ["king", "wealth"];
    if (sum - left >= least) return ["challenger", "certainty"];
    if (sum + left < least) return ["king", "certainty"];
    return null;
  };
  let end = decided();
  while (end === null) {
    const { task, trial } = pairs[path.length] ?? refuse("a pair is missing in the path", { code: "duel", stage: "duel" });
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
  return { pairs: number, path, winner: end?.[0] ?? null, by: end?.[1] ?? null, waits_for: waits };
}

/** A wealth after a bet of `quarters` / 4, of which at most three quarters are risked; `room` / whole is what a unit of the bet can lose. */
const raised = (wealth, quarters, whole, room, gain, divide) =>
  quarters * room <= RISK * whole ? divide(wealth * (4n * whole + quarters * gain), 4n * whole) : divide(wealth * (4n * room + RISK * gain), 4n * room);

const side = read.object({ participant: read.key, submission: read.key });
const step = read.object({
  task: read.key, trial: read.integer(1, 10000), challenger: read.boolean, king: read.boolean, sum: read.integer(-read.LARGEST, read.LARGEST),
  challenger_wealth: read.integerText(10n ** 80n), king_wealth: read.integerText(10n ** 80n),
});
const DIGEST = read.pattern(/^sha256:[0-9a-f]{64}$/, "a digest");
const shape = read.object({
  schema: read.oneOf("assay.duel/1"), competition: read.key, epoch: read.epoch, validator: read.key, challenger: side, king: side, challengers: read.integer(1, 10000),
  receipt: read.object({ epoch: read.epoch, digest: DIGEST }), scheme: DIGEST, task_set: DIGEST, margin: read.share, alpha: read.share, pairs: read.integer(1, 1e8),
  path: read.list(step), winner: read.maybe(read.oneOf("challenger", "king")), by: read.maybe(read.oneOf("certainty", "wealth")), waits_for: read.maybe(read.anything), digest: DIGEST,
});

/** Follows the document of a duel by itself: each step, who won, the digest. That no pair was left out, and the outcomes, are in a bundle alone. */
export function follow(document) {
  const wrong = (what, detail = {}) => refuse(what, { code: "duel", stage: "duel", ...detail });
  const found = shape(document, "");
  if (found.winner === undefined) wrong("the duel is not decided yet");
  const { digest, ...rest } = document;
  if (digestOfJson(rest) !== digest) wrong("the digest is of another document", { expected: digestOfJson(rest), found: digest });
  const given = { receipt: found.receipt.digest, challenger: found.challenger.submission, king: found.king.submission };
  const pairs = found.path.map(({ task, trial }) => ({ task, trial, at: place(given, task, trial) }));
  const late = pairs.findIndex((pair, i) => i && pair.at <= pairs[i - 1].at);
  if (late > 0) wrong(`path[${late}]: the receipt gives another order`);
  const outcomes = new Map(found.path.map((row) => [`${row.task}\n${row.trial}`, [row.challenger, row.king]]));
  const own = along(found, pairs, found.pairs, found.challengers, (task, trial) => outcomes.get(`${task}\n${trial}`));
  const differs = found.path.findIndex((row, i) => canonical(row) !== canonical(own.path[i] ?? null));
  if (differs >= 0) wrong(`path[${differs}] differs`, { expected: own.path[differs] ?? null, found: found.path[differs] });
  if (own.winner !== found.winner || own.by !== found.by) wrong("winner differs", { expected: own.winner, found: found.winner });
  return found;
}
