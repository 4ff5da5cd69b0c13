# Two commands do everything on a machine with Python 3.11 or newer: make demo, make test.
# Each installs what it needs into .venv, once: a second run finds the stamp newer than what it depends on.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE # hundreds of processes are started here, and without bytecode each compiles all that it imports

.PHONY: demo test check sbom requirements proof campaigns fleets deaths cuts bugs bench fuzz seeded disks worlds kills networks focus-validator golden market clean help

help:
	@echo "make demo    a quote on real prices, a simulated weekend that is guarded, a fortnight beside its bill, in seconds"
	@echo "make test    the tests that belong to every change: some minutes"
	@echo "make check   what a contributor runs before a commit: ruff, mypy, import-linter, the house test, licences and vulnerabilities"
	@echo "make proof   what CI plays beside the tests: campaigns, 20 instance-years of fleets, 5,000 kill -9, 30,000 power cuts, 10 seeded bugs, fuzzing"
	@echo "make campaigns  the tests that make test leaves out: stories, worlds, crashes, networks, adapters times cases, all examples"
	@echo "make bench   speed of start-up, quote, ledger, polls and guard as ratios; accuracy against published runs and dated prices"
	@echo "make fuzz    hostile input for six readers, bounds of CPU time and memory (SECONDS=30 each, TARGETS='bills feeds')"
	@echo "make seeded  one fault after the other is put into a copy of the tree, and a test must notice: half an hour"
	@echo "make disks   power cuts, failing and full disks: tries, bounds and controls (FIGURES=cuts, COSTGUARD_CUTS=100000)"
	@echo "make worlds  simulated worlds against the real guard: a campaign that goes on where it was cut off (WORLDS=200 FROM=0 KIND=|wired|books)"
	@echo "make kills   kill -9 while it records and while it acts: what was lost, what was done without an intent (KILLS=5000)"
	@echo "make networks  every fault of a network between costguard and each cloud; wrong TLS"
	@echo "make focus-validator  a FOCUS 1.2 export through the Foundation's own validator (needs Python 3.12: FOCUS_PYTHON=; FILE=)"
	@echo "make requirements  pin requirements.txt anew, with hashes, from constraints.txt (what the image installs)"
	@echo "make sbom    the list of materials of the image (CycloneDX) into .proof/sbom.json"
	@echo "make golden  write tests/golden anew (then read the diff)"
	@echo "make market  build the shipped price snapshot anew, and fit how prices drift, from ../shared"

demo: .venv/.user
	@$(BIN)/costguard demo

# Ledgers wait for the disk at each commit; in memory that takes no time. Not where it is small, or nothing may be run from it.
MEMORY := /dev/shm
IN_MEMORY = $(shell d=$$(mktemp -d $(MEMORY)/costguard.XXXXXX 2>/dev/null) && { cp "$$(command -v env)" $$d/env && $$d/env true \
  && [ "$$(df -Pk $$d | awk 'NR == 2 { print $$4 }')" -gt 4000000 ] && echo TMPDIR=$(MEMORY); rm -r $$d; } 2>/dev/null)

# Play the tests that a marker expression names. With RETRY=1, as in CI, what failed is played once more, alone: a fault fails
# again, a test that real processes and a busy machine made late does not, and both are printed.
pytest = env $(IN_MEMORY) $(2) $(BIN)/python -m pytest -m "$(1)"
play = @$(pytest) -n auto --dist worksteal $(ARGS) $(if $(RETRY),|| { \
  [ $$? = 1 ] && echo "once more and alone:" >&2 && $(pytest) --last-failed; })

test: .venv/.dev
	$(call play,not proof)

check: .venv/.supply
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_house.py # no cache: `make test` may run beside it
	@$(BIN)/python scripts/check_supply.py

# The extras that the Dockerfile installs, on every system and Python from 3.11. No address stands in the file.
requirements: .venv/.supply
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --constraint constraints.txt --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links --output-file requirements.txt \
	  $(foreach extra,aws azure gcp notify otel parquet patterns postgres web,--extra $(extra)) pyproject.toml

# From an environment that holds what the image installs, hashes checked, and nothing else.
sbom: .venv/.supply
	@mkdir -p .proof && $(BIN)/uv venv --quiet --clear --python $(BIN)/python .proof/image
	@$(BIN)/uv pip sync --quiet --python .proof/image/bin/python --require-hashes requirements.txt
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o .proof/sbom.json .proof/image/bin/python
	@echo ".proof/sbom.json: $$(grep -c '"purl"' .proof/sbom.json) packages"

# What `make test` leaves out (tests/campaign.py): tests and cases marked `proof`, and hypothesis with all its examples.
# PART=1/3 plays a third of it.
campaigns: .venv/.dev
	$(call play,proof or hypothesis,COSTGUARD_EXAMPLES=full $(if $(PART),COSTGUARD_PART=$(PART)))

# Each of the four has stretches in which one process works: two at a time keep two cores busy to the end.
FLEETS ?= 72
KILLS_EACH ?= 2520
CUTS ?= 30000
proof: campaigns
	@$(MAKE) --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) bugs fleets deaths cuts
	@$(MAKE) fuzz SEED=ci # the same inputs each time: a change is not refused for what another seed would find

fuzz: .venv/.dev
	@env $(IN_MEMORY) $(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),30) $(if $(SEED),--seed $(SEED)) $(TARGETS)

fleets: .venv/.dev
	@mkdir -p .proof
	@$(BIN)/python -m tests.simulation campaign --kind books --worlds $(FLEETS) --from 5000 --chunk 2 --log .proof/fleets.jsonl

deaths: .venv/.dev
	@$(BIN)/python -m tests.crashes --story acting --story recording --kills $(KILLS_EACH)

cuts: .venv/.dev
	@COSTGUARD_CUTS=$(CUTS) COSTGUARD_CONTROL_CUTS=100 $(BIN)/python -m tests.disks cuts

bugs: .venv/.dev
	@$(BIN)/python -m tests.seeded --rotate 10 --own

bench: .venv/.dev
	@$(BIN)/python -m bench.start
	@$(BIN)/python -m bench.api
	@$(BIN)/python -m bench.quote
	@$(BIN)/python bench/accuracy.py
	@$(BIN)/python bench/prices.py
	@$(BIN)/python -m bench.prices_refresh
	@$(BIN)/python -m bench.ledger
	@$(BIN)/python -m bench.poll
	@$(BIN)/python -m bench.guard
	@$(BIN)/python -m bench.report

seeded: .venv/.dev
	@nice $(BIN)/python -m tests.seeded $(ARGS)

disks: .venv/.dev
	@$(BIN)/python -m tests.disks $(FIGURES)

worlds: .venv/.dev
	@$(BIN)/python -m tests.simulation campaign --worlds $(or $(WORLDS),200) --from $(or $(FROM),0) $(if $(KIND),--kind $(KIND))

kills: .venv/.dev
	@$(BIN)/python -m tests.crashes --story acting --story recording --kills $(or $(KILLS),5000)

networks: .venv/.dev
	@$(BIN)/python -m tests.networks

focus-validator: .venv/.user
	@$(BIN)/python scripts/focus_validator.py $(FILE)

golden: .venv/.dev
	@$(BIN)/python -m pytest -q tests/golden tests/renderers tests/cli/test_focus.py tests/inputs/test_bad_inputs.py tests/inputs/test_bad_replies.py tests/scripts/test_list_messages.py --write-golden

market: .venv/.dev
	@$(BIN)/python scripts/build_market.py
	@$(BIN)/python scripts/fit_price_drift.py

clean:
	rm -rf .venv .proof .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "costguard needs Python 3.11 or newer, and '$(PYTHON)' is older or missing: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "making .venv (once) ..." >&2
	@$(PYTHON) -m venv .venv || { rm -rf .venv; command -v uv >/dev/null && uv venv --seed --quiet --python $(PYTHON) .venv; } \
	  || { rm -rf .venv; echo "python's venv is missing: install it (Debian: apt install python3-venv) or uv" >&2; exit 2; }

.venv/.user: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing costguard (once) ..." >&2
	@$(PIP) install --constraint constraints.txt --editable '.[aws,azure,gcp,notify]'
	@touch $@

.venv/.dev: .venv/.user
	@echo "installing what the tests need (once) ..." >&2
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

.venv/.supply: .venv/.dev
	@echo "installing what audits the packages (once) ..." >&2
	@$(PIP) install --constraint constraints.txt --editable '.[supply]'
	@touch $@
