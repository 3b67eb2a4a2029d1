// Evidence as Parquet, as Assay exports it, turned into the lines of JSON that it stands for: flat columns of INT64, BOOLEAN and text, plain or
// by a dictionary, uncompressed or Zstandard. docs/formats.md, "A bundle". What else Parquet may have is refused by name: not supported here.

import { fromUtf8, utf8 } from "./bytes.js";
import { Refused, refuse, Unsupported } from "./errors.js";
import { canonical, parse } from "./json.js";
import { readRecord } from "./records.js";

const MIB = 1 << 20;
const MOST_FILE = 1024 * MIB;
/** Rows of a page, and bytes of it: more is refused before anything of that size is made. */
const MOST_ROWS = 1 << 22;
const MOST_PAGE = 256 * MIB;
const ROWS_AT_ONCE = 8192;

/** Fields whose cell is the canonical JSON of a value; other texts are the value. */
const AS_JSON = new Set(["baseline", "checks", "panel", "quotes", "verdict"]);
/** Fields that are left out where a cell is empty; other empty cells say the field's default. */
const LEFT_OUT = new Set(["attestation", "baseline", "checks", "image", "injection_suspected", "panel", "quotes", "verdict"]);
const COMMON = ["epoch", "kind", "observed_at", "participant", "seq", "submission", "validator"];
const FIELDS = {
  tests: ["image", "outcome", "task", "trial"],
  workflow: ["budget", "cost", "declared_retries", "hard_failures", "max_seconds", "outcome", "quality", "retries", "seconds", "steps_completed", "steps_total", "task", "timeouts"],
  rubric: ["attestation", "baseline", "checks", "injection_suspected", "outcome", "panel", "quotes", "verdict"],
  points: ["invalid", "repository", "revoked_invalid", "revoked_valid", "starred", "valid"],
  given: ["score"],
};

/** Thrift's compact protocol: structs as objects by field number, 64-bit integers as numbers. */
class Thrift {
  constructor(bytes, at = 0) {
    Object.assign(this, { bytes, at, depth: 0 });
  }

  byte() {
    if (this.at >= this.bytes.length) throw new RangeError("it is cut off");
    return this.bytes[this.at++];
  }

  unsigned() {
    let [value, scale] = [0, 1];
    for (let byte = 128; byte & 128; scale *= 128) {
      byte = this.byte();
      value += (byte & 127) * scale;
      if (scale > 2 ** 63) throw new RangeError("a number is too long");
    }
    return value;
  }

  signed() {
    const value = this.unsigned();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  text() {
    const length = this.unsigned();
    if (length > this.bytes.length - this.at) throw new RangeError("it is cut off");
    return this.bytes.subarray(this.at, (this.at += length));
  }

  value(type) {
    if (type === 1 || type === 2) return type === 1;
    if (type === 3) return (this.byte() << 24) >> 24;
    if (type >= 4 && type <= 6) return this.signed();
    if (type === 7) return (this.at += 8);
    if (type === 8) return this.text();
    if (type === 9 || type === 10) return this.list();
    if (type === 12) return this.struct();
    throw new RangeError(`a field of type ${type}`);
  }

  list() {
    const head = this.byte();
    const count = head >> 4 === 15 ? this.unsigned() : head >> 4;
    if (count > this.bytes.length) throw new RangeError("a list is longer than the file");
    return Array.from({ length: count }, () => ((head & 15) <= 2 ? this.byte() === 1 : this.value(head & 15)));
  }

  struct() {
    if (++this.depth > 16) throw new RangeError("it is too deep");
    const fields = {};
    for (let number = 0; ; ) {
      const head = this.byte();
      if (head === 0) break;
      number = head >> 4 ? number + (head >> 4) : this.signed();
      fields[number] = this.value(head & 15);
    }
    this.depth--;
    return fields;
  }
}

/** Runs of numbers of `width` bits, repeated or packed by eight; `count` of them. */
function runs(bytes, at, width, count) {
  if (width > 24) throw new RangeError("a dictionary is too large");
  const found = new Int32Array(count);
  const reader = new Thrift(bytes, at);
  for (let row = 0; row < count; ) {
    const head = reader.unsigned();
    if (head & 1) {
      let [buffer, held] = [0, 0];
      const end = reader.at + (head >> 1) * width;
      for (const last = Math.min(count, row + (head >> 1) * 8); row < last; row++) {
        for (; held < width; held += 8) buffer |= reader.byte() << held;
        found[row] = buffer & ((1 << width) - 1);
        buffer >>>= width;
        held -= width;
      }
      reader.at = end;
    } else {
      let value = 0;
      for (let k = 0; k < width; k += 8) value += reader.byte() * 2 ** k;
      const last = Math.min(count, row + Math.floor(head / 2));
      if (last === row) throw new RangeError("a run of nothing");
      found.fill(value, row, last);
      row = last;
    }
  }
  return found;
}

const [BOOLEAN, INT32, INT64, BYTES] = [0, 1, 2, 6];

/** `count` values one after the other, each as `cell` makes it. */
function plain(bytes, type, count, cell) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const found = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (type === BOOLEAN) found.push(cell(((view.getUint8(i >> 3) >> (i & 7)) & 1) === 1));
    else if (type === INT32) found.push(cell(view.getInt32(4 * i, true)));
    else if (type === INT64) found.push(cell(view.getInt32(8 * i + 4, true) * 2 ** 32 + view.getUint32(8 * i, true)));
    else {
      const length = view.getUint32(at, true);
      if (length > bytes.length - at - 4) throw new RangeError("a text is cut off");
      found.push(cell(fromUtf8(bytes.subarray(at + 4, (at += 4 + length)))));
    }
  }
  return found;
}

/** A cell as JSON, under its field's name. */
const cellOf = (name, type) => {
  if (type !== BYTES) return (value) => (typeof value === "boolean" || Number.isSafeInteger(value) ? String(value) : refuse(`${name}: ${value} is no whole number below 2^53`));
  if (!AS_JSON.has(name)) return (value) => JSON.stringify(value);
  return (value) => (canonical(parse(value)) === value ? value : refuse(`${name}: it is not canonical JSON`));
};

async function inflated(bytes, codec, size) {
  if (size > MOST_PAGE) throw new RangeError("a page is larger than 256 MiB");
  if (codec === 0) return bytes;
  if (codec !== 6) throw new Unsupported("Parquet of another compression than Zstandard");
  const { decompress } = await import("../vendor/zstd.js");
  const found = decompress(bytes, new Uint8Array(size));
  if (found.length !== size) throw new RangeError("a page has another size than it says");
  return found;
}

/** The cells of a column in one group of rows as JSON, undefined where there is none. */
async function readColumn(file, { 3: about }, { name, type, optional }, rows) {
  const cell = cellOf(name, type);
  const found = [];
  let dictionary = null;
  let at = Math.min(about[9], about[11] ?? about[9]);
  while (found.length < rows) {
    const reader = new Thrift(file, at);
    const head = reader.struct();
    const [size, packed] = [head[2], head[3]];
    if (!(packed >= 0 && packed <= file.length - reader.at)) throw new RangeError("a page is cut off");
    at = reader.at + packed;
    if (head[1] !== 0 && head[1] !== 2) throw new Unsupported("pages of Parquet's second version");
    const count = (head[5] ?? head[7])[1];
    if (!(count >= 0 && count <= MOST_ROWS)) throw new RangeError("a page has too many rows");
    const page = await inflated(file.subarray(reader.at, at), about[4], size);
    if (head[1] === 2) {
      dictionary = plain(page, type, count, cell);
      continue;
    }
    if (count === 0 || found.length + count > rows) throw new RangeError("a column has other rows than the file says");
    let from = 0;
    let there = null;
    if (optional) {
      const length = new DataView(page.buffer, page.byteOffset).getUint32(0, true);
      there = runs(page.subarray(4, 4 + length), 0, 1, count);
      from = 4 + length;
    }
    const values = there === null ? count : there.reduce((total, one) => total + one, 0);
    let own;
    if (head[5][2] === 0) own = plain(page.subarray(from), type, values, cell);
    else if (head[5][2] === 2 || head[5][2] === 8) {
      const keys = values ? runs(page, from + 1, page[from], values) : [];
      own = Array.from(keys, (key) => dictionary[key] ?? refuse("a key of no dictionary"));
    } else if (head[5][2] === 3 && type === BOOLEAN) own = Array.from(runs(page, from + 4, 1, values), (bit) => cell(bit === 1));
    else throw new Unsupported(`the encoding ${head[5][2]} of Parquet`);
    for (let i = 0, next = 0; i < count; i++) found.push(there === null || there[i] ? own[next++] : undefined);
  }
  return found;
}

/** The columns that records are made of, by their place in the file. Others are not read, as docs/formats.md says. */
function readSchema(elements, kind = null) {
  const columns = [];
  for (const [i, element] of elements.slice(1).entries()) {
    if (element[5]) throw new Unsupported("nested columns of Parquet");
    const name = fromUtf8(element[4]);
    if (kind !== null && !COMMON.includes(name) && !FIELDS[kind].includes(name)) continue;
    if (columns.some((column) => column.name === name)) refuse(`the column ${name} stands twice`);
    if (![BOOLEAN, INT32, INT64, BYTES].includes(element[1]) || element[3] === 2) throw new Unsupported(`the column ${name} is of another type than Assay writes`);
    columns.push({ place: i, name, type: element[1], optional: element[3] === 1 });
  }
  return columns;
}

/** A row as its line of JSON: fields in order, seq as the last. An empty cell says the default, as `readRecord` fills it in. */
function lineOf(columns, row) {
  let [text, whole] = ["", true];
  for (const { label, cells, leftOut } of columns) {
    const value = cells[row];
    if (value !== undefined) text += `${text ? "," : "{"}${label}${value}`;
    else if (!leftOut) whole = false;
  }
  return whole ? text : filled(`${text}}`).slice(0, -1);
}

function filled(text) {
  const given = parse(text);
  const record = readRecord(given);
  return canonical({ ...record, ...given });
}

async function* groups(file, meta) {
  const probe = readSchema(meta[2]);
  const typed = probe.find(({ name }) => name === "kind");
  for (const group of meta[4]) {
    const rows = group[3];
    if (!(rows >= 0 && rows <= MOST_ROWS)) throw new RangeError("a group has too many rows");
    const kinds = typed ? new Set(await readColumn(file, group[1][typed.place], typed, rows)) : new Set(['"tests"']);
    if (rows === 0) continue;
    const kind = JSON.parse([...kinds][0] ?? "null");
    if (kinds.size !== 1 || !Object.hasOwn(FIELDS, kind)) refuse("it is not of one kind of evidence");
    const columns = readSchema(meta[2], kind).filter(({ name }) => name !== "kind");
    const seq = columns.find(({ name }) => name === "seq") ?? refuse("the column seq is missing");
    const cells = new Map();
    for (const column of columns) cells.set(column.name, await readColumn(file, group[1][column.place], column, rows));
    for (const name of FIELDS[kind]) if (!cells.has(name) && !LEFT_OUT.has(name)) cells.set(name, []); // a column that is missing is an empty one
    const seqs = cells.get(seq.name);
    cells.delete("seq");
    cells.set("kind", Array.from({ length: rows }, () => JSON.stringify(kind)));
    const named = [...cells.keys()].sort().map((name) => ({ label: `"${name}":`, cells: cells.get(name), leftOut: LEFT_OUT.has(name) }));
    yield { named, seqs, rows };
  }
}

/** The lines of a file, in pieces of bytes. */
async function* linesOf(file, path) {
  const wrong = (what) => refuse(`${path}: is not readable Parquet (${what})`, { code: "evidence", stage: "evidence", where: path });
  try {
    const { length } = file;
    const magic = (at) => String.fromCharCode(...file.subarray(at, at + 4));
    if (length < 12 || magic(0) !== "PAR1" || magic(length - 4) !== "PAR1") wrong("it has another beginning or end");
    const size = new DataView(file.buffer, file.byteOffset).getUint32(length - 8, true);
    if (size > length - 12) wrong("its end is cut off");
    const meta = new Thrift(file.subarray(length - 8 - size, length - 8)).struct();
    for await (const { named, seqs, rows } of groups(file, meta)) {
      for (let first = 0; first < rows; first += ROWS_AT_ONCE) {
        let text = "";
        for (let row = first; row < Math.min(rows, first + ROWS_AT_ONCE); row++) text += `${lineOf(named, row)},"seq":${seqs[row] ?? wrong("a seq is empty")}}\n`;
        yield utf8(text);
      }
    }
  } catch (error) {
    if (error instanceof Unsupported) throw new Unsupported(`${path}: ${error.message}; \`assay verify\` reads it, and \`assay export epoch\` without --parquet writes JSON lines`);
    if (error instanceof Refused) throw Object.assign(error, { code: "evidence", stage: "evidence", where: path, message: error.message.startsWith(path) ? error.message : `${path}: ${error.message}` });
    wrong(error instanceof Error ? error.message : String(error));
  }
}

/** `files`, of which Parquet is read as its lines. */
export function asLines(files) {
  async function* stream(path) {
    const file = await files.read(path, MOST_FILE).catch((error) => refuse(`${path}: ${error.message}`, { code: "evidence", stage: "evidence", where: path }));
    yield* linesOf(file, path);
  }
  return {
    paths: files.paths,
    stream: (path) => (path.endsWith(".parquet") ? stream(path) : files.stream(path)),
    async read(path, limit) {
      if (!path.endsWith(".parquet")) return await files.read(path, limit);
      const parts = [];
      let size = 0;
      for await (const part of stream(path)) {
        size += part.length;
        if (size > limit) throw new Error(`is larger than ${limit} bytes`);
        parts.push(part);
      }
      const all = new Uint8Array(size);
      parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
      return all;
    },
  };
}
