# shellcheck shell=bash
# Sourced by the other scripts: timed stages, and the steps of a build, which print to stderr; stdout is for the program's output.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case "$root" in
  *[\$\`\"\;\\\#]* | *$'\n'*)
    printf '%s\n' "the folder $root has a name that CMake and ccache do not handle: move it to a path without \$ \` \" ; \\ # and line breaks" >&2
    exit 2
    ;;
esac
preset=release
if [ "${CI:-}" = true ]; then preset=ci; fi
if [ -n "${TRAINER_TORCH_DIR:-}" ]; then TRAINER_TORCH_DIR=$(realpath -m -- "$TRAINER_TORCH_DIR") && export TRAINER_TORCH_DIR; fi

# The packages of libraries; the second list only for a build that reads image files.
# shellcheck disable=SC2034  # used by the scripts that source this file
library_packages=(libspdlog-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev libcurl4-openssl-dev libssl-dev libarchive-dev zlib1g-dev
  libgtest-dev libgmock-dev libgloo-dev libdeflate-dev libhwy-dev liblmdb-dev)
# shellcheck disable=SC2034
image_packages=(libjpeg-dev libtiff-dev libopencv-core-dev libopencv-imgproc-dev libopencv-imgcodecs-dev)

# Stages shorter than this many seconds are not reported.
quiet_below=0

# stage NAME COMMAND...: runs the command and prints its time. A failure ends the script and prints the stage's name. A script may redefine
# on_exit to clean up.
stage() {
  local start=$SECONDS
  current_stage=$1
  shift
  "$@"
  if [ $((SECONDS - start)) -ge "$quiet_below" ]; then printf '== %s: %d s\n' "$current_stage" $((SECONDS - start)) >&2; fi
  current_stage=
}
on_exit() { :; }
trap 'status=$?; on_exit; if [ "$status" -ne 0 ] && [ -n "${current_stage:-}" ]; then echo "== $current_stage: failed" >&2; fi' EXIT

set_up() { "$root/scripts/setup.sh" "$@"; }

# Waits until no other set-up or build of this checkout runs. Others then wait until unlock_checkout is called, or until this shell and the
# programs that it has started have ended. Does nothing in a checkout that cannot be written to.
lock_checkout() {
  if ! [ -w "$root/.deps" ]; then return; fi
  exec {checkout_lock}>"$root/.deps/lock"
  if flock --nonblock "$checkout_lock"; then return; fi
  echo "waiting for another set-up or build in $root" >&2
  flock "$checkout_lock"
}
unlock_checkout() {
  if [ -n "${checkout_lock:-}" ]; then exec {checkout_lock}>&-; fi
}

# Prints the versions of LibTorch that the project is tested with, oldest first.
libtorch_versions() { (cd "$root/scripts/requirements" && printf '%s\n' libtorch-* | sed 's/libtorch-//' | sort -V); }

torch_folder() { realpath -m -- "${TRAINER_TORCH_DIR:-$root/.deps/torch}"; }

# Prints the version of the LibTorch that is used, such as 2.15.0.
torch_version() { sed -n 's/^ *set(PACKAGE_VERSION "\([0-9.]*\).*/\1/p' "$(torch_folder)/share/cmake/Torch/TorchConfigVersion.cmake"; }

build_folder() { echo "$root/build/$preset"; }

# One compiler process with LibTorch's headers needs up to 3 GB.
num_build_jobs() {
  local cores by_memory
  cores=$(nproc)
  by_memory=$(awk '/^MemAvailable:/ { print int($2 / (3 * 1024 * 1024)) }' /proc/meminfo)
  if [ "$by_memory" -lt 1 ]; then by_memory=1; fi
  echo "${CMAKE_BUILD_PARALLEL_LEVEL:-$((cores < by_memory ? cores : by_memory))}"
}

# Runs cmake only if there is no build folder yet, or if the installed packages or the options have changed.
configure() {
  local build options settings
  build=$(build_folder)
  options=(-D "TRAINER_WITH_OPENCV=${TRAINER_WITH_OPENCV:-ON}" -D "TRAINER_TORCH_DIR=${TRAINER_TORCH_DIR:-}")
  settings="${options[*]} $(cd "$root/.deps/done" && echo *)"
  if [ -e "$build/build.ninja" ] && [ "$settings" = "$(cat "$build/settings" 2>/dev/null)" ]; then return; fi
  lock_checkout
  (cd "$root" && cmake --preset "$preset" -U 'TRAINER_CUDA_*' -U 'TRAINER_OPENCV_*' "${options[@]}") >&2
  echo "$settings" >"$build/settings"
  unlock_checkout
}

# build_targets [TARGET...]: builds the targets; without any, everything. If this shell is killed, ninja and its compilers end too.
build_targets() {
  lock_checkout
  setpriv --pdeathsig TERM ninja -C "$(build_folder)" -j "$(num_build_jobs)" "${ninja_options[@]}" "$@" >&2
  unlock_checkout
}
ninja_options=()

# run_tests [CTEST ARGUMENT...]: runs the tests and lists the ten slowest.
run_tests() {
  local build status=0
  build=$(build_folder)
  ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)" \
    --output-junit "$build/tests.xml" "$@" || status=$?
  if [ -e "$build/tests.xml" ]; then
    echo "slowest tests:"
    sed -n 's/.*<testcase name="\([^"]*\)".* time="\([0-9.]*\)".*/\2 \1/p' "$build/tests.xml" | sort -rn |
      awk 'NR <= 10 { printf "%8.2f s  %s\n", $1, $2 }'
  fi
  return "$status"
}

# Prints the C++ files of the project, each terminated by NUL.
cpp_files() {
  (cd "$root" && find examples include src models datasets tests bench \( -name '*.cpp' -o -name '*.h' \) -print0 | sort -z)
}

# check_format [--fix]
check_format() {
  local mode=(--dry-run --Werror)
  if [ "${1:-}" = --fix ]; then mode=(-i); fi
  cpp_files | (cd "$root" && xargs -0 -r clang-format "${mode[@]}") || {
    echo "scripts/check.sh --fix corrects the format" >&2
    return 1
  }
}

check_includes() { "$root/scripts/check_includes.py"; }

check_scripts() { (cd "$root" && shellcheck -x .ci/run scripts/*.sh scripts/bundle/*.sh scripts/gpu_kit/*.sh scripts/slurm/*.sbatch docker/*.sh); }

# Writes the API reference of the library; fails on a warning.
check_api() { (cd "$root" && mkdir -p build && doxygen docs/Doxyfile); }

# Prints the Debian mirror of this machine's apt, or nothing on another system, where debootstrap uses its default.
debian_mirror() {
  # shellcheck disable=SC2016  # a variable of apt
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | awk '/^https?:/ && !found++'
}

# distribution_libraries FILE...: prints name and path of every library of this distribution that the files need. Omits the libraries
# of the compiler and the C library, which every system has.
distribution_libraries() {
  local file
  for file; do ldd "$file"; done | sed -n 's|^\s*\(\S*\) => \(/\(usr/\)\?lib/\S*\) .*|\1 \2|p' | sort -u |
    grep -vE '^(libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|ld-linux[^ ]*|libstdc\+\+|libgcc_s)\.so'
}
