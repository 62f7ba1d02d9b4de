# pulsora_add_device(<target> <Name> <header>): adds a device model to an executable or shared
# library. <header> defines the struct pulsora::<Name>; its kernels are compiled for each CPU
# instruction set that Pulsora was built for, and the model is registered when the program starts.
# Such a model cannot run on a GPU: for GPUs, list it in PULSORA_EXTRA_DEVICES when Pulsora itself
# is built.
#
# Installed beside pulsoraConfig.cmake, and defined after add_subdirectory() as well.
function(pulsora_add_device target DEVICE DEVICE_HEADER)
  cmake_path(ABSOLUTE_PATH DEVICE_HEADER NORMALIZE)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "pulsora_add_device: there is no target '${target}'; add it first")
  endif()
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)$")
    message(FATAL_ERROR "pulsora_add_device: ${target} is of type ${type}, from which a linker may leave the model out; "
      "name the executable or the shared library")
  endif()
  if(NOT DEVICE MATCHES "^[A-Z][A-Za-z0-9]*$")
    message(FATAL_ERROR "pulsora_add_device: '${DEVICE}' is not the name of a model, which begins with a capital letter "
      "and has letters and digits alone, such as MyDevice")
  elseif(NOT EXISTS ${DEVICE_HEADER})
    message(FATAL_ERROR "pulsora_add_device: ${DEVICE}: there is no file ${DEVICE_HEADER}")
  endif()

  set(templates ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}_devices)
  get_target_property(isas pulsora::pulsora PULSORA_CPU_ISAS)
  foreach(ISA IN LISTS isas)
    set(objects ${target}_${DEVICE}_${ISA})
    configure_file(${templates}/pulsed_kernels_cpu.cpp.in ${folder}/${DEVICE}_${ISA}.cpp @ONLY)
    add_library(${objects} OBJECT ${folder}/${DEVICE}_${ISA}.cpp)
    get_target_property(flags pulsora::pulsora PULSORA_ISA_FLAGS_${ISA})
    if(NOT flags)
      set(flags)
    endif()
    target_compile_options(${objects} PRIVATE ${flags} $<$<NOT:$<CONFIG:Debug>>:-O3>
      # GCC 12's own AVX-512 headers cause these warnings (GCC bug 105593).
      "$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>")
    target_link_libraries(${objects} PRIVATE pulsora::pulsora)
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
  configure_file(${templates}/registered_device.cpp.in ${folder}/${DEVICE}.cpp @ONLY)
  target_sources(${target} PRIVATE ${folder}/${DEVICE}.cpp)
  target_link_libraries(${target} PRIVATE pulsora::pulsora)
endfunction()
