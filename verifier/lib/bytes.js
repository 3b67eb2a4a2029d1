// Bytes, base64, hex and SHA-256. SHA-256 is here and not WebCrypto's, because one epoch takes millions of short
// hashes, and a promise for each would take minutes.

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export const utf8 = (text) => ENCODER.encode(text);

/** Text of bytes; throws a TypeError if they are not UTF-8. */
export const fromUtf8 = (bytes) => DECODER.decode(bytes);

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

export function toHex(bytes) {
  let text = "";
  for (const byte of bytes) text += HEX[byte];
  return text;
}

/** Bytes of hex in lower case, or null. */
export function fromHex(text) {
  if (typeof text !== "string" || !/^(?:[0-9a-f]{2})*$/.test(text)) return null;
  const bytes = new Uint8Array(text.length / 2);
  const digit = (at) => text.charCodeAt(at) - (text.charCodeAt(at) < 58 ? 48 : 87);
  for (let i = 0; i < bytes.length; i++) bytes[i] = digit(2 * i) * 16 + digit(2 * i + 1);
  return bytes;
}

export function concat(...parts) {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export function equal(a, b) {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

const STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

export function toBase64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const word = (bytes[i] << 16) | ((bytes[i + 1] ?? 0) << 8) | (bytes[i + 2] ?? 0);
    text += STANDARD[word >> 18] + STANDARD[(word >> 12) & 63];
    text += i + 1 < bytes.length ? STANDARD[(word >> 6) & 63] : "=";
    text += i + 2 < bytes.length ? STANDARD[word & 63] : "=";
  }
  return text;
}

/** Bytes of base64 with padding and no bits after the end, or null. The URL-safe alphabet only where `urlSafe`; never a mix. */
export function fromBase64(text, urlSafe = false) {
  if (typeof text !== "string" || text.length % 4 !== 0) return null;
  const plain = /^[A-Za-z0-9+/]*={0,2}$/.test(text);
  if (!plain && !(urlSafe && /^[A-Za-z0-9_-]*={0,2}$/.test(text))) return null;
  const standard = plain ? text : text.replaceAll("-", "+").replaceAll("_", "/");
  let bytes;
  try {
    const letters = atob(standard);
    bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  } catch {
    return null;
  }
  const last = bytes.length - (bytes.length % 3 || 3);
  return toBase64(bytes.subarray(Math.max(0, last))) === standard.slice(Math.max(0, (last / 3) * 4)) ? bytes : null;
}

const K = new Int32Array(64);
export const INITIAL = new Int32Array(8);
(function constants() {
  // The first 32 bits of the fractional parts of the square (cube) roots of the first 8 (64) primes: FIPS 180-4.
  const root = (prime, power) => {
    let [low, high] = [0n, 1n << 40n];
    const target = BigInt(prime) << BigInt(32 * power);
    while (high - low > 1n) {
      const middle = (low + high) / 2n;
      if (middle ** BigInt(power) <= target) low = middle;
      else high = middle;
    }
    return Number(low & 0xffffffffn) | 0;
  };
  let found = 0;
  for (let n = 2; found < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
    if (!prime) continue;
    if (found < 8) INITIAL[found] = root(n, 2);
    K[found++] = root(n, 3);
  }
})();

export const CONSTANTS = K;

const W = new Int32Array(64);
const H = new Int32Array(8);
const BLOCK = new Uint8Array(128);

function compress(data, at) {
  for (let i = 0; i < 16; i++, at += 4) W[i] = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3];
  for (let i = 16; i < 64; i++) {
    const x = W[i - 15];
    const y = W[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    W[i] = (W[i - 16] + s0 + W[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = [H[0], H[1], H[2], H[3], H[4], H[5], H[6], H[7]];
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + (g ^ (e & (f ^ g))) + K[i] + W[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) | (c & (a | b)))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  H[0] = (H[0] + a) | 0;
  H[1] = (H[1] + b) | 0;
  H[2] = (H[2] + c) | 0;
  H[3] = (H[3] + d) | 0;
  H[4] = (H[4] + e) | 0;
  H[5] = (H[5] + f) | 0;
  H[6] = (H[6] + g) | 0;
  H[7] = (H[7] + h) | 0;
}

/** SHA-256 of data[from, to), written into `out` at `at`. `data` may not be `out`. */
export function sha256Into(data, from, to, out, at) {
  H.set(INITIAL);
  const length = to - from;
  let position = from;
  for (; to - position >= 64; position += 64) compress(data, position);
  const rest = to - position;
  const size = rest < 56 ? 64 : 128;
  BLOCK.fill(0, 0, size);
  for (let i = 0; i < rest; i++) BLOCK[i] = data[position + i];
  BLOCK[rest] = 0x80;
  const high = Math.floor(length / 0x20000000);
  const low = (length << 3) >>> 0;
  for (let i = 0; i < 4; i++) {
    BLOCK[size - 8 + i] = high >>> (24 - 8 * i);
    BLOCK[size - 4 + i] = low >>> (24 - 8 * i);
  }
  compress(BLOCK, 0);
  if (size === 128) compress(BLOCK, 64);
  for (let i = 0; i < 8; i++) {
    const word = H[i];
    out[at + 4 * i] = word >>> 24;
    out[at + 4 * i + 1] = word >>> 16;
    out[at + 4 * i + 2] = word >>> 8;
    out[at + 4 * i + 3] = word;
  }
}

/** What hashes long data faster than this, if there is such a thing here: `sha4.js` says so. */
let ofLong = null;
export const hashLongWith = (work) => (ofLong = work);

export function sha256(data) {
  if (ofLong !== null && data.length >= 256) return ofLong(data);
  const out = new Uint8Array(32);
  sha256Into(data, 0, data.length, out, 0);
  return out;
}

/** `sha256:` and 64 hex digits of a text's UTF-8, or of bytes. */
export const digestOf = (data) => "sha256:" + toHex(sha256(typeof data === "string" ? utf8(data) : data));

export const isDigest = (value) => typeof value === "string" && /^sha256:[0-9a-f]{64}$/.test(value);
