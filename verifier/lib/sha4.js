// Four SHA-256 at once, for evidence in bulk: WebAssembly with 128-bit vectors, one lane for each message, assembled here so that it can be
// read. Where there is none (or a policy forbids it), messages are hashed one after the other.

import { CONSTANTS, hashLongWith, INITIAL } from "./bytes.js";
import { hashManyWith, LANE, Many, One } from "./merkle.js";

const leb = (value) => {
  const bytes = [];
  do {
    bytes.push((value & 127) | (value > 127 ? 128 : 0));
    value >>>= 7;
  } while (value);
  return bytes;
};
/** i32.const: a signed LEB128. */
function constant(value) {
  const bytes = [0x41];
  for (value |= 0; ; value >>= 7) {
    const last = (value >> 7 === 0 && !(value & 64)) || (value >> 7 === -1 && value & 64);
    bytes.push((value & 127) | (last ? 0 : 128));
    if (last) return bytes;
  }
}

const get = (local) => [0x20, ...leb(local)];
const set = (local) => [0x21, ...leb(local)];
const vector = (code, ...rest) => [0xfd, ...leb(code), ...rest];
const [XOR, OR, SELECT, ADD] = [vector(0x51), vector(0x50), vector(0x52), vector(0xae)];
const shiftLeft = (n) => [...constant(n), ...vector(0xab)];
const shiftRight = (n) => [...constant(n), ...vector(0xad)];
const rotated = (local, n) => [...get(local), ...shiftRight(n), ...get(local), ...shiftLeft(32 - n), ...OR];
const splat = (word) => vector(0x0c, ...Array.from({ length: 4 }, () => [word & 255, (word >>> 8) & 255, (word >>> 16) & 255, word >>> 24]).flat());
/** Each lane's bytes the other way round: words are big endian. */
const SWAP = vector(0x0d, ...[3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12]);

const [BLOCKS, STATE, W, A] = [4, 5, 6, 22];

/** The word i of each of the four messages. A load into a lane takes the address below the vector, so the addresses come first. */
function loaded(i) {
  const code = [...get(3), ...get(2), ...get(1), ...get(0), ...vector(0x5c, 2, ...leb(4 * i))];
  for (let lane = 1; lane < 4; lane++) code.push(...vector(0x56, 2, ...leb(4 * i), lane));
  return [...code, ...set(W + i), ...get(W + i), ...get(W + i), ...SWAP, ...set(W + i)];
}

function scheduled(i) {
  const at = (back) => W + ((i - back) & 15);
  const s0 = [...rotated(at(15), 7), ...rotated(at(15), 18), ...XOR, ...get(at(15)), ...shiftRight(3), ...XOR];
  const s1 = [...rotated(at(2), 17), ...rotated(at(2), 19), ...XOR, ...get(at(2)), ...shiftRight(10), ...XOR];
  return [...get(at(16)), ...s0, ...ADD, ...get(at(7)), ...ADD, ...s1, ...ADD, ...set(W + (i & 15))];
}

/** Round i; the working variables turn by one place each round, so nothing is moved. */
function round(i) {
  const [a, b, c, d, e, f, g, h] = Array.from({ length: 8 }, (_, k) => A + ((k - i) & 7));
  const s1 = [...rotated(e, 6), ...rotated(e, 11), ...XOR, ...rotated(e, 25), ...XOR];
  const choice = [...get(f), ...get(g), ...get(e), ...SELECT];
  const t1 = [...get(h), ...s1, ...ADD, ...choice, ...ADD, ...splat(CONSTANTS[i]), ...ADD, ...get(W + (i & 15)), ...ADD, ...set(h)];
  const s0 = [...rotated(a, 2), ...rotated(a, 13), ...XOR, ...rotated(a, 22), ...XOR];
  const majority = [...get(c), ...get(b), ...get(a), ...get(b), ...XOR, ...SELECT];
  return [...t1, ...get(d), ...get(h), ...ADD, ...set(d), ...get(h), ...s0, ...ADD, ...majority, ...ADD, ...set(h)];
}

function body() {
  const code = [0x03, 0x40]; // loop
  for (let i = 0; i < 16; i++) code.push(...loaded(i));
  for (let k = 0; k < 8; k++) code.push(...get(STATE), ...vector(0x00, 4, ...leb(16 * k)), ...set(A + k));
  for (let i = 0; i < 64; i++) code.push(...(i < 16 ? [] : scheduled(i)), ...round(i));
  for (let k = 0; k < 8; k++) code.push(...get(STATE), ...get(STATE), ...vector(0x00, 4, ...leb(16 * k)), ...get(A + k), ...ADD, ...vector(0x0b, 4, ...leb(16 * k)));
  for (let lane = 0; lane < 4; lane++) code.push(...get(lane), ...constant(64), 0x6a, ...set(lane));
  code.push(...get(BLOCKS), ...constant(1), 0x6b, 0x22, ...leb(BLOCKS), 0x0d, 0x00, 0x0b); // tee, br_if, end of loop
  return [0x01, ...leb(24), 0x7b, ...code, 0x0b]; // 24 locals of 128 bits
}

const section = (id, content) => [id, ...leb(content.length), ...content];
function assembled() {
  const own = body();
  return Uint8Array.from([
    0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00, ...section(1, [1, 0x60, 6, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0]), ...section(3, [1, 0]), ...section(5, [1, 0x00, 1]),
    ...section(7, [2, 1, 0x6d, 2, 0, 1, 0x66, 0, 0]), ...section(10, [1, ...leb(own.length), ...own]),
  ]);
}

const STATE_AT = 4 * LANE;
const QUEUES_AT = 8 * LANE; // four lanes for each number of blocks
const [LONG_AT, LONG] = [44 * LANE, 16 * LANE]; // a piece of a long message
const MOST_BLOCKS = LANE / 64;

class Four extends Many {
  bases = [0, LANE, 2 * LANE, 3 * LANE];

  constructor({ m, f }) {
    super();
    this.hash = f;
    this.bytes = new Uint8Array(m.buffer);
    this.view = new DataView(m.buffer);
    this.words = new Int32Array(m.buffer, STATE_AT, 32);
    this.waiting = Array.from({ length: MOST_BLOCKS + 1 }, (_, blocks) => ({ base: QUEUES_AT + 128 * blocks * (blocks - 1), lane: 64 * blocks, count: 0, out: [], at: [] }));
    this.fresh = new Int32Array(32);
    for (let k = 0; k < 32; k++) this.fresh[k] = INITIAL[k >> 2];
    this.out = this.into = null;
  }

  /** Writes a message's end into its lane. */
  pad(base, length, blocks) {
    const { bytes } = this;
    const end = base + blocks * 64;
    bytes[base + length] = 0x80;
    bytes.fill(0, base + length + 1, end - 4);
    const bits = length * 8;
    bytes[end - 4] = bits >>> 24;
    bytes[end - 3] = bits >>> 16;
    bytes[end - 2] = bits >>> 8;
    bytes[end - 1] = bits;
  }

  run(blocks) {
    this.words.set(this.fresh);
    this.hash(0, LANE, 2 * LANE, 3 * LANE, blocks, STATE_AT);
  }

  /** The hash of a lane into out[at, at + 32). */
  take(lane, out, at) {
    if (this.out !== out) [this.out, this.into] = [out, new DataView(out.buffer, out.byteOffset, out.length)];
    for (let k = 0; k < 8; k++) this.into.setInt32(at + 4 * k, this.words[4 * k + lane]);
  }

  /** `count` messages of one length: fill(i, base) writes each into `bytes`, give(i) says where its hash goes in `out`. */
  each(count, length, fill, out, give) {
    const blocks = (length + 9 + 63) >> 6;
    for (const base of this.bases) this.pad(base, length, blocks);
    for (let i = 0; i < count; i += 4) {
      const now = Math.min(4, count - i);
      for (let lane = 0; lane < now; lane++) fill(i + lane, lane * LANE);
      this.run(blocks);
      for (let lane = 0; lane < now; lane++) this.take(lane, out, give(i + lane));
    }
  }

  /** The hash of data[from, from + length), of which `source` is a view, with `last` as its last byte, into out[at, at + 32): now, or with the next three of as many blocks. */
  add(data, source, from, length, last, out, at) {
    const blocks = (length + 9 + 63) >> 6;
    if (blocks > MOST_BLOCKS) return new One().add(data, source, from, length, last, out, at);
    const queue = this.waiting[blocks];
    const base = queue.base + queue.count * queue.lane;
    const { view, bytes } = this;
    const whole = length & ~3;
    for (let k = 0; k < whole; k += 4) view.setInt32(base + k, source.getInt32(from + k, true), true);
    for (let k = whole; k < length; k++) bytes[base + k] = data[from + k];
    bytes[base + length - 1] = last;
    this.pad(base, length, blocks);
    queue.out[queue.count] = out;
    queue.at[queue.count] = at;
    if (++queue.count === 4) this.empty(blocks);
  }

  empty(blocks) {
    const queue = this.waiting[blocks];
    if (queue.count === 0) return;
    const { base, lane } = queue;
    this.words.set(this.fresh);
    this.hash(base, base + lane, base + 2 * lane, base + 3 * lane, blocks, STATE_AT);
    for (let i = 0; i < queue.count; i++) this.take(i, queue.out[i], queue.at[i]);
    queue.count = 0;
  }

  /** The hash of one long message: all four lanes do the same. */
  one(data) {
    this.words.set(this.fresh);
    const whole = data.length & ~63;
    for (let from = 0; from < whole; from += LONG) {
      const to = Math.min(whole, from + LONG);
      this.bytes.set(data.subarray(from, to), LONG_AT);
      this.hash(LONG_AT, LONG_AT, LONG_AT, LONG_AT, (to - from) / 64, STATE_AT);
    }
    const rest = data.length - whole;
    const blocks = rest < 56 ? 1 : 2;
    this.bytes.set(data.subarray(whole), LONG_AT);
    this.pad(LONG_AT, rest, blocks);
    this.view.setUint32(LONG_AT + blocks * 64 - 8, Math.floor(data.length / 2 ** 29));
    this.view.setUint32(LONG_AT + blocks * 64 - 4, (data.length * 8) % 2 ** 32);
    this.hash(LONG_AT, LONG_AT, LONG_AT, LONG_AT, blocks, STATE_AT);
    const out = new Uint8Array(32);
    this.take(0, out, 0);
    return out;
  }

  /** What waits is hashed, before `out` is read or goes. */
  flush() {
    for (let blocks = 1; blocks <= MOST_BLOCKS; blocks++) this.empty(blocks);
  }
}

function made() {
  try {
    return new Four(new WebAssembly.Instance(new WebAssembly.Module(assembled())).exports);
  } catch {
    return null;
  }
}

const four = made();
if (four !== null) {
  hashManyWith(four);
  hashLongWith((data) => four.one(data));
}
