# The list of compounds that a tile can hold. An entry is Params=header, where Params is the
# compound's struct of parameters in namespace pulsora (see src/rpucuda/compounds/compound_model.h).
# Everything else follows from this list: the Python class, stubs, documentation, saved states,
# contract tests.
set(PULSORA_COMPOUNDS
  SingleParams=compounds/single.h
  IdealParams=compounds/ideal.h
  TransferParams=compounds/transfer_parameters.h
  VectorParams=compounds/vector.h
  ReferenceParams=compounds/reference.h
  OneSidedParams=compounds/one_sided.h
  MixedPrecisionParams=compounds/mixed_precision_parameters.h
  LRTTParams=lrtt/parameters.h
  InferenceParams=inference/inference_device.h)

set(PULSORA_EXTRA_COMPOUNDS "" CACHE STRING
  "Compounds from outside this tree: a list of Params=/absolute/path/of/header.h; a .cpp and, with CUDA, a .cu of that name beside it are compiled")

# Writes compound_list.h (every compound's header, and pulsora::AllCompounds), and adds the sources
# of compounds from outside this tree to `target`.
function(pulsora_add_compounds target)
  set(names)
  set(includes)
  foreach(entry IN LISTS PULSORA_COMPOUNDS PULSORA_EXTRA_COMPOUNDS)
    if(NOT entry MATCHES "^([A-Z][A-Za-z0-9]*)=(.+\\.h)$")
      message(FATAL_ERROR "PULSORA_EXTRA_COMPOUNDS: '${entry}' is not of the form Params=/absolute/path.h, with a "
        "name that begins with a capital letter and has letters and digits alone, as that of the struct")
    endif()
    set(name ${CMAKE_MATCH_1})
    set(header ${CMAKE_MATCH_2})
    if(name IN_LIST names)
      message(FATAL_ERROR "PULSORA_EXTRA_COMPOUNDS: there is a compound ${name} already; choose another name")
    endif()
    if(entry IN_LIST PULSORA_EXTRA_COMPOUNDS)
      if(NOT IS_ABSOLUTE ${header} OR NOT EXISTS ${header})
        message(FATAL_ERROR "PULSORA_EXTRA_COMPOUNDS: ${name}: there is no file ${header}")
      endif()
      cmake_path(REPLACE_EXTENSION header cpp OUTPUT_VARIABLE source)
      cmake_path(REPLACE_EXTENSION header cu OUTPUT_VARIABLE kernels)
      if(EXISTS ${source})
        target_sources(${target} PRIVATE ${source})
      endif()
      if(EXISTS ${kernels} AND PULSORA_HAVE_CUDA)
        target_sources(${target} PRIVATE ${kernels})
      endif()
    endif()
    list(APPEND names ${name})
    list(APPEND includes "#include \"${header}\"")
  endforeach()
  list(JOIN includes "\n" COMPOUND_INCLUDES)
  list(JOIN names ", " COMPOUND_NAMES)
  configure_file(cmake/compound_list.h.in ${PULSORA_GENERATED_DIR}/compound_list.h @ONLY)
endfunction()
