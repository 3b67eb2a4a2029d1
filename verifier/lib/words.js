// Texts in lines of bytes, found and compared without making a string of each.

import { fromUtf8 } from "./bytes.js";

export const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/** Bytes, and the same in words of 32 bits as far as they go: four bytes are compared at once. */
export function inWords(bytes) {
  const view = viewOf(bytes);
  return { bytes, words: Int32Array.from({ length: bytes.length >> 2 }, (_, i) => view.getInt32(4 * i, true)) };
}

/** Whether data[from, to) is these bytes. */
export function isAt({ bytes, words }, data, view, from, to) {
  if (bytes.length !== to - from) return false;
  for (let i = 0; i < words.length; i++) if (words[i] !== view.getInt32(from + 4 * i, true)) return false;
  for (let i = words.length << 2; i < bytes.length; i++) if (bytes[i] !== data[from + i]) return false;
  return true;
}

/** Of the length and the last 16 bytes: enough to tell digests and numbered names apart; texts are compared whole afterwards. */
function hashed(data, from, to) {
  let hash = 0x811c9dc5 ^ (to - from);
  for (let i = Math.max(from, to - 16); i < to; i++) hash = Math.imul(hash ^ data[i], 0x01000193);
  return hash;
}

/** Texts as small numbers, found by their bytes. */
export class Words {
  constructor(check) {
    this.check = check;
    this.texts = [];
    this.bytes = [];
    this.plain = []; // whether a text stands in JSON as it is
    this.table = new Int32Array(1 << 12).fill(-1);
    this.ids = new Map();
  }

  /** The number of the text data[from, to), of which `view` is a view; its characters are checked when it is new. */
  id(data, view, from, to) {
    for (let at = hashed(data, from, to) & (this.table.length - 1); ; at = (at + 1) & (this.table.length - 1)) {
      const id = this.table[at];
      if (id < 0) return this.add(fromUtf8(data.subarray(from, to)), at);
      if (isAt(this.bytes[id], data, view, from, to)) return id;
    }
  }

  add(text, at) {
    this.check(text);
    const id = this.texts.push(text) - 1;
    this.bytes.push(inWords(new TextEncoder().encode(text)));
    this.plain.push(!/["\\\u0000-\u001f]/.test(text));
    this.ids.set(text, id);
    this.table[at] = id;
    if (this.texts.length * 2 > this.table.length) this.grow();
    return id;
  }

  of(text) {
    const bytes = new TextEncoder().encode(text);
    return this.id(bytes, viewOf(bytes), 0, bytes.length);
  }

  grow() {
    this.table = new Int32Array(this.table.length * 4).fill(-1);
    this.bytes.forEach(({ bytes }, id) => {
      let at = hashed(bytes, 0, bytes.length) & (this.table.length - 1);
      while (this.table[at] >= 0) at = (at + 1) & (this.table.length - 1);
      this.table[at] = id;
    });
  }
}
