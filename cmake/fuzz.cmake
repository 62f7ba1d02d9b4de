# libFuzzer programs, one per source in tests/fuzz/cpp; clang only. libFuzzer sees the coverage of the library, which
# reads the inputs, and not that of the kernels, which read none.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "PULSORA_FUZZ needs clang, whose libFuzzer drives the programs: -DCMAKE_CXX_COMPILER=clang++")
endif()
target_compile_options(pulsora PRIVATE -fsanitize=fuzzer-no-link)
foreach(name json_text config_text state_bytes state_values)
  add_executable(fuzz_${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/cpp/${name}.cpp)
  target_link_libraries(fuzz_${name} PRIVATE pulsora_internal pulsora pulsora_warnings)
  target_compile_options(fuzz_${name} PRIVATE -Wno-missing-prototypes)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endforeach()
