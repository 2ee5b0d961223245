# One command each; all are idempotent and quick the second time.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
UV := $(BIN)/uv pip install -q --python $(BIN)/python
# Many tests drive several real processes at once: on CI's busy machines one that fails is tried once more, and the report says so.
AGAIN := $(if $(CI),--reruns 1 --reruns-delay 1 --rerun-show-tracebacks -rR)
# Tests wait for processes half of their time: four at once keep two cores at work. Who has finished takes from who has not.
PARALLEL := -n 4 --dist worksteal
# All that runs beside others: a change is tested with what is not long.
WHOLE := "not faults and not slow"
# Each run starts some hundred Python processes, and each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
COMPILE := $(BIN)/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --universal

.PHONY: setup dev demo demo-rollout builds test test-page test-fast coverage test-clients test-long test-faults test-cluster-slow native images chaos check unit oracles engine registry stores sigstore helm plane kwok dev-cluster fuzz bench messages crds reference sbom audit docs release lock clean

setup: .venv/.ready ## what running needs, in .venv

# uv halves the time and is itself a sixth of the size, so it goes again.
.venv/.ready: requirements/run.txt requirements/uv.txt pyproject.toml
	@echo "==> setting up .venv (about half a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 setup")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements/uv.txt
	$(UV) --require-hashes -r requirements/run.txt
	$(UV) --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip uninstall -q -y uv setuptools
	@touch $@

dev: .venv/.dev ## and what developing needs

.venv/.dev: .venv/.ready requirements/dev.txt
	@echo "==> adding the tools for development to .venv"
	$(PIP) --require-hashes -r requirements/uv.txt
	$(UV) --require-hashes -r requirements/dev.txt
	@touch $@

demo-rollout: setup ## a change that an override stops for a while, and one that is rolled back
	@$(BIN)/python examples/demo_rollout.py

demo: setup ## a repository, flagstaff up, an OpenFeature client, two commits
	@$(BIN)/python examples/demo.py

test: builds check unit ## what a change needs: format, lint, types, import contracts, unit tests and short tests of a cluster

builds: dev ## says which programs the tests will build first, and for how long
	@$(BIN)/python -m tests.builds

check: dev ## format, lint, import contracts and types; prints how much code each package has
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	@$(BIN)/python -m tests.code_size

# The control plane takes longest to build, and the unit tests need none: both at once.
unit: dev oracles engine registry stores sigstore helm
	@$(MAKE) --no-print-directory -j2 built-plane unit-alone
	$(BIN)/python -m pytest $(PARALLEL) $(AGAIN) --ignore tests/unit --ignore tests/page tests

.PHONY: built-plane unit-alone
built-plane:
	@$(MAKE) --no-print-directory plane
	@$(MAKE) --no-print-directory kwok

unit-alone:
	$(BIN)/python -m pytest $(PARALLEL) $(AGAIN) tests/unit

test-page: dev ## the page in a browser; installs Debian's Chromium, as root, where there is none
	@$(BIN)/python -m tests.page.browser
	$(BIN)/python -m pytest $(AGAIN) tests/page

test-fast: dev ## the unit tests alone: no control plane, no clients, nothing to build
	$(BIN)/python -m pytest $(PARALLEL) -m "not faults and not slow and not long and not oracle" tests/unit

coverage: dev oracles engine registry stores sigstore helm plane kwok ## the tests of `make test` and `make test-long`, and which lines no test reaches, in coverage.xml; twice as slow
	$(BIN)/python -m pytest $(PARALLEL) -m $(WHOLE) --ignore tests/page --cov --cov-report=term --cov-report=xml

test-clients: dev plane ## the published providers of other languages, fetched once
	@$(BIN)/python -m tests.foreign.languages
	$(BIN)/python -m pytest $(AGAIN) -m $(WHOLE) tests/foreign tests/cluster/test_in_process.py

test-long: dev oracles engine registry stores sigstore helm plane kwok ## what takes long for what happens seldom, in processes and on a cluster
	$(BIN)/python -m pytest $(PARALLEL) $(AGAIN) -m long --ignore tests/page tests

test-faults: dev ## upstreams, disks, clocks and clients that fail; tells how long each recovery took
	$(BIN)/python -m pytest -n 2 $(AGAIN) -m faults tests/clients

oracles: .oracles/v2/.ready .oracles/v3/.ready ## the published Python cores, each in an environment of its own

.oracles/%/.ready: requirements/oracle-%.txt | dev
	@echo "==> setting up the oracle for fractional $*"
	@test -x .oracles/$*/bin/python || $(PYTHON) -m venv --without-pip .oracles/$*
	$(BIN)/uv pip install -q --python .oracles/$*/bin/python --require-hashes -r $<
	@touch $@

engine: dev ## the evaluator of flagd's own core, and a client of grpc-go, Go modules for the tests, built once (two minutes)
	@$(BIN)/python -m tests.contract.flagd_core >/dev/null
	@$(BIN)/python -m tests.contract.grpc_go >/dev/null

registry: dev ## container registries for the tests, two Go modules, built once (minutes), and Debian's package
	@$(BIN)/python -m tests.registry.program >/dev/null

stores: dev ## stand-ins for the stores of Google and Azure, a Go module and an npm package, built once (minutes)
	@$(BIN)/python -m tests.buckets >/dev/null

sigstore: dev ## Sigstore's client for the tests, a Go module, built once (minutes)
	@$(BIN)/python -m tests.sigstore.program >/dev/null

helm: dev ## Helm for the tests of the chart, a Go module, built once (minutes)
	@$(BIN)/python -m tests.helm.program >/dev/null

plane: dev ## etcd, kube-apiserver and kubectl for the tests, built once (minutes)
	@$(BIN)/python -m tests.cluster.assets >/dev/null

kwok: dev ## the kubelets of a fleet that is not there, for test-cluster-slow, built once (minutes)
	@$(BIN)/python -m tests.cluster.assets kwok >/dev/null

test-cluster-slow: dev plane kwok ## kills, outages and quiet times on control planes, and a fleet of 500 pods (a quarter of an hour)
	$(BIN)/python -m pytest $(AGAIN) -m slow tests/cluster

# Tests of what is compiled, and of what serves by it. They are imported from here, and the evaluator from the environment.
COMPILED := tests/unit/evaluator tests/unit/controller/proxy tests/fuzz/test_corpus.py tests/contract/test_h2spec.py \
	tests/clients/test_curl.py tests/clients/test_hostile_peers.py tests/clients/test_plain_server.py tests/clients/test_stock_python.py \
	--deselect tests/unit/evaluator/test_cli.py::test_a_checkout_tells_its_version_and_the_commit_of_git

native: .native/.ready ## the tests of evaluator, proxy and protocols on the compiled form, built in .native (six minutes); needs a C compiler
	FLAGSTAFF_NATIVE=1 PYTHONSAFEPATH=1 .native/bin/python -m pytest $(PARALLEL) $(AGAIN) -m $(WHOLE) --import-mode=append $(COMPILED)

.native/.ready: $(shell find evaluator controller release -name '*.py') pyproject.toml requirements/dev.txt requirements/native.txt | dev
	@echo "==> compiling the evaluator's serving path into .native (a minute)"
	@test -x .native/bin/python || $(PYTHON) -m venv --without-pip .native
	$(BIN)/uv pip install -q --python .native/bin/python --require-hashes -r requirements/dev.txt
	FLAGSTAFF_NATIVE=1 $(BIN)/uv pip install -q --python .native/bin/python --reinstall --no-deps --no-build-isolation .
	@echo $(CURDIR) > "$$(.native/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
	@touch $@

images: dev ## both images, built without a registry and started, as root; installs Debian's buildah and mmdebstrap
	$(BIN)/python -m pytest $(AGAIN) -m slow tests/images

chaos: dev plane ## processes, disks, networks and Git that fail for CHAOS_SECONDS (300) while commits flow; CHAOS_SEED draws the same again
	@$(BIN)/python -m tests.chaos

dev-cluster: dev plane ## a control plane, controller, proxy, page, three evaluators and the example's repository, until Ctrl-C
	@$(BIN)/python -m tests.cluster.dev

fuzz: dev ## everything that parses bytes from outside, for FUZZ_SECONDS (120) in all
	@$(BIN)/python -m tests.fuzz

bench: dev oracles ## every measurement; wire and hostile also need h2load and wrk
	@for name in evaluation footprint swap tail bulk commit wire streams hostile hostile_sources cluster proxy delivery admission dry_runs sources alerts flux rollouts page diagnostics refs plans flag_tests authoring views segments machines node_evaluator; do $(BIN)/python -m benchmarks.$$name || exit 1; done

messages: setup ## every text that users may see, to be read as a stranger would
	@$(BIN)/python -m tests.messages

SBOM ?= sbom
# Environments with what each image has, of which the lists are made.
SBOM_OF ?= .sbom

sbom: dev ## what the images contain beside their base, with versions, hashes and licences, as CycloneDX 1.6 in sbom/
	@mkdir -p $(SBOM)
	@$(BIN)/uv venv -q --clear $(SBOM_OF)/tool
	@$(BIN)/uv pip install -q --python $(SBOM_OF)/tool/bin/python --require-hashes -r requirements/sbom.txt
	@for image in controller evaluator; do \
		echo "==> $(SBOM)/$$image.cdx.json"; \
		$(BIN)/uv venv -q --clear $(SBOM_OF)/$$image; \
		$(BIN)/uv pip install -q --python $(SBOM_OF)/$$image/bin/python --require-hashes -r requirements/$$image.txt || exit 1; \
		$(SBOM_OF)/tool/bin/cyclonedx-py environment --output-reproducible --spec-version 1.6 --pyproject pyproject.toml \
			--mc-type application -o $(SBOM)/$$image.cdx.json $(SBOM_OF)/$$image/bin/python || exit 1; \
	done

audit: dev ## known vulnerabilities of what the images install; asks the package index
	@$(BIN)/uv venv -q --clear .audit
	@$(BIN)/uv pip install -q --python .audit/bin/python --require-hashes -r requirements/audit.txt
	@for image in controller evaluator; do \
		echo "==> requirements/$$image.txt"; \
		.audit/bin/pip-audit --disable-pip --require-hashes -r requirements/$$image.txt || exit 1; \
	done

DIST ?= dist

release: sbom ## all files of a release in dist/; TAG=v0.1.0 refuses what is not that release, and needs BASE, the images' base by its digest, and SNAPSHOT, the time of Debian's packages
	@$(BIN)/python -m release --dist $(DIST) --sbom $(SBOM) $(if $(TAG),--tag $(TAG)) $(if $(BASE),--base $(BASE)) $(if $(SNAPSHOT),--snapshot $(SNAPSHOT))

crds: dev ## the CustomResourceDefinitions, what deploy/ says of our kinds, the tables of fields in docs/kinds, and what `make reference` writes, from the models
	@$(BIN)/python -m controller.api.manifests_writer
	@$(BIN)/python -m controller.cli.published

reference: dev ## docs/reference and schemas, from the program
	@$(BIN)/python -m controller.cli.published

docs: .docs/.ready ## the documentation as a site, in site/
	@.docs/bin/python release/site.py

.docs/.ready: requirements/docs.txt | dev
	@$(BIN)/uv venv -q --clear .docs
	@$(BIN)/uv pip install -q --python .docs/bin/python --require-hashes -r requirements/docs.txt
	@touch $@

lock: dev ## pin again what pyproject.toml allows
	$(COMPILE) --upgrade requirements/uv.in -o requirements/uv.txt
	$(COMPILE) --upgrade requirements/go.in -o requirements/go.txt
	$(COMPILE) --upgrade requirements/node.in -o requirements/node.txt
	$(COMPILE) --upgrade requirements/docs.in -o requirements/docs.txt
	$(COMPILE) --upgrade requirements/sbom.in -o requirements/sbom.txt
	$(COMPILE) --upgrade requirements/audit.in -o requirements/audit.txt
	$(COMPILE) --upgrade --extra controller --extra lsp --extra otel --group dev pyproject.toml -o requirements/dev.txt
	$(COMPILE) --upgrade --extra controller --extra lsp --extra otel --group build --group demo pyproject.toml -o requirements/run.txt
	$(COMPILE) --upgrade --extra controller pyproject.toml -o requirements/controller.txt
	$(COMPILE) --upgrade -c requirements/controller.txt requirements/evaluator.in -o requirements/evaluator.txt
	$(COMPILE) --upgrade -c requirements/run.txt --group pyproject.toml:build -o requirements/build.txt
	$(COMPILE) --upgrade -c requirements/dev.txt requirements/native.in -o requirements/native.txt

clean:
	rm -rf .venv .native .oracles .sbom sbom .audit dist .docs site tests/node/node_modules tests/java/target .mypy_cache .ruff_cache .pytest_cache .coverage* coverage.xml
