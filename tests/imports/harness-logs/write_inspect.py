"""Writes the logs in `inspect/`, with Inspect AI itself and its mock model: python write_inspect.py FOLDER.

Needs `inspect-ai` (0.3.285 wrote those that are kept), which the project does not: run it in an environment of its own.
"""
# mypy: ignore-errors

import sys
from pathlib import Path

from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, match, mean, scorer
from inspect_ai.solver import solver

DATA = [Sample(id=name, input="What is it?", target="yes") for name in (1, 2, "the third", 4)]


@scorer(metrics=[mean()])
def share():
    """A score between 0 and 1."""

    async def score(state, target):
        return Score(value={1: 0.25, 2: 0.5}.get(state.sample_id, 1.0))

    return score


@solver
def answering(model, wrong=(), broken=()):
    """Answers yes but for the samples in `wrong`; a sandbox breaks for those in `broken`, given as (sample, epoch)."""

    async def solve(state, generate):
        if (state.sample_id, state.epoch) in broken:
            raise RuntimeError("the sandbox broke")
        state.output = ModelOutput.from_content(model, "no" if state.sample_id in wrong else "yes")
        state.completed = True
        return state

    return solve


@solver
def talking():
    """Talks until a limit ends it."""

    async def solve(state, generate):
        while True:
            state = await generate(state)

    return solve


def mock(name):
    """The mock model under a name, whose answers cost one token."""
    output = ModelOutput.from_content(name, "no")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return get_model(f"mockllm/{name}", custom_outputs=[output] * 40, memoize=False)


def main(place: Path) -> None:
    """One log of two epochs for each of two models, in both formats, and one that ran into a limit."""

    def log(name, model, solver, folder="board", scorer=None, **more):
        task = Task(dataset=DATA, solver=solver, scorer=scorer or match(), name=name)
        quiet = {"display": "none", "fail_on_error": False, "log_model_api": False, "log_samples": True}
        evaluate(task, model=mock(model), log_dir=str(place / folder), **quiet, **more)

    log("reading", "small", answering("small", wrong=(2, 4), broken=((1, 2),)), epochs=2, log_format="eval")
    log("reading", "large", answering("large", wrong=(4,)), epochs=2, log_format="json")
    log("limited", "small", talking(), folder="limited", message_limit=4, limit=2)
    log("shares", "small", answering("small"), folder="shares", scorer=[share(), match()])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
