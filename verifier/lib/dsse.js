// DSSE envelopes around in-toto statements. What is parsed is exactly what was signed, once. docs/formats.md, "The ledger".

import { concat, fromBase64, fromUtf8, utf8 } from "./bytes.js";
import { refuse } from "./errors.js";
import { isObject, parseWritten } from "./json.js";
import { verifyWith } from "./keys.js";

const TYPE = "application/vnd.in-toto+json";

/** The signed bytes: `DSSEv1 LEN(type) type LEN(payload) payload`. */
const preAuthentication = (payload) => concat(utf8(`DSSEv1 ${TYPE.length} ${TYPE} ${payload.length} `), payload);

/** An envelope's parts: payload (bytes) and signatures {keyid, sig}. Fields that DSSE does not define are ignored. */
export function openEnvelope(value, code = "dsse") {
  const wrong = (what) => refuse(what, { code });
  if (!isObject(value)) wrong("the envelope is not an object");
  if (value.payloadType !== TYPE) wrong(`the payload's type is not ${TYPE}`);
  const payload = fromBase64(value.payload, true);
  if (payload === null) wrong("the payload is not base64 with one spelling");
  if (!Array.isArray(value.signatures) || value.signatures.length === 0 || value.signatures.length > 64) wrong("an envelope has 1 to 64 signatures");
  const signatures = value.signatures.map((row) => {
    if (!isObject(row)) wrong("a signature is not an object");
    if (row.keyid !== undefined && typeof row.keyid !== "string") wrong("a keyid is not a text");
    const sig = fromBase64(row.sig, true);
    if (sig === null) wrong("a signature is not base64 with one spelling");
    return { keyid: row.keyid ?? null, sig };
  });
  return { payload, signatures };
}

/** Those of `keys` that signed it. A keyid is a hint and decides nothing. */
export async function signers({ payload, signatures }, keys) {
  const signed = preAuthentication(payload);
  const found = [];
  for (const key of keys)
    for (const { sig } of signatures)
      if (await verifyWith(key, signed, sig)) {
        found.push(key);
        break;
      }
  return found;
}

/** The payload as a strict JSON value, in canonical form only where asked by the caller. */
export function statementOf({ payload }, code) {
  let text;
  try {
    text = fromUtf8(payload);
  } catch {
    refuse("the payload is not UTF-8", { code });
  }
  return { value: parseWritten(text, { code }), text };
}
