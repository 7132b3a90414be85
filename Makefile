# Every target does its own set-up: a virtual environment in .venv, pinned dependencies, the core.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
CORE := $(wildcard cpp/*.hpp cpp/*/*.hpp cpp/*/*.cpp) CMakeLists.txt pyproject.toml
LINTED := src tests benchmarks examples $(wildcard docs/*.py) conftest.py
LINTED_CORE := $(wildcard cpp/*.hpp cpp/*/*.hpp cpp/*/*.cpp tests/*.cpp)

.PHONY: FORCE demo test lint format stubs docs figures notebooks chromium nginx sanitize tsan fuzz crash soak siege object-store \
  profile paper-smoke wheel sbom wheel-test cross clean

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

# Test files are spread over all cores; the tests of one file run in one process.
SPREAD := -n auto --dist loadfile
test: $(VENV)/core
	$(BIN)/pytest $(SPREAD)

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

# The documentation, as a site to be read without a network.
docs: $(VENV)/core
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

# The pictures of docs/concepts.md; the notebooks of examples/, with their outputs.
figures: $(VENV)/core
	$(BIN)/python docs/figures.py
notebooks: $(VENV)/core
	$(BIN)/python docs/notebooks.py

# The browser in which the server's page is tested; without it those tests are skipped.
chromium:
	command -v chromium >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

# The proxy that docs/howto/deploy.md is tested with; without it those tests are skipped.
nginx:
	command -v nginx >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light; }

# Tests that call the core, over a core built with AddressSanitizer and UBSan. Left out: those that
# start processes of their own, which would load the plain core, and those that spend their time in
# torch. Python leaks at exit, hnswlib frees with delete what it got from malloc, and one test asks
# for more memory than there is: none of that is an error of the core. pytest captures only what
# Python prints, so that a report of the sanitizer is seen.
SANITIZED := tests/search tests/state tests/explain tests/graph tests/rewiring tests/test_index.py \
  tests/interop/test_faiss_import.py tests/interop/test_hnswlib_import.py \
  tests/training/test_rollout.py tests/training/test_oracle.py
UNSANITIZED := tests/explain/test_picture.py tests/search/test_arm.py tests/search/test_interrupts.py \
  tests/state/test_crash_index.py tests/state/test_interrupted_changes.py tests/state/test_shared_directory.py
sanitize: $(VENV)/core
	$(call install_sanitized,asan,address$(comma)undefined)
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1 \
	  UBSAN_OPTIONS=print_stacktrace=1 \
	  $(BIN)/python tests/run_against.py build/asan pytest -p no:cacheprovider --capture=sys \
	  $(SANITIZED) $(UNSANITIZED:%=--ignore=%) -k "not learn"

# Searches on several threads during every change of an index, over a core built with
# ThreadSanitizer. OpenMP and OpenBLAS have one thread each: how theirs wait for each other is
# invisible to the sanitizer.
THREADED := tests/state/test_state.py tests/state/test_living_threads.py tests/search/test_searcher.py tests/rewiring/test_refine.py \
  tests/rewiring/test_insert.py tests/training/test_rollout.py tests/test_index.py
tsan: $(VENV)/core
	$(call install_sanitized,tsan,thread)
	LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so)" OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	  TSAN_OPTIONS=suppressions=tests/tsan.supp:halt_on_error=1:history_size=4 \
	  $(BIN)/python tests/run_against.py build/tsan pytest -p no:cacheprovider --capture=sys \
	  $(THREADED) -k "test_state or threads"

comma := ,
define install_sanitized
$(BIN)/pip install --quiet --no-deps --no-build-isolation --upgrade --target build/$(1) \
  -C install.strip=false -C cmake.define.L2ROUTE_SANITIZE=$(2) -C build-dir=build/$(1)-objects .
endef

# Tests by chance at many times the size that they have in `make test`: forged and damaged indexes, saves
# that meet, vector files.
FUZZ ?= 20
fuzz: $(VENV)/core
	L2ROUTE_FUZZ=$(FUZZ) $(BIN)/pytest tests/state/test_forged_indexes.py tests/state/test_fuzz_index.py \
	  tests/state/test_living_machine.py tests/state/test_shared_directory.py \
	  tests/files/test_saves.py tests/files/test_failing_saves.py tests/files/test_formats.py \
	  tests/files/test_patches.py tests/files/test_damaged_patches.py

# A writer that is killed at random moments, many times as often as in `make test`.
KILLS ?= 300
crash: $(VENV)/core
	L2ROUTE_KILLS=$(KILLS) $(BIN)/pytest tests/files/test_crash.py tests/state/test_crash_index.py

# Servers, a plain process and a command that share one index while they are killed and stopped, the
# disk is full, and snapshots are restored: ten minutes. `make test` has less than a minute of it.
SOAK_SECONDS ?= 600
SOAK_SEED ?= 0
soak: $(VENV)/core
	PYTHONPATH=tests $(BIN)/python -m soak.run --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)

# Honest clients of a server while all known attacks go on at once: ten minutes. `make test` has half
# a minute of it.
SIEGE_SECONDS ?= 600
siege: $(VENV)/core
	PYTHONPATH=tests $(BIN)/python -m siege.run --seconds $(SIEGE_SECONDS)

# A sharded index in an object store, S3 as moto serves it, in an environment of its own.
STORE_BIN := build/store/bin
object-store:
	$(PYTHON) -m venv build/store
	$(STORE_BIN)/pip install --quiet ".[arrow]" fsspec s3fs "moto[server]" pytest sybil
	PYTHONPATH=tests $(STORE_BIN)/pytest -q --noconftest -c /dev/null --rootdir . \
	  -p no:cacheprovider tests/cluster/test_object_store.py

# Where searches spend their time, by perf, on a core built with debug information.
PROFILED := build/profiled
profile: $(VENV)/core
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --upgrade --target $(PROFILED) \
	  -C cmake.build-type=RelWithDebInfo -C build-dir=build/profile .
	$(BIN)/python tests/run_against.py $(PROFILED) benchmarks/time_spent.py $(DATA)

# An archive of the sources, and wheels made from it, in dist/: one for Python 3.11, and one with the
# stable ABI for 3.12 and later. The core is compiled by zig, which links for a glibc of 2018;
# auditwheel checks that and names the wheels.
ABI3_PYTHON ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python3.12) python3.12)
GLIBC := 2.28
MACHINE := $(shell uname -m)
WHEEL_BIN := build/wheels/abi3/bin
ZIG = $(shell $(BIN)/python -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name('zig'))")
wheel: $(VENV)/core
	rm -rf dist build/wheels
	$(BIN)/python -m build --quiet --sdist --no-isolation --outdir dist .
	$(ABI3_PYTHON) -m venv build/wheels/abi3
	$(WHEEL_BIN)/pip install --quiet --upgrade pip
	$(WHEEL_BIN)/pip install --quiet --require-hashes -c constraints.txt scikit-build-core nanobind ninja
	for pip in $(BIN)/pip $(WHEEL_BIN)/pip; do \
	  CXX="$(ZIG) c++ -target $(MACHINE)-linux-gnu.$(GLIBC)" $$pip wheel --quiet --no-deps \
	    --no-build-isolation --wheel-dir build/wheels dist/*.tar.gz || exit 1; \
	done
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist \
	  --plat manylinux_$(subst .,_,$(GLIBC))_$(MACHINE) build/wheels/*.whl
	$(MAKE) sbom
	ls -l dist

# What is in an installation of the wheel for Python 3.11, as CycloneDX has it.
SBOM_BIN := build/sbom/bin
sbom: $(VENV)/core
	rm -rf build/sbom
	$(PYTHON) -m venv build/sbom
	grep -E '^[A-Za-z0-9._-]+==' constraints.txt | sed 's/[ ;].*//' >build/versions.txt
	$(SBOM_BIN)/pip install --quiet -c build/versions.txt dist/l2route-*-cp311-*.whl
	$(SBOM_BIN)/pip uninstall --quiet --yes pip setuptools
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library \
	  --output-reproducible --output-file dist/l2route.cdx.json $(SBOM_BIN)/python

# The wheels of dist/ in clean environments of every Python that there is, without a compiler, on
# emulated processors without AVX-512 and without AVX2 (Debian has the emulator in qemu-user); the
# archive of the sources without network; every order of import beside torch.
wheel-test: $(VENV)/core
	L2ROUTE_WHEELS=dist $(BIN)/pytest tests/packaging -rs

# The core compiled for all systems that there are wheels for.
cross: $(VENV)/core
	$(BIN)/python tests/packaging/cross.py

# What is installed has to have the hashes of constraints.txt. `pip check` finds what lacks there.
# The core is built without isolation, to be built again fast.
$(VENV)/dependencies: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --no-deps -r constraints.txt
	$(BIN)/pip check
	touch $@

# An editable install knows the modules that there were: it is renewed when some come or go.
$(VENV)/modules: FORCE
	@mkdir -p $(VENV)
	@find src -name '*.py' | sort | cmp -s - $@ || find src -name '*.py' | sort >$@

$(VENV)/core: $(VENV)/dependencies $(VENV)/modules $(CORE)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation \
	  -C cmake.define.L2ROUTE_WERROR=ON --editable .
	$(BIN)/pip check
	touch $@

clean:
	rm -rf build out site
