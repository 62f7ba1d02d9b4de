# The public headers: every header of the rooms, included as <pulsora/room/name.h>. Our own sources name the room
# alone ("core/check.h"), which must not become part of another project's search path; so the public headers are
# copies, in <build>/include/pulsora, whose includes begin with "pulsora/".
#
# This file is included by CMakeLists.txt, and run as a script (cmake -P) that writes the copies whenever a header
# changes. A copy that would not change keeps its time stamp, so that nothing is compiled again for it.
if(CMAKE_SCRIPT_MODE_FILE)
  foreach(header IN LISTS HEADERS)
    file(READ ${SOURCE_DIR}/${header} text)
    string(REGEX REPLACE "(#[ \t]*include[ \t]*\")([a-z]+/)" "\\1pulsora/\\2" text "${text}")
    set(copy ${INCLUDE_DIR}/pulsora/${header})
    set(old "")
    if(EXISTS ${copy})
      file(READ ${copy} old)
    endif()
    if(NOT text STREQUAL old)
      file(WRITE ${copy} "${text}")
    endif()
  endforeach()
  # A header that left the sources leaves the copies too.
  file(GLOB_RECURSE copies RELATIVE ${INCLUDE_DIR}/pulsora ${INCLUDE_DIR}/pulsora/*/*.h)
  list(REMOVE_ITEM copies ${HEADERS})
  foreach(copy IN LISTS copies)
    file(REMOVE ${INCLUDE_DIR}/pulsora/${copy})
  endforeach()
  file(TOUCH ${STAMP})
  return()
endif()

set(PULSORA_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${PULSORA_INCLUDE_DIR}/pulsora/version.h @ONLY)

# Adds the copies to `target` as what its users include.
function(pulsora_add_headers target)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PULSORA_SOURCE_DIR} ${PULSORA_SOURCE_DIR}/*.h)
  list(TRANSFORM headers PREPEND ${PULSORA_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
  list(TRANSFORM headers PREPEND ${PULSORA_INCLUDE_DIR}/pulsora/ OUTPUT_VARIABLE copies)
  set(stamp ${PROJECT_BINARY_DIR}/include/headers.stamp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/headers.cmake)
  add_custom_command(OUTPUT ${stamp} BYPRODUCTS ${copies} DEPENDS ${sources} ${script}
    COMMAND ${CMAKE_COMMAND} "-DHEADERS=${headers}" -DSOURCE_DIR=${PULSORA_SOURCE_DIR}
      -DINCLUDE_DIR=${PULSORA_INCLUDE_DIR} -DSTAMP=${stamp} -P ${script}
    COMMENT "Public headers" VERBATIM)
  add_custom_target(pulsora_headers DEPENDS ${stamp})
  add_dependencies(${target} pulsora_headers)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PULSORA_INCLUDE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()
