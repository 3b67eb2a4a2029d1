// Strict JSON (docs/formats.md): no key twice, no lone surrogate, no integer beyond ±(2^53 − 1), at most 32 levels.
// Integers become numbers, other numbers become a `Float`, so a float never passes for a count. Objects have no prototype.

import { digestOf } from "./bytes.js";
import { refuse } from "./errors.js";

const DEEPEST = 32;
const SURROGATE = /[\ud800-\udfff]/u;
const WORDS = { t: ["true", true], f: ["false", false], n: ["null", null] };
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
/** Whether a text has any half of a surrogate pair, as it is or escaped: only then each of its strings is looked at. */
const HALVES = /[\ud800-\udfff]|\\u/;

/** An object without inherited fields; unlike Object.create(null), engines lay it out like any other. */
function Fields() {}
Fields.prototype = Object.create(null);

/** A number that is written with a fraction or an exponent: `2.5`, `3.0`, `1e3`. */
export class Float {
  constructor(value) {
    this.value = value;
  }
}

/** A text as a value. `lenient` takes lone surrogates and large integers (as Float): a program answers of them by field. */
export function parse(text, { code = "input", lenient = false } = {}) {
  let at = 0;
  const wrong = (what) => refuse(`not JSON: ${what} at character ${at + 1}`, code);
  const halves = !lenient && HALVES.test(text);
  const space = () => {
    for (let code = text.charCodeAt(at); code === 32 || code === 10 || code === 13 || code === 9; ) code = text.charCodeAt(++at);
  };

  function string() {
    let value = "";
    for (at++; ; ) {
      PLAIN.lastIndex = at;
      PLAIN.test(text);
      value += text.slice(at, PLAIN.lastIndex);
      at = PLAIN.lastIndex;
      const letter = text[at];
      if (letter === '"') break;
      if (letter !== "\\") wrong(letter === undefined ? "a text does not end" : "a control character in a text");
      const kind = text[at + 1];
      if (kind === "u") {
        const digits = text.slice(at + 2, at + 6);
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) wrong("an escape without four hex digits");
        value += String.fromCharCode(Number.parseInt(digits, 16));
        at += 6;
      } else {
        if (!Object.hasOwn(ESCAPES, kind ?? "")) wrong("an unknown escape");
        value += ESCAPES[kind];
        at += 2;
      }
    }
    at++;
    if (halves && SURROGATE.test(value)) refuse("half of a surrogate pair in a text", code);
    return value;
  }

  function number() {
    NUMBER.lastIndex = at;
    const match = NUMBER.exec(text);
    if (match === null) wrong("no value");
    at = NUMBER.lastIndex;
    const value = Number(match[0]);
    if (match[1] !== undefined || match[2] !== undefined) {
      if (!Number.isFinite(value)) refuse("a number that is too large", code);
      return new Float(value);
    }
    if (Number.isSafeInteger(value)) return value === 0 ? 0 : value;
    if (!lenient) refuse("an integer beyond 2^53 − 1", code);
    return new Float(value);
  }

  function value(depth) {
    space();
    const letter = text[at];
    if (letter === '"') return string();
    if (letter === "{" || letter === "[") {
      if (depth === DEEPEST) refuse(`more than ${DEEPEST} levels`, code);
      return letter === "{" ? object(depth + 1) : list(depth + 1);
    }
    if (letter !== undefined && Object.hasOwn(WORDS, letter)) {
      const [word, meaning] = WORDS[letter];
      if (!text.startsWith(word, at)) wrong("no value");
      at += word.length;
      return meaning;
    }
    return number();
  }

  function object(depth) {
    const fields = new Fields();
    at++;
    space();
    if (text[at] === "}") {
      at++;
      return fields;
    }
    for (;;) {
      space();
      if (text[at] !== '"') wrong("no key");
      const key = string();
      if (key in fields) refuse(`the key ${JSON.stringify(key.slice(0, 80))} stands twice in one object`, code);
      space();
      if (text[at] !== ":") wrong("no colon");
      at++;
      fields[key] = value(depth);
      space();
      if (text[at] === ",") at++;
      else if (text[at] === "}") {
        at++;
        return fields;
      } else wrong("an object does not end");
    }
  }

  function list(depth) {
    const items = [];
    at++;
    space();
    if (text[at] === "]") {
      at++;
      return items;
    }
    for (;;) {
      items.push(value(depth));
      space();
      if (text[at] === ",") at++;
      else if (text[at] === "]") {
        at++;
        return items;
      } else wrong("a list does not end");
    }
  }

  const result = value(0);
  space();
  if (at !== text.length) wrong("text after the value");
  return result;
}

/** Whether every number is a safe integer, and nothing is deeper than `depth` levels. */
function isPlain(value, depth) {
  if (typeof value === "number") return Number.isSafeInteger(value);
  if (typeof value !== "object" || value === null) return true;
  if (depth === 0) return false;
  for (const key in value) if (!isPlain(value[key], depth - 1)) return false;
  return true;
}

/**
 * As `parse`, for the many lines that Assay writes. The engine's own reader is taken where its value, written again, is the text to the letter: then no
 * key stands twice, and no number has another spelling. A text with a backslash, a number that is no safe integer, or many levels goes to `parse`.
 */
export function parseWritten(text, { code = "input" } = {}) {
  if (!text.includes("\\")) {
    let value;
    try {
      value = JSON.parse(text);
    } catch {
      return parse(text, { code });
    }
    if (JSON.stringify(value) === text && isPlain(value, 8)) return value;
  }
  return parse(text, { code });
}

export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Float);

/** Texts that stand in JSON as they are. */
const AS_IT_IS = /^[ !#-[\]-~]*$/;
const quoted = (text) => (AS_IT_IS.test(text) ? `"${text}"` : JSON.stringify(text));

/** RFC 8785: keys by UTF-16 code units, numbers as ECMAScript writes them. */
export function canonical(value) {
  if (typeof value === "string") return quoted(value);
  if (value === null || typeof value === "boolean" || typeof value === "number") return String(value);
  if (value instanceof Float) return String(value.value === 0 ? 0 : value.value);
  let text = "";
  if (Array.isArray(value)) {
    for (const item of value) text += (text && ",") + canonical(item);
    return `[${text}]`;
  }
  const keys = Object.keys(value);
  for (let i = 1; i < keys.length; i++)
    if (keys[i - 1] > keys[i]) {
      keys.sort();
      break;
    }
  for (const key of keys) if (value[key] !== undefined) text += `${text && ","}${quoted(key)}:${canonical(value[key])}`;
  return `{${text}}`;
}

/** The digest of a value's canonical form. */
export const digestOfJson = (value) => digestOf(canonical(value));

// ---- documents that carry their own digest

/** What was written once: a settlement without its digest, with the place where that goes, and the rows of `agreed`, which results repeat. */
const WRITTEN = new WeakMap();

/** A row of `agreed` in canonical form. */
export function rowText(row) {
  let text = WRITTEN.get(row);
  if (text === undefined) WRITTEN.set(row, (text = canonical(row)));
  return text;
}

/** The digest of a document without `digest`, put at its end. */
export function sealed(document) {
  const names = Object.keys(document).filter((name) => document[name] !== undefined).sort();
  const parts = names.map((name) => `"${name}":${name === "agreed" ? `[${document.agreed.map(rowText).join(",")}]` : canonical(document[name])}`);
  const text = `{${parts.join(",")}}`;
  const place = parts.slice(0, names.filter((name) => name < "digest").length).reduce((at, part) => at + part.length + 1, 1);
  const result = { ...document, digest: digestOf(text) };
  WRITTEN.set(result, { text, place });
  return result;
}

/** Whether a text is, to the letter, the canonical form of a document that `sealed` made; something comes after its digest. */
export function isTextOf(text, document) {
  const { text: own, place } = WRITTEN.get(document);
  const field = `"digest":"${document.digest}",`;
  if (text.length !== own.length + field.length || !text.startsWith(field, place)) return false;
  return own.startsWith(text.slice(0, place)) && own.endsWith(text.slice(place + field.length));
}
