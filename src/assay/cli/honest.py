"""Tables of `assay scheme honest` and `assay scheme check`: how often honest validators are left out by chance, and liars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.cli.show import Column, grid, heading, sentence
from assay.exact import NANO, text
from assay.rules import honest
from assay.settle.story.telling import plural

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.scheme.model import Consensus, Scheme

__all__ = ["TASKS", "VALIDATORS", "HonestQuestion", "document", "in_a_sentence", "summary", "tables"]

TASKS, VALIDATORS = 80, 5
"""The tasks and validators that are assumed for a scheme without a folder: those of the seeds."""
SCHEMA = "assay.honest/1"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HonestQuestion:
    """A scheme with a number of trials, of validators with equal stake, and the seed of the draws."""

    scheme: Scheme
    trials: int
    validators: int
    seed: int

    def rules(self) -> dict[str, Consensus]:
        """Name → rules: the seeds' literal rule, noise, noise with a floor of one trial; first the scheme's, if it is another."""
        own = self.scheme.consensus
        noise = honest.noisy(own, True)
        floor = max(noise.outliers.mad_floor, -(-NANO // self.trials))
        floored = noise.model_copy(update={"outliers": noise.outliers.model_copy(update={"mad_floor": floor})})
        variants = {
            "the seeds' rule": honest.noisy(own, False),
            'scale = "noise"': noise,
            f'noise, mad_floor = "{text(floor)}"': floored,
        }
        return variants if own in variants.values() else {"this scheme": own} | variants


def summary(asked: HonestQuestion) -> Json:
    """The least and the largest share of participant-epochs that lose an honest validator under the scheme's own rule."""
    entries = honest.exclusions(asked.scheme.consensus, asked.trials, asked.validators, seed=asked.seed)
    shares = [entry.share for entry in entries]
    rates = f"{entries[0].rate:.0%} to {entries[-1].rate:.0%}"
    return _asked(asked) | {"rates": rates, "least": percent(min(shares)), "most": percent(max(shares))}


def in_a_sentence(facts: Json) -> str:
    """The summary for people."""
    between = facts["most"] if facts["least"] == facts["most"] else f"{facts['least']} to {facts['most']}"
    return (
        f"By chance alone, at least one honest validator is left out as an outlier for {between} of the participants in "
        f"an epoch ({plural(facts['trials'], 'trial')}, {facts['validators']} validators; `assay scheme honest` has more)."
    )


def document(asked: HonestQuestion) -> Json:
    """The tables for programs. Shares are floats that were rounded for the reader."""
    rules, trials = asked.rules(), asked.trials
    exclusions = {
        name: {
            f"{entry.rate:.0%}": percent(entry.share)
            for entry in honest.exclusions(of, trials, asked.validators, seed=asked.seed)
        }
        for name, of in rules.items()
    }
    power = {
        name: [
            {"validators": validators, "standard_errors": lie, "left_out": percent(share)}
            for (validators, lie), share in honest.power(of, trials, seed=asked.seed).items()
        ]
        for name, of in rules.items()
    }
    return {"schema": SCHEMA} | _asked(asked) | {"exclusions": exclusions, "power": power}


def _asked(asked: HonestQuestion) -> Json:
    return {"trials": asked.trials, "validators": asked.validators, "seed": asked.seed, "samples": honest.SAMPLES}


def tables(asked: HonestQuestion) -> Iterator[RenderableType]:
    """Two tables with a heading and a sentence each."""
    facts = document(asked)
    yield heading("Honest validators that are left out")
    yield sentence(
        f"All {asked.validators} validators are honest, have the same stake, and see {plural(asked.trials, 'trial')} of the same "
        f"agent. In this part of {honest.SAMPLES} participant-epochs (seed {asked.seed}) at least one of them is left out, by "
        "how often a trial passes. These shares, unlike all that decides money, are binary floats."
    )
    rows = facts["exclusions"]
    yield grid(
        [
            Column("rule", [*rows]),
            *(
                Column(rate.replace("%", " %"), [shares[rate] for shares in rows.values()], right=True)
                for rate in next(iter(rows.values()))
            ),
        ]
    )
    yield ""
    yield heading("A validator that lies")
    yield sentence(
        "One validator adds so many standard errors to what it saw (a score is at most 1), the others are honest; 60 % of trials "
        "pass. So often it is left out:"
    )
    power = {
        name: {(row["validators"], row["standard_errors"]): row["left_out"] for row in of} for name, of in facts["power"].items()
    }
    yield grid(
        [
            Column("rule", [name for name in power for _ in honest.VALIDATORS]),
            Column("validators", [str(number) for _ in power for number in honest.VALIDATORS], right=True),
            *(
                Column(f"+{lie}", [of[number, lie] for of in power.values() for number in honest.VALIDATORS], right=True)
                for lie in honest.LIES
            ),
        ]
    )


def percent(share: float) -> str:
    """A share for the reader."""
    return f"{share * 100:.1f} %"
