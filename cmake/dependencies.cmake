# Optional libraries of the core. `pulsora_dependencies` has the requirements of our headers, which
# every user gets; PULSORA_LINK_LIBRARIES are only linked. `pulsora_internal` has the include paths
# of our own sources, which name the rooms of src/rpucuda in includes.
option(PULSORA_OPENMP "Use OpenMP threads if the compiler has them" ON)

add_library(pulsora_dependencies INTERFACE)
add_library(pulsora_internal INTERFACE)
set(PULSORA_LINK_LIBRARIES)

# Headers from outside this tree include <pulsora/name.h>. In our own build, pulsora/detail is a
# link to the sources, so a target links pulsora_internal before pulsora, whose users get the copies
# of cmake/headers.cmake.
target_include_directories(pulsora_internal INTERFACE
  ${PULSORA_SOURCE_DIR} ${PULSORA_GENERATED_DIR} ${PROJECT_SOURCE_DIR}/include)
file(MAKE_DIRECTORY ${PULSORA_GENERATED_DIR}/pulsora)
file(CREATE_LINK ${PULSORA_SOURCE_DIR} ${PULSORA_GENERATED_DIR}/pulsora/detail SYMBOLIC)

# The JSON parser, a header that only storage/json.cpp includes.
find_path(PULSORA_JSON_INCLUDE_DIR nlohmann/json.hpp)
mark_as_advanced(PULSORA_JSON_INCLUDE_DIR)
if(NOT PULSORA_JSON_INCLUDE_DIR)
  foreach(python ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(COMMAND ${python} -c "import nlohmann_json; print(nlohmann_json.__path__[0] + '/include')"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(found)
      set(PULSORA_JSON_INCLUDE_DIR ${found} CACHE PATH "Where nlohmann/json.hpp lies" FORCE)
      break()
    endif()
  endforeach()
endif()
if(NOT PULSORA_JSON_INCLUDE_DIR)
  message(FATAL_ERROR "nlohmann/json.hpp not found: install nlohmann-json3-dev (Debian, Ubuntu) or json-devel (Fedora), "
    "or 'pip install nlohmann-json' into the Python that builds, or set PULSORA_JSON_INCLUDE_DIR")
endif()

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
