# Toolchain file of scripts/cross_aarch64.sh, which sets TRAINER_SYSROOT.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TRAINER_SYSROOT)
set(CMAKE_SYSROOT "${TRAINER_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH "${TRAINER_SYSROOT}")
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
foreach(_kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${_kind} ONLY)
endforeach()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# Runs what is built, also during the build, which lets the program write its help texts.
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-L;${TRAINER_SYSROOT}")
