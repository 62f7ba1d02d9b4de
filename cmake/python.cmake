# The extension module pulsora._core.
if(NOT DEFINED Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "Python to build for")
endif()
set(PYBIND11_FINDPYTHON ON)
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir
  OUTPUT_VARIABLE pybind11_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_package(pybind11 CONFIG HINTS ${pybind11_dir})
if(NOT pybind11_FOUND)
  message(FATAL_ERROR "pybind11 not found: '${Python_EXECUTABLE} -m pip install pybind11', "
    "or leave the Python extension out with -DPULSORA_PYTHON=OFF")
endif()

file(GLOB binding_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/bindings/*.cpp)
# Link-time optimisation of these few sources would take longest of all, and gain nothing.
pybind11_add_module(_core NO_EXTRAS ${binding_sources})
target_link_libraries(_core PRIVATE pulsora_internal pulsora pulsora_warnings)
if(PULSORA_SANITIZE)
  # The bindings take longer to compile than to run. Other builds have no precompiled header: with
  # one, GCC 13 warns of array bounds within pybind11, whose headers are then no system headers.
  target_compile_options(_core PRIVATE -O0)
  target_precompile_headers(_core PRIVATE <pybind11/numpy.h> <pybind11/stl.h>)
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # If libstdc++ is linked statically, its symbols must not clash with other extensions', such as
  # torch's.
  target_link_options(_core PRIVATE LINKER:--exclude-libs,ALL)
endif()
target_compile_definitions(_core PRIVATE PULSORA_VERSION="${PROJECT_VERSION}")

# A complete package in the build directory, made of links to the sources:
# PYTHONPATH=<build>/python.
set(package ${PROJECT_BINARY_DIR}/python/pulsora)
set_target_properties(_core PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${package})
if(PULSORA_HAVE_CUDA)
  # First pip's folder of cuBLAS relative to the installed package, then the folder of cuBLAS at
  # build time, which auditwheel removes from wheels. The build tree has the same paths: rewriting
  # at installation would pad them with empty entries, which mean the current folder.
  set_target_properties(_core PROPERTIES
    INSTALL_RPATH "$ORIGIN/../nvidia/cu${CUDAToolkit_VERSION_MAJOR}/lib"
    INSTALL_RPATH_USE_LINK_PATH ON
    BUILD_WITH_INSTALL_RPATH ON)
endif()
# pip installs this component (pyproject.toml), and `cmake --install` everything else.
install(TARGETS _core LIBRARY DESTINATION pulsora COMPONENT python EXCLUDE_FROM_ALL)

file(MAKE_DIRECTORY ${package})
file(GLOB entries CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/pulsora/*)
list(FILTER entries EXCLUDE REGEX "__pycache__|\\.so$")
foreach(entry IN LISTS entries)
  cmake_path(GET entry FILENAME name)
  file(CREATE_LINK ${entry} ${package}/${name} SYMBOLIC)
endforeach()
