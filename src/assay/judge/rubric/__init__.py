"""The rubric judge: a model answers, `settle` computes. SPEC 2.3.

    bounty + problem + solution ─questions─▶ frames ─service─▶ reply ─course─▶ judgement, transcript

- `shown`, `frame`: what others wrote, as a model is shown it; `detect`: signs that it speaks to the judge.
- `questions`, `prompts`: the three phases as requests; `reply`: answers, read strictly.
- `course`: which question comes next, without a network; `asking` leads a service through it, `transcript` a replay.
- `model`, `service`, `completion`: the OpenAI-compatible service; `scripted`: one whose answers are written beforehand.
- `judgement`: the result, its document and its record; `limits`: every bound.
"""
