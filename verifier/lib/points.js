// The kind points: issues in repositories, and stars. SPEC 2.4.

import * as read from "./fields.js";
import { halfEven, max, min, NANO } from "./exact.js";
import { refuse } from "./errors.js";
import { isObject } from "./json.js";
import { nanos } from "./scheme.js";
import { unless } from "./score.js";

const { or, maybe, object, integer, fraction, oneOf, count } = read;
const positive = integer(1, read.BILLION);

function repositories(value, path) {
  if (!isObject(value) || Object.keys(value).length === 0) refuse(`${path}: a table of repositories has at least one`, { where: path });
  if (Object.keys(value).length > 10000) refuse(`${path}: more than 10,000 repositories`, { where: path });
  const table = Object.create(null);
  for (const name of Object.keys(value)) {
    read.text(3, 256)(name, path);
    if (!/^[^/\s]+\/[^/\s]+$/.test(name)) refuse(`${path}: ${JSON.stringify(name)} is not owner/name`, { where: path });
    table[name] = fraction(value[name], `${path}.${name}`);
  }
  return table;
}

const rules = object({
  kind: oneOf("points"), repositories, star_points: or("0.25", fraction), star_max: or("1.25", fraction),
  full_points: or(100, positive), window_epochs: maybe(positive), invalid: unless("gate", oneOf("gate", "subtract")), stars_alone: unless(false, read.boolean),
});
function checkRules({ stars_alone, star_points, star_max }, path) {
  if (stars_alone && (nanos(star_points) === 0n || nanos(star_max) === 0n)) refuse(`${path}.stars_alone: stars are worth nothing`, { where: path });
}

const fields = { repository: read.key, valid: or(0, count), invalid: or(0, count), revoked_valid: or(0, count), revoked_invalid: or(0, count), starred: or(false, read.boolean) };

/** Valid and invalid issues by repository, and starred repositories, into points (nanos) and score (nanos). */
export function scorePoints(score, valid, invalid, starred) {
  const all = (table) => Object.values(table).reduce((total, number) => total + number, 0);
  const worth = (table) => Object.entries(table).reduce((total, [name, number]) => total + BigInt(number) * nanos(score.repositories[name]), 0n);
  const [issues, wrong] = [all(valid), all(invalid)];
  let points = worth(valid);
  if (issues > 0 || score.stars_alone) points += min(BigInt(starred) * nanos(score.star_points), nanos(score.star_max));
  if (score.invalid === "subtract") points = max(0n, points - worth(invalid));
  else if (wrong > issues) points = 0n;
  return { valid: issues, invalid: wrong, points, score: min(NANO, halfEven(points, BigInt(score.full_points))) };
}

function scoreAll(score, _tasks, records, { epoch }) {
  const sheets = new Map();
  for (const record of records) {
    if (!Object.hasOwn(score.repositories, record.repository)) continue;
    const sheet = sheets.get(record.validator) ?? { repositories: new Map(), counted: false };
    sheets.set(record.validator, sheet);
    const row = sheet.repositories.get(record.repository) ?? { valid: 0, invalid: 0, revokedValid: 0, revokedInvalid: 0, star: -1, starred: false };
    sheet.repositories.set(record.repository, row);
    if (record.epoch >= row.star) [row.star, row.starred] = [record.epoch, record.starred];
    if (score.window_epochs !== undefined && record.epoch <= epoch - score.window_epochs) continue;
    sheet.counted = true;
    row.valid += record.valid;
    row.invalid += record.invalid;
    row.revokedValid += record.revoked_valid;
    row.revokedInvalid += record.revoked_invalid;
  }
  const votes = new Map();
  for (const [validator, sheet] of sheets) {
    if (!sheet.counted) continue;
    const [valid, invalid] = [Object.create(null), Object.create(null)];
    let starred = 0;
    for (const [name, row] of sheet.repositories) {
      valid[name] = Math.max(0, row.valid - row.revokedValid);
      invalid[name] = Math.max(0, row.invalid - row.revokedInvalid);
      starred += row.starred ? 1 : 0;
    }
    const found = scorePoints(score, valid, invalid, starred);
    votes.set(validator, { score: found.score, work: { valid: found.valid, invalid: found.invalid, starred, points: found.points } });
  }
  return votes;
}

export const points = { rules, checkRules, fields, score: scoreAll };
