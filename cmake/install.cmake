# `cmake --install`: the library, its headers, and the files of find_package(pulsora). Python is
# installed by pip.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pulsora)

set_target_properties(pulsora_numerics PROPERTIES EXPORT_NAME numerics)
set_target_properties(pulsora_dependencies PROPERTIES EXPORT_NAME dependencies)
install(TARGETS pulsora pulsora_numerics pulsora_dependencies EXPORT pulsoraTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT pulsoraTargets NAMESPACE pulsora:: DESTINATION ${package_dir})
install(DIRECTORY ${PULSORA_INCLUDE_DIR}/pulsora DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")

if(PULSORA_HAVE_CUDA AND PULSORA_CUBLAS_INCLUDE_DIR)
  cmake_path(GET PULSORA_CUBLAS_INCLUDE_DIR PARENT_PATH cublas_root)
endif()
configure_package_config_file(cmake/pulsoraConfig.cmake.in ${PROJECT_BINARY_DIR}/pulsoraConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pulsoraConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/pulsoraConfig.cmake
  ${PROJECT_BINARY_DIR}/pulsoraConfigVersion.cmake
  cmake/add_device.cmake
  cmake/cublas.cmake
  cmake/pulsed_kernels_cpu.cpp.in
  cmake/registered_device.cpp.in
  DESTINATION ${package_dir})
