# The front door. `make demo` and `make test` work on a fresh Debian or Ubuntu machine: they install what is missing.
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=

.PHONY: all deps deps-dev build demo test bench install asan tsan fuzz lint format check-format clean help

all: build

help:
	@echo "make demo      install what is missing, build, train on real images: dense against compressed"
	@echo "make test      install what is missing, build, run every test"
	@echo "make           build $(BUILD)/thinwire and $(BUILD)/libthinwire.so"
	@echo "make bench     figures beside their limits, measured in one run"
	@echo "make install   to PREFIX=$(PREFIX)"
	@echo "make asan, tsan, fuzz, lint, format   for developers"

# What building, running and testing need; tools/install-packages asks apt only for what is not there.
deps:
	@tools/install-packages build-essential cmake ninja-build pkg-config python3 \
		libdnnl-dev libopenmpi-dev openmpi-bin libcjson-dev libyaml-dev zlib1g-dev libcmocka-dev \
		dataset-fashion-mnist gnuplot-nox

deps-dev: deps
	@tools/install-packages clang clang-format clang-tidy cppcheck llvm

$(BUILD)/build.ninja: CMakeLists.txt
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

build: deps $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS)

demo: build
	@$(BUILD)/thinwire demo

test: build
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

bench: build
	@$(BUILD)/thinwire bench codec
	@bench/train.sh $(BUILD)/thinwire

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

# The same tests under sanitizers. oneDNN and Open MPI are not instrumented, and leak on purpose at exit.
asan: deps-dev
	@cmake -S . -B $(BUILD)-asan -G Ninja -DCMAKE_C_COMPILER=clang -DTHINWIRE_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=RelWithDebInfo > /dev/null
	@cmake --build $(BUILD)-asan -j $(JOBS)
	@cd $(BUILD)-asan && LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0 ASAN_OPTIONS=fast_unwind_on_malloc=0 \
		ctest --output-on-failure -j $(JOBS)

tsan: deps-dev
	@cmake -S . -B $(BUILD)-tsan -G Ninja -DCMAKE_C_COMPILER=clang -DTHINWIRE_SANITIZE=thread -DCMAKE_BUILD_TYPE=RelWithDebInfo > /dev/null
	@cmake --build $(BUILD)-tsan -j $(JOBS)
	@cd $(BUILD)-tsan && TSAN_OPTIONS=ignore_noninstrumented_modules=1 ctest --output-on-failure -j $(JOBS) -E mpi

fuzz: deps-dev
	@cmake -S . -B $(BUILD)-fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DTHINWIRE_FUZZ=ON -DTHINWIRE_SANITIZE=address,undefined \
		-DCMAKE_BUILD_TYPE=RelWithDebInfo > /dev/null
	@cmake --build $(BUILD)-fuzz -j $(JOBS)
	@tools/run-fuzzers $(BUILD)-fuzz

SOURCES = $(shell git ls-files '*.c' '*.h')
format:
	@clang-format -i --style=file $(SOURCES)

check-format:
	@clang-format --dry-run --Werror --style=file $(SOURCES)

lint: deps-dev $(BUILD)/build.ninja check-format
	@cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,performance,portability \
		--suppressions-list=tools/cppcheck.txt --project=$(BUILD)/compile_commands.json
	@tests/layers.py

clean:
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz
