# Everything runs in .venv, made on first use from requirements.lock by deploy/setup_venv.sh.
# GNU Make 3.81 (macOS) suffices.

BIN := .venv/bin
ARGS ?=

# Hundreds of processes import the same: each would compile it. pytest rewrites each test file, too,
# which takes a worker longer than to run most tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo testbed check test realtime style types collected quick all-tests soak dashboards reference lock format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    five clusters on this machine, isolated and networked (ARGS=... for spillover demo)"
	@echo "make testbed five clusters in containers, with Redis and dashboards (ARGS=... for services)"
	@echo "make check   style, types, import rules, tests that start no process: two minutes and a half"
	@echo "make test    style, then all tests that wait on conditions (ARGS=... for pytest)"
	@echo "make realtime  the tests that are bound to real time, on a machine that is otherwise idle"
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

check: .venv/.complete
	@$(MAKE) -j2 style types collected
	@$(MAKE) quick

# Types take a core for a minute on a clean checkout: `make check` and .ci/run look at them.
test: .venv/.complete
	@$(MAKE) -j2 style collected
	@$(MAKE) all-tests

style: .venv/.complete
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# pytest rewrites each test file once: on a clean checkout every worker would, all at the same time,
# which takes a core of each as long as a thousand tests. Later each rewrites only what has changed.
# What is wrong is told by the tests' own run. Two of them read half each. The simulator's fast engine
# is compiled beside them: each worker would.
collected: .venv/.collected

.venv/.collected: .venv/.complete
	@for half in 'tests/[a-k]*/' 'tests/[l-z]*/ tests/test_*.py'; do \
	    $(BIN)/pytest --collect-only -qq $$half >/dev/null 2>&1 & \
	done; \
	$(BIN)/spillover sim overflow --engine fast --topology ring5 --workload poisson --rate 10 --duration-s 1 \
	    >/dev/null 2>&1; wait
	@touch $@

types: .venv/.complete
	$(BIN)/mypy

quick: .venv/.complete
	$(BIN)/pytest --quick -p no:schemathesis --numprocesses=auto \
	    --dist=loadfile --no-loadscope-reorder $(ARGS)

all-tests: .venv/.complete
	tests/run.sh $(ARGS)

realtime: .venv/.complete
	tests/run.sh --realtime $(ARGS)

soak: .venv/.complete
	SPILLOVER_SOAK_S=$${SPILLOVER_SOAK_S:-600} $(BIN)/pytest -s tests/soak \
	    tests/realtime/alone/test_overload.py tests/realtime/test_cancellations.py tests/realtime/test_malformed.py \
	    tests/realtime/test_configuration.py tests/apps/test_proxy_cancels.py \
	    tests/e2e/test_real_services.py \
	    tests/realtime/test_lease_redis_random.py tests/apps/test_tls_garbage.py tests/sim \
	    tests/apps/test_proxy_chains.py \
	    tests/apps/test_queue_garbage.py tests/live/leases/test_streams_takeover.py \
	    tests/live/redis/test_connection_close.py tests/realtime/alone/test_failing_site.py \
	    tests/apps/test_fuzzed_messages.py tests/apps/test_fuzzed_peers.py tests/live/leases/test_fuzzed_records.py \
	    tests/apps/test_schemathesis.py \
	    tests/core tests/policy tests/parity tests/contract $(ARGS)
	SPILLOVER_FAULTS_TLS=1 $(BIN)/pytest -s tests/realtime/test_faults.py \
	    tests/realtime/test_faults_clocks.py $(ARGS)

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
	UV_NO_CONFIG=1 uv pip compile pyproject.toml --extra bench --extra dask --extra leases --extra otel --extra report --extra sim --extra tls --group dev \
	    --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	    --quiet --output-file requirements.lock $(ARGS)

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find services loadgen tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.complete: requirements.lock pyproject.toml deploy/setup_venv.sh
	@deploy/setup_venv.sh
