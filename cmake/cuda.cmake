# The CUDA backend. PULSORA_CUDA=AUTO builds it where nvcc and cuBLAS are found, ON requires it, OFF
# leaves it out. Include before any target is made, because targets take their CUDA settings when
# they are made.
set(PULSORA_HAVE_CUDA OFF)

# Adds to `target` src/rpucuda/cuda and each device's CUDA kernels, if there is CUDA.
function(pulsora_add_cuda_kernels target)
  if(NOT PULSORA_HAVE_CUDA)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PULSORA_SOURCE_DIR}/cuda/*.cu)
  pulsora_generate_kernels(pulsed_kernels_cuda.cu.in pulsed_kernels .cu kernels)
  target_sources(${target} PRIVATE ${sources} ${kernels})
  # Instructions of compute capability 9.0 alone, missing in later ones, are compiled separately.
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12 AND NOT "90a" IN_LIST CMAKE_CUDA_ARCHITECTURES)
    set_source_files_properties(${PULSORA_SOURCE_DIR}/cuda/lowrank/linear16.cu
      ${PULSORA_SOURCE_DIR}/cuda/periphery/digit_product.cu PROPERTIES
      COMPILE_OPTIONS "--generate-code=arch=compute_90a,code=sm_90a")
  endif()
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda>")
endfunction()

if(NOT PULSORA_CUDA)
  return()
endif()

# Reports why there is no CUDA: an error under ON, a message under AUTO.
function(pulsora_no_cuda reason)
  if(PULSORA_CUDA STREQUAL "AUTO")
    message(STATUS "Pulsora: built without CUDA: ${reason}")
  else()
    message(FATAL_ERROR "PULSORA_CUDA=${PULSORA_CUDA}: ${reason}")
  endif()
endfunction()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  pulsora_no_cuda("no nvcc found; put it on PATH or set CUDACXX=/path/of/nvcc")
  return()
endif()

if(NOT CMAKE_CUDA_ARCHITECTURES)
  # Machine code for T4, A100 and H100, and PTX that the driver compiles for other GPUs.
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80 90)
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

include(cmake/cublas.cmake)
pulsora_find_cublas()
if(NOT TARGET Pulsora::cublas)
  pulsora_no_cuda("no cuBLAS ${CUDAToolkit_VERSION_MAJOR} found; install the full CUDA toolkit, or \
'pip install nvidia-cublas' into the Python that builds, or set PULSORA_CUBLAS_ROOT")
  return()
endif()

target_compile_definitions(pulsora_dependencies INTERFACE PULSORA_CUDA=1)
list(APPEND PULSORA_LINK_LIBRARIES CUDA::cudart_static Pulsora::cublas)
set(PULSORA_HAVE_CUDA ON)
