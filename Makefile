# Names, no logic: `make help` lists them. Versions live in dockerfiles/, what they mean in build/trainwright/.
# FRAMEWORK=pytorch is that framework's one default image; ONLY='<id or glob>' asks for others.

SHELL := bash
PYTHON ?= python3
TRAINWRIGHT := .venv/bin/trainwright
# Given but empty is an error that lists the valid names, never "everything".
given = $(filter-out undefined,$(origin $1))
CHOSEN = $(if $(call given,ONLY),--only '$(ONLY)',$(if $(call given,FRAMEWORK),--framework '$(FRAMEWORK)'))

.DEFAULT_GOAL := help
.PHONY: help setup engine signing registry registry-stop engine-stop list plan render lint lock fetch build push test unit check \
	test-ci test-cluster test-sdk test-slurm test-terraform test-slow test-gpu scale matrix doctor exports rehearse requirements dist clean

help: ## What there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.complete ## The virtual environment .venv, from the hashed lock

.venv/.complete: requirements.lock pyproject.toml scripts/setup-venv.sh
	@scripts/setup-venv.sh $(PYTHON)

engine: setup ## A Docker engine: the one that answers, else installed from the distribution's packages
	@scripts/engine.sh ensure

signing: engine ## cosign, for whoever signs images or verifies them; no build needs it
	@scripts/engine.sh ensure --tools cosign

engine-stop: ## Stop the engine that `make engine` started
	@scripts/engine.sh stop

registry: engine ## The registry on loopback; push starts it unless REGISTRY=... names another
	@scripts/registry.sh up >/dev/null

registry-stop: ## Stop the registry on loopback; its data stays
	@scripts/registry.sh down

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

build: setup engine $(if $(filter push,$(MAKECMDGOALS)),$(if $(REGISTRY),,registry)) ## Build the image and probe it: FRAMEWORK=pytorch, or ONLY='<id or glob>'
	@$(TRAINWRIGHT) build $(CHOSEN)

push: build $(if $(REGISTRY),,registry) $(if $(TRAINWRIGHT_SIGNING_KEY),signing) ## Prove, push by digest, verify, tag: REGISTRY=host[:port], else on loopback
	@$(TRAINWRIGHT) push $(CHOSEN)

unit: setup ## The tests that need no engine; seconds
	@.venv/bin/python -m pytest tests/unit tests/golden --quiet --numprocesses auto

check: setup ## Python: format, lint, types
	@.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/mypy

test: check engine signing registry ## The tests of every change, about 20 minutes; an image (or yours) is built if need be, tested, pushed, trained with
	@scripts/test-all.sh $(CHOSEN)

test-sdk: setup engine ## SageMaker's own SDK, versions 2 and 3, in its local mode; needs Docker Compose
	@scripts/test-sdk.sh

test-slurm: setup ## What `emit` writes for sbatch, in a real Slurm on loopback; needs slurmctld, slurmd, slurm-client, munge
	@.venv/bin/python -m pytest --quiet --require-engine tests/unit/test_emitted_slurm.py

test-terraform: setup ## docs/examples/terraform, valid and applied to a stand-in of Amazon's APIs; needs terraform
	@.venv/bin/python -m pytest --quiet --require-engine tests/aws -m terraform

test-slow: setup engine signing registry ## Tests that build many images of their own: --with, derive and verify, release
	@.venv/bin/python -m pytest --quiet --require-engine tests/engine -m slow

test-ci: setup engine signing registry ## The further images that CI builds, tests, pushes and trains with; KEEP=1: they stay in the engine
	@scripts/test-images.sh --by CI $(if $(KEEP),--keep)

test-cluster: setup engine ## Jobs of 2 and 4 hosts in containers, by every launch path, and a table of them: FRAMEWORK=, or ONLY='<id or glob>'
	@scripts/test-images.sh --cluster $(if $(CHOSEN),$(CHOSEN),--by 'make test')

test-gpu: setup ## nccl-tests of an image on this machine's GPUs, judged; IMAGE=<id or reference>, INSTANCE=<type>
	@$(TRAINWRIGHT) gate $(IMAGE) $(if $(INSTANCE),--instance '$(INSTANCE)')

scale: setup engine registry ## How 20, 100 and 500 images in five regions behave: docs/scale.json and docs/scale.md anew
	@.venv/bin/python tests/scale/measure.py

matrix: setup ## docs/matrix.md and docs/matrix.html anew
	@$(TRAINWRIGHT) matrix --markdown docs/matrix.md --html docs/matrix.html

doctor: setup ## Every precondition on this machine, with the command that mends it
	@$(TRAINWRIGHT) doctor

exports: setup ## What a pipeline hands on of the images that were pushed, as lines for a shell: IMAGE_URI, IMAGE_DIGEST
	@$(TRAINWRIGHT) ci exports $(CHOSEN)

rehearse: setup ## buildspec.yml as CodeBuild would run it, in a clean clone: FRAMEWORK=, ONLY=, REGISTRY=host[:port], else loopback
	@$(TRAINWRIGHT) ci rehearse $(CHOSEN)

requirements: setup ## requirements.lock anew, from pyproject.toml
	@.venv/bin/uv pip compile --quiet pyproject.toml --output-file requirements.lock

dist: setup ## Wheel and source distribution into dist/
	@.venv/bin/python -m hatchling build

clean: ## Remove out/ and dist/; the store, the engine and the registry keep what they have
	rm -rf out dist
