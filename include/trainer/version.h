#pragma once
// The version of this library and program (CMakeLists.txt reads it here). Below 1.0, another second number is another interface.

#define TRAINER_VERSION "0.1.0"
