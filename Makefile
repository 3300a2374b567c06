# Two commands are enough: `make lab` opens the workbook, `make test` checks everything.
# Each sets up .venv first, once. A recipe is one line; the work is in tools/.

PYTHON ?= python3
READY := .venv/.ready
# Extra arguments for JupyterLab go through the environment, so that no shell reads them twice.
export LAB_ARGS

.PHONY: help lab test test-environments run bench notebooks lint
.DELETE_ON_ERROR:

help:
	@sed -n 's/^## //p' Makefile

## make lab        set up once, open JupyterLab at the first notebook  (LAB_ARGS="--port=9000")
lab: $(READY)
	@.venv/bin/python tools/lab.py

## make test       set up once, run every check
test: $(READY)
	@.venv/bin/python tools/run_tests.py

## make test-environments  let the doctor examine faulty environments; downloads about 1 GB
test-environments: $(READY)
	@.venv/bin/python tools/test_environments.py

## make run        run every notebook on your project; results in build/index.html
run: $(READY)
	@.venv/bin/python tools/run_notebooks.py

## make bench      measure against peers and plain operations
bench: $(READY)
	@.venv/bin/python benchmarks/run.py

## make notebooks  run the notebooks in place and make their outputs fit to commit
notebooks: $(READY)
	@.venv/bin/python tools/run_notebooks.py --in-place

## make lint       ruff and mypy only
lint: $(READY)
	@.venv/bin/python tools/run_tests.py ruff format mypy

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) tools/set_up.py
