// A duel: a challenger and a king, pair by pair, until it is certain enough who is better. docs/formats.md, "A duel".

import * as read from "./fields.js";
import { concat, fromHex, sha256, toHex, utf8 } from "./bytes.js";
import { floorDiv, NANO, sum } from "./exact.js";
import { refuse } from "./errors.js";
import { canonical, digestOfJson } from "./json.js";
import { staged } from "./receipts.js";
import { nanos } from "./scheme.js";

const UNIT = 10n ** 18n;
const BETS = [1n, 2n, 3n]; // quarters
const MOST = 10_000; // tasks, trials of one, and challengers

const ceilDiv = (n, d) => -floorDiv(-n, d);

/** What gives the place of a pair: the pairs of a duel are sorted by it. `receipt`: the digest that the order is drawn from; the sides: their submissions. */
function placer(receipt, challenger, king) {
  const zero = new Uint8Array(1);
  const before = concat(fromHex(receipt.slice(7)), zero, utf8(challenger), zero, utf8(king), zero);
  return (task, trial) => toHex(sha256(concat(before, utf8(task), zero, utf8(String(trial)))));
}

/**
 * 1 + bet · gain as a ratio, with the bet λ = quarters/4, but at most (3/4) / loss; λ where the loss is 0. `gain` and `loss` are over d; `loss` is the most that a bet
 * of 1 can lose here, so at most three quarters of a wealth are lost at once.
 */
const factor = (quarters, gain, loss, d) => (quarters * loss <= 3n * d ? [4n * d + quarters * gain, 4n * d] : [4n * loss + 3n * gain, 4n * loss]);

/** The two wealths and the end of a duel of so many pairs. `alpha` and `margin` as their texts. */
class Contest {
  constructor({ margin, alpha, challengers, pairs }) {
    this.margin = nanos(margin) * BigInt(pairs); // of the sum, in nanos
    this.goal = floorDiv(this.margin, NANO) + 1n;
    this.alpha = nanos(alpha);
    this.challengers = BigInt(challengers);
    this.left = BigInt(pairs);
    this.sum = 0n;
    this.wealths = { challenger: BETS.map(() => UNIT), king: BETS.map(() => UNIT) };
  }

  /** The next pair: whether each side passed. Gives what the path says after it. */
  take(challenger, king) {
    const d = challenger === king ? 0n : challenger ? 1n : -1n;
    const [mean, whole] = [this.margin - this.sum * NANO, this.left * NANO]; // μ = mean / whole
    const kings = this.goal - this.sum; // ν = kings / left
    const { wealths } = this;
    const grown = (wealth, [n, of], rounded) => rounded(wealth * n, of);
    wealths.challenger = wealths.challenger.map((wealth, i) => grown(wealth, factor(BETS[i], d * whole - mean, whole + mean, whole), floorDiv));
    wealths.king = wealths.king.map((wealth, i) => grown(wealth, factor(BETS[i], kings - d * this.left, this.left - kings, this.left), ceilDiv));
    this.sum += d;
    this.left--;
    return { sum: Number(this.sum), challenger_wealth: sum(wealths.challenger).toString(), king_wealth: sum(wealths.king).toString() };
  }

  /** {winner, by}, both null while the duel is under way. */
  end() {
    const isRich = (side, sharing) => sum(this.wealths[side]) * this.alpha >= BigInt(BETS.length) * UNIT * NANO * sharing;
    if (isRich("challenger", this.challengers)) return { winner: "challenger", by: "wealth" };
    if (isRich("king", 1n)) return { winner: "king", by: "wealth" };
    if (this.sum - this.left >= this.goal) return { winner: "challenger", by: "certainty" };
    if (this.sum + this.left < this.goal) return { winner: "king", by: "certainty" };
    return { winner: null, by: null };
  }
}

/** A duel from its outcomes. `outcomes`: (task, trial) → whether challenger and king passed, or null if one of them is not known. */
export function duel({ margin, alpha }, { receipt, challenger, king, tasks, trials, challengers }, outcomes) {
  const placeOf = placer(receipt, challenger, king);
  const pairs = [];
  for (const task of tasks) for (let trial = 1; trial <= trials; trial++) pairs.push({ task, trial, place: placeOf(task, trial) });
  pairs.sort((a, b) => (a.place < b.place ? -1 : 1));
  const contest = new Contest({ margin, alpha, challengers, pairs: pairs.length });
  const path = [];
  for (const { task, trial } of pairs) {
    if (contest.end().winner !== null) break;
    const both = outcomes(task, trial);
    if (both === null) return { pairs: pairs.length, path, ...contest.end(), waits_for: { task, trial } };
    path.push({ task, trial, challenger: both[0], king: both[1], ...contest.take(...both) });
  }
  return { pairs: pairs.length, path, ...contest.end(), waits_for: null };
}

const side = read.object({ participant: read.key, submission: read.key });
const digits = read.pattern(/^(0|[1-9][0-9]*)$/, "a string of digits");
const step = read.object({ task: read.key, trial: read.integer(1, MOST), challenger: read.boolean, king: read.boolean, sum: read.integer(-MOST * MOST, MOST * MOST), challenger_wealth: digits, king_wealth: digits });
const nullable = (reader) => (value, path) => (value === null ? null : reader(value, path));
const document = read.object({
  schema: read.oneOf("assay.duel/1"), competition: read.key, epoch: read.epoch, validator: read.key, challenger: side, king: side, challengers: read.integer(1, MOST),
  receipt: read.object({ epoch: read.epoch, digest: read.digest }), scheme: read.digest, task_set: read.digest, margin: read.number({ most: NANO - 1n }),
  alpha: read.number({ least: 1n, most: NANO - 1n }), pairs: read.integer(1, MOST * MOST), path: read.list(step), winner: nullable(read.oneOf("challenger", "king")),
  by: nullable(read.oneOf("wealth", "certainty")), waits_for: nullable(read.anything), digest: read.digest,
});

/**
 * Follows the document of a duel that is decided, and gives it: its digest, the order of its pairs, each step and the end. Which pairs there are it does not say, nor
 * whether the trials went so: the bundle of the epoch has that.
 */
export function follow(value) {
  const wrong = (what, detail = {}) => refuse(what, { code: "duel", stage: "duel", ...detail });
  const found = staged("duel", () => document(value, ""));
  const { digest, ...rest } = value;
  const own = digestOfJson(rest);
  if (own !== digest) wrong("the digest is of another document", { where: "digest", expected: own, found: digest });
  if (canonical(found) !== canonical(value)) wrong("a fraction is not written as Assay writes it");

  const placeOf = placer(found.receipt.digest, found.challenger.submission, found.king.submission);
  const places = found.path.map(({ task, trial }) => placeOf(task, trial));
  places.forEach((place, i) => {
    if (i && place <= places[i - 1]) wrong(`path[${i}]: the receipt gives another order`, { where: `path[${i}]` });
  });
  const contest = new Contest(found);
  let end = contest.end();
  for (const [i, row] of found.path.entries()) {
    const where = `path[${i}]`;
    if (end.winner !== null) wrong(`${where} differs: the duel ended before it`, { where, found: row });
    const expected = { task: row.task, trial: row.trial, challenger: row.challenger, king: row.king, ...contest.take(row.challenger, row.king) };
    if (canonical(expected) !== canonical(row)) wrong(`${where} differs`, { where, expected, found: row });
    end = contest.end();
  }
  if (found.winner === null) wrong("the duel is not decided yet", { where: "winner" });
  if (end.winner === null) wrong("a pair is missing in the path: the duel does not end after the last one", { where: "path" });
  for (const [where, expected] of Object.entries({ ...end, waits_for: null }))
    if (found[where] !== expected) wrong(`${where} differs`, { where, expected, found: found[where] });
  return found;
}
