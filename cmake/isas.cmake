# Instruction sets for which the CPU kernels are compiled; one is chosen at run time. Names are
# those of pulsora::Isa. No other source gets -march, because code that every machine runs must not
# use AVX.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(all_isas V2 V3 V4 V4Popcnt)
  set(PULSORA_ISA_FLAGS_V2 -march=x86-64-v2)
  set(PULSORA_ISA_FLAGS_V3 -march=x86-64-v3)
  set(PULSORA_ISA_FLAGS_V4 -march=x86-64-v4 -mprefer-vector-width=512)
  set(PULSORA_ISA_FLAGS_V4Popcnt ${PULSORA_ISA_FLAGS_V4} -mavx512vpopcntdq -mavx512vnni)
else()
  # On other processors there is one set, the compiler's default, named like the plainest set.
  set(all_isas V2)
endif()
set(PULSORA_CPU_ISAS ${all_isas} CACHE STRING "Instruction sets to build, some of: ${all_isas}")

foreach(isa IN LISTS PULSORA_CPU_ISAS)
  if(NOT isa IN_LIST all_isas)
    message(FATAL_ERROR "PULSORA_CPU_ISAS: '${isa}' is not one of: ${all_isas}")
  endif()
endforeach()
if(NOT "V2" IN_LIST PULSORA_CPU_ISAS)
  message(FATAL_ERROR "PULSORA_CPU_ISAS: V2, which every machine falls back on, must be listed")
endif()

# The sets are nested, so the sources need only the last set, as a number (core/isa.h).
list(LENGTH PULSORA_CPU_ISAS isa_count)
math(EXPR last_isa "${isa_count} - 1")
list(SUBLIST all_isas 0 ${isa_count} nested_isas)
if(NOT nested_isas STREQUAL PULSORA_CPU_ISAS)
  message(FATAL_ERROR "PULSORA_CPU_ISAS: each set needs the ones before it: ${all_isas}")
endif()
target_compile_definitions(pulsora_numerics INTERFACE PULSORA_LAST_ISA=${last_isa})
