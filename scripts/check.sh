#!/usr/bin/env bash
# Runs all checks before a commit.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
usage: scripts/check.sh [--fix] [--all] [--asan] [--tsan]
Checks format, includes and scripts, builds, runs clang-tidy and then the tests. The tools come with scripts/setup.sh --dev.
  --fix    write the format instead of checking it
  --all    clang-tidy on every source, not only on those changed since HEAD
  --asan   afterwards also the unit tests under the address and undefined behaviour sanitizers
  --tsan   afterwards also the unit tests under the thread sanitizer
TEXT
}

fix=() all=false sanitizers=()
for argument in "$@"; do
  case "$argument" in
    --fix) fix=(--fix) ;;
    --all) all=true ;;
    --asan) sanitizers+=(asan) ;;
    --tsan) sanitizers+=(tsan) ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "check: unknown argument '$argument'" >&2; exit 2 ;;
  esac
done

# Prints the files to lint, each terminated by NUL: all files, or those changed since HEAD.
files_to_lint() (
  cd "$root"
  if $all; then
    find src models datasets -name '*.cpp' -print0
  else
    git diff --name-only -z HEAD -- src models datasets
    git ls-files -z --others --exclude-standard -- src models datasets
  fi
)

# For a changed header, the source of the same name is linted.
lint() {
  local lint source
  lint="$(build_folder)/lint"
  # gcc's precompiled header is disabled, because clang cannot read it.
  (cd "$root" && cmake --preset dev -B "$lint" -D CMAKE_DISABLE_PRECOMPILE_HEADERS=ON && ninja -C "$lint" trainer_git_revision) >/dev/null
  files_to_lint | sed -zn 's/\.h$/.cpp/; /\.cpp$/p' | sort -zu | while IFS= read -r -d '' source; do
    # Skips sources that this build does not have: the CUDA module, for example, needs CUDA's headers.
    if grep -qF "\"file\": \"$root/$source\"" "$lint/compile_commands.json"; then printf '%s\0' "$root/$source"; fi
  done | xargs -0 -r -n 1 -P "$(num_build_jobs)" clang-tidy --quiet -p "$lint" \
    2> >(grep -v ' warnings generated\.$' >&2)
}

stage set-up set_up --dev
stage format check_format "${fix[@]}"
stage includes check_includes
stage scripts check_scripts
stage configure configure
stage build build_targets
stage clang-tidy lint
stage tests run_tests
for sanitizer in "${sanitizers[@]}"; do "$root/scripts/sanitize.sh" "$sanitizer"; done
