// C2SP: signed notes, checkpoints, tlog proofs, tiles. docs/formats.md, "The log".

import { concat, equal, fromBase64, toHex, utf8 } from "./bytes.js";
import { refuse } from "./errors.js";
import { isSmallOrder, noteKeyId, verifyEd25519 } from "./keys.js";
import { checkInclusion, EMPTY_ROOT, leafHash, rootOfLeaves } from "./merkle.js";

export const LARGEST = 2n ** 63n;
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
