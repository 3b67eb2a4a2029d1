"""The rubric judge: a model answers, `settle` computes. SPEC 2.3."""
