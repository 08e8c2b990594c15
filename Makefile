# SPDX-License-Identifier: MIT OR Apache-2.0
#
# The short commands. Each installs what is missing first (tools/setup says what and why), so that a
# fresh Debian 12 or 13 needs nothing but `make run` and `make test`.

PREFIX ?= /usr/local
DESTDIR ?=
ARGS ?=
# The commit or tag that `make semver` compares with.
BASE ?=
# Bench cases to run (empty: all), a name to keep the run under, and seconds per fuzz target.
CASES ?=
KEEP ?=
FUZZ_SECONDS ?= 60

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BIN := $(TARGET_DIR)/release/taskdiag
# The program that prints manual pages and completions for `make install`. It differs from BIN if
# BIN is for another kind of machine.
RUN = $(BIN)
# The drop-in for libproc2, as cargo makes it and as it is called.
DROPIN := $(TARGET_DIR)/dropin/libtaskdiag_procps.so
DROPIN_NAME := libtaskdiag-procps.so
DAEMON := $(TARGET_DIR)/release/taskdiagd
# The library for C, and the directory for libraries.
CLIB := $(TARGET_DIR)/release/libtaskdiag.so.0
LIBDIR ?= $(PREFIX)/lib
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml)
# The directory in which systemd looks for units of manually installed programs, if root installs
# them. The units start programs for the whole machine, so an ordinary user gets none unless
# UNIT_DIR is set.
UNIT_DIR ?= $(if $(filter 0,$(shell id -u)),/usr/local/lib/systemd/system)
SERVICES := taskdiagd taskdiag-record taskdiag-export
RUST := tools/with-rust
CARGO := $(RUST) cargo

# What `make kernel` builds: base, ours, base-debug, ours-debug.
FLAVOUR ?= ours
# The config of the Debian packages of the kernel.
CONFIG ?= amd64

.PHONY: help run build quick test check packages semver docs lines bench fuzz python sql osquery go fleet-test fleet-ballista bpf bpf-check kernel kernel-deb test-vm bench-vm install uninstall clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 21

# Not optimised, because the optimised command compiles three times as long. The tests use the same
# build.
run: ## build the command quickly, and show this machine's processes (ARGS="-T -o pid,tid,comm")
	@tools/setup build
	$(CARGO) build --package taskdiag-cli
	@$(TARGET_DIR)/debug/taskdiag ps $(ARGS)
	@echo "this program is $(TARGET_DIR)/debug/taskdiag, built without optimisation; 'make build' makes the fast one" >&2

build: ## the release binaries (the command and the service taskdiagd), the drop-in for libproc2, the library for C
	@tools/setup build
	$(CARGO) build --release --package taskdiag-cli --package taskdiagd
	$(CARGO) build --profile dropin --package taskdiag-procps --package taskdiag-c
	@cp -f $(DROPIN) $(TARGET_DIR)/release/$(DROPIN_NAME)
	crates/taskdiag-c/link $(TARGET_DIR)/dropin/libtaskdiag_c.a $(CLIB)

quick: ## unit tests and those of the command, for while you work: 3 minutes at most on 2 cores
	@tools/setup test
	@tools/test-runner --cargo "--package taskdiag-wire --package taskdiag --package taskdiag-cli"

test: ## every test that this machine can run
	@tools/setup test
	@tools/run-tests

check: ## format, lints, documentation, licences, the dependency rules, one format everywhere
	@tools/setup check
	! git grep -nE '^(<<<<<<<|>>>>>>>)( |$$)'
	$(CARGO) fmt --all --check
	$(CARGO) fmt --all --check --manifest-path fuzz/Cargo.toml
	$(CARGO) fmt --all --check --manifest-path bench/rust/Cargo.toml
	$(CARGO) fmt --check --manifest-path python/Cargo.toml
	$(CARGO) fmt --check --manifest-path sql/Cargo.toml
	$(CARGO) fmt --check --manifest-path sql/osquery/Cargo.toml
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml -p taskdiag-fuzz-cases --all-targets --target-dir $(TARGET_DIR) -- -D warnings
	PATH="$(abspath $(TARGET_DIR))/check-venv/bin:$$PATH" $(CARGO) hack clippy --quiet --workspace --exclude taskdiag-tests --each-feature --exclude-features default -- -D warnings
	$(CARGO) clippy --package taskdiag-cli --all-targets --features arrow -- -D warnings
	$(CARGO) clippy --manifest-path python/Cargo.toml --all-targets --target-dir $(TARGET_DIR)/python -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --lib
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --package taskdiag-cli --no-deps --bins --target-dir $(TARGET_DIR)/doc-bins
	$(CARGO) test --quiet --package taskdiag-wire --test layout --test generated
	$(CARGO) test --quiet --package taskdiag-tests --test series
	$(RUST) tools/check-deps
	$(RUST) tools/check-packages --files
	tools/check-rooms
	tools/check-prose
	tools/check-links
	tools/check-licences
	tools/check-figures
	bench/page --check README.md bench/RESULTS.md docs/*/*.md contrib/perf/README.md
	packaging/check

packages: ## would each crate build and be documented from its published package? (uploads nothing)
	@tools/setup check
	$(RUST) tools/check-packages

# The tool is several hundred crates and takes about ten minutes to build, so nothing here installs
# it.
semver: ## what changed in the public API since a commit (BASE=rev; needs cargo-semver-checks)
	@[ -n "$(BASE)" ] || { echo "say since when: make semver BASE=<tag or commit>" >&2; exit 2; }
	@$(CARGO) semver-checks --version >/dev/null 2>&1 || { \
		echo "install the tool first: cargo install --locked cargo-semver-checks" >&2; exit 2; }
	$(CARGO) semver-checks --package taskdiag-wire --package taskdiag --baseline-rev $(BASE)

docs: ## make docs/reference/columns.md and the JSON Schema again from the field table
	@tools/setup build
	$(CARGO) run --quiet --package taskdiag-cli -- generate columns > docs/reference/columns.md.part
	mv docs/reference/columns.md.part docs/reference/columns.md
	$(CARGO) run --quiet --package taskdiag-cli -- generate schema > docs/schema.part
	mv docs/schema.part docs/reference/taskdiag-json-1.schema.json

.PHONY: site
site: ## all documents as a site, with mdBook: target/site
	@tools/site

bench: ## measure against the peers (CASES="a f" KEEP=name); root for the large loads
	@tools/setup bench
	$(CARGO) build --release --package taskdiag-cli
	$(CARGO) build --profile dropin --package taskdiag-procps
	python3 bench/run $(CASES) $(if $(KEEP),--keep $(KEEP))

fuzz: ## fuzz each target for FUZZ_SECONDS
	@tools/setup fuzz
	tools/fuzz $(FUZZ_SECONDS)

python: ## the Python package: build its wheel, run its tests in a virtual environment
	@tools/setup python
	@python/run-tests

sql: ## SQL over processes, recordings and Parquet: build it and run its tests; its 250 crates take long (docs/use/sql.md)
	@tools/setup sql
	@sql/run-tests

osquery: ## tables for osquery: build the extension and run its tests (docs/use/sql.md)
	@tools/setup osquery
	@sql/osquery/run-tests

go: ## the Go module: run its tests beside the command and the service (docs/use/go.md)
	@tools/setup go
	@go/run-tests

fleet-test: ## a made-up fleet: do DuckDB, DataFusion and ClickHouse answer alike, and what is known? (docs/operate/fleet.md)
	@tools/setup fleet
	CARGO_TARGET_DIR=$(TARGET_DIR)/arrow $(CARGO) build --quiet --locked --package taskdiag-cli --features arrow
	TASKDIAG_ARROW=$(abspath $(TARGET_DIR))/arrow/debug/taskdiag $(TARGET_DIR)/fleet-venv/bin/python fleet/test

fleet-ballista: ## the same with Ballista, a cluster of processes; its 400 crates take half an hour to build (docs/operate/fleet.md)
	@tools/setup ballista
	@$(MAKE) --no-print-directory fleet-test

.PHONY: otlp-test
otlp-test: ## does OpenTelemetry's collector understand taskdiag export --otlp? builds it from Go's modules (docs/operate/metrics.md)
	@tools/setup otlp
	$(CARGO) build --quiet --locked --package taskdiag-cli
	tests/collector $(TARGET_DIR)/debug/taskdiag

.PHONY: dropin-roots procps-suite
dropin-roots: ## the drop-in beside procps of Debian 13 and sid, in fresh roots; needs root (docs/use/dropin.md)
	@tools/setup dropin-roots
	tests/dropin-roots

procps-suite: ## procps' own test suite without the drop-in and with it (RELEASES="bookworm trixie")
	@tools/setup procps-suite
	tests/procps-suite $(RELEASES)

bpf: ## make the checked-in BPF skeletons again (needs clang)
	@tools/setup bpf
	$(CARGO) run --manifest-path bpf/gen/Cargo.toml

lines: ## how many lines of text are tracked, without lock files and generated skeletons; links have none
	@git grep -I -c '' -- ':!*.lock' ':!*/skel/*' | awk -F: '{ n += $$NF } END { print n }'

bpf-check: ## are the BPF programs what the sources give, and do they call and load only as docs/operate/safety.md tells? (needs clang)
	@tools/setup bpf
	$(CARGO) run --manifest-path bpf/gen/Cargo.toml -- --check
	$(CARGO) test --package taskdiag --lib -- programs_call_only_what_docs_safety_lists \
		programs_load_in_the_order_that_docs_safety_states docs_safety_names_each_struct_that_programs_read bpf::order

kernel: ## build the kernel of the series for the lab (FLAVOUR=base|ours|base-debug|ours-debug)
	@tools/setup vm
	tests/vm/lab fetch $(FLAVOUR)

kernel-deb: ## Debian packages of the kernel with the series (CONFIG=amd64|cloud-amd64|FILE, ARGS=--trim)
	@tools/setup kernel-deb
	tests/vm/lab deb --config $(CONFIG) $(ARGS)

test-vm: ## every kernel of tests/vm/kernels, selftests, fuzz, stress, each patch booted, storms; some hours
	@tools/setup vm
	tests/vm/lab all

bench-vm: ## the kernel series before and after (CASES="readdir wait" KEEP=vm)
	@tools/setup vm
	tests/vm/lab bench $(CASES) $(if $(KEEP),--keep $(KEEP))

# What signs a release: gpg:NAME, a private key of OpenSSH, or a secret key of minisign in
# FILE.minisign.
SIGN_KEY ?=
export SIGN_KEY

.PHONY: deb deb-test source-test static release release-check release-test
deb: ## Debian packages of the command, the service, the drop-in and the Python package, in target/deb
	@tools/setup deb
	packaging/deb

source-test: ## the Debian source package, built in a fresh Debian 13 without a network, for amd64 and arm64; needs root
	@tools/setup deb-test
	packaging/source
	packaging/try-source

deb-test: deb ## lintian; install, use, upgrade and purge the packages in fresh Debian 12, 13 and Ubuntu 24.04 roots; needs root
	@tools/setup deb-test
	packaging/try

static: ## the command and the service as programs without a C library, in target/static; tried where it may be
	@tools/setup static
	packaging/static
	@[ "$$(id -u)" != 0 ] || packaging/try-static

release: ## all that is published, for amd64 and arm64, in target/dist; SIGN_KEY=KEY signs it (docs/use/install.md)
	@tools/setup release
	packaging/release

release-test: ## install and use what make release made: .deb, .rpm, static programs, image, wheels; needs root
	@tools/setup release-test
	packaging/try-release

release-check: ## make the release twice and compare; takes as long as two builds of everything
	@tools/setup release
	packaging/release-check

# Files that complement the program: a dashboard, alerts, units that convert recordings, and an
# example in C.
EXAMPLES = $(PREFIX)/share/doc/taskdiag/examples
EXAMPLE_FILES := contrib/grafana contrib/kubernetes contrib/prometheus contrib/systemd/taskdiag-convert.service contrib/systemd/taskdiag-convert.timer crates/taskdiag-c/examples/ps.c

# If a user ran `make build` first, root builds nothing. Man page and completions come from the
# program's own tables.
install: ## binaries, libraries, man pages, completions, systemd units (PREFIX, LIBDIR, DESTDIR, UNIT_DIR)
	@[ -x $(BIN) ] && [ -x $(DAEMON) ] && [ -e $(DROPIN) ] && [ -e $(CLIB) ] || $(MAKE) --no-print-directory build
	install -Dm755 $(BIN) $(DESTDIR)$(PREFIX)/bin/taskdiag
	install -Dm755 $(DAEMON) $(DESTDIR)$(PREFIX)/bin/taskdiagd
	$(if $(DROPIN),install -Dm644 $(DROPIN) $(DESTDIR)$(PREFIX)/lib/taskdiag/$(DROPIN_NAME))
ifneq ($(CLIB),)
	install -Dm644 $(CLIB) $(DESTDIR)$(LIBDIR)/libtaskdiag.so.0
	ln -sf libtaskdiag.so.0 $(DESTDIR)$(LIBDIR)/libtaskdiag.so
	install -Dm644 crates/taskdiag-c/include/taskdiag.h $(DESTDIR)$(PREFIX)/include/taskdiag.h
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' \
		crates/taskdiag-c/taskdiag.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/taskdiag.pc
	install -Dm644 contrib/man/libtaskdiag.3 $(DESTDIR)$(PREFIX)/share/man/man3/libtaskdiag.3
endif
ifneq ($(UNIT_DIR),)
	install -Dm644 contrib/systemd/taskdiagd.socket $(DESTDIR)$(UNIT_DIR)/taskdiagd.socket
	for unit in $(SERVICES); do \
		sed 's|@PREFIX@|$(PREFIX)|' contrib/systemd/$$unit.service > $(DESTDIR)$(UNIT_DIR)/$$unit.service || exit 1; \
		chmod 644 $(DESTDIR)$(UNIT_DIR)/$$unit.service; \
	done
	@echo "to serve users without root: systemctl daemon-reload && systemctl enable --now taskdiagd.socket"
endif
	install -Dm644 contrib/man/taskdiagd.8 $(DESTDIR)$(PREFIX)/share/man/man8/taskdiagd.8
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(RUN) man > $(DESTDIR)$(PREFIX)/share/man/man1/taskdiag.1
	for command in $$($(RUN) generate commands); do \
		$(RUN) man $$command > $(DESTDIR)$(PREFIX)/share/man/man1/taskdiag-$$command.1 || exit 1; \
	done
	$(RUN) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/taskdiag
	$(RUN) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_taskdiag
	$(RUN) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/taskdiag.fish
	install -d $(DESTDIR)$(EXAMPLES)
	cp -r --no-preserve=all $(EXAMPLE_FILES) $(DESTDIR)$(EXAMPLES)/
	sed -i 's|@PREFIX@|$(PREFIX)|' $(DESTDIR)$(EXAMPLES)/*.service

# Without the library, programs that `taskdiag dropin install` has changed would not start.
uninstall: ## what install put there
	@! grep -qsxF "$(PREFIX)/lib/taskdiag/dropin" $(DESTDIR)/etc/ld.so.conf.d/00-taskdiag.conf || { \
		echo "first run 'taskdiag dropin remove' as root: programs of procps use the drop-in" >&2; exit 1; }
	rm -f $(DESTDIR)$(PREFIX)/bin/taskdiag $(DESTDIR)$(PREFIX)/bin/taskdiagd \
		$(DESTDIR)$(PREFIX)/lib/taskdiag/$(DROPIN_NAME) \
		$(DESTDIR)$(LIBDIR)/libtaskdiag.so $(DESTDIR)$(LIBDIR)/libtaskdiag.so.0 $(DESTDIR)$(LIBDIR)/pkgconfig/taskdiag.pc \
		$(DESTDIR)$(PREFIX)/include/taskdiag.h $(DESTDIR)$(PREFIX)/share/man/man3/libtaskdiag.3 \
		$(if $(UNIT_DIR),$(DESTDIR)$(UNIT_DIR)/taskdiagd.socket $(SERVICES:%=$(DESTDIR)$(UNIT_DIR)/%.service)) \
		$(DESTDIR)$(PREFIX)/share/man/man1/taskdiag.1 $(DESTDIR)$(PREFIX)/share/man/man1/taskdiag-*.1 $(DESTDIR)$(PREFIX)/share/man/man8/taskdiagd.8 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/taskdiag \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_taskdiag \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/taskdiag.fish
	rm -rf $(DESTDIR)$(EXAMPLES)
	rmdir $(DESTDIR)$(PREFIX)/share/doc/taskdiag 2>/dev/null || true

clean: ## what was built
	$(CARGO) clean
	rm -rf fuzz/target bpf/gen/target bench/out
