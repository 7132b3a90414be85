# Every target does its own set-up: a virtual environment in .venv, pinned dependencies, the core.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
CORE := $(wildcard cpp/*.hpp cpp/*.cpp) CMakeLists.txt pyproject.toml
LINTED := src tests benchmarks

.PHONY: demo test lint format stubs sanitize clean

demo: $(VENV)/core
	$(BIN)/l2route demo --out out/demo

test: $(VENV)/core
	$(BIN)/pytest

lint: $(VENV)/core
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror cpp/*.hpp cpp/*.cpp

format: $(VENV)/core
	$(BIN)/ruff check --fix $(LINTED)
	$(BIN)/ruff format $(LINTED)
	$(BIN)/clang-format -i cpp/*.hpp cpp/*.cpp

stubs: $(VENV)/core
	$(BIN)/python -m nanobind.stubgen -m l2route._core -o src/l2route/_core.pyi

$(VENV)/dependencies: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt "scikit-build-core>=0.11" nanobind ninja
	touch $@

$(VENV)/core: $(VENV)/dependencies $(CORE)
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation --editable ".[dev]"
	touch $@

clean:
	rm -rf build out
