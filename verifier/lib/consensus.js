// Validators' scores → one agreed score of a participant: assignment, quorum, outliers, combination. SPEC 3.

import { absolute, byUtf8, halfEven, max, NANO, shown, sum } from "./exact.js";
import { fromHex, concat, sha256, toHex, utf8 } from "./bytes.js";
import { nanos } from "./scheme.js";

/** The k validators with the lowest hashes of randomness, submission and key. SPEC 3.0. */
export function assigned(k, validators, submission, randomness) {
  const zero = new Uint8Array(1);
  const drawn = validators.map((key) => [toHex(sha256(concat(fromHex(randomness), zero, utf8(submission), zero, utf8(key)))), key]);
  drawn.sort((a, b) => (a[0] < b[0] ? -1 : 1));
  return drawn.slice(0, k).map(([, key]) => key).sort(byUtf8);
}

/** Twice the median: for an even count, the sum of the middle two. Values are scores in nanos or their distances, below 2^40, so exact as numbers. */
export function twiceMedian(values) {
  const ordered = Float64Array.from(values, Number).sort();
  return BigInt(ordered[(ordered.length - 1) >> 1] + ordered[ordered.length >> 1]);
}

/** Who is too far from the others, by the scheme's method: one row a vote, and what was computed on the way. */
function outliers({ method, threshold, mad_floor, scale }, scores, trials) {
  const nobody = scores.map(() => ({ flagged: false, modified_z: null, z_squared: null }));
  const found = { rows: nobody, median: null, mad: null, mean: null };
  if (method === "none" || scores.length < 3) return found;
  const limit = nanos(threshold);
  if (method === "modified-z") {
    const median2 = twiceMedian(scores);
    const distances = scores.map((score) => absolute(2n * score - median2));
    const mad4 = twiceMedian(distances);
    const scale4 = max(mad4, 4n * nanos(mad_floor));
    found.median = shown(median2, 2n * NANO);
    found.mad = shown(mad4, 4n * NANO);
    if (scale === "noise") {
      found.rows = noisy({ limit, floor: nanos(mad_floor), n: BigInt(trials) }, { median2, distances, mad4 });
      return found;
    }
    if (scale4 > 0n)
      found.rows = distances.map((distance) => ({
        flagged: 6745n * distance * 2n * NANO > 10000n * limit * scale4, modified_z: shown(6745n * distance * 2n, 10000n * scale4), z_squared: null,
      }));
    return found;
  }
  const n = BigInt(scores.length);
  const total = sum(scores);
  found.mean = shown(total, n * NANO);
  const squares = scores.map((score) => (n * score - total) ** 2n); // (x − mean)² · n²
  const variance = sum(squares); // σ² · n³
  if (variance > 0n)
    found.rows = squares.map((square) => ({ flagged: square * n * NANO * NANO > limit * limit * variance, modified_z: null, z_squared: shown(square * n, variance) }));
  return found;
}

/**
 * The scale is the largest of MAD, floor and 0.6745·√(m(1 − m)/n), compared in squares: everything × 16·n·10^8, and 0.6745² = 45495025/10^8.
 * |M| may be irrational, so its square is shown.
 */
function noisy({ limit, floor, n }, { median2, distances, mad4 }) {
  const e8 = 10n ** 8n;
  const square = [mad4 * mad4 * n * e8, 16n * floor * floor * n * e8, 4n * 45495025n * median2 * (2n * NANO - median2)].reduce(max);
  return distances.map((distance) => {
    if (square === 0n) return { flagged: false, modified_z: null, z_squared: null };
    const m = 45495025n * distance * distance * 4n * n;
    return { flagged: m * NANO * NANO > limit * limit * square, modified_z: null, z_squared: shown(m, square) };
  });
}

/** Each score lowered to the largest that validators with at least κ of the stake reach. */
function clipped(kappa, votes, stake) {
  const reach = (score) => sum(votes.map((vote) => (vote.score >= score ? vote.stake : 0n)));
  const limit = votes.map((vote) => vote.score).filter((score) => reach(score) * NANO >= kappa * stake).reduce(max, 0n);
  return [sum(votes.map((vote) => vote.stake * (vote.score < limit ? vote.score : limit))), stake];
}

/** What is left of the stake once the lowest and the highest part of it are cut off, the validator at the edge in part. */
function trimmed(trim, votes, stake) {
  const [low, high] = [trim * stake, (NANO - trim) * stake];
  let [at, total] = [0n, 0n];
  for (const vote of [...votes].sort((a, b) => (a.score < b.score ? -1 : a.score > b.score ? 1 : 0))) {
    const [from, to] = [at, at + vote.stake * NANO];
    const left = (to < high ? to : high) - max(from, low);
    if (left > 0n) total += left * vote.score;
    at = to;
  }
  return [total, high - low];
}

/** The combination of votes as an exact ratio [n, d] of nanos. */
function combine({ combine: method, kappa, trim }, votes) {
  if (method === "mean") return [sum(votes.map((vote) => vote.score)), BigInt(votes.length)];
  const stake = sum(votes.map((vote) => vote.stake));
  if (method === "stake-mean") return [sum(votes.map((vote) => vote.stake * vote.score)), stake];
  if (method === "clip") return clipped(nanos(kappa), votes, stake);
  if (method === "trimmed") return trimmed(nanos(trim), votes, stake);
  let reached = 0n;
  for (const vote of [...votes].sort((a, b) => (a.score < b.score ? -1 : 1))) {
    reached += vote.stake;
    if (2n * reached >= stake) return [vote.score, 1n];
  }
}

/**
 * One participant's agreement. `votes`: validator, stake (BigInt), and score (nanos) or state ("incomplete", "unjudged", "silent"), only of
 * validators that may count. `needed`: the stake that min_stake is a share of. `trials`: tasks × trials, for noise.
 */
export function agree(consensus, votes, { needed, bps = false, trials = 1 }) {
  const minStake = nanos(consensus.min_stake);
  const enough = (some) => some.length >= consensus.min_validators && stakeOf(some) * NANO >= minStake * needed;
  const stakeOf = (some) => sum(some.map((vote) => vote.stake));
  const counted = votes.filter((vote) => vote.score !== undefined);
  const stake = stakeOf(counted);
  const result = { status: "agreed", reason: null, score: null, bps: null, stake, median: null, mad: null, mean: null, flagged_majority: false, votes: [] };
  const short = (status, reason) => ({ ...result, status, reason });
  if (!enough(counted)) {
    result.votes = counted.map((vote) => ({ ...vote, flagged: false, excluded: false, modified_z: null, z_squared: null }));
    const of = (state) => votes.filter((vote) => vote.state === state);
    if (of("unjudged").length && enough([...counted, ...of("unjudged")])) return short("unjudged", "malformed-or-unjudged");
    if (of("incomplete").length && enough([...counted, ...of("incomplete")])) return short("incomplete", "missing-trials");
    if (counted.length === 0) return short("no-quorum", "no-evidence");
    return short("no-quorum", counted.length < consensus.min_validators ? "too-few-validators" : "too-little-stake");
  }
  const found = outliers(consensus.outliers, counted.map((vote) => vote.score), trials);
  Object.assign(result, { median: found.median, mad: found.mad, mean: found.mean });
  const flagged = sum(counted.map((vote, i) => (found.rows[i].flagged ? vote.stake : 0n)));
  result.flagged_majority = flagged > 0n && 2n * flagged >= stake;
  result.votes = counted.map((vote, i) => ({ ...vote, ...found.rows[i], excluded: found.rows[i].flagged && !result.flagged_majority }));
  const left = result.votes.filter((vote) => !vote.excluded);
  if (consensus.recheck && stakeOf(left) * NANO < minStake * needed) return short("no-quorum", "stake-after-outliers");
  const [n, d] = combine(consensus, left);
  result.score = halfEven(n, d);
  if (bps) result.bps = Number((n * 10000n) / (d * NANO));
  return result;
}
