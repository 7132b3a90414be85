# Every target does its own set-up: a virtual environment in .venv, pinned dependencies, the core.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
CORE := $(wildcard cpp/*.hpp cpp/*/*.hpp cpp/*/*.cpp) CMakeLists.txt pyproject.toml
LINTED := src tests benchmarks examples conftest.py
LINTED_CORE := $(wildcard cpp/*.hpp cpp/*/*.hpp cpp/*/*.cpp tests/*.cpp)

.PHONY: FORCE demo test lint format stubs sanitize fuzz profile paper-smoke clean

demo: $(VENV)/core
	$(BIN)/l2route demo --out out/demo

# All of the paper's experiments on a small dataset, downloaded unless there is a file of it.
SIFTSMALL ?= data/siftsmall.npz
paper-smoke: $(VENV)/core $(SIFTSMALL)
	rm -rf out/paper-smoke
	timeout 600 $(BIN)/l2route reproduce all --data $(SIFTSMALL) --minutes-per-run 0.1 \
	  --out out/paper-smoke
	$(BIN)/l2route report out/paper-smoke

data/siftsmall.npz: | $(VENV)/core
	$(BIN)/l2route datasets siftsmall --out $@

test: $(VENV)/core
	$(BIN)/pytest

lint: $(VENV)/core
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(LINTED_CORE)

format: $(VENV)/core
	$(BIN)/ruff check --fix $(LINTED)
	$(BIN)/ruff format $(LINTED)
	$(BIN)/clang-format -i $(LINTED_CORE)

stubs: $(VENV)/core
	$(BIN)/python -m nanobind.stubgen -m l2route._core -o src/l2route/_core.pyi

# The tests of search, loading, fuzzing and refining over a core built with AddressSanitizer and UBSan.
# Python leaks at exit, hnswlib frees with delete what it got from malloc, and one test asks for more
# memory than there is: none of that is ours to report.
SANITIZED := build/sanitized
sanitize: $(VENV)/core
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --upgrade --target $(SANITIZED) \
	  -C cmake.define.L2ROUTE_SANITIZE=ON -C build-dir=build/sanitize .
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1 \
	  UBSAN_OPTIONS=print_stacktrace=1 \
	  $(BIN)/python tests/run_against.py $(SANITIZED) pytest -p no:cacheprovider \
	  tests/search/test_searcher.py tests/test_index.py tests/state/test_index_files.py tests/files/test_storage.py tests/files/test_damaged_storage.py \
	  tests/interop/test_faiss_import.py tests/interop/test_hnswlib_import.py tests/state/test_fuzz_index.py tests/rewiring/test_refine.py tests/search/test_codes.py \
	  tests/search/test_prepared.py tests/search/test_edges.py tests/search/test_slack.py \
	  tests/search/test_kernels.py tests/state/test_forged_indexes.py

# Tests by chance at many times the size that they have in `make test`: forged and damaged indexes, saves
# that meet, kills, vector files.
FUZZ ?= 20
fuzz: $(VENV)/core
	L2ROUTE_FUZZ=$(FUZZ) $(BIN)/pytest tests/state/test_forged_indexes.py tests/state/test_fuzz_index.py \
	  tests/files/test_saves.py tests/files/test_failing_saves.py tests/files/test_formats.py

# Where searches spend their time, by perf, on a core built with debug information.
PROFILED := build/profiled
profile: $(VENV)/core
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --upgrade --target $(PROFILED) \
	  -C cmake.build-type=RelWithDebInfo -C build-dir=build/profile .
	$(BIN)/python tests/run_against.py $(PROFILED) benchmarks/time_spent.py $(DATA)

# The core is built without isolation, to be built again fast. hnswlib and annoy come as sources that
# need it, so they are installed before.
$(VENV)/dependencies: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt "scikit-build-core>=0.11" nanobind ninja \
	  hnswlib annoy
	touch $@

# An editable install knows the modules that there were: it is renewed when some come or go.
$(VENV)/modules: FORCE
	@mkdir -p $(VENV)
	@find src -name '*.py' | sort | cmp -s - $@ || find src -name '*.py' | sort >$@

$(VENV)/core: $(VENV)/dependencies $(VENV)/modules $(CORE)
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation \
	  -C cmake.define.L2ROUTE_WERROR=ON --editable ".[dev]"
	touch $@

clean:
	rm -rf build out
