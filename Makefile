# Names, no logic: `make help` lists them. Versions live in dockerfiles/, what they mean in build/trainwright/.
# FRAMEWORK=pytorch is that framework's one default image; ONLY='<id or glob>' asks for others.

# The first Python that is new enough, by name; `make setup PYTHON=...` names another.
SCRIPT := scripts/python.sh scripts
TRAINWRIGHT := .venv/bin/trainwright
MATRIX = $(TRAINWRIGHT) matrix --markdown docs/matrix.md --html docs/matrix.html
# Given but empty is an error that lists the valid names, never "everything".
given = $(filter-out undefined,$(origin $1))
CHOSEN = $(if $(call given,ONLY),'$(ONLY)',$(if $(call given,FRAMEWORK),--framework '$(FRAMEWORK)'))

# BASE=<reference> builds upon an image of others: make build push BASE=team/train:1 TARGET=sagemaker FABRIC=distro NAME=team
# WITH=<file> adds the packages of a requirements file, to such an image or to one of the matrix.
GRAFT = graft --set-up '$(BASE)' $(if $(TARGET),--target '$(TARGET)') $(if $(FABRIC),--fabric '$(FABRIC)') $(if $(NAME),--name '$(NAME)')

# With it every command would compile anew what it imports, which takes as long as all else that `plan` does.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup engine registry registry-stop engine-stop list plan render lint lock fetch build push prove test unit check \
	test-ci test-cluster test-sdk test-slurm test-terraform test-slow test-foreign test-bare test-gpu bench matrix docs doctor exports requirements dist clean

help: ## What there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.complete ## The virtual environment .venv, from the hashed lock

.venv/.complete: requirements.lock pyproject.toml scripts/setup_venv.py
	@$(SCRIPT)/setup_venv.py

engine: ## A Docker engine: the one that answers, else installed from the distribution's packages
	@$(SCRIPT)/engine.py ensure

engine-stop: ## Stop the engine that `make engine` started
	@$(SCRIPT)/engine.py stop

registry: setup engine ## The registry on loopback; push starts it unless REGISTRY=... names another
	@$(TRAINWRIGHT) registry up >/dev/null

registry-stop: setup ## Stop the registry on loopback; its data stays
	@$(TRAINWRIGHT) registry down

list: setup ## Every image of the matrix
	@$(TRAINWRIGHT) list $(CHOSEN)

plan: setup ## What would be skipped, reused or built, and why
	@$(TRAINWRIGHT) plan $(CHOSEN)

render: setup ## Dockerfile and bake file into out/<id>/
	@$(TRAINWRIGHT) render $(CHOSEN)

lint: setup ## Every rendered Dockerfile: hadolint and BuildKit's check; every script: shellcheck
	@$(TRAINWRIGHT) lint $(CHOSEN)

lock: setup engine ## Resolve the intent to exact versions and checksums
	@$(TRAINWRIGHT) lock $(CHOSEN)

fetch: setup ## Every locked file into the store, verified
	@$(TRAINWRIGHT) fetch $(CHOSEN)

# `make build push` is one process, which sets the engine and the registry up only where it needs them.
build: setup ## Build the image and probe it: FRAMEWORK=pytorch, or ONLY='<id or glob>'; on an image of others: BASE=, TARGET=, FABRIC=; with packages: WITH=<file>
	@$(TRAINWRIGHT) $(if $(call given,BASE),$(GRAFT),build --set-up $(CHOSEN))$(if $(WITH), --with '$(WITH)') $(if $(filter push,$(MAKECMDGOALS)),--push)

push: build ## Prove, push by digest, verify, tag: REGISTRY=host[:port], else on loopback
	@:

prove: setup $(if $(DRY),,engine registry) ## Build, test, push to loopback and record what is not proved: ONLY='<globs>', MINUTES=<begin none later>, KEEP=1, DRY=1
	@$(TRAINWRIGHT) prove $(CHOSEN) $(if $(MINUTES),--minutes '$(MINUTES)') $(if $(KEEP),--keep) $(if $(DRY),--dry-run)
	@$(if $(DRY),:,$(MATRIX))

unit: setup ## The tests that need no engine; two minutes
	@.venv/bin/python -m pytest tests/unit tests/golden tests/hostile --quiet --numprocesses auto --dist worksteal

check: setup ## Python: format, lint, types
	@.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/mypy

test: setup engine registry ## The tests of every change, about 10 minutes; an image (or yours) is built if need be, tested, pushed, trained with
	@scripts/test-all.sh $(CHOSEN)

test-sdk: setup engine ## SageMaker's own SDK, versions 2 and 3, in its local mode; needs Docker Compose
	@scripts/test-sdk.sh

test-slurm: setup ## What `emit` writes for sbatch, and `gate --find`, in a real Slurm on loopback; needs slurmctld, slurmd, slurm-client, munge
	@.venv/bin/python -m pytest --quiet --require-engine tests/unit/jobs/test_emitted_slurm.py tests/unit/gate/find/test_slurm.py

test-terraform: setup ## docs/examples/terraform, valid and applied to a stand-in of Amazon's APIs; needs terraform
	@.venv/bin/python -m pytest --quiet --require-engine tests/aws -m terraform

test-slow: setup engine registry ## Tests that build many images of their own: --with, derive and verify, release
	@.venv/bin/python -m pytest --quiet --require-engine tests/engine tests/aws -m 'slow and not terraform' --numprocesses 2 --dist loadfile

test-foreign: setup engine ## Graft upon the images of tests/foreign, all but those with `wheels`, or ONLY='<names>', and print a table; KEEP=<folder> keeps what was made
	@PYTHONPATH=tests .venv/bin/python -m foreign $(ONLY)

test-ci: setup engine registry ## The further images that CI proves at this commit (trainwright ci proofs); KEEP=1: they stay in the engine
	@scripts/test-images.sh --by CI $(if $(KEEP),--keep) $(if $(BEGAN),--began $(BEGAN))

test-cluster: setup engine ## Jobs of 2 and 4 hosts in containers, by every launch path, and a table of them: FRAMEWORK=, or ONLY='<id or glob>'
	@scripts/test-images.sh --cluster $(if $(CHOSEN),$(CHOSEN),--by 'make test')

test-bare: setup engine ## The first command and `make unit` on hosts that have little, in containers; KIND=bare: that one alone
	@.venv/bin/python -m pytest --quiet --require-engine --capture=no tests/bare $(if $(KIND),-k 'unit_tests[$(KIND)]')

test-gpu: setup ## An image on this machine's GPUs, ONLY=<id>: preflight, a training step, real failures; then nccl-tests, judged; IMAGE=<id or reference>, INSTANCE=<type>
	@$(if $(ONLY),.venv/bin/python -m pytest --quiet tests/gpu --variant '$(ONLY)',:)
	@$(TRAINWRIGHT) gate $(or $(IMAGE),$(ONLY)) $(if $(INSTANCE),--instance '$(INSTANCE)')

bench: setup ## How long people wait, as a table of medians: FULL=1 (make test and .ci/run, too), AGAINST=<checkout or commit>, ROWS='<globs>', PAGE=1 (docs/speed.md anew)
	@.venv/bin/python benchmarks/bench.py $(if $(FULL),--full) $(if $(AGAINST),--against '$(AGAINST)') $(if $(ROWS),--rows '$(ROWS)') $(if $(PAGE),--page)

matrix: setup ## docs/matrix.md and docs/matrix.html anew
	@$(MATRIX)

docs: setup ## The documentation site into out/site, its links checked; installs MkDocs into .docs
	@.venv/bin/python scripts/docs_site.py

doctor: setup ## Every precondition on this machine, with the command that mends it; FRAMEWORK and ONLY too
	@$(TRAINWRIGHT) doctor $(CHOSEN)

exports: setup ## What a pipeline hands on of the images that were pushed, as lines for a shell: IMAGE_URI, IMAGE_DIGEST
	@$(TRAINWRIGHT) ci exports $(CHOSEN)

requirements: setup ## requirements.lock, and those of the extras png and docs, anew, from pyproject.toml
	@.venv/bin/uv pip compile --quiet pyproject.toml --output-file requirements.lock
	@echo matplotlib | .venv/bin/uv pip compile --quiet --no-config --universal \
	  --generate-hashes --no-header --no-annotate --constraint requirements.lock - \
	  --output-file requirements-png.lock
	@echo mkdocs-material | .venv/bin/uv pip compile --quiet --no-config --universal \
	  --generate-hashes --no-header --no-annotate --constraint requirements.lock - \
	  --output-file requirements-docs.lock

dist: setup ## Wheel and source distribution into dist/
	@.venv/bin/python -m hatchling build

clean: ## Remove out/ and dist/; the store, the engine and the registry keep what they have
	rm -rf out dist
