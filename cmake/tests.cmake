# One executable with every C++ test.
find_package(GTest)
if(NOT GTest_FOUND)
  message(FATAL_ERROR "GoogleTest not found: install libgtest-dev (Debian, Ubuntu) or gtest-devel (Fedora), "
    "or leave the C++ tests out with -DPULSORA_TESTS=OFF")
endif()
include(GoogleTest)

set(PULSORA_TEST_SOURCES "*.cpp" CACHE STRING "Which of tests/cpp to build: patterns of names, in any room")
list(TRANSFORM PULSORA_TEST_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/tests/cpp/ OUTPUT_VARIABLE patterns)
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${patterns})
if(PULSORA_SANITIZE MATCHES "thread")
  # TSan's operator new cannot be replaced; and most of these rooms start no thread.
  list(FILTER test_sources EXCLUDE REGEX "out_of_memory_test|failing_new")
  list(FILTER test_sources EXCLUDE REGEX "/devices/|/parameters/|/numerics/(half|math)|/storage/(checksum|json|sha256|state)|/core/view")
  list(FILTER test_sources EXCLUDE REGEX "/lrtt/(construction|learning|read|settings)|/periphery/(io_|line_)")
endif()
if(PULSORA_HAVE_CUDA)
  file(GLOB_RECURSE cuda_test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cpp/*.cu)
endif()
add_executable(rpucuda_tests ${test_sources} ${cuda_test_sources})
target_include_directories(rpucuda_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests/cpp)
# pulsora_internal comes first, so that <pulsora/...> is the sources themselves, not the copies.
target_link_libraries(rpucuda_tests PRIVATE pulsora_internal pulsora pulsora_warnings GTest::gtest_main)
target_precompile_headers(rpucuda_tests PRIVATE
  "$<$<COMPILE_LANGUAGE:CXX>:<gtest/gtest.h$<ANGLE-R>>"
  "$<$<COMPILE_LANGUAGE:CXX>:${PULSORA_SOURCE_DIR}/tile/tile.h>"
  "$<$<COMPILE_LANGUAGE:CXX>:${PULSORA_SOURCE_DIR}/array/pulsed_weight_updater.h>")
target_compile_definitions(rpucuda_tests PRIVATE
  PULSORA_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden"
  PULSORA_EXTRA_DEVICES="$<JOIN:${PULSORA_EXTRA_DEVICES},:>")
# Only the code under test is optimised; the tests take longer to compile than to run.
if(PULSORA_SANITIZE)
  target_compile_options(rpucuda_tests PRIVATE -O0)
else()
  target_compile_options(rpucuda_tests PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
endif()
if(PULSORA_SANITIZE)
  # A program under a sanitizer takes a fifth of a second to start, so a few runs share the tests. Long statistics, which
  # run code that other tests run too, are left out.
  set(statistics PulseStatistics.* ClosedForms.* DeviceModels.* *InDistribution* *MeanAndVariance* *Statistics*
    *SketchLaw* *NoiseFalls* *KeepsTheMean* *PowAccuracy* LrttLearning.*
    *LowRankOf/1.*GradientsAreThose* *LowRankOf/2.*GradientsAreThose*)
  foreach(letter L S E P T Q)
    list(APPEND statistics *BoundsHoldUnderRandomOperations/${letter}*)
  endforeach()
  list(JOIN statistics ":" statistics)
  set(shards 16)
  math(EXPR last_shard "${shards} - 1")
  foreach(shard RANGE ${last_shard})
    add_test(NAME shard_${shard} COMMAND rpucuda_tests --gtest_filter=-${statistics}
      --gtest_output=xml:${PROJECT_BINARY_DIR}/reports/shard_${shard}.xml)
    set_tests_properties(shard_${shard} PROPERTIES TIMEOUT 1200
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard}")
  endforeach()
else()
  gtest_discover_tests(rpucuda_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 600)
endif()

# Code for a newer instruction set must not leak into functions that the linker shares between
# sources.
find_program(PULSORA_NM NAMES ${CMAKE_NM} nm)
mark_as_advanced(PULSORA_NM)
find_package(Python COMPONENTS Interpreter QUIET)
if(Python_FOUND AND PULSORA_NM AND CMAKE_BUILD_TYPE STREQUAL "Release")
  foreach(isa IN LISTS PULSORA_CPU_ISAS)
    string(TOLOWER ${isa} isa)
    list(APPEND isa_objects $<TARGET_OBJECTS:pulsora_${isa}>)
  endforeach()
  add_test(NAME IsaSymbols COMMAND ${Python_EXECUTABLE}
    ${PROJECT_SOURCE_DIR}/scripts/check_isa_symbols.py --nm ${PULSORA_NM} ${isa_objects}
    COMMAND_EXPAND_LISTS)
endif()
