# Optional libraries of the core. `pulsora_dependencies` is what our headers need, so that every user gets it;
# PULSORA_LINK_LIBRARIES are linked alone. `pulsora_internal` is how our own sources are compiled beside that: they
# name the rooms of src/rpucuda in includes.
option(PULSORA_OPENMP "Use OpenMP threads if the compiler has them" ON)
option(PULSORA_BLAS "Offer C++ programs the system's CBLAS beside our own matrix products" OFF)

add_library(pulsora_dependencies INTERFACE)
add_library(pulsora_internal INTERFACE)
target_include_directories(pulsora_internal INTERFACE ${PULSORA_SOURCE_DIR} ${PULSORA_GENERATED_DIR})
set(PULSORA_LINK_LIBRARIES)

# Headers from outside this tree say <pulsora/room/name.h>, here as everywhere; here that is the source itself, so a target
# links pulsora_internal before pulsora, whose users get the copies of cmake/headers.cmake.
file(MAKE_DIRECTORY ${PULSORA_GENERATED_DIR})
file(CREATE_LINK ${PULSORA_SOURCE_DIR} ${PULSORA_GENERATED_DIR}/pulsora SYMBOLIC)

if(PULSORA_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
endif()
if(OpenMP_CXX_FOUND)
  target_link_libraries(pulsora_dependencies INTERFACE OpenMP::OpenMP_CXX)
else()
  message(STATUS "Pulsora: without OpenMP, CPU code runs on one thread")
  target_compile_options(pulsora_internal INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)
endif()

# Off by default: only a C++ program can ask for these products (Context::cpu.products), and a library or a wheel that is
# linked with a BLAS needs that BLAS wherever it goes.
if(PULSORA_BLAS)
  find_package(BLAS)
  find_path(PULSORA_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas openblas-pthread)
  mark_as_advanced(PULSORA_CBLAS_INCLUDE_DIR)
  if(NOT (BLAS_FOUND AND PULSORA_CBLAS_INCLUDE_DIR))
    message(FATAL_ERROR "PULSORA_BLAS=ON: no BLAS with cblas.h found; install libopenblas-dev (Debian, Ubuntu) or "
      "openblas-devel (Fedora), or leave it out with -DPULSORA_BLAS=OFF")
  endif()
  list(APPEND PULSORA_LINK_LIBRARIES BLAS::BLAS)
  target_include_directories(pulsora_internal SYSTEM INTERFACE ${PULSORA_CBLAS_INCLUDE_DIR})
  target_compile_definitions(pulsora_internal INTERFACE PULSORA_HAVE_CBLAS=1)
endif()
