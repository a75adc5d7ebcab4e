# Read by cpack for each kind of package: an archive has a top-level folder, a .deb does not.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
