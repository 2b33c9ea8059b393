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

.PHONY: demo up down test test-vm lint fmt build static deps deps-test bench bench-pod-start bench-token bench-exit bench-burst \
  bench-idle bench-isolation

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
static: deps
	@target=$$(rustc -vV | sed -n 's/^host: //p'); \
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
	@cargo test --workspace --doc --quiet

# What runs on the other kernel: limits and QoS cgroups on disk, OOM kills, what evictions are decided by, kernel
# events by cgroup, host ports, exit codes with and without BPF, restarts of the agents and of the runtime.
vm_suites := swiftlet-cgroup/lib swiftlet-pressure/lib swiftlet-pressure/signals \
  swiftlet-pleg/kernel:adoption,every_exit_code,of_threads,oom,runc swiftlet-cni/network:ports \
  resources exits:every_exit crashes:crashes_of_agents

test-vm: deps-test static   ## Some of the tests on Debian's kernel with cgroup v2, in a virtual machine.
	@cargo build --workspace --all-targets
	@tests/vm/run $(vm_suites)

lint:                  ## Formatting and lints as the gate wants them.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

pod-fields:              ## Write docs/POD-FIELDS.md anew from the table that the node decides by.
	SWIFTLET_WRITE_DOCS=1 cargo test $(quiet) --package swiftlet-tests --test fields

fmt:
	cargo fmt --all

# Figures of docs/SPECIFICATION.md. Each starts a stack of its own and removes it.
bench: bench-pod-start bench-token bench-burst bench-exit bench-idle bench-isolation

bench-pod-start bench-token bench-burst bench-exit bench-idle bench-isolation: build
	@cargo build $(quiet) --release --bin swiftlet-bench
	@bash benches/run $@ $(DIR)-bench
