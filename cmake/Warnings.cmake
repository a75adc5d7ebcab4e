add_library(trainer_warnings INTERFACE)
target_compile_options(trainer_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wpedantic)
# In a unity build (cmake/Module.cmake) gcc treats the sources as headers and warns that their types are visible to other sources.
target_compile_options(trainer_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
# With -O1, gcc wrongly warns that the value of an empty std::optional may be used.
target_compile_options(trainer_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
if(TRAINER_WARNINGS_AS_ERRORS)
  target_compile_options(trainer_warnings INTERFACE -Werror)
endif()
