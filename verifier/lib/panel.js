// A panel: what k answers about one solution decide, and how far they differ. docs/rubric.md, "Panels".

import { refuse } from "./errors.js";
import { isObject } from "./json.js";

const BASELINE = ["B1", "B2", "B3", "B4"];
const VERDICTS = ["EXCEPTIONAL", "ELEGANT", "COHERENT", "MINOR_ISSUES", "FLAWED", "FUNDAMENTALLY_BROKEN"];
const says = (value, names) => isObject(value) && names.every((name) => typeof value[name] === "boolean");
const isMet = (answer) => BASELINE.every((name) => answer.baseline[name]);

/** `p/q` of whole numbers of at most four digits, at most 1, as it is in its lowest terms. */
export function readBound(value, path) {
  const written = typeof value === "string" ? /^([0-9]{1,4})\/([1-9][0-9]{0,3})$/.exec(value) : null;
  const [p, q] = written === null ? [1, 0] : written.slice(1).map(Number);
  if (p > q) refuse(`${path}: not a fraction p/q from 0 to 1`, { code: "input", where: path });
  const common = (a, b) => (b === 0 ? a : common(b, a % b));
  return `${p / common(p, q)}/${q / common(p, q)}`;
}

/** Rule 1: whether an answer would be a judgement by itself. */
function isVote(answer, ids) {
  if (answer.outcome !== "judged" || !says(answer.baseline, BASELINE)) return false;
  return !isMet(answer) || (says(answer.checks, ids) && VERDICTS.includes(answer.verdict));
}

/** The questions in their order; `of` reads what a vote says there, undefined where it takes no side. */
function questionsOf(ids) {
  const past = (read) => (vote) => (isMet(vote) ? read(vote) : undefined);
  return [
    ...BASELINE.map((name) => ({ part: "baseline", name, of: (vote) => vote.baseline[name] })),
    ...ids.map((id) => ({ part: "checks", name: id, of: past((vote) => vote.checks[id]) })),
    { part: "verdict", name: "verdict", of: past((vote) => vote.verdict) },
  ];
}

const number = (list, test) => list.filter(test).length;

/** Rules 2 and 3: undefined where a question is undecided. */
function answerOf(part, sides, k) {
  if (part !== "verdict") return [true, false].find((side) => 2 * number(sides, (value) => value === side) > k);
  const places = sides.filter((value) => value !== undefined).map((word) => VERDICTS.indexOf(word));
  return VERDICTS.find((_, at) => 2 * number(places, (place) => place <= at) > k && 2 * number(places, (place) => place >= at) > k);
}

/** What a panel decides: `why` it has no judgement (or null), its answers, and flips / votes of each question and each answer. */
export function decide(score, panel) {
  const { answers: k, max_disagreement: bound } = score.panel;
  const [most, of] = bound.split("/").map(Number);
  const ids = score.checks.map(({ id }) => id);
  const seats = panel.slice(0, k).map((answer) => (panel.length <= k && isVote(answer, ids) ? answer : null));
  const votes = number(seats, (seat) => seat !== null);
  const questions = questionsOf(ids).map((question) => {
    const sides = seats.map((seat) => (seat === null ? undefined : question.of(seat)));
    return { ...question, sides, answer: answerOf(question.part, sides, k) };
  });
  const met = questions.slice(0, 4).every(({ answer }) => answer === true);
  const needed = met ? questions : questions.slice(0, 4);
  const decided = needed.filter(({ answer }) => answer !== undefined);
  const rate = (name, pairs) => ({ name, flips: number(pairs, ([side, answer]) => side !== answer), votes: pairs.length });
  const voted = ([side]) => side !== undefined;
  const rates = decided.map(({ name, sides, answer }) => rate(name, sides.map((side) => [side, answer]).filter(voted)));
  const judges = seats.map((_, at) => rate(panel[at].judge, decided.map(({ sides, answer }) => [sides[at], answer]).filter(voted)));
  const undecided = needed.filter(({ answer }) => answer === undefined).map(({ name }) => name);
  let why = null;
  if (2 * votes <= k) why = "unjudged";
  else if (undecided.length > 0 || rates.some((row) => row.flips * of > most * row.votes)) why = "panel-split";
  const table = (part) => Object.fromEntries(questions.filter((question) => question.part === part).map(({ name, answer }) => [name, answer]));
  return {
    why, undecided: why === "panel-split" ? undecided : [],
    baseline: why === null ? table("baseline") : null, checks: why === null && met ? table("checks") : null, verdict: why === null && met ? questions.at(-1).answer : null,
    questions: rates, judges,
  };
}

/** A record's judgement by its panel: `{state}` where it has none, or `votes` and `flips`. Its own answers must be the panel's. */
export function judged(score, record) {
  const found = decide(score, record.panel ?? []);
  if (found.why !== null) return { state: found.why === "panel-split" ? "split" : "unjudged" };
  const differs = (own, panel) => panel !== null && Object.entries(panel).some(([name, answer]) => !isObject(own) || own[name] !== answer);
  if (differs(record.baseline, found.baseline) || differs(record.checks, found.checks) || (found.verdict !== null && record.verdict !== found.verdict)) return { state: "unjudged" };
  const total = (field) => found.questions.reduce((sum, row) => sum + row[field], 0);
  return { votes: total("votes"), flips: total("flips") };
}
