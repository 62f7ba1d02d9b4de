# The list of noise models of programmed arrays. An entry is Name=header, where Name is a struct in
# namespace pulsora (see src/rpucuda/noise_models/noise_model.h). Everything else follows from this
# list: CPU and CUDA kernels, Python classes, documentation, contract tests.
set(PULSORA_NOISE_MODELS
  PCMLike=noise_models/pcm_like.h
  CustomDrift=noise_models/custom_drift.h
  Hermes=noise_models/hermes.h
  StateIndependent=noise_models/state_independent.h
  ReRamWan2022=noise_models/re_ram_wan2022.h
  ReRamCMO=noise_models/re_ram_cmo.h
  PowerLaw=noise_models/power_law.h
  Shift=noise_models/shift.h
  Exponential=noise_models/exponential.h)

set(PULSORA_EXTRA_NOISE_MODELS "" CACHE STRING
  "Noise models from outside this tree: a list of Name=/absolute/path/of/header.h")

# Writes noise_model_list.h: every model's header, and pulsora::AllNoiseModels.
function(pulsora_write_noise_model_list)
  set(names)
  set(includes)
  set(calls)
  foreach(entry IN LISTS PULSORA_NOISE_MODELS PULSORA_EXTRA_NOISE_MODELS)
    if(NOT entry MATCHES "^([A-Z][A-Za-z0-9]*)=(.+\\.h)$")
      message(FATAL_ERROR "PULSORA_EXTRA_NOISE_MODELS: '${entry}' is not of the form Name=/absolute/path.h, with a "
        "Name that begins with a capital letter and has letters and digits alone, as that of the struct")
    endif()
    set(name ${CMAKE_MATCH_1})
    set(header ${CMAKE_MATCH_2})
    if(name IN_LIST names)
      message(FATAL_ERROR "PULSORA_EXTRA_NOISE_MODELS: there is a noise model ${name} already; choose another name")
    endif()
    if(entry IN_LIST PULSORA_EXTRA_NOISE_MODELS AND (NOT IS_ABSOLUTE ${header} OR NOT EXISTS ${header}))
      message(FATAL_ERROR "PULSORA_EXTRA_NOISE_MODELS: ${name}: there is no file ${header}")
    endif()
    list(APPEND names ${name})
    list(APPEND includes "#include \"${header}\"")
    list(APPEND calls "Do(${name})")
  endforeach()
  list(JOIN includes "\n" NOISE_MODEL_INCLUDES)
  list(JOIN names ", " NOISE_MODEL_NAMES)
  list(JOIN calls " " NOISE_MODEL_CALLS)
  configure_file(cmake/noise_model_list.h.in ${PULSORA_GENERATED_DIR}/noise_model_list.h @ONLY)
endfunction()
