// Competitions of one subnet joined: the emission split. SPEC 4, Emission split.

import * as read from "./fields.js";
import { apportion, decimal, fractionOf, NANO, shown, sum } from "./exact.js";
import { refuse, under } from "./errors.js";
import { isObject, sealed } from "./json.js";
import { encode, strategy } from "./reward.js";
import { readCase } from "./case.js";
import { settleCase } from "./standing.js";

const { object, or, maybe } = read;
export const readRules = object({
  encoding: or("round", read.oneOf("round", "exact-sum", "max-upscale")), burn_uid: or(0, read.integer(0, 65535)),
  emission: maybe(read.integerText(2n ** 63n)), unearned: or("burn", read.oneOf("burn", "others")),
});

/** The uid of each participant on the subnet: one in all competitions that list it. */
function joinedUids(parts, burnUid) {
  const [uids, holders] = [new Map(), new Map()];
  for (const { document } of parts)
    for (const { key, uid = null } of document.participants) {
      if (uids.has(key) && uids.get(key) !== uid) refuse(`${JSON.stringify(key)} has another uid, or none, in another competition`, "uid");
      uids.set(key, uid);
      if (uid === null) continue;
      if (uid === burnUid) refuse(`${JSON.stringify(key)} has the burn uid ${uid}`, "uid");
      if (holders.has(uid) && holders.get(uid) !== key) refuse(`uid ${uid} is that of two participants`, "uid");
      holders.set(uid, key);
    }
  return uids;
}

/** Whether somebody took part: an agreed score above 0 that reaches min_score. */
const isEarned = ({ document, settlement }) => {
  const scores = settlement.weights.map((row) => fractionOf(row.score));
  return strategy({ ...document.scheme.reward, strategy: "linear" }, scores).n.some((share) => share > 0n);
};

/**
 * The split. `parts`: {share (nanos), document, settlement, exact} of each competition, in the subnet file's order. `receipts`, if the
 * competitions have ledgers.
 */
export function split(rules, parts, receipts) {
  if (parts.length === 0) refuse("a subnet has a competition", "competitions");
  const alphas = parts.map(({ share }) => share);
  const claimed = sum(alphas);
  if (claimed > NANO) refuse("the shares of the competitions sum to more than 1", "input");
  for (const { document, settlement } of parts) {
    if (document.scheme.reward.kind !== "weights") refuse(`${document.scheme.scheme.name} has no weights to join`, "competitions");
    if (document.scheme.reward.excess === "drop") refuse(`${document.scheme.scheme.name} drops what is above its cap: that part would belong to nobody`, "competitions");
    if (settlement.epoch !== parts[0].settlement.epoch) refuse("the competitions are settled for different epochs", "competitions");
  }
  const uids = joinedUids(parts, rules.burn_uid);
  // What each competition divides, over one denominator: α, or α · Σα / Σα of the earned ones.
  const earned = parts.map((part) => isEarned(part));
  const taking = sum(alphas.filter((_, i) => earned[i]));
  const moves = rules.unearned === "others" && taking > 0n;
  const d = moves ? NANO * taking : NANO;
  const received = alphas.map((alpha, i) => (moves ? (earned[i] ? alpha * claimed : 0n) : alpha));
  const rao = rules.emission === undefined ? null : apportion(BigInt(rules.emission), [...received, d - sum(received)], d);
  // Σ α_c · w_c of each participant, over the product of all denominators.
  const all = parts.reduce((product, { exact }) => product * exact.d, d);
  const totals = new Map();
  parts.forEach(({ settlement, exact }, i) => {
    settlement.weights.forEach((row, j) => totals.set(row.participant, (totals.get(row.participant) ?? 0n) + received[i] * exact.n[j] * (all / (d * exact.d))));
  });
  const keys = [...totals.keys()];
  const n = keys.map((key) => (uids.get(key) === null ? 0n : totals.get(key)));
  const exact = { n, d: all, burn: all - sum(n) };
  const encoded = encode(rules.encoding, exact);
  return sealed({
    schema: "assay.emission/1", epoch: parts[0].settlement.epoch,
    competitions: parts.map(({ document, settlement }, i) => ({
      name: document.scheme.scheme.name, share: decimal(alphas[i]), ...(rules.unearned === "others" ? { received: shown(received[i], d) } : {}),
      emission: rao === null ? null : rao[i].toString(), settlement: settlement.digest,
    })),
    weights: keys.map((key, i) => ({ participant: key, uid: uids.get(key), share: shown(n[i], all), u16: encoded.u16[i], chain_u16: encoded.chain_u16[i] })),
    burn: { uid: rules.burn_uid, share: shown(exact.burn, all), u16: encoded.burn_u16, chain_u16: encoded.burn_chain_u16 },
    ...(receipts ? { receipts } : {}),
  });
}

/** A case of kind emission. */
export function emission(input) {
  const rules = under("subnet", () => readRules(input.subnet, "subnet"));
  if (!Array.isArray(input.competitions) || input.competitions.length === 0) refuse("a subnet has a competition", "competitions");
  const parts = under("competitions", () =>
    input.competitions.map((competition) => {
      if (!isObject(competition)) refuse("a competition is an object");
      const read = readCase(competition.case);
      return { share: fractionOf(competition.share) ?? refuse("no share"), document: read.document, ...settleCase(read) };
    }),
  );
  return split(rules, parts);
}
