# Optional libraries of the core. `pulsora_dependencies` is what our headers need, so that every user gets it;
# PULSORA_LINK_LIBRARIES are linked alone. `pulsora_internal` is how our own sources are compiled beside that: they
# name the rooms of src/rpucuda in includes.
option(PULSORA_OPENMP "Use OpenMP threads if the compiler has them" ON)

add_library(pulsora_dependencies INTERFACE)
add_library(pulsora_internal INTERFACE)
set(PULSORA_LINK_LIBRARIES)

# Headers from outside this tree say <pulsora/name.h>, here as everywhere. Here pulsora/detail is the sources themselves, so
# a target links pulsora_internal before pulsora, whose users get the copies of cmake/headers.cmake.
target_include_directories(pulsora_internal INTERFACE
  ${PULSORA_SOURCE_DIR} ${PULSORA_GENERATED_DIR} ${PROJECT_SOURCE_DIR}/include)
file(MAKE_DIRECTORY ${PULSORA_GENERATED_DIR}/pulsora)
file(CREATE_LINK ${PULSORA_SOURCE_DIR} ${PULSORA_GENERATED_DIR}/pulsora/detail SYMBOLIC)

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
