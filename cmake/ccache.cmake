# Compile through ccache where it is installed, unless the caller chose a launcher.
find_program(PULSORA_CCACHE ccache)
mark_as_advanced(PULSORA_CCACHE)
if(PULSORA_CCACHE)
  foreach(language CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      # The sloppiness lets sources with a precompiled header be cached. Paths are relative to the
      # sources, so that another checkout of the same sources finds the objects.
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
        CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
        CCACHE_NOHASHDIR=1 ${PULSORA_CCACHE})
    endif()
  endforeach()
endif()
