// A participant's own proof: its result as it stands.

import { el, fill, percent, show } from "./dom.js";

export function ownResult({ result: own, receipt }) {
  fill("about", `${receipt.competition} · epoch ${receipt.epoch}: the result of ${own.participant}, as the receipt binds it.`);
  const rows = [["rank", own.rank ?? "–"], ["score", own.agreed.score ?? own.agreed.status], ["validators that count", own.agreed.validators.length]];
  if (own.weight) rows.push(["share", percent(own.weight.share)], ["weight (u16)", own.weight.u16]);
  fill("board", el("tbody", ...rows.map(([name, value]) => el("tr", el("th", name), el("td", value)))));
  show("numbers");
}
