// The inputs of a settlement beside its evidence: scheme, registry, tasks, and the settlement before. docs/formats.md, "A case".

import * as read from "./fields.js";
import { byUtf8 } from "./exact.js";
import { refuse, under } from "./errors.js";
import { digestOfJson } from "./json.js";
import { readScheme } from "./scheme.js";

const { or, maybe, object, list } = read;
/** An empty text is as good as none, and left out. */
const nonEmpty = (reader) => maybe((value, path) => (reader(value, path) === "" ? undefined : value));
const uid = read.integer(0, 65535);
const address = read.pattern(/^0x[0-9a-fA-F]{40}$/, "an address of 20 bytes");

const participant = object({
  key: read.key, uid: maybe(uid), name: nonEmpty(read.text(0, 4096)), submission: nonEmpty(read.submission), submitted_at: maybe(read.instant),
  last_reset_epoch: maybe(read.epoch), accepted_epoch: maybe(read.epoch), address: maybe(address),
});
const validator = object({ key: read.key, stake: read.integerText(2n ** 63n), name: nonEmpty(read.text(0, 4096)), failed_audit: nonEmpty((value, path) => (value === "" ? "" : read.digest(value, path))) });
const history = object({ epoch: read.epoch, top_score: read.score, submission: nonEmpty(read.submission), task_set: nonEmpty((value, path) => (value === "" ? "" : read.digest(value, path))) });
const hex32 = (value, path) => read.pattern(/^[0-9a-fA-F]{64}$/, "32 bytes in hex")(value, path).toLowerCase();
const randomness = object({ epoch: read.epoch, hex: hex32 });
const hash = read.pattern(/^0x[0-9a-f]{64}$/, "a hash in hex");
const registry = object({
  chain: hash, netuid: uid, mechanism: read.integer(0, 255), block: read.epoch, hash, spec_version: read.integer(0, 2 ** 32 - 1), rows: read.digest,
});

export function unique(rows, field, what) {
  const seen = new Set();
  for (const row of rows) {
    if (row[field] === undefined) continue;
    if (seen.has(row[field])) refuse(`${what}: ${field} ${JSON.stringify(row[field])} stands twice`, { where: what });
    seen.add(row[field]);
  }
  return rows;
}

const byKey = (rows) => rows.sort((a, b) => byUtf8(a.key, b.key));
const byEpoch = (rows) => rows.sort((a, b) => a.epoch - b.epoch);

/** Lines of tasks.txt as tasks: `id [sha256:…] [shared|snapshot]`. A comment or an empty line is skipped if `skip`, else refused. */
export function readTasks(lines, skip = false) {
  const tasks = [];
  for (const line of lines) {
    if (typeof line !== "string") refuse("a line of tasks is a text", { where: "tasks" });
    const words = line.split(/[ \t]+/).filter((word) => word !== "");
    if (skip && (words.length === 0 || words[0].startsWith("#"))) continue;
    if (words.length === 0 || words[0].startsWith("#")) refuse(`tasks: ${JSON.stringify(line)} names no task`, { where: "tasks" });
    read.task(words[0], "tasks");
    const rest = words.slice(1);
    if (rest.length && /^sha256:[0-9a-f]{64}$/.test(rest[0])) rest.shift();
    if (rest.length && (rest[0] === "shared" || rest[0] === "snapshot")) rest.shift();
    if (rest.length) refuse(`tasks: ${JSON.stringify(rest[0])} after the id is neither a digest, shared nor snapshot`, { where: "tasks" });
    tasks.push({ id: words[0], line: words.join(" ") });
  }
  if (tasks.length === 0) refuse("tasks: a task set has at least one task", { where: "tasks" });
  unique(tasks, "id", "tasks");
  return tasks;
}

export const taskSetDigest = (tasks) => digestOfJson(tasks.map(({ line }) => line).sort(byUtf8));

function readRegistry(value, participants, validators) {
  const found = registry(value, "registry");
  const withUid = participants.filter((row) => row.uid !== undefined).sort((a, b) => a.uid - b.uid);
  const rows = digestOfJson({ participants: withUid.map((row) => [row.key, row.uid]), validators: validators.map((row) => [row.key, row.stake]) });
  if (rows !== found.rows) refuse("registry.rows: participants and validators are not those of the block", { where: "registry.rows", expected: found.rows, found: rows });
  return found;
}

/** The document that a receipt names: everything of a case but epoch, evidence and the settlement before. */
export function readInputs(value) {
  const scheme = under("scheme", () => readScheme("scheme" in value ? value.scheme : refuse("scheme is missing")));
  const part = (field, reader, wanted = 0) => under(field, () => list(reader, { least: wanted })(value[field] ?? (wanted ? undefined : []), field));
  const participants = byKey(under("participants", () => unique(unique(part("participants", participant, 1), "key", "participants"), "uid", "participants")));
  under("participants", () => {
    for (const row of participants)
      if (scheme.decay && row.uid === scheme.decay.burn_uid) refuse(`participants: ${JSON.stringify(row.key)} has the burn uid ${row.uid}`, { where: "participants" });
  });
  const validators = byKey(under("validators", () => unique(part("validators", validator, 1), "key", "validators")));
  const document = { scheme, tasks: [], participants, validators };
  if (scheme.score.kind === "tests") {
    under("tasks", () => {
      if (!Array.isArray(value.tasks ?? null)) refuse("tasks: kind tests has tasks", { where: "tasks" });
      document.tasks = readTasks(value.tasks).map(({ line }) => line).sort(byUtf8);
    });
  } else if (value.tasks !== undefined && value.tasks !== null) under("tasks", () => list((line) => (typeof line === "string" ? line : refuse("tasks: a line is a text")))(value.tasks, "tasks"));
  document.history = byEpoch(under("history", () => unique(part("history", history), "epoch", "history")));
  document.randomness = byEpoch(under("randomness", () => unique(part("randomness", randomness), "epoch", "randomness")));
  if (value.registry !== undefined && value.registry !== null) document.registry = under("registry", () => readRegistry(value.registry, participants, validators));
  return document;
}

export function checkResets(document, epoch) {
  for (const row of document.participants)
    if (row.last_reset_epoch > epoch) refuse(`participants: last_reset_epoch of ${JSON.stringify(row.key)} is after epoch ${epoch}`, { code: "participants", where: "participants" });
}
