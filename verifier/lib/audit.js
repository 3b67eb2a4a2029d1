// A risk-limiting audit: which claims it confirms, which trials it draws, when it ends, and its signed statement. docs/auditing.md, "To the letter".

import * as read from "./fields.js";
import { concat, fromHex, sha256, toHex, utf8 } from "./bytes.js";
import { difference } from "./document.js";
import { byUtf8, decimal, floorDiv, gcd, NANO, nanosOf } from "./exact.js";
import { refuse } from "./errors.js";
import { readTasks } from "./inputs.js";
import { canonical } from "./json.js";
import { readVkey } from "./notes.js";
import { checkSubject, nullable, natural, openSigned, software, STATEMENT, staged, subjects } from "./receipts.js";
import { nanos } from "./scheme.js";

const ROUNDINGS = 4n; // nanos that a margin is less, for roundings
const M_0 = 10n ** 18n;
const QUICKNET = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971";
const [GENESIS, PERIOD] = [1692803367n, 3n]; // of quicknet, in seconds

const ceilDiv = (n, d) => -floorDiv(-n, d);
const wrong = (what, detail = {}) => refuse(what, { code: "audit", stage: "audit", ...detail });

// ---- what is claimed

/** Neighbours of a list, and each of one list beside each of another. */
const neighbours = (list) => list.slice(1).map((below, i) => [list[i], below]);
const each = (firsts, seconds) => firsts.flatMap((above) => seconds.map((below) => [above, below]));

/** The claims of a settlement, in their order: {above, below, margin}, the margin in nanos as a number. */
function claimsOf({ reward, payout, audit }, settlement) {
  const scores = new Map(settlement.agreed.filter(({ status }) => status === "agreed").map(({ participant, score }) => [participant, nanosOf(score)]));
  const claims = [];
  const claim = (above, below, margin) => claims.push({ above, below, margin: Number(margin - ROUNDINGS) });
  const beat = (pairs) => pairs.forEach(([above, below]) => claim(above, below, scores.get(above) - scores.get(below)));
  const reach = (participants, mark) => participants.forEach((above) => claim(above, null, scores.get(above) - mark + 1n));
  const stayBelow = (participants, mark) => participants.forEach((below) => claim(null, below, mark - scores.get(below)));
  const { ranking } = settlement;
  const reaches = (mark) => (participant) => scores.get(participant) >= mark;

  if (reward.kind === "payout") {
    const marks = payout.tiers.map(({ reach_bps }) => ceilDiv(BigInt(reach_bps) * BigInt(payout.threshold_bps) * NANO, 10n ** 8n));
    const lowest = marks.at(-1);
    const paid = ranking.slice(0, payout.split.length).filter(reaches(lowest));
    const others = ranking.slice(paid.length);
    beat(neighbours(paid));
    if (paid.length) {
      reach([paid[0]], marks.find((mark) => reaches(mark)(paid[0])));
      reach([paid.at(-1)], lowest);
      if (paid.length === payout.split.length) beat(each([paid.at(-1)], others));
    }
    if (paid.length < payout.split.length) stayBelow(others, lowest);
    const higher = marks.filter((mark) => paid.length && !reaches(mark)(paid[0]));
    if (higher.length) stayBelow(ranking, higher.at(-1));
    return claims;
  }
  const least = nanos(reward.min_score);
  const floor = least > 0n ? least : 1n;
  const paid = ranking.filter(reaches(floor));
  const shareAlike = reward.kind === "weights" && reward.strategy === "winner-takes-all";
  const first = Math.min(paid.length, audit?.places ?? Infinity, shareAlike ? reward.top : Infinity);
  const [inside, outside] = [paid.slice(0, first), ranking.slice(first)];
  const last = shareAlike ? inside : inside.slice(-1);
  if (!shareAlike) beat(neighbours(inside));
  beat(each(last, outside));
  if (least > 0n) {
    reach(last, floor);
    if (first === paid.length && !(shareAlike && first === reward.top)) stayBelow(outside, floor);
  }
  return claims;
}

// ---- what is drawn from

const byPlace = (a, b) => byUtf8(a.participant, b.participant) || byUtf8(a.validator, b.validator) || byUtf8(a.task, b.task) || a.trial - b.trial;

/**
 * The trials that count, in canonical order. `behind`: participant → the records that its result rests on, each {record, digest}.
 * A trial's `effect` is an exact fraction of nanos, [n, d].
 */
export function trialsOf({ scheme, tasks }, settlement, behind) {
  const { trials: most, passed_by } = scheme.score;
  const whole = BigInt(tasks.length) * BigInt(most);
  const known = new Set(tasks);
  const all = [];
  for (const { participant, validators } of settlement.agreed.filter(({ status }) => status === "agreed")) {
    const counting = new Map(validators.filter(({ excluded }) => !excluded).map(({ validator, stake }) => [validator, BigInt(stake)]));
    const stakes = [...counting.values()].reduce((sum, stake) => sum + stake, 0n);
    const effectOf = (validator) => {
      if (passed_by !== "all" && scheme.consensus.combine === "stake-mean") return [NANO * counting.get(validator), stakes * whole];
      if (passed_by !== "all" && scheme.consensus.combine === "mean") return [NANO, BigInt(counting.size) * whole];
      return [NANO, whole];
    };
    for (const { record, digest } of behind.get(participant) ?? []) {
      const { validator, task, trial, outcome, work } = record;
      if (!counting.has(validator) || !known.has(task) || trial > most || outcome === "error") continue;
      const passed = outcome === "pass";
      all.push({ participant, validator, task, trial, record: digest, claimed: outcome, passed, testable: passed || work !== undefined, effect: effectOf(validator) });
    }
  }
  return all.sort(byPlace);
}

/** What an audit of a settlement confirms and draws from. `trials`: those that count. */
export function planOf(scheme, settlement, trials) {
  const claims = claimsOf(scheme, settlement);
  const smallest = { above: new Map(), below: new Map() };
  for (const claim of claims)
    for (const [side, margins] of Object.entries(smallest)) {
      const margin = margins.get(claim[side]);
      if (claim[side] !== null && !(margin <= claim.margin)) margins.set(claim[side], claim.margin);
    }
  const [drawnFrom, untested] = [[], new Map()];
  for (const trial of trials) {
    const margin = (trial.passed ? smallest.above : smallest.below).get(trial.participant);
    if (margin === undefined) continue; // it can overstate nothing
    const [n, d] = trial.effect;
    if (trial.testable) drawnFrom.push({ ...trial, size: ceilDiv(NANO * n, d * BigInt(Math.max(1, margin))) });
    else untested.set(trial.validator, (untested.get(trial.validator) ?? 0) + 1);
  }
  return {
    claims, counted: trials.length, drawnFrom, size: drawnFrom.reduce((sum, { size }) => sum + size, 0n), risk: nanos(scheme.audit?.risk ?? "0.05"),
    untested: [...untested].sort(([a], [b]) => byUtf8(a, b)).map(([validator, number]) => ({ validator, trials: number })),
  };
}

// ---- the draw and the martingale

/** The seed of the draw; both of 32 bytes. */
export const seedOf = (randomness, receipt) => sha256(concat(utf8("assay-audit/1"), new Uint8Array(1), randomness, receipt));

/** The index of draw j = 1, 2, …: the first trial whose sizes up to and with it are above the point. */
function drawer({ drawnFrom, size }, seed) {
  let total = 0n;
  const ends = drawnFrom.map((trial) => (total += trial.size));
  return (j) => {
    const number = new Uint8Array(8);
    new DataView(number.buffer).setBigUint64(0, BigInt(j));
    const point = (BigInt("0x" + toHex(sha256(concat(seed, number)))) * size) >> 256n;
    let [low, high] = [0, ends.length - 1];
    while (low < high) {
      const half = (low + high) >> 1;
      if (ends[half] > point) high = half;
      else low = half + 1;
    }
    return low;
  };
}

/** M after a draw. */
const next = (m, held, size) => (m * (held ? 11n : 1n) * size) / (11n * size - 10n * NANO);
const isEnough = (m, risk) => m * risk >= M_0 * NANO;

/** Whether as many draws as there are trials would confirm, if all held. */
function couldConfirm({ drawnFrom, size, risk }) {
  let m = M_0;
  for (let left = drawnFrom.length; left > 0 && !isEnough(m, risk); left--) m = next(m, true, size);
  return isEnough(m, risk);
}

/** What became of a trial, by what was seen of it: nothing, one run that shows what is claimed, two or three of which a later one shows it, or three of which none does. */
function stateOf({ task, passed }, seen) {
  if (seen.length === 0) return "missing";
  const shows = seen.findIndex((outcome) => (outcome === "pass") === passed);
  if (seen.length > (shows === 0 ? 1 : 3) || (shows < 0 && seen.length < 3)) wrong(`${task}: one run decides if it shows what is claimed, else two or three do`, { found: canonical(seen) });
  return shows < 0 ? "false" : shows === 0 ? "held" : "flaky";
}

/**
 * How an audit of a plan ends. `seenOf`: a trial → what was seen of it, asked only of those that are judged.
 * Gives the fields of the statement from `claims` to `verdict`.
 */
export function outcomeOf(plan, seed, seenOf) {
  const { claims, counted, drawnFrom, size, risk, untested } = plan;
  const rows = new Map();
  const judge = (trial) => {
    if (!rows.has(trial)) {
      const { participant, validator, task, trial: number, record, claimed } = trial;
      const seen = seenOf(trial);
      rows.set(trial, { participant, validator, task, trial: number, record, claimed, seen, state: stateOf(trial, seen) });
    }
    return rows.get(trial).state;
  };
  const isHeld = (trial) => ["held", "flaky"].includes(judge(trial));

  const [draws, martingale] = [[], []];
  const marginsHold = claims.every(({ margin }) => margin > 0);
  const isSmall = 11n * size <= 10n * NANO; // all trials together could not overstate a margin
  let confirmed = marginsHold && isSmall;
  if (marginsHold && !isSmall && couldConfirm(plan)) {
    const drawn = drawer(plan, seed);
    let m = M_0;
    while (!confirmed && draws.length < drawnFrom.length) {
      const at = drawn(draws.length + 1);
      m = next(m, isHeld(drawnFrom[at]), size);
      draws.push(at);
      martingale.push(m.toString());
      confirmed = isEnough(m, risk);
    }
  }
  if (!confirmed) drawnFrom.forEach(judge);
  const judged = confirmed ? [...rows.values()] : drawnFrom.map((trial) => rows.get(trial));
  const overstated = confirmed ? [] : overstatements(claims, drawnFrom.filter((trial) => !isHeld(trial)));
  const verdict = confirmed ? "confirmed" : overstated.every(({ stands }) => stands) ? "recounted" : "refused";
  return { claims, trials: { counted, drawn_from: drawnFrom.length, size: size.toString() }, untested, judged, draws, martingale, overstated, verdict };
}

/** By how much these false and missing trials overstate each claim. */
function overstatements(claims, trials) {
  const sums = new Map(); // participant → by how much its score is too high, exact
  for (const { participant, passed, effect: [n, d] } of trials) {
    const [top, bottom] = sums.get(participant) ?? [0n, 1n];
    const sum = [top * d + (passed ? n : -n) * bottom, bottom * d];
    const common = gcd(sum[0] < 0n ? -sum[0] : sum[0], sum[1]);
    sums.set(participant, [sum[0] / common, sum[1] / common]);
  }
  return claims.map(({ above, below, margin }) => {
    const [[a, b], [c, d]] = [above, below].map((participant) => sums.get(participant) ?? [0n, 1n]);
    const [n, whole] = [a * d - c * b, b * d];
    return { above, below, nanos: ceilDiv(n, whole).toString(), stands: n <= 0n || n < BigInt(margin) * whole };
  });
}

// ---- the signed statement

const { object, list, oneOf, integer, digest, key } = read;
const anyText = (value, path) => (typeof value === "string" ? value : wrong(`${path}: is not a text`));
const hex = (length) => read.pattern(new RegExp(`^[0-9a-f]{${length}}$`), `${length} hex digits`);
const digits = read.pattern(/^(0|-?[1-9][0-9]*)$/, "a string of digits");
const outcome = oneOf("pass", "fail", "timeout");
/** A fraction as Assay writes it: what is compared later must not be normalised before. */
const written = (value, path) => (read.score(value, path) === value ? value : wrong(`${path}: ${value} is not in its one spelling`));
const sources = {
  drand: object({ source: oneOf("drand"), chain: hex(64), round: integer(1, read.LARGEST), signature: hex(96) }),
  given: object({ source: oneOf("given"), value: hex(64) }),
};
const statement = object({
  _type: oneOf(STATEMENT), subject: subjects, predicateType: oneOf("assay:audit/v1"),
  predicate: object({
    competition: key, epoch: read.epoch, receipt: digest, settlement: digest, log: anyText, witnessed: nullable(natural),
    randomness: (value, path) => (value?.source === "given" ? sources.given : sources.drand)(value, path),
    risk: written, places: nullable(integer(1, read.BILLION)),
    claims: list(object({ above: nullable(key), below: nullable(key), margin: integer(-2 * read.BILLION, 2 * read.BILLION) })),
    trials: object({ counted: natural, drawn_from: natural, size: digits }), untested: list(object({ validator: key, trials: natural })),
    judged: list(object({
      participant: key, validator: key, task: read.task, trial: integer(1, read.BILLION), record: digest, claimed: outcome, seen: list(outcome, { most: 3 }),
      state: oneOf("held", "flaky", "false", "missing"),
    })),
    draws: list(natural), martingale: list(digits), overstated: list(object({ above: nullable(key), below: nullable(key), nanos: digits, stands: read.boolean })),
    verdict: oneOf("confirmed", "recounted", "refused"), software,
  }),
});

/** Only what this stage asks of a statement; its shape comes later. */
const typed = (value) => (value?.predicateType === "assay:audit/v1" ? value : wrong("the statement is no audit of this version"));

/** A file that the auditor's key signed, and that is in the auditor's log; what it says is not read yet. */
export async function openAudit(text, vkey) {
  return await openSigned(text, readVkey(vkey, [1], "audit"), { schema: "assay.audit/1", reader: typed, code: "audit", logCode: "audit" });
}

/** The statement of an opened audit, in its shape. */
export const statementOf = (opened) => staged("audit", () => statement(opened.statement, ""));

/** The first round of drand at or after a time; before the first one, that. */
const roundAt = (time) => (time <= GENESIS ? 1n : ceilDiv(time - GENESIS, PERIOD) + 1n);

/** The 32 bytes that a statement's draw takes. `witnessedAt`: T in seconds since 1970 (BigInt), or null. */
async function randomnessOf({ source, value, chain, round, signature }, witnessedAt, scheme) {
  if (source === "given") return fromHex(value);
  if (witnessedAt === null) wrong("nothing shows when the receipt was public, and so which round is drawn with: give the policy of its witnesses");
  const expected = roundAt(witnessedAt + BigInt((scheme.audit?.delay ?? "600s").slice(0, -1)));
  if (chain !== QUICKNET) wrong("randomness: the chain is not quicknet", { where: "randomness.chain", expected: QUICKNET, found: chain });
  if (BigInt(round) !== expected) wrong("randomness: the rule fixes another round", { where: "randomness.round", expected: expected.toString(), found: String(round) });
  const { isOfQuicknet } = await import("./beacon.js");
  if (!isOfQuicknet(round, fromHex(signature))) wrong("randomness: quicknet's group did not sign this round", { where: "randomness.signature" });
  return sha256(fromHex(signature));
}

const placeOf = ({ participant, validator, task, trial }) => canonical([participant, validator, task, trial]);

/**
 * Makes the statement of an opened audit again, and compares every field. `epoch`: what was computed of it: its receipt, inputs, settlement, the records behind each
 * result, and `witnessedAt`. Gives the audit with its `predicate`.
 */
export async function checkAudit(opened, { receipt, document, settlement, behind, witnessedAt }) {
  const { predicate, subject } = statementOf(opened);
  const { scheme } = document;
  if (scheme.score.kind !== "tests") wrong("only trials, of kind tests, are audited");
  const tasks = readTasks(document.tasks).map(({ id }) => id);
  const plan = planOf(scheme, settlement, trialsOf({ scheme, tasks }, settlement, behind()));
  if (plan.claims.length === 0) wrong("nobody is paid in this epoch, so there is nothing to confirm", { code: "cannot-settle" });
  const randomness = await randomnessOf(predicate.randomness, witnessedAt, scheme);
  const { competition, epoch } = receipt.predicate;
  staged("audit", () => checkSubject({ subject }, `${competition} epoch ${epoch}`, settlement.digest));
  const rows = new Map(predicate.judged.map((row) => [placeOf(row), row.seen]));
  const seenOf = (trial) => rows.get(placeOf(trial)) ?? wrong(`judged: a row that is needed is missing, of ${trial.participant} by ${trial.validator} at ${trial.task}`, { where: "judged", whose: trial.participant });
  const expected = {
    competition, epoch, receipt: receipt.digest, settlement: settlement.digest, log: receipt.checkpoint.origin, witnessed: witnessedAt === null ? null : Number(witnessedAt),
    randomness: predicate.randomness, risk: decimal(plan.risk), places: scheme.audit?.places ?? null,
    ...outcomeOf(plan, seedOf(randomness, fromHex(receipt.digest.slice(7))), seenOf), software: predicate.software,
  };
  for (const [field, value] of Object.entries(expected)) {
    const differs = difference(value, predicate[field], field);
    if (differs) wrong(`${differs.where} differs`, differs);
  }
  return { ...opened, predicate, size: opened.checkpoint.size };
}

/** Validator → how many of its trials were judged again, and how many of its claims were false; by the validators' keys. */
export function wrongOf({ judged }) {
  const counts = new Map();
  for (const { validator, state } of judged) {
    const own = counts.get(validator) ?? { judged: 0, wrong: 0 };
    counts.set(validator, { judged: own.judged + 1, wrong: own.wrong + (state === "false" ? 1 : 0) });
  }
  return new Map([...counts].sort(([a], [b]) => byUtf8(a, b)));
}

const VERDICTS = { confirmed: "the outcome is confirmed", recounted: "the outcome stands after a full recount", refused: "the outcome does not stand" };

/** What an audit found, in one line. */
export const sentence = ({ risk, judged, trials, verdict }) =>
  `audited at ${decimal(nanosOf(risk) * 100n)} % risk: ${judged.length} of ${trials.counted} trials judged again; ${VERDICTS[verdict]}`;
