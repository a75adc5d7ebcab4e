#!/usr/bin/env bash
# Makes an archive of the program and all that it needs, for Linux systems other than the one that it is built on.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
limit_mb=250
torch=$(torch_folder)
# The newest symbol versions that Ubuntu 22.04 has.
declare -A limits=([GLIBC]=2.35 [GLIBCXX]=3.4.30 [CXXABI]=1.3.13 [GCC]=12.0.0)

usage() {
  cat <<'TEXT'
usage: scripts/bundle.sh [--cuda] [--output FOLDER] [--level N]
  --cuda           for NVIDIA GPUs, without LibTorch and NVIDIA's libraries, which the program loads from a torch package; also as a
                   Python wheel
  --output FOLDER  the folder for the archive; default: build/bundle
  --level N        zstd's compression level, 1 to 19; default: 19, which takes minutes
Build the bundle on Debian 12: a program that is built on a newer system needs a newer C library.
TEXT
}

fail() { echo "bundle: $*" >&2; exit 1; }
output="$root/build/bundle" cuda=false level=19
while [ "$#" -gt 0 ]; do
  case "$1" in
    --cuda) cuda=true ;;
    --output) output=$(realpath -m -- "${2:?--output needs a folder}") && shift ;;
    --level) level=${2:?--level needs a number} && shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "bundle: unknown argument '$1'" >&2; exit 2 ;;
  esac
  shift
done
# With --cuda, the folder of LibTorch's libraries, which are then not in the bundle.
torch_path=
if $cuda; then torch_path=$torch/lib; fi
version=$(sed -n 's/.*define TRAINER_VERSION "\(.*\)"/\1/p' "$root/include/trainer/version.h")
name=trainer-$version-linux-x86_64-$(if $cuda; then echo cuda; else echo cpu; fi)
system=lib/trainer/system
licences=share/doc/trainer/licences
images=lib/trainer/libtrainer_images.so
# Debian's OpenCV and libtiff also read maps (GDAL), medical images (GDCM) and faxes (JBIG). That needs a hundred further libraries, of
# which some need a newer C library than Ubuntu 22.04 has, and some are under the GPL. Because trainer refuses such files before it calls
# OpenCV or libtiff, the bundle replaces GDAL, GDCM and JBIG by libraries of the same names whose functions do nothing.
unused='^lib(gdal|gdcmDSED|gdcmMSFF|jbig)\.so'
# The packages whose code is compiled into the program.
compiled_in=(libarchive-dev libcli11-dev libgloo-dev libhwy-dev libspdlog-dev nlohmann-json3-dev)

# Installs the program; with --cuda copies the CUDA module from the build, because the component cuda would also install NVIDIA's libraries.
install_program() {
  cmake --install "$(build_folder)" --prefix "$PWD" --component trainer --strip >/dev/null
  # LibTorch's folder on this machine; a program that links libtrainer names its own.
  sed -i 's/^torch=.*/torch=/' lib/pkgconfig/trainer.pc
  ln -s share/trainer/configs share/trainer/datasets share/doc/trainer/README.md share/doc/trainer/docs .
  if ! $cuda; then return; fi
  rm -rf lib/trainer/{torch,nvidia} "$licences"/{torch,nvidia}*
  local module runtime
  module="$(build_folder)/bin/libtrainer_cuda.so"
  [ -e "$module" ] || fail "this build has no CUDA module; cmake $(build_folder) prints the reason"
  install --strip "$module" lib/trainer/
  # Overwrites the path by which the module found LibTorch in the build; --remove-rpath would leave its text in the file.
  # shellcheck disable=SC2016  # expanded by the loader
  patchelf --set-rpath '$ORIGIN' lib/trainer/libtrainer_cuda.so
  mkdir libexec
  mv bin/trainer libexec/
  runtime=$(objdump -p "$torch/lib/libc10_cuda.so" | sed -n 's/^ *NEEDED *\(libcudart\.so\.[0-9]*\)$/\1/p')
  sed "s/@TORCH_VERSION@/$(torch_version | cut -d . -f 1,2)/; s/@CUDA_RUNTIME@/$runtime/" "$root/scripts/bundle/trainer.sh" >bin/trainer
  chmod 755 bin/trainer
}

# The program and its own libraries.
own_files() {
  if $cuda; then echo libexec/trainer; else echo bin/trainer; fi
  find lib -maxdepth 2 -type f -name 'libtrainer*.so*'
}

# DT_RPATH (--force-rpath) also applies to the libraries that these libraries need, and precedes LD_LIBRARY_PATH.
set_run_paths() {
  local file own
  own_files | while read -r file; do
    own=$(patchelf --print-rpath "$file")
    case ":$own" in *:/*) fail "$file searches libraries in folders of this machine: $own" ;; esac
    # shellcheck disable=SC2016  # expanded by the loader
    patchelf --force-rpath --set-rpath "${own:+$own:}"'$ORIGIN/'"$(realpath -m --relative-to "$(dirname "$file")" "$system")" "$file"
  done
}

symbols() { nm -D "$@" | awk 'NF > 1 { sub(/@.*/, "", $NF); print $NF }' | sort -u; }

replace_unused() {
  if ! [ -e "$images" ]; then return; fi
  local library path users
  mapfile -t users < <(distribution_libraries "$images" | awk '$1 ~ /^lib(opencv_imgcodecs|tiff)\./ { print $2 }')
  while read -r library path; do
    comm -12 <(symbols --undefined-only "${users[@]}") <(symbols --defined-only "$path") | sed 's/.*/void &(void) {}/' |
      cc -x c - -shared -nostdlib -s -Wl,-soname,"$library" -o "$system/$library"
  done < <(distribution_libraries "$images" | grep -E "$unused")
}

copy_libraries() {
  local library path files
  mapfile -t files < <(own_files)
  LD_LIBRARY_PATH=$torch_path distribution_libraries "${files[@]}" | while read -r library path; do
    cp -L "$path" "$system/$library"
  done
}

copy_licences() {
  local package
  mkdir -p "$licences/debian" "$licences/uPlot"
  cp "$root/third_party/uPlot/LICENSE" "$licences/uPlot/"
  cp -rL /usr/share/common-licenses "$licences/debian/"
  "$root/scripts/bundle/bill_of_materials.py" "$PWD" "$version" "$torch" "${compiled_in[@]}" | while read -r package; do
    cp -L "/usr/share/doc/$package/copyright" "$licences/debian/$package" || fail "the licence of the package $package is missing: /usr/share/doc/$package/copyright"
  done
}

# All libraries must be in the bundle, except those of the C library and the compiler, and with --cuda those of the torch package.
check_libraries() {
  local file strange packages=
  if $cuda; then packages=$(dirname "$torch")/; fi
  strange=$(own_files | while read -r file; do LD_LIBRARY_PATH=$torch_path ldd "$file"; done |
    awk -v bundle="$PWD/" -v packages="$packages" '
      $2 == "=>" && index($3, bundle) != 1 && (packages == "" || index($3, packages) != 1) &&
      $1 !~ /^(libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libstdc\+\+|libgcc_s)\.so/ && $1 != "libcuda.so.1"' | sort -u)
  [ -z "$strange" ] || fail "these libraries are not in the bundle: $strange"
}

# highest NAME: prints the highest symbol version with that name, such as GLIBC, that any file of the bundle needs.
highest() { sed -n "s/^$1_\([0-9.]*\)$/\1/p" "$work/versions" | sort -V | tail -n 1; }

check_floors() {
  local family needed
  { own_files; find lib -type f -name '*.so*'; } | xargs objdump -p | sed -n '/^Version References:/,/^$/s/^ *0x\S* 0x\S* [0-9]* //p' | sort -u >"$work/versions"
  for family in "${!limits[@]}"; do
    needed=$(highest "$family")
    if [ "$(printf '%s\n' "$needed" "${limits[$family]}" | sort -V | tail -n 1)" != "${limits[$family]}" ]; then
      fail "a file of the bundle needs ${family}_$needed, and Ubuntu 22.04 has only ${family}_${limits[$family]}; build the bundle on Debian 12"
    fi
  done
  # Packed relocations need glibc 2.36, which only this version name shows.
  if grep -q GLIBC_ABI_DT_RELR "$work/versions"; then fail "a file of the bundle has packed relocations, which Ubuntu 22.04 cannot read; build the bundle on Debian 12"; fi
}

compress() {
  tar --directory "$work" --owner=0 --group=0 --sort=name --mtime="@$(git -C "$root" log -1 --format=%ct)" -cf - "$name" |
    zstd -q -T0 --long=27 "-$level" -f -o "$output/$name.tar.zst"
}

make_bundle() {
  mkdir -p "$work/$name"
  cd "$work/$name"
  install_program
  mkdir "$system"
  replace_unused
  set_run_paths
  copy_libraries
  copy_licences
}

check_bundle() { (cd "$work/$name" && check_libraries && check_floors); }

work=$(mktemp -d "${TMPDIR:-/tmp}/trainer-bundle-XXXXXX")
on_exit() { rm -rf --one-file-system "$work"; }
with_cuda=()
if $cuda; then with_cuda=(--cuda); fi
stage set-up set_up "${with_cuda[@]}"
for program in patchelf zstd; do
  command -v "$program" >/dev/null || fail "$program is missing; install it with: apt-get install $program"
done
stage configure configure
stage build build_targets trainer trainer_predict_library
stage collect make_bundle
stage check check_bundle
mkdir -p "$output"
stage compress compress
if $cuda; then stage wheel "$root/scripts/bundle/wheel.py" "$work/$name" "$version" "$(torch_version | cut -d . -f 1,2)" "${limits[GLIBC]}" "$output"; fi
megabytes() { awk '{ printf "%.0f", $1 / 1e6 }'; }
size=$(stat -c %s "$output/$name.tar.zst" | megabytes)
[ "$size" -le "$limit_mb" ] || fail "$output/$name.tar.zst has $size MB, more than the limit of $limit_mb MB (limit_mb in scripts/bundle.sh)"
printf '%s: %s MB, %s MB unpacked; needs glibc %s and libstdc++ with GLIBCXX_%s\n' "$output/$name.tar.zst" "$size" \
  "$(du -s --bytes "$work/$name" | megabytes)" "$(highest GLIBC)" "$(highest GLIBCXX)"
