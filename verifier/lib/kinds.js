// The kinds of conformance cases (docs/conformance.md): input → output, or a refusal with its code.

import * as read from "./fields.js";
import { apportion, decimal, fractionOf, instantOf, instantText, integerOf, NANO, nanosOf, ratioText, shown, STAKES, sum, WEIS } from "./exact.js";
import { refuse, Refused, under, Unsupported } from "./errors.js";
import { canonical, digestOfJson, isObject, parse } from "./json.js";
import { agree, assigned } from "./consensus.js";
import { payout } from "./payout.js";
import { clocks } from "./clock.js";
import { cap, decay, encode, loadRules, strategy, weights } from "./reward.js";
import { readConsensus, readDecay, readDuel, readPayout, readReward, readScheme, readScore } from "./scheme.js";
import { KINDS as EVIDENCE, loadKinds, scoreTests } from "./score.js";
import { readTask, scoreTask } from "./workflow.js";
import { readAnswer, scoreRubric } from "./rubric.js";
import { scorePoints } from "./points.js";
import { decide } from "./panel.js";
import { readRecord, recordDigest, withoutSeq } from "./records.js";
import { readCase } from "./case.js";
import { readTasks, taskSetDigest, unique } from "./inputs.js";
import { shownClocks } from "./settle.js";
import { settleCase } from "./standing.js";
import { answerOfLedger } from "./ledger-kinds.js";
import { emission } from "./emission.js";
import { duel } from "./duel.js";
import { margin } from "./margin.js";
import { taskHealth } from "./health.js";

await loadKinds(EVIDENCE);
await loadRules({ reward: { strategy: "softmax", kind: "payout" } });

const { object, list, maybe, or, anything } = read;
const text = (value, path) => (typeof value === "string" ? value : refuse(`${path}: is not a text`));
/** The input's fields; a refusal has the code of the outermost wrong one. */
const fields = (shape, input) => object(shape, { byField: true })(input, "");

const COUNTS = {
  score: (value) => within(nanosOf(value), NANO), amount: nanosOf, fraction: fractionOf, share: (value) => within(fractionOf(value), NANO),
  stake: (value) => integerOf(value, STAKES), wei: (value) => integerOf(value, WEIS),
};
const within = (value, most) => (value !== null && value <= most ? value : null);

/** `a/b` as [numerator, denominator], or a refusal under `code`. */
function ratioOf(text, code) {
  const match = typeof text === "string" ? /^([0-9]+)\/([1-9][0-9]*)$/.exec(text) : null;
  if (match === null) refuse(`${JSON.stringify(text)} is not a ratio`, code);
  return [BigInt(match[1]), BigInt(match[2])];
}
const ratios = (value, path) => list((item) => ratioOf(item, path))(value, path);
/** Ratios over one denominator. */
function together(parts) {
  const d = parts.reduce((all, [, own]) => all * own, 1n);
  return { n: parts.map(([n, own]) => (n * d) / own), d };
}
const score = (value, path) => nanosOf(read.score(value, path));

const KINDS = {
  decimal(input) {
    const { value, as } = input;
    const count = Object.hasOwn(COUNTS, as) ? COUNTS[as](value) : null;
    if (count === null) refuse(`${canonical(value ?? null)} is no ${as}`);
    return { text: as === "stake" || as === "wei" ? count.toString() : decimal(count), count: count.toString() };
  },
  instant(input) {
    const micros = instantOf(input.text);
    return micros === null ? refuse("that is no instant") : { utc: instantText(micros) };
  },
  canonical(input) {
    const value = parse(fields({ json: text }, input).json);
    return { text: canonical(value), digest: digestOfJson(value) };
  },
  apportion(input) {
    const found = fields({ amount: (value) => integerOf(value, 10n ** 4000n) ?? refuse("no amount"), parts: ratios }, input);
    const { n, d } = together(found.parts);
    if (sum(n) !== d || n.length === 0) refuse("parts do not sum to 1", "parts");
    return { amounts: apportion(found.amount, n, d).map(String) };
  },
  scheme(input) {
    const document = readScheme(input.scheme);
    return { document, digest: digestOfJson(document) };
  },
  record(input) {
    const record = readRecord(input.record);
    return { document: withoutSeq(record), digest: recordDigest(record) };
  },
  "task-set"(input) {
    const tasks = readTasks(fields({ lines: list(text) }, input).lines, true);
    return { ids: tasks.map(({ id }) => id), digest: taskSetDigest(tasks) };
  },
  tests(input) {
    const { passed, trials } = fields({ passed: read.count, trials: read.integer(1, read.BILLION) }, input);
    if (passed > trials) refuse("more passed than run", "passed");
    return { score: decimal(scoreTests(passed, trials)) };
  },
  workflow(input) {
    const rules = under("score", () => readScore(input.score));
    if (rules.kind !== "workflow") refuse("not of this kind", "score");
    if (isObject(input.task) && input.task.outcome === "service-error") refuse("a service error has no score", "task");
    const found = scoreTask(rules, readTask(input.task));
    const [success, cost, latency, reliability] = found.parts.map(([n, d]) => shown(n, d));
    return { success, cost, latency, reliability, score: decimal(found.score) };
  },
  rubric(input) {
    const rules = under("score", () => readScore(input.score));
    return scoreRubric(rules, input) ?? { malformed: true };
  },
  panel(input) {
    const rules = under("score", () => readScore(input.score));
    if (rules.panel === undefined) refuse("there is no panel", "score");
    return decide(rules, under("panel", () => list(readAnswer, { most: 100 })(input.panel, "panel")));
  },
  "rubric-answer"({ format, content }) {
    if (!["json_schema", "json_object", "text"].includes(format)) refuse(`there is no format ${format}`, "format");
    return { text: format === "json_schema" ? content : unwrapped(content) };
  },
  points(input) {
    const rules = under("score", () => readScore(input.score));
    const found = fields({ score: anything, valid: anything, invalid: anything, starred: read.count }, input);
    const table = (field) => under(field, () => {
      if (!isObject(found[field])) refuse(`${field} is a table`);
      for (const [name, number] of Object.entries(found[field])) {
        if (!Object.hasOwn(rules.repositories, name)) refuse(`${name} is not in the scheme`);
        read.count(number, name);
      }
      return found[field];
    });
    const valid = table("valid");
    const byName = isObject(found.invalid) || rules.invalid === "subtract";
    const invalid = byName ? table("invalid") : { [Object.keys(rules.repositories)[0]]: under("invalid", () => read.count(found.invalid, "invalid")) };
    const result = scorePoints(rules, valid, invalid, found.starred);
    return { valid: result.valid, points: decimal(result.points), score: decimal(result.score) };
  },
  assign(input) {
    const hex = read.pattern(/^[0-9a-fA-F]{64}$/, "32 bytes in hex");
    const found = fields({ assign: read.integer(1, read.BILLION), validators: list(read.key, { least: 1 }), submission: read.key, randomness: hex }, input);
    return { validators: assigned(found.assign, found.validators, found.submission, found.randomness.toLowerCase()) };
  },
  consensus(input) {
    const stake = (value) => integerOf(value, STAKES) ?? refuse("no stake");
    const vote = object({ validator: read.key, stake, score: maybe(score), state: maybe(read.oneOf("incomplete", "unjudged", "silent")) });
    const found = fields({ consensus: readConsensus, votes: list(vote, { least: 1 }), bps: or(false, read.boolean), trials: maybe(read.integer(1, read.BILLION)) }, input);
    if (found.consensus.outliers.scale && found.trials === undefined) refuse("noise needs the number of trials", "trials");
    under("votes", () => {
      unique(found.votes, "validator", "votes");
      for (const row of found.votes) if ((row.score === undefined) === (row.state === undefined)) refuse("a vote has a score or a state, one of the two");
    });
    const least = BigInt(found.consensus.min_validator_stake);
    const needed = sum(found.votes.map((row) => row.stake));
    const may = found.votes.filter((row) => row.stake > 0n && row.stake >= least && row.state !== "silent");
    const result = agree(found.consensus, may, { needed, bps: found.bps, trials: found.trials });
    return {
      status: result.status, reason: result.reason, score: result.score === null ? null : decimal(result.score), bps: result.bps, stake: result.stake.toString(),
      median: result.median, mad: result.mad, mean: result.mean, flagged_majority: result.flagged_majority,
      validators: result.votes.map(({ validator, flagged, excluded, modified_z, z_squared }) => ({ validator, flagged, excluded, modified_z, z_squared })),
    };
  },
  strategy(input) {
    const found = fields({ reward: readReward, scores: list(score) }, input);
    const { n, d, burn } = strategy(found.reward, found.scores);
    return { shares: n.map((share) => ratioText(share, d)), burn: ratioText(burn, d) };
  },
  cap(input) {
    const found = fields({ reward: readReward, shares: ratios }, input);
    const { n, d } = together(found.shares);
    if (sum(n) > d) refuse("shares are above 1", "shares");
    // What was not a share before the cap burnt before it, and is not the cap's.
    const result = cap(found.reward, { n, d, burn: 0n });
    return { shares: result.n.map((share) => ratioText(share, result.d)), burn: ratioText(result.burn, result.d), unallocated: ratioText(result.unallocated, result.d) };
  },
  decay(input) {
    const found = fields({ decay: readDecay, last: (value, path) => (value === null ? null : read.epoch(value, path)), epoch: read.epoch }, input);
    if (found.last > found.epoch) refuse("the last reset is after the epoch", "last");
    const { stale, burned, kept } = decay(found.decay, found.last, found.epoch);
    return { stale, burned: decimal(burned), kept: decimal(kept) };
  },
  clock(input) {
    const nothing = (reader) => (value, path) => (value === null ? null : reader(value, path));
    const own = object({ participant: read.key, submission: read.submission, best: score, last: read.epoch });
    const before = object({ task_set: nothing(text), record: nothing(score), last: nothing(read.epoch), submission: nothing(read.submission), participants: list(own) });
    const agreed = object({ participant: read.key, submission: read.submission, score, last_reset_epoch: maybe(read.epoch) });
    const row = object({ epoch: read.epoch, top_score: read.score, submission: or("", read.submission), task_set: or("", text) });
    const found = fields({ decay: readDecay, epoch: read.epoch, task_set: or(null, nothing(text)), previous: or(null, nothing(before)), history: or([], list(row)), agreed: list(agreed) }, input);
    const history = found.history.sort((a, b) => a.epoch - b.epoch);
    return shownClocks(clocks(found.decay, { epoch: found.epoch, taskSet: found.task_set, previous: found.previous, history, agreed: found.agreed }));
  },
  encoding(input) {
    const encoding = read.oneOf("round", "exact-sum", "max-upscale");
    const found = fields({ encoding, shares: ratios, burn: (value, path) => ratioOf(value, path) }, input);
    const all = together([...found.shares, found.burn]);
    const total = sum(all.n);
    if (total > all.d || (found.encoding === "exact-sum" && total !== all.d)) refuse("shares and burn do not fit one whole", "shares");
    return encode(found.encoding, { n: all.n.slice(0, -1), d: all.d, burn: all.n.at(-1) });
  },
  weights(input) {
    const candidate = object({ score, kept: or("1", score), registered: or(true, read.boolean) });
    const found = fields({ reward: readReward, participants: list(candidate) }, input);
    const result = weights(found.reward, found.participants);
    return { weights: result.rows, burn: result.burn, unallocated: result.unallocated };
  },
  payout(input) {
    const found = fields({ payout: readPayout, scores: list(score) }, input);
    return payout(found.payout, found.scores);
  },
  margin(input) {
    const stake = (value) => integerOf(value, STAKES) ?? refuse("no stake");
    const count = read.integer(0, 64);
    const entries = (value, path) => Object.fromEntries(Object.entries(anything(value, path)).map(([name, row]) => [name, object({ passed: count, missing: or(0, count) })(row, path)]));
    const found = fields({
      consensus: or(readConsensus({}, "consensus"), readConsensus), payout: maybe(readPayout), trials: read.integer(1, 64),
      validators: list(object({ key: read.key, stake }), { least: 1, most: 8 }), participants: list(object({ key: read.key, seen: entries }), { least: 1, most: 8 }),
    }, input);
    for (const rows of ["validators", "participants"]) under(rows, () => unique(found[rows], "key", rows));
    if (found.consensus.assign !== undefined) refuse("validators are drawn with randomness, and a board of this kind has none");
    const known = new Set(found.validators.map((row) => row.key));
    for (const { seen } of found.participants) {
      for (const [name, { passed, missing }] of Object.entries(seen)) {
        if (!known.has(name) || passed + missing > found.trials || missing === found.trials) refuse(`${name} cannot have seen that`, "participants");
      }
    }
    return margin(found);
  },
  duel(input) {
    const outcome = maybe(read.oneOf("pass", "fail", "timeout", "error"));
    const row = object({ task: read.key, trial: or(1, read.integer(1, 10000)), challenger: outcome, king: outcome });
    const found = fields({
      duel: readDuel, receipt: read.pattern(/^sha256:[0-9a-f]{64}$/, "a digest"), challenger: read.key, king: read.key, tasks: list(read.key, { least: 1, most: 10000 }),
      trials: or(1, read.integer(1, 10000)), challengers: or(1, read.integer(1, 10000)), results: or([], list(row)),
    }, input);
    if (new Set(found.tasks).size !== found.tasks.length) refuse("a task stands twice", "tasks");
    const results = new Map(found.results.map((one) => [`${one.task}\n${one.trial}`, one]));
    if (results.size !== found.results.length) refuse("a trial stands twice", "results");
    const done = (value) => value !== undefined && value !== "error";
    return duel(found.duel, found, (task, trial) => {
      const { challenger, king } = results.get(`${task}\n${trial}`) ?? {};
      return done(challenger) && done(king) ? [challenger === "pass", king === "pass"] : null;
    });
  },
  "task-health"(input) {
    const outcomes = list(read.oneOf("pass", "fail", "timeout", "error"), { most: 10000 });
    const row = object({ task: read.key, participant: read.key, outcomes });
    const found = fields({ tasks: list(read.key, { least: 1, most: 10000 }), results: list(row) }, input);
    if (new Set(found.tasks).size !== found.tasks.length) refuse("a task stands twice", "tasks");
    const rows = new Set(found.results.map((one) => `${one.task}\n${one.participant}`));
    if (rows.size !== found.results.length) refuse("a participant's trials of a task stand twice", "results");
    if (found.results.some((one) => !found.tasks.includes(one.task))) refuse("results of a task that is not named", "results");
    return { tasks: taskHealth(found.tasks, found.results) };
  },
  settle: (input) => settleCase(readCase(input)).settlement,
  emission: (input) => emission(input),
};

const SPACE = "[ \\t\\r\\n]*";
const FENCE = new RegExp(`^${SPACE}\`\`\`(?:json)?[ \\t\\r]*\\n([\\s\\S]*)\\n[ \\t]*\`\`\`${SPACE}$`);
const THOUGHT = new RegExp(`^${SPACE}<think>[\\s\\S]*?</think>`);

/** One surrounding fence or one leading thought is taken off, nothing else. SPEC 2.3. */
function unwrapped(content) {
  const fence = FENCE.exec(content);
  if (fence) return fence[1];
  return content.replace(THOUGHT, "");
}

/** The answer to one case: its output, {refused, code, why} or {unsupported}. */
export async function answer(kind, input) {
  try {
    if (Object.hasOwn(KINDS, kind)) return KINDS[kind](input);
    return await answerOfLedger(kind, input);
  } catch (error) {
    if (error instanceof Unsupported) return { unsupported: true, why: error.message };
    if (error instanceof Refused) return { refused: true, code: error.code, why: error.message };
    throw error;
  }
}

const wanted = (one) => (one.refused ? { refused: true, ...(one.code === undefined ? {} : { code: one.code }) } : one.output);
const given = (found, one) => (found.refused ? { refused: true, ...(one.code === undefined ? {} : { code: found.code }) } : found);

/** A case file: how many cases are right and unsupported, and for each wrong one what was expected and given. `only`: one case by its name. */
export async function failures(text, only) {
  const { kind, cases } = parse(text, { lenient: true });
  const result = { kind, right: 0, unsupported: 0, wrong: [] };
  for (const one of cases) {
    if (only !== undefined && one.name !== only) continue;
    const found = await answer(kind, one.input);
    const [expected, got] = [canonical(wanted(one)), canonical(given(found, one))];
    if (found.unsupported) result.unsupported++;
    else if (expected === got) result.right++;
    else result.wrong.push({ name: one.name, expected, got, why: found.why ?? "" });
  }
  return result;
}
