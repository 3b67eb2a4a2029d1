// One epoch: evidence → scores → agreement → weights or payouts, with every intermediate number. Pure. SPEC 2 to 5.

import { byUtf8, decimal, instantOf, NANO, nanosOf, sum } from "./exact.js";
import { refuse } from "./errors.js";
import { agree, assigned } from "./consensus.js";
import { clocks } from "./clock.js";
import { decay, later, weights } from "./reward.js";
import { jointVotes } from "./score.js";
import { readTasks, taskSetDigest } from "./inputs.js";
import { digestOfJson, sealed } from "./json.js";

const submissionOf = (participant) => participant.submission ?? "";

/** Earlier submission first, none last; then the key. */
const byTime = (a, b) => {
  const [x, y] = [a.submitted_at, b.submitted_at];
  if (x !== y) {
    if (x === undefined || y === undefined) return x === undefined ? 1 : -1;
    const [early, late] = [instantOf(x), instantOf(y)];
    if (early !== late) return early < late ? -1 : 1;
  }
  return byUtf8(a.key, b.key);
};

/** Participant → the one who handed the same submission in earlier. */
function duplicates(kind, participants) {
  const [holders, copies] = [new Map(), new Map()];
  if (kind === "points") return copies;
  for (const participant of [...participants].sort(byTime)) {
    const submission = submissionOf(participant);
    if (submission === "") continue;
    if (holders.has(submission)) copies.set(participant.key, holders.get(submission));
    else holders.set(submission, participant.key);
  }
  return copies;
}

/** Whose a record is: the holder of its submission now, or whom it names. undefined: nobody's. */
export function owners(kind, participants) {
  const copies = duplicates(kind, participants);
  const holders = new Map();
  for (const participant of participants) if (submissionOf(participant) !== "" && !copies.has(participant.key)) holders.set(submissionOf(participant), participant.key);
  const known = new Map(participants.map((participant) => [participant.key, submissionOf(participant)]));
  const of = (record) => {
    if (kind === "points") return record.participant;
    if (kind === "workflow") return !copies.has(record.participant) && known.get(record.participant) === record.submission ? record.participant : undefined;
    if (record.submission !== "") return holders.get(record.submission);
    return known.get(record.participant) === "" ? record.participant : undefined;
  };
  return { of, copies };
}

/** The epoch in which a submission was accepted: as the registry says, else that of the first record about it by anybody (points: about the participant). */
function acceptedIn(participant, epoch, records, kind) {
  if (participant.accepted_epoch !== undefined) return participant.accepted_epoch;
  const submission = submissionOf(participant);
  const about = records.filter((record) => (kind === "points" || submission === "" ? record.participant === participant.key : record.submission === submission));
  const epochs = about.filter((record) => record.epoch <= epoch).map((record) => record.epoch);
  return epochs.length ? epochs.reduce((a, b) => Math.min(a, b)) : null;
}

/** The validators with their stakes as integers: {key, stake, may}, and their whole stake. The same for every participant. */
function registryOf({ scheme, validators }) {
  const least = BigInt(scheme.consensus.min_validator_stake);
  const rows = validators.map((row) => ({ row, key: row.key, stake: BigInt(row.stake), may: false }));
  for (const one of rows) one.may = one.stake > 0n && one.stake >= least && !auditFailed(scheme, one.row);
  const may = rows.filter((one) => one.may);
  return { rows, may, mayKeys: new Set(may.map(({ key }) => key)), total: sum(rows.map(({ stake }) => stake)), least };
}

/** Who may count for a participant, and the stake that the quorum is a share of. */
function electorate({ document, epoch, records, registry, accepted: first = null }, participant) {
  const { consensus } = document.scheme;
  if (consensus.assign === undefined) return { may: registry.mayKeys, drawn: null, needed: registry.total };
  const accepted = first ? (participant.accepted_epoch ?? first.get(participant.key)) : acceptedIn(participant, epoch, records, document.scheme.score.kind);
  if (accepted === null) return { may: new Set(), drawn: new Set(), needed: 0n };
  const random = document.randomness.find((row) => row.epoch === accepted);
  if (random === undefined) refuse(`randomness of epoch ${accepted} is missing, in which the submission of ${JSON.stringify(participant.key)} was accepted`, { code: "randomness", where: "randomness" });
  const drawn = new Set(assigned(consensus.assign, registry.may.map((row) => row.key), submissionOf(participant) || participant.key, random.hex));
  return { may: drawn, drawn, needed: sum(registry.may.filter((row) => drawn.has(row.key)).map((row) => row.stake)) };
}

/** Whether the scheme leaves a validator out, because an audit saw its false claims. */
export const auditFailed = ({ audit }, { failed_audit }) => audit?.failed === "leave-out" && failed_audit !== undefined;

function whyNot(scheme, { row, key, stake }, least, drawn, vote) {
  if (drawn !== null && !drawn.has(key)) return "not-assigned";
  if (stake === 0n) return "no-stake";
  if (stake < least) return "stake-below-minimum";
  if (auditFailed(scheme, row)) return "audit-failed";
  return STATES[vote.state] ?? null;
}
const STATES = { injection: "injection-suspected", split: "panel-split", unjudged: "unjudged", incomplete: "incomplete", "no-tasks": "no-tasks" };

const shownWork = (work) => ("points" in work ? { ...work, points: decimal(work.points) } : work);

/** A row of `agreed`, with the exact score beside it. */
function agreement(context, participant, votes, duplicateOf) {
  const { document: { scheme }, registry } = context;
  const base = { participant: participant.key, submission: submissionOf(participant), score: null, bps: null };
  if (duplicateOf !== undefined) {
    const row = { ...base, status: "duplicate", reason: "same-submission", duplicate_of: duplicateOf, stake: "0", needed_stake_of: registry.total.toString() };
    return { row: { ...row, median: null, mad: null, mean: null, flagged_majority: false, validators: [], not_counted: [] }, score: null };
  }
  const { may, drawn, needed } = electorate(context, participant);
  const notCounted = [];
  const asked = [];
  for (const validator of registry.rows) {
    const vote = votes.get(validator.key);
    if (vote === undefined) continue;
    const reason = whyNot(scheme, validator, registry.least, drawn, vote);
    if (reason !== null) notCounted.push({ validator: validator.key, reason, missing: reason === "incomplete" ? vote.missing : 0 });
    if (!may.has(validator.key) || vote.state === "no-tasks") continue;
    const state = ["injection", "split"].includes(vote.state) ? "unjudged" : vote.state;
    asked.push({ ...vote, state, validator: validator.key, stake: validator.stake });
  }
  const votesOfAll = scheme.score.passed_by === "all" ? jointVotes(asked, context.tasks) : asked;
  const found = agree(scheme.consensus, votesOfAll, { needed, bps: scheme.score.kind === "rubric", trials: context.trials });
  const row = {
    ...base, score: found.score === null ? null : decimal(found.score), bps: found.bps, status: found.status, reason: found.reason, duplicate_of: null,
    stake: found.stake.toString(), needed_stake_of: needed.toString(), median: found.median, mad: found.mad, mean: found.mean, flagged_majority: found.flagged_majority,
    validators: found.votes.map((vote) => ({
      validator: vote.validator, score: decimal(vote.score), stake: vote.stake.toString(), flagged: vote.flagged, excluded: vote.excluded,
      modified_z: vote.modified_z, z_squared: vote.z_squared, work: shownWork(vote.work),
    })),
    not_counted: notCounted,
  };
  return { row, score: found.score, votes: found.votes };
}

/** What a participant is ranked by: BPS where there are, else nanos. */
const mark = (found) => (found.row.bps === null ? found.score : BigInt(found.row.bps) * 100000n);

function ranked(participants, found) {
  const agreed = participants.filter(({ key }) => found.get(key).row.status === "agreed");
  return agreed.sort((a, b) => {
    const [x, y] = [mark(found.get(a.key)), mark(found.get(b.key))];
    return x === y ? byTime(a, b) : x > y ? -1 : 1;
  });
}

const previousClocks = (previous) =>
  previous && {
    task_set: previous.task_set, record: previous.clock.record === null ? null : nanosOf(previous.clock.record), last: previous.clock.last, submission: previous.clock.submission,
    participants: previous.clock.participants.map((clock) => ({ ...clock, best: nanosOf(clock.best) })),
  };

export const shownClocks = (clock) => ({
  record: clock.record === null ? null : decimal(clock.record), last: clock.last, submission: clock.submission,
  participants: clock.participants.map((own) => ({ ...own, best: decimal(own.best) })),
});

/** Tasks that validators whose scores count have seen: the lower median. */
const tasksSeen = (found) => {
  const counts = found.votes.filter((vote) => !vote.excluded).map((vote) => vote.work.tasks).sort((a, b) => a - b);
  return counts[(counts.length - 1) >> 1];
};

const NO_WEIGHTS = { weights: [], burn: null, unallocated: "0" };
const NO_PAYOUTS = { released: null, tier_bps: null, payouts: [], fees: null, refund: null };

function weighing(context, ranking, found, clock) {
  const { scheme } = context.document;
  const warmUp = scheme.score.warm_up;
  const rows = ranking.map((participant) => {
    const own = clock.participants.find((one) => one.participant === participant.key);
    const last = scheme.decay.clock === "competition" ? clock.last : own.last;
    const { stale, kept } = decay(scheme.decay, last, context.epoch);
    const seen = warmUp === undefined ? null : tasksSeen(found.get(participant.key));
    return { participant, last, stale, kept, seen, score: found.get(participant.key).score };
  });
  const asked = rows.map((row) => ({ score: row.score, kept: row.kept, registered: row.participant.uid !== undefined, seen: row.seen === null ? 0n : BigInt(row.seen) }));
  const result = weights(scheme.reward, asked, warmUp === undefined ? false : BigInt(warmUp));
  return {
    weights: rows.map(({ participant, last, stale, kept, seen, score }, i) => ({
      participant: participant.key, uid: participant.uid ?? null, score: decimal(score), strategy: result.rows[i].strategy, capped: result.rows[i].capped, last, stale,
      kept: decimal(kept), ...(warmUp === undefined ? {} : { tasks_seen: seen, warm: warmPart(seen, warmUp) }),
      share: result.rows[i].share, u16: result.rows[i].u16, chain_u16: result.rows[i].chain_u16,
    })),
    burn: { uid: scheme.decay.burn_uid, ...result.burn }, unallocated: result.unallocated, exact: result.exact,
  };
}

const warmPart = (seen, warmUp) => decimal((BigInt(Math.min(seen, warmUp)) * NANO * 2n + BigInt(warmUp)) / (2n * BigInt(warmUp)));

/**
 * The settlement of a case {document, epoch, records, previous}: its document, sealed with its digest, and `exact`, the shares before they are shown.
 * `votes`: participant → validator → vote, as standing.js or bulk.js makes them. `accepted` in the context, if there is one: participant → the epoch of the first record about it.
 */
export function settle(context, votes) {
  const { document, epoch, previous } = context;
  const { scheme, participants } = document;
  const kind = scheme.score.kind;
  const tasks = kind === "tests" ? readTasks(document.tasks) : null;
  const { copies } = owners(kind, participants);
  const found = new Map();
  const asked = { ...context, registry: registryOf(document), tasks: tasks?.map(({ id }) => id), trials: tasks === null ? 1 : tasks.length * scheme.score.trials };
  for (const participant of participants) found.set(participant.key, agreement(asked, participant, votes.get(participant.key), copies.get(participant.key)));
  const ranking = ranked(participants, found);
  const taskSet = tasks === null ? null : taskSetDigest(tasks);
  const clock = clocks(scheme.decay ?? {}, {
    epoch, taskSet, previous: previousClocks(previous), history: document.history,
    agreed: ranking.map((row) => ({ participant: row.key, submission: submissionOf(row), score: found.get(row.key).score, last_reset_epoch: row.last_reset_epoch })),
  });
  let rewarded = { ...NO_WEIGHTS, ...NO_PAYOUTS };
  let exact = null;
  if (scheme.reward.kind === "weights") ({ exact, ...rewarded } = { ...rewarded, ...weighing(context, ranking, found, clock) });
  if (scheme.reward.kind === "payout") {
    const paid = later.payout(scheme.payout, ranking.map((row) => mark(found.get(row.key))));
    const payouts = paid.places.map((place, i) => ({ participant: ranking[i].key, address: ranking[i].address ?? null, ...place }));
    Object.assign(rewarded, { released: paid.released, tier_bps: paid.tier_bps, payouts, fees: paid.fees, refund: paid.refund });
  }
  const others = participants.filter((row) => !ranking.includes(row));
  const result = sealed({
    schema: "assay.settlement/1", scheme: { ...scheme.scheme, digest: digestOfJson(scheme) }, epoch, task_set: taskSet,
    total_stake: asked.registry.total.toString(), agreed: [...ranking, ...others].map((row) => found.get(row.key).row),
    ranking: ranking.map((row) => row.key), clock: shownClocks(clock), ...rewarded,
  });
  return { settlement: result, exact };
}
