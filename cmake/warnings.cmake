# Warnings are errors for developers of Pulsora, but not for users with an unknown compiler. Link
# `pulsora_warnings` PRIVATE, so that no user inherits them.
option(PULSORA_WERROR "Treat warnings as errors" ${developing})

set(host_warnings -Wall -Wextra -Wconversion -Wshadow)
if(PULSORA_WERROR)
  list(APPEND host_warnings -Werror)
endif()
if(PULSORA_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC reports variables of its own instrumentation; uninstrumented builds keep the warning.
  list(APPEND host_warnings -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 14)
  # Kernels use `a & b` on two bools to avoid a branch.
  list(APPEND host_warnings -Wno-bitwise-instead-of-logical)
endif()
list(JOIN host_warnings "," nvcc_host_warnings)

add_library(pulsora_warnings INTERFACE)
target_compile_options(pulsora_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${host_warnings}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${nvcc_host_warnings}>"
  "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PULSORA_WERROR}>>:-Werror=all-warnings>")
