// Merkle trees of RFC 6962: a leaf is SHA-256(00 ‖ entry), a node SHA-256(01 ‖ left ‖ right). Proofs of RFC 9162, 2.1.3 and 2.1.4.

import { equal, sha256, sha256Into, toHex } from "./bytes.js";
import { refuse } from "./errors.js";

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

export const LANE = 1024;

/** Many hashes, and the root over many; `each` is what differs. */
export class Many {
  /** The root over the first `count` hashes of `level`, which is used up. */
  root(level, count) {
    if (count === 0) return sha256(new Uint8Array(0));
    const { bytes, view } = this;
    for (const base of this.bases) bytes[base] = 1;
    const from = new DataView(level.buffer, level.byteOffset, level.length);
    const fill = (pair, base) => {
      for (let k = 0; k < 64; k += 4) view.setInt32(base + 1 + k, from.getInt32(pair * 64 + k, true), true);
    };
    while (count > 1) {
      const pairs = count >> 1;
      this.each(pairs, 65, fill, level, (pair) => pair * 32);
      if (count & 1) level.copyWithin(pairs * 32, (count - 1) * 32, count * 32);
      count = pairs + (count & 1);
    }
    return level.slice(0, 32);
  }
}

/** One after the other. */
export class One extends Many {
  bytes = new Uint8Array(LANE);
  view = new DataView(this.bytes.buffer);
  bases = [0];

  each(count, length, fill, out, give) {
    for (let i = 0; i < count; i++) {
      fill(i, 0);
      sha256Into(this.bytes, 0, length, out, give(i));
    }
  }

  add(data, source, from, length, last, out, at) {
    const before = data[from + length - 1];
    data[from + length - 1] = last;
    sha256Into(data, from, from + length, out, at);
    data[from + length - 1] = before;
  }

  flush() {}
}

/** What hashes many at once; `sha4.js`, once it is loaded, puts what is fast in its place. */
export let many = new One();
export const hashManyWith = (other) => (many = other);

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

export const rootText = (root) => "sha256:" + toHex(root);

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
