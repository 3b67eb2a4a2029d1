// A scheme: its canonical form, with every default filled in. SPEC 4, 5, 7; docs/formats.md.

import * as read from "./fields.js";
import { NANO } from "./exact.js";
import { refuse, Unsupported } from "./errors.js";
import { isObject } from "./json.js";
import { kindOf } from "./score.js";

const { or, maybe, object, integer, share, fraction, oneOf, list, bps } = read;
const E9 = read.BILLION;
const positive = integer(1, E9);

export function readScore(value, path = "score") {
  if (!isObject(value)) refuse(`${path}: is not an object`, { where: path });
  const kind = kindOf(value.kind) ?? refuse(`${path}.kind: there is no kind ${JSON.stringify(value.kind)} of Assay`, { where: path });
  const found = kind.rules(value, path);
  kind.checkRules?.(found, path);
  return found;
}

const nanos = (text) => {
  const [whole, part = ""] = text.split(".");
  return BigInt(whole) * NANO + BigInt(part.padEnd(9, "0"));
};
export { nanos };

const THRESHOLDS = { "modified-z": "3.5", z: "2", none: "3.5" };

const outliersFields = object({ method: or("modified-z", oneOf("modified-z", "z", "none")), threshold: maybe(fraction), mad_floor: or("0.01", share), scale: maybe(oneOf("noise")) });
function outliers(value, path) {
  const found = outliersFields(value, path);
  found.threshold ??= THRESHOLDS[found.method];
  if (found.scale && found.method !== "modified-z") refuse(`${path}.scale: it goes with method = "modified-z"`, { where: path });
  return found;
}

const consensusFields = object({
  min_validators: or(3, positive), min_stake: or("0.3", share), min_validator_stake: or("0", read.integerText(2n ** 63n)), recheck: or(false, read.boolean),
  combine: or("stake-mean", oneOf("stake-mean", "stake-median", "mean", "clip", "trimmed")),
  kappa: maybe(read.number({ percent: true, least: 1n, most: NANO })), trim: maybe(read.number({ percent: true, most: NANO / 2n - 1n })), assign: maybe(positive), max_age_epochs: maybe(read.count), outliers: or({}, outliers),
});

export function readConsensus(value, path = "consensus") {
  const found = consensusFields(value, path);
  if (found.kappa !== undefined && found.combine !== "clip") refuse(`${path}.kappa: it goes with combine = "clip"`, { where: path });
  if (found.trim !== undefined && found.combine !== "trimmed") refuse(`${path}.trim: it goes with combine = "trimmed"`, { where: path });
  if (found.combine === "clip") found.kappa ??= "0.5";
  if (found.combine === "trimmed") found.trim ??= "0.2";
  return found;
}

const rewardFields = object({
  kind: or("weights", oneOf("weights", "payout", "ranking")),
  strategy: or("linear", oneOf("linear", "direct", "softmax", "winner-takes-all", "quadratic", "ranked")),
  min_score: or("0", share), temperature: or("1", read.number({ percent: true, least: NANO / 100n })), top: or(1, positive),
  cap: or("0.5", read.number({ percent: true, least: 1n, most: NANO })), excess: or("redistribute", oneOf("redistribute", "drop", "burn")),
  encoding: or("round", oneOf("round", "exact-sum", "max-upscale")),
});
export function readReward(value, path = "reward") {
  const found = rewardFields(value, path);
  if (found.excess === "drop" && found.encoding !== "round") refuse(`${path}: excess = "drop" goes with encoding = "round" only`, { where: path });
  if (found.kind === "ranking") {
    for (const field of Object.keys(value)) if (field !== "kind") refuse(`${path}.${field}: a ranking gives out nothing`, { where: path });
  }
  return found;
}

export const readDecay = object({
  curve: or("linear", oneOf("linear", "exponential", "none")), clock: or("participant", oneOf("participant", "competition")), grace_epochs: or(10, read.count),
  rate: or("0.05", share), max_burn: or("0.8", share), burn_uid: or(0, integer(0, 65535)), reset: or("improvement", oneOf("improvement", "update")),
  improvement: or("0.02", share), improvement_mode: or("relative", oneOf("relative", "absolute")),
});

const tier = object({ reach_bps: integer(1, 10000), release_bps: bps });
const TIERS = [[10000, 10000], [8000, 5000], [5000, 2500]].map(([reach_bps, release_bps]) => ({ reach_bps, release_bps }));
const payoutFields = object({
  deposit: read.integerText(2n ** 256n), threshold_bps: or(7000, integer(1, 10000)), split: or([10000], list(integer(1, 10000), { least: 1, most: 1000 })),
  fee_bps: or(0, bps), scoring_deadline: maybe(read.instant), tiers: or(TIERS, list(tier, { least: 1, most: 100 })),
});
export function readPayout(value, path = "payout") {
  const found = payoutFields(value, path);
  if (found.split.reduce((a, b) => a + b, 0) !== 10000) refuse(`${path}.split: it does not sum to 10000`, { where: path });
  found.tiers.forEach(({ reach_bps, release_bps }, i) => {
    if (i && (reach_bps >= found.tiers[i - 1].reach_bps || release_bps > found.tiers[i - 1].release_bps))
      refuse(`${path}.tiers: they do not fall`, { where: path });
  });
  return found;
}

const seconds = (value, path) => {
  const match = typeof value === "string" ? /^([1-9][0-9]{0,8})([smhd])$/.exec(value) : null;
  if (match === null) refuse(`${path}: a duration is a whole number with s, m, h or d`, { where: path });
  return `${Number(match[1]) * { s: 1, m: 60, h: 3600, d: 86400 }[match[2]]}s`;
};

/** `[duel]`. */
export const readDuel = object({
  margin: or("0", read.number({ percent: true, most: NANO - 1n })), alpha: or("0.05", read.number({ percent: true, least: 1n, most: NANO - 1n })),
  order: or("receipt", oneOf("receipt")),
});

const scheme = object(
  {
    scheme: object({ name: read.key, version: or("1.0.0", read.key) }), score: readScore, consensus: or({}, readConsensus), reward: or({}, readReward),
    decay: maybe(readDecay), payout: maybe(readPayout), judge: maybe(object({ use: read.key })),
    submission: maybe(object({ per_epoch: maybe(positive), reveal: maybe(positive), copies: maybe(oneOf("flag", "hold")) })),
    release: maybe(object({ logs: or("own", oneOf("own", "after-epoch", "never")) })),
    epoch: maybe(object({ every: maybe(seconds), start: maybe(read.instant), tempo: maybe(positive), grace: maybe(seconds), empty: maybe(oneOf("burn")) })),
    evidence: maybe(object({ keep: or("nothing", oneOf("nothing", "work")), most_mb: or(64, integer(1, 4096)), epochs: maybe(positive) })),
    audit: maybe(object({ risk: or("0.05", read.number({ percent: true, least: NANO / 1000n, most: NANO / 2n })), places: maybe(positive), delay: or("600s", seconds), failed: maybe(oneOf("leave-out")) })),
    duel: maybe(readDuel),
  },
  { byField: true },
);

/** The canonical form of a scheme. */
export function readScheme(value) {
  if (!isObject(value)) refuse("a scheme is an object", { where: "scheme" });
  if (isObject(value.score) && typeof value.score.kind === "string" && value.score.kind.includes(".")) throw new Unsupported(`the kind ${value.score.kind}`);
  const found = scheme(value, "");
  if (found.consensus.outliers.scale && found.score.kind !== "tests") refuse("consensus.outliers.scale: noise is that of trials, of kind tests", { where: "consensus" });
  if ((found.audit || found.evidence?.keep === "work") && found.score.kind !== "tests") refuse("audit: only trials, of kind tests, are kept and audited", { where: "audit" });
  if (found.consensus.outliers.scale && found.score.passed_by) refuse("consensus.outliers.scale: with passed_by = \"all\" all scores are equal", { where: "consensus" });
  if (found.duel && found.score.kind !== "tests") refuse("duel: both sides need trials, of kind tests", { where: "duel" });
  const pays = found.reward.kind === "payout";
  if (pays && !found.payout) refuse("payout: a scheme that pays out has a deposit", { where: "payout" });
  if (!pays && found.payout) refuse("payout: it goes with [reward] kind = \"payout\"", { where: "payout" });
  if (found.reward.kind !== "weights" && found.decay) refuse("decay: it goes with weights", { where: "decay" });
  if (found.reward.kind !== "weights" && found.score.warm_up) refuse("score.warm_up: it goes with weights", { where: "score" });
  if (found.reward.kind === "weights") found.decay ??= readDecay({}, "decay");
  return found;
}
