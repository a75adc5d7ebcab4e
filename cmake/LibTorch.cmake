# Imported targets for LibTorch, defined here because Torch's package file fails for a CUDA wheel without a matching nvcc.
#   torch::cpu    libtorch_cpu and libc10
#   torch::openmp LibTorch's OpenMP library; sources that call at::parallel_for need the compiler's flag -fopenmp too
#   torch::cuda   libtorch_cuda, libc10_cuda and the CUDA headers; only if all of them are found

if(NOT TRAINER_TORCH_DIR AND DEFINED ENV{TRAINER_TORCH_DIR})
  set(TRAINER_TORCH_DIR "$ENV{TRAINER_TORCH_DIR}" CACHE PATH "" FORCE)
endif()
set(_torch "${TRAINER_TORCH_DIR}")
if(NOT _torch)
  set(_torch "${CMAKE_SOURCE_DIR}/.deps/torch")
endif()
file(REAL_PATH "${_torch}" _torch)
foreach(_file lib/libtorch_cpu.so lib/libc10.so include/torch/csrc/api/include/torch/torch.h)
  if(NOT EXISTS "${_torch}/${_file}")
    message(FATAL_ERROR "No LibTorch in ${_torch} (${_file} is missing). Run scripts/setup.sh, or set TRAINER_TORCH_DIR to a folder with LibTorch's lib/ and include/.")
  endif()
endforeach()
message(STATUS "LibTorch: ${_torch}")
set(TRAINER_TORCH_LIBRARY_DIR "${_torch}/lib")

add_library(torch::cpu INTERFACE IMPORTED GLOBAL)
# -idirafter makes the compiler search these folders after the system's, because torch/include has a newer fmt than the distribution's
# spdlog needs. It also suppresses warnings from LibTorch's headers.
target_compile_options(torch::cpu INTERFACE "-ffile-prefix-map=${_torch}/=torch/"
  "SHELL:-idirafter \"${_torch}/include/torch/csrc/api/include\"" "SHELL:-idirafter \"${_torch}/include\"")
# The dependencies of libtorch_cpu are found at run time by its own search paths, not by the linker.
target_link_options(torch::cpu INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(torch::cpu INTERFACE "${_torch}/lib/libtorch_cpu.so" "${_torch}/lib/libc10.so")

# Uses LibTorch's OpenMP library, because the distribution's would start threads of its own in addition to LibTorch's.
file(GLOB _openmp "${_torch}/lib/libgomp*.so*")
if(NOT _openmp)
  message(FATAL_ERROR "LibTorch in ${_torch} has no OpenMP library (lib/libgomp*.so*). Run scripts/setup.sh, or set TRAINER_TORCH_DIR to a LibTorch with this library.")
endif()
add_library(torch::openmp INTERFACE IMPORTED GLOBAL)
target_link_libraries(torch::openmp INTERFACE ${_openmp})

set(TRAINER_CUDA_INCLUDE_DIR "" CACHE PATH "Folder that is searched first for the headers of CUDA and NCCL")
file(GLOB _wheels "${_torch}/../nvidia/cu[0-9]*/include" "${_torch}/../nvidia/nccl/include")
set(_toolkits)
foreach(_toolkit "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
  if(_toolkit)
    list(APPEND _toolkits "${_toolkit}/include")
  endif()
endforeach()
file(GLOB _other_versions "/usr/local/cuda-*/include")
trainer_find_cuda_headers("${_torch}" ${TRAINER_CUDA_INCLUDE_DIR} ${_wheels} ${_toolkits} ${_other_versions} /usr/include)
if(NOT EXISTS "${_torch}/lib/libtorch_cuda.so")
  message(STATUS "CUDA module: no (this LibTorch is for CPUs only)")
elseif(CUDA_INCLUDE_DIR AND NCCL_INCLUDE_DIR)
  add_library(torch::cuda INTERFACE IMPORTED GLOBAL)
  # Searched before the system's folders, which may have the headers of another version, such as /usr/local/include/nccl.h: structures of
  # another size than LibTorch's would overwrite memory.
  target_include_directories(torch::cuda SYSTEM INTERFACE "${CUDA_INCLUDE_DIR}" "${NCCL_INCLUDE_DIR}")
  target_link_options(torch::cuda INTERFACE -Wl,--no-as-needed)
  target_link_libraries(torch::cuda INTERFACE torch::cpu "${_torch}/lib/libtorch_cuda.so" "${_torch}/lib/libc10_cuda.so")
  message(STATUS "CUDA module: yes (headers of ${CUDA_INCLUDE_DIR} and ${NCCL_INCLUDE_DIR})")
else()
  message(STATUS "CUDA module: no (scripts/setup.sh --cuda installs what it needs)")
  foreach(_refusal IN LISTS CUDA_REFUSALS)
    message(STATUS "  ${_refusal}")
  endforeach()
endif()
