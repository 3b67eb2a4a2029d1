// Everything that takes time: one worker verifies, explains and answers "What if", so that the page stays alive.

import { safePath, verify } from "../lib/bundle.js";
import { canonical } from "../lib/json.js";
import { Refused, Unsupported } from "../lib/errors.js";

let found = null;

/** What only some readers need, loaded when they do; the columns for so many records that they save more time than their code takes. */
const bulk = async () => (await import("../lib/bulk.js")).bulk;
const BULK_FROM = 5000;

const bytesOf = async (blob) => new Uint8Array(await blob.arrayBuffer());

/** The files of a folder: [path, File] each. */
function folder(list) {
  const files = new Map(list.map(([path, file]) => [safePath(path), file]));
  return {
    paths: [...files.keys()].sort(),
    async read(path, limit) {
      const file = files.get(path);
      if (!file) return null;
      if (file.size > limit) throw new Error(`is larger than ${limit} bytes`);
      return await bytesOf(file);
    },
    async *stream(path, chunk = 1 << 22) {
      const file = files.get(path);
      for (let at = 0; at < file.size; at += chunk) yield await bytesOf(file.slice(at, at + chunk));
    },
  };
}

const MOST = 256 << 20;

/** A tar begins with a header whose magic is at 257, a zip with PK; anything else is one file of text. */
async function single(file) {
  const head = await bytesOf(file.slice(0, 512));
  if (head[0] === 0x50 && head[1] === 0x4b && head[2] < 8 && head[3] < 8) return { files: await (await import("../lib/zip.js")).readZip((from, to) => bytesOf(file.slice(from, to)), file.size) };
  if (String.fromCharCode(...head.subarray(257, 262)) === "ustar") return { files: await (await import("../lib/tar.js")).readTar((from, to) => bytesOf(file.slice(from, to)), file.size) };
  if (file.size > MOST) throw new Refused("a single file of more than 256 MiB is no receipt and no proof");
  return { text: new TextDecoder().decode(await bytesOf(file)) };
}

/** Several files: a folder, or one archive and audits of what is in it. */
async function dropped(list) {
  const audits = list.filter(([path]) => path.endsWith(".audit"));
  const rest = list.filter(([path]) => !path.endsWith(".audit"));
  if (rest.length !== 1 || rest[0][0].includes("/")) return { files: folder(list) };
  const { files } = await single(rest[0][1]);
  if (files === undefined) throw new Refused("drop an audit together with the bundle of its epoch: a folder, a .tar or a .zip");
  const beside = folder(audits);
  const of = (path) => (beside.paths.includes(path) ? beside : files);
  return { files: { paths: [...files.paths, ...beside.paths], read: (path, limit) => of(path).read(path, limit), stream: (path) => of(path).stream(path) } };
}

/** What the page shows of an audit. */
async function shownAudit({ predicate }) {
  const { sentence, wrongOf } = await import("../lib/audit.js");
  const differ = predicate.judged.filter(({ state }) => state !== "held");
  return { sentence: sentence(predicate), verdict: predicate.verdict, validators: [...wrongOf(predicate)].map(([validator, counts]) => ({ validator, ...counts })), differ };
}

const fault = (error) => ({
  message: error.message, stage: error.stage ?? error.code, where: error.where, whose: error.whose ?? null,
  expected: error.expected === null || error.expected === undefined ? null : typeof error.expected === "string" ? error.expected : canonical(error.expected),
  found: error.found === null || error.found === undefined ? null : typeof error.found === "string" ? error.found : canonical(error.found),
});

const ANSWERS = {
  async verify({ list, file, options }) {
    let last = 0;
    const progress = (stage, part) => {
      const now = performance.now();
      if (now - last > 50 || part === 0) postMessage({ progress: [stage, part] });
      if (now - last > 50) last = now;
    };
    const began = performance.now();
    const what = list ? await dropped(list) : await single(file);
    const report = await verify(what, { ...options, bulk, bulkFrom: BULK_FROM, progress, now: Date.now() });
    found = report.found ?? null;
    const context = found?.context;
    return {
      stages: report.stages, verified: report.verified, recomputed: report.recomputed, witnessed: report.witnessed ?? false, unsupported: report.unsupported ?? null,
      fault: report.fault ? fault(report.fault) : null, what: found?.what ?? null, receipt: report.receipt ?? null, split: report.split ?? null,
      settlement: found?.settlement ?? null, document: context?.document ?? null, result: found?.proof?.result ?? null,
      audits: await Promise.all((found?.audits ?? []).map(shownAudit)), milliseconds: performance.now() - began,
    };
  },
  async explain({ participant }) {
    const { explanation } = await import("../lib/explain.js");
    return explanation(found.context, found.settlement, participant);
  },
  async whatIf({ changes }) {
    const { whatIf } = await import("../lib/whatif.js");
    return whatIf(found.context, changes);
  },
  /** Conformance cases: the text of a case file, and the names of those that are answered wrongly. */
  async cases({ text }) {
    const { failures } = await import("../lib/kinds.js");
    return await failures(text);
  },
};

onmessage = async ({ data }) => {
  try {
    postMessage({ id: data.id, answer: await ANSWERS[data.ask](data) });
  } catch (error) {
    postMessage({ id: data.id, error: error instanceof Refused || error instanceof Unsupported ? error.message : `this page has a fault: ${error.stack ?? error}` });
  }
};
