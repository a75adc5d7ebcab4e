# Build type and options of gcc; ccache and mold, if they are installed.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# With LibTorch's precompiled header, gcc spends a tenth of its time on garbage collection. These limits make collections rare, and let a
# process use up to 3 GB.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(--param=ggc-min-expand=1000 --param=ggc-min-heapsize=4000000)
  # With -O1, std::fill with zeros becomes a call of memset only with this flag.
  add_compile_options($<$<CONFIG:Release>:-ftree-loop-distribute-patterns>)
endif()

# The files that are built do not depend on the folder of the checkout. A build ID would: it is a hash of the linked file, also of the path by
# which the build finds LibTorch, which installation removes.
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
add_link_options(-Wl,--build-id=none)

# Highway 1.0 counts the AES instructions, which nothing uses, as part of NEON. With -march, its functions can be inlined everywhere. Without
# -ffp-contract=off, gcc fuses multiplications and additions, and the transforms of images would round differently from Pillow's.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
  add_compile_options(-march=armv8-a+crypto -ffp-contract=off)
endif()

find_program(TRAINER_CCACHE ccache)
if(TRAINER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need pch_defines and time_macros. With include_file_*, ccache also accepts headers that were just written. locale is
  # ignored because the build of the container image has a different one, which affects only the language of messages.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime,locale "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" ${TRAINER_CCACHE})
endif()

find_program(TRAINER_MOLD mold)
if(TRAINER_MOLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()
