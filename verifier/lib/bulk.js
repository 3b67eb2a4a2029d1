// Evidence of kind tests in bulk: lines become columns without a JavaScript object for each, and every rule of the general way holds.
// A line that the fast reader does not know by heart is read by the strict one, also a record of another kind, which bears on nothing.

import { fromUtf8 } from "./bytes.js";
import { refuse } from "./errors.js";
import { canonical, isObject, parse } from "./json.js";
import * as read from "./fields.js";
import { many, rootText } from "./merkle.js";
import "./sha4.js";
import { readRecord, recordText, withoutSeq } from "./records.js";
import { byUtf8 } from "./exact.js";
import { inWords, isAt, viewOf, Words } from "./words.js";
import { readTasks } from "./inputs.js";
import { KINDS, kindOf, loadKinds, testsVote } from "./score.js";
import { owners, settle } from "./settle.js";
import { openBatches } from "./batches.js";
import { staged } from "./receipts.js";

const OUTCOMES = ["pass", "fail", "timeout", "error"];
const TESTS = KINDS.indexOf("tests");
const LONGEST_LINE = 1 << 20;

/** One column for each field; they grow together. */
class Columns {
  constructor() {
    this.count = 0;
    this.room = 0;
    this.words = {
      validator: new Words((text) => read.key(text, "validator")), participant: new Words((text) => read.key(text, "participant")),
      submission: new Words((text) => read.submission(text, "submission")), task: new Words((text) => read.task(text, "task")),
    };
    this.numbers = { seq: Float64Array, epoch: Float64Array, validator: Int32Array, participant: Int32Array, submission: Int32Array, task: Int32Array, trial: Int32Array, outcome: Uint8Array, kind: Uint8Array };
    for (const [name, kind] of Object.entries(this.numbers)) this[name] = new kind(0);
    this.digests = new Uint8Array(0);
    this.leaves = new Uint8Array(0);
  }

  more() {
    if (this.count < this.room) return;
    many.flush(); // hashes that wait are for the arrays as they are
    this.room = Math.max(4096, this.room * 2);
    for (const [name, kind] of Object.entries(this.numbers)) this[name] = grown(this[name], new kind(this.room));
    this.digests = grown(this.digests, new Uint8Array(this.room * 32));
    this.leaves = grown(this.leaves, new Uint8Array(this.room * 32));
  }
}

function grown(old, array) {
  array.set(old);
  return array;
}

const ascii = (text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));
const [EPOCH, KIND, OUTCOME, PARTICIPANT, SUBMISSION, TASK, TRIAL, VALIDATOR, SEQ] = [
  '{"epoch":', ',"kind":"tests","observed_at":"', '","outcome":"', '","participant":"', '","submission":"', '","task":"', '","trial":', ',"validator":"', '","seq":',
].map((text) => inWords(ascii(text)));
const TIME = ascii("0000-00-00T00:00:00.000000Z");
const DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Reads lines one after the other into columns. */
class Reader {
  constructor(columns) {
    this.columns = columns;
    this.at = 0;
    this.data = this.view = null;
    this.held = []; // the submission that each participant had last
  }

  is(data, word, to) {
    const end = this.at + word.bytes.length;
    if (end > to || !isAt(word, data, this.view, this.at, end)) return false;
    this.at = end;
    return true;
  }

  /** An integer in its one spelling, or −1. */
  number(data) {
    const from = this.at;
    let value = 0;
    for (let digit = data[this.at] - 48; digit >= 0 && digit <= 9; digit = data[++this.at] - 48) value = value * 10 + digit;
    const length = this.at - from;
    return length === 0 || length > 15 || (length > 1 && data[from] === 48) ? -1 : value;
  }

  /** The end of a text without escapes, or −1. */
  end(data, to) {
    let i = this.at;
    while (i < to && data[i] !== QUOTE) if (data[i] === BACKSLASH || data[i++] < 0x20) return -1;
    return i;
  }

  /** `guess`: the number of the text that is likely here. */
  word(data, to, words, guess) {
    if (guess >= 0 && words.plain[guess]) {
      const own = words.bytes[guess];
      const after = this.at + own.bytes.length;
      if (after < to && data[after] === QUOTE && isAt(own, data, this.view, this.at, after)) {
        this.at = after;
        return guess;
      }
    }
    const end = this.end(data, to);
    if (end < 0) return -1;
    const id = words.id(data, this.view, this.at, end);
    this.at = end;
    return id;
  }

  /** A time in canonical form: `2026-11-02T09:00:00Z`, perhaps with six digits of a fraction that is not 0. */
  time(data, to) {
    const end = this.end(data, to);
    const at = this.at;
    if (end - at !== 20 && end - at !== 27) return false;
    for (let i = 0; i < end - at; i++) {
      const [wanted, byte] = [TIME[i], data[at + i]];
      if (wanted === 48 ? byte < 48 || byte > 57 : byte !== wanted && i !== 19) return false;
    }
    const two = (i) => (data[at + i] - 48) * 10 + data[at + i + 1] - 48;
    const [year, month, day] = [two(0) * 100 + two(2), two(5), two(8)];
    if (year < 1 || month < 1 || month > 12 || day < 1 || two(11) > 23 || two(14) > 59 || two(17) > 59) return false;
    const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
    if (day > DAYS[month - 1] + (month === 2 && leap ? 1 : 0)) return false;
    if (end - at === 27) {
      if (data[at + 19] !== 46 || data[at + 26] !== 90) return false;
      let zero = true;
      for (let i = 20; i < 26; i++) if (data[at + i] !== 48) zero = false;
      if (zero) return false;
    } else if (data[at + 19] !== 90) return false;
    this.at = end;
    return true;
  }

  outcome(data, to) {
    const end = this.end(data, to);
    const id = { 112: 0, 102: 1, 116: 2, 101: 3 }[data[this.at]] ?? -1;
    if (id < 0 || end - this.at !== OUTCOMES[id].length) return -1;
    for (let i = 1; i < OUTCOMES[id].length; i++) if (data[this.at + i] !== OUTCOMES[id].charCodeAt(i)) return -1;
    this.at = end;
    return id;
  }

  /** The line data[from, to) if it has exactly the usual fields in canonical form; false if it has to be read strictly. */
  fast(data, from, to) {
    const { columns: all } = this;
    const row = all.count;
    this.at = from;
    if (this.data !== data) [this.data, this.view] = [data, viewOf(data)];
    if (!this.is(data, EPOCH, to)) return false;
    const epoch = this.number(data);
    if (epoch < 0 || !this.is(data, KIND, to) || !this.time(data, to) || !this.is(data, OUTCOME, to)) return false;
    const outcome = this.outcome(data, to);
    if (outcome < 0 || !this.is(data, PARTICIPANT, to)) return false;
    const participant = this.word(data, to, all.words.participant, -1);
    if (participant < 0 || !this.is(data, SUBMISSION, to)) return false;
    const submission = this.word(data, to, all.words.submission, this.held[participant] ?? -1);
    this.held[participant] = submission;
    if (submission < 0 || !this.is(data, TASK, to)) return false;
    const task = this.word(data, to, all.words.task, -1);
    if (task < 0 || !this.is(data, TRIAL, to)) return false;
    const trial = this.number(data);
    if (trial < 1 || trial > read.BILLION || !this.is(data, VALIDATOR, to)) return false;
    const validator = this.word(data, to, all.words.validator, row ? all.validator[row - 1] : -1);
    const cut = this.at + 1;
    if (validator < 0 || !this.is(data, SEQ, to)) return false;
    const seq = this.number(data);
    if (seq < 0 || data[this.at] !== 0x7d || this.at + 1 !== to) return false;
    many.add(data, this.view, from, cut + 1 - from, 0x7d, all.digests, row * 32);
    return this.row(row, { seq, epoch, validator, participant, submission, task, trial, outcome, kind: TESTS });
  }

  /** The line in any spelling; false if the module of its kind has to be loaded first. */
  strict(text, wrong) {
    const { columns: all } = this;
    const value = parse(text, { code: "evidence" });
    if (!isObject(value) || !Number.isSafeInteger(value.seq) || value.seq < 0) wrong("it has no seq");
    const kind = KINDS.indexOf(value.kind);
    if (kind >= 0 && kindOf(value.kind) === undefined) return false;
    const record = staged("evidence", () => readRecord(withoutSeq(value)));
    if (recordText(record) !== canonical(withoutSeq(value))) wrong("the record is not in its canonical form");
    const bytes = new TextEncoder().encode(recordText(record));
    many.add(bytes, viewOf(bytes), 0, bytes.length, 0x7d, all.digests, all.count * 32);
    const { task, ...shared } = all.words;
    const ids = Object.fromEntries(Object.entries(shared).map(([name, words]) => [name, words.of(record[name])]));
    const own = kind === TESTS ? { task: task.of(record.task), trial: record.trial, outcome: OUTCOMES.indexOf(record.outcome) } : { task: -1, trial: 0, outcome: 0 };
    return this.row(all.count, { seq: value.seq, epoch: record.epoch, kind, ...own, ...ids });
  }

  row(row, values) {
    const { columns: all } = this;
    all.seq[row] = values.seq;
    all.epoch[row] = values.epoch;
    all.validator[row] = values.validator;
    all.participant[row] = values.participant;
    all.submission[row] = values.submission;
    all.task[row] = values.task;
    all.trial[row] = values.trial;
    all.outcome[row] = values.outcome;
    all.kind[row] = values.kind;
    all.count++;
    return true;
  }
}

/** The leaf hashes of rows from `first` on: SHA-256(00 ‖ seq in 8 bytes ‖ digest). */
function hashLeaves({ seq, digests, leaves, count }, first) {
  const { bytes, view } = many;
  for (const base of many.bases) bytes[base] = 0;
  const from = viewOf(digests);
  const fill = (i, base) => {
    const row = first + i;
    view.setUint32(base + 1, Math.floor(seq[row] / 2 ** 32));
    view.setUint32(base + 5, seq[row] >>> 0);
    for (let k = 0; k < 32; k += 4) view.setInt32(base + 9 + k, from.getInt32(row * 32 + k, true), true);
  };
  many.each(count - first, 41, fill, leaves, (i) => (first + i) * 32);
}

/** A file's lines, in pieces of some megabytes. `done` is called before a piece goes. A line is taken again if `take` lacked a module. */
async function eachLine(stream, once, done) {
  const again = (...line) => loadKinds(KINDS).then(() => once(...line));
  let rest = new Uint8Array(0);
  for await (const chunk of stream) {
    let data = new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.length);
    if (rest.length) data = joined(rest, data);
    let from = 0;
    for (let end = data.indexOf(10, from); end >= 0; end = data.indexOf(10, from)) {
      if (!once(data, from, end)) await again(data, from, end);
      from = end + 1;
    }
    done();
    rest = data.slice(from);
    if (rest.length > LONGEST_LINE) refuse("a line of evidence is longer than 1 MiB", { code: "evidence", stage: "evidence" });
  }
  if (rest.length && !once(rest, 0, rest.length)) await again(rest, 0, rest.length);
  done();
}

function joined(a, b) {
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}

/** The records of each receipt, in order of acceptance, under its evidence root. */
async function readEvidence(files, paths, chain, progress) {
  const columns = new Columns();
  const reader = new Reader(columns);
  const expected = chain.reduce((total, { predicate }) => total + predicate.evidence.count, 0) || 1;
  const wrong = (what, detail = {}) => refuse(what, { code: "evidence", stage: "evidence", ...detail });
  for (const epoch of paths.keys()) if (!chain.some((receipt) => receipt.predicate.epoch === epoch)) wrong(`evidence of epoch ${epoch} has no receipt`);
  for (const [i, { predicate }] of chain.entries()) {
    const path = paths.get(predicate.epoch) ?? wrong(`evidence/epoch-${predicate.epoch}.jsonl is missing`);
    const after = i ? chain[i - 1].predicate.epoch : -1;
    const first = columns.count;
    const take = (data, from, to) => {
      columns.more();
      const row = columns.count;
      const where = () => ({ where: `${path}, line ${row - first + 1}` });
      const at = (what) => wrong(`${path}, line ${row - first + 1}: ${what}`, where());
      if (!reader.fast(data, from, to) && !reader.strict(utf8(data, from, to, at), at)) return false;
      if (row > first && columns.seq[row] <= columns.seq[row - 1]) at(`seq ${columns.seq[row]} is not above the one before`);
      if (columns.epoch[row] <= after || columns.epoch[row] > predicate.epoch) at(`a record of epoch ${columns.epoch[row]} belongs to another receipt`);
      if ((row & 0x3fff) === 0) progress("evidence", row / expected);
      return true;
    };
    await eachLine(files.stream(path), take, () => many.flush());
    hashLeaves(columns, first);
    const count = columns.count - first;
    const root = rootText(many.root(columns.leaves.slice(first * 32, columns.count * 32), count));
    if (count !== predicate.evidence.count) wrong(`${path}: the receipt counts ${predicate.evidence.count} records`, { where: path, expected: predicate.evidence.count, found: count });
    if (root !== predicate.evidence.root) wrong(`${path}: a record, a seq or the order is not what the receipt binds`, { where: path, expected: predicate.evidence.root, found: root });
  }
  return columns;
}

const utf8 = (data, from, to, at) => {
  try {
    return fromUtf8(data.subarray(from, to));
  } catch {
    at("is not UTF-8");
  }
};

/** Rows in the order of their seqs, each seq once. */
function bySeq({ seq, count }) {
  let ascending = true;
  for (let i = 1; i < count; i++) if (seq[i] <= seq[i - 1]) ascending = false;
  if (ascending) return { find: finder(seq, count), order: null };
  const order = Uint32Array.from({ length: count }, (_, i) => i).sort((a, b) => seq[a] - seq[b]);
  const sorted = Float64Array.from(order, (row) => seq[row]);
  for (let i = 1; i < count; i++) if (sorted[i] === sorted[i - 1]) refuse(`seq ${sorted[i]} stands in two files of evidence`, { code: "evidence", stage: "evidence" });
  const find = finder(sorted, count);
  return { find: (value) => (find(value) === undefined ? undefined : order[find(value)]), order };
}

function finder(sorted, count) {
  return (value) => {
    let [low, high] = [0, count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low < count && sorted[low] === value ? low : undefined;
  };
}

/** The root over distinct digests in ascending order, and their number. */
function batchRoot(columns, rows) {
  const { digests } = columns;
  const keys = Float64Array.from(rows, (row) => ((digests[row * 32] * 256 + digests[row * 32 + 1]) * 256 + digests[row * 32 + 2]) * 2 ** 24 + (digests[row * 32 + 3] * 256 + digests[row * 32 + 4]) * 256 + digests[row * 32 + 5]);
  const order = Uint32Array.from(rows.keys()).sort((a, b) => keys[a] - keys[b] || compare(digests, rows[a], rows[b]));
  const distinct = [];
  for (const i of order) if (distinct.length === 0 || compare(digests, distinct.at(-1), rows[i]) !== 0) distinct.push(rows[i]);
  const { bytes, view } = many;
  for (const base of many.bases) bytes[base] = 0;
  const from = viewOf(digests);
  const fill = (i, base) => {
    for (let k = 0; k < 32; k += 4) view.setInt32(base + 1 + k, from.getInt32(distinct[i] * 32 + k, true), true);
  };
  const level = new Uint8Array(distinct.length * 32);
  many.each(distinct.length, 33, fill, level, (i) => i * 32);
  return { count: distinct.length, root: rootText(many.root(level, distinct.length)) };
}

function compare(digests, a, b) {
  for (let i = 0; i < 32; i++) {
    const difference = digests[a * 32 + i] - digests[b * 32 + i];
    if (difference) return difference;
  }
  return 0;
}

/** That every record is in a batch that its validator signed for this log; a bit for each record that is in a batch of no other task set than the receipt's. */
async function checkBatches(columns, find, batches, { taskSet, ...of }, progress) {
  const wrong = (what, detail = {}) => refuse(what, { code: "signatures", stage: "signatures", ...detail });
  const [signed, right] = [new Uint8Array(columns.count), new Uint8Array(columns.count)];
  const validators = new Set();
  const { words } = columns;
  let done = 0;
  for await (const { batch, rows, name, changed } of openBatches(batches, find, of)) {
    validators.add(batch.validator);
    const kind = KINDS.indexOf(batch.kind);
    const validator = words.validator.ids.get(batch.validator);
    const submissions = new Set();
    for (const row of rows) {
      if (columns.validator[row] !== validator || columns.kind[row] !== kind || columns.epoch[row] !== batch.epoch) wrong(`${name}: a record of ${words.validator.texts[columns.validator[row]]} in epoch ${columns.epoch[row]} is not this batch's`);
      submissions.add(columns.submission[row]);
      signed[row] = 1;
      if (taskSet === null || batch.task_set === null || batch.task_set === taskSet) right[row] = 1;
    }
    const { count, root } = batchRoot(columns, rows);
    const whose = words.participant.texts[columns.participant[rows[0]]];
    if (count !== batch.count) wrong(changed(whose), { expected: batch.count, found: count });
    if (root !== batch.root) wrong(changed(whose), { expected: batch.root, found: root });
    const names = [...submissions].map((id) => words.submission.texts[id]).sort(byUtf8);
    const { subject } = batch.statement;
    if (names.length !== subject.length || names.some((text, i) => subject[i].name !== text)) wrong(`${name}: the subjects are not the submissions of the records`);
    progress("signatures", ++done / batches.length);
  }
  const loose = signed.indexOf(0);
  if (loose >= 0) wrong(`the record with seq ${columns.seq[loose]} by ${words.validator.texts[columns.validator[loose]]} is in no batch`);
  return { batches: batches.length, validators, right };
}

/** Tallies of the first accepted trial of each cell, and the records that each result rests on. */
function tally(columns, order, right, document, epoch) {
  const { words } = columns;
  const tasks = readTasks(document.tasks).map(({ id }) => id);
  const { trials } = document.scheme.score;
  const age = document.scheme.consensus.max_age_epochs;
  const index = (rows, name) => {
    const numbers = new Map(rows.map((key, i) => [key, i]));
    return Int32Array.from(words[name].texts, (text) => numbers.get(text) ?? -1);
  };
  const validators = index(document.validators.map((row) => row.key), "validator");
  const people = index(document.participants.map((row) => row.key), "participant");
  const taskIds = index(tasks, "task");
  // A record's cell does not depend on who holds the submission: [validator, submission (or the participant), task, trial].
  const { of } = owners("tests", document.participants);
  const holders = Int32Array.from(words.submission.texts, (submission) => {
    const holder = submission === "" ? undefined : of({ submission, participant: "" });
    return holder === undefined ? -1 : document.participants.findIndex((row) => row.key === holder);
  });
  const empty = words.submission.ids.get("") ?? -1;
  const alone = Int32Array.from(words.participant.texts, (participant, id) => (people[id] >= 0 && of({ submission: "", participant }) !== undefined ? people[id] : -1));
  const seen = new Set();
  const wide = tasks.length * trials;
  const cells = new Map();
  const rests = document.participants.map(() => []);
  for (let i = 0; i < columns.count; i++) {
    const row = order ? order[i] : i;
    const validator = validators[columns.validator[row]];
    const person = columns.submission[row] === empty ? alone[columns.participant[row]] : holders[columns.submission[row]];
    if (!right[row] || columns.kind[row] !== TESTS || validator < 0 || person < 0 || columns.epoch[row] > epoch || (age !== undefined && columns.epoch[row] < epoch - age)) continue;
    const cell = person * document.validators.length + validator;
    let sheet = cells.get(cell);
    if (sheet === undefined) cells.set(cell, (sheet = new Uint8Array(wide).fill(255)));
    const [task, trial] = [taskIds[columns.task[row]], columns.trial[row]];
    if (task < 0 || trial > trials) {
      const key = `${cell} ${columns.task[row]} ${trial}`;
      if (seen.has(key)) continue;
      seen.add(key);
    } else {
      const at = task * trials + trial - 1;
      if (sheet[at] !== 255) continue;
      sheet[at] = columns.outcome[row];
    }
    rests[person].push(row);
  }
  return { cells, rests, tasks, trials };
}

/** Participant → the epoch of the first record about its submission, by anybody; about the participant, if it submitted nothing. docs/formats.md. */
function firstEpochs(columns, right, { participants, validators }, epoch) {
  const { words } = columns;
  const known = (keys, { texts }) => texts.map((text) => keys.has(text));
  const [may, people] = [[validators, "validator"], [participants, "participant"]].map(([rows, name]) => known(new Set(rows.map(({ key }) => key)), words[name]));
  const empty = words.submission.ids.get("") ?? -1;
  const [first, own] = [words.submission, words.participant].map(({ texts }) => new Float64Array(texts.length).fill(Infinity));
  for (let row = 0; row < columns.count; row++) {
    const [submission, participant] = [columns.submission[row], columns.participant[row]];
    if (!right[row] || columns.kind[row] !== TESTS || !may[columns.validator[row]] || columns.epoch[row] > epoch || (submission === empty && !people[participant])) continue;
    first[submission] = Math.min(first[submission], columns.epoch[row]);
    own[participant] = Math.min(own[participant], columns.epoch[row]);
  }
  return new Map(participants.map(({ key, submission = "" }) => {
    const [epochs, id] = submission === "" ? [own, words.participant.ids.get(key)] : [first, words.submission.ids.get(submission)];
    return [key, id === undefined || epochs[id] === Infinity ? null : epochs[id]];
  }));
}

/** Votes as `settle` takes them, and the sheets of each participant and validator, which "What if" and `explain` ask. */
function votesOf({ document }, { cells, tasks, trials }) {
  const wide = tasks.length * trials;
  const many = document.validators.length;
  const joint = document.scheme.score.passed_by === "all";
  const vote = (sheet) => {
    let [passed, whole] = [0, 0];
    for (const outcome of sheet) {
      if (outcome < 3) whole++;
      if (outcome === 0) passed++;
    }
    const wholly = joint ? new Set(tasks.filter((_, i) => sheet.subarray(i * trials, (i + 1) * trials).every((outcome) => outcome === 0))) : undefined;
    return testsVote({ passed, whole }, wide, wholly);
  };
  const votes = new Map(document.participants.map((row) => [row.key, new Map()]));
  for (const [cell, sheet] of cells) votes.get(document.participants[Math.floor(cell / many)].key).set(document.validators[cell % many].key, vote(sheet));
  const of = (participant, validator) => cells.get(document.participants.findIndex((row) => row.key === participant) * many + document.validators.findIndex((row) => row.key === validator));
  return { votes, sheets: { of, tasks, trials, outcomes: OUTCOMES, vote } };
}

/** As `oneByOne` in evidence.js: counts, batches, the settlement, and what results rest on. */
export async function bulk(files, paths, chain, progress) {
  const columns = await readEvidence(files, paths, chain, progress);
  const { find, order } = bySeq(columns);
  const taskSet = chain.at(-1).predicate.task_set;
  return {
    count: columns.count,
    checkBatches: (batches, of) => checkBatches(columns, find, batches, { ...of, taskSet }, progress),
    settle(document, previous, { epoch }, { right }) {
      const tallied = tally(columns, order, right, document, epoch);
      const { votes, sheets } = votesOf({ document }, tallied);
      const accepted = document.scheme.consensus.assign === undefined ? null : firstEpochs(columns, right, document, epoch);
      const context = { document, epoch, records: [], accepted, previous, votes, sheets };
      const computed = staged("settlement", () => settle(context, votes)).settlement;
      const rests = () => new Map(document.participants.map(({ key }, i) => {
        const own = tallied.rests[i];
        const level = new Uint8Array(own.length * 32);
        own.forEach((row, at) => level.set(columns.leaves.subarray(row * 32, row * 32 + 32), at * 32));
        return [key, { count: own.length, root: rootText(many.root(level, own.length)) }];
      }));
      return { computed, context, rests };
    },
  };
}

