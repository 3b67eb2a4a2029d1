#!/usr/bin/env bash
# Writes samples and results with lm-evaluation-harness itself and its dummy model: write_lm_eval.sh LM_EVAL FOLDER
# Needs `lm-eval` (0.4.13 wrote those that are kept), which the project does not: install it in an environment of its own.
set -euo pipefail
lm_eval=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/lm-eval-task"
for model in one two; do
  HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME=$out.cache "$lm_eval" --model dummy --model_args "pretrained=$model" \
    --include_path . --tasks tiny_choice --output_path "$out" --log_samples
done
