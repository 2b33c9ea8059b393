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

.PHONY: demo up down test lint fmt build static deps bench bench-pod-start bench-exit bench-burst bench-idle

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

deps:                  ## Install the packages and tools that are missing.
	@bash .ci/deps

test: deps static      ## All tests, as root: containerd, netlink, BPF and kubectl are the real ones.
	@command -v cargo-nextest >/dev/null || cargo install cargo-nextest --locked --quiet
	@cargo build --workspace --bins
	@cargo nextest run --workspace
	@cargo test --workspace --doc --quiet

lint:                  ## Formatting and lints as the gate wants them.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

fmt:
	cargo fmt --all

# Figures of docs/SPECIFICATION.md. Each starts a stack of its own and removes it.
bench: bench-pod-start bench-burst bench-exit bench-idle

bench-pod-start bench-burst bench-exit bench-idle: build
	@cargo build $(quiet) --release --bin swiftlet-bench
	@bash benches/run $@ $(DIR)-bench
