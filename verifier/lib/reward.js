// Agreed scores → weights. SPEC 4; payouts (SPEC 5) are in payout.js. Shares stay exact: numerators over one denominator, until they are encoded.

import { apportion, halfUp, max, min, NANO, shown, sum } from "./exact.js";
import { nanos } from "./scheme.js";

/** Rules that only some schemes have, once they are loaded: those of powers.js and payout.js. */
export const later = {};

/** Loads the rules that a scheme needs beside this file: before anything of it is computed. */
export async function loadRules({ reward, decay }) {
  if (reward?.strategy === "softmax" || decay?.curve === "exponential") Object.assign(later, await import("./powers.js"));
  if (reward?.kind === "payout") Object.assign(later, await import("./payout.js"));
}

/** Shares of one whole: `n[i]/d`, and what burns, `burn/d`. */
const whole = (n, d) => ({ n, d, burn: d - sum(n) });

/** Floor and strategy: scores in nanos, in ranking order, into exact shares. */
export function strategy(reward, scores) {
  const least = nanos(reward.min_score);
  const takes = scores.map((score) => score > 0n && score >= least);
  const taking = scores.map((score, i) => (takes[i] ? score : 0n));
  const many = takes.filter(Boolean).length;
  if (many === 0) return whole(scores.map(() => 0n), 1n);
  switch (reward.strategy) {
    case "linear": return whole(taking, sum(taking));
    case "direct": return whole(taking, max(NANO, sum(taking)));
    case "quadratic": return whole(taking.map((score) => score * score), sum(taking.map((score) => score * score)));
    case "winner-takes-all": {
      const winners = Math.min(reward.top, many);
      let place = 0;
      return whole(takes.map((takesPart) => (takesPart && place++ < winners ? 1n : 0n)), BigInt(winners));
    }
    case "ranked": {
      let place = 0;
      return whole(takes.map((takesPart) => (takesPart ? BigInt(many - place++) : 0n)), (BigInt(many) * BigInt(many + 1)) / 2n);
    }
    default: return softmax(reward, taking, takes);
  }
}

function softmax(reward, taking, takes) {
  const best = taking.reduce(max);
  const raised = taking.map((score, i) => (takes[i] ? later.decimalExp(best - score, nanos(reward.temperature)) : [0n, 0]));
  const lowest = Math.min(...raised.map(([, exponent]) => exponent));
  const n = raised.map(([coefficient, exponent]) => coefficient * 10n ** BigInt(exponent - lowest));
  return whole(n, sum(n));
}

/** Shares under the cap α; what cannot be placed burns, or is unallocated. */
export function cap(reward, shares) {
  const alpha = nanos(reward.cap);
  let { n, d } = shares;
  // One denominator for shares and cap: everything × 10^9.
  n = n.map((share) => share * NANO);
  const limit = alpha * d;
  d *= NANO;
  const total = sum(n);
  const result = (capped, unallocated = 0n) => ({ n: capped, d, burn: shares.burn * NANO + (total - sum(capped)) - unallocated, unallocated });
  if (n.every((share) => share <= limit)) return result(n);
  const cut = n.map((share) => min(share, limit));
  if (reward.excess === "drop") return result(cut, total - sum(cut));
  if (reward.excess === "burn") return result(cut);
  // Water-filling: the capped keep α, the others share what is left in proportion, until nobody exceeds α.
  const capped = n.map((share) => share > limit);
  for (;;) {
    const left = total - limit * BigInt(capped.filter(Boolean).length);
    const others = sum(n.filter((_, i) => !capped[i]));
    if (others === 0n || left <= 0n) return result(n.map((_, i) => (capped[i] ? limit : 0n)));
    const over = n.map((share, i) => !capped[i] && share * left > limit * others);
    if (!over.includes(true)) {
      // The factor left/others brings its own denominator.
      const spread = n.map((share, i) => (capped[i] ? limit * others : share * left));
      const kept = { n: spread, d: d * others, unallocated: 0n };
      return { ...kept, burn: shares.burn * NANO * others + total * others - sum(spread) };
    }
    over.forEach((isOver, i) => { if (isOver) capped[i] = true; });
  }
}

/** What a stale participant loses: epochs stale, and B in nanos. SPEC 4, Decay. */
export function decay(rules, last, epoch) {
  const stale = last === null || rules.curve === "none" ? 0 : Math.max(0, epoch - last - rules.grace_epochs);
  const most = nanos(rules.max_burn);
  let burned = 0n;
  if (stale > 0 && rules.curve === "linear") burned = min(nanos(rules.rate) * BigInt(stale), most);
  if (stale > 0 && rules.curve === "exponential") burned = min(later.exponential(nanos(rules.rate), stale), most);
  return { stale, burned, kept: NANO - burned };
}

const U16 = 65535n;

/** Exact shares and the burn into u16, by `encoding`, and into what the chain stores. */
export function encode(encoding, { n, d, burn }) {
  const all = [...n, burn];
  const most = all.reduce(max, 0n);
  const upscaled = all.map((share) => (most === 0n ? 0n : halfUp(share * U16, most)));
  let u16 = upscaled;
  if (encoding === "round") u16 = all.map((share) => halfUp(share * U16, d));
  if (encoding === "exact-sum") u16 = apportion(U16, all, d);
  return { u16: u16.slice(0, -1).map(Number), chain_u16: upscaled.slice(0, -1).map(Number), burn_u16: Number(u16.at(-1)), burn_chain_u16: Number(upscaled.at(-1)) };
}

/**
 * All steps together. `participants`, in ranking order: score (nanos), kept (nanos), registered, warm (nanos or undefined).
 * Rows and burn as a settlement shows them, and `exact`: the shares at the end.
 */
export function weights(reward, participants, warmUp = false) {
  const first = strategy(reward, participants.map(({ score }) => score));
  const second = cap(reward, first);
  const parts = { strategy: first.burn * (second.d / first.d), cap: 0n, decay: 0n, warm_up: 0n, unregistered: 0n };
  parts.cap = second.burn - parts.strategy;
  const scale = warmUp ? NANO * warmUp : NANO;
  const d = second.d * scale;
  parts.strategy *= scale;
  parts.cap *= scale;
  const n = second.n.map((share, i) => {
    const { kept, registered, seen } = participants[i];
    const decayed = share * kept;
    parts.decay += (share * NANO - decayed) * (scale / NANO);
    const warmed = warmUp ? decayed * min(seen, warmUp) : decayed;
    if (warmUp) parts.warm_up += decayed * warmUp - warmed;
    if (registered) return warmed;
    parts.unregistered += warmed;
    return 0n;
  });
  const unallocated = second.unallocated * scale;
  const exact = { n, d, burn: d - sum(n) - unallocated };
  const encoded = encode(reward.encoding, exact);
  const rows = n.map((share, i) => ({
    strategy: shown(first.n[i], first.d), capped: shown(second.n[i], second.d), share: shown(share, d), u16: encoded.u16[i], chain_u16: encoded.chain_u16[i],
  }));
  const burn = { share: shown(exact.burn, d), u16: encoded.burn_u16, chain_u16: encoded.burn_chain_u16 };
  for (const part of ["strategy", "cap", "decay", ...(warmUp ? ["warm_up"] : []), "unregistered"]) burn[part] = shown(parts[part], d);
  return { rows, burn, unallocated: shown(unallocated, d), exact };
}
