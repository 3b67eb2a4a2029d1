// C2SP: signed notes, checkpoints, tlog proofs, cosignatures, policies, tiles. docs/formats.md, "The log"; docs/witnessing.md.

import { concat, equal, fromBase64, toHex, utf8 } from "./bytes.js";
import { Refused, refuse } from "./errors.js";
import { isSmallOrder, noteKeyId, verifyEd25519, verifyMlDsa44 } from "./keys.js";
import { checkConsistency, checkInclusion, EMPTY_ROOT, leafHash, rootFromInclusion, rootOfLeaves } from "./merkle.js";

const LARGEST = 2n ** 63n;
const NAME = /^[^\s+\u0000-\u001f\u007f]+$/u;

const wrongLog = (what, detail = {}) => refuse(what, { code: "log", ...detail });

/** `NAME+HEX+BASE64` → {name, id, type, key, text}. `types`: 1 a log's Ed25519, 4 and 6 a witness's Ed25519 and ML-DSA-44. */
export function readVkey(text, types = [1], code = "key") {
  const wrong = (why) => refuse(`${JSON.stringify(String(text).slice(0, 120))} is no public key of a ${types[0] === 1 ? "log" : "witness"}: ${why}`, { code, stage: code });
  const parts = typeof text === "string" ? text.split("+") : [];
  if (parts.length < 3) wrong("it has not three parts");
  const [name, id] = parts;
  const data = fromBase64(parts.slice(2).join("+"));
  if (!NAME.test(name)) wrong("its name is empty or has a space in it");
  if (data === null || data.length < 2) wrong("its key is not base64");
  if (!types.includes(data[0])) wrong(`its type is ${data[0]}`);
  const key = data.slice(1);
  if (key.length !== (data[0] === 6 ? 1312 : 32)) wrong("its key has another length");
  if (!/^[0-9a-f]{8}$/.test(id) || noteKeyId(name, data) !== id) wrong("its digits are not those of the key");
  if (data[0] !== 6 && isSmallOrder(key)) wrong("anybody can sign for it, it is of small order");
  return { name, id, type: data[0], key, text };
}

/** A signed note: its text, and signature lines {name, id, blob}. */
function openNote(note) {
  if (typeof note !== "string" || note.length > 1_000_000) wrongLog("a note is a text of at most 1 MB");
  if (/[\u0000-\u0009\u000b-\u001f\u007f]|\ufffd/.test(note)) wrongLog("a note has a control character in it");
  const end = note.lastIndexOf("\n\n");
  if (end < 0) wrongLog("a note has an empty line before its signatures");
  const text = note.slice(0, end + 1);
  const lines = note.slice(end + 2);
  if (!lines.endsWith("\n")) wrongLog("a note ends with a line of signature");
  const signatures = lines.slice(0, -1).split("\n").map((line) => {
    const match = /^— ([^ ]+) ([A-Za-z0-9+/]+={0,2})$/u.exec(line);
    const blob = match && fromBase64(match[2]);
    if (!match || !NAME.test(match[1]) || !blob || blob.length < 5) wrongLog("a line of signature is not `— NAME BASE64`");
    return { name: match[1], id: toHex(blob.subarray(0, 4)), blob: blob.slice(4) };
  });
  if (signatures.length > 100) wrongLog("a note has more than 100 signatures");
  return { text, signatures };
}

/** The checkpoint in a note's text: origin, size (BigInt), root. */
function readCheckpoint(text) {
  const lines = text.slice(0, -1).split("\n");
  if (lines.length < 3 || lines.some((line) => line === "")) wrongLog("a checkpoint has three lines, and none is empty");
  const [origin, size, root] = lines;
  if (!/^(0|[1-9][0-9]{0,18})$/.test(size) || BigInt(size) >= LARGEST) wrongLog("the size is not an integer below 2^63");
  const hash = fromBase64(root);
  if (hash === null || hash.length !== 32) wrongLog("the root is not 32 bytes in base64");
  if (size === "0" && !equal(hash, EMPTY_ROOT)) wrongLog("the root of no entries is another");
  return { origin, size: BigInt(size), root: hash };
}

/** A checkpoint that one of `keys` (read vkeys) signed, and none of them wrongly. */
export async function openCheckpoint(note, keys) {
  const { text, signatures } = openNote(note);
  let signer = null;
  for (const { name, id, blob } of signatures) {
    const key = keys.find((one) => one.name === name && one.id === id);
    if (key === undefined) continue;
    if (!(await verifyEd25519(key.key, utf8(text), blob))) wrongLog(`the signature of ${name} on the checkpoint is wrong`);
    signer ??= key;
  }
  if (signer === null) wrongLog(`nobody signed the checkpoint with ${keys.length ? keys.map((key) => key.text).join(", ") : "a key that is known"}`);
  const found = readCheckpoint(text);
  if (found.origin !== signer.name) wrongLog(`the checkpoint is of ${JSON.stringify(found.origin)}, and the key of ${JSON.stringify(signer.name)}`);
  return { ...found, text, signatures, key: signer, note };
}

const number = (text) => /^(0|[1-9][0-9]{0,18})$/.test(text) && BigInt(text) < LARGEST;

/** A C2SP tlog-proof: index, hashes, and the note of a checkpoint. */
function readProof(text) {
  if (typeof text !== "string" || text.length > 1_000_000) wrongLog("a log proof is a text of at most 1 MB");
  const end = text.indexOf("\n\n");
  if (end < 0) wrongLog("a log proof ends with a checkpoint");
  const lines = text.slice(0, end).split("\n");
  if (lines.shift() !== "c2sp.org/tlog-proof@v1") wrongLog("that is no log proof of version 1");
  if (lines[0]?.startsWith("extra ")) {
    if (fromBase64(lines.shift().slice(6)) === null) wrongLog("extra data is base64");
  }
  const match = /^index (.*)$/.exec(lines.shift() ?? "");
  if (match === null || !number(match[1])) wrongLog("a log proof has an index");
  if (lines.length > 63) wrongLog("a log proof has at most 63 hashes");
  const hashes = lines.map((line) => {
    const hash = fromBase64(line);
    return hash !== null && hash.length === 32 ? hash : wrongLog("a hash of the proof is not 32 bytes in base64");
  });
  return { index: BigInt(match[1]), hashes, note: text.slice(end + 2) };
}

/** That `entry` is in the log, by a proof and the log's keys. */
export async function checkLogProof(text, entry, keys) {
  const proof = readProof(text);
  const checkpoint = await openCheckpoint(proof.note, keys);
  checkInclusion(leafHash(entry), proof.index, checkpoint.size, proof.hashes, checkpoint.root, "log", "the proof does not lead from this entry to the checkpoint");
  return { checkpoint, index: proof.index, hashes: proof.hashes };
}

/** The root of the log's first `index + 1` entries, by the proof that its last entry is in it. */
export const rootUpTo = (entry, index, hashes) => rootFromInclusion(leafHash(entry), index, index + 1n, hashes);

// ---- policies and cosignatures

/** A C2SP tlog-policy: logs, witnesses, groups and the quorum. */
export function readPolicy(text) {
  const wrong = (what, line) => refuse(`policy${line === undefined ? "" : `, line ${line + 1}`}: ${what}`, { code: "input" });
  if (typeof text !== "string" || text.length > 1_000_000) wrong("it is a text of at most 1 MB");
  const policy = { logs: [], witnesses: new Map(), groups: new Map(), quorum: null };
  const [keys, grouped] = [new Set(), new Set()];
  const fresh = (name, line) => {
    if (name === "none" || policy.witnesses.has(name) || policy.groups.has(name)) wrong(`the name ${name} stands twice, or is none`, line);
  };
  const known = (name) => policy.witnesses.has(name) || policy.groups.has(name);
  const vkey = (value, types, line) => {
    const key = readVkey(value, types, "input");
    const same = `${key.type === 6 ? 6 : 4}:${toHex(key.key)}`;
    if (keys.has(same)) wrong("a key stands in two lines", line);
    keys.add(same);
    return key;
  };
  text.split("\n").forEach((row, line) => {
    if (/[\u0000-\u0008\u000a-\u001f\u007f]/.test(row)) wrong("a control character", line);
    const words = row.split(/[ \t]+/).filter((word) => word !== "");
    if (words.length === 0 || words[0].startsWith("#")) return;
    const [kind, name, ...rest] = words;
    if (kind === "log" && (words.length === 2 || words.length === 3)) policy.logs.push(vkey(name, [1], line));
    else if (kind === "witness" && (words.length === 3 || words.length === 4)) {
      fresh(name, line);
      policy.witnesses.set(name, vkey(rest[0], [4, 6], line));
    } else if (kind === "group" && words.length >= 4) {
      fresh(name, line);
      const members = rest.slice(1);
      for (const member of members) {
        if (!known(member)) wrong(`${member} is not defined above`, line);
        if (grouped.has(member)) wrong(`${member} is in a group already`, line);
        grouped.add(member);
      }
      const least = rest[0] === "any" ? 1 : rest[0] === "all" ? members.length : /^[1-9][0-9]{0,8}$/.test(rest[0]) ? Number(rest[0]) : 0;
      if (least < 1 || least > members.length) wrong(`${rest[0]} of ${members.length} members is no quorum`, line);
      policy.groups.set(name, { least, members });
    } else if (kind === "quorum" && words.length === 2) {
      if (policy.quorum !== null) wrong("it has two quorums", line);
      if (name !== "none" && !known(name)) wrong(`${name} is not defined above`, line);
      policy.quorum = name;
    } else wrong(`${JSON.stringify(row.slice(0, 60))} is no line of a policy`, line);
  });
  if (policy.quorum === null) wrong("it has no quorum");
  return policy;
}

const big64 = (value) => Uint8Array.from({ length: 8 }, (_, i) => Number((BigInt(value) >> BigInt(56 - 8 * i)) & 255n));

function cosigned(witness, checkpoint, time) {
  if (witness.type === 4) return utf8(`cosignature/v1\ntime ${time}\n${checkpoint.text}`);
  const named = (text) => concat(Uint8Array.of(utf8(text).length), utf8(text));
  return concat(utf8("subtree/v1\n\0"), named(witness.name), big64(time), named(checkpoint.origin), big64(0), big64(checkpoint.size), checkpoint.root);
}

/** That a quorum of the policy cosigned a checkpoint: witness → time of its newest cosignature (BigInt, seconds since 1970). */
export async function checkWitnesses(checkpoint, policy) {
  const wrong = (what) => refuse(what, { code: "witnesses", stage: "witnesses" });
  if (policy.logs.length && !policy.logs.some((key) => key.text === checkpoint.key.text || (key.name === checkpoint.key.name && equal(key.key, checkpoint.key.key))))
    wrong(`the policy does not name the log ${checkpoint.origin}`);
  const times = new Map();
  for (const [name, witness] of policy.witnesses) {
    for (const { name: keyName, id, blob } of checkpoint.signatures) {
      if (keyName !== witness.name || id !== witness.id) continue;
      const time = blob.length > 8 ? blob.subarray(0, 8).reduce((value, byte) => value * 256n + BigInt(byte), 0n) : LARGEST;
      const right = time < LARGEST && (await (witness.type === 6 ? verifyMlDsa44 : verifyEd25519)(witness.key, cosigned(witness, checkpoint, time), blob.slice(8)));
      if (!right) wrong(`the cosignature of ${name} is wrong`);
      if (!times.has(name) || times.get(name) < time) times.set(name, time);
    }
  }
  const reached = (name) => {
    if (name === "none" || times.has(name)) return true;
    const group = policy.groups.get(name);
    return group !== undefined && group.members.filter(reached).length >= group.least;
  };
  if (!reached(policy.quorum)) wrong(`the quorum ${policy.quorum} of the policy is not reached: ${times.size ? [...times.keys()].join(", ") : "nobody"} cosigned`);
  return times;
}

// ---- tiles

const WIDTH = 256;

export function tilePath(level, index, width) {
  let path = "";
  for (let n = BigInt(index); ; n /= 1000n) {
    const part = (n % 1000n).toString().padStart(3, "0");
    path = path === "" ? part : `x${part}/${path}`;
    if (n < 1000n) break;
  }
  return `tile/${level}/${path}${width === WIDTH ? "" : `.p/${width}`}`;
}

export const TILE_PATH = /^tile\/(?:entries|[0-9]|[1-5][0-9]|6[0-3])\/(?:x[0-9]{3}\/)*[0-9]{3}(?:\.p\/(?:[1-9][0-9]{0,2}))?$/;

const tileRoot = (tile) => rootOfLeaves(Array.from({ length: tile.length / 32 }, (_, i) => tile.subarray(32 * i, 32 * i + 32)));

/**
 * Every tile and entry that a checkpoint needs: read with `file(path)` (bytes or null), each as long as its name says, and one leading to the
 * other. Gives the entries and the leaf hashes.
 */
export function checkTiles(file, checkpoint, code = "input") {
  const wrong = (what) => refuse(what, { code, stage: "log" });
  if (checkpoint.size > 10_000_000n) wrong("a log of more than 10 million entries");
  const size = Number(checkpoint.size);
  const [entries, leaves] = [[], []];
  let below = null;
  for (let [level, count] = [0, size]; count > 0; level++, count = Math.floor(count / WIDTH)) {
    const here = [];
    for (let n = 0; n * WIDTH < count; n++) {
      const width = Math.min(WIDTH, count - n * WIDTH);
      const path = tilePath(level, n, width);
      const tile = file(path) ?? wrong(`${path} is missing: the checkpoint of ${size} entries needs it`);
      if (tile.length !== 32 * width) wrong(`${path} does not have ${width} hashes`);
      for (let i = 0; i < width; i++) here.push(tile.slice(32 * i, 32 * i + 32));
      if (level === 0) readEntries(file, n, width, wrong).forEach((entry) => entries.push(entry));
    }
    if (below !== null)
      here.forEach((hash, i) => {
        if (!equal(hash, tileRoot(concat(...below.slice(i * WIDTH, i * WIDTH + WIDTH))))) wrong(`tile/${level}: hash ${i} is not the root of the tile under it`);
      });
    else {
      leaves.push(...here);
      entries.forEach((entry, i) => {
        if (!equal(leafHash(entry), leaves[i])) wrong(`tile/entries: entry ${i} is not that of its hash`);
      });
    }
    below = here;
  }
  if (!equal(rootOfLeaves(leaves), checkpoint.root)) wrong("the tiles lead to another root than the checkpoint's");
  return { entries, leaves };
}

function readEntries(file, n, width, wrong) {
  const path = tilePath("entries", n, width);
  const data = file(path) ?? wrong(`${path} is missing`);
  const entries = [];
  let at = 0;
  for (; at + 2 <= data.length; ) {
    const length = data[at] * 256 + data[at + 1];
    if (at + 2 + length > data.length) wrong(`${path} ends within an entry`);
    entries.push(data.slice(at + 2, at + 2 + length));
    at += 2 + length;
  }
  if (at !== data.length || entries.length !== width) wrong(`${path} does not have ${width} entries`);
  return entries;
}

/** That a checkpoint seen at another time is of the same history, by the leaf hashes of the larger one. */
export function checkSeen(seen, checkpoint, leaves, code = "consistency") {
  const wrong = (what, detail) => refuse(what, { code, stage: "consistency", ...detail });
  if (seen.origin !== checkpoint.origin) wrong(`the checkpoint seen before is of ${seen.origin}`);
  if (seen.size > checkpoint.size) wrong(`the log got smaller: a checkpoint of ${seen.size} entries was seen, and it has ${checkpoint.size}`);
  const root = rootOfLeaves(leaves.slice(0, Number(seen.size)));
  if (!equal(root, seen.root)) wrong(`the log does not continue the checkpoint of ${seen.size} entries that was seen before: it was forked`, { expected: toHex(seen.root), found: toHex(root) });
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
