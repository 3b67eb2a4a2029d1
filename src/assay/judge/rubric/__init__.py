"""The rubric judge: a model answers questions about a solution, and `settle` computes the score from the answers. SPEC 2.3.

    bounty + problem + solution ─questions─▶ frames ─service─▶ reply ─conversation─▶ judgement, transcript

- `solution`: the files that a participant hands in. `questions`: the three phases as requests, with untrusted text in frames.
- `injections`: signs that a solution speaks to its judge. `reply`: a model's answers, read strictly.
- `conversation`: which question comes next, without a network; `asking` sends the questions to a service, `replay` repeats a
  conversation from its transcript.
- `service`: an OpenAI-compatible service. `scripted`, `scripted_server`: a service whose answers are written beforehand.
- `judgement`: the result, its document and its record, and every bound. `stored`: the files. `run`: a validator's run.
"""
