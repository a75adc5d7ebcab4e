#pragma once
// The version of this library and program (CMakeLists.txt reads it from here). Below 1.0, a change of the second number is a change of the
// interface.

#define TRAINER_VERSION "0.1.0"
