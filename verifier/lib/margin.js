// How firmly a board's verdicts hold: the fewest flips, the fewest missing trials and the least lying stake that change one. docs/margins.md.
// It is brute force: every state that the trials of a participant can be in is judged. So the numbers are exact, and boards have to be small.

import { Unsupported } from "./errors.js";
import { agree } from "./consensus.js";
import { payout } from "./payout.js";
import { scoreTests } from "./score.js";

/** So many states of one participant are judged; for more this program says that it cannot. */
const MOST = 1_000_000;

const NONE = null; // the score of a participant without one

/** Every choice of one value from each list. */
function* choices(lists, at = 0, chosen = []) {
  if (at === lists.length) yield chosen;
  else
    for (const value of lists[at]) {
      chosen[at] = value;
      yield* choices(lists, at + 1, chosen);
    }
}

const upTo = (most) => Array.from({ length: most + 1 }, (_, value) => value);

/** One participant's votes: those of validators that may count, with what they may come to. */
class Trials {
  constructor({ consensus, trials, validators }, seen) {
    this.rules = { consensus, trials };
    this.total = validators.reduce((sum, { stake }) => sum + stake, 0n);
    const least = BigInt(consensus.min_validator_stake);
    this.votes = validators.filter(({ key, stake }) => Object.hasOwn(seen, key) && stake > 0n && stake >= least).map(({ key, stake }) => ({ validator: key, stake, ...seen[key] }));
    this.scores = new Map();
    this.now = this.score(this.votes.map(({ passed, missing }) => (missing ? NONE : passed)));
  }

  /** The agreed score if the votes have so many passed trials; null in the list: it misses trials. */
  score(passed) {
    const name = passed.join();
    if (!this.scores.has(name)) {
      const votes = this.votes.map(({ validator, stake }, i) => ({ validator, stake, ...(passed[i] === NONE ? { state: "incomplete" } : { score: scoreTests(passed[i], this.rules.trials) }) }));
      this.scores.set(name, agree(this.rules.consensus, votes, { needed: this.total, trials: this.rules.trials }).score);
    }
    return this.scores.get(name);
  }

  /** Score → the least cost with which it is reached. `options`: of a vote, the numbers of passed trials (or null) that it may come to; `costOf`: what one costs. */
  reach(options, costOf) {
    const lists = this.votes.map(options);
    if (lists.reduce((product, list) => product * list.length, 1) > MOST) throw new Unsupported(`a board with more than ${MOST} states of one participant`);
    const least = new Map();
    for (const passed of choices(lists)) {
      const cost = this.votes.reduce((sum, vote, i) => sum + costOf(vote, passed[i]), 0);
      const score = this.score(passed);
      if (!(least.get(score) <= cost)) least.set(score, cost);
    }
    return least;
  }

  /** Trials that counted get the other outcome: each costs 1. */
  flips() {
    return this.reach(({ passed, missing }) => (missing ? [NONE] : upTo(this.rules.trials)), (vote, passed) => (passed === NONE ? 0 : Math.abs(passed - vote.passed)));
  }

  /** All missing trials of a validator are decided, or none: they cost as many as they are. */
  missing() {
    return this.reach(({ passed, missing }) => (missing ? [NONE, ...upTo(missing).map((more) => passed + more)] : [passed]), (vote, passed) => (passed === NONE ? 0 : vote.missing));
  }

  /** Validators that lie say any number, where they count; that costs nothing more than that they lie. */
  lies(liars) {
    return this.reach(({ validator, passed, missing }) => (missing ? [NONE] : liars.has(validator) ? upTo(this.rules.trials) : [passed]), () => 0);
  }
}

const cheapest = (costs) => costs.reduce((least, cost) => (cost < least ? cost : least), Infinity);
const where = (reach, holds) => cheapest([...reach].filter(([score]) => holds(score)).map(([, cost]) => cost));
const isSome = (score) => score !== NONE;

/** The least cost with which `behind` is before `ahead`. `reaches`: of each participant, in the order of submissions, in which the earlier wins a tie. */
function overtaken(reaches, ahead, behind) {
  const isBefore = (score, other) => score > other || (score === other && behind < ahead);
  const rises = [...reaches[behind]].filter(([score]) => isSome(score));
  return cheapest(rises.map(([score, cost]) => cost + where(reaches[ahead], (other) => isSome(other) && isBefore(score, other))));
}

/** The least cost of each verdict's change. `now`: the scores as they are. */
const CHANGES = {
  /** Another participant is first, or nobody is. */
  winner({ ranking, reaches }) {
    const [winner] = ranking;
    if (winner === undefined) return cheapest(reaches.map((reach) => where(reach, isSome)));
    const others = reaches.map((_, other) => (other === winner ? Infinity : overtaken(reaches, winner, other)));
    return cheapest([where(reaches[winner], (score) => !isSome(score)), ...others]);
  },
  /** Another part of the deposit is released: one participant rises above, or all who reach the tier fall below it. */
  tier({ now, reaches, rules }) {
    const tierOf = (score) => (isSome(score) ? payout(rules, [score]).tier_bps : 0);
    const tier = Math.max(0, ...now.map(tierOf));
    const rise = cheapest(reaches.map((reach) => where(reach, (score) => tierOf(score) > tier)));
    const fall = reaches.reduce((sum, reach) => sum + where(reach, (score) => tierOf(score) < tier), 0);
    return cheapest([rise, fall]);
  },
  /** The ranking is another list: one enters, one leaves, or two neighbours change places; any other list turns two neighbours around as well. */
  order({ now, ranking, reaches }) {
    const turned = ranking.slice(1).map((behind, i) => overtaken(reaches, ranking[i], behind));
    return cheapest([...turned, ...reaches.map((reach, i) => where(reach, (score) => isSome(score) !== isSome(now[i])))]);
  },
};

/** Coalitions of validators, by ascending stake. */
function coalitions(validators) {
  const all = [];
  for (let chosen = 1; chosen < 2 ** validators.length; chosen++) {
    const members = validators.filter((_, i) => chosen & (1 << i));
    all.push({ liars: new Set(members.map(({ key }) => key)), stake: members.reduce((sum, { stake }) => sum + stake, 0n) });
  }
  return all.sort((a, b) => (a.stake < b.stake ? -1 : 1));
}

/** The output of a conformance case of kind margin. */
export function margin({ consensus, payout: rules, trials, validators, participants }) {
  const all = participants.map(({ seen }) => new Trials({ consensus, trials, validators }, seen));
  const now = all.map((own) => own.now);
  const ranking = now.map((_, i) => i).filter((i) => isSome(now[i])).sort((a, b) => (now[a] === now[b] ? a - b : now[a] > now[b] ? -1 : 1));
  const names = rules === undefined ? ["winner", "order"] : ["winner", "tier", "order"];
  const boards = { flips: all.map((own) => own.flips()), missing: all.map((own) => own.missing()) };
  const changeOf = (name, reaches) => CHANGES[name]({ now, ranking, reaches, rules });
  const counted = (cost) => (cost === Infinity ? null : cost);

  const stakes = new Map();
  for (const { liars, stake } of coalitions(validators)) {
    if (stakes.size === names.length) break;
    const reaches = all.map((own) => own.lies(liars));
    for (const name of names) if (!stakes.has(name) && changeOf(name, reaches) === 0) stakes.set(name, stake.toString());
  }
  const verdict = (name) => ({ flips: counted(changeOf(name, boards.flips)), missing: counted(changeOf(name, boards.missing)), stake: stakes.get(name) ?? null });
  return { verdicts: Object.fromEntries(names.map((name) => [name, verdict(name)])) };
}
