// What audits found: who was wrong how often, and each trial that did not hold.

import { el, fill, head, named, show, table_ } from "./dom.js";

const STATES = { flaky: "flaky: some runs show what was claimed", false: "false: no run shows what was claimed", missing: "the work is missing" };

export function audits({ audits: all, document: inputs }) {
  const name = (rows, key) => named(rows ?? [], key);
  const parts = all.flatMap(({ sentence, verdict: what, validators, differ }) => {
    const rows = validators.map(({ validator, judged, wrong }) => el(wrong ? "tr.on" : "tr", name(inputs?.validators, validator), el("td.n", judged), el("td.n", wrong)));
    const own = [el(what === "refused" ? "p.lead.bad" : "p.lead", sentence[0].toUpperCase() + sentence.slice(1) + "."), table_(head("validator", ">judged again", ">false"), rows)];
    const others = differ.map(({ participant, validator, task, claimed, seen, state }) => el("tr", name(inputs?.validators, validator), name(inputs?.participants, participant), el("td", task), el("td", claimed), el("td", seen.join(", ") || "–"), el("td", STATES[state])));
    return others.length ? [...own, el("h3", "Trials that differ from what was claimed"), table_(head("validator", "participant", "task", "claimed", "seen", "state"), others)] : own;
  });
  fill("audited", ...parts);
  show("audits");
}
