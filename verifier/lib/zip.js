// A zip archive of a bundle: what macOS and Windows make of a folder. Stored and deflated files; the browser's own inflating.

import { concat, fromUtf8 } from "./bytes.js";
import { safePath } from "./bundle.js";
import { refuse, Unsupported } from "./errors.js";

const MOST_FILES = 1_000_000;
const MOST_LIST = 256 << 20;
const END = 22;
const [EVERYWHERE, UTF8, ENCRYPTED] = [0xffffffff, 1 << 11, 1];

const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/** The last record: how many files, and where their list is. */
async function readEnd(slice, size) {
  const tail = await slice(Math.max(0, size - END - 65535), size);
  const view = viewOf(tail);
  for (let at = tail.length - END; at >= 0; at--) {
    if (view.getUint32(at, true) !== 0x06054b50 || at + END + view.getUint16(at + 20, true) !== tail.length) continue;
    const [count, length, from] = [view.getUint16(at + 10, true), view.getUint32(at + 12, true), view.getUint32(at + 16, true)];
    if (count === 0xffff || length === EVERYWHERE || from === EVERYWHERE) throw new Unsupported("a zip of more than 4 GiB or 65,534 files: unpack it, and drop the folder");
    if (length > MOST_LIST || from + length > size) refuse("the archive is damaged: its list is not in it");
    return { count, list: await slice(from, from + length) };
  }
  refuse("that is no zip archive, or it is cut off");
}

function readList({ count, list }) {
  const files = new Map();
  const view = viewOf(list);
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (at + 46 > list.length || view.getUint32(at, true) !== 0x02014b50) refuse("the archive is damaged: its list ends early");
    const [flags, method, packed, length] = [view.getUint16(at + 8, true), view.getUint16(at + 10, true), view.getUint32(at + 20, true), view.getUint32(at + 24, true)];
    const [name, extra, comment] = [view.getUint16(at + 28, true), view.getUint16(at + 30, true), view.getUint16(at + 32, true)];
    const bytes = list.subarray(at + 46, at + 46 + name);
    const text = flags & UTF8 ? fromUtf8(bytes) : String.fromCharCode(...bytes);
    const from = view.getUint32(at + 42, true);
    at += 46 + name + extra + comment;
    // What macOS puts beside files is not of the bundle.
    if (text.endsWith("/") || text.startsWith("__MACOSX/") || text.split("/").at(-1) === ".DS_Store") continue;
    const path = safePath(text);
    if (flags & ENCRYPTED) throw new Unsupported(`${path}: the archive is encrypted`);
    if (method !== 0 && method !== 8) throw new Unsupported(`${path}: compressed in a way (${method}) that is not read here`);
    if (packed === EVERYWHERE || length === EVERYWHERE || from === EVERYWHERE) throw new Unsupported(`${path}: a file of more than 4 GiB in a zip`);
    if (files.has(path)) refuse(`${path} stands twice in the archive`);
    if (files.size === MOST_FILES) refuse("the archive has too many files");
    files.set(path, { from, packed, length, method });
  }
  return files;
}

/** The files of a zip of `size` bytes; `slice(from, to)` gives a promise of bytes. */
export async function readZip(slice, size) {
  const files = readList(await readEnd(slice, size));

  async function* packed({ from, packed: length }, chunk) {
    const head = viewOf(await slice(from, Math.min(size, from + 30)));
    if (head.byteLength < 30 || head.getUint32(0, true) !== 0x04034b50) refuse("the archive is damaged: a file is not where it should be");
    const begin = from + 30 + head.getUint16(26, true) + head.getUint16(28, true);
    if (begin + length > size) refuse("the archive is cut off");
    for (let at = begin; at < begin + length; at += chunk) yield await slice(at, Math.min(begin + length, at + chunk));
  }

  async function* stream(path, chunk = 1 << 22) {
    const file = files.get(path);
    const source = packed(file, chunk);
    let total = 0;
    const count = (part) => {
      total += part.length;
      if (total > file.length) refuse(`${path}: it is longer than the archive says`);
      return part;
    };
    if (file.method === 0) for await (const part of source) yield count(part);
    else yield* inflated(source, count, chunk, path);
    if (total !== file.length) refuse(`${path}: it is shorter than the archive says`);
  }

  return {
    paths: [...files.keys()],
    stream,
    async read(path, limit) {
      const file = files.get(path);
      if (!file) return null;
      if (file.length > limit) throw new Error(`is larger than ${limit} bytes`);
      const parts = [];
      for await (const part of stream(path)) parts.push(part);
      return concat(...parts);
    },
  };
}

/** What `source` inflates to, in pieces of about `chunk` bytes: the browser gives very small ones. */
async function* inflated(source, count, chunk, path) {
  const readable = new ReadableStream({
    async pull(controller) {
      const { value, done } = await source.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
  const reader = readable.pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const next = () => reader.read().catch((error) => refuse(`${path}: it is not deflated as it should be (${error.message})`));
  let [held, size] = [[], 0];
  for (let part = await next(); !part.done; part = await next()) {
    held.push(count(part.value));
    size += part.value.length;
    if (size < chunk) continue;
    yield concat(...held);
    [held, size] = [[], 0];
  }
  if (size) yield concat(...held);
}
