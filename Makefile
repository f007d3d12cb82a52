# make demo   retrain a real model twelve times on this machine and show what it cost
# make test   run the tests, on SQLite and on a real PostgreSQL
# Both make their environment in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPING := .typing/zeus_kfp
ROOMS := zeus_core state_store components pipelines compiled
RECURRENCES ?= 12
# cpu, or fake-gpu: a simulated GPU, whose power limits are profiled and set
DEVICE ?= cpu
# Every one is run whatever the others do; one that ends with 77 says that it can't be run here.
BENCHMARKS ?= $(wildcard benchmarks/*.py)

.PHONY: demo test lint bench golden clean

demo: $(STAMP)
	$(BIN)/zeus-kfp demo --folder demo --recurrences $(RECURRENCES) --device $(DEVICE)

test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ARGS)

lint: $(STAMP) $(TYPING)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(foreach room,$(ROOMS),-p zeus_kfp.$(room))
	$(BIN)/lint-imports

bench: $(STAMP)
	@failed=; for file in $(BENCHMARKS); do \
		echo "== $$file"; $(BIN)/python $$file; code=$$?; \
		if [ $$code -eq 77 ]; then echo "-- $$file was skipped"; \
		elif [ $$code -ne 0 ]; then echo "-- $$file failed with $$code"; failed="$$failed $$file"; fi; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

golden: $(STAMP)
	$(BIN)/python -m zeus_kfp.pipelines.golden .

clean:
	rm -rf $(VENV) .typing build dist demo *.egg-info

# torch and the rest are pinned: an unpinned torch would bring several gigabytes of CUDA.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[demo,test,lint]"
	$(BIN)/python -m pip install --quiet --no-deps zeus==0.16.0
	touch $@

# Type checkers do not follow an editable install that maps folders to packages; these links do it for them.
$(TYPING):
	mkdir -p $(TYPING)
	for room in $(ROOMS); do ln -sfn ../../$$room $(TYPING)/$$room; done
