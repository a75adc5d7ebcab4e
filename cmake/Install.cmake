# `cmake --install` creates a relocatable tree for the Debian release on which the program was built, and `cpack` packages it. Components:
# trainer, the program with LibTorch; cuda, the CUDA module (if it is built) with NVIDIA's libraries; and only if it is named, development,
# the program and the libraries with their headers, which use LibTorch where the build found it.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME trainer)
set(TRAINER_INSTALL_DIR "${CMAKE_INSTALL_LIBDIR}/trainer")
# Builds missing targets first, because scripts/launch.sh builds only the program.
install(CODE "
  execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${CMAKE_BINARY_DIR}\" --target trainer trainer_predict_library COMMAND_ERROR_IS_FATAL ANY)"
  ALL_COMPONENTS)
install(DIRECTORY configs DESTINATION "${CMAKE_INSTALL_DATADIR}/trainer")
# OPTIONAL, because the container image is built without these folders.
install(DIRECTORY scripts/kubernetes scripts/mpi scripts/slurm DESTINATION "${CMAKE_INSTALL_DATADIR}/trainer" OPTIONAL)
install(DIRECTORY docs examples DESTINATION "${CMAKE_INSTALL_DOCDIR}" OPTIONAL)
# With these links, the relative links of the documentation lead to the installed files as they do in the repository.
install(CODE "
  set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\")
  file(MAKE_DIRECTORY \"\${folder}\")
  file(CREATE_LINK ../../trainer/configs \"\${folder}/configs\" SYMBOLIC)
  file(CREATE_LINK ../../trainer \"\${folder}/scripts\" SYMBOLIC)
  file(CREATE_LINK ../../../${CMAKE_INSTALL_INCLUDEDIR} \"\${folder}/include\" SYMBOLIC)")
install(DIRECTORY datasets/cifar10_sample datasets/mnist_sample DESTINATION "${CMAKE_INSTALL_DATADIR}/trainer/datasets")
install(FILES LICENSE THIRD_PARTY_NOTICES.md README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# Slashes lengthen the path to 200 characters, because its length remains in the installed files: builds in two folders would differ.
set(_torch_path "${TRAINER_TORCH_LIBRARY_DIR}")
string(LENGTH "${_torch_path}" _length)
if(_length LESS 200)
  math(EXPR _missing "200 - ${_length}")
  string(REPEAT "/" ${_missing} _slashes)
  string(PREPEND _torch_path "${_slashes}")
endif()

# trainer_install(<target> <component> <folder> <search path>...): installs the target. It searches its libraries in the given folders, and
# in the build tree also in its own folder and in LibTorch's. CMake's own way from one list to the other would end the list of the build
# tree with an empty element, which the loader takes for the current folder: any libraries there would be loaded.
function(trainer_install target component folder)
  set(build_paths "$ORIGIN" ${ARGN} "${_torch_path}")
  # CMake writes no path twice, and would otherwise not find the list that it has to replace.
  list(REMOVE_DUPLICATES build_paths)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${build_paths}")
  install(TARGETS ${target} DESTINATION "${folder}" COMPONENT ${component})
  install(TARGETS ${target} DESTINATION "${folder}" COMPONENT development EXCLUDE_FROM_ALL)
  string(REPLACE ";" ":" old "${build_paths}")
  string(REPLACE ";" ":" new "${ARGN}")
  install(CODE "file(RPATH_CHANGE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}/$<TARGET_FILE_NAME:${target}>\"
                     OLD_RPATH [[${old}]] NEW_RPATH [[${new}]])" COMPONENT ${component})
endfunction()

# trainer_install_headers(FILES <file>... | DIRECTORY <folder> DESTINATION <folder>): installs what the builds of other programs need.
function(trainer_install_headers)
  install(${ARGN} COMPONENT trainer)
  install(${ARGN} COMPONENT development EXCLUDE_FROM_ALL)
endfunction()

# find_package(trainer), and pkg-config
include(CMakePackageConfigHelpers)
include(cmake/TorchVersion.cmake)
trainer_torch_version(TRAINER_TORCH_VERSION "${TRAINER_TORCH_LIBRARY_DIR}/..")
string(REGEX MATCH "[0-9]+\\.[0-9]+" TRAINER_TORCH_VERSION "${TRAINER_TORCH_VERSION}")
set(TRAINER_SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/trainer")
file(RELATIVE_PATH TRAINER_PREFIX_FROM_CONFIG "/${_package}" "/")
configure_file(cmake/trainerConfig.cmake.in "${CMAKE_BINARY_DIR}/generated/trainerConfig.cmake" @ONLY)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/generated/trainerConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
trainer_install_headers(FILES cmake/TorchVersion.cmake cmake/plugin.map "${CMAKE_BINARY_DIR}/generated/trainerConfig.cmake"
                        "${CMAKE_BINARY_DIR}/generated/trainerConfigVersion.cmake" DESTINATION "${_package}")

# libtrainer_predict: find_package(trainer_predict), and pkg-config
set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/trainer_predict")
file(RELATIVE_PATH TRAINER_PREFIX_FROM_PREDICT_CONFIG "/${_package}" "/")
configure_file(cmake/trainer_predictConfig.cmake.in "${CMAKE_BINARY_DIR}/generated/trainer_predictConfig.cmake" @ONLY)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/generated/trainer_predictConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
trainer_install_headers(FILES "${CMAKE_BINARY_DIR}/generated/trainer_predictConfig.cmake"
                        "${CMAKE_BINARY_DIR}/generated/trainer_predictConfigVersion.cmake" DESTINATION "${_package}")
file(RELATIVE_PATH TRAINER_PREFIX_FROM_PKG_CONFIG "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
foreach(_library trainer trainer_predict)
  configure_file(cmake/${_library}.pc.in "${CMAKE_BINARY_DIR}/generated/${_library}.pc" @ONLY)
  trainer_install_headers(FILES "${CMAKE_BINARY_DIR}/generated/${_library}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()

# torch/lib and nvidia/*/lib keep their relative paths from the wheels, because the libraries find each other by these paths.
get_filename_component(_wheels "${TRAINER_TORCH_LIBRARY_DIR}/../.." ABSOLUTE)

# bundle(<component> <from> <to> <pattern>...): installs the files of <from> that match; a pattern may match none.
function(bundle component from to)
  list(TRANSFORM ARGN PREPEND "${from}/")
  file(GLOB files ${ARGN})
  install(FILES ${files} DESTINATION "${TRAINER_INSTALL_DIR}/${to}" COMPONENT ${component})
endfunction()

# bundle_licences(<component> <pattern>...): installs the licences of wheels. .deb packages must not share files, so name each wheel once.
function(bundle_licences component)
  list(TRANSFORM ARGN PREPEND "${_wheels}/")
  list(TRANSFORM ARGN APPEND ".dist-info")
  file(GLOB packages ${ARGN})
  foreach(package IN LISTS packages)
    install(DIRECTORY "${package}" DESTINATION "${CMAKE_INSTALL_DOCDIR}/licences" COMPONENT ${component}
            FILES_MATCHING REGEX "/(LICENSE|License|NOTICE)[^/]*$")
  endforeach()
endfunction()

# libcudart and libcupti are in this folder only if LibTorch is not a wheel.
bundle(trainer "${TRAINER_TORCH_LIBRARY_DIR}" torch/lib libc10.so libtorch_cpu.so "libgomp*.so*" "libcudart.so.*" "libcupti.so.*")
bundle(trainer "${_wheels}/nvidia/cu13/lib" nvidia/cu13/lib "libcudart.so.*" "libcupti.so.*")
bundle_licences(trainer "torch-*" "nvidia_cuda_cupti-*" "nvidia_cuda_runtime-*")
set(_components trainer)
if(TARGET torch::cuda)
  list(APPEND _components cuda)
  # Omits libtorch_cuda_linalg and cusolver, 200 MB that only the decompositions of torch.linalg use, and libraries that only profilers and
  # compilers load.
  bundle(cuda "${TRAINER_TORCH_LIBRARY_DIR}" torch/lib libc10_cuda.so libtorch_cuda.so libtorch_nvshmem.so libcaffe2_nvrtc.so)
  bundle(cuda "${_wheels}/nvidia/cu13/lib" nvidia/cu13/lib "libcublas.so.*" "libcublasLt.so.*" "libcufft.so.*" "libcufile.so.*" "libcurand.so.*"
         "libcusparse.so.*" "libnvJitLink.so.*" "libnvrtc.so.*" "libnvrtc-builtins.so.*")
  foreach(library cudnn cusparselt nccl)
    bundle(cuda "${_wheels}/nvidia/${library}/lib" nvidia/${library}/lib "*.so.*")
  endforeach()
  bundle(cuda "${_wheels}/nvidia/nvshmem/lib" nvidia/nvshmem/lib "libnvshmem_host.so.*")
  bundle_licences(cuda "nvidia_cublas-*" "nvidia_cuda_nvrtc-*" "nvidia_cudnn_*" "nvidia_cufft-*" "nvidia_cufile-*" "nvidia_curand-*"
                  "nvidia_cusparse*" "nvidia_nccl_*" "nvidia_nvjitlink-*" "nvidia_nvshmem_*")
endif()

# Strips LibTorch, because a tenth of its size is symbols that are not used at run time. NVIDIA's licence forbids stripping
# NVIDIA's libraries.
foreach(component IN LISTS _components)
  install(CODE "
    file(GLOB libraries \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${TRAINER_INSTALL_DIR}/torch/lib/*.so\")
    execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded \${libraries} COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_COMPONENTS_ALL ${_components})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_SOURCE_DIR}/cmake/PackageFolder.cmake")
# Both archives unpack into the same folder.
set(CPACK_PACKAGE_FILE_NAME trainer-${PROJECT_VERSION})
set(CPACK_ARCHIVE_TRAINER_FILE_NAME trainer-${PROJECT_VERSION})
set(CPACK_ARCHIVE_CUDA_FILE_NAME trainer-cuda-${PROJECT_VERSION})
set(CPACK_THREADS 0)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_CONTACT "the maintainers of trainer")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_TRAINER_PACKAGE_NAME trainer)
set(CPACK_DEBIAN_TRAINER_PACKAGE_DEPENDS ca-certificates)
set(CPACK_DEBIAN_TRAINER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${TRAINER_TORCH_LIBRARY_DIR}" "${_wheels}/nvidia/cu13/lib")
set(CPACK_DEBIAN_CUDA_PACKAGE_NAME trainer-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "trainer (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_CUDA_DESCRIPTION "Libraries that trainer needs for NVIDIA GPUs")
include(CPack)
