# Each target sets up what it needs in .venv and .tools, from the locked requirements; nothing else has to be installed
# first but Debian (or the like), Python 3.11+ with its venv module (python3-venv), and make.

# The distribution's Python, if it is new enough and complete (venv, headers): it is built with profile-guided and link-time
# optimisation, which one that was compiled by hand seldom is, and takes a tenth of a request's time less. Otherwise the first of
# these that really runs and is new enough: a name on the PATH may be a shim with nothing behind it.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, os, sys, sysconfig, venv; \
	sys.exit(sys.version_info < (3, 11) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null \
	&& echo /usr/bin/python3 || for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
WHEEL := $(VENV)/wheel
ARGS ?=
EFFORT ?= 100
# The whole of the tests runs in four processes, file by file, in the order of tests/conftest.py: also on two cores, as many tests
# wait for other processes. What ARGS selects runs in one, where a debugger can be used.
PARALLEL := $(if $(ARGS),,-n 4 --dist loadfile --no-loadscope-reorder)
# Temporary files of tests are kept in memory where there is room: they sync thousands of times, and no test is about a disk that
# others keep busy. Whoever has set TMPDIR wants them there.
IN_MEMORY = if [ -z "$$TMPDIR" ] && [ "$$(( $$(stat -f -c '%a * %S' /dev/shm 2>/dev/null || echo 0) ))" -gt $$((8 << 30)) ]; then \
	TMPDIR=$$(mktemp -d -p /dev/shm) && export TMPDIR && trap 'rm -rf "$$TMPDIR"' EXIT HUP INT TERM; fi;
# Four processes import all tests, whose assertions pytest has rewritten: that is kept, also where the environment forbids byte code.
KEEPING := env -u PYTHONDONTWRITEBYTECODE

# What is started here runs the wheel of the sources as they are now, which `tools.install_wheel` keeps in $(WHEEL). With
# BARNABAS_COMPILED=no it runs the sources themselves.
ifeq ($(filter no 0 off false,$(BARNABAS_COMPILED)),)
CODE := env PYTHONPATH="$(CURDIR)/$(WHEEL)$${PYTHONPATH:+:$$PYTHONPATH}"
PYTEST := $(KEEPING) $(CODE) $(BIN)/python -m pytest -o pythonpath=.
WITH_CODE := wheel
else
CODE :=
PYTEST := $(KEEPING) $(BIN)/python -m pytest
WITH_CODE := $(VENV)/.ready-build
endif
# Two makes may want the same at a time, one of them beside a broker.
LOCKED := $(shell command -v flock >/dev/null && echo flock $(VENV)/.lock)
PIP := $(LOCKED) $(BIN)/python -m pip --disable-pip-version-check --quiet install
REQUIRED := $(PIP) --require-hashes -r

.PHONY: run setup wheel kerberos test as-macos test-clients test-browser test-pipeline pipeline-demo check check-pipeline bench growth compat gallery findings compat-cluster cluster-demo faults compare conform handover handover-metadata oracle crash soak hostile fuzz simulate turns gen site lock clean nightly mutants release try-release try-publication first-minutes help

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

run: $(VENV)/.ready-run  ## start the broker (ARGS="--listen HOST:PORT --data DIR ..."); it compiles beside if it has to
	@exec $(BIN)/python -m tools.run $(WHEEL) $(ARGS)

setup: $(VENV)/.bytecode $(WITH_CODE)  ## set up all that a broker needs, compiled, without starting anything
	@:

test: $(VENV)/.ready-test kerberos $(WITH_CODE) $(if $(ARGS),,$(VENV)/.rewritten)  ## run the tests (ARGS="-k name ...")
	@$(IN_MEMORY) $(PYTEST) $(PARALLEL) $(ARGS)

as-macos: $(VENV)/.ready-test kerberos  ## the tests with Linux seen as macOS: docs/design/macos.md (ARGS="tests/unit/network")
	$(KEEPING) PYTHONPATH="$(CURDIR)/tests/as_macos" $(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-clients: setup  ## run the tests of the helpers for other languages in clients/ (those whose toolchain is here; ARGS="go node")
	$(CODE) BARNABAS_COMMAND="$(CURDIR)/$(BIN)/python -m barnabas" sh clients/test.sh $(ARGS)

test-browser: $(VENV)/.ready-browser $(WITH_CODE)  ## run the console's tests in Chromium, which takes the docs' pictures (ARGS="-k search"; CI=true installs it)
	@sh tools/browser.sh .tools/browser
	$(PYTEST) tests/browser $(ARGS)

test-pipeline: $(VENV)/.ready-stores  ## run the pipeline's tests, which start Spark (Java 17 or newer)
	$(BIN)/python -m pytest tests/pipeline $(ARGS)

pipeline-demo: $(if $(findstring s3,$(ARGS)),$(VENV)/.ready-stores,$(VENV)/.ready-spark) $(WITH_CODE)  ## broker, simulated stream and all jobs; ends with an HTML report (ARGS="--store s3 --format avro --out DIR")
	$(CODE) $(BIN)/barnabas-pipeline demo $(ARGS)

nightly: $(VENV)/.ready-mutation $(WITH_CODE)  ## the random tests, each with a hundred times the examples (EFFORT=100), the longest turns, 200 mutants, all tests as on macOS, the first minutes, the unit, brokers under a quorum
	BARNABAS_TEST_EFFORT=$(EFFORT) HYPOTHESIS_PROFILE=nightly $(PYTEST) tests/property $(ARGS)
	BARNABAS_TEST_EFFORT=4 $(PYTEST) tests/unit/cluster/kraft
	$(MAKE) turns ARGS=
	$(BIN)/python -m tools.mutants --planted
	$(BIN)/python -m tools.mutants --total 200 --seed $$(date +%F)
	$(MAKE) as-macos ARGS=
	$(MAKE) first-minutes ARGS="--only bare --limit-s 60"
	sh deploy/try-unit.sh $(BIN)/python server
	$(MAKE) compat-cluster ARGS="quorum --controllers 3"
	$(MAKE) compat-cluster ARGS="quorum --version 4.0.2 --controllers 3 --voters static --mixes two-of-ours,rolled"
	$(MAKE) compat-cluster ARGS="quorum --version 4.1.1 --voters static --mixes one-of-ours"
	$(MAKE) compat-cluster ARGS="quorum --version 4.2.0 --mixes two-of-ours"
	$(MAKE) compat-cluster ARGS="quorum --version 4.3.1 --mixes two-of-ours,rolled"
	$(MAKE) compat-cluster ARGS="quorum --quorum ours --controllers 3"
	$(MAKE) compat-cluster ARGS="quorum --quorum two-of-ours --controllers 3 --mixes one-of-ours"
	$(CODE) $(BIN)/python -m compat.metadata.voters
	$(CODE) $(BIN)/python -m compat.cluster.quorum_faults --controllers 3 --rounds 60
	$(CODE) $(BIN)/python -m compat.cluster.quorum_faults --mix ours --quorum ours --controllers 3 --minutes 10
	$(CODE) $(BIN)/python -m compat.cluster.quorum_faults --quorum two-of-ours --controllers 3 --minutes 10
	$(CODE) $(BIN)/python -m compat.crash.tiered --brokers 3 --seconds 1800
	$(CODE) $(BIN)/python -m compat.tiered.cluster
	$(CODE) $(BIN)/python -m compat.tiered.cluster --zookeeper
	$(CODE) $(BIN)/python -m compat.tiered.following
	$(CODE) $(BIN)/python -m compat.tiered.following --zookeeper
	$(CODE) $(BIN)/python -m compat.stores
	$(CODE) $(BIN)/python -m compat.cluster.scenarios
	$(CODE) $(BIN)/python -m compat.cluster.quorum_peers
	$(CODE) $(BIN)/python -m compat.cluster.quorum_peers --controllers 3 --entrance certificates
	$(CODE) $(BIN)/python -m compat.cluster.parity

mutants: $(VENV)/.ready-mutation  ## small bugs planted in the sources, which the nearest tests must notice (ARGS="log transactions --sample 40")
	$(BIN)/python -m tools.mutants $(ARGS)

turns: $(VENV)/.ready-test  ## each API's worst request against a broker that holds much: lines in one turn of its event loop (ARGS="API ...")
	BARNABAS_TEST_EFFORT=10 PYTHONPATH=server:. $(BIN)/python -m tests.support.loop_turns --verbose $(ARGS)
	BARNABAS_TEST_EFFORT=10 PYTHONPATH=server:. $(BIN)/python -m tests.support.wide_turns --verbose $(ARGS)

check: $(VENV)/.ready-check  ## lint, types, layering, generated code and docs up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=server:. $(BIN)/lint-imports
	$(BIN)/python -m codegen --check
	$(BIN)/python -m tools.reference --check

check-pipeline: $(VENV)/.ready-check $(VENV)/.ready-spark  ## types of the pipeline, with those of pyiceberg, pyspark and numpy
	$(BIN)/mypy --config-file pipeline/mypy.ini

gen: $(VENV)/.ready-test  ## generate the codecs from schemas/ and the reference from the tables
	$(BIN)/python -m codegen
	$(BIN)/python -m tools.reference

site: $(VENV)/.ready-site  ## build the site of the documentation in build/site; a link that leads nowhere fails it
	@# --quiet would hide the warnings that --strict counts
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo "build/site/index.html; with its search: python3 -m http.server --bind 127.0.0.1 --directory build/site"

compat: $(VENV)/.ready-test $(WITH_CODE)  ## stock clients against the broker: the matrix (ARGS="--clients a,b")
	$(CODE) $(BIN)/python -m compat.matrix $(ARGS)

findings:  ## what surprised us in other software, shown without ours, from their registries (ARGS="fastavro-numbers-unchecked ...")
	@status=0; for name in $(if $(ARGS),$(ARGS),$(basename $(notdir $(wildcard findings/*.sh)))); do \
	    if findings/$$name.sh; then echo "as seen  $$name"; else echo "CHANGED  $$name"; status=1; fi; done; exit $$status

gallery: $(VENV)/.ready-test $(WITH_CODE)  ## bugs of released clients, each shown from a clean start (ARGS="kafkajs-cut-answer", ARGS=--list)
	$(CODE) $(BIN)/python -m compat.gallery $(if $(ARGS),$(ARGS),all)

compat-cluster: $(VENV)/.ready-test $(WITH_CODE)  ## clusters of Apache Kafka and ours, in every role: 3.9 on one ZooKeeper, or 4 (ARGS="quorum --mixes ours") (needs a JDK)
	$(CODE) $(BIN)/python -m compat.cluster $(ARGS)

cluster-demo: $(VENV)/.ready-test $(WITH_CODE)  ## three brokers under load, one killed, nothing lost, told step by step
	$(CODE) $(BIN)/python -m compat.cluster.demo $(ARGS)

faults: $(VENV)/.ready-test $(WITH_CODE)  ## three brokers and ZooKeepers killed, cut off, with full disks, under stock clients (ARGS="--rounds 200 --seed 7")
	$(CODE) $(BIN)/python -m compat.faults $(ARGS)

oracle: $(VENV)/.ready-test  ## every message and version against Kafka's own serialisers (needs a JDK)
	$(BIN)/python compat/codec-oracle/compare.py $(ARGS)

crash: $(VENV)/.ready-test $(WITH_CODE)  ## the broker killed under idempotent producers, nothing lost (ARGS="--rounds 200 --seed 7")
	$(CODE) $(BIN)/python -m compat.crash $(ARGS)

compare: $(VENV)/.ready-test $(WITH_CODE)  ## settings, admin requests, controllers, quotas, groups, transactions, random histories of logs and share groups, telemetry, metadata logs, refusals, logins side by side with Apache Kafka (needs a JDK)
	$(CODE) $(BIN)/python -m compat.configs.compare $(ARGS)
	$(CODE) $(BIN)/python -m compat.configs.copying
	$(CODE) $(BIN)/python -m compat.admin.compare $(ARGS)
	$(CODE) $(BIN)/python -m compat.controller.compare
	$(CODE) $(BIN)/python -m compat.controller.levels
	$(CODE) $(BIN)/python -m compat.quotas.compare $(ARGS)
	$(CODE) $(BIN)/python -m compat.groups.compare $(ARGS)
	$(CODE) $(BIN)/python -m compat.log.histories
	$(CODE) $(BIN)/python -m compat.share.histories
	$(CODE) $(BIN)/python -m compat.telemetry.compare $(ARGS)
	$(CODE) $(BIN)/python -m compat.metadata
	$(CODE) $(BIN)/python -m compat.metadata.observing
	$(CODE) $(BIN)/python -m compat.security.compare $(ARGS)
	$(CODE) $(BIN)/python -m compat.security.mechanisms $(ARGS)
	$(CODE) $(BIN)/python -m compat.security.networks
	$(CODE) $(BIN)/python -m compat.releases

conform: $(VENV)/.ready-test $(WITH_CODE)  ## the wire suite against Apache Kafka 4.4 and 3.9, ours, librdkafka's mock, kfake and Tansu; writes docs/conformance (needs a JDK; ARGS="barnabas kafka-4")
	$(CODE) $(BIN)/python -m compat.conform $(ARGS)

handover: $(VENV)/.ready-test $(WITH_CODE)  ## log dirs, groups and transactions handed from us to Apache Kafka and back, and from Kafka to us (needs a JDK)
	$(CODE) $(BIN)/python -m compat.log.handover $(ARGS)
	$(CODE) $(BIN)/python -m compat.groups.handover $(ARGS)
	$(MAKE) handover-metadata ARGS=

handover-metadata: $(VENV)/.ready-test $(WITH_CODE)  ## one directory of a broker, with all its metadata, from us to Apache Kafka and back (needs a JDK; ARGS="--pairs alone-kafka")
	$(CODE) $(BIN)/python -m compat.metadata.handover $(ARGS)

soak: $(VENV)/.ready-test $(WITH_CODE)  ## transactional clients and the broker killed at random, nothing lost (ARGS="--rounds 100 --seed 7")
	$(CODE) $(BIN)/python -m compat.soak $(ARGS)

simulate: $(VENV)/.ready-test $(WITH_CODE)  ## whole brokers in simulated worlds, every history judged (ARGS="--count 10000", "--seed 7" repeats one, --cluster, --harsh)
	$(CODE) $(BIN)/python -m tests.simulation $(ARGS)

hostile: $(VENV)/.ready-test $(WITH_CODE)  ## attacks on a running broker, and a client that sends little beside them (ARGS="--short 'bomb-*'")
	$(CODE) $(BIN)/python -m compat.hostile $(ARGS)

fuzz: $(VENV)/.ready-test $(WITH_CODE)  ## hostile input without end: before a login, TLS, requests, decoders, records (ARGS="login --count 1000000")
	$(CODE) $(BIN)/python -m compat.fuzz $(ARGS)

bench: $(VENV)/.ready-test $(VENV)/.ready-compile  ## measure, side by side with Apache Kafka, librdkafka's mock cluster, kfake and Tansu (ARGS="--quick")
	$(BIN)/python -m bench $(ARGS)

growth: $(VENV)/.ready-test $(VENV)/.ready-compile $(VENV)/.ready-plots  ## CPU per request over partitions, log size, connections, groups: plots in docs/design (ARGS="partitions --max 1000")
	$(BIN)/python -m bench.growth --out docs/design $(ARGS)

release: $(VENV)/.ready-release  ## make and compare the files of a release in dist/: wheels, sdist, Debian package, parts, sums (ARGS=--once)
	$(BIN)/python -m tools.packaging.release $(ARGS)

try-release: $(VENV)/.ready-test  ## install the files in dist/ where nothing else is, and serve stock clients (as root; ARGS="wheels deb container")
	$(BIN)/python -m tools.packaging.trial $(ARGS)

try-publication: $(VENV)/.ready-release  ## make each package as its registry wants it, and publish nothing (ARGS="wheel node rust java go container formula")
	$(BIN)/python -m tools.packaging.publication $(ARGS)

first-minutes: $(VENV)/.ready-test  ## seconds from a bare Debian to the first record, without a compiler and with one (as root)
	$(BIN)/python -m tools.packaging.first_minutes $(ARGS)

lock: $(VENV)/.ready-check  ## renew requirements/*.txt from pyproject.toml
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/python -m tools.lock

clean:  ## remove what make has set up
	rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis

# --- set-up -----------------------------------------------------------------------------------------------------

$(VENV)/bin/python:
	@PYTHON="$(PYTHON)" sh tools/make-venv.sh $(VENV)

# All that a broker needs. Byte code is compiled by the first start that imports a module, or in one go for `make setup`.
$(VENV)/.ready-run: $(VENV)/bin/python requirements/run.txt
	@echo "setting up $(VENV), once"
	@$(REQUIRED) requirements/run.txt --no-deps --no-compile
	@touch $@

# The project itself, as its sources are.
$(VENV)/.ready-build: $(VENV)/.ready-run requirements/build.txt pyproject.toml
	$(REQUIRED) requirements/build.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# mypyc, where this machine can compile with it.
$(VENV)/.ready-compile: $(VENV)/.ready-build requirements/compile.txt
	@if [ -z "$$($(BIN)/python -c 'import hatch_build; print(hatch_build.missing())')" ]; then \
		$(REQUIRED) requirements/compile.txt && touch $@; fi

# The project's wheel, installed apart from the packages that it needs: a look at the sources' times if none has changed.
wheel: $(VENV)/.ready-compile
	@$(LOCKED) $(BIN)/python -m tools.install_wheel $(WHEEL)

# Byte code of the packages, which a process with PYTHONDONTWRITEBYTECODE or without the right to write here would make at each start.
$(VENV)/.bytecode: $(VENV)/.ready-build
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # some packages bring files for other versions of Python
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready-build requirements/test.txt
	$(REQUIRED) requirements/test.txt
	@touch $@

# pytest rewrites the assertions of all tests when they are first imported, for which it needs 20 s of CPU. The four processes of the
# tests would each do it, as they import the same at the same time: two others do it beforehand, half each.
HALF := $(addprefix tests/unit/,broker cluster coordinators handlers log tools)
$(VENV)/.rewritten: | $(VENV)/.ready-test $(WITH_CODE)
	@$(PYTEST) --collect-only -qq $(HALF) >/dev/null 2>&1 & \
	$(PYTEST) --collect-only -qq $(addprefix --ignore=,$(HALF)) >/dev/null 2>&1; wait; touch $@

# The package for Kerberos, where it can be compiled: tests that need it are skipped elsewhere.
kerberos: $(VENV)/.ready-test
	@[ $(VENV)/.ready-kerberos -nt requirements/kerberos.txt ] || sh tools/kerberos.sh $(BIN)/python $(VENV)/.ready-kerberos

$(VENV)/.ready-check: $(VENV)/.ready-test requirements/check.txt
	$(REQUIRED) requirements/check.txt
	@touch $@

$(VENV)/.ready-mutation: $(VENV)/.ready-test requirements/mutation.txt
	$(REQUIRED) requirements/mutation.txt
	@touch $@

$(VENV)/.ready-release: $(VENV)/.ready-compile requirements/release.txt
	$(REQUIRED) requirements/release.txt
	@touch $@

$(VENV)/.ready-plots: $(VENV)/.ready-test requirements/plots.txt
	$(REQUIRED) requirements/plots.txt
	@touch $@

$(VENV)/.ready-browser: $(VENV)/.ready-test requirements/browser.txt
	$(REQUIRED) requirements/browser.txt
	@touch $@

$(VENV)/.ready-site: $(VENV)/.ready-test requirements/site.txt
	$(REQUIRED) requirements/site.txt
	@touch $@

$(VENV)/.ready-spark: $(VENV)/.ready-test requirements/spark.txt
	$(REQUIRED) requirements/spark.txt
	@touch $@

$(VENV)/.ready-stores: $(VENV)/.ready-spark requirements/stores.txt
	$(REQUIRED) requirements/stores.txt
	@touch $@
