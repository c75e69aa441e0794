# Every target sets up .venv by itself, with the versions in constraints.txt.
# Another interpreter than python3 (after make clean, where .venv is there already): make test PYTHON=python3.13

PYTHON ?= python3
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(STAMP) ## train MACPF on the matrix game, 5 seeds, into runs/demo
	@rm -rf runs/demo
	.venv/bin/macpf train macpf matrix-game --seeds 5 --out runs/demo

test: lint ## lint, then all tests
	.venv/bin/pytest -n 2 --dist worksteal

lint: $(STAMP) ## style, format and types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/pyright

bench: $(STAMP) ## time the learner
	.venv/bin/macpf bench learner

clean: ## remove .venv, the demo's run, caches and built packages
	rm -rf .venv runs/demo dist build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment that is already there is kept and brought to the pins; one left half made is removed.
$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "$(PYTHON) was not found: install Python 3.11 or newer, or name one with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than Python 3.11, which macpf needs: name a newer one with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) lacks its venv module or pip (on Debian and Ubuntu: the package python3-venv)." >&2; exit 1; }
	@echo "Setting up .venv (once) ..."
	@test -x .venv/bin/pip || "$(PYTHON)" -m venv .venv || { rm -rf .venv; exit 1; }
	@.venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@
