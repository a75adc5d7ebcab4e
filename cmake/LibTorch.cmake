# Imported targets for LibTorch, written by hand, because Torch's package file fails for a CUDA wheel without a matching nvcc.
#   torch::cpu    libtorch_cpu and libc10, all that the executable links
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
# Searched after the system's folders: torch/include has a newer fmt than the distribution's spdlog needs. Also silences torch's warnings.
target_compile_options(torch::cpu INTERFACE
  "SHELL:-idirafter \"${_torch}/include/torch/csrc/api/include\"" "SHELL:-idirafter \"${_torch}/include\"")
# The dependencies of libtorch_cpu are found at run time by its own search paths, not by the linker.
target_link_options(torch::cpu INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(torch::cpu INTERFACE "${_torch}/lib/libtorch_cpu.so" "${_torch}/lib/libc10.so")

find_path(TRAINER_CUDA_INCLUDE_DIR cublas_v2.h HINTS "${_torch}/../nvidia/cu13/include" PATHS /usr/local/cuda/include
          DOC "Folder with the headers of CUDA and its libraries; no CUDA compiler is needed")
find_path(TRAINER_NCCL_INCLUDE_DIR nccl.h HINTS "${_torch}/../nvidia/nccl/include" PATHS "${TRAINER_CUDA_INCLUDE_DIR}"
          DOC "Folder with nccl.h")
# Without scripts/setup.sh --cuda only some of the headers exist (those of the runtime's wheel).
set(_cuda_complete ${TRAINER_CUDA_INCLUDE_DIR})
foreach(_header cuda_runtime_api.h crt/host_defines.h cusparse.h cusolverDn.h)
  if(NOT EXISTS "${TRAINER_CUDA_INCLUDE_DIR}/${_header}")
    set(_cuda_complete FALSE)
  endif()
endforeach()
if(EXISTS "${_torch}/lib/libtorch_cuda.so" AND _cuda_complete AND TRAINER_NCCL_INCLUDE_DIR)
  add_library(torch::cuda INTERFACE IMPORTED GLOBAL)
  target_compile_options(torch::cuda INTERFACE "SHELL:-idirafter \"${TRAINER_CUDA_INCLUDE_DIR}\"" "SHELL:-idirafter \"${TRAINER_NCCL_INCLUDE_DIR}\"")
  target_link_options(torch::cuda INTERFACE -Wl,--no-as-needed)
  target_link_libraries(torch::cuda INTERFACE torch::cpu "${_torch}/lib/libtorch_cuda.so" "${_torch}/lib/libc10_cuda.so")
  message(STATUS "CUDA module: yes (headers of ${TRAINER_CUDA_INCLUDE_DIR})")
else()
  message(STATUS "CUDA module: no (scripts/setup.sh --cuda fetches what it needs)")
endif()
