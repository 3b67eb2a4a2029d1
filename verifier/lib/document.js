// The settlement's document, closed and versioned (docs/formats.md, "The settlement"): reading one that was written, and comparing two. An epoch that is the
// first, and whose files are what is computed, does not need it.

import * as read from "./fields.js";
import { refuse } from "./errors.js";
import { unique } from "./inputs.js";
import { canonical, digestOfJson, isObject } from "./json.js";

const { object, list, oneOf, pattern, integer, epoch, bps } = read;
const nullable = (reader) => (value, path) => (value === null ? null : reader(value, path));
const share = pattern(/^(1|0(\.[0-9]{0,8}[1-9])?)$/, "a normalised score or share");
const amount = pattern(/^(0|[1-9][0-9]*)(\.[0-9]{0,8}[1-9])?$/, "a normalised number");
const whole = pattern(/^(0|[1-9][0-9]*)$/, "a string of digits");
const anyText = (value, path) => (typeof value === "string" ? value : refuse(`${path}: is not a text`, { where: path }));
const natural = integer(0, read.LARGEST);
const u16 = integer(0, 65535);
const optional = (reader) => Object.assign((value, path) => reader(value, path), { optional: true });

const WORK = [
  object({ passed: natural, trials: natural }),
  object({ tasks: natural }),
  object({ base: bps, missed_skippable: bps, verdict: nullable(anyText), gate: read.boolean, capped: read.boolean, bps, votes: optional(natural), flips: optional(natural) }),
  object({ valid: natural, invalid: natural, starred: natural, points: amount }),
  object({ epoch }),
];
const TELLING = ["passed", "tasks", "base", "valid", "epoch"];
function work(value, path) {
  const kind = isObject(value) ? TELLING.findIndex((field) => field in value) : -1;
  return kind < 0 ? refuse(`${path}: is no work of a kind`, { where: path }) : WORK[kind](value, path);
}

const vote = object({
  validator: read.key, score: share, stake: whole, flagged: read.boolean, excluded: read.boolean, modified_z: nullable(amount), z_squared: nullable(amount), work,
});
export const NOT_COUNTED = ["not-assigned", "no-stake", "stake-below-minimum", "audit-failed", "injection-suspected", "panel-split", "unjudged", "incomplete", "no-tasks"];
export const REASONS = ["same-submission", "malformed-or-unjudged", "missing-trials", "no-evidence", "too-few-validators", "too-little-stake", "stake-after-outliers"];
const agreed = object({
  participant: read.key, submission: anyText, score: nullable(share), bps: nullable(bps), status: oneOf("agreed", "no-quorum", "incomplete", "unjudged", "duplicate"),
  reason: oneOf(null, ...REASONS), duplicate_of: nullable(read.key), stake: whole, needed_stake_of: whole, median: nullable(share), mad: nullable(share), mean: nullable(share),
  flagged_majority: read.boolean, validators: list(vote),
  not_counted: list(object({ validator: read.key, reason: oneOf(...NOT_COUNTED), missing: natural })),
});
const weight = object({
  participant: read.key, uid: nullable(u16), score: share, strategy: share, capped: share, last: nullable(epoch), stale: natural, kept: share, share, u16, chain_u16: u16,
  tasks_seen: optional(natural), warm: optional(share),
});
const burn = object({ uid: u16, share, u16, chain_u16: u16, strategy: share, cap: share, decay: share, warm_up: optional(share), unregistered: share });
const payout = object({ participant: read.key, address: nullable(anyText), place: integer(1, read.LARGEST), gross: whole, fee: whole, net: whole });
const clock = object({
  record: nullable(share), last: nullable(epoch), submission: nullable(anyText),
  participants: list(object({ participant: read.key, submission: anyText, best: share, last: epoch })),
});
const settlement = object({
  schema: oneOf("assay.settlement/1"), scheme: object({ name: read.key, version: read.key, digest: read.digest }), epoch, task_set: nullable(read.digest), total_stake: whole,
  agreed: list(agreed), ranking: list(read.key), clock, weights: list(weight), burn: nullable(burn), unallocated: share, released: nullable(whole),
  tier_bps: nullable(integer(0, 10000)), payouts: list(payout), fees: nullable(whole), refund: nullable(whole), digest: read.digest,
});

export { agreed as agreedRow, weight as weightRow, payout as payoutRow };

export const withoutDigest = ({ digest, ...rest }) => rest;

/** A settlement that is whole, closed and under its own digest. */
export function readSettlement(value, name = "settlement") {
  if (!isObject(value)) refuse(`${name}: is not an object`, { where: name, code: "schema" });
  if (value.schema !== "assay.settlement/1") refuse(`${name}.schema: is not assay.settlement/1`, { where: `${name}.schema`, code: "schema" });
  const found = settlement(value, name);
  const digest = digestOfJson(withoutDigest(value));
  if (digest !== value.digest) refuse(`${name}.digest: it is not of this document`, { where: `${name}.digest`, code: "digest", expected: digest, found: value.digest });
  return found;
}

/** The settlement before: whole, closed, of this competition, of an earlier epoch, under its digest. */
export function readPrevious(value, document, epoch) {
  if (value === null) return null;
  const previous = readSettlement(value);
  if (previous.scheme.name !== document.scheme.scheme.name) refuse("previous: it is a settlement of another competition", { where: "previous.scheme.name" });
  if (previous.epoch >= epoch) refuse("previous: it is not of an earlier epoch", { where: "previous.epoch" });
  const clocks = previous.clock.participants;
  unique(clocks, "participant", "previous.clock.participants");
  if (clocks.some((clock) => clock.last > previous.epoch) || (previous.clock.last ?? 0) > previous.epoch) refuse("previous.clock: a clock is after its own epoch", { where: "previous.clock" });
  return previous;
}

const receiptRow = object({ competition: read.key, epoch, digest: read.digest, log: anyText });
const splitFields = object({
  schema: oneOf("assay.emission/1"), epoch,
  competitions: list(object({ name: read.key, share, emission: nullable(whole), settlement: read.digest, received: optional(share) })),
  weights: list(object({ participant: read.key, uid: nullable(u16), share, u16, chain_u16: u16 })), burn: object({ uid: u16, share, u16, chain_u16: u16 }),
  receipts: optional(list(receiptRow)), digest: read.digest,
});

/** An emission split that is whole, closed and under its own digest. */
export function readSplit(value, path) {
  const found = splitFields(value, path);
  const digest = digestOfJson(withoutDigest(value));
  if (digest !== value.digest) refuse(`${path}.digest: it is not of this split`, { where: `${path}.digest`, expected: digest, found: value.digest });
  return found;
}

const FIRST = ["epoch", "scheme", "task_set", "total_stake", "ranking", "agreed", "weights", "burn", "payouts"];
const namesRow = (row) => (isObject(row) ? (row.participant ?? row.validator ?? row.key ?? row.name ?? null) : null);

/** The first field in which two values differ, or null: its path, both values, and whose row it is. */
export function difference(expected, found, path = "", whose = null) {
  if (expected === found) return null;
  if (isObject(expected) && isObject(found)) {
    whose = namesRow(found) ?? whose;
    const fields = [...new Set([...Object.keys(expected), ...Object.keys(found)])];
    const place = (field) => (field === "digest" && path === "" ? 99 : FIRST.includes(field) ? FIRST.indexOf(field) : 50);
    if (path === "") fields.sort((a, b) => place(a) - place(b));
    for (const field of fields) {
      const at = path === "" ? field : `${path}.${field}`;
      if (!(field in expected) || !(field in found)) return { where: at, expected: expected[field], found: found[field], whose };
      const inner = difference(expected[field], found[field], at, whose);
      if (inner) return inner;
    }
    return null;
  }
  if (Array.isArray(expected) && Array.isArray(found)) {
    for (let i = 0; i < Math.max(expected.length, found.length); i++) {
      if (i >= expected.length || i >= found.length) return { where: `${path}[${i}]`, expected: expected[i], found: found[i], whose: namesRow(expected[i] ?? found[i]) ?? whose };
      const inner = difference(expected[i], found[i], `${path}[${i}]`, whose);
      if (inner) return inner;
    }
    return null;
  }
  return canonical(expected ?? null) === canonical(found ?? null) ? null : { where: path, expected, found, whose };
}
