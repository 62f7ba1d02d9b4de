# Provides Pulsora::cublas from a CUDA toolkit, or from NVIDIA's Python package nvidia-cublas, which
# has no unversioned lib*.so and no CMake configuration. Call after find_package(CUDAToolkit).
# Installed too, because users of the library link cuBLAS as well.
set(PULSORA_CUBLAS_ROOT "" CACHE PATH "Where include/cublas_v2.h and lib/libcublas.so* lie, if not found by itself")

function(pulsora_find_cublas)
  if(TARGET CUDA::cublas AND NOT PULSORA_CUBLAS_ROOT)
    add_library(Pulsora::cublas ALIAS CUDA::cublas)
    return()
  endif()
  set(major ${CUDAToolkit_VERSION_MAJOR})
  find_package(Python COMPONENTS Interpreter QUIET)
  file(GLOB venv_packages ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages)
  list(TRANSFORM venv_packages APPEND /nvidia/cu${major} OUTPUT_VARIABLE venv_roots)
  set(roots ${PULSORA_CUBLAS_ROOT} ${Python_SITELIB}/nvidia/cu${major} ${venv_roots})
  find_path(PULSORA_CUBLAS_INCLUDE_DIR cublas_v2.h HINTS ${roots} PATH_SUFFIXES include)
  foreach(library cublas cublasLt)
    find_library(PULSORA_${library}_LIBRARY NAMES lib${library}.so.${major} ${library}
      HINTS ${roots} PATH_SUFFIXES lib lib64)
    mark_as_advanced(PULSORA_${library}_LIBRARY)
  endforeach()
  mark_as_advanced(PULSORA_CUBLAS_INCLUDE_DIR)
  if(NOT (PULSORA_CUBLAS_INCLUDE_DIR AND PULSORA_cublas_LIBRARY AND PULSORA_cublasLt_LIBRARY))
    return()
  endif()
  add_library(Pulsora::cublas INTERFACE IMPORTED)
  target_include_directories(Pulsora::cublas SYSTEM INTERFACE ${PULSORA_CUBLAS_INCLUDE_DIR})
  target_link_libraries(Pulsora::cublas INTERFACE
    ${PULSORA_cublas_LIBRARY} ${PULSORA_cublasLt_LIBRARY})
endfunction()
