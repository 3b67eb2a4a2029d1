// A risk-limiting audit of trials: what is claimed, which trials are drawn, when the claims are confirmed. docs/auditing.md, "To the letter".

import { concat, fromHex, sha256, toHex, utf8 } from "./bytes.js";
import { difference } from "./document.js";
import * as read from "./fields.js";
import { refuse } from "./errors.js";
import { byUtf8, decimal, gcd, max, min, NANO, nanosOf, sum } from "./exact.js";
import { canonical, isObject } from "./json.js";
import { checkSubject, fileOf, natural, nullable, opened, openSigned, sha, software, staged, STATEMENT, subjects } from "./receipts.js";
import { readVkey } from "./notes.js";
import { nanos } from "./scheme.js";

const ONE = 10n ** 18n;
const SLACK = 4n;
const [OVER, UNDER] = [11n, 10n];
const RUNS = 3;
/** `[audit]` of a scheme that has none. */
const RULES = { risk: "0.05", delay: "600s" };
const DRAND = { chain: "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971", genesis: 1692803367n, period: 3n };

const ceilDiv = (n, d) => -((-n - (((-n % d) + d) % d)) / d);
const wrong = (what, detail = {}) => refuse(what, { code: "audit", stage: "audit", ...detail });

// ---- what is claimed

/** Each claim {above, below, margin}, in nanos, in its order. */
export function claimsOf(scheme, settlement) {
  const scores = new Map(settlement.agreed.map((row) => [row.participant, row.score === null ? null : nanosOf(row.score)]));
  const beats = (above, below) => ({ above, below, margin: scores.get(above) - scores.get(below) - SLACK });
  const reaches = (above, mark) => ({ above, below: null, margin: scores.get(above) - mark + 1n - SLACK });
  const staysBelow = (below, mark) => ({ above: null, below, margin: mark - scores.get(below) - SLACK });
  const of = { scores, beats, reaches, staysBelow, ranking: settlement.ranking };
  return scheme.payout ? payoutClaims(scheme.payout, of) : shareClaims(scheme, of);
}

const neighbours = (keys, claim) => keys.slice(1).map((key, i) => claim(keys[i], key));

function shareClaims({ reward, audit }, { scores, beats, reaches, staysBelow, ranking }) {
  const floor = max(nanos(reward.min_score), 1n);
  const paid = ranking.filter((key) => scores.get(key) >= floor);
  const alike = reward.kind === "weights" && reward.strategy === "winner-takes-all";
  const first = Math.min(paid.length, audit?.places ?? Infinity, alike ? reward.top : Infinity);
  const [inside, outside] = [paid.slice(0, first), ranking.slice(first)];
  const last = alike ? inside : inside.slice(-1);
  const claims = alike ? [] : neighbours(inside, beats);
  claims.push(...last.flatMap((key) => outside.map((other) => beats(key, other))));
  if (nanos(reward.min_score) > 0n) {
    claims.push(...last.map((key) => reaches(key, floor)));
    if (first === paid.length && (!alike || first < reward.top)) claims.push(...outside.map((key) => staysBelow(key, floor)));
  }
  return claims;
}

function payoutClaims({ tiers, threshold_bps, split }, { scores, beats, reaches, staysBelow, ranking }) {
  const marks = tiers.map(({ reach_bps }) => ceilDiv(BigInt(reach_bps) * BigInt(threshold_bps) * NANO, 10n ** 8n));
  const lowest = marks.at(-1);
  const paid = ranking.slice(0, split.length).filter((key) => scores.get(key) >= lowest);
  const others = ranking.slice(paid.length);
  const claims = neighbours(paid, beats);
  if (paid.length) {
    claims.push(reaches(paid[0], marks.find((mark) => scores.get(paid[0]) >= mark)), reaches(paid.at(-1), lowest));
    if (paid.length === split.length) claims.push(...others.map((key) => beats(paid.at(-1), key)));
  }
  if (paid.length < split.length) claims.push(...others.map((key) => staysBelow(key, lowest)));
  const missed = marks.filter((mark) => paid.length && scores.get(ranking[0]) < mark);
  if (missed.length) claims.push(...ranking.map((key) => staysBelow(key, missed.at(-1))));
  return claims;
}

// ---- which trials are drawn from

/** The trials that count: {participant, validator, task, trial, record, claimed, passed, testable, effect}. `behind`: participant → [{record, digest}]. */
export function trialsOf({ scheme, tasks }, settlement, behind) {
  const each = BigInt(tasks.length) * BigInt(scheme.score.trials);
  const trials = [];
  for (const row of settlement.agreed) {
    const counting = row.status === "agreed" ? row.validators.filter((vote) => !vote.excluded) : [];
    const total = sum(counting.map((vote) => BigInt(vote.stake)));
    const effects = new Map(counting.map((vote) => [vote.validator, effectOf(scheme, BigInt(vote.stake), total, BigInt(counting.length), each)]));
    for (const { record, digest } of behind.get(row.participant) ?? []) {
      if (!effects.has(record.validator) || !tasks.includes(record.task) || record.trial > scheme.score.trials || record.outcome === "error") continue;
      const { validator, task, trial, outcome: claimed, work } = record;
      const passed = claimed === "pass";
      trials.push({ participant: row.participant, validator, task, trial, record: digest, claimed, passed, testable: passed || work !== undefined, effect: effects.get(validator) });
    }
  }
  return trials;
}

/** A trial's effect in nanos, as [n, d]. */
function effectOf({ score, consensus }, stake, total, validators, each) {
  if (score.passed_by !== "all" && consensus.combine === "stake-mean") return [NANO * stake, total * each];
  if (score.passed_by !== "all" && consensus.combine === "mean") return [NANO, validators * each];
  return [NANO, each];
}

const inOrder = (a, b) => byUtf8(a.participant, b.participant) || byUtf8(a.validator, b.validator) || byUtf8(a.task, b.task) || a.trial - b.trial;

/** The claims, the trials that are drawn from with the size of each, and the untested ones. */
export function planOf(scheme, settlement, trials) {
  const claims = claimsOf(scheme, settlement);
  const least = { above: new Map(), below: new Map() };
  for (const claim of claims)
    for (const side of ["above", "below"]) if (claim[side] !== null) least[side].set(claim[side], min(claim.margin, least[side].get(claim[side]) ?? claim.margin));
  const plan = { claims, trials: [], untested: [], counted: trials.length, risk: nanos((scheme.audit ?? RULES).risk) };
  for (const trial of [...trials].sort(inOrder)) {
    const margin = least[trial.passed ? "above" : "below"].get(trial.participant);
    if (margin === undefined) continue;
    const [n, d] = trial.effect;
    if (trial.testable) plan.trials.push({ ...trial, size: ceilDiv(NANO * n, d * max(1n, margin)) });
    else plan.untested.push(trial);
  }
  plan.size = sum(plan.trials.map(({ size }) => size));
  return plan;
}

// ---- the draw and the martingale

/** The index of the trial that draw `number` takes: 1, 2, … */
function drawn(plan, ends, seed, number) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(number));
  const point = (BigInt("0x" + toHex(sha256(concat(seed, bytes)))) * plan.size) >> 256n;
  let [low, high] = [0, ends.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > point) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** M after a draw. */
const step = (value, size, isWrong) => (value * (isWrong ? OVER - UNDER : OVER) * size) / (OVER * size - UNDER * NANO);
const enough = (plan, value) => value * plan.risk >= ONE * NANO;

/** Whether no sample confirms: a claim without a margin, or more draws than trials, all of them held. */
export function recountsAtOnce(plan) {
  if (plan.claims.some(({ margin }) => margin <= 0n)) return true;
  if (OVER * plan.size <= UNDER * NANO) return false;
  let value = ONE;
  for (let i = 0; i < plan.trials.length; i++) {
    value = step(value, plan.size, false);
    if (enough(plan, value)) return false;
  }
  return true;
}

/** What became of a claim; null if its runs do not decide it. */
export function stateOf({ passed }, seen) {
  if (seen.length === 0) return "missing";
  const shows = seen.map((outcome) => (outcome === "pass") === passed);
  if (shows.some(Boolean)) return shows.every(Boolean) ? "held" : "flaky";
  return seen.length >= RUNS ? "false" : null;
}

/** The draws and M after each, up to the end. `seenOf`: trial → outcomes, or undefined where it was not judged again. */
export function follow(plan, seed, seenOf) {
  const path = { draws: [], values: [], confirmed: false };
  if (recountsAtOnce(plan)) return path;
  if (OVER * plan.size <= UNDER * NANO) return { ...path, confirmed: true };
  let end = 0n;
  const ends = plan.trials.map(({ size }) => (end += size));
  for (let value = ONE; path.draws.length < plan.trials.length; ) {
    const at = drawn(plan, ends, seed, path.draws.length + 1);
    value = step(value, plan.size, ["false", "missing"].includes(judged(plan.trials[at], seenOf)));
    path.draws.push(at);
    path.values.push(value);
    if (enough(plan, value)) return { ...path, confirmed: true };
  }
  return path;
}

function judged(trial, seenOf) {
  const seen = seenOf(trial) ?? wrong(`${about(trial)}: it has to be judged again, and no row says what was seen`);
  return stateOf(trial, seen) ?? wrong(`${about(trial)}: a trial that differs is judged ${RUNS} times`, { found: seen });
}

const about = ({ validator, participant, task, trial }) => `${validator} on ${participant}, ${task}, trial ${trial}`;

export const seedOf = (randomness, receipt) => sha256(concat(utf8("assay-audit/1\0"), randomness, receipt));

/** What follows from the plan, the seed and what was seen: the fields of the statement from `claims` on. */
export function outcomeOf(plan, seed, seenOf) {
  const path = follow(plan, seed, seenOf);
  const own = path.confirmed ? [...new Set(path.draws)] : plan.trials.map((_, i) => i);
  const rows = own.map((at) => {
    const { participant, validator, task, trial, record, claimed } = plan.trials[at];
    return { participant, validator, task, trial, record, claimed, seen: seenOf(plan.trials[at]) ?? null, state: judged(plan.trials[at], seenOf) };
  });
  const overstated = path.confirmed ? [] : overstatements(plan, rows);
  const untested = new Map();
  for (const { validator } of plan.untested) untested.set(validator, (untested.get(validator) ?? 0) + 1);
  return {
    claims: plan.claims.map((claim) => ({ ...claim, margin: Number(claim.margin) })),
    trials: { counted: plan.counted, drawn_from: plan.trials.length, size: plan.size.toString() },
    untested: [...untested].sort((a, b) => byUtf8(a[0], b[0])).map(([validator, trials]) => ({ validator, trials })),
    judged: rows, draws: path.draws, martingale: path.values.map(String), overstated,
    verdict: path.confirmed ? "confirmed" : overstated.every(({ stands }) => stands) ? "recounted" : "refused",
  };
}

const plus = ([a, b], [c, d]) => {
  const [n, e] = [a * d + c * b, b * d];
  const common = gcd(n < 0n ? -n : n, e) || 1n;
  return [n / common, e / common];
};

/** By how much each claim was overstated, over all trials. */
function overstatements(plan, rows) {
  const sums = new Map();
  plan.trials.forEach(({ participant, passed, effect }, i) => {
    if (rows[i].state === "false" || rows[i].state === "missing") sums.set(`${passed}\n${participant}`, plus(sums.get(`${passed}\n${participant}`) ?? [0n, 1n], effect));
  });
  const part = (passed, key, sign) => {
    const [n, d] = sums.get(`${passed}\n${key}`) ?? [0n, 1n];
    return [sign * n, d];
  };
  return plan.claims.map(({ above, below, margin }) => {
    const [n, d] = [part(true, above, 1n), part(false, below, 1n), part(false, above, -1n), part(true, below, -1n)].reduce(plus);
    return { above, below, nanos: ceilDiv(n, d).toString(), stands: n <= 0n || n < margin * d };
  });
}

// ---- a signed audit

const { object, list, oneOf, digest } = read;
const nameOf = read.key;
const digits = (most) => read.pattern(new RegExp(`^-?(0|[1-9][0-9]{0,${most}})$`), "a string of digits");
const someone = nullable(nameOf);
const outcome = oneOf("pass", "fail", "timeout");
const auditPredicate = object({
  competition: nameOf, epoch: read.epoch, receipt: digest, settlement: digest, log: nameOf, witnessed: nullable(natural),
  randomness: (value, path) => (isObject(value) && "round" in value ? drandRound : givenValue)(value, path),
  risk: nameOf, places: nullable(natural), claims: list(object({ above: someone, below: someone, margin: read.integer(-read.LARGEST, read.LARGEST) })),
  trials: object({ counted: natural, drawn_from: natural, size: digits(60) }), untested: list(object({ validator: nameOf, trials: natural })),
  judged: list(object({
    participant: nameOf, validator: nameOf, task: nameOf, trial: natural, record: digest, claimed: outcome, seen: list(outcome), state: oneOf("held", "flaky", "false", "missing"),
  })),
  draws: list(natural), martingale: list(digits(60)), overstated: list(object({ above: someone, below: someone, nanos: digits(60), stands: read.boolean })),
  verdict: oneOf("confirmed", "recounted", "refused"), software,
});
const givenValue = object({ source: oneOf("given"), value: sha });
const drandRound = object({ source: oneOf("drand"), chain: sha, round: natural, signature: read.pattern(/^[0-9a-f]{96}$/, "48 bytes in hex") });
const auditStatement = object({ _type: oneOf(STATEMENT), subject: subjects, predicateType: oneOf("assay:audit/v1"), predicate: read.anything });

/** The file of a signed audit: signed by the auditor's key, and in its log. Its `predicate()` is read when the epoch is known to be right. */
export async function openAudit(value, vkey) {
  const found = staged("audit", () => fileOf("assay.audit/1")(opened(value, "audit"), "audit"));
  const key = readVkey(vkey, [1], "audit");
  const audit = await openSigned(found, key, { schema: "assay.audit/1", reader: auditStatement, code: "audit", logCode: "audit" });
  return {
    ...audit, key,
    predicate: () => staged("audit", () => auditPredicate(audit.predicate, "statement")),
    checkSubject: (name, of) => staged("audit", () => checkSubject(audit.statement, name, of)),
  };
}


/** Round of drand's quicknet that a receipt witnessed at T (seconds since 1970) is drawn by. */
function roundAfter(time) {
  return time <= DRAND.genesis ? 1n : ceilDiv(time - DRAND.genesis, DRAND.period) + 1n;
}

async function randomnessOf(source, witnessedAt, delay) {
  if (source.source === "given") return fromHex(source.value);
  if (witnessedAt === null) wrong("the draw depends on when the receipt was witnessed: give the policy of its witnesses");
  const round = roundAfter(witnessedAt + delay);
  if (BigInt(source.round) !== round) wrong("it is not the round of drand that the rule fixes", { where: "randomness.round", expected: round.toString(), found: String(source.round) });
  if (source.chain !== DRAND.chain) wrong("its randomness is of another chain", { where: "randomness.chain", expected: DRAND.chain, found: source.chain });
  const { isOfQuicknet } = await import("./beacon.js");
  const signature = fromHex(source.signature);
  if (!isOfQuicknet(source.round, signature)) wrong(`round ${source.round} is not signed by drand's quicknet`, { where: "randomness.signature", found: source.signature });
  return sha256(signature);
}

/**
 * A signed audit against the epoch that it is of: {receipt, settlement, document, behind}, as it was verified, and when a quorum had cosigned it
 * (BigInt, or null). Gives the statement's predicate and the audit's place in its log. `early`: the audit's file, opened by `openAudit`.
 */
export async function checkAudit(early, { receipt, settlement, document, behind, witnessedAt }) {
  const stated = early.predicate();
  const { scheme } = document;
  if (scheme.score.kind !== "tests") wrong("only trials, of kind tests, are audited");
  const tasks = document.tasks.map((line) => line.split(" ")[0]);
  const plan = planOf(scheme, settlement, trialsOf({ scheme, tasks }, settlement, behind()));
  if (plan.claims.length === 0) refuse("nobody is paid in this epoch, so there is nothing to confirm", { code: "cannot-settle", stage: "audit" });
  const rules = scheme.audit ?? RULES;
  const randomness = await randomnessOf(stated.randomness, witnessedAt, BigInt(rules.delay.slice(0, -1)));
  const seen = new Map(stated.judged.map((row) => [row.record, row.seen]));
  const { competition, epoch, settlement: digest } = receipt.predicate;
  const again = {
    competition, epoch, receipt: receipt.digest, settlement: digest, log: receipt.checkpoint.origin, witnessed: witnessedAt === null ? null : Number(witnessedAt),
    randomness: stated.randomness, risk: decimal(plan.risk), places: rules.places ?? null,
    ...outcomeOf(plan, seedOf(randomness, receipt.entry), ({ record }) => seen.get(record)),
  };
  for (const [field, value] of Object.entries(again)) {
    if (canonical(value) === canonical(stated[field])) continue;
    const { where, expected, found, whose } = difference(value, stated[field], field);
    wrong(`${where} does not follow from the epoch and what was seen`, { where, expected: shown(expected), found: shown(found), whose });
  }
  early.checkSubject(`${competition} epoch ${epoch}`, digest);
  return { predicate: stated, index: early.index, size: early.checkpoint.size, digest: early.digest };
}

const shown = (value) => (value === undefined ? "nothing" : value === null ? "null" : value);

/** `audited at 5 % risk: 73 of 400 trials judged again`, and what came of it. */
export function sentence({ risk, judged: rows, trials, verdict }) {
  const what = { confirmed: "the outcome is confirmed", recounted: "these are all that could overstate it, and it stands", refused: "the outcome is not confirmed" }[verdict];
  return `audited at ${decimal(nanos(risk) * 100n)} % risk: ${rows.length} of ${trials.counted} trials judged again; ${what}`;
}

/** Validator → how often its claims were judged again, and how often they were false. */
export function wrongOf({ judged: rows }) {
  const found = new Map();
  for (const { validator, state } of rows) {
    const own = found.get(validator) ?? { judged: 0, wrong: 0 };
    found.set(validator, { judged: own.judged + 1, wrong: own.wrong + (state === "false" ? 1 : 0) });
  }
  return new Map([...found].sort((a, b) => byUtf8(a[0], b[0])));
}
