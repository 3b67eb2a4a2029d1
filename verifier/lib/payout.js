// Payouts: a deposit into places, fees and refund. SPEC 5. reward.js loads it for schemes that pay.

import { sum } from "./exact.js";

/** A deposit into places, fees and refund. `marks`, in ranking order: scores in nanos. SPEC 5. */
export function payout(rules, marks) {
  const deposit = BigInt(rules.deposit);
  const reaches = (mark, tier) => mark >= 10n * BigInt(tier.reach_bps) * BigInt(rules.threshold_bps);
  const tier = marks.length ? rules.tiers.find((step) => reaches(marks[0], step)) : undefined;
  const released = tier ? (deposit * BigInt(tier.release_bps)) / 10000n : 0n;
  const places = rules.split.slice(0, marks.length).map((part, i) => {
    const gross = reaches(marks[i], rules.tiers.at(-1)) ? (released * BigInt(part)) / 10000n : 0n;
    const fee = (gross * BigInt(rules.fee_bps)) / 10000n;
    return { place: i + 1, gross: gross.toString(), fee: fee.toString(), net: (gross - fee).toString() };
  });
  const given = sum(places.map((place) => BigInt(place.gross)));
  const fees = sum(places.map((place) => BigInt(place.fee)));
  return { tier_bps: tier ? tier.release_bps : 0, released: released.toString(), places, fees: fees.toString(), refund: (deposit - given).toString() };
}
