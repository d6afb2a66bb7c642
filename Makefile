# The front door. `make demo` and `make test` work on a fresh Debian 12 or 13: they install what is missing. The trainer
# needs oneDNN 2.4 or later, 2.x or 3.x; where there is none, CMAKE_FLAGS=-DTHINWIRE_TRAINER=OFF leaves the library.
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=
FUZZ_SECONDS ?= 60

.PHONY: all help deps deps-test deps-dev configure build demo test bench install asan tsan fuzz mutations lint format check-format clean

all: build

help:
	@echo "make demo      install what is missing, build, train on real images: dense against compressed"
	@echo "make test      install what is missing, build, run every test; in $(BUILD), ctest -L fast runs those that are"
	@echo "               done in seconds, -LE mpi those that need no mpirun, -L cli those of the program"
	@echo "make           build $(BUILD)/thinwire and $(BUILD)/libthinwire.so"
	@echo "make bench     figures beside their limits, measured in one run"
	@echo "make install   to PREFIX=$(PREFIX), below DESTDIR if that is set"
	@echo "make asan, tsan, fuzz, mutations, lint, format   for developers"

# What building, running and testing need; tools/install-packages asks apt only for what is not there.
deps:
	@tools/install-packages build-essential cmake ninja-build pkg-config python3 \
		libdnnl-dev libopenmpi-dev openmpi-bin libcjson-dev libyaml-dev zlib1g-dev libcmocka-dev \
		libsndfile1-dev libsamplerate0-dev libkissfft-dev \
		dataset-fashion-mnist gnuplot-nox

# What the tests of other processors need besides (tests/processors); where it is missing they are skipped. On ARM there
# is no x86 to emulate: the programs are built for ARM.
OTHER_PROCESSORS = valgrind qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
ifneq ($(shell uname -m),x86_64)
OTHER_PROCESSORS = valgrind
endif
deps-test: deps
	@tools/install-packages $(OTHER_PROCESSORS) || echo "going on without them: the tests of other processors are skipped"

deps-dev: deps-test
	@tools/install-packages clang libclang-rt-dev clang-format clang-tidy cppcheck llvm

configure: deps
	@tools/configure $(BUILD) $(CMAKE_FLAGS)

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

demo: build
	@$(BUILD)/thinwire demo

test: deps-test build
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

bench: build
	@bench/codec.sh $(BUILD)/thinwire
	@bench/train.sh $(BUILD)/thinwire

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

# The tests under sanitizers, with clang. Those labelled slow are left out: they take minutes as they are.
SANITIZE = -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang -DTHINWIRE_SANITIZE

# Libraries without frame pointers need the slow unwinder, or lsan.supp does not see who allocated.
asan: export ASAN_OPTIONS = fast_unwind_on_malloc=0
asan: export LSAN_OPTIONS = suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0
asan: export UBSAN_OPTIONS = print_stacktrace=1
asan: deps-dev
	@tools/configure $(BUILD)-asan $(SANITIZE)=address,undefined
	@cmake --build $(BUILD)-asan -j $(JOBS)
	@cd $(BUILD)-asan && ctest -LE slow --output-on-failure -j $(JOBS)

# The library's threads. The trainer's other threads are OpenMP's, which is not instrumented: it looks racy and is not.
tsan: export TSAN_OPTIONS = ignore_noninstrumented_modules=1
tsan: deps-dev
	@tools/configure $(BUILD)-tsan $(SANITIZE)=thread -DTHINWIRE_TRAINER=OFF
	@cmake --build $(BUILD)-tsan -j $(JOBS)
	@cd $(BUILD)-tsan && ctest -LE slow --output-on-failure -j $(JOBS)

fuzz: deps-dev
	@tools/configure $(BUILD)-fuzz $(SANITIZE)=address,undefined -DTHINWIRE_FUZZ=ON -DTHINWIRE_TESTS=OFF
	@cmake --build $(BUILD)-fuzz -j $(JOBS)
	@tools/run-fuzzers $(BUILD)-fuzz $(FUZZ_SECONDS) $(JOBS)

# Breaks the code in many ways, in a copy of the tree, and fails if no test notices one of them. Half an hour and more.
mutations: deps
	@tests/mutations/run.py --folder $(BUILD)-mutations --jobs $(JOBS) --report docs/mutations.md

SOURCES = $(shell git ls-files '*.c' '*.h')
format: deps-dev
	@clang-format -i --style=file $(SOURCES)

check-format: deps-dev
	@clang-format --dry-run --Werror --style=file $(SOURCES)

lint: deps-dev build check-format
	@tests/layers.py
	@tools/lint $(BUILD) $(JOBS)

clean:
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-mutations
