# trainer_room(<name> [TORCH] [SOURCES <file>...] [LINKS <target>...]) makes the library trainer_<name> of one folder. LINKS are the
# rooms and libraries that it may include: the arrows of docs/design.md. TORCH: it includes LibTorch, and shares the precompiled header.
function(trainer_room name)
  cmake_parse_arguments(ROOM "TORCH" "" "SOURCES;LINKS" ${ARGN})
  set(target trainer_${name})
  add_library(${target} STATIC ${ROOM_SOURCES})
  target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${target} PUBLIC ${ROOM_LINKS} PRIVATE trainer_warnings)
  if(ROOM_TORCH)
    trainer_use_torch(${target})
  endif()
endfunction()

# Whoever includes LibTorch's headers spends ten seconds on their inline functions, however small the source is.
option(TRAINER_UNITY_BUILD "Compile the sources of a room that include LibTorch as one: a whole build takes half the time" ON)

# Compiled once; every target with the same code generation flags reuses it.
function(trainer_use_torch target)
  target_link_libraries(${target} PUBLIC torch::cpu)
  target_precompile_headers(${target} REUSE_FROM trainer_torch_header)
  # ccache would hash the precompiled header, 700 MB of it, for each source.
  set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "" UNITY_BUILD ${TRAINER_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 0)
endfunction()

add_library(trainer_torch_header OBJECT "${CMAKE_SOURCE_DIR}/cmake/torch_header.cpp")
target_link_libraries(trainer_torch_header PUBLIC torch::cpu PRIVATE trainer_warnings)
target_precompile_headers(trainer_torch_header PRIVATE <torch/torch.h>)
set_target_properties(trainer_torch_header PROPERTIES CXX_COMPILER_LAUNCHER "")
