# trainer_torch_version(<variable> <folder>): the version of the LibTorch in <folder>, such as 2.11.0; empty if it has no LibTorch headers.
# Read from the headers, because a folder with only lib/ and include/ is enough. Earlier versions have only the second file.
function(trainer_torch_version variable folder)
  set(version "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT version AND EXISTS "${folder}/include/${header}")
      file(STRINGS "${folder}/include/${header}" numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      list(TRANSFORM numbers REPLACE "[^0-9]+" "")
      string(JOIN "." version ${numbers})
    endif()
  endforeach()
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()
