// Closed objects: a field that nobody knows is refused, a missing one gets its default, and a value is normalised.
// A reader is a function (value, path) → normalised value; it refuses with the path.

import { absolute, fractionOf, decimal, instantOf, instantText, integerOf, nanosOf, NANO } from "./exact.js";
import { refuse } from "./errors.js";
import { Float, isObject } from "./json.js";

const FORBIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufdd0-\ufdef\ufeff\ufffe\uffff\ud800-\udfff\u{1fffe}\u{1ffff}\u{2fffe}\u{2ffff}\u{3fffe}\u{3ffff}\u{4fffe}\u{4ffff}\u{5fffe}\u{5ffff}\u{6fffe}\u{6ffff}\u{7fffe}\u{7ffff}\u{8fffe}\u{8ffff}\u{9fffe}\u{9ffff}\u{afffe}\u{affff}\u{bfffe}\u{bffff}\u{cfffe}\u{cffff}\u{dfffe}\u{dffff}\u{efffe}\u{effff}\u{ffffe}\u{fffff}\u{10fffe}\u{10ffff}]/u;

export const BILLION = 1_000_000_000;
export const LARGEST = Number.MAX_SAFE_INTEGER;

const say = (value) => {
  const text = value instanceof Float ? String(value.value) : JSON.stringify(value);
  return text === undefined ? "nothing" : text.length > 80 ? text.slice(0, 80) + "…" : text;
};

const wrong = (value, path, what) => refuse(`${path}: ${say(value)} is not ${what}`, { code: "input", where: path });

export function text(least, most, what = "a text of the allowed characters") {
  return (value, path) => {
    if (typeof value !== "string" || FORBIDDEN.test(value)) wrong(value, path, what);
    const length = value.length <= most ? value.length : [...value].length;
    if (length > most || length < least) wrong(value, path, `${least} to ${most} characters long`);
    return value;
  };
}

export const key = text(1, 256, "a key");
export const submission = text(0, 256, "a submission");
export const task = (value, path) => {
  key(value, path);
  if (/[ \t]/.test(value)) wrong(value, path, "a task: it has a space in it");
  return value;
};

export function integer(least, most) {
  return (value, path) => {
    if (typeof value !== "number" || value < least || value > most) wrong(value, path, `an integer from ${least} to ${most}`);
    return value;
  };
}
export const epoch = integer(0, LARGEST);
export const count = integer(0, BILLION);
export const bps = integer(0, 10000);

export function boolean(value, path) {
  if (typeof value !== "boolean") wrong(value, path, "true or false");
  return value;
}

/** A decimal string in nanos, at most `most` and at least `least`; `percent` for a scheme's fractions. */
export function number({ percent = false, most = NANO * NANO, least = 0n } = {}) {
  return (value, path) => {
    const nanos = percent ? fractionOf(value) : nanosOf(value);
    if (nanos === null || nanos > most || nanos < least) wrong(value, path, "a decimal string in its bounds");
    return decimal(nanos);
  };
}
export const score = number({ most: NANO });
export const amount = number();
export const share = number({ percent: true, most: NANO });
export const fraction = number({ percent: true });

export function integerText(limit) {
  return (value, path) => {
    const found = integerOf(value, limit);
    if (found === null) wrong(value, path, "a string of digits in its bounds");
    return absolute(found).toString();
  };
}

/** The last time that was read, and its canonical text: neighbours in evidence are often of one second. */
let [lastInstant, lastText] = [null, null];

export function instant(value, path) {
  if (value === lastInstant && lastInstant !== null) return lastText;
  const micros = instantOf(value);
  if (micros === null) wrong(value, path, "a time of RFC 3339 with a time zone");
  [lastInstant, lastText] = [value, instantText(micros)];
  return lastText;
}

export function pattern(expression, what) {
  return (value, path) => {
    if (typeof value !== "string" || !expression.test(value)) wrong(value, path, what);
    return value;
  };
}
export const digest = pattern(/^sha256:[0-9a-f]{64}$/, "a digest");

export function oneOf(...choices) {
  return (value, path) => {
    if (!choices.includes(value)) wrong(value, path, `one of ${choices.join(", ")}`);
    return value;
  };
}

export function list(reader, { least = 0, most = Infinity } = {}) {
  return (value, path) => {
    if (!Array.isArray(value) || value.length < least || value.length > most) wrong(value, path, `a list of ${least} or more`);
    return value.map((item, index) => reader(item, `${path}[${index}]`));
  };
}

/** null (or nothing) is taken, and left out. */
export const maybe = (reader) => Object.assign((value, path) => (value === null ? undefined : reader(value, path)), { optional: true });

/** Left out: `fallback`, as it is written in a file. */
export const or = (fallback, reader) => Object.assign((value, path) => reader(value, path), { fallback });

/** An object of exactly these fields. `byField`: a refusal gets the code of its field; without it, it keeps its own. `beside`: a field that is passed over. */
export function object(fields, { byField = false, beside = null } = {}) {
  const readers = Object.entries(fields);
  return (value, path = "") => {
    if (!isObject(value)) wrong(value, path || "input", "an object");
    const at = path ? (name) => `${path}.${name}` : (name) => name;
    const result = {};
    let field = null;
    try {
      for (field of Object.keys(value))
        if (field !== beside && !Object.hasOwn(fields, field)) refuse(`${at(field)}: there is no such field`, { code: "input", where: at(field) });
      for (const [name, reader] of readers) {
        field = name;
        let own;
        if (name in value) own = reader(value[name], at(name));
        else if ("fallback" in reader) own = reader(reader.fallback, at(name));
        else if (!reader.optional) refuse(`${at(name)} is missing`, { code: "input", where: at(name) });
        if (own !== undefined) result[name] = own;
      }
    } catch (error) {
      if (byField && error.code) error.code = field;
      throw error;
    }
    return result;
  };
}

export const anything = (value) => value;
