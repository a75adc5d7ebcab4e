add_library(trainer_warnings INTERFACE)
target_compile_options(trainer_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wpedantic)
# To gcc the sources that are compiled as one (cmake/Module.cmake) are headers, whose types other sources would see.
target_compile_options(trainer_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
if(TRAINER_WARNINGS_AS_ERRORS)
  target_compile_options(trainer_warnings INTERFACE -Werror)
endif()
