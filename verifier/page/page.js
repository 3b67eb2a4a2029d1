// The page: what is dropped goes to the worker, and what the worker says is shown. Text from files only ever becomes text nodes.

const byId = (id) => document.getElementById(id);
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

/** An element: el("td.n", text or children…). */
function el(name, ...children) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const child of children) node.append(child instanceof Node ? child : String(child));
  return node;
}
const fill = (id, ...children) => byId(id).replaceChildren(...children);
const show = (id, on = true) => (byId(id).hidden = !on);

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
    verdict(result);
    if (result.audits.length) audits(result);
    if (result.settlement) numbers(result);
    if (result.result) ownResult(result);
  } catch (error) {
    verdict({ stages: [], audits: [], fault: { message: error.message, stage: "reading", expected: null, found: null } });
  }
  show("working", false);
  byId("again").disabled = false;
  byId("h-verdict").focus();
}

// ---- the verdict

/** Two texts with what differs marked: what they begin and end with alike is plain. */
function marked(expected, found, tag) {
  const [own, other] = tag === "ins" ? [expected, found] : [found, expected];
  let [from, end] = [0, 0];
  while (from < own.length && own[from] === other[from]) from++;
  while (end < Math.min(own.length, other.length) - from && own[own.length - 1 - end] === other[other.length - 1 - end]) end++;
  return [own.slice(0, from), el(tag, own.slice(from, own.length - end)), own.slice(own.length - end)];
}

function difference({ message, stage, where, expected, found, whose }) {
  const rows = [];
  if (where) rows.push(el("tr", el("th", "Where"), el("td", el("code", where))));
  if (whose) rows.push(el("tr", el("th", "Whose"), el("td", whose)));
  const both = expected !== null && found !== null && expected.length < 400 && found.length < 400;
  if (expected !== null) rows.push(el("tr", el("th", "Expected"), el("td", ...(both ? marked(expected, found, "ins") : [expected.slice(0, 2000)]))));
  if (found !== null) rows.push(el("tr", el("th", "Found"), el("td", ...(both ? marked(expected, found, "del") : [found.slice(0, 2000)]))));
  return el("div.result", el("h3", `Different: ${stage}`), el("p", message), el("table", el("tbody", ...rows)));
}

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

function verdict(found) {
  const { stages, fault, unsupported, verified, witnessed, milliseconds } = found;
  fill("h-verdict", title(found));
  byId("h-verdict").className = verified ? "good" : fault ? "bad" : "";
  const rows = stages.map(({ stage, what, checked }) => (checked ? check_(stage, what, "ok", "✓", "passed") : check_(stage, what, "na", "–", "not checked")));
  if (fault) {
    rows.push(check_(fault.stage, "failed", "no", "✗", "failed"));
    const at = ORDER.indexOf(fault.stage);
    for (const stage of at < 0 ? [] : ORDER.slice(at + 1)) rows.push(check_(stage, "not reached", "na", "–", "not reached"));
  }
  fill("difference", ...(fault ? [difference(fault)] : unsupported ? [el("p.lead", unsupported)] : []));
  fill("checks", ...rows);
  const notes = [];
  if (verified && !byId("key").value.trim()) notes.push("No key was given: the receipt names its signer itself. Compare the key with the one that the competition publishes.");
  if (verified && !witnessed) notes.push("Not proven: that everybody is shown this same log. Witnesses of a policy prove it.");
  if (milliseconds) notes.push(`It took ${(milliseconds / 1000).toFixed(1)} s.`);
  fill("unproven", notes.join(" "));
  show("verdict");
}

// ---- audits

const STATES = { flaky: "flaky: some runs show what was claimed", false: "false: no run shows what was claimed", missing: "the work is missing" };

/** What audits found: who was wrong how often, and each trial that did not hold. */
function audits({ audits: all, document: inputs }) {
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
const table_ = (titles, rows) => Object.assign(el("div.scroll", el("table", titles, el("tbody", ...rows))), { tabIndex: 0 });

// ---- the numbers

const cut = (text, length = 18) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
const nameOf = (rows, key) => rows.find((row) => row.key === key)?.name ?? key;
function named(rows, key) {
  const name = nameOf(rows, key);
  const node = el("th", cut(name, 28));
  node.scope = "row";
  if (name !== key || name.length > 28) node.title = key;
  return node;
}
const head = (...cells) => el("thead", el("tr", ...cells.map((cell) => (cell.replace(/^>/, "") ? Object.assign(el(cell.startsWith(">") ? "th.n" : "th", cell.replace(/^>/, "")), { scope: "col" }) : el("td", "")))));
const percent = (share) => `${(Number(share) * 100).toFixed(2)} %`;

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
  tell();
  changes(settlement, inputs);
  show("whatif", weighs || settlement.refund !== null);
}

const option = (value, label) => Object.assign(el("option", cut(label, 40)), { value });

function table({ head: names, rows }) {
  return el("table", head(...names), el("tbody", ...rows.map((row) => el("tr", ...row.map((cell) => el("td", cut(String(cell), 60)))))));
}

async function tell() {
  const told = await ask("explain", { participant: byId("who").value });
  const parts = told.sections.flatMap(({ title: name, lines, table: own }, i) => [el("h3", `${i + 1}. ${name}`), ...lines.map((line) => el("p", line)), ...(own ? [Object.assign(el("div.scroll", table(own)), { tabIndex: 0 })] : [])]);
  fill("told", el("p.headline", told.headline), ...parts);
}

/** A participant's own proof: its result as it stands. */
function ownResult({ result: own, receipt }) {
  fill("about", `${receipt.competition} · epoch ${receipt.epoch}: the result of ${own.participant}, as the receipt binds it.`);
  const rows = [["rank", own.rank ?? "–"], ["score", own.agreed.score ?? own.agreed.status], ["validators that count", own.agreed.validators.length]];
  if (own.weight) rows.push(["share", percent(own.weight.share)], ["weight (u16)", own.weight.u16]);
  fill("board", el("tbody", ...rows.map(([name, value]) => el("tr", el("th", name), el("td", value)))));
  show("numbers");
}

// ---- what if

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

function changes(settlement, { scheme, participants, validators }) {
  const isTests = scheme.score.kind === "tests";
  const parts = [
    labelled("Stake of", choice("w-validator", validators.map((row) => option(row.key, row.name ?? row.key)))), labelled("is", field("w-stake", validators[0].stake)),
    labelled(`Outlier threshold (${scheme.consensus.outliers.method})`, field("w-threshold", scheme.consensus.outliers.threshold)),
  ];
  if (scheme.reward.kind === "weights") parts.push(labelled("Cap", field("w-cap", scheme.reward.cap)));
  const whom = settlement.agreed.filter((row) => row.validators.length).map((row) => option(row.participant, nameOf(participants, row.participant)));
  if (whom.length) {
    parts.push(labelled(isTests ? "One trial of" : "The score of", choice("w-who", [option("", "–"), ...whom])), labelled("by", choice("w-by", validators.map((row) => option(row.key, row.name ?? row.key)))));
    if (isTests) parts.push(labelled("of task", choice("w-task", taskIds(result.document.tasks).map((id) => option(id, id)))), labelled("is", choice("w-outcome", ["pass", "fail"].map((one) => option(one, one)))));
    else parts.push(labelled("is", field("w-score", "1")));
  }
  const reset = Object.assign(el("button", "As settled"), { type: "button" });
  reset.onclick = () => changes(settlement, result.document);
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
    if (turn === asked) compare(result.settlement, other);
  } catch (error) {
    if (turn === asked) fill("moved", error.message);
  }
}

function compare(settled, other) {
  const { participants } = result.document;
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
byId("changes").oninput = () => recompute();
byId("changes").onsubmit = (event) => event.preventDefault();

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
    verdict({ stages: [], audits: [], fault: { message: error.message, stage: "fetching", expected: null, found: null } });
  }
}
addEventListener("hashchange", linked);
linked();

/** Conformance cases in the browser, for the tests: how many of a case file's are right, and which are wrong. */
globalThis.assayCases = (text) => ask("cases", { text });
