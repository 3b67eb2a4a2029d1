#!/bin/sh
# Builds an image's environment: build.sh SOURCE TARGET [EXTRA...], with uv and hatchling (build.txt) on the PATH. Without extras it
# is the enclave's: llm and tee.
#
# Everything that is installed is a wheel whose hash stands in uv.lock; Assay itself is a wheel made from SOURCE. Nothing of the
# clock, of the machine or of the place of SOURCE is left in TARGET: two builds with the same SOURCE_DATE_EPOCH are the same bytes.
set -eu

source=$1
target=$2
shift 2
[ "$#" -gt 0 ] || set -- llm tee
extras=
for extra in "$@"; do extras="$extras --extra $extra"; done
: "${SOURCE_DATE_EPOCH:?}"
export SOURCE_DATE_EPOCH PYTHONDONTWRITEBYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_NO_CACHE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$source"
# shellcheck disable=SC2086  # several words
uv export --quiet --frozen --no-dev --no-emit-project --no-header $extras --output-file "$work/requirements.txt" >/dev/null
uv venv --quiet --python "${PYTHON:-$(command -v python3.11)}" "$target"
uv pip install --quiet --python "$target/bin/python" --require-hashes --no-build --no-compile-bytecode --requirements "$work/requirements.txt"
uv build --quiet --wheel --no-build-isolation --out-dir "$work/dist" .
uv pip install --quiet --python "$target/bin/python" --no-deps --no-index --no-compile-bytecode "$work"/dist/*.whl

# uv notes where a wheel came from and when; Python does not need to know.
for noted in "$target"/lib/python3.11/site-packages/assay-*.dist-info; do
  rm -f "$noted/direct_url.json" "$noted/uv_cache.json"
  sed -i '/direct_url\.json/d; /uv_cache\.json/d' "$noted/RECORD"
done
rm -f "$target/.lock" "$target/.gitignore" "$target/CACHEDIR.TAG"
find "$target" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
