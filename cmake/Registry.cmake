# trainer_registry(<module> [<namespace>::]<Type> <header> <file>...) adds the files to the module's library. Each file defines
#   void add_<file's name>(<Type>& registry);
# and registers its components there. Also adds a source, made from registry.cpp.in, that defines the module's function
#   <Type>& <type>();
# which returns the registry of all files in this order. The header declares it; <type> is <Type> in lower case with underscores, such as
# model_registry for ModelRegistry. The namespace is that of the module unless it is given.
function(trainer_registry module type header)
  set(namespace ${module})
  if(type MATCHES "^(.+)::(.+)$")
    set(namespace ${CMAKE_MATCH_1})
    set(type ${CMAKE_MATCH_2})
  endif()
  string(REGEX REPLACE "([a-z])([A-Z])" "\\1_\\2" function ${type})
  string(TOLOWER ${function} function)
  string(REGEX REPLACE "_registry$" "" product ${function})
  foreach(file IN LISTS ARGN)
    cmake_path(GET file STEM name)
    string(APPEND declarations "void add_${name}(${type}& registry);\n")
    string(APPEND calls "    add_${name}(registry);\n")
  endforeach()
  set(source "${CMAKE_BINARY_DIR}/generated/${function}.cpp")
  configure_file("${CMAKE_SOURCE_DIR}/cmake/registry.cpp.in" "${source}" @ONLY)
  # A file may be in several registries, but is a source of the library only once.
  get_target_property(sources trainer_${module} SOURCES)
  list(REMOVE_ITEM ARGN ${sources})
  target_sources(trainer_${module} PRIVATE ${ARGN} "${source}")
endfunction()
