// Panels: k answers to the questions of one rubric, and what the majority of them decides. SPEC 2.3; docs/rubric.md, "Panels".
// rubric.js and this file import each other, so nothing here is used before both are loaded, except functions.

import { ratioText } from "./exact.js";
import { refuse } from "./errors.js";
import { BASELINE, scoreRubric, VERDICTS } from "./rubric.js";

/** `max_disagreement`: p/q of at most four digits each, from 0 to 1, in lowest terms. */
export function readBound(value, path) {
  const match = typeof value === "string" ? /^([0-9]{1,4})\/([1-9][0-9]{0,3})$/.exec(value) : null;
  if (match === null || Number(match[1]) > Number(match[2])) refuse(`${path}: ${JSON.stringify(value)} is no fraction p/q from 0 to 1`, { where: path });
  return ratioText(BigInt(match[1]), BigInt(match[2]));
}

/** The side that more than half of k are on or before, and more than half on or after; undefined: there is none. Of NO and YES it is the majority's. */
const middle = (sides, k) =>
  sides.find((side) => 2 * sides.filter((other) => other <= side).length > k && 2 * sides.filter((other) => other >= side).length > k);

const isMet = ({ baseline }) => BASELINE.every((question) => baseline[question]);

/** What a panel decides: the output of a conformance case of kind panel. `rules`: a [score] with a panel. */
export function decide(rules, answers) {
  const k = rules.panel.answers;
  const isVote = (answer) => answers.length <= k && answer.outcome === "judged" && scoreRubric(rules, answer) !== null;
  const votes = answers.slice(0, k).map((answer) => (isVote(answer) ? answer : null));
  const judges = answers.slice(0, k).map(({ judge }) => ({ name: judge, flips: 0, votes: 0 }));
  const [questions, undecided] = [[], []];
  const nothing = { undecided, baseline: null, checks: null, verdict: null, questions, judges };
  if (2 * votes.filter((vote) => vote !== null).length <= k) return { why: "unjudged", ...nothing };

  /** The panel's side on a question that is needed, and who was on another; undefined: it is undecided. `sideOf`: a vote's side, undefined where it takes none. */
  const ask = (name, sideOf) => {
    const sides = votes.map((vote) => (vote === null ? undefined : sideOf(vote)));
    const taken = sides.filter((side) => side !== undefined);
    const side = middle(taken, k);
    if (side === undefined) undecided.push(name);
    else {
      questions.push({ name, flips: taken.filter((other) => other !== side).length, votes: taken.length });
      sides.forEach((other, i) => {
        if (other === undefined) return;
        judges[i].votes++;
        if (other !== side) judges[i].flips++;
      });
    }
    return side;
  };
  const baseline = Object.fromEntries(BASELINE.map((name) => [name, ask(name, (vote) => vote.baseline[name])]));
  let [checks, verdict] = [null, null];
  if (isMet({ baseline })) {
    checks = Object.fromEntries(rules.checks.map(({ id }) => [id, ask(id, (vote) => (isMet(vote) ? vote.checks[id] : undefined))]));
    verdict = VERDICTS[ask("verdict", (vote) => (isMet(vote) ? VERDICTS.indexOf(vote.verdict) : undefined))];
  }
  const [p, q] = rules.panel.max_disagreement.split("/").map(Number);
  if (undecided.length || questions.some(({ flips, votes: all }) => flips * q > p * all)) return { why: "panel-split", ...nothing };
  return { why: null, undecided, baseline, checks, verdict, questions, judges };
}

const total = (rows, field) => rows.reduce((sum, row) => sum + row[field], 0);

/** Whether a record's own answers are those of its panel. What nobody asks, and what need not be there, is not looked at. */
function isSame(rules, { baseline, checks, verdict }, record) {
  if (scoreRubric(rules, record) === null || BASELINE.some((question) => record.baseline[question] !== baseline[question])) return false;
  return checks === null || (record.verdict === verdict && rules.checks.every(({ id }) => record.checks[id] === checks[id]));
}

/** What a record's panel is worth: {votes, flips}, or the `state` "split" or "unjudged" of a record that is no judgement. */
export function judged(rules, record) {
  const panel = decide(rules, record.panel ?? []);
  if (panel.why === "panel-split") return { state: "split" };
  if (panel.why !== null || !isSame(rules, panel, record)) return { state: "unjudged" };
  return { votes: total(panel.questions, "votes"), flips: total(panel.questions, "flips") };
}
