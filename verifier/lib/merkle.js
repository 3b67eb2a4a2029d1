// Merkle trees of RFC 6962: a leaf is SHA-256(00 ‖ entry), a node SHA-256(01 ‖ left ‖ right). Proofs of RFC 9162, 2.1.3 and 2.1.4.

import { equal, sha256, toHex } from "./bytes.js";
import { refuse } from "./errors.js";
import { many } from "./sha4.js";

export const EMPTY_ROOT = sha256(new Uint8Array(0));

export function leafHash(entry) {
  const data = new Uint8Array(entry.length + 1);
  data.set(entry, 1);
  return sha256(data);
}

const NODE = new Uint8Array(65);
NODE[0] = 1;
export function nodeHash(left, right) {
  NODE.set(left, 1);
  NODE.set(right, 33);
  return sha256(NODE);
}

/** The root over leaf hashes: the last of an odd number goes up alone. */
export function rootOfLeaves(hashes) {
  const level = new Uint8Array(hashes.length * 32);
  hashes.forEach((hash, i) => level.set(hash, i * 32));
  return many.root(level, hashes.length);
}

/** The leaf hashes of entries, one after the other; those of one length four at a time. */
export function leafHashes(entries) {
  const level = new Uint8Array(entries.length * 32);
  const length = entries[0]?.length ?? 0;
  if (length > 512 || entries.some((entry) => entry.length !== length)) {
    entries.forEach((entry, i) => level.set(leafHash(entry), i * 32));
    return level;
  }
  for (const base of many.bases) many.bytes[base] = 0;
  many.each(entries.length, length + 1, (i, base) => many.bytes.set(entries[i], base + 1), level, (i) => i * 32);
  return level;
}
export const rootOf = (entries) => many.root(leafHashes(entries), entries.length);

/** SHA-256 of each of many texts in bytes, one after the other. */
export function digests(texts) {
  const found = new Uint8Array(texts.length * 32);
  texts.forEach((text, i) => many.add(text, new DataView(text.buffer, text.byteOffset, text.length), 0, text.length, text.at(-1), found, i * 32));
  many.flush();
  return found;
}
export const rootText = (root) => "sha256:" + toHex(root);

/** The largest power of two below n > 1. */
const split = (n) => {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
};

export function inclusionProof(leaves, index) {
  if (leaves.length <= 1) return [];
  const k = split(leaves.length);
  return index < k
    ? [...inclusionProof(leaves.slice(0, k), index), rootOfLeaves(leaves.slice(k))]
    : [...inclusionProof(leaves.slice(k), index - k), rootOfLeaves(leaves.slice(0, k))];
}

export function consistencyProof(leaves, old) {
  const walk = (part, m, whole) => {
    if (m === part.length) return whole ? [] : [rootOfLeaves(part)];
    const k = split(part.length);
    return m <= k ? [...walk(part.slice(0, k), m, whole), rootOfLeaves(part.slice(k))] : [...walk(part.slice(k), m - k, false), rootOfLeaves(part.slice(0, k))];
  };
  return old === 0 ? [] : walk(leaves, old, true);
}

/** The root that a proof leads to from a leaf hash, or null where its length does not fit. Sizes are numbers or BigInts. */
export function rootFromInclusion(leaf, index, size, proof) {
  let [fn, sn] = [BigInt(index), BigInt(size) - 1n];
  if (fn > sn || sn < 0n) return null;
  let hash = leaf;
  for (const sibling of proof) {
    if (sn === 0n) return null;
    if (fn % 2n === 1n || fn === sn) {
      hash = nodeHash(sibling, hash);
      while (fn % 2n === 0n && fn !== 0n) [fn, sn] = [fn >> 1n, sn >> 1n];
    } else hash = nodeHash(hash, sibling);
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  return sn === 0n ? hash : null;
}

export function checkInclusion(leaf, index, size, proof, root, code = "log", what = "the inclusion proof does not lead to the root") {
  const found = rootFromInclusion(leaf, index, size, proof);
  if (found === null || !equal(found, root)) refuse(what, { code, expected: toHex(root), found: found === null ? "a proof of another length" : toHex(found) });
}

/** Refuses, unless the tree of `newSize` entries begins with that of `oldSize`. */
export function checkConsistency(oldSize, oldRoot, newSize, newRoot, proof, code = "consistency") {
  const wrong = (what, detail = {}) => refuse(what, { code, ...detail });
  const [m, n] = [BigInt(oldSize), BigInt(newSize)];
  if (m > n) wrong(`the log got smaller: it had ${m} entries, and now ${n}`);
  if (m === 0n && !equal(oldRoot, EMPTY_ROOT)) wrong("the root of no entries is another");
  if (n === 0n && !equal(newRoot, EMPTY_ROOT)) wrong("the root of no entries is another");
  if (m === 0n || m === n) {
    if (proof.length) wrong("a proof with hashes, where there is nothing to prove");
    if (m === n && !equal(oldRoot, newRoot)) wrong("two roots for one size: the log was forked", { expected: toHex(oldRoot), found: toHex(newRoot) });
    return;
  }
  const path = (m & (m - 1n)) === 0n ? [oldRoot, ...proof] : [...proof];
  if (path.length === 0) wrong("the consistency proof is too short");
  let [fn, sn] = [m - 1n, n - 1n];
  while (fn % 2n === 1n) [fn, sn] = [fn >> 1n, sn >> 1n];
  let [before, after] = [path[0], path[0]];
  for (const hash of path.slice(1)) {
    if (sn === 0n) wrong("the consistency proof is too long");
    if (fn % 2n === 1n || fn === sn) {
      [before, after] = [nodeHash(hash, before), nodeHash(hash, after)];
      while (fn % 2n === 0n && fn !== 0n) [fn, sn] = [fn >> 1n, sn >> 1n];
    } else after = nodeHash(after, hash);
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  if (sn !== 0n) wrong("the consistency proof is too short");
  if (!equal(before, oldRoot)) wrong("the log does not continue the earlier tree: it was forked", { expected: toHex(oldRoot), found: toHex(before) });
  if (!equal(after, newRoot)) wrong("the consistency proof does not lead to the root", { expected: toHex(newRoot), found: toHex(after) });
}
