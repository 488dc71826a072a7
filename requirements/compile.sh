#!/usr/bin/env bash
# Compile the pinned, hashed requirement files from pyproject.toml: requirements/compile.sh [uv's own flags, such as --upgrade]
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.tools/bin/uv}
compile() { # OUT, then what to include
  local out=$1
  shift
  "$uv" pip compile pyproject.toml "$@" --python-version 3.12 --generate-hashes --no-emit-index-url --no-emit-find-links \
    --custom-compile-command "requirements/compile.sh" --quiet --output-file "requirements/$out.txt"
}
compile gpu --extra gpu --group build "$@"
{ # SGLang alone, for tests that read its config class
  echo "# SGLang without what it needs, for tests that load its config class: requirements/compile.sh"
  awk '/^sglang==/ { on = 1 } on && !/^ *#/ { print } on && !/\\$/ { exit }' requirements/gpu.txt
} >requirements/sglang.txt
compile dev --extra train --group build --group dev --constraint requirements/gpu.txt "$@"
compile bench --extra train --group build --group dev --group bench --constraint requirements/dev.txt "$@"
compile train --extra train --group build --constraint requirements/dev.txt "$@"
compile head --group build --constraint requirements/dev.txt "$@"
echo "uv==$("$uv" --version | cut -d' ' -f2)" |
  "$uv" pip compile - --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
    --custom-compile-command "requirements/compile.sh" --quiet --output-file requirements/uv.txt
