# The public headers: include/pulsora, whose files name the headers of the rooms as
# "pulsora/detail/room/name.h". Users include <pulsora/name.h>. Our own sources name only a room
# ("core/check.h"), which must not enter another project's search path. So users get copies, in
# <build>/include/pulsora: the public headers, and in detail/ each header that they include,
# directly or not, with "pulsora/detail/" before the names of rooms.
#
# This file is included by CMakeLists.txt, and run as a script (cmake -P) that writes the copies
# whenever a header changes. Unchanged copies keep their time stamps, so that nothing is compiled
# again.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_policy(VERSION 3.24)
  # Writes `path` of include/pulsora from `text`, if it differs, and adds its includes from detail/
  # to `waiting`.
  function(copy_header path text)
    set(copy ${INCLUDE_DIR}/pulsora/${path})
    set(old "")
    if(EXISTS ${copy})
      file(READ ${copy} old)
    endif()
    if(NOT text STREQUAL old)
      file(WRITE ${copy} "${text}")
    endif()
    string(REGEX MATCHALL "\"pulsora/detail/[^\"]+\"" included "${text}")
    list(TRANSFORM included REPLACE "\"pulsora/detail/(.+)\"" "\\1")
    set(waiting ${waiting} ${included} PARENT_SCOPE)
  endfunction()

  set(waiting ${ALSO})
  file(GLOB_RECURSE public RELATIVE ${PUBLIC_DIR} ${PUBLIC_DIR}/*.h)
  foreach(header IN LISTS public)
    file(READ ${PUBLIC_DIR}/${header} text)
    copy_header(${header} "${text}")
  endforeach()
  set(done)
  while(waiting)
    list(POP_FRONT waiting header)
    if(header IN_LIST done)
      continue()
    endif()
    list(APPEND done ${header})
    file(READ ${SOURCE_DIR}/${header} text)
    string(REGEX REPLACE "(#[ \t]*include[ \t]*\")([a-z_]+/)" "\\1pulsora/detail/\\2" text "${text}")
    copy_header(detail/${header} "${text}")
  endwhile()
  # Removes copies of headers that no longer exist in the sources.
  list(TRANSFORM done PREPEND detail/)
  file(GLOB_RECURSE copies RELATIVE ${INCLUDE_DIR}/pulsora ${INCLUDE_DIR}/pulsora/*.h)
  list(REMOVE_ITEM copies ${public} ${done} version.h)
  foreach(copy IN LISTS copies)
    file(REMOVE ${INCLUDE_DIR}/pulsora/${copy})
  endforeach()
  file(TOUCH ${STAMP})
  return()
endif()

set(PULSORA_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${PULSORA_INCLUDE_DIR}/pulsora/version.h @ONLY)

# Makes the copies the include folder of users of `target`.
function(pulsora_add_headers target)
  set(public ${PROJECT_SOURCE_DIR}/include/pulsora)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PULSORA_SOURCE_DIR}/*.h ${public}/*.h)
  set(stamp ${PROJECT_BINARY_DIR}/include/headers.stamp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/headers.cmake)
  # Sources from which pulsora_add_device() compiles a model's kernels in a user's project.
  set(also "array/cpu/kernels.h;devices/model_contract.h")
  add_custom_command(OUTPUT ${stamp} DEPENDS ${sources} ${script}
    COMMAND ${CMAKE_COMMAND} "-DALSO=${also}" -DPUBLIC_DIR=${public} -DSOURCE_DIR=${PULSORA_SOURCE_DIR}
      -DINCLUDE_DIR=${PULSORA_INCLUDE_DIR} -DSTAMP=${stamp} -P ${script}
    COMMENT "Public headers" VERBATIM)
  add_custom_target(pulsora_headers DEPENDS ${stamp})
  add_dependencies(${target} pulsora_headers)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PULSORA_INCLUDE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()
