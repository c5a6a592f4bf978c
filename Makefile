# FrondDB: what a newcomer runs. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup run test test-server test-sql test-long check bench experiments in-turn torture fuzz miri server server-stop plugin deb stock

CARGO ?= cargo
SEEDS ?= 20000
SCHEDULES ?= 1000
SCHEDULE_SEED ?= $(shell date +%s)
SECONDS_PER_TARGET ?= 60
KILLS ?= 5
ROUNDS ?= 100
CASES ?= 50
client = $(CARGO) run --quiet --release -p frond-client --

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
	@echo
	@echo "  make run ROWS=20M MEMORY=1G RATE=max,2000,200 SEED=1   the same, larger, or otherwise"
	@echo "  make experiments SCALE=smoke|desk|night ENGINES=frond,innodb,rocksdb ONLY=e1,e3 IOPS=2000 MEMORY=1G FRESH=1"
	@echo "  make server PORT=3307                                  the server on a TCP port of this machine as well"
	@echo "  mariadb/tools/server.sh client                         a SQL prompt on the running server"
	@echo "  mariadb/tools/mtr.sh --suite=main 1st                  the server's own tests, with the plugin at hand"

setup: ## verify the tools that building needs; installs a C compiler where there is none
	@command -v $(CARGO) >/dev/null || { \
	  echo "setup: cargo is missing; install Rust, see https://rustup.rs" >&2; exit 1; }
	@missing=; \
	command -v cc >/dev/null || missing="gcc libc6-dev"; \
	command -v pkg-config >/dev/null || missing="$$missing pkg-config"; \
	if [ -n "$$missing" ]; then \
	  echo "setup: installing$${missing:+ $$missing} by apt-get"; \
	  $(call apt_install,$$missing); \
	fi

run: setup ## the pulled plug: load at full speed, kill, reopen, verify every row (about a minute)
	@$(CARGO) run --quiet --release -p frond -- plug \
	  $(if $(ROWS),--rows $(ROWS)) $(if $(MEMORY),--memory $(MEMORY)) $(if $(RATE),--rate $(RATE)) \
	  $(if $(SEED),--seed $(SEED))

test: setup ## formatting, lints, and every test (a quarter of an hour)
	@echo "test: crates come through cargo; the stock server's packages, where they are missing, by apt-get, which says so"
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace
	SCHEDULES=$(SCHEDULES) $(CARGO) test -p fronddb --features schedules --lib -- schedule_tests
	@$(MAKE) --no-print-directory test-server test-sql
	@$(MAKE) --no-print-directory experiments SCALE=smoke FRESH=1 ENGINES= ONLY= IOPS= MEMORY=
	@FROND_SERVER_DIR=$(stock) experiments/killed.sh $(built)/frond-experiments

test-server: plugin ## the plugin's parts alone, and in the stock server: our suites, and the server's own for any engine (three minutes)
	@$(MAKE) --no-print-directory -C mariadb OUT=$(CURDIR)/target/mariadb unittest
	mariadb/tools/mtr.sh --suite=frond,frond_rpl,storage_engine-frond,storage_engine/trx-frond,storage_engine/parts-frond

test-sql: plugin ## a server killed three times KILLS=5 times under mixed SQL (plain, with a binary log, over two engines), and four times as often under DDL; CASES=50 of random SQL against InnoDB
	$(client) kill-loop --kills $(KILLS) $(if $(START_BOUND),--start-bound $(START_BOUND))
	$(client) kill-loop --kills $(KILLS) $(if $(START_BOUND),--start-bound $(START_BOUND)) --binlog
	$(client) kill-loop --kills $(KILLS) --binlog --mixed
	mariadb/tools/ddl-crash.sh $$((4 * $(KILLS)))
	$(client) random-sql --cases $(CASES)

test-long: plugin ## the same with 50 kills and 2,000 cases; the stress suite engines/rr_trx; the server's suites with FROND as the default engine (an hour)
	mariadb/tools/mtr.sh --as-default --suite=engines/funcs,engines/iuds,gcol,vcol,versioning,parts,binlog,rpl,period,sql_sequence
	mariadb/tools/rr-trx.sh 120
	@$(MAKE) --no-print-directory test-sql KILLS=50 CASES=2000 START_BOUND=0.5

check: setup ## formatting and lints only
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy -p fronddb --all-targets --features schedules -- -D warnings

bench: setup ## all workloads side by side with RocksDB; writes docs/benchmarks.md
	@if [ ! -e /usr/include/rocksdb/c.h ]; then \
	  echo "bench: installing librocksdb-dev by apt-get, to compare with"; \
	  $(call apt_install,librocksdb-dev); \
	fi
	$(CARGO) run --release -p frond-bench --features rocksdb -- suite

experiments: plugin ## the published experiments on FROND, InnoDB and MyRocks; writes a report (an hour and a quarter)
	@$(call need_sysbench,experiments)
	@FROND_SERVER_DIR=$(stock) $(CARGO) run --quiet --release -p frond-experiments -- \
	  $(if $(SCALE),--scale $(SCALE)) $(if $(ENGINES),--engines $(ENGINES)) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(IOPS),--iops $(IOPS)) $(if $(MEMORY),--memory $(MEMORY)) $(if $(FRESH),--fresh)

in-turn: plugin ## sysbench in memory on FROND, InnoDB and MyRocks, in turn, ROUNDS=100 slices of 0.2 s each; UNPAIRED=1: clients where the system puts them; prints a table (20 minutes)
	@$(call need_sysbench,in-turn)
	@FROND_SERVER_DIR=$(stock) $(CARGO) run --quiet --release -p frond-experiments -- --in-turn $(ROUNDS) \
	  $(if $(SCALE),--scale $(SCALE)) $(if $(ENGINES),--engines $(ENGINES)) $(if $(UNPAIRED),--unpaired)

torture: setup ## crash tests and schedules, SEEDS=20000 of each, in release mode
	MODEL_SEEDS=$(SEEDS) $(CARGO) test --release -p fronddb --test it -- model --nocapture
	FROND_SEEDS=$(SEEDS) $(CARGO) test --release -p fronddb --lib -- log:: store:: --nocapture
	$(CARGO) test --release -p fronddb --test it -- io_errors --nocapture
	SCHEDULES=$(SEEDS) SCHEDULE_SEED=$(SCHEDULE_SEED) $(CARGO) test --release -p fronddb --features schedules --lib -- schedule_tests

fuzz: setup ## every fuzz target for SECONDS_PER_TARGET=60 seconds (needs cargo-fuzz and a nightly compiler)
	@[ -d fuzz ] || { echo "fuzz: this tree has no fuzz/ directory" >&2; exit 1; }
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
	  echo "fuzz: cargo-fuzz is missing; install it by 'cargo install cargo-fuzz'" >&2; exit 1; }
	@for target in $(if $(ONLY),$(ONLY),$$($(CARGO) +nightly fuzz list)); do \
	  echo "fuzz: $$target"; \
	  mkdir -p "fuzz/target/found/$$target"; \
	  $(CARGO) +nightly fuzz run "$$target" "fuzz/target/found/$$target" "fuzz/corpus/$$target" -- \
	    -max_total_time=$(SECONDS_PER_TARGET) -timeout=60; \
	done

# Aliasing and leaks of the files that hold unsafe code; sizes are reduced under cfg(miri).
miri: setup ## the unit tests of the unsafe code under Miri (needs a nightly compiler with the component miri)
	@$(CARGO) +nightly miri --version >/dev/null 2>&1 || { \
	  echo "miri: Miri is missing; install it by 'rustup component add --toolchain nightly miri rust-src'" >&2; exit 1; }
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test -p fronddb --lib -- base::page_buf base::pool memtable::
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test -p fronddb-capi --lib -- fetch::

server: plugin ## a private stock MariaDB with FROND as its default engine; prints the client command
	@mariadb/tools/server.sh start

server-stop: ## stop that server
	@mariadb/tools/server.sh stop

plugin: setup stock ## build ha_frond.so against the stock server (fetched once, about 180 MB)
	@echo "plugin: building the engine's library"
	@$(CARGO) build --quiet --release -p fronddb-capi
	@$(MAKE) --no-print-directory -j2 -C mariadb STOCK=$(stock) OUT=$(CURDIR)/target/mariadb ENGINE=$(engine)

deb: plugin ## that plugin as a Debian package, for exactly the server's version
	@mariadb/tools/deb.sh

# The stock MariaDB packages and the headers of their version: fetched into FROND_SERVER_DIR, which checkouts may share.
stock = $(abspath $(or $(FROND_SERVER_DIR),target/mariadb/stock))
built = $(abspath $(or $(CARGO_TARGET_DIR),target))/release
engine = $(built)/libfronddb.a
stock:
	@$(call install_missing,missing-tools)
	@mariadb/tools/fetch.sh packages
	@$(call install_missing,missing-libraries)
	@mariadb/tools/fetch.sh headers

install_missing = missing=$$(mariadb/tools/fetch.sh $(1)); \
	if [ -n "$$missing" ]; then \
	  echo "server: installing $$missing by apt-get"; \
	  $(call apt_install,$$missing); \
	fi

# Installs Debian packages, as root or by sudo.
apt_install = as_root=; if [ "$$(id -u)" -ne 0 ]; then as_root=sudo; fi; \
	$$as_root apt-get update -q && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(1)

# Debian's sysbench, for the target $(1).
need_sysbench = if ! command -v sysbench >/dev/null; then \
	  echo "$(1): installing sysbench by apt-get"; $(call apt_install,sysbench); fi
