import { Unsupported } from "./errors.js";
export async function answerOfLedger(kind) { throw new Unsupported(kind); }
