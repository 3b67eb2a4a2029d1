// Hotkeys of Substrate: SS58 addresses, and signatures of sr25519, by vendored code.

import { concat, equal, fromHex, utf8 } from "./bytes.js";
import { blake2b, verifySr25519 as verify } from "../vendor/sr25519.js";

/** Substrate's signatures: of the message, or of <Bytes>message</Bytes> as wallets sign it. */
export function verifySr25519(key, message, signature) {
  if (signature.length !== 64) return false;
  for (const signed of [message, concat(utf8("<Bytes>"), message, utf8("</Bytes>"))]) {
    try {
      if (verify(signed, signature, key)) return true;
    } catch {
      // not a signature of this form
    }
  }
  return false;
}

const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

function fromBase58(text) {
  let value = 0n;
  for (const letter of text) {
    const digit = BASE58.indexOf(letter);
    if (digit < 0) return null;
    value = value * 58n + BigInt(digit);
  }
  const hex = value === 0n ? "" : value.toString(16);
  const zeros = /^1*/.exec(text)[0].length;
  return concat(new Uint8Array(zeros), fromHex(hex.length % 2 ? "0" + hex : hex));
}

/** The public key of an SS58 address, or null: a prefix of one or two bytes, the key, two bytes of a blake2b checksum. */
export function fromSs58(text) {
  const bytes = fromBase58(text);
  if (bytes === null || bytes.length < 35) return null;
  const prefix = bytes[0] < 64 ? 1 : bytes[0] < 128 ? 2 : 0;
  if (prefix === 0 || bytes.length !== prefix + 34) return null;
  const checksum = blake2b(concat(utf8("SS58PRE"), bytes.subarray(0, -2)));
  return equal(checksum.subarray(0, 2), bytes.subarray(-2)) ? bytes.slice(prefix, prefix + 32) : null;
}
