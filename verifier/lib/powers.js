// The two rules that take powers: e^x of softmax (SPEC 1), and (1 − ρ)^τ of the exponential decay (SPEC 4). reward.js loads them for schemes that have one.

import { halfEven, min, NANO } from "./exact.js";

const DIGITS = 50;

/** n/d > 0 in `DIGITS` significant digits, half to even, as [coefficient, exponent]; `exact` is false if n is a lower bound. */
function significant(n, d) {
  let exponent = n.toString().length - d.toString().length - DIGITS;
  const scaled = () => (exponent < 0 ? [n * 10n ** BigInt(-exponent), d] : [n, d * 10n ** BigInt(exponent)]);
  let [top, bottom] = scaled();
  while (top / bottom >= 10n ** BigInt(DIGITS)) {
    exponent++;
    [top, bottom] = scaled();
  }
  const coefficient = halfEven(top, bottom);
  return coefficient === 10n ** BigInt(DIGITS) ? [coefficient / 10n, exponent + 1] : [coefficient, exponent];
}

/** e^(−n/d) as [coefficient, exponent] of 50 significant digits: the argument and the result half to even. SPEC 1, softmax. */
export function decimalExp(n, d) {
  if (n === 0n) return [1n, 0];
  const [coefficient, exponent] = significant(n, d);
  for (let precision = 140; ; precision *= 2) {
    const one = 10n ** BigInt(precision);
    let x = exponent < 0 ? (coefficient * one) / 10n ** BigInt(-exponent) : coefficient * 10n ** BigInt(exponent) * one;
    let halvings = 0;
    for (; x > one / 256n; x /= 2n) halvings++;
    // e^x by its series, then squared: an error of a few units of the last digit doubles with each squaring.
    let [term, total] = [one, one];
    for (let k = 1n; term > 0n; k++) {
      term = (term * x) / (one * k);
      total += term;
    }
    for (let i = 0; i < halvings; i++) total = (total * total) / one;
    const slack = 10n ** BigInt(20) * (total / one + 1n);
    const [low, high] = [significant(one, total + slack), significant(one, total - slack)];
    if (low[0] === high[0] && low[1] === high[1]) return low;
  }
}

/** 1 − (1−ρ)^τ in nanos, half to even: exact where that is short, else between two bounds that round alike. */
export function exponential(rate, stale) {
  const base = NANO - rate;
  if (stale <= 400) return halfEven(NANO ** BigInt(stale) - base ** BigInt(stale), NANO ** BigInt(stale - 1));
  if (base === 0n) return NANO;
  for (let digits = 60n; ; digits *= 2n) {
    const one = 10n ** digits;
    let [low, high] = [one, one];
    let [baseLow, baseHigh] = [(base * one) / NANO, (base * one) / NANO];
    for (let power = BigInt(stale); power > 0n; power >>= 1n) {
      if (power & 1n) [low, high] = [(low * baseLow) / one, (high * baseHigh) / one + 1n];
      [baseLow, baseHigh] = [(baseLow * baseLow) / one, (baseHigh * baseHigh) / one + 1n];
    }
    const [least, most] = [halfEven((one - min(high, one)) * NANO, one), halfEven((one - low) * NANO, one)];
    if (least === most) return least;
  }
}
