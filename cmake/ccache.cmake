# Compile through ccache where it is installed, unless the caller chose a launcher.
find_program(PULSORA_CCACHE ccache)
mark_as_advanced(PULSORA_CCACHE)
if(PULSORA_CCACHE)
  foreach(language CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      # These two settings let ccache also cache sources with a precompiled header.
      set(CMAKE_${language}_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${PULSORA_CCACHE})
    endif()
  endforeach()
endif()
