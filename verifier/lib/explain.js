// Why a participant got its weight or payout: the numbers of the settlement in order, in sentences. Everything is read from what was computed.

import { byUtf8, decimal, NANO, nanosOf } from "./exact.js";
import { nanos } from "./scheme.js";
import { standing } from "./standing.js";
import { decay, weights } from "./reward.js";

const percent = (text) => {
  const hundredths = (nanos(text) * 10000n + NANO / 2n) / NANO;
  const part = (hundredths % 100n).toString().padStart(2, "0").replace(/0+$/, "");
  return `${hundredths / 100n}${part ? "." + part : ""} %`;
};
const ordinal = (n) => `${n}${n % 100 > 10 && n % 100 < 14 ? "th" : (["th", "st", "nd", "rd"][n % 10] ?? "th")}`;
const count = (n, what, many = `${what}s`) => `${n} ${n === 1 ? what : many}`;

const SAW = {
  tests: (work) => `${work.passed} of ${work.trials} trials passed`,
  workflow: (work) => `the mean of ${count(work.tasks, "task")}`,
  rubric: (work) => (work.gate ? `base ${work.base}, ${work.verdict}${work.capped ? ", capped by an unskippable check" : ""}: ${work.bps} BPS${"votes" in work ? `, ${work.flips} of ${work.votes} votes of the panel differ` : ""}` : "the baseline is not met: 0"),
  points: (work) => `${work.valid} valid, ${work.invalid} invalid, ${work.starred} starred: ${work.points} points`,
  given: (work) => `given in epoch ${work.epoch}`,
};
const NOT = {
  "not-assigned": "was not drawn for this submission", "no-stake": "has no stake", "stake-below-minimum": "has less stake than the scheme asks for",
  "audit-failed": "is left out: an audit saw false claims of it",
  "panel-split": "has a panel whose answers differ too much", "injection-suspected": "suspects an injection, and the scheme leaves such a judgement out", unjudged: "could not judge it", incomplete: "misses trials", "no-tasks": "has no task left in the window",
};
const REASON = {
  "same-submission": "Somebody else handed in the same submission earlier, and it counts for the earliest only.",
  "malformed-or-unjudged": "Validators could not judge it, or their judgement is malformed. With them there would be a quorum.",
  "missing-trials": "Validators miss trials. With them there would be a quorum. A missing trial is not a failed one.",
  "no-evidence": "No validator's evidence counts.", "too-few-validators": "Too few validators count.", "too-little-stake": "The validators that count hold too little stake.",
  "stake-after-outliers": "Without the outliers too little stake is left.",
};

const named = (document) => {
  const names = new Map([...document.participants, ...document.validators].map((row) => [row.key, row.name ?? row.key]));
  return (key) => names.get(key) ?? key;
};

function saw(row, kind, name, joint) {
  const counted = row.validators.map((vote) => [
    name(vote.validator), vote.stake, SAW[kind](vote.work), vote.score, vote.modified_z ?? vote.z_squared ?? "–", vote.excluded ? "no: outlier" : vote.flagged ? "yes, though flagged" : "yes",
  ]);
  const others = row.not_counted.map((vote) => [name(vote.validator), "", NOT[vote.reason] + (vote.missing ? ` (${vote.missing})` : ""), "–", "–", "no"]);
  const lines = [`${count(row.validators.length, "validator")} judged the current submission${row.submission === "" ? "" : `, ${row.submission}`}, and can count.`];
  if (joint && row.validators.length) lines.push("The scheme counts a task as passed only where every one of them saw all its trials pass. So all have one score.");
  return { title: "What the validators saw", lines, table: { head: ["validator", "stake", "saw", "score", row.validators.some((vote) => vote.z_squared !== null) ? (row.mean === null ? "M²" : "z²") : "|M|", "counts"], rows: [...counted, ...others] } };
}

/** Of evidence of kind tests: participant → by task, each trial's validator and outcome. `sheets`: those of bulk.js, where evidence was read in bulk. */
function outcomesOf(context) {
  const { document, whose, sheets } = context;
  const counting = sheets ? [] : standing(context);
  return (participant) => {
    const table = new Map((sheets?.tasks ?? []).map((task) => [task, []]));
    for (const { key } of sheets ? document.validators : []) {
      const sheet = sheets.of(participant, key) ?? [];
      sheet.forEach((outcome, at) => outcome !== 255 && table.get(sheets.tasks[Math.floor(at / sheets.trials)]).push({ validator: key, outcome: sheets.outcomes[outcome] }));
    }
    for (const record of counting) {
      if (whose(record) !== participant) continue;
      if (!table.has(record.task)) table.set(record.task, []);
      table.get(record.task).push(record);
    }
    return new Map([...table].sort((a, b) => byUtf8(a[0], b[0])));
  };
}

/** Tasks that not every validator saw passed: of evidence of kind tests, one by one. */
function notPassed(context, row, name) {
  if (context.document.scheme.score.kind === "tests") context.outcomes ??= outcomesOf(context);
  const table = context.outcomes?.(row.participant);
  if (!table) return null;
  const votes = new Set(row.validators.map((vote) => vote.validator));
  const rows = [...table].map(([task, seen]) => {
    const own = seen.filter((one) => votes.has(one.validator));
    const failed = own.filter((one) => one.outcome !== "pass");
    return [task, `${own.length - failed.length} of ${own.length}`, failed.map((one) => name(one.validator) + (one.outcome === "timeout" ? " (out of time)" : "")).join(", ")];
  }).filter(([, , failed]) => failed !== "");
  return { title: "Tasks that were not passed", lines: [rows.length ? `${count(rows.length, "task")} of ${table.size} ${rows.length === 1 ? "was" : "were"} not passed in every trial by every validator.` : "Every validator saw every task passed."], table: rows.length ? { head: ["task", "passed", "failed at"], rows } : null };
}

function quorum(row, consensus) {
  const enough = row.status === "agreed" || row.reason === "stake-after-outliers";
  const share = BigInt(row.needed_stake_of) ? decimal((BigInt(row.stake) * NANO) / BigInt(row.needed_stake_of)) : "0";
  const drawn = consensus.assign === undefined ? "all stake in the registry" : "the stake of the validators that were drawn";
  return {
    title: "Quorum", lines: [`There is ${enough ? "a" : "no"} quorum. The share is of ${drawn}, ${row.needed_stake_of}.`],
    table: { head: ["", "counts", "needed"], rows: [["validators", row.validators.length, consensus.min_validators], ["stake", row.stake, ""], ["share of stake", percent(share), percent(consensus.min_stake)]] },
  };
}

function outliers(row, { outliers: rule }, name) {
  const lines = [];
  if (row.median !== null) lines.push(`The median is ${row.median}, the MAD ${row.mad} (at least ${rule.mad_floor} is used). |M| is 0.6745 × |score − median| / MAD; above ${rule.threshold} a score is an outlier.`);
  else if (row.mean !== null) lines.push(`The mean is ${row.mean}. A score more than ${rule.threshold} standard deviations from it is an outlier.`);
  else lines.push(rule.method === "none" ? "The scheme looks for no outliers." : "With fewer than three scores nobody is an outlier.");
  const flagged = row.validators.filter((vote) => vote.flagged).map((vote) => name(vote.validator));
  if (row.flagged_majority) lines.push(`${flagged.join(", ")} hold half the stake or more, so nobody is left out.`);
  else if (flagged.length) lines.push(`Left out: ${flagged.join(", ")}.`);
  else if (row.median ?? row.mean) lines.push("Nobody is too far from the others.");
  return { title: "Outliers", lines };
}

const COMBINED = { "stake-mean": "The mean, weighted by stake,", "stake-median": "The median, weighted by stake,", mean: "The plain mean", clip: "The mean, weighted by stake and clipped to what enough stake reaches,", trimmed: "The mean, weighted by stake and trimmed at both ends," };

function agreedScore(row, consensus) {
  const left = row.validators.filter((vote) => !vote.excluded).length;
  const bps = row.bps === null ? "" : ` That is ${row.bps} BPS, rounded down.`;
  return { title: "Agreed score", lines: [`${COMBINED[consensus.combine]} of the ${count(left, "score")} that count${left === 1 ? "s" : ""} is ${row.score}.${bps}`] };
}

const STRATEGIES = {
  linear: (score, scores) => `Linear: ${score} of ${decimal(scores.reduce((a, b) => a + b, 0n))}, the sum of the scores that take part,`,
  direct: (score) => `Direct: the score ${score} is the share, unless all scores sum to more than 1,`,
  softmax: (score, _scores, reward) => `Softmax with temperature ${reward.temperature}: e^(score / T) of ${score} over the sum of all`,
  "winner-takes-all": (_score, _scores, reward) => `The best ${reward.top === 1 ? "takes all" : `${reward.top} take all in equal parts`}: that`,
  quadratic: (score) => `Quadratic: ${score} squared over the sum of all squares`,
  ranked: () => "By rank alone: that",
};

function share(row, document, settlement) {
  const { reward } = document.scheme;
  if (nanos(row.score) === 0n || nanos(row.score) < nanos(reward.min_score)) return { title: "Share", lines: [`A score of ${row.score} takes no part${reward.min_score === "0" ? "" : `: the least is ${reward.min_score}`}.`] };
  const taking = settlement.weights.map((one) => nanosOf(one.score)).filter((score) => score > 0n && score >= nanos(reward.min_score));
  return { title: "Share", lines: [`${STRATEGIES[reward.strategy](row.score, taking, reward)} is ${row.strategy} (${percent(row.strategy)}).`] };
}

function capped(row, { scheme: { reward } }) {
  const rest = { redistribute: "the excess goes to the others", burn: "the excess burns", drop: "the excess is nobody's" }[reward.excess];
  const same = row.strategy === row.capped;
  return { title: "Cap", lines: [same ? `The cap of ${percent(reward.cap)} changes nothing.` : `Under the cap of ${percent(reward.cap)} (${rest}) the share becomes ${row.capped} (${percent(row.capped)}).`] };
}

function decays(row, { scheme }, epoch) {
  const rules = scheme.decay;
  if (rules.curve === "none") return { title: "Decay", lines: ["Nothing decays under this scheme."] };
  const clock = rules.clock === "competition" ? "The competition's clock" : "Its clock";
  const lines = [row.last === null ? `${clock} has not started: everything is kept.` : `${clock} was last reset in epoch ${row.last}, ${row.last === epoch ? "this epoch" : `${epoch - row.last} epochs ago`}; the first ${rules.grace_epochs} epochs are free.`];
  if (row.stale) lines.push(`${count(row.stale, "stale epoch")} at ${percent(rules.rate)} (${rules.curve}, at most ${percent(rules.max_burn)}): ${percent(decimal(NANO - nanos(row.kept)))} burns, ${percent(row.kept)} is kept.`);
  else if (row.last !== null) {
    const first = row.last + rules.grace_epochs + 1;
    lines.push(`Everything is kept. Decay begins in epoch ${first}${decay(rules, row.last, first).burned === 0n ? " at the earliest" : ""}, unless the clock is reset before.`);
  }
  return { title: "Decay", lines };
}

function weight(row, { scheme }) {
  const lines = [];
  if (row.warm !== undefined) lines.push(`Seen in ${count(row.tasks_seen, "task")}: ${percent(row.warm)} of the share is kept for it, the rest burns.`);
  if (row.uid === null) lines.push("It has no uid, so its share burns.");
  lines.push(`The final share is ${row.share} (${percent(row.share)}).`, `Encoded (${scheme.reward.encoding}) it is ${row.u16} of 65535; in the form that the chain stores, ${row.chain_u16}.`);
  return { title: "Weight", lines };
}

/** What an agreed score just above the place before would change. */
function nextPlace(document, settlement, at, name) {
  if (at === 0) return { title: "The next place", lines: ["There is no place above."] };
  const rows = settlement.weights;
  const bps = document.scheme.score.kind === "rubric";
  const above = settlement.agreed.find((row) => row.participant === rows[at - 1].participant);
  const least = bps ? BigInt(above.bps + 1) * 100000n : nanosOf(rows[at - 1].score) + 1n;
  if (least > NANO) return { title: "The next place", lines: [`${name(above.participant)} above has the highest score there is.`] };
  const warmUp = document.scheme.score.warm_up;
  const asked = rows.map((row, i) => ({
    score: i === at ? least : nanosOf(row.score), kept: i === at && document.scheme.decay.clock === "participant" ? NANO : nanos(row.kept), registered: row.uid !== null, seen: BigInt(row.tasks_seen ?? 0),
  }));
  const moved = [...asked.slice(0, at - 1), asked[at], asked[at - 1], ...asked.slice(at + 1)];
  const result = weights(document.scheme.reward, moved, warmUp === undefined ? false : BigInt(warmUp)).rows[at - 1];
  return {
    title: "The next place",
    lines: [
      `${name(above.participant)} is ${ordinal(at)}, with ${bps ? `${above.bps} BPS` : rows[at - 1].score}.`,
      `A new submission with ${bps ? `${above.bps + 1} BPS` : `an agreed score of ${decimal(least)}`} or more takes that place. If all else stays the same, its share is then ${percent(result.share)}: weight ${result.u16} of 65535.`,
    ],
  };
}

function paid(settlement, participant, { scheme: { payout } }) {
  const lines = [`The best score releases ${percent(decimal(BigInt(settlement.tier_bps) * 100000n))} of the deposit of ${payout.deposit}: ${settlement.released}.`];
  for (const row of settlement.payouts.filter((one) => one.participant === participant)) lines.push(`Place ${row.place}: ${row.gross} gross, ${row.fee} fee, ${row.net} net${row.address ? ` to ${row.address}` : ""}.`);
  if (lines.length === 1) lines.push("No place of the split is its own.");
  return { title: "Payout", lines };
}

/** The story of one participant: {headline, sections: [{title, lines, table?}]}. */
export function explanation(context, settlement, participant) {
  const { document } = context;
  const name = named(document);
  const row = settlement.agreed.find((one) => one.participant === participant || name(one.participant) === participant);
  if (!row) return { headline: `There is no participant ${JSON.stringify(participant)} in this epoch.`, sections: [] };
  const { consensus, reward, score } = document.scheme;
  const sections = [];
  const own = name(row.participant);
  if (row.status === "duplicate") return { headline: `${own} has no agreed score. This is not a score of 0.`, sections: [{ title: "Why", lines: [REASON[row.reason], `The earlier one is ${name(row.duplicate_of)}.`] }] };
  sections.push(saw(row, score.kind, name, score.passed_by === "all"));
  const tasks = notPassed(context, row, name);
  if (tasks) sections.push(tasks);
  sections.push(quorum(row, consensus));
  if (row.status !== "agreed") {
    sections.push({ title: "Why there is no agreed score", lines: [REASON[row.reason]] });
    return { headline: `${own} has no agreed score (${row.status}). This is not a score of 0.`, sections };
  }
  sections.push(outliers(row, consensus, name), agreedScore(row, consensus));
  const at = settlement.ranking.indexOf(row.participant);
  sections.push({ title: "Rank", lines: [`${ordinal(at + 1)} of ${count(settlement.ranking.length, "participant")} with an agreed score. Ties go to the earlier submission, then to the key.`] });
  const own_ = settlement.weights[at];
  let headline = `${own} is ${ordinal(at + 1)} of ${settlement.ranking.length} with a score of ${row.score}`;
  if (reward.kind === "weights") {
    sections.push(share(own_, document, settlement), capped(own_, document), decays(own_, document, settlement.epoch), weight(own_, document), nextPlace(document, settlement, at, name));
    headline += ` and has a share of ${percent(own_.share)}: weight ${own_.u16} of 65535`;
  } else if (reward.kind === "payout") sections.push(paid(settlement, row.participant, document));
  return { headline: headline + ".", sections };
}

/** The same as text for a terminal. */
export function plain({ headline, sections }) {
  const lines = [headline];
  sections.forEach(({ title, lines: own, table }, i) => {
    lines.push("", `${i + 1}. ${title}`, ...own.map((line) => `   ${line}`));
    if (!table) return;
    const rows = [table.head, ...table.rows].map((row) => row.map(String));
    const widths = table.head.map((_, column) => Math.max(...rows.map((row) => [...row[column]].length)));
    for (const row of rows) lines.push("   " + row.map((cell, column) => cell + " ".repeat(widths[column] - [...cell].length)).join("  ").trimEnd());
  });
  return lines.join("\n");
}
