"""Attacks on a scheme, played by the kernel: what somebody gains who does not play fair. SPEC 3, 4, 5, 9.

A `Arena` has participants of known skill and a jury. An `Attack` is a plain value that says everything that is done, so it can be
written down and played again to the same numbers; `assay.rules.search` finds attacks. Shares are exact, and means over draws and
epochs are rounded down to nanos.

    coalition   validators say other numbers of a participant of theirs or of its rivals, or nothing; before or after the others
    sybils      a participant hands in near-copies of its own work under more keys
    copy        the weakest participant hands in near-copies of the best
    release     a participant releases an improvement in steps, or hands in the same again, so that its share does not decay
    last-block  a participant hands in at the end of an epoch, and has a whole epoch's share
    sponsor     whoever pays a bounty, with judges: the solutions are told to be worse than they are, and the deposit comes back
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from assay.errors import BadInput, CannotSettle
from assay.exact import BPS, NANO, digest, half_even, text
from assay.rules.lies import NO_SCORE, Coalition, Jury
from assay.scheme.model import Decay, Scheme
from assay.scheme.reading import validate
from assay.settle import reward
from assay.settle.inputs import Clock, Ints
from assay.settle.rewarding import AgreedScore, advance

__all__ = ["KINDS", "Arena", "Attack", "Played", "play", "replayed", "scenario"]

SCHEMA = "assay.attack/1"
RATES = (7500, 7000, 6500, 6000, 5000, 4500, 4000, 3000)
"""The rates at which the participants' agents do well, BPS."""
ATTACKER = 3
EPOCHS = 60
"""Of a season in which improvements are released."""
GAIN = 1000
"""The improvement that there is to release, BPS."""
KINDS = ("coalition", "sybils", "copy", "release", "last-block", "sponsor")


@dataclass(frozen=True)
class Arena:
    """The setting of an attack: participants with their rates (BPS, by order of arrival), one of which attacks, and the jury."""

    jury: Jury
    rates: tuple[int, ...] = RATES
    attacker: int = ATTACKER

    @property
    def scheme(self) -> Scheme:
        """The rules."""
        return self.jury.scheme

    @property
    def skills(self) -> list[int]:
        """The scores that the rates come to, nanos."""
        return [NANO * rate // BPS for rate in self.rates]

    @cached_property
    def _benches(self) -> dict[tuple[int, ...], Coalition]:
        return {}

    def bench(self, members: tuple[int, ...]) -> Coalition:
        """A coalition before these participants; made once."""
        return self._benches.setdefault(members, Coalition(self.jury, members, self.rates))

    @cached_property
    def honest(self) -> Ints:
        """The agreed scores if everybody is honest, nanos, [P, draws]."""
        return self.bench(()).honest

    @cached_property
    def fair(self) -> int:
        """The attacker's share if everybody is honest, nanos, the mean over draws."""
        return self.share_of(self.honest)

    def share_of(self, agreed: Ints) -> int:
        """The attacker's mean share, nanos, of what is agreed, nanos, [P, draws]."""
        shares: list[int] = [earned(self.scheme, column)[self.attacker] for column in agreed.T.tolist()]
        return sum(shares) // len(shares)


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack. Fields that a kind does not use have their defaults."""

    kind: str
    members: tuple[int, ...] = ()
    """coalition, sponsor: rows of the jury."""
    last: bool = False
    """coalition: they wait until the others have signed."""
    lies: tuple[tuple[int, ...], ...] = ()
    """coalition, sponsor: what all members say of each participant, once or for each draw; −1: the truth; n + 1: nothing."""
    keys: int = 1
    """sybils, copy: under how many keys."""
    steps: int = 1
    """release: in how many steps the improvement comes."""
    gap: int = 1
    """release: epochs between two of them."""
    again: bool = False
    """release: after the last step the same work is handed in again and again, changed so that it looks new."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        document: dict[str, Any] = {"kind": self.kind}
        if self.kind in ("coalition", "sponsor"):
            document |= {"members": list(self.members), "last": self.last, "lies": [list(lie) for lie in self.lies]}
        if self.kind in ("sybils", "copy"):
            document |= {"keys": self.keys}
        if self.kind == "release":
            document |= {"steps": self.steps, "gap": self.gap, "again": self.again}
        return document


@dataclass(frozen=True, slots=True)
class Played:
    """The result of an attack: the attacker's mean share without and with it, nanos, and the stake it takes, nanos of all."""

    attack: Attack
    before: int
    after: int
    stake: int
    keys: int

    @property
    def profit(self) -> int:
        """Nanos of what is given out; below 0 for an attack that costs."""
        return self.after - self.before

    def document(self) -> dict[str, Any]:
        """As JSON; a loss is a profit of 0, and shows in `after`."""
        numbers = {"before": self.before, "after": self.after, "profit": max(0, self.profit), "stake": self.stake}
        return {name: text(value) for name, value in numbers.items()} | {"keys": self.keys}


def play(field: Arena, attack: Attack) -> Played:
    """The attack, played by the kernel."""
    members_stake = sum(field.jury.stakes[row] for row in attack.members)
    stake = half_even(members_stake * NANO, sum(field.jury.stakes))
    before, after = _PLAYS[attack.kind](field, attack)
    return Played(attack, before, after, stake, attack.keys)


def earned(scheme: Scheme, scores: Sequence[int], kept: Sequence[int] | None = None) -> list[int]:
    """Each participant's share, nanos (floor), of agreed scores in the order of arrival; NO_SCORE takes no part.

    kept: 1 − B of each, nanos. A share is net of the deposit where the scheme pays out.
    """
    order = sorted((at for at, score in enumerate(scores) if score != NO_SCORE), key=lambda at: (-scores[at], at))
    ranked = [scores[at] for at in order]
    shares = [0] * len(scores)
    if scheme.payout is not None:
        for at, row in zip(order, reward.pay(ranked, scheme.payout).rows, strict=False):
            shares[at] = row.net * NANO // max(1, scheme.payout.deposit)
        return shares
    kept = (NANO,) * len(order) if kept is None else [kept[at] for at in order]
    share = reward.allot(ranked, scheme.reward, kept, (True,) * len(order)).share
    for at, part in zip(order, share.parts, strict=True):
        shares[at] = part * NANO // share.denominator
    return shares


def lied(field: Arena, attack: Attack) -> Ints:
    """The agreed scores of each participant in each draw, nanos, [P, draws]."""
    bench = field.bench(attack.members)
    if len(attack.lies) != len(field.rates) or any(len(lie) not in (1, field.jury.draws) for lie in attack.lies):
        raise BadInput("needs a lie for each participant, or one for each draw of it", field="attack.lies")
    lies = np.array([np.broadcast_to(lie, field.jury.draws) for lie in attack.lies], np.int64)
    if lies.min() < -1 or lies.max() > field.jury.items + 1:
        raise BadInput(
            "a lie is out of range", field="attack.lies", hint=f"use −1 (the truth) to {field.jury.items + 1} (nothing)"
        )
    lied_scores = np.take_along_axis(bench.lies, np.maximum(lies, 0)[:, None], axis=1)[:, 0]
    return np.where(lies < 0, field.honest, lied_scores)


def _coalition(field: Arena, attack: Attack) -> tuple[int, int]:
    return field.fair, field.share_of(lied(field, attack))


def _sponsor(field: Arena, attack: Attack) -> tuple[int, int]:
    return _refunded(field, field.honest), _refunded(field, lied(field, attack))


def _refunded(field: Arena, agreed: Ints) -> int:
    """The part of the deposit that comes back, nanos, the mean over draws; fees are counted as if they did."""
    back: list[int] = [NANO - sum(earned(field.scheme, column)) for column in agreed.T.tolist()]
    return sum(back) // len(back)


def _sybils(field: Arena, attack: Attack) -> tuple[int, int]:
    own = field.skills[field.attacker]
    scores = field.skills + [own] * (attack.keys - 1)
    after = earned(field.scheme, scores)
    return earned(field.scheme, field.skills)[field.attacker], after[field.attacker] + sum(after[len(field.rates) :])


def _copy(field: Arena, attack: Attack) -> tuple[int, int]:
    weakest = len(field.rates) - 1
    scores = field.skills[:weakest] + [max(field.skills)] * attack.keys
    return earned(field.scheme, field.skills)[weakest], sum(earned(field.scheme, scores)[weakest:])


def _release(field: Arena, attack: Attack) -> tuple[int, int]:
    return _season(field, Attack("release")), _season(field, attack)


def _season(field: Arena, attack: Attack) -> int:
    """The attacker's mean share over EPOCHS epochs in which nobody else hands in anything new."""
    rules = field.scheme.decay or Decay(curve="none")
    clock, total = None, 0
    scores, own = list(field.skills), field.skills[field.attacker]
    for epoch in range(EPOCHS):
        step = epoch // attack.gap + 1
        step = step if attack.again else min(step, attack.steps)
        scores[field.attacker] = min(NANO, own + NANO * GAIN * min(step, attack.steps) // (attack.steps * BPS))
        ranked = sorted(range(len(scores)), key=lambda at: (-scores[at], at))
        agreed = [AgreedScore(str(at), f"{at}.{step if at == field.attacker else 0}", scores[at]) for at in ranked]
        clock = advance(
            before=Clock() if clock is None else clock,
            previous_task_set=None,
            task_set=None,
            epoch=epoch,
            agreed=agreed,
            history=(),
            rules=rules,
        )
        whole = rules.clock == "competition"
        lasts = [clock.last if whole else clock.participants[str(at)].last for at in range(len(scores))]
        total += earned(field.scheme, scores, [NANO - lost for _, lost in reward.each(lasts, epoch, rules)])[field.attacker]
    return total // EPOCHS


def _last_block(field: Arena, attack: Attack) -> tuple[int, int]:
    """Somebody who comes at the last block of a season's first epoch, and has its whole share; fair would be the next epoch."""
    share = earned(field.scheme, field.skills)[field.attacker]
    return share * (EPOCHS - 1) // EPOCHS, share


_PLAYS = {
    "coalition": _coalition,
    "sybils": _sybils,
    "copy": _copy,
    "release": _release,
    "last-block": _last_block,
    "sponsor": _sponsor,
}


def scenario(field: Arena, played: Played) -> dict[str, Any]:
    """An attack with all that it needs, as JSON: `replayed` plays it again to the same numbers."""
    jury = field.jury
    content = {
        "schema": SCHEMA,
        "scheme": field.scheme.document(),
        "field": {
            "rates": list(field.rates),
            "attacker": field.attacker,
            "stakes": [str(stake) for stake in jury.stakes],
            "items": jury.items,
            "same": jury.same,
            "seed": jury.seed,
            "draws": jury.draws,
        },
        "attack": played.attack.document(),
        "result": played.document(),
    }
    return content | {"digest": digest(content)}


def replayed(document: Any) -> tuple[Arena, Played]:
    """A scenario, played again. Raises BadInput if it is none, and CannotSettle if the numbers come out otherwise."""
    content = _part(document, "", {"schema", "scheme", "field", "attack", "result", "digest"})
    if content["schema"] != SCHEMA:
        raise BadInput(f"is no {SCHEMA}", field="schema", hint="give a file that `assay attack --output` wrote")
    rest = {name: value for name, value in content.items() if name != "digest"}
    if content["digest"] != digest(rest):
        raise BadInput("is not the digest of the rest", field="digest", hint="the file was changed; run the search again")
    field, attack = _field(content), _attack(content["attack"])
    if max(attack.members, default=0) >= len(field.jury.stakes) or min(attack.members, default=0) < 0:
        raise BadInput("names a validator that there is not", field="attack.members")
    if attack.kind == "sponsor" and field.scheme.payout is None:
        raise BadInput("a sponsor needs a scheme that pays out", field="attack.kind")
    played = play(field, attack)
    if played.document() != content["result"]:
        raise CannotSettle(f"the attack now comes to {played.document()}, the file has {content['result']}", field="result")
    return field, played


def _field(content: Mapping[str, Any]) -> Arena:
    fields = _part(content["field"], "field", {"rates", "attacker", "stakes", "items", "same", "seed", "draws"})
    rates = _numbers(fields["rates"], "field.rates", 1, BPS)
    stakes = fields["stakes"]
    if not isinstance(stakes, list) or not all(
        isinstance(stake, str) and stake.isdecimal() and len(stake) < 20 for stake in stakes
    ):
        raise BadInput("is no list of stakes", field="field.stakes", hint='write rao in quotes, ["100", "200"]')
    (attacker,) = _numbers([fields["attacker"]], "field.attacker", 0, len(rates) - 1)
    (items,), (seed,) = _numbers([fields["items"]], "field.items", 1, 1000), _numbers([fields["seed"]], "field.seed", 0, 2**32)
    (draws,) = _numbers([fields["draws"]], "field.draws", 1, 1000)
    scheme = validate(Scheme, content["scheme"])
    return Arena(Jury(scheme, tuple(map(int, stakes)), items, fields["same"] is True, seed, draws), rates, attacker)


def _attack(fields: Any) -> Attack:
    kind = fields.get("kind") if isinstance(fields, dict) else None
    if kind not in KINDS:
        raise BadInput("is no attack", field="attack.kind", hint=f"use {', '.join(KINDS)}")
    fields = _part(fields, "attack", set(Attack(kind).document()))
    arguments: dict[str, Any] = {"kind": kind}
    if "members" in fields:
        arguments |= {"members": _numbers(fields["members"], "attack.members", 0, 255), "last": fields["last"] is True}
        lies = fields["lies"] if isinstance(fields["lies"], list) else [None]
        arguments["lies"] = tuple(_numbers(lie, "attack.lies", -1, 1001) for lie in lies)
    for name in ("keys", "steps", "gap"):
        if name in fields:
            (arguments[name],) = _numbers([fields[name]], f"attack.{name}", 1, 256)
    return Attack(**arguments, again=fields.get("again") is True)


def _part(value: Any, name: str, fields: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != fields:
        raise BadInput(f"must have the fields {', '.join(sorted(fields))}, and no others", field=name)
    return value


def _numbers(values: Any, name: str, least: int, most: int) -> tuple[int, ...]:
    whole = isinstance(values, list) and all(type(value) is int and least <= value <= most for value in values)
    if not whole or (not values and name != "attack.members"):
        raise BadInput(f"is not made of whole numbers from {least} to {most}", field=name)
    return tuple(values)
