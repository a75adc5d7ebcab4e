#!/usr/bin/env bash
# Runs all checks before a commit.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
usage: scripts/check.sh [--fix] [--all]
Checks format, includes and scripts, builds, runs clang-tidy and then the tests. The tools come with scripts/setup.sh --dev.
  --fix    write the format instead of checking it
  --all    also what takes hours: clang-tidy on every source, not only on those changed since HEAD; a build of each source by
           itself without the precompiled header; the unit tests under the address and undefined behaviour sanitizers; those
           with several threads (loader, savers of checkpoints, supervision, shared memory) under the thread sanitizer; a
           minute of each fuzzer; with the oldest LibTorch, in build/oldest, the unit, parity and fake_gpu tests; and two bundles
           of the same commit, built in two folders, which must be equal
TEXT
}

fix=() all=false
for argument in "$@"; do
  case "$argument" in
    --fix) fix=(--fix) ;;
    --all) all=true ;;
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

lint=$root/build/lint

# For a changed header, the source of the same name is linted.
lint() {
  local source
  # gcc's precompiled header is disabled, because clang cannot read it.
  (cd "$root" && cmake --preset dev -B "$lint" -D CMAKE_DISABLE_PRECOMPILE_HEADERS=ON && ninja -C "$lint" trainer_git_revision) >/dev/null
  files_to_lint | sed -zn 's/\.h$/.cpp/; /\.cpp$/p' | sort -zu | while IFS= read -r -d '' source; do
    # Skips sources that this build does not have: the CUDA module, for example, needs CUDA's headers.
    if grep -qF "\"file\": \"$root/$source\"" "$lint/compile_commands.json"; then printf '%s\0' "$root/$source"; fi
  done | xargs -0 -r -n 1 -P "$(num_build_jobs)" clang-tidy --quiet -p "$lint" \
    2> >(grep -v ' warnings generated\.$' >&2)
}

# Tests the committed state with the oldest LibTorch.
test_oldest_libtorch() {
  local clone=$root/build/oldest version
  version=$(libtorch_versions | head -n 1)
  rm -rf "$clone"
  git clone --quiet "$root" "$clone"
  TRAINER_LIBTORCH=$version "$clone/scripts/test.sh" --parity -L 'unit|parity|fake_gpu'
}

# Builds bundles of the committed state in two folders, whose paths also differ in length, without reusing object files.
compare_bundles() {
  local folder kind
  rm -rf "$root/build/bundles"
  for folder in one another; do
    git clone --quiet "$root" "$root/build/bundles/$folder"
    for kind in "" --cuda; do CCACHE_DISABLE=1 "$root/build/bundles/$folder/scripts/bundle.sh" --level 1 ${kind:+"$kind"}; done
  done
  diff -r "$root"/build/bundles/{one,another}/build/bundle
}

stage set-up set_up --dev
stage format check_format "${fix[@]}"
stage includes check_includes
stage scripts check_scripts
stage configure configure
stage build build_targets
stage clang-tidy lint
stage tests run_tests
if $all; then
  stage "build without unity and precompiled header" ninja -C "$lint" -j "$(num_build_jobs)"
  "$root/scripts/sanitize.sh" asan
  "$root/scripts/sanitize.sh" tsan data engine checkpoint distributed supervision
  for reader in pytorch_file safetensors; do "$root/scripts/fuzz.sh" "$reader" 60; done
  stage "oldest LibTorch" test_oldest_libtorch
  stage "equal bundles" compare_bundles
fi
