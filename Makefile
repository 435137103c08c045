# Everything ends up under target/release. `make help` lists what there is.

SHELL := /bin/bash
PREFIX ?= /usr/local
export PATH := $(PATH):$(HOME)/.cargo/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
CROSSLANE := $(RELEASE)/crosslane
BINARIES := crosslane crosslaned crosslane-keeper
LIBRARIES := libcrosslane_sockets.so libcrosslane_malloc.so

.DEFAULT_GOAL := build
.PHONY: build demo test test-vm vm-image suites bench clean deb install install-files uninstall packages help toolchain

build: toolchain ## build all programs and libraries
	cargo build --release --locked --workspace

demo: packages build ## unmodified programs between three hosts, with a table of figures (about two minutes)
	$(CROSSLANE) demo

test: ## all checks and tests, as .ci/run
	scripts/test.sh

test-vm: build ## the kernel modules: static checks, and tests in virtual machines without KVM (installs what it needs, as root)
	scripts/install-packages.sh vm
	kernel/tests/check.sh
	CROSSLANE_BIN=$(RELEASE) kernel/tests/run.sh
	kernel/machine/build.sh
	CROSSLANE_BIN=$$(realpath $(RELEASE)) cargo test --locked -p crosslane-e2e --features machines --test machines
	$(CROSSLANE) bench kernel --runs 2 --out $(TARGET)/bench-kernel.json
	$(CROSSLANE) bench stack --machine --quick --runs 1 --out $(TARGET)/bench-stack-machine.json
	CROSSLANE_BIN=$(RELEASE) kernel/tests/packages.sh

vm-image: ## the kernel and modules that the machines of `crosslane lab up --vms` boot
	scripts/install-packages.sh vm
	kernel/machine/build.sh

suites: build ## outside test suites without and under the library, compared (about four minutes)
	suites/run.py --smoke --bin $(RELEASE) --out $(TARGET)/suites

bench: packages build ## the figures that the project is held to, also as JSON in target (about half an hour)
	$(CROSSLANE) bench quick --runs 5 --out $(TARGET)/bench.json
	$(CROSSLANE) bench ring --runs 3 --out $(TARGET)/bench-ring.json
	$(CROSSLANE) bench stack --runs 3 --out $(TARGET)/bench-stack.json
	$(CROSSLANE) bench sdp --runs 3 --out $(TARGET)/bench-sdp.json
	$(CROSSLANE) perf --protocol scratchpad --out $(TARGET)/bench-scratchpad.json
	$(CROSSLANE) bench steady --quick --out $(TARGET)/bench-steady.json
	scripts/install-packages.sh test
	$(CROSSLANE) bench apps --runs 3 --out $(TARGET)/bench-apps.json

deb: build ## Debian packages of the programs and of the kernel modules, in target/deb
	scripts/deb.sh $(RELEASE) $(TARGET)/deb

clean: ## remove what was built
	cargo clean

install: build ## install below PREFIX (default /usr/local); DESTDIR is honoured
	@$(MAKE) --no-print-directory install-files

# What is built in RELEASE.
install-files:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/crosslane $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 755 $(BINARIES:%=$(RELEASE)/%) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(LIBRARIES:%=$(RELEASE)/%) $(DESTDIR)$(PREFIX)/lib/crosslane
	install -d $(DESTDIR)$(PREFIX)/include
	install -m 644 include/crosslane.h $(DESTDIR)$(PREFIX)/include
	$(CROSSLANE) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/man/man8
	mv $(DESTDIR)$(PREFIX)/share/man/man1/crosslaned.8 $(DESTDIR)$(PREFIX)/share/man/man8
	$(CROSSLANE) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/crosslane
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's#/usr/local/#$(PREFIX)/#' dist/crosslaned.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/crosslaned.service

uninstall: ## remove what `make install` installed below PREFIX
	rm -f $(BINARIES:%=$(DESTDIR)$(PREFIX)/bin/%) $(DESTDIR)$(PREFIX)/share/man/man1/crosslane*.1
	rm -f $(DESTDIR)$(PREFIX)/share/man/man8/crosslaned.8
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/crosslane
	rm -f $(DESTDIR)$(PREFIX)/include/crosslane.h
	rm -rf $(DESTDIR)$(PREFIX)/lib/crosslane $(DESTDIR)$(PREFIX)/lib/systemd/system/crosslaned.service

packages: ## install the Debian packages that the demo runs
	scripts/install-packages.sh demo

toolchain:
	@command -v cargo >/dev/null || { echo "make: cargo was not found: install Rust 1.88 or newer (stable)" >&2; exit 1; }

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18
