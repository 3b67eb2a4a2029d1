// The page: what is dropped goes to the worker, and what the worker says is shown. What only some readers want is loaded when they ask for it.

import { byId, cut, el, fill, head, named, nameOf, option, percent, show } from "./dom.js";

const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const waiting = new Map();
let number = 0;
let given = null;
let result = null;

worker.onmessage = ({ data }) => {
  if (data.progress) return progress(...data.progress);
  const { resolve, reject } = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.error) reject(new Error(data.error));
  else resolve(data.answer);
};
worker.onerror = (event) => {
  for (const { reject } of waiting.values()) reject(new Error(event.message ?? "the worker did not start"));
  waiting.clear();
};

function ask(what, rest) {
  return new Promise((resolve, reject) => {
    waiting.set(++number, { resolve, reject });
    worker.postMessage({ id: number, ask: what, ...rest });
  });
}

const STAGES = { audit: "The audit: draw, martingale and verdict", receipt: "The receipts", evidence: "The evidence", signatures: "The signatures of batches", settlement: "The settlement, computed again" };
function progress(stage, part) {
  byId("doing").textContent = `${STAGES[stage] ?? stage}${part > 0 ? `: ${Math.floor(part * 100)} %` : " …"}`;
  if (part > 0) byId("bar").value = part;
  else byId("bar").removeAttribute("value");
}

const keyIn = (text) => (/^key = "([^"\n]+)"/m.exec(text)?.[1] ?? text.trim().split("\n")[0]).trim();

async function check(what) {
  given = what;
  for (const id of ["verdict", "audits", "numbers", "story", "whatif"]) show(id, false);
  show("working");
  byId("doing").textContent = "Reading …";
  byId("bar").removeAttribute("value");
  const key = (id) => (byId(id).value.trim() ? keyIn(byId(id).value) : null);
  const options = { key: key("key"), auditor: key("auditor"), policy: byId("policy").value.trim() ? byId("policy").value.replace(/\n*$/, "\n") : null, checkpoint: byId("seen").value.trim() ? byId("seen").value.replace(/\n*$/, "\n") : null };
  try {
    result = await ask("verify", { ...what, options });
    await verdict(result);
    if (result.audits.length) (await import("./audits.js")).audits(result);
    if (result.settlement) numbers(result);
    if (result.result) (await import("./proof.js")).ownResult(result);
  } catch (error) {
    await verdict({ stages: [], audits: [], fault: { message: error.message, stage: "reading", expected: null, found: null } });
  }
  show("working", false);
  byId("again").disabled = false;
  byId("h-verdict").focus();
}

// ---- the verdict

const ORDER = ["receipt", "log", "chain", "evidence", "signatures", "inputs", "settlement", "results", "audit"];

function check_(stage, what, kind, mark, word) {
  const sign = el("span.mark", mark);
  sign.setAttribute("aria-label", word);
  sign.setAttribute("role", "img");
  return el(`li.${kind}`, sign, el("b", stage), el("span", what));
}

function title({ verified, recomputed, unsupported, what, audits: all }) {
  if (verified && all.some(({ verdict: found }) => found === "refused")) return "Verified, and the audit does not confirm the outcome";
  if (unsupported) return "Not checked: a part is not supported here";
  if (!verified) return "Not verified";
  if (what === "fork") return "Proven: the log was forked";
  return recomputed ? "Verified, and computed again to the bit" : "Verified";
}

async function verdict(found) {
  const { stages, fault, unsupported, verified, witnessed, milliseconds } = found;
  fill("h-verdict", title(found));
  byId("h-verdict").className = verified ? "good" : fault ? "bad" : "";
  const rows = stages.map(({ stage, what, checked }) => (checked ? check_(stage, what, "ok", "✓", "passed") : check_(stage, what, "na", "–", "not checked")));
  if (fault) {
    rows.push(check_(fault.stage, "failed", "no", "✗", "failed"));
    const at = ORDER.indexOf(fault.stage);
    for (const stage of at < 0 ? [] : ORDER.slice(at + 1)) rows.push(check_(stage, "not reached", "na", "–", "not reached"));
  }
  fill("difference", ...(fault ? [(await import("./fault.js")).difference(fault)] : unsupported ? [el("p.lead", unsupported)] : []));
  fill("checks", ...rows);
  const notes = [];
  if (verified && !byId("key").value.trim()) notes.push("No key was given: the receipt names its signer itself. Compare the key with the one that the competition publishes.");
  if (verified && !witnessed) notes.push("Not proven: that everybody is shown this same log. Witnesses of a policy prove it.");
  if (milliseconds) notes.push(`It took ${(milliseconds / 1000).toFixed(1)} s.`);
  fill("unproven", notes.join(" "));
  show("verdict");
}

// ---- the numbers

function boardRows(settlement, registry) {
  const weights = new Map(settlement.weights.map((row) => [row.participant, row]));
  const payouts = new Map(settlement.payouts.map((row) => [row.participant, row]));
  return settlement.agreed.map((row) => {
    const rank = settlement.ranking.indexOf(row.participant);
    const weight = weights.get(row.participant);
    const cells = [el("td.n", rank < 0 ? "–" : rank + 1), named(registry, row.participant), el("td.n", row.bps ?? row.score ?? row.status)];
    if (weight) cells.push(el("td.n", percent(weight.kept)), el("td.n", percent(weight.share)), el("td.n", weight.u16));
    else if (payouts.has(row.participant)) cells.push(el("td.n", payouts.get(row.participant).net));
    return el("tr", ...cells);
  });
}

function numbers({ settlement, document: inputs }) {
  const weighs = settlement.burn !== null;
  const columns = weighs ? [">kept", ">share", ">u16"] : settlement.refund === null ? [] : [">net"];
  const rows = boardRows(settlement, inputs.participants);
  if (weighs) rows.push(el("tr", el("td.n", ""), el("th", "burn"), el("td.n", ""), el("td.n", ""), el("td.n", percent(settlement.burn.share)), el("td.n", settlement.burn.u16)));
  fill("about", `${settlement.scheme.name} ${settlement.scheme.version} · epoch ${settlement.epoch} · ${settlement.ranking.length} of ${settlement.agreed.length} participants have an agreed score. Digest `, el("code", settlement.digest));
  fill("board", head(">#", "participant", ">score", ...columns), el("tbody", ...rows));
  const choices = settlement.agreed.map((row) => option(row.participant, nameOf(inputs.participants, row.participant)));
  fill("who", ...choices);
  for (const id of ["numbers", "story"]) show(id);
  show("whatif", weighs || settlement.refund !== null);
  why();
  whatIf();
}

function table({ head: names, rows }) {
  return el("table", head(...names), el("tbody", ...rows.map((row) => el("tr", ...row.map((cell) => el("td", cut(String(cell), 60)))))));
}

/** The sections that a reader opens; what they need is loaded then. */
const why = () => result?.settlement && byId("why").open && tell();
const whatIf = async () => result?.settlement && byId("try").open && (await import("./whatif.js")).offer(result, ask);

async function tell() {
  const told = await ask("explain", { participant: byId("who").value });
  const parts = told.sections.flatMap(({ title: name, lines, table: own }, i) => [el("h3", `${i + 1}. ${name}`), ...lines.map((line) => el("p", line)), ...(own ? [Object.assign(el("div.scroll", table(own)), { tabIndex: 0 })] : [])]);
  fill("told", el("p.headline", told.headline), ...parts);
}

// ---- how things come in

const entries = (entry) =>
  new Promise((resolve, reject) => {
    const reader = entry.createReader();
    const all = [];
    const more = () => reader.readEntries((part) => (part.length ? (all.push(...part), more()) : resolve(all)), reject);
    more();
  });

async function walk(entry, path, list) {
  if (entry.isFile) list.push([path + entry.name, await new Promise((resolve, reject) => entry.file(resolve, reject))]);
  else for (const inner of await entries(entry)) await walk(inner, `${path}${entry.name}/`, list);
}

async function dropped(transfer) {
  const items = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (items.length === 0) return;
  if (items.length === 1 && items[0].isFile) return check({ file: await new Promise((resolve, reject) => items[0].file(resolve, reject)) });
  const list = [];
  for (const entry of items) await walk(entry, "", list);
  check({ list });
}

const zone = document.documentElement;
zone.addEventListener("dragover", (event) => {
  event.preventDefault();
  byId("zone").classList.add("over");
});
zone.addEventListener("dragleave", () => byId("zone").classList.remove("over"));
zone.addEventListener("drop", (event) => {
  event.preventDefault();
  byId("zone").classList.remove("over");
  dropped(event.dataTransfer);
});
byId("pick-file").onclick = () => byId("file").click();
byId("pick-folder").onclick = () => byId("folder").click();
byId("file").onchange = ({ target }) => target.files.length && check({ file: target.files[0] });
byId("folder").onchange = ({ target }) => target.files.length && check({ list: [...target.files].map((file) => [file.webkitRelativePath, file]) });
byId("with").onsubmit = (event) => {
  event.preventDefault();
  if (given) check(given);
};
byId("who").onchange = tell;
byId("why").ontoggle = why;
byId("try").ontoggle = whatIf;

/** `#https://…` or `#/path`: what a service's page of an epoch links to. Without cookies, and never over plain HTTP to elsewhere. */
async function linked() {
  const text = decodeURIComponent(location.hash.slice(1));
  if (!text) return;
  try {
    const url = new URL(text, location.href);
    if (url.origin !== location.origin && url.protocol !== "https:") throw new Error(`${url.href}: a link to elsewhere begins with https://`);
    show("working");
    byId("doing").textContent = `Fetching ${url.href} …`;
    const answer = await fetch(url, { credentials: "omit", referrerPolicy: "no-referrer" });
    if (!answer.ok) throw new Error(`${url.href} answers ${answer.status}`);
    await check({ file: await answer.blob() });
  } catch (error) {
    show("working", false);
    await verdict({ stages: [], audits: [], fault: { message: error.message, stage: "fetching", expected: null, found: null } });
  }
}
addEventListener("hashchange", linked);
linked();

/** Conformance cases in the browser, for the tests: how many of a case file's are right, and which are wrong. */
globalThis.assayCases = (text) => ask("cases", { text });
