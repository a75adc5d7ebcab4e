# Read by cpack for each kind of package: an archive gets a top-level folder, a .deb does not.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
