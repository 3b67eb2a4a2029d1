// What can be wrong. Every message says what was wrong and where; nothing here prints.

/** An input or a proof is wrong. `code` is the stage or the outermost wrong field (docs/conformance.md). */
export class Refused extends Error {
  constructor(message, detail = {}) {
    super(message);
    this.name = "Refused";
    this.code = detail.code ?? "input";
    this.stage = detail.stage ?? null;
    this.where = detail.where ?? null;
    this.expected = detail.expected ?? null;
    this.found = detail.found ?? null;
    this.whose = detail.whose ?? null;
  }
}

/** The input may be right, but this program does not have what it needs. Neither right nor wrong. */
export class Unsupported extends Error {
  constructor(what) {
    super(what);
    this.name = "Unsupported";
  }
}

export function refuse(message, detail) {
  throw new Refused(message, typeof detail === "string" ? { code: detail } : detail);
}

/** Runs `work`; a refusal in it gets `code` (and keeps everything else it says). */
export function under(code, work) {
  try {
    return work();
  } catch (error) {
    if (error instanceof Refused) error.code = code;
    throw error;
  }
}
