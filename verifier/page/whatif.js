// "What if": the reader changes a rule, a stake or a result, the worker settles again, and what moved is shown. Never the settled weights.

import { byId, el, fill, head, named, nameOf, option } from "./dom.js";

let settlement = null;
let inputs = null;
let ask = null;

/** Offers changes of what was verified; `asking` puts a question to the worker. */
export function offer(result, asking) {
  [settlement, inputs, ask] = [result.settlement, result.document, asking];
  byId("changes").oninput = () => recompute();
  byId("changes").onsubmit = (event) => event.preventDefault();
  changes();
}

const labelled = (label, control) => el("label", label, control);
function choice(id, options) {
  const node = el("select", ...options);
  node.id = id;
  return node;
}
function field(id, value) {
  const node = document.createElement("input");
  Object.assign(node, { id, type: "text", inputMode: "decimal", value });
  node.autocomplete = "off";
  return node;
}

function changes() {
  const { scheme, participants, validators, tasks } = inputs;
  const isTests = scheme.score.kind === "tests";
  const parts = [
    labelled("Stake of", choice("w-validator", validators.map((row) => option(row.key, row.name ?? row.key)))), labelled("is", field("w-stake", validators[0].stake)),
    labelled(`Outlier threshold (${scheme.consensus.outliers.method})`, field("w-threshold", scheme.consensus.outliers.threshold)),
  ];
  if (scheme.reward.kind === "weights") parts.push(labelled("Cap", field("w-cap", scheme.reward.cap)));
  const whom = settlement.agreed.filter((row) => row.validators.length).map((row) => option(row.participant, nameOf(participants, row.participant)));
  if (whom.length) {
    parts.push(labelled(isTests ? "One trial of" : "The score of", choice("w-who", [option("", "–"), ...whom])), labelled("by", choice("w-by", validators.map((row) => option(row.key, row.name ?? row.key)))));
    if (isTests) parts.push(labelled("of task", choice("w-task", taskIds(tasks).map((id) => option(id, id)))), labelled("is", choice("w-outcome", ["pass", "fail"].map((one) => option(one, one)))));
    else parts.push(labelled("is", field("w-score", "1")));
  }
  const reset = Object.assign(el("button", "As settled"), { type: "button" });
  reset.onclick = changes;
  fill("changes", ...parts, reset);
  byId("w-validator").onchange = () => (byId("w-stake").value = validators.find((row) => row.key === byId("w-validator").value).stake);
  if (byId("w-who")) byId("w-who").onchange = recompute;
  recompute();
}
const taskIds = (lines) => lines.map((line) => line.split(" ")[0]);

let asked = 0;
async function recompute() {
  const value = (id) => byId(id)?.value.trim() ?? "";
  const wanted = { stakes: { [value("w-validator")]: value("w-stake") }, threshold: value("w-threshold"), cap: value("w-cap") };
  if (value("w-who") && byId("w-task")) wanted.trial = { participant: value("w-who"), validator: value("w-by"), task: value("w-task"), outcome: value("w-outcome") };
  else if (value("w-who")) wanted.score = { participant: value("w-who"), validator: value("w-by"), score: value("w-score") };
  const turn = ++asked;
  try {
    const other = await ask("whatIf", { changes: wanted });
    if (turn === asked) compare(settlement, other);
  } catch (error) {
    if (turn === asked) fill("moved", error.message);
  }
}

function compare(settled, other) {
  const { participants } = inputs;
  const worth = (settlement) => new Map(settlement.weights.length ? settlement.weights.map((row) => [row.participant, row.u16]) : settlement.payouts.map((row) => [row.participant, row.net]));
  const scores = (settlement) => new Map(settlement.agreed.map((row) => [row.participant, row.bps ?? row.score ?? row.status]));
  const [before, after, was, is] = [worth(settled), worth(other), scores(settled), scores(other)];
  let moved = 0;
  const rows = other.agreed.map(({ participant }) => {
    const [a, b] = [before.get(participant) ?? 0, after.get(participant) ?? 0];
    const change = BigInt(b) - BigInt(a);
    const differs = change !== 0n || was.get(participant) !== is.get(participant);
    if (differs) moved++;
    return el(differs ? "tr.on" : "tr", named(participants, participant), el("td.n", was.get(participant)), el("td.n", is.get(participant)), el("td.n", a), el("td.n", b), el(`td.n.${change < 0n ? "down" : "up"}`, change === 0n ? "" : change > 0n ? `+${change}` : `−${-change}`));
  });
  const unit = settled.weights.length || settled.burn ? "u16" : "net";
  if (settled.burn) {
    const change = other.burn.u16 - settled.burn.u16;
    rows.push(el("tr", el("th", "burn"), el("td.n", ""), el("td.n", ""), el("td.n", settled.burn.u16), el("td.n", other.burn.u16), el("td.n", change === 0 ? "" : change > 0 ? `+${change}` : `−${-change}`)));
  }
  fill("moved", moved ? `What if: ${moved} of ${other.agreed.length} would be another. Not settled, signed by nobody.` : "As settled: nothing is changed.");
  fill("other", head("participant", ">score settled", ">what if", `>${unit} settled`, ">what if", ">change"), el("tbody", ...rows));
}
