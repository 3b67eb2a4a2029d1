// Exact numbers: nanos, decimal strings, instants, rounding, largest remainder. SPEC 1; the exponential of softmax is in powers.js.

export const NANO = 10n ** 9n;
/** Integers below it are exact as numbers. */
const EXACT = 2n ** 53n;

export const floorDiv = (n, d) => (n >= 0n ? n / d : -((-n + d - 1n) / d));

/** n/d (d > 0, n ≥ 0) to the nearest integer, halves to the even one. */
export function halfEven(n, d) {
  const whole = n / d;
  const twice = 2n * (n - whole * d);
  return twice > d || (twice === d && whole % 2n === 1n) ? whole + 1n : whole;
}

export const halfUp = (n, d) => (2n * n + d) / (2n * d);

export const max = (a, b) => (a > b ? a : b);
export const min = (a, b) => (a < b ? a : b);
export const sum = (values) => values.reduce((total, value) => total + value, 0n);
export const absolute = (value) => (value < 0n ? -value : value);

export function gcd(a, b) {
  while (b) [a, b] = [b, a % b];
  return a;
}

/** A decimal string as nanos, or null: digits, at most one point, at most nine fractional digits, below 10^9. */
export function nanosOf(text) {
  const match = typeof text === "string" ? /^([0-9]+)(?:\.([0-9]{1,9}))?$/.exec(text) : null;
  if (match === null || match[1].length > 4000) return null;
  const [whole, part] = [match[1], (match[2] ?? "").padEnd(9, "0")];
  if (whole.length <= 6) return BigInt(Number(whole) * 1e9 + Number(part)); // below 10^15, so exact
  const nanos = BigInt(whole) * NANO + BigInt(part);
  return nanos < NANO * NANO ? nanos : null;
}

/** A fraction of a scheme as nanos, or null: also a percentage of at most seven fractional digits. */
export function fractionOf(text) {
  if (typeof text !== "string" || !text.endsWith("%")) return nanosOf(text);
  const match = /^([0-9]+)(?:\.([0-9]{1,7}))?%$/.exec(text);
  if (match === null || match[1].length > 4000) return null;
  const nanos = BigInt(match[1]) * 10n ** 7n + BigInt((match[2] ?? "").padEnd(7, "0"));
  return nanos < NANO * NANO ? nanos : null;
}

/** Digits as an integer below `limit`, or null. */
export function integerOf(text, limit) {
  if (typeof text !== "string" || !/^[0-9]+$/.test(text) || text.length > 4000) return null;
  const value = BigInt(text);
  return value < limit ? value : null;
}

export const STAKES = 2n ** 63n;
export const WEIS = 2n ** 256n;

/** Nanos as a normalised decimal string: 800000000 → "0.8". */
export function decimal(nanos) {
  if (nanos >= 0n && nanos < EXACT) {
    const [number, part] = [Number(nanos), Number(nanos) % 1e9]; // remainder, difference and quotient of these are exact
    return part === 0 ? String(number / 1e9) : `${(number - part) / 1e9}.${withoutZeros(part)}`;
  }
  const fraction = (nanos % NANO).toString().padStart(9, "0").replace(/0+$/, "");
  return (nanos / NANO).toString() + (fraction === "" ? "" : "." + fraction);
}

/** Nine digits of a fraction without the zeros at their end. `part`: 1 … 10^9 − 1. */
function withoutZeros(part) {
  let length = 9;
  for (; part % 10 === 0; part /= 10) length--;
  return String(part).padStart(length, "0");
}

/** n/d as nanos half to even, written as a decimal string. */
export const shown = (n, d) => decimal(halfEven(n * NANO, d));

const INSTANT =
  /^([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))$/;

/** RFC 3339 text as microseconds since 1970 (BigInt), or null. */
export function instantOf(text) {
  const match = typeof text === "string" ? INSTANT.exec(text) : null;
  if (match === null) return null;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map(Number);
  const [offsetHour, offsetMinute] = [Number(match[9] ?? 0), Number(match[10] ?? 0)];
  if (hour > 23 || minute > 59 || second > 59 || offsetHour > 23 || offsetMinute > 59 || year < 1) return null;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (month < 1 || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return null;
  const offset = (match[8] === "-" ? -1 : 1) * (offsetHour * 60 + offsetMinute);
  date.setUTCHours(hour, minute - offset, second);
  if (date.getUTCFullYear() < 1 || date.getUTCFullYear() > 9999) return null;
  return BigInt(date.getTime()) * 1000n + BigInt((match[7] ?? "").padEnd(6, "0"));
}

/** Microseconds since 1970 as canonical text: UTC, no fraction or six digits. */
export function instantText(micros) {
  const seconds = floorDiv(micros, 1000000n);
  const fraction = micros - seconds * 1000000n;
  const date = new Date(Number(seconds) * 1000).toISOString().slice(-24, -5).padStart(19, "0");
  return date + (fraction === 0n ? "" : "." + fraction.toString().padStart(6, "0")) + "Z";
}

/** `whole` units over shares numerators[i]/denominator that sum to 1: floors first, then the largest remainders, ties to the earlier. */
export function apportion(whole, numerators, denominator) {
  const parts = numerators.map((n) => (whole * n) / denominator);
  const remainders = numerators.map((n, i) => whole * n - parts[i] * denominator);
  const left = Number(whole - sum(parts));
  const order = remainders.map((_, i) => i).sort((a, b) => (remainders[a] === remainders[b] ? a - b : remainders[a] < remainders[b] ? 1 : -1));
  for (const i of order.slice(0, left)) parts[i] += 1n;
  return parts;
}

const below = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** The order of two texts by their UTF-8 bytes. */
export function byUtf8(a, b) {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    let [x, y] = [a.charCodeAt(i), b.charCodeAt(i)];
    if (x === y) continue;
    if (x >= 0xd800 && y >= 0xd800) {
      x = x >= 0xe000 ? x - 0x800 : x + 0x2000;
      y = y >= 0xe000 ? y - 0x800 : y + 0x2000;
    }
    return below(x, y);
  }
  return below(a.length, b.length);
}

/** Lowest terms, as the cases write them. */
export function ratioText(n, d) {
  const common = gcd(n, d) || 1n;
  return `${n / common}/${d / common}`;
}
