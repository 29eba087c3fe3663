# Everything a person types here: make demo, make test. Needs make, bash, Python 3.10-3.13 (or uv) and Go
# (unless livekit-server is on PATH); the rest it makes itself, in .venv and .tools, once.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON := .venv/bin/python
READY := .venv/.ready
LIVEKIT_VERSION := v1.13.5
LIVEKIT_SERVER := $(shell command -v livekit-server || echo .tools/livekit-server)
LIVEKIT_CLIENT_VERSION := 2.23.0
AXE_VERSION := 4.14.1
NPM_INSTALL := npm install --prefix .tools/npm --no-save --no-audit --no-fund --ignore-scripts --loglevel error
LIVEKIT_CLIENT := livekit_personaplex/web/static/vendor/livekit-client.esm.mjs
AXE := .tools/npm/node_modules/axe-core/axe.min.js
GSTREAMER_PACKAGES := gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-python3-plugin-loader \
    python3-gst-1.0 gir1.2-gst-plugins-base-1.0 python3-aiohttp python3-numpy
TEST_PACKAGES := chromium redis-server $(GSTREAMER_PACKAGES)
ARGS ?=

.PHONY: help setup demo web test test-packages check format bench clean

help:
	@echo "make demo     one call with a recorded question (ARGS='--help' lists what can be changed)"
	@echo "make web      the library of the page to talk on (needs npm)"
	@echo "make test     lint, types and every test, real rooms included"
	@echo "make check    lint and types only"
	@echo "make format   format the code"
	@echo "make bench    measure the latency in a real room"
	@echo "make clean    remove what was made here, .venv and .tools included"

setup: $(READY)

demo: $(READY) $(LIVEKIT_SERVER)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web; fi
	@.venv/bin/livekit-personaplex demo $(ARGS)

web: $(LIVEKIT_CLIENT)
	@:

test: check $(LIVEKIT_SERVER) test-packages
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(LIVEKIT_CLIENT) $(AXE); \
	    else echo "npm is not on PATH: tests of the page are skipped" >&2; fi
	@$(PYTHON) -m pytest $(ARGS)

# What tests need of the system; those that find it missing are skipped and say so.
test-packages:
	@missing=; \
	for name in $(TEST_PACKAGES); do dpkg -s $$name >/dev/null 2>&1 || missing="$$missing $$name"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else \
	    echo "not installed:$$missing; some tests are skipped without (apt-get install$$missing)" >&2; \
	fi

check: $(READY)
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

format: $(READY)
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

bench: $(READY) $(LIVEKIT_SERVER)
	@$(PYTHON) -m tests.benchmarks.room_latency $(ARGS)

clean:
	rm -rf .venv .tools $(dir $(LIVEKIT_CLIENT)) .mypy_cache .ruff_cache .pytest_cache demo-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# uv where it works; otherwise the first Python that fits, its venv and a pip that knows groups.
$(READY): pyproject.toml
	@if uv --version >/dev/null 2>&1; then \
	    [ -x $(PYTHON) ] || uv venv --python '>=3.10,<3.14' .venv; \
	    uv pip install --python $(PYTHON) --editable . --group dev; \
	else \
	    fits='import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))'; \
	    found=; \
	    for name in python3 python3.13 python3.12 python3.11 python3.10; do \
	        if $$name -c "$$fits" 2>/dev/null; then found=$$name; break; fi; \
	    done; \
	    [ -n "$$found" ] || { echo "Python 3.10 to 3.13 is needed, and none is on PATH; install one (or uv) and try again." >&2; exit 1; }; \
	    [ -x $(PYTHON) ] || $$found -m venv .venv; \
	    $(PYTHON) -m pip install --quiet --upgrade 'pip>=25.1'; \
	    $(PYTHON) -m pip install --editable . --group dev; \
	fi
	@if uv --version >/dev/null 2>&1; then install="uv pip install --python $(PYTHON)"; \
	else install="$(PYTHON) -m pip install"; fi; \
	$$install --editable '.[captions]' || \
	    echo "there is no recogniser of callers' words for this machine: all else works without" >&2
	@touch $@

.tools/livekit-server:
	@command -v go >/dev/null || { echo "livekit-server is not on PATH and there is no Go to build it with; install either (https://docs.livekit.io/home/self-hosting/local, https://go.dev/dl) and try again." >&2; exit 1; }
	@echo "building livekit-server $(LIVEKIT_VERSION) into .tools (2 to 3 minutes, once)"
	@GOBIN=$(CURDIR)/.tools go install github.com/livekit/livekit-server/cmd/server@$(LIVEKIT_VERSION)
	@mv .tools/server $@

$(LIVEKIT_CLIENT): Makefile
	@command -v npm >/dev/null || { echo "npm is needed to install livekit-client for the page, and is not on PATH; install Node.js and try again." >&2; exit 1; }
	@$(NPM_INSTALL) livekit-client@$(LIVEKIT_CLIENT_VERSION)
	@mkdir -p $(@D)
	@cp .tools/npm/node_modules/livekit-client/LICENSE $(@D)/livekit-client.LICENSE
	@sed '/^\/\/# sourceMappingURL=/d; s/\/\/# sourceMappingURL=.*//' .tools/npm/node_modules/livekit-client/dist/livekit-client.esm.mjs >$@

$(AXE): Makefile
	@$(NPM_INSTALL) axe-core@$(AXE_VERSION)
	@touch $@
