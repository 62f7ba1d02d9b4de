# The list of device models. A model is a struct of this name in namespace pulsora, in
# src/rpucuda/devices/<snake_case>.h. Everything else follows from this list: CPU and CUDA kernels,
# Python classes, documentation, contract tests. While you work on one model,
# -DPULSORA_DEVICES=SoftBounds builds that one alone.
if(NOT DEFINED PULSORA_DEVICES)
  set(PULSORA_DEVICES
    ConstantStep
    LinearStep
    SoftBounds
    SoftBoundsReference
    ExpStep
    PowStep
    PiecewiseStep
    TableStep)
endif()

set(PULSORA_EXTRA_DEVICES "" CACHE STRING
  "Device models from outside this tree: a list of Name=/absolute/path/of/header.h")

# Splits the two lists above into `names` and `headers` of equal length, in the caller's scope.
function(pulsora_devices names headers)
  set(all_names ${PULSORA_DEVICES})
  set(all_headers)
  foreach(name IN LISTS PULSORA_DEVICES)
    pulsora_snake_case(${name} snake)
    list(APPEND all_headers "devices/${snake}.h")
    if(NOT EXISTS ${PULSORA_SOURCE_DIR}/devices/${snake}.h)
      message(FATAL_ERROR "cmake/devices.cmake lists ${name}: src/rpucuda/devices/${snake}.h is missing")
    endif()
  endforeach()
  foreach(entry IN LISTS PULSORA_EXTRA_DEVICES)
    if(NOT entry MATCHES "^([A-Z][A-Za-z0-9]*)=(/.+\\.h)$")
      message(FATAL_ERROR "PULSORA_EXTRA_DEVICES: '${entry}' is not of the form Name=/absolute/path.h, with a Name "
        "that begins with a capital letter and has letters and digits alone, as that of the struct")
    endif()
    set(name ${CMAKE_MATCH_1})
    set(header ${CMAKE_MATCH_2})
    if(NOT EXISTS ${header})
      message(FATAL_ERROR "PULSORA_EXTRA_DEVICES: ${name}: there is no file ${header}")
    elseif(name IN_LIST all_names)
      message(FATAL_ERROR "PULSORA_EXTRA_DEVICES: there is a device ${name} already; choose another name")
    endif()
    list(APPEND all_names ${name})
    list(APPEND all_headers ${header})
  endforeach()
  set(${names} ${all_names} PARENT_SCOPE)
  set(${headers} ${all_headers} PARENT_SCOPE)
endfunction()

# SoftBounds -> soft_bounds
function(pulsora_snake_case name result)
  string(REGEX REPLACE "([a-z0-9])([A-Z])" "\\1_\\2" snake ${name})
  string(TOLOWER ${snake} snake)
  set(${result} ${snake} PARENT_SCOPE)
endfunction()

# Writes device_list.h: every device header, and pulsora::AllDevices.
function(pulsora_write_device_list)
  pulsora_devices(names headers)
  list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"" OUTPUT_VARIABLE includes)
  list(JOIN includes "\n" DEVICE_INCLUDES)
  list(JOIN names ", " DEVICE_NAMES)
  configure_file(cmake/device_list.h.in ${PULSORA_GENERATED_DIR}/device_list.h @ONLY)
endfunction()

# One source per device from `template`, named <prefix>_<snake><suffix>; returns their paths. Small
# sources keep the compiler's memory small: each has one device's kernels for one target.
function(pulsora_generate_kernels template prefix suffix result)
  pulsora_devices(names headers)
  set(generated)
  foreach(DEVICE DEVICE_HEADER IN ZIP_LISTS names headers)
    pulsora_snake_case(${DEVICE} snake)
    set(path ${PULSORA_GENERATED_DIR}/${prefix}_${snake}${suffix})
    configure_file(cmake/${template} ${path} @ONLY)
    list(APPEND generated ${path})
  endforeach()
  set(${result} ${generated} PARENT_SCOPE)
endfunction()

# Adds to `target` the CPU kernels of each device and each *_isa.cpp, compiled once per instruction
# set.
function(pulsora_add_cpu_kernels target)
  file(GLOB_RECURSE isa_sources CONFIGURE_DEPENDS ${PULSORA_SOURCE_DIR}/*_isa.cpp)
  # All models have the same loops, so the memory that these touch is checked in full for one of them, and for all of
  # them by `make nightly`. These checks take two thirds of the time that a kernel takes to compile.
  if(PULSORA_SANITIZE MATCHES "undefined" AND NOT "$ENV{PULSORA_NIGHTLY}")
    set(fewer_checks -fno-sanitize=pointer-overflow,alignment,null,object-size)
  endif()
  # Both options keep GCC from copying a loop's body for the special cases of logarithms and powers in a row, which
  # makes branches of selections: the loop would not vectorise.
  set_source_files_properties(${PULSORA_SOURCE_DIR}/noise_models/realise_isa.cpp PROPERTIES COMPILE_OPTIONS
    "$<$<CXX_COMPILER_ID:GNU>:-fno-thread-jumps;-fno-tree-pre>")
  foreach(ISA IN LISTS PULSORA_CPU_ISAS)
    string(TOLOWER ${ISA} isa)
    pulsora_generate_kernels(pulsed_kernels_cpu.cpp.in pulsed_kernels "_${isa}.cpp" kernels)
    if(fewer_checks)
      set(other_kernels ${kernels})
      list(FILTER other_kernels EXCLUDE REGEX "/pulsed_kernels_soft_bounds_${isa}")
      set_source_files_properties(${other_kernels} PROPERTIES COMPILE_OPTIONS ${fewer_checks})
    endif()
    set(objects ${target}_${isa})
    add_library(${objects} OBJECT ${kernels} ${isa_sources})
    target_link_libraries(${objects} PRIVATE
      pulsora_numerics pulsora_dependencies pulsora_internal pulsora_warnings)
    target_compile_options(${objects} PRIVATE
      ${PULSORA_ISA_FLAGS_${ISA}} $<$<NOT:$<CONFIG:Debug>>:-O3>
      # GCC 12's own AVX-512 headers cause these warnings (GCC bug 105593).
      "$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>")
    target_compile_definitions(${objects} PRIVATE PULSORA_ISA=${ISA})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
    set_property(TARGET ${target} PROPERTY PULSORA_ISA_FLAGS_${ISA} ${PULSORA_ISA_FLAGS_${ISA}})
    set_property(TARGET ${target} APPEND PROPERTY EXPORT_PROPERTIES PULSORA_ISA_FLAGS_${ISA})
  endforeach()
  # pulsora_add_device() compiles kernels for these as well, in other projects too.
  set_property(TARGET ${target} PROPERTY PULSORA_CPU_ISAS ${PULSORA_CPU_ISAS})
  set_property(TARGET ${target} APPEND PROPERTY EXPORT_PROPERTIES PULSORA_CPU_ISAS)
endfunction()
