add_library(trainer_warnings INTERFACE)
target_compile_options(trainer_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wpedantic)
# In a unity build (cmake/Module.cmake) gcc treats the sources as headers and warns that their types are visible to other sources.
target_compile_options(trainer_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
# With -O1 gcc warns wrongly of the value of a std::optional that has none.
target_compile_options(trainer_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
if(TRAINER_WARNINGS_AS_ERRORS)
  target_compile_options(trainer_warnings INTERFACE -Werror)
endif()
