# Writes the git revision of SOURCE_DIR to OUTPUT if the revision has changed. Without a repository, the environment variable
# TRAINER_GIT_REVISION is used.
execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=* WORKING_DIRECTORY "${SOURCE_DIR}"
                OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
  set(revision "$ENV{TRAINER_GIT_REVISION}")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#pragma once\n\n#define TRAINER_GIT_REVISION \"${revision}\"\n")
