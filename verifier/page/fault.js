// What is shown of a fault: the first field that differs, whose it is, and both values.

import { el } from "./dom.js";

/** Two texts with what differs marked: what they begin and end with alike is plain. */
function marked(expected, found, tag) {
  const [own, other] = tag === "ins" ? [expected, found] : [found, expected];
  let [from, end] = [0, 0];
  while (from < own.length && own[from] === other[from]) from++;
  while (end < Math.min(own.length, other.length) - from && own[own.length - 1 - end] === other[other.length - 1 - end]) end++;
  return [own.slice(0, from), el(tag, own.slice(from, own.length - end)), own.slice(own.length - end)];
}

/** A fault as the page shows it: where, whose, and both values. */
export function difference({ message, stage, where, expected, found, whose }) {
  const rows = [];
  if (where) rows.push(el("tr", el("th", "Where"), el("td", el("code", where))));
  if (whose) rows.push(el("tr", el("th", "Whose"), el("td", whose)));
  const both = expected !== null && found !== null && expected.length < 400 && found.length < 400;
  if (expected !== null) rows.push(el("tr", el("th", "Expected"), el("td", ...(both ? marked(expected, found, "ins") : [expected.slice(0, 2000)]))));
  if (found !== null) rows.push(el("tr", el("th", "Found"), el("td", ...(both ? marked(expected, found, "del") : [found.slice(0, 2000)]))));
  return el("div.result", el("h3", `Different: ${stage}`), el("p", message), el("table", el("tbody", ...rows)));
}
