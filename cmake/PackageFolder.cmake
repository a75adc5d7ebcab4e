# Read by cpack for each kind of package: an archive unpacks into a folder of its own, a .deb where its paths say.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
