# trainer_module(<name> [TORCH] [FOLDERS <folder>...] [SOURCES <file>...] [LINKS <target>...]) defines the library trainer_<name> of one
# folder.
# - LINKS: the modules and libraries whose headers the sources may include. scripts/check_includes.py reads the modules from these calls,
#   checks every #include of the project's headers against them, and writes the table of docs/design.md.
# - trainer_<name>_headers has only the headers, for a module that includes them without linking trainer_<name>.
# - FOLDERS: folders of the module; each may include only those before it (also checked). The module's own folder comes last,
#   unless the list contains it as `.`.
# - TORCH: the sources include LibTorch and share the precompiled header.
function(trainer_module name)
  cmake_parse_arguments(MODULE "TORCH" "" "FOLDERS;SOURCES;LINKS" ${ARGN})
  set(target trainer_${name})
  add_library(${target}_headers INTERFACE)
  target_include_directories(${target}_headers INTERFACE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}" "${CMAKE_SOURCE_DIR}/include")
  add_library(${target} STATIC ${MODULE_SOURCES})
  target_link_libraries(${target} PUBLIC ${target}_headers ${MODULE_LINKS} PRIVATE trainer_warnings)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TRAINER_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 0)
  if(MODULE_TORCH)
    trainer_use_torch(${target})
  endif()
endfunction()

# A source that includes LibTorch's headers compiles three to ten seconds longer; nlohmann-json's and CLI11's headers cost two to six.
option(TRAINER_UNITY_BUILD "Compile the sources of a module as one file, which makes a whole build shorter" ON)

# The precompiled header is compiled once, with the lowest module that needs it; all targets with the same code generation flags reuse it.
function(trainer_use_torch target)
  target_link_libraries(${target} PUBLIC torch::cpu)
  if(target STREQUAL trainer_device)
    target_precompile_headers(${target} PRIVATE "${CMAKE_SOURCE_DIR}/include/trainer/torch.h")
  else()
    target_precompile_headers(${target} REUSE_FROM trainer_device)
  endif()
  # The precompiled header is accepted only with the same code generation flags, and executables would be compiled with -fPIE.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
    # Executables are compiled without ccache, which would hash the precompiled header of 700 MB for each source. The hashing is worthwhile
    # only for libraries, because the build of the container image compiles them again and finds them in the cache.
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "")
  endif()
endfunction()
