# Everything runs in .venv, made on first use from requirements.lock by deploy/setup_venv.sh.
# GNU Make 3.81 (macOS) suffices.

BIN := .venv/bin
ARGS ?=

# Hundreds of processes import the same: each would compile it. pytest rewrites each test file, too,
# which takes a worker longer than to run most tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo testbed check test style types quick all-tests soak dashboards reference lock format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    five clusters on this machine, isolated and networked (ARGS=... for spillover demo)"
	@echo "make testbed five clusters in containers, with Redis and dashboards (ARGS=... for services)"
	@echo "make check   style, types, import rules and the tests that start no process: a minute or so"
	@echo "make test    style, types, then all tests in four passes, tests/run.sh (ARGS=... for pytest)"
	@echo "make soak    ten minutes of mixed load and faults, and overload for minutes (SPILLOVER_SOAK_S=600)"
	@echo "make dashboards  write dashboards/grafana/*.json anew"
	@echo "make reference   write services/docs/configuration.md anew"
	@echo "make format  format and fix what can be fixed"
	@echo "make lock    resolve requirements.lock anew (ARGS=--upgrade for the newest versions)"
	@echo "make clean   remove .venv and everything built or cached"

demo: .venv/.complete
	@$(BIN)/spillover demo $(ARGS)

testbed:
	@deploy/testbed.sh $(ARGS)

check: style
	@$(MAKE) -j2 types quick

test: style
	@$(MAKE) -j2 types all-tests

style: .venv/.complete
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# Beside the tests, many of which wait: what is wrong is told where it is found, and by the status.
types: .venv/.complete
	$(BIN)/mypy

quick: .venv/.complete
	$(BIN)/pytest --only=quick -p no:schemathesis --numprocesses=auto --dist=worksteal $(ARGS)

all-tests: .venv/.complete
	tests/run.sh $(ARGS)

soak: .venv/.complete
	SPILLOVER_SOAK_S=$${SPILLOVER_SOAK_S:-600} $(BIN)/pytest -s tests/soak \
	    tests/e2e/test_overload.py tests/e2e/test_cancellations.py tests/e2e/test_malformed.py \
	    tests/apps/test_proxy_cancels.py tests/apps/test_killed_streams.py \
	    tests/sim/overflow/test_sweep.py tests/sim/overflow/test_failing.py \
	    tests/sim/overflow/test_pool_histories.py tests/sim/queue/test_history.py \
	    tests/sim/membership/test_history.py tests/sim/membership/test_session_history.py \
	    tests/e2e/test_lease_redis_random.py $(ARGS)

dashboards: .venv/.complete
	$(BIN)/python -m dashboards $(ARGS)

reference: .venv/.complete
	@cd services && ../$(BIN)/python -m docs $(ARGS)

format: .venv/.complete
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Universal: one lock for every platform and every Python from 3.11 on. Without the user's
# configuration, so that no private index gets in.
lock:
	@PATH="$$PATH:$(BIN)"; command -v uv >/dev/null || { echo "make lock needs uv on the PATH" >&2; exit 2; }; \
	UV_NO_CONFIG=1 uv pip compile pyproject.toml --extra bench --extra dask --extra leases --extra report --extra sim --extra tls --group dev \
	    --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	    --quiet --output-file requirements.lock $(ARGS)

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find services loadgen tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.complete: requirements.lock pyproject.toml deploy/setup_venv.sh
	@deploy/setup_venv.sh
