# The front door. `make demo` shows what swiftlet does, `make test` proves it; both need root.
SHELL := /bin/bash
.DELETE_ON_ERROR:

# Under sudo the toolchain may be that of the user who called it.
caller := $(if $(SUDO_USER),$(shell getent passwd $(SUDO_USER) | cut -d: -f6),$(HOME))
ifeq ($(wildcard $(HOME)/.cargo/bin/cargo),)
export RUSTUP_HOME ?= $(caller)/.rustup
export PATH := $(caller)/.cargo/bin:$(PATH)
else
export PATH := $(HOME)/.cargo/bin:$(PATH)
endif
# Progress on a terminal, silence in a pipe.
quiet = $$([ -t 2 ] || echo --quiet)

programs := swiftlet-control swiftlet-node swiftlet-stack
stack := target/release/swiftlet-stack
# Folder of `make up`; KUBECONFIG lies in it.
DIR ?= /var/lib/swiftlet-stack

.PHONY: demo up down test test-vm test-runtime lint fmt build static deps deps-test bench bench-pod-start bench-static \
  bench-token bench-exit bench-burst bench-idle bench-isolation bench-soak bench-events bench-network

demo: build            ## Build, start everything, run pods, show the timeline, leave nothing.
	@$(stack) demo --dir $(DIR)-demo

up: build              ## Start the stack and leave it running; prints the KUBECONFIG to export.
	@$(stack) up --dir $(DIR)

down:                  ## Stop the stack of `make up` and remove all that it made.
	@test -x $(stack) || $(MAKE) --no-print-directory build
	@$(stack) down --dir $(DIR)

build: deps static
	@cargo build $(quiet) --release $(addprefix --bin ,$(programs))

# The CNI shim is exec'd three times per pod: static and at fixed addresses, it needs no dynamic linker.
# With musl it is a third of the size; where rustup cannot give that target, the host's own serves.
static: deps
	@target=$$(rustc -vV | sed -n 's/^host: //p'); small=$${target%-gnu}-musl; \
	if rustup target add $$small >/dev/null 2>&1; then target=$$small; fi; \
	RUSTFLAGS='-C target-feature=+crt-static -C relocation-model=static' cargo build $(quiet) \
	  --profile shim --target $$target -p swiftlet-cni --bin swiftlet-cni --no-default-features && \
	mkdir -p target/static && cp target/$$target/shim/swiftlet-cni target/static/

deps-test:
	@bash .ci/deps test

deps:                  ## Install the packages and tools that are missing.
	@bash .ci/deps

test: deps-test static      ## All tests, as root: containerd, netlink, BPF and kubectl are the real ones.
	@command -v cargo-nextest >/dev/null || cargo install cargo-nextest --locked --quiet
	@cargo build --workspace --all-targets   # at once: programs and tests then share what they are built from
	@cargo nextest run --workspace
	@# The network's server dies between any two steps: built on its own, so that the programs have no such places.
	@cargo nextest run -p swiftlet-cni --features failpoints crash
	@tests/runtimes/run trixie || [ $$? -eq 3 ]   # 3: that suite cannot be reached, or does not run here; it says so
	@cargo test --workspace --doc --quiet

# RUNTIME: installed, a suite of Debian (trixie, sid), or a folder with a containerd. OCI: runc, crun, or a path.
# Which tests: TESTS="-E 'test(/probes/)'", or TESTS="--profile default" for all of the stack's.
RUNTIME ?= trixie
OCI ?= runc
test-runtime: deps-test static   ## The life of pods on another container runtime.
	@cargo build --workspace --bins
	@tests/runtimes/run $(RUNTIME) $(OCI) $(TESTS)

# What runs on the other kernel: limits and QoS cgroups on disk, OOM kills, what evictions are decided by, kernel
# events by cgroup, host ports, restarts of the agents and of the runtime. (`exits:every_exit` takes ten minutes there.)
vm_suites := swiftlet-cgroup/lib swiftlet-pressure/lib swiftlet-pressure/signals \
  swiftlet-pleg/kernel:adoption,every_exit_code,of_threads,oom,runc swiftlet-cni/network:ports \
  resources crashes:crashes_of_agents

test-vm: deps-test static   ## Some of the tests on Debian's kernel with cgroup v2, in a virtual machine.
	@cargo build --workspace --all-targets
	@tests/vm/run $(vm_suites)

lint:                  ## Formatting and lints as the gate wants them.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench-network: static    ## CNI ADD and DEL in the node and by the reference plugins; needs root and no stack.
	@cargo build $(quiet) --release --bin swiftlet-bench
	@target/release/swiftlet-bench network -n $(or $(N),192)

bench-events:            ## What the kernel's events cost others, how fast they come, and how many fit.
	@cargo build $(quiet) --release --bin swiftlet-bench
	@target/release/swiftlet-bench events

pod-fields:              ## Write docs/POD-FIELDS.md anew from the table that the node decides by.
	SWIFTLET_WRITE_DOCS=1 cargo test $(quiet) --package swiftlet-tests --test fields

fmt:
	cargo fmt --all

# Figures of docs/SPECIFICATION.md. Each starts a stack of its own and removes it.
bench: bench-pod-start bench-static bench-token bench-burst bench-exit bench-idle bench-isolation

bench-pod-start bench-static bench-token bench-burst bench-exit bench-idle bench-isolation: build
	@cargo build $(quiet) --release --bin swiftlet-bench
	@bash benches/run $@ $(DIR)-bench

# N cycles, PARALLEL at once, one kill in each KILL_EVERY of them; SEED=… repeats a run.
bench-soak: build      ## Pods come and go while agent and runtime are killed; fails if anything is left.
	@cargo build $(quiet) --release --bin swiftlet-bench
	@target/release/swiftlet-bench soak --dir $(DIR)-soak --cycles $(or $(N),1000) --parallel $(or $(PARALLEL),8) \
	  --kill-every $(or $(KILL_EVERY),20) $(if $(SEED),--seed $(SEED))
