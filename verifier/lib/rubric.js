// The kind rubric: a judge's answers to weighted questions, all in BPS. SPEC 2.3.

import * as read from "./fields.js";
import { refuse } from "./errors.js";
import { isObject } from "./json.js";
import { judged, readBound } from "./panel.js";

const { or, maybe, object, integer, list, oneOf } = read;

const check = object({ id: read.key, label: or("", read.text(0, 4096)), description: or("", read.text(0, 4096)), weight: integer(1, 10000), skippable: or(true, read.boolean), unskippable: maybe(read.boolean) });

/** A rubric's check: `skippable`, or the other spelling `unskippable`, and not both. */
function readCheck(value, path) {
  const found = check(value, path);
  if (found.unskippable !== undefined) {
    if ("skippable" in value) refuse(`${path}: skippable and unskippable say the same; give one`, { where: path });
    found.skippable = !found.unskippable;
    delete found.unskippable;
  }
  return found;
}

const panel = object({ answers: integer(2, 25), max_disagreement: or("1/1", readBound) });
const rules = object({ kind: oneOf("rubric"), checks: list(readCheck, { least: 1, most: 1000 }), injection: maybe(oneOf("unjudged")), panel: maybe(panel) });
function checkRules({ checks }, path) {
  if (checks.reduce((total, { weight }) => total + weight, 0) !== 10000) refuse(`${path}.checks: the weights do not sum to 10000`, { where: path });
  if (new Set(checks.map(({ id }) => id)).size !== checks.length) refuse(`${path}.checks: one id stands twice`, { where: path });
}

const quotes = (value, path) => {
  if (!isObject(value) || Object.values(value).some((quote) => typeof quote !== "string")) refuse(`${path}: quotes are texts by check`, { where: path });
  return value;
};
/** What a judge said is kept as it came; null is as if it were absent. */
const asItCame = maybe(read.anything);

/** An answer of a panel, as it came. */
export const readAnswer = object({ judge: read.key, outcome: or("judged", oneOf("judged", "unjudged")), baseline: asItCame, checks: asItCame, verdict: asItCame });

const fields = {
  baseline: asItCame, checks: asItCame, verdict: asItCame, outcome: or("judged", oneOf("judged", "unjudged")), injection_suspected: maybe(read.boolean),
  attestation: maybe(read.submission), quotes: maybe(quotes), panel: maybe(list(readAnswer, { least: 1, most: 100 })),
};

export const BASELINE = ["B1", "B2", "B3", "B4"];
export const VERDICTS = ["EXCEPTIONAL", "ELEGANT", "COHERENT", "MINOR_ISSUES", "FLAWED", "FUNDAMENTALLY_BROKEN"];
const isYesOrNo = (value) => typeof value === "boolean";
const answers = (value, ids) => isObject(value) && ids.every((id) => isYesOrNo(value[id]));

/** How the BPS of a judgement came about, or null where it is malformed. Answers to checks that are not asked are ignored. */
export function scoreRubric(score, { baseline, checks, verdict }) {
  if (!answers(baseline, BASELINE)) return null;
  if (!BASELINE.every((question) => baseline[question])) return { base: 0, missed_skippable: 0, verdict: null, gate: false, capped: false, bps: 0 };
  if (!answers(checks, score.checks.map(({ id }) => id)) || !VERDICTS.includes(verdict)) return null;
  const found = weighed(score, checks);
  let result = found.base;
  if (verdict === "EXCEPTIONAL") result += found.missed;
  else if (verdict === "ELEGANT") result += Math.floor(found.missed / 2);
  else if (verdict === "MINOR_ISSUES") result -= Math.floor(found.base / 10);
  else if (verdict === "FLAWED") result -= Math.floor(found.base / 5);
  else if (verdict === "FUNDAMENTALLY_BROKEN") result = Math.min(result, 2000);
  if (found.capped) result = Math.min(result, 2000);
  return { base: found.base, missed_skippable: found.missed, verdict, gate: true, capped: found.capped, bps: Math.max(0, Math.min(10000, result)) };
}

const weighed = (score, checks) => ({
  base: score.checks.reduce((total, { id, weight }) => total + (checks[id] ? weight : 0), 0),
  missed: score.checks.reduce((total, { id, weight, skippable }) => total + (!checks[id] && skippable ? weight : 0), 0),
  capped: score.checks.some(({ id, skippable }) => !checks[id] && !skippable),
});

function scoreAll(score, _tasks, records) {
  const votes = new Map();
  for (const record of records) {
    const panel = score.panel === undefined ? {} : judged(score, record);
    const work = record.outcome === "judged" && panel.state === undefined ? scoreRubric(score, record) : null;
    if (panel.state === "split") votes.set(record.validator, { state: "split", missing: 0 });
    else if (work === null) votes.set(record.validator, { state: "unjudged", missing: 0 });
    else if (score.injection === "unjudged" && record.injection_suspected) votes.set(record.validator, { state: "injection", missing: 0 });
    else votes.set(record.validator, { score: BigInt(work.bps) * 100000n, work: { ...work, ...panel } });
  }
  return votes;
}

export const rubric = { rules, checkRules, fields, score: scoreAll };
