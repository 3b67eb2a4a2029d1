// A tar archive (ustar, with the long names of pax and GNU), as the service offers a bundle: the place of each file in it.

import { fromUtf8 } from "./bytes.js";
import { safePath } from "./bundle.js";
import { refuse } from "./errors.js";

const BLOCK = 512;
const MOST_FILES = 1_000_000;

const field = (block, at, length) => {
  const end = block.indexOf(0, at);
  return fromUtf8(block.subarray(at, end < 0 || end > at + length ? at + length : end));
};

/** A number in octal, or in binary where the first bit is set. */
function number(block, at, length) {
  if (block[at] & 0x80) {
    let value = block[at] & 0x7f;
    for (let i = 1; i < length; i++) value = value * 256 + block[at + i];
    return Number.isSafeInteger(value) ? value : refuse("a file of the archive is too large");
  }
  const text = field(block, at, length).trim();
  return /^[0-7]*$/.test(text) ? Number.parseInt(text || "0", 8) : refuse("the archive is damaged: a size is no number");
}

/** The files of an archive of `size` bytes; `slice(from, to)` gives a promise of bytes. */
export async function readTar(slice, size) {
  const files = new Map();
  let long = null;
  for (let at = 0; at + BLOCK <= size; ) {
    const block = await slice(at, at + BLOCK);
    if (block.every((byte) => byte === 0)) break;
    let sum = 8 * 32;
    block.forEach((byte, i) => (sum += i >= 148 && i < 156 ? 0 : byte));
    if (sum !== number(block, 148, 8)) refuse("that is no tar archive, or it is damaged");
    const length = number(block, 124, 12);
    const type = String.fromCharCode(block[156] || 48);
    const from = at + BLOCK;
    if (from + length > size) refuse("the archive is cut off");
    at = from + Math.ceil(length / BLOCK) * BLOCK;
    if (type === "x" || type === "L") {
      if (length > 65536) refuse("a name in the archive is too long");
      const text = fromUtf8(await slice(from, from + length));
      long = type === "L" ? text.replace(/\u0000+$/, "") : (/^[0-9]+ path=(.*)$/m.exec(text)?.[1] ?? long);
      continue;
    }
    const prefix = field(block, 257, 5) === "ustar" ? field(block, 345, 155) : "";
    const name = long ?? (prefix ? `${prefix}/` : "") + field(block, 0, 100);
    long = null;
    if (type === "0" || type === "7") {
      const path = safePath(name);
      if (files.has(path)) refuse(`${path} stands twice in the archive`);
      if (files.size === MOST_FILES) refuse("the archive has too many files");
      files.set(path, { from, length });
    } else if (type !== "5" && type !== "g") refuse("the archive has links or devices in it");
  }
  return {
    paths: [...files.keys()],
    async read(path, limit) {
      const file = files.get(path);
      if (!file) return null;
      if (file.length > limit) throw new Error(`is larger than ${limit} bytes`);
      return await slice(file.from, file.from + file.length);
    },
    async *stream(path, chunk = 1 << 22) {
      const file = files.get(path);
      for (let at = 0; at < file.length; at += chunk) yield await slice(file.from + at, file.from + Math.min(file.length, at + chunk));
    },
  };
}
