// Policies of witnesses and their cosignatures (C2SP tlog-policy, tlog-cosignature). docs/witnessing.md.

import { concat, equal, toHex, utf8 } from "./bytes.js";
import { several } from "./bundle.js";
import { refuse, Unsupported } from "./errors.js";
import { verifyEd25519 } from "./keys.js";
import { LARGEST, readVkey } from "./notes.js";
import { staged } from "./receipts.js";

/** A C2SP tlog-policy: logs, witnesses, groups and the quorum. */
export function readPolicy(text) {
  const wrong = (what, line) => refuse(`policy${line === undefined ? "" : `, line ${line + 1}`}: ${what}`, { code: "input" });
  if (typeof text !== "string" || text.length > 1_000_000) wrong("it is a text of at most 1 MB");
  const policy = { logs: [], witnesses: new Map(), groups: new Map(), quorum: null };
  const [keys, grouped] = [new Set(), new Set()];
  const fresh = (name, line) => {
    if (name === "none" || policy.witnesses.has(name) || policy.groups.has(name)) wrong(`the name ${name} stands twice, or is none`, line);
  };
  const known = (name) => policy.witnesses.has(name) || policy.groups.has(name);
  const vkey = (value, types, line) => {
    const key = readVkey(value, types, "input");
    const same = `${key.type === 6 ? 6 : 4}:${toHex(key.key)}`;
    if (keys.has(same)) wrong("a key stands in two lines", line);
    keys.add(same);
    return key;
  };
  text.split("\n").forEach((row, line) => {
    if (/[\u0000-\u0008\u000a-\u001f\u007f]/.test(row)) wrong("a control character", line);
    const words = row.split(/[ \t]+/).filter((word) => word !== "");
    if (words.length === 0 || words[0].startsWith("#")) return;
    const [kind, name, ...rest] = words;
    if (kind === "log" && (words.length === 2 || words.length === 3)) policy.logs.push(vkey(name, [1], line));
    else if (kind === "witness" && (words.length === 3 || words.length === 4)) {
      fresh(name, line);
      policy.witnesses.set(name, vkey(rest[0], [4, 6], line));
    } else if (kind === "group" && words.length >= 4) {
      fresh(name, line);
      const members = rest.slice(1);
      for (const member of members) {
        if (!known(member)) wrong(`${member} is not defined above`, line);
        if (grouped.has(member)) wrong(`${member} is in a group already`, line);
        grouped.add(member);
      }
      const least = rest[0] === "any" ? 1 : rest[0] === "all" ? members.length : /^[1-9][0-9]{0,8}$/.test(rest[0]) ? Number(rest[0]) : 0;
      if (least < 1 || least > members.length) wrong(`${rest[0]} of ${members.length} members is no quorum`, line);
      policy.groups.set(name, { least, members });
    } else if (kind === "quorum" && words.length === 2) {
      if (policy.quorum !== null) wrong("it has two quorums", line);
      if (name !== "none" && !known(name)) wrong(`${name} is not defined above`, line);
      policy.quorum = name;
    } else wrong(`${JSON.stringify(row.slice(0, 60))} is no line of a policy`, line);
  });
  if (policy.quorum === null) wrong("it has no quorum");
  return policy;
}

async function verifyMlDsa44(key, message, signature) {
  let module;
  try {
    module = await import("../vendor/ml-dsa-44.js");
  } catch {
    throw new Unsupported("a cosignature of ML-DSA-44 (0x06): vendor/ml-dsa-44.js is not here");
  }
  try {
    return module.ml_dsa44.verify(signature, message, key);
  } catch {
    return false;
  }
}

const big64 = (value) => Uint8Array.from({ length: 8 }, (_, i) => Number((BigInt(value) >> BigInt(56 - 8 * i)) & 255n));

function cosigned(witness, checkpoint, time) {
  if (witness.type === 4) return utf8(`cosignature/v1\ntime ${time}\n${checkpoint.text}`);
  const named = (text) => concat(Uint8Array.of(utf8(text).length), utf8(text));
  return concat(utf8("subtree/v1\n\0"), named(witness.name), big64(time), named(checkpoint.origin), big64(0), big64(checkpoint.size), checkpoint.root);
}

/** That a quorum of the policy cosigned a checkpoint: witness → time of its newest cosignature (BigInt, seconds since 1970). */
export async function checkWitnesses(checkpoint, policy) {
  const wrong = (what) => refuse(what, { code: "witnesses", stage: "witnesses" });
  if (policy.logs.length && !policy.logs.some((key) => key.text === checkpoint.key.text || (key.name === checkpoint.key.name && equal(key.key, checkpoint.key.key))))
    wrong(`the policy does not name the log ${checkpoint.origin}`);
  const times = new Map();
  for (const [name, witness] of policy.witnesses) {
    for (const { name: keyName, id, blob } of checkpoint.signatures) {
      if (keyName !== witness.name || id !== witness.id) continue;
      const time = blob.length > 8 ? blob.subarray(0, 8).reduce((value, byte) => value * 256n + BigInt(byte), 0n) : LARGEST;
      const right = time < LARGEST && (await (witness.type === 6 ? verifyMlDsa44 : verifyEd25519)(witness.key, cosigned(witness, checkpoint, time), blob.slice(8)));
      if (!right) wrong(`the cosignature of ${name} is wrong`);
      if (!times.has(name) || times.get(name) < time) times.set(name, time);
    }
  }
  const reached = (name) => {
    if (name === "none" || times.has(name)) return true;
    const group = policy.groups.get(name);
    return group !== undefined && group.members.filter(reached).length >= group.least;
  };
  if (!reached(policy.quorum)) wrong(`the quorum ${policy.quorum} of the policy is not reached: ${times.size ? [...times.keys()].join(", ") : "nobody"} cosigned`);
  return times;
}

function age(time, now) {
  const seconds = Math.max(0, Math.floor(now / 1000) - Number(time));
  if (seconds < 120) return several(seconds, "second");
  if (seconds < 7200) return several(Math.floor(seconds / 60), "minute");
  return seconds < 172800 ? several(Math.floor(seconds / 3600), "hour") : several(Math.floor(seconds / 86400), "day");
}

/** Reports that a quorum of a policy, as its text, cosigned a checkpoint. */
export async function witnessed(report, checkpoint, policyText, now) {
  const policy = staged("witnesses", () => readPolicy(policyText));
  const times = await checkWitnesses(checkpoint, policy);
  const newest = [...times.values()].reduce((a, b) => (a > b ? a : b), 0n);
  if (!times.size) return report.did("witnesses", "the policy demands no witness: that everybody is shown this same log is not proven");
  const history = `this binds the history of ${several(Number(checkpoint.size), "entry", "entries")}`;
  report.did("witnesses", `cosigned by ${[...times.keys()].join(", ")}, the newest ${age(newest, now)} ago; ${history}`);
}
