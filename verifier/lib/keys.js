// Public keys and signatures: Ed25519 (WebCrypto, or the vendored one where there is none). sr25519 is loaded when a hotkey is met: hotkeys.js.

import { concat, fromHex, sha256, toHex, utf8 } from "./bytes.js";
import { refuse } from "./errors.js";

const subtle = globalThis.crypto?.subtle;

/** y of the points of small order, little endian, without the sign's bit; also the spellings that are not canonical. */
const SMALL = [
  "0000000000000000000000000000000000000000000000000000000000000000", "0100000000000000000000000000000000000000000000000000000000000000",
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

/** Anybody can sign for a key of small order. */
export function isSmallOrder(key) {
  const copy = Uint8Array.from(key);
  copy[31] &= 0x7f;
  return SMALL.includes(toHex(copy));
}

let native = null;
async function hasNative() {
  if (native === null) {
    try {
      await subtle.importKey("raw", fromHex(SMALL[2]), { name: "Ed25519" }, false, ["verify"]);
      native = true;
    } catch (error) {
      native = error.name === "DataError" || error.name === "SyntaxError" ? Boolean(subtle) : false;
    }
  }
  return native;
}

/** Keys that were imported, by their hex: one validator signs many batches. */
const imported = new Map();
function importKey(key) {
  const name = toHex(key);
  if (imported.size > 4096) imported.clear();
  if (!imported.has(name)) imported.set(name, subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]));
  return imported.get(name);
}

export async function verifyEd25519(key, message, signature) {
  if (signature.length !== 64 || key.length !== 32 || isSmallOrder(key)) return false;
  if (await hasNative()) {
    try {
      return await subtle.verify({ name: "Ed25519" }, await importKey(key), signature, message);
    } catch {
      return false;
    }
  }
  const { ed25519 } = await import("../vendor/sr25519.js");
  try {
    return ed25519.verify(signature, message, key, { zip215: false });
  } catch {
    return false;
  }
}

/** A validator's key: `[ed25519:|sr25519:]` and 64 hex digits (alone: Ed25519), also after 0x, or an SS58 address (sr25519); null if it is none. */
export async function readKey(text) {
  const match = /^(?:(ed25519|sr25519):)?(?:0x)?([0-9a-fA-F]{64})$/.exec(text);
  if (match) return { kind: match[1] ?? "ed25519", key: fromHex(match[2].toLowerCase()) };
  const key = text.length < 40 || text.length > 60 ? null : await (await import("./hotkeys.js")).fromSs58(text);
  return key === null ? null : { kind: "sr25519", key };
}

export const keyId = ({ kind, key }) => `${kind}:${toHex(key)}`;

export function refuseSmallOrder(found, text) {
  if (found.kind === "ed25519" && isSmallOrder(found.key)) refuse(`${text}: anybody can sign for this key, it is of small order`, { code: "key", stage: "key" });
  return found;
}

export const verifyWith = async ({ kind, key }, message, signature) =>
  kind === "sr25519" ? await (await import("./hotkeys.js")).verifySr25519(key, message, signature) : await verifyEd25519(key, message, signature);

/** The first four bytes of SHA-256(name ‖ 0A ‖ type ‖ key), in hex: the digits of a vkey. */
export const noteKeyId = (name, typeAndKey) => toHex(sha256(concat(utf8(name), Uint8Array.of(0x0a), typeAndKey)).subarray(0, 4));
