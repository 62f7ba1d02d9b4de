# Optional libraries of the core, all behind the interface target `pulsora_dependencies`.
option(PULSORA_OPENMP "Use OpenMP threads if the compiler has them" ON)
option(PULSORA_BLAS "Offer the system's CBLAS beside our own matrix products" ON)

add_library(pulsora_dependencies INTERFACE)

if(PULSORA_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
endif()
if(OpenMP_CXX_FOUND)
  target_link_libraries(pulsora_dependencies INTERFACE OpenMP::OpenMP_CXX)
else()
  message(STATUS "Pulsora: without OpenMP, CPU code runs on one thread")
  target_compile_options(pulsora_dependencies INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)
endif()

if(PULSORA_BLAS)
  find_package(BLAS)
  find_path(PULSORA_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-pthread)
  mark_as_advanced(PULSORA_CBLAS_INCLUDE_DIR)
endif()
if(BLAS_FOUND AND PULSORA_CBLAS_INCLUDE_DIR)
  target_link_libraries(pulsora_dependencies INTERFACE BLAS::BLAS)
  target_include_directories(pulsora_dependencies SYSTEM INTERFACE ${PULSORA_CBLAS_INCLUDE_DIR})
  target_compile_definitions(pulsora_dependencies INTERFACE PULSORA_HAVE_CBLAS=1)
else()
  message(STATUS "Pulsora: no CBLAS found, only the reproducible matrix products are built")
endif()
