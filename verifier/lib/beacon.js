// The signature of a round of drand's quicknet: BLS on BLS12-381, by vendored code that is loaded only for this. docs/auditing.md, "The randomness".

import { sha256 } from "./bytes.js";
import { bls12_381 } from "../vendor/bls12-381.js";

const PUBLIC =
  "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451" +
  "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a";
const TAG = "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_";

/** Whether quicknet's group signed this round: a signature of 48 bytes in G1, never the point at infinity. */
export function isOfQuicknet(round, signature) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(round));
  const { shortSignatures: short, G1 } = bls12_381;
  try {
    const point = G1.Point.fromBytes(signature);
    point.assertValidity();
    return !point.is0() && short.verify(point, short.hash(sha256(bytes), TAG), bls12_381.G2.Point.fromHex(PUBLIC));
  } catch {
    return false;
  }
}
