#!/bin/sh
# Starts trainer with LibTorch and NVIDIA's libraries from a torch package.
set -eu
wanted=@TORCH_VERSION@
runtime=@CUDA_RUNTIME@

fail() {
  echo "trainer: $*" >&2
  exit 2
}

bundle=$(dirname "$(dirname "$(readlink -f "$0")")")
torch=${TRAINER_TORCH_DIR:-}
if [ -z "$torch" ]; then
  python=python3
  command -v python3 >/dev/null || python=python
  # Finds the package without importing it. A folder "torch" in the current folder is ignored.
  torch=$("$python" -c '
import importlib.util, sys
sys.path = [folder for folder in sys.path if folder]
package = importlib.util.find_spec("torch")
print(package.submodule_search_locations[0] if package and package.submodule_search_locations else "")' 2>/dev/null) || torch=
  [ -n "$torch" ] || fail "this bundle needs the libraries of a torch package, but none was found; activate a Python" \
    "environment that has one (pip install 'torch==$wanted.*'), or set TRAINER_TORCH_DIR to the package's folder"
fi
found=$(sed -n 's/^ *set(PACKAGE_VERSION "\([0-9.]*\).*/\1/p' "$torch/share/cmake/Torch/TorchConfigVersion.cmake" 2>/dev/null) || found=
[ -n "$found" ] || fail "$torch is not the folder of a torch package; set TRAINER_TORCH_DIR to one with LibTorch $wanted"
case "$found" in
  "$wanted".*) ;;
  *) fail "$torch has LibTorch $found, but this bundle was built for $wanted; set TRAINER_TORCH_DIR to a torch package of that version" \
    "(pip install 'torch==$wanted.*')" ;;
esac
cuda=$torch/lib/libc10_cuda.so
[ ! -e "$cuda" ] || grep -q "$runtime" "$cuda" || fail "the torch package in $torch is for another CUDA; install one with $runtime, or one for CPUs"

torch=$(readlink -f "$torch")
# The package's folders come first, because a cuDNN of the system could otherwise be mixed with the package's libraries.
paths=$torch/lib
for folder in "$torch"/../nvidia/*/lib; do
  if [ -d "$folder" ]; then paths=$paths:$folder; fi
done
LD_LIBRARY_PATH=$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$bundle/libexec/trainer" "$@"
