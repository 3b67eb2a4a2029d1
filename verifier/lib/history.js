// That a log only grew: consistency proofs of RFC 9162, 2.1.4, checkpoints that were seen at another time, and forks. docs/formats.md, "The log".

import { equal, toHex } from "./bytes.js";
import { Refused, refuse } from "./errors.js";
import { EMPTY_ROOT, nodeHash, rootOfLeaves } from "./merkle.js";
import { openCheckpoint, readVkey } from "./notes.js";

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

/** That a checkpoint seen at another time is of the same history, by the leaf hashes of the larger one. */
export function checkSeen(seen, checkpoint, leaves, code = "consistency") {
  const wrong = (what, detail) => refuse(what, { code, stage: "consistency", ...detail });
  if (seen.origin !== checkpoint.origin) wrong(`the checkpoint seen before is of ${seen.origin}`);
  if (seen.size > checkpoint.size) wrong(`the log got smaller: a checkpoint of ${seen.size} entries was seen, and it has ${checkpoint.size}`);
  const root = rootOfLeaves(leaves.slice(0, Number(seen.size)));
  if (!equal(root, seen.root)) wrong(`the log does not continue the checkpoint of ${seen.size} entries that was seen before: it was forked`, { expected: toHex(seen.root), found: toHex(root) });
}

/** That the log of a receipt and a checkpoint seen at another time are one, by the hashes of a consistency proof. */
export async function checkCheckpoint(receipt, note, hashes, vkey) {
  const key = readVkey(vkey);
  const seen = await openCheckpoint(note, [key]).catch((error) => {
    if (error instanceof Refused) error.code = "consistency";
    throw error;
  });
  const now = receipt.checkpoint;
  if (seen.origin !== now.origin) refuse("the checkpoint that was seen is of another log", { code: "consistency" });
  const [a, b] = seen.size <= now.size ? [seen, now] : [now, seen];
  checkConsistency(a.size, a.root, b.size, b.root, hashes);
}

/** `assay.fork/1`: two signed checkpoints that one log cannot have both. */
export async function checkFork(value, readFields) {
  const found = readFields(value);
  const inside = async (note) => {
    try {
      return await openCheckpoint(note, [readVkey(found.key)]);
    } catch (error) {
      if (error instanceof Refused) error.code = "fork";
      throw error;
    }
  };
  const [first, second] = [await inside(found.first), await inside(found.second)];
  const wrong = (what) => refuse(what, { code: "fork" });
  if (first.size > second.size) wrong("the smaller checkpoint comes first");
  if (first.size === second.size) {
    if (found.root !== null || found.hashes.length) wrong("for one size there is nothing between the two");
    if (equal(first.root, second.root)) wrong("the two are one tree");
    return { first, second };
  }
  if (found.root === null) wrong("nothing shows how the second one begins");
  if (equal(found.root, first.root)) wrong("the second one begins with the first: the log only grew");
  checkConsistency(first.size, found.root, second.size, second.root, found.hashes);
  return { first, second };
}
